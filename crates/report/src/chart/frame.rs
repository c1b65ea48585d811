//! What surrounds a plot: margins, grid, ticks, axis titles, legend, and marker lines.

use crate::axis::{self, Axis, Scale};
use crate::chart::marks;
use crate::svg::{Anchor, Px, Svg, fit, text_width};

pub(crate) const TICK_SIZE: f64 = 11.0;
const LEGEND_SIZE: f64 = 12.0;
const LEGEND_ROW: f64 = 19.0;
const MARKER_ROW: f64 = 15.0;
const MARKER_SIZE: f64 = 11.0;
/// Vertical room per labelled tick of a vertical axis.
const TICK_ROOM_Y: f64 = 36.0;
/// Long names under a plot are turned by this much and cut at this length.
const TURN_DEGREES: f64 = -35.0;
const LONGEST_TURNED: f64 = 130.0;
/// Labels of horizontal lines are cut at this length.
const LONGEST_BESIDE: f64 = 120.0;

/// The drawn sample next to a name in the legend.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Sample {
    Line { markers: bool },
    Dots,
    Area,
    TimedOut,
}

/// A name in the legend.
#[derive(Debug, Clone)]
pub(crate) struct Entry {
    pub name: String,
    pub slot: usize,
    pub sample: Sample,
}

/// A labelled line at a value of one axis.
#[derive(Debug, Clone)]
pub(crate) struct MarkerLine {
    pub value: f64,
    pub label: String,
}

/// What lies under the plot.
pub(crate) enum Under<'a> {
    Values { axis: &'a Axis, domain: (f64, f64) },
    Names { axis: &'a Axis, names: &'a [String] },
}

/// Everything around the marks of one chart.
pub(crate) struct Frame<'a> {
    /// Unique in the page.
    pub id: &'a str,
    pub size: (f64, f64),
    pub under: Under<'a>,
    pub y: &'a Axis,
    pub y_domain: (f64, f64),
    pub legend: &'a [Entry],
    pub vertical: &'a [MarkerLine],
    pub horizontal: &'a [MarkerLine],
}

/// Where marks go.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Plot {
    pub x: Scale,
    pub y: Scale,
}

impl Plot {
    pub fn left(&self) -> f64 {
        self.x.px.0
    }
    pub fn right(&self) -> f64 {
        self.x.px.1
    }
    pub fn top(&self) -> f64 {
        self.y.px.1
    }
    pub fn bottom(&self) -> f64 {
        self.y.px.0
    }
}

