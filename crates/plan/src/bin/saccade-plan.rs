//! `saccade-plan …` is `saccade plan …` without the planes.

use std::process::ExitCode;

use clap::Parser;

#[derive(Debug, Parser)]
#[command(version, about = "Simulate how a named device would serve a load")]
struct Cli {
    #[command(flatten)]
    args: saccade_plan::Args,
}

fn main() -> ExitCode {
    saccade_plan::run(&Cli::parse().args).unwrap_or_else(|error| {
        eprintln!("saccade-plan: {error:#}");
        ExitCode::from(2)
    })
}
