//! The page around the blocks.

use crate::chart::{FULL_WIDTH, HALF_WIDTH, marks};
use crate::report::{Block, Level, Report};
use crate::svg::Esc;

const STYLE: &str = include_str!("page.css");
const SCRIPT: &str = include_str!("page.js");
/// Of `page.css` and `page.js`: the page's policy lets nothing else style it or run in it.
const STYLE_HASH: &str = "sha256-DppOD6+zikIion9qz9FoMew96sPXG0R6hJQrbNfdNCE=";
const SCRIPT_HASH: &str = "sha256-cEyPWVgEh/YeX78pweqC7enbFHVD/bvn0V4HBtqu9HM=";

/// The whole document.
pub(crate) fn page(report: &Report) -> String {
    let mut out = String::with_capacity(64 * 1024);
    out.push_str(&head(report));
    out.push_str(marks::HATCHES);
    out.push_str(&title(report));
    out.push_str("<main>\n");
    for (i, section) in report.sections.iter().enumerate() {
        out.push_str(&format!("<section id=\"s{}\"><h2>{}</h2>\n", i + 1, Esc(&section.title)));
        for (j, block) in section.blocks.iter().enumerate() {
            out.push_str(&block_html(block, &format!("f{}-{}", i + 1, j + 1)));
        }
        out.push_str("</section>\n");
    }
    out.push_str(&raw_data(report));
    out.push_str("</main>\n<div id=\"tip\" role=\"status\" hidden></div>\n");
    out.push_str(&format!("<script>{SCRIPT}</script>\n</body>\n</html>\n"));
    out
}

fn head(report: &Report) -> String {
    format!(
        concat!(
            "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n",
            "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; ",
            "style-src '{style_hash}'; script-src '{script_hash}'; img-src data:; ",
            "base-uri 'none'; form-action 'none'\">\n",
            "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n",
            "<meta name=\"color-scheme\" content=\"light dark\">\n",
            "<meta name=\"referrer\" content=\"no-referrer\">\n",
            "<link rel=\"icon\" href=\"data:,\">\n",
            "<title>{title}</title>\n<style>{style}</style>\n</head>\n<body>\n"
        ),
        style_hash = STYLE_HASH,
        script_hash = SCRIPT_HASH,
        title = Esc(&report.title),
        style = STYLE,
    )
}

fn title(report: &Report) -> String {
    let mut out = format!("<header>\n<h1>{}</h1>\n", Esc(&report.title));
    if !report.subtitle.is_empty() {
        out.push_str(&format!("<p class=\"sub\">{}</p>\n", Esc(&report.subtitle)));
    }
    if !report.facts.is_empty() {
        out.push_str("<dl class=\"facts\">\n");
        for (name, value) in &report.facts {
            out.push_str(&format!("<div><dt>{}</dt><dd>{}</dd></div>\n", Esc(name), Esc(value)));
        }
        out.push_str("</dl>\n");
    }
    if report.sections.len() > 2 {
        out.push_str("<nav aria-label=\"Contents\"><ol>\n");
        for (i, section) in report.sections.iter().enumerate() {
            let name = Esc(&section.title);
            out.push_str(&format!("<li><a href=\"#s{}\">{name}</a></li>\n", i + 1));
        }
        out.push_str("</ol></nav>\n");
    }
    out.push_str("</header>\n");
    out
}

fn block_html(block: &Block, id: &str) -> String {
    match block {
        Block::Paragraph(text) => format!("<p>{}</p>\n", Esc(text)),
        Block::Callout { level, title, text } => callout(*level, title, text),
        Block::Table(table) => table.html(),
        Block::Chart(chart) => chart.html(id, FULL_WIDTH),
        Block::SideBySide(charts) => {
            let figures: String = charts
                .iter()
                .enumerate()
                .map(|(i, chart)| chart.html(&format!("{id}-{}", i + 1), HALF_WIDTH))
                .collect();
            format!("<div class=\"pair\">\n{figures}</div>\n")
        }
    }
}

