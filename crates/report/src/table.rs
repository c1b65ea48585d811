//! Tables, for the page and for the terminal.

use unicode_width::UnicodeWidthStr;

use crate::numbers;
use crate::svg::{Esc, Px};

/// What a cell holds.
#[derive(Debug, Clone)]
pub enum Cell {
    /// Words.
    Text(String),
    /// A number with a fixed number of decimals; infinity is a time-out, not-a-number a gap.
    Number(f64, usize),
    /// A small line of values without axes.
    Spark(Vec<f64>),
    /// Nothing was measured.
    Missing,
}

impl From<&str> for Cell {
    fn from(text: &str) -> Cell {
        Cell::Text(text.to_owned())
    }
}

impl From<String> for Cell {
    fn from(text: String) -> Cell {
        Cell::Text(text)
    }
}

impl From<u64> for Cell {
    fn from(value: u64) -> Cell {
        Cell::Number(value as f64, 0)
    }
}

impl From<usize> for Cell {
    fn from(value: usize) -> Cell {
        Cell::Number(value as f64, 0)
    }
}

impl<T: Into<Cell>> From<Option<T>> for Cell {
    fn from(value: Option<T>) -> Cell {
        value.map_or(Cell::Missing, Into::into)
    }
}

/// Which end of a column is good, where the table should mark it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Best {
    /// Marks nothing.
    None,
    /// The lowest number is the best one, the highest the worst.
    Lowest,
    /// The highest number is the best one, the lowest the worst.
    Highest,
}

#[derive(Debug, Clone)]
struct Column {
    title: String,
    best: Best,
}

/// Rows under titled columns. Numbers are aligned to the right, words to the left.
#[derive(Debug, Clone, Default)]
pub struct Table {
    title: String,
    note: String,
    columns: Vec<Column>,
    rows: Vec<Vec<Cell>>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Mark {
    None,
    Best,
    Worst,
}

impl Table {
    /// A table without columns; the title may be empty.
    #[must_use]
    pub fn new(title: impl Into<String>) -> Table {
        Table { title: title.into(), ..Table::default() }
    }

    /// Adds a column; put the unit into its title.
    #[must_use]
    pub fn column(self, title: impl Into<String>) -> Table {
        self.column_with_best(title, Best::None)
    }

    /// Adds a column whose best and worst numbers are marked (bold and italics on the page, `*`
    /// behind the best in a terminal).
    #[must_use]
    pub fn column_with_best(mut self, title: impl Into<String>, best: Best) -> Table {
        self.columns.push(Column { title: title.into(), best });
        self
    }

    /// Adds a row: one cell per column. Missing cells are gaps, further ones are dropped.
    #[must_use]
    pub fn row(mut self, cells: impl IntoIterator<Item = Cell>) -> Table {
        self.push(cells);
        self
    }

    /// Adds a row in a loop.
    pub fn push(&mut self, cells: impl IntoIterator<Item = Cell>) {
        let gaps = std::iter::repeat(Cell::Missing);
        self.rows.push(cells.into_iter().chain(gaps).take(self.columns.len()).collect());
    }

    /// What the reader should know, in small print under the table.
    #[must_use]
    pub fn note(mut self, note: impl Into<String>) -> Table {
        self.note = note.into();
        self
    }

    /// The number of rows.
    #[must_use]
    pub fn len(&self) -> usize {
        self.rows.len()
    }

    /// Whether there is no row.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    fn is_numeric(&self, column: usize) -> bool {
        let mut cells = self.rows.iter().map(|r| &r[column]);
        cells.clone().any(|c| matches!(c, Cell::Number(..)))
            && cells.all(|c| !matches!(c, Cell::Text(_) | Cell::Spark(_)))
    }

    /// Best and worst number of each column that is marked.
    fn extremes(&self) -> Vec<Option<(f64, f64)>> {
        let of = |(c, column): (usize, &Column)| {
            let all = self.rows.iter().filter_map(move |row| number(&row[c]));
            let lowest = all.clone().reduce(f64::min)?;
            let highest = all.reduce(f64::max)?;
            match column.best {
                _ if lowest == highest => None,
                Best::None => None,
                Best::Lowest => Some((lowest, highest)),
                Best::Highest => Some((highest, lowest)),
            }
        };
        self.columns.iter().enumerate().map(of).collect()
    }

