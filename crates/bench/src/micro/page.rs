//! Results as one page with plots.

use saccade_report::{Axis, BarChart, Chart, Heatmap, Level, LineChart, Report, Section, Series};

use super::output::Document;
use super::{broadcast, roof, straggler, tokenize};
use crate::micro::broadcast::Design;
use crate::output::counted;

/// The page of a document, which it carries as data.
///
/// # Errors
/// If the document has no JSON form.
pub(crate) fn of(document: &Document) -> anyhow::Result<Report> {
    let host = &document.host;
    let mut report = Report::new("Parts of an engine that its host slows down")
        .subtitle("saccade bench micro")
        .fact("version", document.version.as_str())
        .fact("cores", format!("{} of {}", host.cores, host.cpu))
        .fact("kernel", host.kernel.as_str())
        .fact("load before", format!("{:.2}", host.load_1m));
    for warning in &document.warnings {
        let section = Section::new("Read this first");
        report = report.section(section.callout(Level::Warning, "Warning", warning.as_str()));
    }
    if let Some(result) = &document.tokenize {
        report = report.section(tokenize_section(result));
    }
    if let Some(result) = &document.broadcast {
        report = report.section(broadcast_section(result));
    }
    if let Some(result) = &document.straggler {
        report = report.section(straggler_section(result));
    }
    if let Some(result) = &document.roof {
        report = report.section(roof_section(result));
    }
    for why in &document.skipped {
        report = report.section(Section::new("Skipped").paragraph(why.as_str()));
    }
    report.data("micro", document)
}

fn with_notes(section: Section, notes: &[String]) -> Section {
    notes.iter().fold(section, |section, note| section.paragraph(note.as_str()))
}

fn roof_section(result: &roof::Report) -> Section {
    let section = Section::new("What the machine allows");
    let section = section.table(result.memory_table()).table(result.steps_table());
    with_notes(section, &result.notes)
}

fn tokenize_section(result: &tokenize::Report) -> Section {
    let mut section = Section::new("Tokenization");
    for warning in &result.warnings {
        section = section.callout(Level::Warning, "Not the same work", warning.as_str());
    }
    if let Some(chart) = share_chart(result) {
        section = section.chart(chart);
    }
    section = section.table(result.table());
    if let Some(table) = result.server_table() {
        section = section.table(table);
    }
    with_notes(section, &result.notes)
}

/// Share of TTFT by batch and length: of the server if there is one, else computed.
fn share_chart(result: &tokenize::Report) -> Option<Heatmap> {
    let setup = &result.setup;
    let threads = setup.threads.iter().copied().max().unwrap_or(1);
    let share = |length: usize, batch: usize| {
        let of_server = result.server.iter().find(|r| (r.length, r.batch) == (length, batch));
        let here = |r: &&tokenize::Row| (r.length, r.batch, r.threads) == (length, batch, threads);
        let computed = || result.rows.iter().find(here).and_then(|r| r.share).map(|s| s.p50);
        let share = of_server.map(|r| r.share.p50).or_else(computed);
        share.map_or(f64::NAN, |share| 100.0 * share)
    };
    if setup.base_url.is_none() && setup.prefill_tokens_per_s.is_none() {
        return None;
    }
    let rows = setup.lengths.iter().map(|&length| {
        setup.batches.iter().map(|&batch| share(length, batch)).collect::<Vec<f64>>()
    });
    let what = match &setup.base_url {
        Some(url) => format!("measured on {url}"),
        None => format!("computed, {}", counted(threads, "thread")),
    };
    let labels = |numbers: &[usize]| numbers.iter().map(usize::to_string).collect::<Vec<_>>();
    let title = format!("Share of tokenization in TTFT, % ({what})");
    Some(
        Heatmap::new(
            title,
            ("prompts of a batch", labels(&setup.batches)),
            ("tokens of a prompt", labels(&setup.lengths)),
            rows.collect(),
        )
        .low_is_good(),
    )
}

fn broadcast_section(result: &broadcast::Report) -> Section {
    let of_hogs = |&hogs: &usize| -> Chart {
        let title = match hogs {
            0 => "Decision latency, no hogs".into(),
            _ => format!("Decision latency beside {}", counted(hogs, "CPU hog")),
        };
        let ranks = Axis::linear("ranks", "");
        let mut chart = LineChart::new(title, ranks, Axis::log("P50, to P99", "us"));
        for design in Design::ALL {
            let rows = result.rows.iter().filter(|r| (r.hogs, r.design) == (hogs, design));
            let points = rows
                .map(|r| (r.ranks as f64, r.decision_us.p50, r.decision_us.p50, r.decision_us.p99));
            chart = chart.series(Series::new(design.name()).band(points).whiskers());
        }
        chart.into()
    };
    let charts: Vec<Chart> = result.setup.hogs.iter().map(of_hogs).collect();
    let section = Section::new("Deciding a step: broadcast, or every rank for itself")
        .side_by_side(charts)
        .table(result.ratio_table())
        .table(result.table());
    with_notes(section, &result.notes)
}

fn straggler_section(result: &straggler::Report) -> Section {
    let name = |r: &straggler::Row| {
        let late = if r.delay_us == 0 { String::new() } else { format!(", {} us", r.delay_us) };
        format!("{} on {}{late}", r.ranks, r.cores)
    };
    let names: Vec<String> = result.rows.iter().map(name).collect();
    let microseconds = Axis::log("iteration", "us");
    let of = |value: fn(&straggler::Row) -> f64| result.rows.iter().map(value).collect::<Vec<_>>();
    let chart = BarChart::new("Iterations", "ranks on cores, delay", names, microseconds)
        .series("P50", of(|r| r.iteration_us.p50))
        .series("P99", of(|r| r.iteration_us.p99));
    let section =
        Section::new("Barriers when ranks outnumber cores").chart(chart).table(result.table());
    with_notes(section, &result.notes)
}
