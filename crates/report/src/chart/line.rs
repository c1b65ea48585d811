//! Lines, steps and points over numeric axes.

use crate::axis::{self, Axis, Room};
use crate::chart::frame::{Entry, Frame, MarkerLine, Plot, Sample, Under};
use crate::chart::marks::{self, Hover};
use crate::chart::series::{Join, Point, Series};
use crate::chart::{Drawing, FULL_WIDTH, MAX_HOVER};
use crate::svg::{Esc, Px, Svg};

/// More points than this get no marker each.
const MAX_MARKERS: usize = 60;
/// More scattered points than this are drawn as dots of one path.
const MAX_SHAPES: usize = 200;

/// A chart of one or several [`Series`].
#[derive(Debug, Clone)]
pub struct LineChart {
    pub(crate) title: String,
    pub(crate) note: String,
    x: Axis,
    y: Axis,
    series: Vec<Series>,
    vertical: Vec<MarkerLine>,
    horizontal: Vec<MarkerLine>,
    height: Option<f64>,
}

/// A point in pixels, with the values it represents.
#[derive(Clone, Copy)]
struct Dot {
    px: (f64, f64),
    point: Point,
}

impl LineChart {
    /// A chart without series.
    #[must_use]
    pub fn new(title: impl Into<String>, x: Axis, y: Axis) -> LineChart {
        LineChart {
            title: title.into(),
            note: String::new(),
            x,
            y,
            series: Vec::new(),
            vertical: Vec::new(),
            horizontal: Vec::new(),
            height: None,
        }
    }

    /// Adds a series.
    #[must_use]
    pub fn series(mut self, series: Series) -> LineChart {
        self.series.push(series);
        self
    }

    /// Adds a labelled vertical line at `x`.
    #[must_use]
    pub fn vertical(mut self, x: f64, label: impl Into<String>) -> LineChart {
        self.vertical.push(MarkerLine { value: x, label: label.into() });
        self
    }

    /// Adds a labelled horizontal line at `y`.
    #[must_use]
    pub fn horizontal(mut self, y: f64, label: impl Into<String>) -> LineChart {
        self.horizontal.push(MarkerLine { value: y, label: label.into() });
        self
    }

    /// What the reader should know, in small print under the chart.
    #[must_use]
    pub fn note(mut self, note: impl Into<String>) -> LineChart {
        self.note = note.into();
        self
    }

    /// Pixels from top to bottom, instead of what the width suggests.
    #[must_use]
    pub fn height(mut self, pixels: f64) -> LineChart {
        self.height = Some(pixels);
        self
    }

    fn x_domain(&self) -> (f64, f64) {
        let points = self.series.iter().flat_map(|s| s.points.iter().map(|p| p.x));
        let timeouts = self.series.iter().flat_map(|s| s.timeouts.iter().copied());
        axis::domain(&self.x, points.chain(timeouts), Room::Tight)
    }

    fn y_domain(&self) -> (f64, f64) {
        let points = self.series.iter().flat_map(|s| s.points.iter());
        let values = points.flat_map(|p| [p.y, p.lo, p.hi]);
        let lines = self.horizontal.iter().map(|l| l.value);
        axis::domain(&self.y, values.chain(lines), Room::FromZero)
    }

    fn legend(&self) -> Vec<Entry> {
        let mut entries: Vec<Entry> = Vec::new();
        for (i, series) in self.series.iter().enumerate().filter(|(_, s)| !s.name.is_empty()) {
            let sample = match series.join {
                Join::None => Sample::Dots,
                _ => Sample::Line { markers: has_markers(series) },
            };
            entries.push(Entry { name: series.name.clone(), slot: slot(series, i), sample });
        }
        if self.series.iter().any(|s| !s.timeouts.is_empty()) {
            let name = "timed out".to_owned();
            entries.push(Entry { name, slot: 0, sample: Sample::TimedOut });
        }
        entries
    }

