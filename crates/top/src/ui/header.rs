//! The first line and the last.

use ratatui::style::Stylize;
use ratatui::text::{Line, Span};

use crate::format::seconds;
use crate::frame::Kind;
use crate::view::{Link, View};

/// Which server is watched, and how it is.
pub fn line(view: &View) -> Line<'_> {
    let mut spans = vec![Span::from("saccade top ").bold(), Span::from(view.url()), " ".into()];
    if let Some(frame) = &view.frame {
        let kind = match frame.kind {
            Kind::Saccade => "",
            Kind::Vllm => "vLLM's metrics ",
            Kind::Unknown => "no known metrics ",
        };
        let version = frame.version.as_ref().map_or(String::new(), |v| format!("{v} "));
        spans.push(Span::from(format!("{} {version}{kind}", frame.models.join(","))).cyan());
    }
    spans.push(state(view));
    Line::from(spans)
}

fn state(view: &View) -> Span<'static> {
    match &view.link {
        Link::Waiting => "…".into(),
        Link::Down { since, error, retry_in } => Span::from(format!(
            "GONE for {:.0} s, retrying every {}: {error}",
            since.elapsed().as_secs_f64(),
            seconds(retry_in.as_secs_f64()),
        ))
        .red()
        .bold(),
        Link::Up if view.paused => Span::from("PAUSED").yellow().bold(),
        Link::Up => match view.frame.as_ref().and_then(|frame| frame.ready) {
            Some(true) => Span::from("ready").green(),
            Some(false) => Span::from("NOT READY").red().bold(),
            None => Span::from("up").green(),
        },
    }
}

/// The keys and the times.
pub fn keys(view: &View) -> Line<'_> {
    let window_s = view.frame.as_ref().map_or(0.0, |frame| frame.window_s);
    Line::from(format!(
        "q quit  p pause  +/- interval {}  ? help  ·  window {window_s:.0} s",
        seconds(view.interval.as_secs_f64()),
    ))
    .dark_gray()
}
