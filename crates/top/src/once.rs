//! One view without a terminal: as text, or as JSON.

use anyhow::Context;
use ratatui::Terminal;
use ratatui::backend::TestBackend;
use ratatui::buffer::Buffer;

use crate::args::Args;
use crate::probe::look;
use crate::ui;
use crate::view::View;

/// Size of the view as text; lines at the end that are empty are left out.
const TEXT_COLUMNS: u16 = 100;
const TEXT_LINES: u16 = 40;

/// Looks twice, one interval apart, so that there are rates.
///
/// # Errors
/// The server does not answer.
pub fn view(args: &Args) -> anyhow::Result<View> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let mut view = View::new(args);
        for wait in [std::time::Duration::ZERO, args.interval()] {
            tokio::time::sleep(wait).await;
            let probe = look(&args.url, args.api_key.as_deref()).await;
            view.answered(probe.with_context(|| args.url.to_string())?);
        }
        Ok(view)
    })
}

/// The view as text, without plots and colours.
///
/// # Errors
/// None in practice: memory takes what is drawn.
pub fn text(view: &View) -> anyhow::Result<String> {
    let mut terminal = Terminal::new(TestBackend::new(TEXT_COLUMNS, TEXT_LINES))?;
    terminal.draw(|canvas| ui::draw(canvas, view, false))?;
    Ok(lines(terminal.backend().buffer()))
}

/// The text of a buffer, without the blanks at the ends of lines.
fn lines(buffer: &Buffer) -> String {
    let width = usize::from(buffer.area.width);
    let rows = buffer.content().chunks(width).map(|row| {
        let row: String = row.iter().map(|cell| cell.symbol()).collect();
        row.trim_end().to_owned()
    });
    rows.collect::<Vec<_>>().join("\n").trim_end().to_owned()
}

/// The view as one JSON object.
///
/// # Errors
/// None in practice: there was an answer, and numbers that are none are `null`.
pub fn json(view: &View) -> anyhow::Result<String> {
    let frame = view.frame.as_ref().context("no answer yet")?;
    Ok(serde_json::to_string_pretty(frame)?)
}
