//! Percentiles and attainment.

use ratatui::style::Stylize;
use ratatui::text::{Line, Span};

use crate::format::{UNKNOWN, count, percent, quantile, seconds};
use crate::frame::{Frame, Latency};

/// Attainment below which it is marked.
const GOOD: f64 = 0.95;

/// Width of the panel.
pub const COLUMNS: u16 = 38;

/// All lines of the panel.
pub fn lines(frame: &Frame) -> Vec<Line<'_>> {
    let head = format!("{:<4} {:>8} {:>8} {:>8} {:>6}", "", "p50", "p90", "p99", "of");
    let l = &frame.latency;
    let a = &frame.attainment;
    vec![
        Line::from(head).dark_gray(),
        row("TTFT", l.ttft),
        row("TBT", l.tbt),
        row("E2E", l.e2e),
        attained("TTFT", a.ttft_target_s, a.ttft),
        attained("TBT", a.tbt_target_s, a.tbt),
    ]
}

fn row(name: &str, latency: Option<Latency>) -> Line<'_> {
    let cell = |of: fn(&Latency) -> String| latency.as_ref().map_or(UNKNOWN.into(), of);
    Line::from(format!(
        "{name:<4} {:>8} {:>8} {:>8} {:>6}",
        cell(|l| quantile(l.p50)),
        cell(|l| quantile(l.p90)),
        cell(|l| quantile(l.p99)),
        cell(|l| count(l.count)),
    ))
}

fn attained(name: &str, target_s: Option<f64>, share: Option<f64>) -> Line<'_> {
    let target = target_s.map_or("server's SLO".into(), seconds);
    let value = match share {
        None => Span::from(UNKNOWN),
        Some(share) if share < GOOD => Span::from(percent(share)).yellow(),
        Some(share) => Span::from(percent(share)).green(),
    };
    Line::from(vec![Span::from(format!("{name} within {target}  ")).dark_gray(), value])
}