    /// The table as aligned text, as commands print it; ends with a line break.
    #[must_use]
    pub fn to_text(&self) -> String {
        let count = self.columns.len();
        let extremes = self.extremes();
        // The space keeps titles of marked columns in line with their digits.
        let pad = |best: Best| if best == Best::None { "" } else { " " };
        let mut lines: Vec<Vec<String>> =
            vec![self.columns.iter().map(|c| one_line(&c.title) + pad(c.best)).collect()];
        for row in &self.rows {
            let texts = row.iter().enumerate().map(|(c, cell)| {
                let text = cell_text(cell);
                match mark(cell, extremes[c]) {
                    Mark::Best => text + "*",
                    _ => text + pad(self.columns[c].best),
                }
            });
            lines.push(texts.collect());
        }
        let widths: Vec<usize> =
            (0..count).map(|c| lines.iter().map(|l| l[c].width()).max().unwrap_or(0)).collect();
        let right: Vec<bool> = (0..count).map(|c| self.is_numeric(c)).collect();
        let mut out = String::new();
        if !self.title.is_empty() {
            out.push_str(&one_line(&self.title));
            out.push('\n');
        }
        for (i, line) in lines.iter().enumerate() {
            out.push_str(&aligned(line, &widths, &right));
            if i == 0 {
                let rules: Vec<String> = widths.iter().map(|w| "─".repeat(*w)).collect();
                out.push_str(&aligned(&rules, &widths, &right));
            }
        }
        if !self.note.is_empty() {
            out.push_str(&wrapped(&one_line(&self.note)));
        }
        out
    }

