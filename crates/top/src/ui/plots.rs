//! Small plots of the last looks.

use std::collections::VecDeque;

use ratatui::Frame as Canvas;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::{Color, Style};
use ratatui::widgets::Sparkline;

use super::titled;
use crate::format::{count, percent, seconds};
use crate::view::History;

/// Steps between nothing and the highest value.
const STEPS: f64 = 1000.0;

/// Four plots side by side.
pub fn draw(canvas: &mut Canvas<'_>, area: Rect, history: &History) {
    let areas = Layout::horizontal([Constraint::Ratio(1, 4); 4]).spacing(1).areas::<4>(area);
    let rate: fn(f64) -> String = |n| format!("{}/s", count(n.round()));
    plot(canvas, areas[0], "TTFT p99", &history.ttft, seconds);
    plot(canvas, areas[1], "TBT p99", &history.tbt, seconds);
    plot(canvas, areas[2], "tokens", &history.tokens, rate);
    plot(canvas, areas[3], "host wait", &history.host_wait, percent);
}

/// The newest points that fit, scaled to the highest of them, which the title names.
fn plot(
    canvas: &mut Canvas<'_>,
    area: Rect,
    name: &str,
    points: &VecDeque<Option<f64>>,
    form: fn(f64) -> String,
) {
    let first = points.len().saturating_sub(usize::from(area.width));
    let shown = || points.iter().skip(first).copied();
    let highest = shown().flatten().filter(|v| v.is_finite()).fold(0.0, f64::max);
    let scaled = shown().map(|value| {
        let height = value.filter(|v| v.is_finite() && highest > 0.0)? / highest * STEPS;
        Some(height.max(0.0) as u64)
    });
    let title = if shown().flatten().next().is_some() {
        format!("{name} ≤{}", form(highest))
    } else {
        name.to_owned()
    };
    let line = Sparkline::default()
        .data(scaled.collect::<Vec<Option<u64>>>())
        .max(STEPS as u64)
        .absent_value_symbol(" ")
        .style(Style::new().fg(Color::Cyan))
        .block(titled(&title));
    canvas.render_widget(line, area);
}
