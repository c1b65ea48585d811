//! Charts, drawn as static SVG.

mod bar;
pub(crate) mod frame;
mod heatmap;
mod histogram;
mod line;
pub(crate) mod marks;
mod ramp;
mod series;

pub use bar::BarChart;
pub use heatmap::{Heatmap, Ramp};
pub use histogram::Histogram;
pub use line::LineChart;
pub use series::Series;

use crate::svg::Esc;

/// Pixels across a chart that has a row of its own.
pub(crate) const FULL_WIDTH: f64 = 860.0;
/// Pixels across one of two charts side by side.
pub(crate) const HALF_WIDTH: f64 = 430.0;
/// Points that the page's script can show for one series.
pub(crate) const MAX_HOVER: usize = 400;

/// Any chart.
#[derive(Debug, Clone)]
pub enum Chart {
    /// Lines, steps or points over numbers.
    Line(LineChart),
    /// Bars, grouped by name.
    Bar(BarChart),
    /// A value per row and column.
    Heatmap(Heatmap),
    /// Counts per range of values.
    Histogram(Histogram),
}

macro_rules! from_chart {
    ($($kind:ident($chart:ty)),*) => {$(
        impl From<$chart> for Chart {
            fn from(chart: $chart) -> Chart {
                Chart::$kind(chart)
            }
        }
    )*};
}
from_chart!(Line(LineChart), Bar(BarChart), Heatmap(Heatmap), Histogram(Histogram));

/// The inside of a figure's `<svg>` with its height, and remarks that belong under it.
pub(crate) struct Drawing {
    pub height: f64,
    pub markup: String,
    pub remarks: Vec<String>,
}

impl Chart {
    fn title_and_note(&self) -> (&str, &str) {
        match self {
            Chart::Line(c) => (&c.title, &c.note),
            Chart::Bar(c) => (&c.title, &c.note),
            Chart::Heatmap(c) => (&c.title, &c.note),
            Chart::Histogram(c) => (&c.title, &c.note),
        }
    }

    fn draw(&self, id: &str, width: f64) -> Drawing {
        match self {
            Chart::Line(c) => c.draw(id, width),
            Chart::Bar(c) => c.draw(id, width),
            Chart::Heatmap(c) => c.draw(id, width),
            Chart::Histogram(c) => c.draw(id, width),
        }
    }

    /// The figure as HTML; `id` must be unique in the page.
    pub(crate) fn html(&self, id: &str, width: f64) -> String {
        let (title, note) = self.title_and_note();
        let drawing = self.draw(id, width);
        let mut under: Vec<&str> = vec![];
        if !note.is_empty() {
            under.push(note);
        }
        under.extend(drawing.remarks.iter().map(String::as_str));
        let under = if under.is_empty() {
            String::new()
        } else {
            format!(r#"<p class="note">{}</p>"#, Esc(&under.join(" ")))
        };
        format!(
            concat!(
                r#"<figure id="{id}"><figcaption id="{id}-t">{title}</figcaption>"#,
                r#"<svg class="plot" viewBox="0 0 {width} {height}" role="img" "#,
                r#"aria-labelledby="{id}-t" xmlns="http://www.w3.org/2000/svg">{markup}</svg>"#,
                "{under}</figure>\n"
            ),
            id = id,
            title = Esc(title),
            width = width,
            height = drawing.height,
            markup = drawing.markup,
            under = under,
        )
    }
}