    pub(crate) fn draw(&self, id: &str, width: f64) -> Drawing {
        let height = self.height.unwrap_or(if width < FULL_WIDTH { 300.0 } else { 360.0 });
        let legend = self.legend();
        let frame = Frame {
            id,
            size: (width, height),
            under: Under::Values { axis: &self.x, domain: self.x_domain() },
            y: &self.y,
            y_domain: self.y_domain(),
            legend: &legend,
            vertical: &self.vertical,
            horizontal: &self.horizontal,
        };
        let mut svg = Svg::new();
        let plot = frame.draw(&mut svg);
        svg.raw(format_args!(r#"<g class="marks" clip-path="url(#{id}-in)">"#));
        for (i, series) in self.series.iter().enumerate() {
            self.draw_series(&mut svg, &plot, series, i);
        }
        svg.raw("</g>");
        frame.draw_markers(&mut svg, &plot);
        Drawing { height, markup: svg.finish(), remarks: self.remarks() }
    }

    /// Says how many points a logarithmic axis could not show.
    fn remarks(&self) -> Vec<String> {
        let finite = |p: &&Point| p.x.is_finite() && p.y.is_finite();
        let lost = self
            .series
            .iter()
            .flat_map(|s| s.points.iter())
            .filter(finite)
            // The foot of a cumulative curve is no measurement.
            .filter(|p| p.y != 0.0 || !self.y.log)
            .filter(|p| !self.x.shows(p.x) || !self.y.shows(p.y))
            .count();
        match lost {
            0 => vec![],
            n => vec![format!("Not shown on a logarithmic axis: {n} values of zero or less.")],
        }
    }

    fn draw_series(&self, svg: &mut Svg, plot: &Plot, series: &Series, index: usize) {
        let runs = thin(self.runs(plot, series), series.join);
        svg.raw(format_args!(
            r#"<g class="s {}" data-n="{}" {}>"#,
            marks::slot_class(slot(series, index)),
            Esc(&series.name),
            marks::hover_attribute(&self.hovers(&runs)),
        ));
        for run in &runs {
            draw_spread(svg, plot, run, series.whiskers);
        }
        let line: String = runs.iter().map(|run| path(run, series.join)).collect();
        if !line.is_empty() {
            svg.path("ln", &line, "");
        }
        draw_points(svg, series, index, &runs);
        for x in series.timeouts.iter().filter(|x| self.x.shows(**x)) {
            // Crosses of several series at one place go below each other.
            marks::cross(svg, (plot.x.clamped(*x), plot.top() + 6.0 + 11.0 * index as f64), 4.5);
        }
        svg.raw("</g>");
    }

    /// The points in pixels, split where one cannot be shown.
    fn runs(&self, plot: &Plot, series: &Series) -> Vec<Vec<Dot>> {
        let shown = |p: &Point| self.x.shows(p.x) && self.y.shows(p.y);
        series
            .points
            .split(|p| !shown(p))
            .filter(|run| !run.is_empty())
            .map(|run| {
                run.iter()
                    .map(|p| Dot { px: (plot.x.map(p.x), plot.y.map(p.y)), point: *p })
                    .collect()
            })
            .collect()
    }

    fn hovers(&self, runs: &[Vec<Dot>]) -> Vec<Hover> {
        let dots: Vec<&Dot> = runs.iter().flatten().collect();
        let stride = dots.len().div_ceil(MAX_HOVER).max(1);
        dots.into_iter()
            .step_by(stride)
            .map(|dot| Hover { at: dot.px, text: self.describe(&dot.point) })
            .collect()
    }

    fn describe(&self, point: &Point) -> String {
        let mut text = format!(
            "{}: {}\n{}: {}",
            self.x.name(),
            self.x.value(point.x),
            self.y.name(),
            self.y.value(point.y)
        );
        if point.lo.is_finite() && point.hi.is_finite() {
            let (lo, hi) = (self.y.value(point.lo), self.y.value(point.hi));
            text.push_str(&format!("\nfrom {lo} to {hi}"));
        }
        text
    }
}

fn slot(series: &Series, index: usize) -> usize {
    series.slot.unwrap_or(index)
}

fn has_markers(series: &Series) -> bool {
    series.join == Join::Lines && series.points.len() <= MAX_MARKERS
}

/// Where many points share a column of pixels, the first, lowest, highest and last of them look
/// the same as all.
fn thin(runs: Vec<Vec<Dot>>, join: Join) -> Vec<Vec<Dot>> {
    runs.into_iter()
        .map(|run| match join {
            _ if run.len() < 1500 => run,
            Join::None => thin_cloud(run),
            _ => run.chunk_by(|a, b| column(a) == column(b)).flat_map(ends).collect(),
        })
        .collect()
}

fn column(dot: &Dot) -> i64 {
    dot.px.0.floor() as i64
}

fn ends(column: &[Dot]) -> Vec<Dot> {
    let height = |i: &usize| column[*i].px.1;
    let by_height = |a: &usize, b: &usize| height(a).total_cmp(&height(b));
    let all = 0..column.len();
    let mut picks: Vec<usize> = [all.clone().min_by(by_height), all.clone().max_by(by_height)]
        .into_iter()
        .flatten()
        .chain([0, column.len() - 1])
        .collect();
    // In the order of the line, which must not run back and forth.
    picks.sort_unstable();
    picks.dedup();
    picks.into_iter().map(|i| column[i]).collect()
}

/// Of scattered points that fall on the same spot, one is kept.
fn thin_cloud(run: Vec<Dot>) -> Vec<Dot> {
    let mut seen = std::collections::HashSet::new();
    run.into_iter()
        .filter(|d| seen.insert(((d.px.0 / 1.5) as i32, (d.px.1 / 1.5) as i32)))
        .collect()
}

fn path(run: &[Dot], join: Join) -> String {
    let Some((first, rest)) = run.split_first() else { return String::new() };
    let mut d = format!("M{} {}", Px(first.px.0), Px(first.px.1));
    for dot in rest {
        let (x, y) = (Px(dot.px.0), Px(dot.px.1));
        match join {
            Join::Lines => d.push_str(&format!("L{x} {y}")),
            Join::Steps => d.push_str(&format!("H{x}V{y}")),
            Join::None => return String::new(),
        }
    }
    // A line of one point has no length, and nothing would be drawn without its marker.
    if join == Join::None { String::new() } else { d }
}

fn draw_points(svg: &mut Svg, series: &Series, index: usize, runs: &[Vec<Dot>]) {
    let slot = slot(series, index);
    let count: usize = runs.iter().map(Vec::len).sum();
    if has_markers(series) || (series.join == Join::None && count <= MAX_SHAPES) {
        for dot in runs.iter().flatten() {
            marks::marker(svg, slot, dot.px, 3.4);
        }
    } else if series.join == Join::None {
        let dots: String = runs
            .iter()
            .flatten()
            .map(|dot| format!("M{} {}h0", Px(dot.px.0), Px(dot.px.1)))
            .collect();
        svg.path("dots", &dots, "");
    }
}

fn draw_spread(svg: &mut Svg, plot: &Plot, run: &[Dot], whiskers: bool) {
    let spread: Vec<&Dot> =
        run.iter().filter(|d| d.point.lo.is_finite() && d.point.hi.is_finite()).collect();
    let bottom = |d: &Dot| {
        if plot.y.log && d.point.lo <= 0.0 { plot.bottom() } else { plot.y.clamped(d.point.lo) }
    };
    let top = |d: &Dot| plot.y.clamped(d.point.hi);
    if whiskers || spread.len() == 1 {
        for dot in spread {
            let (x, a, b) = (dot.px.0, bottom(dot), top(dot));
            let (l, r) = (Px(x - 4.0), Px(x + 4.0));
            let (x, a, b) = (Px(x), Px(a), Px(b));
            svg.path("wh", &format!("M{l} {a}H{r}M{x} {a}V{b}M{l} {b}H{r}"), "");
        }
        return;
    }
    let mut d = String::new();
    for (i, dot) in spread.iter().enumerate() {
        let command = if i == 0 { 'M' } else { 'L' };
        d.push_str(&format!("{command}{} {}", Px(dot.px.0), Px(top(dot))));
    }
    for dot in spread.iter().rev() {
        d.push_str(&format!("L{} {}", Px(dot.px.0), Px(bottom(dot))));
    }
    if !d.is_empty() {
        svg.path("bd", &(d + "z"), "");
    }
}
