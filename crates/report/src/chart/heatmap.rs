//! A value per row and column, as colours with the numbers written in them.

use crate::chart::marks::{self, Hover};
use crate::chart::{Drawing, ramp};
use crate::numbers;
use crate::svg::{Anchor, Px, Svg, fit, text_width};

const CELL_HEIGHT: f64 = 34.0;
const WIDEST_CELL: f64 = 110.0;
const LONGEST_ROW_NAME: f64 = 190.0;
const KEY_STEPS: usize = 48;

/// How values become colours.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Ramp {
    /// Light to dark, lowest to highest.
    Sequential,
    /// As sequential, by the logarithm of the value.
    SequentialLog,
    /// Blue above `centre`, orange below, white at it.
    Diverging {
        /// The value that is neither good nor bad.
        centre: f64,
    },
    /// As diverging, by the logarithm: half and double are equally far from a centre of 1.
    DivergingLog {
        /// The value that is neither good nor bad; must be positive.
        centre: f64,
    },
}

/// A grid of coloured cells. An infinite value is a time-out, drawn as ∞ on hatching; one that is
/// not a number was not measured.
#[derive(Debug, Clone)]
pub struct Heatmap {
    pub(crate) title: String,
    pub(crate) note: String,
    columns: (String, Vec<String>),
    rows: (String, Vec<String>),
    values: Vec<Vec<f64>>,
    ramp: Ramp,
    low_is_good: bool,
    decimals: usize,
    unit: String,
    value_name: String,
}

impl Heatmap {
    /// `values[row][column]`; rows from top to bottom. Missing values count as not measured.
    #[must_use]
    pub fn new(
        title: impl Into<String>,
        columns: (impl Into<String>, Vec<String>),
        rows: (impl Into<String>, Vec<String>),
        values: Vec<Vec<f64>>,
    ) -> Heatmap {
        Heatmap {
            title: title.into(),
            note: String::new(),
            columns: (columns.0.into(), columns.1),
            rows: (rows.0.into(), rows.1),
            values,
            ramp: Ramp::Sequential,
            low_is_good: false,
            decimals: 2,
            unit: String::new(),
            value_name: String::new(),
        }
    }

    /// How values become colours; sequential if not said.
    #[must_use]
    pub fn ramp(mut self, ramp: Ramp) -> Heatmap {
        self.ramp = ramp;
        self
    }

    /// Reverses a diverging ramp: blue below the centre.
    #[must_use]
    pub fn low_is_good(mut self) -> Heatmap {
        self.low_is_good = true;
        self
    }

    /// What the values are and their unit (`×`, `ms`), and how many decimals cells show.
    #[must_use]
    pub fn values_are(
        mut self,
        name: impl Into<String>,
        unit: impl Into<String>,
        decimals: usize,
    ) -> Heatmap {
        self.value_name = name.into();
        self.unit = unit.into();
        self.decimals = decimals;
        self
    }

    /// What the reader should know, in small print under the chart.
    #[must_use]
    pub fn note(mut self, note: impl Into<String>) -> Heatmap {
        self.note = note.into();
        self
    }

    fn value(&self, row: usize, column: usize) -> f64 {
        let value = self.values.get(row).and_then(|r| r.get(column)).copied();
        value.unwrap_or(f64::NAN)
    }

    fn logarithmic(&self) -> bool {
        matches!(self.ramp, Ramp::SequentialLog | Ramp::DivergingLog { .. })
    }

    fn centre(&self) -> Option<f64> {
        match self.ramp {
            Ramp::Diverging { centre } | Ramp::DivergingLog { centre } => Some(centre),
            _ => None,
        }
    }

    /// The value as the ramp sees it.
    fn eased(&self, value: f64) -> f64 {
        if self.logarithmic() { value.max(f64::MIN_POSITIVE).ln() } else { value }
    }

    /// Lowest and highest value of the ramp, eased.
    fn span(&self) -> (f64, f64) {
        let all = self.values.iter().flatten().copied();
        let known = all.filter(|v| v.is_finite() && (!self.logarithmic() || *v > 0.0));
        let (mut lo, mut hi) = (f64::INFINITY, f64::NEG_INFINITY);
        for value in known.map(|v| self.eased(v)) {
            lo = lo.min(value);
            hi = hi.max(value);
        }
        if lo > hi {
            (lo, hi) = (0.0, 1.0);
        }
        if let Some(centre) = self.centre() {
            let centre = self.eased(centre);
            let reach = (hi - centre).abs().max((centre - lo).abs()).max(1e-9);
            return (centre - reach, centre + reach);
        }
        if lo == hi { (lo - 0.5, hi + 0.5) } else { (lo, hi) }
    }

    fn colour(&self, value: f64) -> ramp::Rgb {
        let (lo, hi) = self.span();
        self.colour_at((self.eased(value) - lo) / (hi - lo))
    }

    fn colour_at(&self, share: f64) -> ramp::Rgb {
        let share = if self.low_is_good { 1.0 - share } else { share };
        ramp::colour(self.centre().is_some(), share)
    }

