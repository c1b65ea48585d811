//! Numbers for people, and bars.

use std::time::Duration;

use indicatif::{ProgressBar, ProgressStyle};

/// What is not known.
pub(crate) const UNKNOWN: &str = "–";

/// Bytes with binary units.
pub(crate) fn bytes(n: u64) -> String {
    let units = [(40, "TiB"), (30, "GiB"), (20, "MiB"), (10, "KiB")];
    match units.into_iter().find(|(shift, _)| n >= 1 << shift) {
        Some((shift, unit)) => format!("{:.2} {unit}", n as f64 / (1_u64 << shift) as f64),
        None => format!("{n} B"),
    }
}

/// A time with one unit.
pub(crate) fn age(age: Option<Duration>) -> String {
    let Some(seconds) = age.map(|age| age.as_secs_f64()) else { return UNKNOWN.into() };
    let units = [(86400.0, "d"), (3600.0, "h"), (60.0, "min")];
    match units.into_iter().find(|(unit, _)| seconds >= 2.0 * unit) {
        Some((unit, name)) => format!("{:.1} {name}", seconds / unit),
        None => format!("{seconds:.0} s"),
    }
}

/// A number and its noun.
pub(crate) fn count(n: u64, noun: &str) -> String {
    format!("{n} {noun}{}", if n == 1 { "" } else { "s" })
}

/// A bar on a terminal; elsewhere nothing.
pub(crate) fn bar(what: &'static str, length: u64) -> ProgressBar {
    let bar = ProgressBar::new(length);
    let template = "{prefix} {bar:30} {pos}/{len} {msg}";
    if let Ok(style) = ProgressStyle::with_template(template) {
        bar.set_style(style);
    }
    bar.set_prefix(what);
    bar
}

/// Rows in columns, the first row a head. The first columns begin, and the others end, in line.
pub(crate) fn table(rows: &[Vec<String>], num_left: usize) -> String {
    let num_columns = rows.iter().map(Vec::len).max().unwrap_or(0);
    let width = |column: usize| {
        rows.iter().filter_map(|row| row.get(column)).map(|cell| cell.chars().count()).max()
    };
    let widths: Vec<usize> = (0..num_columns).map(|column| width(column).unwrap_or(0)).collect();
    let line = |row: &Vec<String>| {
        let cells = row.iter().zip(&widths).enumerate().map(|(column, (cell, width))| {
            if column < num_left { format!("{cell:<width$}") } else { format!("{cell:>width$}") }
        });
        cells.collect::<Vec<_>>().join("  ").trim_end().to_owned()
    };
    rows.iter().map(line).collect::<Vec<_>>().join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn units_fit() {
        assert_eq!(bytes(1023), "1023 B");
        assert_eq!(bytes(3 << 19), "1.50 MiB");
        assert_eq!(age(None), UNKNOWN);
        assert_eq!(age(Some(Duration::from_secs(90))), "90 s");
        assert_eq!(age(Some(Duration::from_secs(7 * 86400))), "7.0 d");
        assert_eq!(count(1, "chunk"), "1 chunk");
        let rows = [vec!["a".into(), "n".into()], vec!["bcd".into(), "10".into()]];
        assert_eq!(table(&rows, 1), "a     n\nbcd  10");
    }
}
