//! Bars, grouped by name.

use crate::axis::{self, Axis, Room};
use crate::chart::frame::{Entry, Frame, MarkerLine, Plot, Sample, Under};
use crate::chart::marks::{self, Hover};
use crate::chart::{Drawing, FULL_WIDTH};
use crate::numbers;
use crate::svg::{Anchor, Esc, Px, Svg, text_width};

/// Share of a group's room that its bars fill.
const FILL: f64 = 0.78;
const WIDEST_BAR: f64 = 56.0;

#[derive(Debug, Clone)]
struct Bars {
    name: String,
    values: Vec<f64>,
    /// Low and high end per value; may be empty.
    spread: Vec<(f64, f64)>,
    slot: Option<usize>,
}

/// A chart of one bar per name and series. A value that is infinite is a time-out and drawn as a
/// cross; one that is not a number is absent.
#[derive(Debug, Clone)]
pub struct BarChart {
    pub(crate) title: String,
    pub(crate) note: String,
    names_axis: Axis,
    y: Axis,
    names: Vec<String>,
    series: Vec<Bars>,
    horizontal: Vec<MarkerLine>,
    height: Option<f64>,
    numbers: bool,
}

impl BarChart {
    /// A chart without bars; `names_title` says what the names are, `names` go under the bars.
    #[must_use]
    pub fn new(
        title: impl Into<String>,
        names_title: impl Into<String>,
        names: impl IntoIterator<Item = impl Into<String>>,
        y: Axis,
    ) -> BarChart {
        BarChart {
            title: title.into(),
            note: String::new(),
            names_axis: Axis::linear(names_title, ""),
            y,
            names: names.into_iter().map(Into::into).collect(),
            series: Vec::new(),
            horizontal: Vec::new(),
            height: None,
            numbers: true,
        }
    }

    /// Adds one bar per name.
    #[must_use]
    pub fn series(
        self,
        name: impl Into<String>,
        values: impl IntoIterator<Item = f64>,
    ) -> BarChart {
        self.push(name.into(), values.into_iter().collect(), vec![])
    }

    /// Adds one bar per name, each `(value, low, high)`.
    #[must_use]
    pub fn series_with_spread(
        self,
        name: impl Into<String>,
        values: impl IntoIterator<Item = (f64, f64, f64)>,
    ) -> BarChart {
        let (values, spread) = values.into_iter().map(|(v, lo, hi)| (v, (lo, hi))).unzip();
        self.push(name.into(), values, spread)
    }

    fn push(mut self, name: String, values: Vec<f64>, spread: Vec<(f64, f64)>) -> BarChart {
        self.series.push(Bars { name, values, spread, slot: None });
        self
    }

    /// Gives the series added last the colour and hatching number `slot`.
    #[must_use]
    pub fn slot(mut self, slot: usize) -> BarChart {
        if let Some(last) = self.series.last_mut() {
            last.slot = Some(slot);
        }
        self
    }

    /// Adds a labelled horizontal line at `y`.
    #[must_use]
    pub fn horizontal(mut self, y: f64, label: impl Into<String>) -> BarChart {
        self.horizontal.push(MarkerLine { value: y, label: label.into() });
        self
    }

    /// What the reader should know, in small print under the chart.
    #[must_use]
    pub fn note(mut self, note: impl Into<String>) -> BarChart {
        self.note = note.into();
        self
    }

    /// Pixels from top to bottom.
    #[must_use]
    pub fn height(mut self, pixels: f64) -> BarChart {
        self.height = Some(pixels);
        self
    }

    /// Leaves out the numbers above the bars.
    #[must_use]
    pub fn without_numbers(mut self) -> BarChart {
        self.numbers = false;
        self
    }

    fn y_domain(&self) -> (f64, f64) {
        let values = self.series.iter().flat_map(|s| s.values.iter().copied());
        let spread = self.series.iter().flat_map(|s| s.spread.iter().flat_map(|(a, b)| [*a, *b]));
        let lines = self.horizontal.iter().map(|l| l.value);
        let (lo, hi) = axis::domain(&self.y, values.chain(spread).chain(lines), Room::FromZero);
        // On a logarithmic axis the lowest bar must have a height, too.
        if self.y.log && self.y.from.is_none() { (lo / 2.0, hi) } else { (lo, hi) }
    }

