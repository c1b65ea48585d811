//! `saccade audit` alone, without the server around it.
//!
//! `cargo run -p saccade-audit --example audit -- jobs.txt --html audit.html`

use std::process::ExitCode;

use clap::Parser;

#[derive(Parser)]
struct Command {
    #[command(flatten)]
    args: saccade_audit::Args,
}

fn main() -> anyhow::Result<ExitCode> {
    saccade_audit::run(&Command::parse().args)
}
