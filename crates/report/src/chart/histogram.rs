//! Counts per range of values.

use crate::axis::{self, Axis, Room};
use crate::chart::frame::{Frame, MarkerLine, Plot, Under};
use crate::chart::marks::{self, Hover};
use crate::chart::{Drawing, FULL_WIDTH};
use crate::numbers;
use crate::svg::Svg;

/// A histogram of one set of values.
#[derive(Debug, Clone)]
pub struct Histogram {
    pub(crate) title: String,
    pub(crate) note: String,
    x: Axis,
    y: Axis,
    /// Ascending; one more than counts.
    edges: Vec<f64>,
    counts: Vec<f64>,
    left_out: usize,
    slot: usize,
    vertical: Vec<MarkerLine>,
}

impl Histogram {
    /// A histogram of counts that were made elsewhere: `edges` ascend and are one more than
    /// `counts`; what exceeds that is ignored.
    #[must_use]
    pub fn new(
        title: impl Into<String>,
        x: Axis,
        count: Axis,
        edges: Vec<f64>,
        counts: Vec<f64>,
    ) -> Histogram {
        Histogram {
            title: title.into(),
            note: String::new(),
            x,
            y: count,
            edges,
            counts,
            left_out: 0,
            slot: 0,
            vertical: Vec::new(),
        }
    }

    /// A histogram of `samples` in `bins` ranges of equal width (of equal ratio, on a logarithmic
    /// axis). Values that the axis cannot show are counted in a remark.
    #[must_use]
    pub fn of(title: impl Into<String>, x: Axis, samples: &[f64], bins: usize) -> Histogram {
        let bins = bins.clamp(1, 500);
        let shown: Vec<f64> = samples.iter().copied().filter(|v| x.shows(*v)).collect();
        let (lo, hi) = axis::domain(&x, shown.iter().copied(), Room::Tight);
        let scale = x.scale((lo, hi), (0.0, bins as f64));
        let mut counts = vec![0.0; bins];
        for value in &shown {
            counts[(scale.map(*value) as usize).min(bins - 1)] += 1.0;
        }
        let edges = (0..=bins).map(|i| i as f64 / bins as f64);
        let edges = edges.map(|s| if x.log { lo * (hi / lo).powf(s) } else { lo + (hi - lo) * s });
        let left_out = samples.len() - shown.len();
        let count = Axis::whole("Count", "");
        let edges = edges.collect();
        Histogram { left_out, ..Histogram::new(title, x, count, edges, counts) }
    }

    /// The colour number.
    #[must_use]
    pub fn slot(mut self, slot: usize) -> Histogram {
        self.slot = slot;
        self
    }

    /// Adds a labelled vertical line at `x`.
    #[must_use]
    pub fn vertical(mut self, x: f64, label: impl Into<String>) -> Histogram {
        self.vertical.push(MarkerLine { value: x, label: label.into() });
        self
    }

    /// What the reader should know, in small print under the chart.
    #[must_use]
    pub fn note(mut self, note: impl Into<String>) -> Histogram {
        self.note = note.into();
        self
    }

    pub(crate) fn draw(&self, id: &str, width: f64) -> Drawing {
        let height = if width < FULL_WIDTH { 280.0 } else { 300.0 };
        let lines = self.vertical.iter().map(|l| l.value);
        let x_domain = axis::domain(&self.x, self.edges.iter().copied().chain(lines), Room::Tight);
        let frame = Frame {
            id,
            size: (width, height),
            under: Under::Values { axis: &self.x, domain: x_domain },
            y: &self.y,
            y_domain: axis::domain(&self.y, self.counts.iter().copied(), Room::FromZero),
            legend: &[],
            vertical: &self.vertical,
            horizontal: &[],
        };
        let mut svg = Svg::new();
        let plot = frame.draw(&mut svg);
        svg.raw(format_args!(r#"<g class="marks" clip-path="url(#{id}-in)">"#));
        self.draw_bars(&mut svg, &plot);
        svg.raw("</g>");
        frame.draw_markers(&mut svg, &plot);
        let remarks = match self.left_out {
            0 => vec![],
            n => vec![format!("Not shown: {n} values that this axis has no place for.")],
        };
        Drawing { height, markup: svg.finish(), remarks }
    }

    fn draw_bars(&self, svg: &mut Svg, plot: &Plot) {
        let mut hovers = Vec::new();
        let mut inner = Svg::new();
        for (range, count) in self.edges.windows(2).zip(&self.counts) {
            if *count <= 0.0 || !self.y.shows(*count) || !self.x.shows(range[0]) {
                continue;
            }
            let (left, right) = (plot.x.clamped(range[0]), plot.x.clamped(range[1]));
            let top = plot.y.clamped(*count);
            let size = ((right - left - 0.6).max(0.6), plot.bottom() - top);
            marks::bar(&mut inner, self.slot, (left, top), size, "");
            let text = format!(
                "{} to {}\n{}: {}",
                numbers::short(range[0]),
                self.x.value(range[1]),
                self.y.name(),
                self.y.value(*count)
            );
            hovers.push(Hover { at: (f64::midpoint(left, right), top), text });
        }
        svg.raw(format_args!(
            r#"<g class="s {}" data-n="" {}>{}</g>"#,
            marks::slot_class(self.slot),
            marks::hover_attribute(&hovers),
            inner.finish()
        ));
    }
}
