//! Self-contained HTML reports with plots.
//!
//! A [`Report`] is plain data: facts, sections of paragraphs, verdicts, tables and charts, and the
//! raw numbers as JSON. [`Report::to_html`] makes one file of it that needs no network, no script
//! (a little one shows values under the pointer) and no colour to be read, on screen or on paper.
//! [`Table::to_text`] prints the same table in a terminal.
//!
//! Every string may come from a stranger (model names, labels, user names in accounting): all are
//! escaped, and the page's policy forbids every script but its own.
//!
//! ```
//! use saccade_report::{Axis, LineChart, Report, Section, Series};
//!
//! let chart = LineChart::new(
//!     "Time to first token",
//!     Axis::log("Request rate", "requests/s"),
//!     Axis::linear("TTFT P99", "ms"),
//! )
//! .series(Series::new("saccade").points([(1.0, 21.0), (2.0, 22.5), (4.0, 31.0)]))
//! .series(Series::new("other").points([(1.0, 40.0), (2.0, 90.0)]).timed_out(4.0))
//! .horizontal(200.0, "SLO 200 ms");
//! let html = Report::new("Demo")
//!     .fact("machine", "2 cores")
//!     .section(Section::new("Latency").chart(chart))
//!     .to_html();
//! assert!(html.contains("<svg"));
//! ```

mod axis;
mod chart;
mod html;
mod numbers;
mod report;
mod svg;
mod table;

pub use axis::Axis;
pub use chart::{BarChart, Chart, Heatmap, Histogram, LineChart, Ramp, Series};
pub use numbers::{grouped, short};
pub use report::{Level, Report, Section};
pub use table::{Best, Cell, Table};