impl Frame<'_> {
    /// Draws all but marker lines, which go above the marks: call [`Frame::draw_markers`] last.
    pub fn draw(&self, svg: &mut Svg) -> Plot {
        let plot = self.layout();
        self.draw_legend(svg);
        self.draw_y(svg, &plot);
        match &self.under {
            Under::Values { axis, .. } => self.draw_x_values(svg, &plot, axis),
            Under::Names { axis, names } => self.draw_x_names(svg, &plot, axis, names),
        }
        svg.line("ax", (plot.left(), plot.bottom()), (plot.right(), plot.bottom()));
        svg.line("ax", (plot.left(), plot.top()), (plot.left(), plot.bottom()));
        svg.raw(format_args!(
            r#"<clipPath id="{id}-in"><rect x="{}" y="{}" width="{}" height="{}"/></clipPath>"#,
            Px(plot.left() - 1.0),
            Px(plot.top() - 7.0),
            Px(plot.right() - plot.left() + 7.0),
            Px(plot.bottom() - plot.top() + 8.0),
            id = self.id,
        ));
        plot
    }

    fn layout(&self) -> Plot {
        let (width, height) = self.size;
        let legend = legend_rows(self.legend, width).len() as f64 * LEGEND_ROW;
        let across = (60.0, width - self.beside());
        let x = match &self.under {
            Under::Values { axis, domain } => axis.scale(*domain, across),
            Under::Names { axis, names } => axis.scale((0.0, names.len().max(1) as f64), across),
        };
        let y = self.y.scale(self.y_domain, (height - 44.0, legend + 14.0));
        let mut plot = Plot { x, y };
        // The width of the labels of one axis decides the room of the other: left first.
        let widest = self
            .y_ticks(&plot)
            .iter()
            .filter_map(|t| t.label.as_deref())
            .fold(0.0f64, |widest, label| widest.max(text_width(label, TICK_SIZE)));
        plot.x.px.0 = (widest + 34.0).max(48.0);
        if let Under::Names { names, .. } = &self.under {
            plot.y.px.0 -= names_height(names, &plot);
        }
        let rows = self.marker_rows(&plot).iter().map(|(_, row)| row + 1).max().unwrap_or(0);
        plot.y.px.1 += rows as f64 * MARKER_ROW;
        plot
    }

    fn y_ticks(&self, plot: &Plot) -> Vec<axis::Tick> {
        let room = (plot.bottom() - plot.top()).abs();
        let most = (room / TICK_ROOM_Y).floor().max(2.0) as usize;
        axis::ticks(&plot.y, most, |named| apart(named, |_| 14.0, |v| plot.y.map(v)))
    }

    fn draw_y(&self, svg: &mut Svg, plot: &Plot) {
        for tick in self.y_ticks(plot) {
            let y = plot.y.map(tick.value);
            let class = if tick.label.is_some() { "gr" } else { "gr mi" };
            svg.line(class, (plot.left(), y), (plot.right(), y));
            if let Some(label) = &tick.label {
                svg.text("tk ty", (plot.left() - 7.0, y + 3.8), Anchor::End, label);
            }
        }
        let middle = f64::midpoint(plot.top(), plot.bottom());
        let title = fit(&self.y.label(), 12.0, self.size.1 - 16.0);
        svg.turned("at", (14.0, middle), Anchor::Middle, -90.0, &title);
    }

    fn draw_x_values(&self, svg: &mut Svg, plot: &Plot, axis: &Axis) {
        let most = ((plot.right() - plot.left()) / 44.0).floor().max(2.0) as usize;
        let width = |label: &str| text_width(label, TICK_SIZE) + 10.0;
        let ticks = axis::ticks(&plot.x, most, |named| apart(named, width, |v| plot.x.map(v)));
        for tick in ticks {
            let x = plot.x.map(tick.value);
            let class = if tick.label.is_some() { "gr" } else { "gr mi" };
            svg.line(class, (x, plot.top()), (x, plot.bottom()));
            if let Some(label) = &tick.label {
                svg.line("ax", (x, plot.bottom()), (x, plot.bottom() + 4.0));
                svg.text("tk tx", (x, plot.bottom() + 17.0), Anchor::Middle, label);
            }
        }
        self.draw_x_title(svg, plot, axis);
    }

    fn draw_x_names(&self, svg: &mut Svg, plot: &Plot, axis: &Axis, names: &[String]) {
        let band = band(names, plot);
        let turned = names_turned(names, plot);
        // Where bands are narrower than a line of text, every n-th is named.
        let stride = if turned { (15.0 / band).ceil().max(1.0) as usize } else { 1 };
        for (i, name) in names.iter().enumerate().step_by(stride) {
            let x = plot.left() + (i as f64 + 0.5) * band;
            if turned {
                let room = LONGEST_TURNED.min((x - 4.0) / TURN_DEGREES.to_radians().cos());
                let shown = fit(name, TICK_SIZE, room);
                let at = (x + 4.0, plot.bottom() + 14.0);
                svg.turned("tk tx", at, Anchor::End, TURN_DEGREES, &shown);
            } else {
                svg.text("tk tx", (x, plot.bottom() + 17.0), Anchor::Middle, name);
            }
        }
        self.draw_x_title(svg, plot, axis);
    }

    fn draw_x_title(&self, svg: &mut Svg, plot: &Plot, axis: &Axis) {
        let middle = f64::midpoint(plot.left(), plot.right());
        let title = fit(&axis.label(), 12.0, plot.right() - plot.left());
        svg.text("at", (middle, self.size.1 - 6.0), Anchor::Middle, &title);
    }

    fn draw_legend(&self, svg: &mut Svg) {
        for (row, entries) in legend_rows(self.legend, self.size.0).into_iter().enumerate() {
            let y = 12.0 + row as f64 * LEGEND_ROW;
            for (x, entry, name) in entries {
                draw_sample(svg, entry, (x, y));
                svg.text("lg", (x + SAMPLE_WIDTH, y + 4.0), Anchor::Start, &name);
            }
        }
    }

    /// The rows above the plot that labels of vertical lines take: (index of line, row).
    fn marker_rows(&self, plot: &Plot) -> Vec<(usize, usize)> {
        let mut order: Vec<usize> =
            (0..self.vertical.len()).filter(|i| plot.x.contains(self.vertical[*i].value)).collect();
        // From the right: a label sits right of its line, so a line to a higher row passes left
        // of the labels below it.
        order.sort_by(|a, b| self.vertical[*b].value.total_cmp(&self.vertical[*a].value));
        let mut taken: Vec<Vec<(f64, f64)>> = Vec::new();
        let mut rows = Vec::with_capacity(order.len());
        for i in order {
            let (start, end) = self.marker_span(plot, i);
            let free = |spans: &Vec<(f64, f64)>| spans.iter().all(|(a, b)| end < *a || start > *b);
            let row = taken.iter().position(free).unwrap_or(taken.len());
            if row == taken.len() {
                taken.push(Vec::new());
            }
            taken[row].push((start, end));
            rows.push((i, row));
        }
        rows
    }

    /// Left and right pixel of a vertical line's label, which stays inside the picture.
    fn marker_span(&self, plot: &Plot, i: usize) -> (f64, f64) {
        let line = &self.vertical[i];
        let width = text_width(&line.label, MARKER_SIZE) + 8.0;
        let start = (plot.x.map(line.value) + 3.0).min(self.size.0 - width).max(0.0);
        (start, start + width)
    }

    /// Draws the labelled lines at values of either axis.
    pub fn draw_markers(&self, svg: &mut Svg, plot: &Plot) {
        for (i, row) in self.marker_rows(plot) {
            let line = &self.vertical[i];
            let x = plot.x.map(line.value);
            let y = plot.top() - row as f64 * MARKER_ROW - 6.0;
            svg.line("mk", (x, y - 8.0), (x, plot.bottom()));
            let start = self.marker_span(plot, i).0;
            let label = fit(&line.label, MARKER_SIZE, self.size.0 - start);
            svg.text("ml", (start, y), Anchor::Start, &label);
        }
        let mut last = f64::NEG_INFINITY;
        let mut lines: Vec<&MarkerLine> =
            self.horizontal.iter().filter(|l| plot.y.contains(l.value)).collect();
        lines.sort_by(|a, b| b.value.total_cmp(&a.value));
        for line in lines {
            let y = plot.y.map(line.value);
            svg.line("mk", (plot.left(), y), (plot.right(), y));
            // Right of its line, below the label above where that is too near.
            let at = (y + 4.0).max(last + 13.0);
            let label = fit(&line.label, MARKER_SIZE, LONGEST_BESIDE);
            svg.text("ml", (plot.right() + 6.0, at), Anchor::Start, &label);
            last = at;
        }
    }

    /// Room right of the plot for the labels of horizontal lines.
    fn beside(&self) -> f64 {
        let widths = self.horizontal.iter().map(|l| text_width(&l.label, MARKER_SIZE) + 10.0);
        widths.fold(18.0, f64::max).min(LONGEST_BESIDE + 10.0)
    }
}