fn callout(level: Level, title: &str, text: &str) -> String {
    // The sign says in black and white what the colour says on screen.
    let (class, sign) = match level {
        Level::Good => ("good", "✓"),
        Level::Warning => ("warn", "!"),
        Level::Bad => ("bad", "✗"),
        Level::Info => ("info", "i"),
    };
    format!(
        concat!(
            "<div class=\"callout {class}\"><span class=\"sign\" aria-hidden=\"true\">{sign}</span>",
            "<div><strong>{title}</strong><p>{text}</p></div></div>\n"
        ),
        class = class,
        sign = sign,
        title = Esc(title),
        text = Esc(text),
    )
}

fn raw_data(report: &Report) -> String {
    if report.data.is_empty() {
        return String::new();
    }
    let mut out = String::from("<section id=\"raw\"><h2>Raw data</h2>\n<ul class=\"data\">\n");
    for (i, (name, json)) in report.data.iter().enumerate() {
        let size = crate::numbers::grouped(json.len() as f64, 0);
        out.push_str(&format!(
            "<li><a class=\"save\" data-from=\"d{i}\" download=\"{name}.json\">{name}.json</a> \
             ({size} bytes, embedded in this file)</li>\n",
            name = Esc(name),
        ));
    }
    out.push_str("</ul>\n");
    for (i, (_, json)) in report.data.iter().enumerate() {
        out.push_str(&format!(
            "<script type=\"application/json\" id=\"d{i}\">{}</script>\n",
            script_safe(json)
        ));
    }
    out.push_str("</section>\n");
    out
}

/// JSON that cannot end its script element: angle brackets are written as escapes; in JSON they
/// occur only inside strings.
fn script_safe(json: &str) -> String {
    let json = json.replace('<', "\\u003c").replace('>', "\\u003e");
    json.replace('\u{2028}', "\\u2028").replace('\u{2029}', "\\u2029")
}

#[cfg(test)]
mod tests {
    use base64::Engine;
    use sha2::Digest;

    use super::*;
    use crate::{Axis, BarChart, Heatmap, LineChart, Section, Series, Table};

    fn hash(text: &str) -> String {
        let digest = sha2::Sha256::digest(text.as_bytes());
        format!("sha256-{}", base64::engine::general_purpose::STANDARD.encode(digest))
    }

    #[test]
    fn the_policy_names_this_style_and_script() {
        assert_eq!((STYLE_HASH, SCRIPT_HASH), (hash(STYLE).as_str(), hash(SCRIPT).as_str()));
    }

    #[test]
    fn hostile_strings_stay_text() {
        let bad = "</script></style><img src=x onerror=alert(1)>\"'&<!--";
        let axis = || Axis::linear(bad, bad);
        let line = LineChart::new(bad, axis(), axis())
            .series(Series::new(bad).points([(0.0, 1.0), (1.0, 2.0)]))
            .vertical(0.5, bad)
            .horizontal(1.0, bad)
            .note(bad);
        let bar = BarChart::new(bad, bad, [bad, bad], axis()).series(bad, [1.0, 2.0]);
        let names = vec![bad.to_owned()];
        let heat = Heatmap::new(bad, (bad, names.clone()), (bad, names), vec![vec![1.0]])
            .values_are(bad, bad, 1);
        let table = Table::new(bad).column(bad).row([bad.into()]).note(bad);
        let section = Section::new(bad)
            .paragraph(bad)
            .callout(Level::Bad, bad, bad)
            .table(table)
            .chart(line)
            .chart(bar)
            .chart(heat);
        let report = Report::new(bad).subtitle(bad).fact(bad, bad).section(section);
        let html = report.data(bad, &bad).expect("a string has a JSON form").to_html();
        assert!(!html.contains("<img"), "markup came through");
        assert_eq!(html.matches("<script").count(), 2);
        assert_eq!(html.matches("</script").count(), 2);
        assert_eq!(html.matches("<!--").count(), 0);
        assert!(!html.contains("onerror=alert(1)>"));
    }

    #[test]
    fn embedded_json_reads_back() {
        let value = serde_json::json!({"a</script>": ["<", "\u{2028}", 1.5]});
        let text = script_safe(&value.to_string());
        assert!(!text.contains('<'));
        let back: serde_json::Value = serde_json::from_str(&text).expect("still JSON");
        assert_eq!(back, value);
    }
}
