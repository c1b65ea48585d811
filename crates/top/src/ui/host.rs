//! What the host costs.

use ratatui::style::Stylize;
use ratatui::text::{Line, Span};

use super::pairs;
use crate::format::{UNKNOWN, or_unknown, percent, seconds};
use crate::frame::{Frame, Host};

/// All lines of the panel.
pub fn lines(frame: &Frame) -> Vec<Line<'_>> {
    let h = &frame.host;
    let mut lines = Vec::new();
    if h.step_share.is_some() || h.host_wait_share.is_some() {
        lines.push(per_token(h));
        lines.push(run_queues(h));
        lines.push(device_time(h));
    }
    if !frame.missing.is_empty() {
        let missing = format!("not reported by this server: {}", frame.missing.join(", "));
        lines.push(Line::from(missing).dark_gray());
    }
    lines
}

fn titled(title: &str, line: Line<'static>) -> Line<'static> {
    let mut all = Line::from(Span::from(format!("{title:<12}")));
    all.extend(line.spans);
    all
}

fn per_token(h: &Host) -> Line<'static> {
    let cost = |value| or_unknown(value, seconds);
    titled(
        "per token",
        pairs([
            ("device waits", cost(h.device_wait_s_per_token)),
            ("tokenize", cost(h.tokenize_s_per_token)),
            ("detokenize", cost(h.detokenize_s_per_token)),
        ]),
    )
}

fn run_queues(h: &Host) -> Line<'static> {
    let waits = h.run_queue_wait_s_per_token.iter();
    let title = "run queues";
    if waits.len() == 0 {
        return titled(title, Line::from(UNKNOWN));
    }
    titled(
        title,
        pairs(waits.map(|(plane, s)| (plane.as_str(), format!("{} per token", seconds(*s))))),
    )
}

fn device_time(h: &Host) -> Line<'static> {
    let known = [h.step_share, h.host_wait_share, h.reader_wait_share];
    let idle = known.iter().copied().sum::<Option<f64>>().map(|busy| (1.0 - busy).max(0.0));
    let share = |value| or_unknown(value, percent);
    titled(
        "device",
        pairs([
            ("steps", share(h.step_share)),
            ("for host", share(h.host_wait_share)),
            ("for readers", share(h.reader_wait_share)),
            ("no work", share(idle)),
        ]),
    )
}
