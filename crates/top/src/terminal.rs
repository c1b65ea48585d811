//! The terminal: set up, drawn to, read from, and given back whatever happens.

use std::io::IsTerminal;
use std::time::Duration;

use anyhow::bail;
use ratatui::DefaultTerminal;
use ratatui::crossterm::event::{self, Event, KeyCode, KeyEvent, KeyEventKind, KeyModifiers};

use crate::args::Args;
use crate::sampler::{Report, Sampler};
use crate::ui;
use crate::view::View;

/// Longest wait for a key before new answers are looked for.
const POLL: Duration = Duration::from_millis(100);
/// How often a server that is gone is redrawn, for its seconds.
const REDRAW: Duration = Duration::from_secs(1);

/// Shows a view until a key or a signal ends it.
///
/// # Errors
/// There is no terminal, or it cannot be used.
pub fn show(args: &Args) -> anyhow::Result<()> {
    if !std::io::stdout().is_terminal() || !std::io::stdin().is_terminal() {
        bail!("no terminal: use --once or --json");
    }
    let mut sampler = Sampler::start(args)?;
    let mut view = View::new(args);
    // Restores the terminal when this thread or another panics, too.
    let mut terminal = ratatui::try_init()?;
    let result = watch(&mut terminal, &mut view, &mut sampler);
    ratatui::restore();
    result
}

fn watch(
    terminal: &mut DefaultTerminal,
    view: &mut View,
    sampler: &mut Sampler,
) -> anyhow::Result<()> {
    let mut drawn = std::time::Instant::now();
    let mut changed = true;
    loop {
        if changed || drawn.elapsed() >= REDRAW {
            terminal.draw(|canvas| ui::draw(canvas, view, true))?;
            drawn = std::time::Instant::now();
        }
        changed = false;
        if event::poll(POLL)? {
            changed = true;
            if act(event::read()?, view, sampler) == After::End {
                return Ok(());
            }
        }
        while let Some(report) = sampler.next() {
            changed = true;
            match report {
                Report::Answered(probe) => view.answered(*probe),
                Report::Failed(error, retry_in) => view.failed(error, retry_in),
                Report::End => return Ok(()),
            }
        }
    }
}

/// What to do after an event.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum After {
    GoOn,
    End,
}

fn act(event: Event, view: &mut View, sampler: &Sampler) -> After {
    let Event::Key(key) = event else { return After::GoOn };
    if key.kind == KeyEventKind::Release {
        return After::GoOn;
    }
    match press(key, view) {
        Pressed::Quit => return After::End,
        Pressed::Interval(longer) => {
            let before = view.interval;
            view.step_interval(longer);
            // Not taken while the last change is on its way: then the key did nothing.
            if !sampler.set_interval(view.interval) {
                view.interval = before;
            }
        }
        Pressed::Nothing => {}
    }
    After::GoOn
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Pressed {
    Quit,
    Interval(bool),
    Nothing,
}

fn press(key: KeyEvent, view: &mut View) -> Pressed {
    match key.code {
        KeyCode::Char('c') if key.modifiers.contains(KeyModifiers::CONTROL) => Pressed::Quit,
        KeyCode::Char('q') => Pressed::Quit,
        KeyCode::Esc if !view.help => Pressed::Quit,
        KeyCode::Char('p' | ' ') => {
            view.paused = !view.paused;
            Pressed::Nothing
        }
        KeyCode::Char('+' | '=') => Pressed::Interval(true),
        KeyCode::Char('-' | '_') => Pressed::Interval(false),
        KeyCode::Char('?' | 'h') => {
            view.help = !view.help;
            Pressed::Nothing
        }
        _ => {
            view.help = false;
            Pressed::Nothing
        }
    }
}