fn apart(named: &[(f64, String)], width: impl Fn(&str) -> f64, map: impl Fn(f64) -> f64) -> bool {
    named.windows(2).all(|pair| {
        let room = (map(pair[1].0) - map(pair[0].0)).abs();
        room >= f64::midpoint(width(&pair[0].1), width(&pair[1].1))
    })
}

fn band(names: &[String], plot: &Plot) -> f64 {
    (plot.right() - plot.left()) / names.len().max(1) as f64
}

fn names_turned(names: &[String], plot: &Plot) -> bool {
    let room = band(names, plot) - 8.0;
    names.iter().any(|name| text_width(name, TICK_SIZE) > room)
}

/// Room under the plot that turned names need beyond one line.
fn names_height(names: &[String], plot: &Plot) -> f64 {
    if !names_turned(names, plot) {
        return 0.0;
    }
    let longest = names.iter().map(|n| text_width(n, TICK_SIZE)).fold(0.0, f64::max);
    longest.min(LONGEST_TURNED) * -TURN_DEGREES.to_radians().sin()
}

const SAMPLE_WIDTH: f64 = 32.0;
const LONGEST_NAME: f64 = 260.0;

/// Entries with their left pixel and the name as shown, by row.
fn legend_rows(entries: &[Entry], width: f64) -> Vec<Vec<(f64, &Entry, String)>> {
    let mut rows: Vec<Vec<(f64, &Entry, String)>> = Vec::new();
    let mut x = f64::INFINITY;
    for entry in entries {
        let name = fit(&entry.name, LEGEND_SIZE, LONGEST_NAME);
        let needs = SAMPLE_WIDTH + text_width(&name, LEGEND_SIZE) + 18.0;
        if x + needs > width || rows.is_empty() {
            rows.push(Vec::new());
            x = 4.0;
        }
        if let Some(row) = rows.last_mut() {
            row.push((x, entry, name));
        }
        x += needs;
    }
    rows
}

fn draw_sample(svg: &mut Svg, entry: &Entry, (x, y): (f64, f64)) {
    svg.raw(format_args!(r#"<g class="lgs {}">"#, marks::slot_class(entry.slot)));
    match entry.sample {
        Sample::Line { markers } => {
            svg.line("ln", (x, y), (x + 26.0, y));
            if markers {
                marks::marker(svg, entry.slot, (x + 13.0, y), 3.6);
            }
        }
        Sample::Dots => marks::marker(svg, entry.slot, (x + 13.0, y), 3.6),
        Sample::Area => marks::bar(svg, entry.slot, (x + 6.0, y - 6.0), (16.0, 12.0), ""),
        Sample::TimedOut => marks::cross(svg, (x + 13.0, y), 4.5),
    }
    svg.raw("</g>");
}