    pub(crate) fn draw(&self, id: &str, width: f64) -> Drawing {
        let height = self.height.unwrap_or(if width < FULL_WIDTH { 300.0 } else { 340.0 });
        let legend: Vec<Entry> = self
            .series
            .iter()
            .enumerate()
            .filter(|(_, s)| !s.name.is_empty())
            .map(|(i, s)| Entry {
                name: s.name.clone(),
                slot: s.slot.unwrap_or(i),
                sample: Sample::Area,
            })
            .collect();
        let frame = Frame {
            id,
            size: (width, height),
            under: Under::Names { axis: &self.names_axis, names: &self.names },
            y: &self.y,
            y_domain: self.y_domain(),
            legend: &legend,
            vertical: &[],
            horizontal: &self.horizontal,
        };
        let mut svg = Svg::new();
        let plot = frame.draw(&mut svg);
        svg.raw(r#"<g class="marks">"#);
        for index in 0..self.series.len() {
            self.draw_series(&mut svg, &plot, index);
        }
        svg.raw("</g>");
        frame.draw_markers(&mut svg, &plot);
        Drawing { height, markup: svg.finish(), remarks: vec![] }
    }

    /// Left edge and width of the bar of series `index` over name `i`.
    fn place(&self, plot: &Plot, index: usize, i: usize) -> (f64, f64) {
        let room = (plot.right() - plot.left()) / self.names.len().max(1) as f64;
        let width = (room * FILL / self.series.len().max(1) as f64).min(WIDEST_BAR);
        let group = width * self.series.len() as f64;
        let left = plot.left() + room * i as f64 + (room - group) / 2.0;
        (left + width * index as f64, width - 1.0)
    }

    fn draw_series(&self, svg: &mut Svg, plot: &Plot, index: usize) {
        let bars = &self.series[index];
        let slot = bars.slot.unwrap_or(index);
        let mut hovers = Vec::new();
        let mut inner = Svg::new();
        for (i, value) in bars.values.iter().enumerate().take(self.names.len()) {
            let (x, width) = self.place(plot, index, i);
            let middle = x + width / 2.0;
            let top = if self.y.shows(*value) { plot.y.clamped(*value) } else { plot.bottom() };
            if *value == f64::INFINITY {
                marks::cross(&mut inner, (middle, plot.bottom() - 9.0), 4.5);
            } else if self.y.shows(*value) {
                let base = if self.y.log { plot.bottom() } else { plot.y.clamped(0.0) };
                let at = (x, top.min(base));
                marks::bar(&mut inner, slot, at, (width, (base - top).abs().max(0.5)), "");
                let spread = self.draw_spread(&mut inner, plot, bars, i, middle);
                let (low, high) = spread.unwrap_or((top, top));
                let y = if top > base { low.max(top) + 11.0 } else { high.min(top) - 4.0 };
                self.draw_number(&mut inner, *value, (middle, y), width);
            }
            if !value.is_nan() {
                let said =
                    if value.is_finite() { self.y.value(*value) } else { "timed out".into() };
                let text = format!("{}\n{}: {said}", self.names[i], self.y.name());
                hovers.push(Hover { at: (middle, top.min(plot.bottom() - 9.0)), text });
            }
        }
        svg.raw(format_args!(
            r#"<g class="s {}" data-n="{}" {}>{}</g>"#,
            marks::slot_class(slot),
            Esc(&bars.name),
            marks::hover_attribute(&hovers),
            inner.finish()
        ));
    }

    /// Draws the spread of bar `i`; returns the pixels of its bottom and top.
    fn draw_spread(
        &self,
        svg: &mut Svg,
        plot: &Plot,
        bars: &Bars,
        i: usize,
        x: f64,
    ) -> Option<(f64, f64)> {
        let (lo, hi) = *bars.spread.get(i)?;
        if !self.y.shows(hi) || lo.is_nan() {
            return None;
        }
        let low = if self.y.shows(lo) { plot.y.clamped(lo) } else { plot.bottom() };
        let high = plot.y.clamped(hi);
        let (l, r) = (Px(x - 4.0), Px(x + 4.0));
        let (x, a, b) = (Px(x), Px(low), Px(high));
        svg.path("wh ink", &format!("M{l} {a}H{r}M{x} {a}V{b}M{l} {b}H{r}"), "");
        Some((low, high))
    }

    fn draw_number(&self, svg: &mut Svg, value: f64, at: (f64, f64), width: f64) {
        let text = numbers::short(value);
        if self.numbers && text_width(&text, 10.0) <= width + 4.0 {
            svg.text("bn", at, Anchor::Middle, &text);
        }
    }
}
