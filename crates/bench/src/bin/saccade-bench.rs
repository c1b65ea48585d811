//! The measuring tools without the planes: `saccade-bench bench …` is `saccade bench …`, for
//! machines that only measure, and for tests.

use std::process::ExitCode;

use clap::Parser;

#[derive(Debug, Parser)]
#[command(version, about = "The measuring tools of saccade, without the planes")]
enum Cli {
    /// Measures servers and their hosts
    #[command(subcommand)]
    Bench(saccade_bench::Command),
}

fn main() -> ExitCode {
    let Cli::Bench(command) = Cli::parse();
    saccade_bench::run(&command).unwrap_or_else(|error| {
        eprintln!("saccade-bench: {error:#}");
        ExitCode::from(2)
    })
}