    pub(crate) fn html(&self) -> String {
        let mut out = String::from(r#"<div class="table"><table>"#);
        if !self.title.is_empty() {
            out.push_str(&format!("<caption>{}</caption>", Esc(&self.title)));
        }
        out.push_str("<thead><tr>");
        for (c, column) in self.columns.iter().enumerate() {
            let class = if self.is_numeric(c) { r#" class="n""# } else { "" };
            out.push_str(&format!(r#"<th scope="col"{class}>{}</th>"#, Esc(&column.title)));
        }
        out.push_str("</tr></thead><tbody>");
        let numeric: Vec<bool> = (0..self.columns.len()).map(|c| self.is_numeric(c)).collect();
        let extremes = self.extremes();
        for row in &self.rows {
            out.push_str("<tr>");
            for (c, cell) in row.iter().enumerate() {
                out.push_str(&cell_html(cell, numeric[c], mark(cell, extremes[c])));
            }
            out.push_str("</tr>");
        }
        out.push_str("</tbody></table>");
        let marks = self.columns.iter().any(|c| c.best != Best::None);
        let legend = if marks { "Bold: best of its column; italics: worst. " } else { "" };
        if marks || !self.note.is_empty() {
            out.push_str(&format!(r#"<p class="note">{legend}{}</p>"#, Esc(&self.note)));
        }
        out.push_str("</div>\n");
        out
    }
}

fn cell_html(cell: &Cell, numeric: bool, mark: Mark) -> String {
    let class = match (numeric, mark) {
        (_, Mark::Best) => r#" class="n best""#,
        (_, Mark::Worst) => r#" class="n worst""#,
        (true, Mark::None) => r#" class="n""#,
        (false, Mark::None) => "",
    };
    match cell {
        Cell::Spark(values) => format!("<td>{}</td>", spark_svg(values)),
        other => format!("<td{class}>{}</td>", Esc(&cell_text(other))),
    }
}

fn number(cell: &Cell) -> Option<f64> {
    match cell {
        Cell::Number(value, _) if !value.is_nan() => Some(*value),
        _ => None,
    }
}

fn mark(cell: &Cell, extremes: Option<(f64, f64)>) -> Mark {
    match (number(cell), extremes) {
        (Some(value), Some((best, _))) if value == best => Mark::Best,
        (Some(value), Some((_, worst))) if value == worst => Mark::Worst,
        _ => Mark::None,
    }
}

fn aligned(cells: &[String], widths: &[usize], right: &[bool]) -> String {
    let mut line = String::new();
    for (i, cell) in cells.iter().enumerate() {
        let gap = " ".repeat(widths[i].saturating_sub(cell.width()));
        line.push_str(if i == 0 { "" } else { "  " });
        if right[i] {
            line.push_str(&gap);
            line.push_str(cell);
        } else {
            line.push_str(cell);
            line.push_str(&gap);
        }
    }
    line.truncate(line.trim_end().len());
    line.push('\n');
    line
}

/// Without control characters, which would reach the terminal (colours, cursor moves).
fn one_line(text: &str) -> String {
    text.chars().map(|c| if c.is_control() { ' ' } else { c }).collect()
}

/// Columns of a terminal: longer notes are broken between words.
const NOTE_WIDTH: usize = 80;

fn wrapped(text: &str) -> String {
    let (mut out, mut width) = (String::new(), 0);
    for word in text.split(' ') {
        if width > 0 {
            let breaks = width + 1 + word.width() > NOTE_WIDTH;
            out.push(if breaks { '\n' } else { ' ' });
            width = if breaks { 0 } else { width + 1 };
        }
        out.push_str(word);
        width += word.width();
    }
    out + "\n"
}

fn cell_text(cell: &Cell) -> String {
    match cell {
        Cell::Text(text) => one_line(text),
        Cell::Number(value, decimals) => numbers::grouped(*value, *decimals),
        Cell::Spark(values) => spark_text(values),
        Cell::Missing => "–".to_owned(),
    }
}

fn finite_span(values: &[f64]) -> Option<(f64, f64)> {
    let finite = values.iter().copied().filter(|v| v.is_finite());
    let lo = finite.clone().reduce(f64::min)?;
    let hi = finite.reduce(f64::max)?;
    Some((lo, hi))
}

fn spark_text(values: &[f64]) -> String {
    const LEVELS: [char; 8] = ['▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];
    let Some((lo, hi)) = finite_span(values) else { return "–".to_owned() };
    let level = |v: f64| ((v - lo) / (hi - lo).max(f64::MIN_POSITIVE) * 7.0).round() as usize;
    values.iter().map(|v| if v.is_finite() { LEVELS[level(*v).min(7)] } else { '×' }).collect()
}

fn spark_svg(values: &[f64]) -> String {
    let Some((lo, hi)) = finite_span(values) else { return "–".to_owned() };
    let (width, height) = (96.0, 20.0);
    let step = width / (values.len().max(2) - 1) as f64;
    let span = (hi - lo).max(f64::MIN_POSITIVE);
    let mut d = String::new();
    let mut pen_up = true;
    for (i, value) in values.iter().enumerate() {
        if !value.is_finite() {
            pen_up = true;
            continue;
        }
        let y = height - (value - lo) / span * height;
        let command = if pen_up { 'M' } else { 'L' };
        d.push_str(&format!("{command}{} {}", Px(step * i as f64 + 2.0), Px(y + 2.0)));
        pen_up = false;
    }
    let words = format!("from {} to {}", numbers::short(lo), numbers::short(hi));
    format!(
        concat!(
            r#"<svg class="spark" viewBox="0 0 100 24" role="img" aria-label="{}">"#,
            r#"<path d="{}"/></svg>"#
        ),
        words, d
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn table() -> Table {
        Table::new("Latency")
            .column("server")
            .column_with_best("P50 (ms)", Best::Lowest)
            .column("n")
            .row(["saccade".into(), Cell::Number(9.5, 1), 1200usize.into()])
            .row(["llama.cpp".into(), Cell::Number(12345.678, 1), 7usize.into()])
            .row(["stuck".into(), Cell::Number(f64::INFINITY, 1), Cell::Missing])
    }

    #[test]
    fn text_lines_up() {
        let text = table().to_text();
        let expected = "Latency
server     P50 (ms)       n
─────────  ─────────  ─────
saccade         9.5*  1,200
llama.cpp  12,345.7       7
stuck             ∞       –
";
        assert_eq!(text, expected);
    }

    #[test]
    fn long_notes_are_broken_between_words() {
        let note = "a note of many words ".repeat(9);
        let text = Table::new("").column("a").note(note.trim()).to_text();
        let lines: Vec<&str> = text.lines().skip(2).collect();
        assert!(lines.len() == 3 && lines.iter().all(|line| line.width() <= 80), "{text}");
        assert_eq!(lines.join(" "), note.trim());
    }

    #[test]
    fn a_terminal_gets_no_control_characters() {
        let text = Table::new("x").column("a").row(["\u{1b}[31mred\nnext".into()]).to_text();
        assert!(!text.contains('\u{1b}') && text.lines().count() == 4, "{text:?}");
    }

    #[test]
    fn the_page_marks_best_and_worst() {
        let html = table().html();
        assert!(html.contains(r#"<td class="n best">9.5</td>"#), "{html}");
        assert!(html.contains(r#"<td class="n worst">∞</td>"#), "{html}");
    }

    #[test]
    fn sparks_survive_any_values() {
        for values in [vec![], vec![1.0], vec![f64::NAN], vec![2.0, 2.0], vec![1.0, f64::INFINITY]]
        {
            spark_svg(&values);
            spark_text(&values);
        }
        assert_eq!(spark_text(&[0.0, 7.0, f64::INFINITY]), "▁█×");
    }
}
