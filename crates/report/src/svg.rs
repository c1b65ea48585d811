//! Writing markup: escaping, coordinates, and an estimate of how wide a text will be.

use std::fmt::{self, Display, Write};

/// A string that is safe between tags and between double quotes. Control characters, which HTML
/// forbids, become U+FFFD.
pub(crate) struct Esc<'a>(pub &'a str);

impl Display for Esc<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for c in self.0.chars() {
            match c {
                '<' => f.write_str("&lt;")?,
                '>' => f.write_str("&gt;")?,
                '&' => f.write_str("&amp;")?,
                '"' => f.write_str("&quot;")?,
                '\'' => f.write_str("&#39;")?,
                '\n' | '\t' => f.write_char(c)?,
                c if c.is_control() => f.write_char('\u{fffd}')?,
                c => f.write_char(c)?,
            }
        }
        Ok(())
    }
}

/// A coordinate: a tenth of a pixel is as fine as it needs to be.
#[derive(Clone, Copy)]
pub(crate) struct Px(pub f64);

impl Display for Px {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let tenths = (self.0 * 10.0).round() as i64;
        if tenths % 10 == 0 {
            write!(f, "{}", tenths / 10)
        } else {
            write!(f, "{:.1}", tenths as f64 / 10.0)
        }
    }
}

/// Where a text hangs on its point.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Anchor {
    Start,
    Middle,
    End,
}

impl Anchor {
    fn name(self) -> &'static str {
        match self {
            Anchor::Start => "start",
            Anchor::Middle => "middle",
            Anchor::End => "end",
        }
    }
}

/// Builds the inside of one `<svg>`. Attributes called `extra` are trusted: callers build them from
/// numbers and escaped text.
#[derive(Default)]
pub(crate) struct Svg {
    out: String,
}

impl Svg {
    pub fn new() -> Svg {
        Svg::default()
    }

    pub fn finish(self) -> String {
        self.out
    }

    /// Writes markup that is already escaped.
    pub fn raw(&mut self, markup: impl Display) {
        // Writing to a string does not fail.
        let _ = write!(self.out, "{markup}");
    }

    pub fn line(&mut self, class: &str, (x1, y1): (f64, f64), (x2, y2): (f64, f64)) {
        let (x1, y1, x2, y2) = (Px(x1), Px(y1), Px(x2), Px(y2));
        self.raw(format_args!(
            r#"<line class="{class}" x1="{x1}" y1="{y1}" x2="{x2}" y2="{y2}"/>"#
        ));
    }

    pub fn text(&mut self, class: &str, (x, y): (f64, f64), anchor: Anchor, text: &str) {
        let (x, y, anchor) = (Px(x), Px(y), anchor.name());
        self.raw(format_args!(
            r#"<text class="{class}" x="{x}" y="{y}" text-anchor="{anchor}">{}</text>"#,
            Esc(text)
        ));
    }

    /// A text turned by `degrees` about its own point.
    pub fn turned(
        &mut self,
        class: &str,
        (x, y): (f64, f64),
        anchor: Anchor,
        degrees: f64,
        text: &str,
    ) {
        let (x, y, anchor) = (Px(x), Px(y), anchor.name());
        self.raw(format_args!(r#"<text class="{class}" x="{x}" y="{y}" text-anchor="{anchor}" "#));
        self.raw(format_args!(r#"transform="rotate({degrees} {x} {y})">{}</text>"#, Esc(text)));
    }

    pub fn rect(&mut self, class: &str, (x, y): (f64, f64), (w, h): (f64, f64), extra: &str) {
        let (x, y, w, h) = (Px(x), Px(y), Px(w.max(0.0)), Px(h.max(0.0)));
        self.raw(format_args!(
            r#"<rect class="{class}" x="{x}" y="{y}" width="{w}" height="{h}" {extra}/>"#
        ));
    }

    pub fn path(&mut self, class: &str, d: &str, extra: &str) {
        self.raw(format_args!(r#"<path class="{class}" d="{d}" {extra}/>"#));
    }
}

/// The width of `text` in a sans-serif font of `size` pixels, rather over than under: what a
/// browser draws depends on its fonts, and labels must not meet in any of them.
pub(crate) fn text_width(text: &str, size: f64) -> f64 {
    text.chars().map(char_width).sum::<f64>() * size
}

/// In widths of the font's size.
fn char_width(c: char) -> f64 {
    match c {
        'i' | 'l' | 'j' | 'I' | '.' | ',' | ':' | ';' | '\'' | '|' | '!' => 0.32,
        'f' | 't' | 'r' | '(' | ')' | '[' | ']' | ' ' | '/' | '-' => 0.40,
        '0'..='9' => 0.62,
        'm' | 'w' | 'M' | 'W' | '@' | '%' | '…' | '—' => 0.98,
        'A'..='Z' | '&' | '<' | '>' | '=' | '+' | '×' | '∞' | '≥' | '≤' | '#' => 0.76,
        c if c.is_ascii() => 0.60,
        c => 0.66 * unicode_width::UnicodeWidthChar::width(c).unwrap_or(0) as f64,
    }
}

/// `text` cut to fit `width`, with an ellipsis where it was cut.
pub(crate) fn fit(text: &str, size: f64, width: f64) -> String {
    if text_width(text, size) <= width {
        return text.to_owned();
    }
    let room = width - text_width("…", size);
    let mut used = 0.0;
    let mut out: String = text
        .chars()
        .take_while(|c| {
            used += char_width(*c) * size;
            used <= room
        })
        .collect();
    out.truncate(out.trim_end().len());
    out.push('…');
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_gets_out_of_text_or_attributes() {
        let hostile = "</text><script>alert(1)</script>\" onload='x' & \u{0}\u{1b}";
        let safe = Esc(hostile).to_string();
        assert!(!safe.contains(['<', '>', '"', '\'', '\u{0}', '\u{1b}']), "{safe}");
        assert!(safe.contains("&amp;"));
    }

    #[test]
    fn coordinates_are_short() {
        assert_eq!(Px(1.0).to_string(), "1");
        assert_eq!(Px(1.26).to_string(), "1.3");
        assert_eq!(Px(-0.04).to_string(), "0");
    }

    #[test]
    fn a_cut_text_fits() {
        let cut = fit("meta-llama/Llama-3.1-8B-Instruct", 11.0, 80.0);
        assert!(cut.ends_with('…') && text_width(&cut, 11.0) <= 80.0, "{cut}");
        assert_eq!(fit("short", 11.0, 80.0), "short");
    }
}
