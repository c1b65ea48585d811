//! A terminal view of a running Saccade.
//!
//! `saccade top` asks a server for its metrics once a second and shows where its planes run, what
//! they get of their cores, requests, KV, latencies, and what the host costs per token. Of a server
//! that only has vLLM's metrics it shows what those tell, and says what is missing.
//!
//! The path of a number: `http` fetches, `prom` parses, `window` takes differences of counters
//! and histograms over the last seconds, `derive` makes a frame of them, `ui` draws
//! it. Everything below `ui` is plain data; `--json` prints the frame.

mod args;
mod derive;
mod format;
mod frame;
mod histogram;
mod http;
mod local;
mod names;
mod once;
mod probe;
mod prom;
mod sampler;
#[cfg(test)]
mod server_tests;
mod terminal;
#[cfg(test)]
mod tests;
mod ui;
mod view;
mod window;

use std::io::Write;
use std::process::ExitCode;

pub use args::Args;

/// Shows the view, or prints it once.
///
/// # Errors
/// There is no terminal for a view; with `--once` and `--json`: the server does not answer.
pub fn run(args: &Args) -> anyhow::Result<ExitCode> {
    if args.json {
        print(&once::json(&once::view(args)?)?)?;
    } else if args.once {
        print(&once::text(&once::view(args)?)?)?;
    } else {
        terminal::show(args)?;
    }
    Ok(ExitCode::SUCCESS)
}

/// Writes a text to standard output. Its reader may have seen enough and gone.
fn print(text: &str) -> std::io::Result<()> {
    match writeln!(std::io::stdout(), "{text}") {
        Err(error) if error.kind() == std::io::ErrorKind::BrokenPipe => Ok(()),
        result => result,
    }
}
