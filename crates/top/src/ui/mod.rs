//! Drawing. Reads a [`View`], changes nothing; every size is drawn as far as it goes.

mod fetch;
mod header;
mod host;
mod latency;
mod planes;
mod plots;
mod requests;

use ratatui::Frame as Canvas;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::{Color, Style, Stylize};
use ratatui::text::{Line, Span};
use ratatui::widgets::{Block, Borders, Clear, Paragraph};

use crate::frame::Frame;
use crate::view::{Link, View};

/// Lines of series that are shown by name.
const MAX_OTHER_LINES: usize = 4;
/// Width from which on everything fits.
const MIN_COLUMNS: u16 = 80;
/// Lines of a plot, its title included.
const PLOT_LINES: u16 = 3;

const HELP: [&str; 7] = [
    "q  quit          p  pause and go on",
    "+  longer interval   -  shorter",
    "?  this help",
    "",
    "Percentiles, rates and shares cover the last seconds (--window).",
    "Percentiles are estimates within the server's histogram buckets;",
    "where a bucket is wide its bounds are shown: 10–25ms, ≤10 ms, >80 s.",
];

/// Draws everything.
pub fn draw(canvas: &mut Canvas<'_>, view: &View, plots: bool) {
    let area = canvas.area();
    let [top, body, bottom] =
        Layout::vertical([Constraint::Length(1), Constraint::Min(0), Constraint::Length(1)])
            .areas(area);
    canvas.render_widget(header::line(view), top);
    match &view.frame {
        Some(frame) => draw_frame(canvas, body, frame, view, plots),
        None => canvas.render_widget(first_words(view), body),
    }
    if plots {
        canvas.render_widget(header::keys(view), bottom);
    }
    if view.help {
        draw_help(canvas, area);
    }
}

fn first_words(view: &View) -> Paragraph<'_> {
    Paragraph::new(match &view.link {
        Link::Down { error, .. } => format!("no answer from {}: {error}", view.url()),
        _ => format!("asking {} …", view.url()),
    })
}

fn draw_frame(canvas: &mut Canvas<'_>, area: Rect, frame: &Frame, view: &View, plots: bool) {
    let planes = planes::lines(frame);
    let host = host::lines(frame);
    let requests = requests::lines(frame);
    let latency = latency::lines(frame);
    let fetch = fetch::lines(frame);
    let others = other_lines(frame);
    let height = |lines: usize| if lines == 0 { 0 } else { lines as u16 + 1 };
    let middle = height(requests.len().max(latency.len()));
    let parts = Layout::vertical([
        Constraint::Length(height(planes.len())),
        Constraint::Length(middle),
        Constraint::Length(height(fetch.len())),
        Constraint::Length(height(host.len())),
        Constraint::Length(height(others.len())),
        if plots { Constraint::Min(PLOT_LINES + 1) } else { Constraint::Length(0) },
    ])
    .areas::<6>(area);
    let [left, right] = Layout::horizontal([
        Constraint::Fill(1),
        Constraint::Max(latency::COLUMNS + area.width.saturating_sub(MIN_COLUMNS) / 2),
    ])
    .spacing(1)
    .areas(parts[1]);
    panel(canvas, parts[0], "planes", planes);
    panel(canvas, left, "requests and KV", requests);
    panel(canvas, right, "latency", latency);
    panel(canvas, parts[2], "prefix store", fetch);
    panel(canvas, parts[3], "host", host);
    panel(canvas, parts[4], "tiers and lag", others);
    if plots {
        plots::draw(canvas, parts[5], &view.history);
    }
}

/// Lines below a title; nothing if there are none.
fn panel(canvas: &mut Canvas<'_>, area: Rect, title: &str, lines: Vec<Line<'_>>) {
    if !lines.is_empty() {
        canvas.render_widget(Paragraph::new(lines).block(titled(title)), area);
    }
}

/// A rule with a title in it.
fn titled(title: &str) -> Block<'_> {
    Block::new()
        .borders(Borders::TOP)
        .border_style(Style::new().fg(Color::DarkGray))
        .title(Line::from(format!(" {title} ")).bold())
}

fn other_lines(frame: &Frame) -> Vec<Line<'_>> {
    let shown =
        frame.others.iter().map(|(name, value)| format!("{name} {}", crate::format::count(*value)));
    let all: Vec<String> = shown.collect();
    let lines = all.chunks(2).take(MAX_OTHER_LINES);
    lines.map(|pair| Line::from(pair.join(" · "))).collect()
}

fn draw_help(canvas: &mut Canvas<'_>, area: Rect) {
    let widest = HELP.iter().map(|line| line.chars().count()).max().unwrap_or(0);
    let (width, height) = (widest as u16 + 4, HELP.len() as u16 + 2);
    let place = area.centered(
        Constraint::Length(width.min(area.width)),
        Constraint::Length(height.min(area.height)),
    );
    let text: Vec<Line<'_>> = HELP.iter().map(|line| Line::from(format!(" {line}"))).collect();
    canvas.render_widget(Clear, place);
    canvas
        .render_widget(Paragraph::new(text).block(Block::bordered().title(" saccade top ")), place);
}

/// A name in grey and its value.
fn pair(name: &str, value: impl Into<String>) -> [Span<'static>; 3] {
    [Span::from(format!("{name} ")).dark_gray(), Span::from(value.into()), Span::from("  ")]
}

/// Names and values in one line.
fn pairs<'a>(all: impl IntoIterator<Item = (&'a str, String)>) -> Line<'static> {
    Line::from_iter(all.into_iter().flat_map(|(name, value)| pair(name, value)))
}
