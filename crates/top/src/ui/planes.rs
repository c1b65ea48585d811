//! Where each plane runs, and what it gets of its cores.

use ratatui::style::Stylize;
use ratatui::text::{Line, Span};

use crate::format::{UNKNOWN, count, or_unknown, percent};
use crate::frame::{Frame, LocalFacts, Plane};

/// Share of the time in a run queue from which on it is worth a look.
const RUN_QUEUE_WARNING: f64 = 0.05;

/// A head and one line for each plane; nothing without planes.
pub fn lines(frame: &Frame) -> Vec<Line<'_>> {
    if frame.planes.is_empty() {
        return Vec::new();
    }
    let head = format!(
        "{:<9} {:>8} {:>5} {:>6} {:>6} {:>10}  where",
        "", "pid", "state", "lives", "cores", "run queue"
    );
    let mut lines = vec![Line::from(head).dark_gray()];
    lines.extend(frame.planes.iter().map(line));
    lines
}

fn line(plane: &Plane) -> Line<'_> {
    let state = match plane.up {
        Some(true) => Span::from(format!("{:>5}", "up")).green(),
        Some(false) => Span::from(format!("{:>5}", "DOWN")).red().bold(),
        None => Span::from(format!("{UNKNOWN:>5}")),
    };
    let pid = plane.pid.map_or(UNKNOWN.into(), |pid| pid.to_string());
    let lives = or_unknown(plane.lives.map(|lives| lives as f64), count);
    let queue = Span::from(format!("{:>10}", or_unknown(plane.run_queue_share, percent)));
    let late = plane.run_queue_share.is_some_and(|share| share >= RUN_QUEUE_WARNING);
    Line::from(vec![
        Span::from(format!("{:<9} {pid:>8} ", plane.name)),
        state,
        Span::from(format!(" {lives:>6} {:>6} ", or_unknown(plane.cores_used, two_digits))),
        if late { queue.yellow() } else { queue },
        Span::from(format!("  {}", place(plane))),
    ])
}

fn two_digits(cores: f64) -> String {
    format!("{cores:.2}")
}

fn place(plane: &Plane) -> String {
    match (&plane.local, plane.pid) {
        (Some(facts), _) => local(facts),
        (None, Some(_)) => "on the server's machine".into(),
        (None, None) => "not reported".into(),
    }
}

fn local(facts: &LocalFacts) -> String {
    let cores = facts.cores.as_deref().unwrap_or("?");
    let nice = facts.nice.filter(|nice| *nice != 0);
    let nice = nice.map_or(String::new(), |nice| format!(", nice {nice}"));
    let throttled = facts.throttled_share.filter(|share| *share > 0.0);
    let throttled =
        throttled.map_or(String::new(), |share| format!(", THROTTLED {}", percent(share)));
    format!("cores {cores}, {} threads{nice}{throttled}", facts.threads)
}