    pub(crate) fn draw(&self, _id: &str, width: f64) -> Drawing {
        let (columns, rows) = (self.columns.1.len().max(1), self.rows.1.len().max(1));
        let names = self.rows.1.iter().map(|n| text_width(n, 11.0)).fold(0.0, f64::max);
        let left = 30.0 + names.min(LONGEST_ROW_NAME) + 8.0;
        let cell = ((width - left - 12.0) / columns as f64).min(WIDEST_CELL);
        let top = 8.0;
        let bottom = top + CELL_HEIGHT * rows as f64;
        let mut svg = Svg::new();
        self.draw_names(&mut svg, left, top, cell);
        let mut hovers = Vec::new();
        let mut cells = Svg::new();
        for row in 0..self.rows.1.len() {
            for column in 0..self.columns.1.len() {
                let at = (left + cell * column as f64, top + CELL_HEIGHT * row as f64);
                self.draw_cell(&mut cells, row, column, at, cell);
                let middle = (at.0 + cell / 2.0, at.1 + CELL_HEIGHT / 2.0);
                hovers.push(Hover { at: middle, text: self.describe(row, column) });
            }
        }
        svg.raw(format_args!(
            r#"<g class="marks"><g class="s" data-n="" {}>{}</g></g>"#,
            marks::hover_attribute(&hovers),
            cells.finish()
        ));
        let middle = left + cell * columns as f64 / 2.0;
        let title = fit(&self.columns.0, 12.0, width - left);
        svg.text("at", (middle, bottom + 36.0), Anchor::Middle, &title);
        let title = fit(&self.rows.0, 12.0, (bottom - top).max(60.0));
        svg.turned("at", (14.0, f64::midpoint(top, bottom)), Anchor::Middle, -90.0, &title);
        self.draw_key(&mut svg, left, bottom + 58.0);
        Drawing { height: bottom + 92.0, markup: svg.finish(), remarks: self.remarks() }
    }

    fn remarks(&self) -> Vec<String> {
        let any = |f: fn(f64) -> bool| self.values.iter().flatten().any(|v| f(*v));
        let mut remarks = Vec::new();
        if any(|v| v == f64::INFINITY) {
            remarks.push("∞: timed out.".to_owned());
        }
        if any(f64::is_nan) {
            remarks.push("–: not measured.".to_owned());
        }
        remarks
    }

    fn draw_names(&self, svg: &mut Svg, left: f64, top: f64, cell: f64) {
        for (i, name) in self.rows.1.iter().enumerate() {
            let y = top + CELL_HEIGHT * (i as f64 + 0.5) + 4.0;
            let shown = fit(name, 11.0, LONGEST_ROW_NAME);
            svg.text("tk ty", (left - 7.0, y), Anchor::End, &shown);
        }
        let bottom = top + CELL_HEIGHT * self.rows.1.len() as f64;
        for (i, name) in self.columns.1.iter().enumerate() {
            let x = left + cell * (i as f64 + 0.5);
            let shown = fit(name, 11.0, cell - 4.0);
            svg.text("tk tx", (x, bottom + 16.0), Anchor::Middle, &shown);
        }
    }

    fn draw_cell(&self, svg: &mut Svg, row: usize, column: usize, at: (f64, f64), cell: f64) {
        let value = self.value(row, column);
        let size = (cell - 2.0, CELL_HEIGHT - 2.0);
        let middle = (at.0 + cell / 2.0 - 1.0, at.1 + CELL_HEIGHT / 2.0 + 3.0);
        if value.is_nan() {
            svg.rect("cl no", at, size, "");
            svg.text("cv", middle, Anchor::Middle, "–");
        } else if value.is_infinite() {
            svg.rect("cl out", at, size, r#"fill="url(#hatch-out)""#);
            svg.text("cv", middle, Anchor::Middle, "∞");
        } else {
            let colour = self.colour(value);
            svg.rect("cl", at, size, &format!(r#"fill="{}""#, ramp::hex(colour)));
            let class = if ramp::is_dark(colour) { "cv on-dark" } else { "cv on-light" };
            let text = numbers::grouped(value, self.decimals);
            // Narrow cells have their number in the hover box and the raw data only.
            if text_width(&text, 11.0) <= size.0 {
                svg.text(class, middle, Anchor::Middle, &text);
            }
        }
    }

    fn describe(&self, row: usize, column: usize) -> String {
        let value = self.value(row, column);
        let said = match value {
            v if v.is_nan() => "not measured".to_owned(),
            v if v.is_infinite() => "timed out".to_owned(),
            v => format!("{} {}", numbers::grouped(v, self.decimals), self.unit),
        };
        format!(
            "{}: {}\n{}: {}\n{}",
            self.rows.0, self.rows.1[row], self.columns.0, self.columns.1[column], said
        )
    }

    /// The ramp with its ends and centre.
    fn draw_key(&self, svg: &mut Svg, left: f64, y: f64) {
        let (lo, hi) = self.span();
        let width = 200.0;
        let step = width / KEY_STEPS as f64;
        for i in 0..KEY_STEPS {
            let colour = ramp::hex(self.colour_at((i as f64 + 0.5) / KEY_STEPS as f64));
            let at = (left + step * i as f64, y);
            svg.rect("ky", at, (step + 0.5, 10.0), &format!(r#"fill="{colour}""#));
        }
        let plain = |v: f64| if self.logarithmic() { v.exp() } else { v };
        let text = |v: f64| numbers::short(plain(v));
        svg.text("kt", (left, y + 23.0), Anchor::Start, &text(lo));
        if self.centre().is_some() {
            let middle = f64::midpoint(lo, hi);
            svg.text("kt", (left + width / 2.0, y + 23.0), Anchor::Middle, &text(middle));
        }
        svg.text("kt", (left + width, y + 23.0), Anchor::End, &text(hi));
        let name = match (self.value_name.as_str(), self.unit.as_str()) {
            ("", unit) => unit.to_owned(),
            (name, "") => name.to_owned(),
            (name, unit) => format!("{name} ({unit})"),
        };
        svg.text("kt", (left + width + 12.0, y + 9.0), Anchor::Start, &name);
        let frame = format!("M{} {}h{}v10h-{}z", Px(left), Px(y), Px(width), Px(width));
        svg.path("kf", &frame, "");
    }
}
