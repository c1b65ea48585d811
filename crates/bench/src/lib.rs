//! The commands of `saccade bench`: load on a server, load next to neighbours, load against a
//! victim, attackers and signals while every answer is compared, the parts of an engine that its
//! host slows down, and the pages of their results.

pub mod attack;
mod attackers;
mod footprints;
pub mod interference;
pub mod micro;
pub mod neighbours;
mod output;
pub mod page;
mod prompt_flags;
pub mod serve;
pub mod soak;
mod tls_flags;

use std::process::ExitCode;

/// What to measure.
#[derive(Debug, clap::Subcommand)]
pub enum Command {
    /// Send a load to one OpenAI-compatible server: latency percentiles, goodput, saturation
    Serve(Box<serve::Args>),
    /// Send the same load with and without neighbours on the host, to one or more servers in turn
    Interference(Box<interference::Args>),
    /// Send long prompts beside short ones, and vary the number of cores of the server
    Attack(Box<attack::Args>),
    /// Send known questions beside attackers, send signals to the planes, compare every answer
    Soak(Box<soak::Args>),
    /// Measure single parts: tokenization, the broadcast of a step, stragglers at barriers
    Micro(Box<micro::Args>),
    /// Draw the page of a result from its JSON
    Page(Box<page::Args>),
    /// Run a neighbour or keep a server; the other commands start it themselves
    #[command(hide = true)]
    Neighbour(Box<neighbours::Args>),
}

/// Runs a command.
///
/// # Errors
/// Of the command: bad flags, an unreachable server, a file that cannot be read or written.
pub fn run(command: &Command) -> anyhow::Result<ExitCode> {
    match command {
        Command::Serve(args) => serve::run(args),
        Command::Interference(args) => interference::run(args),
        Command::Attack(args) => attack::run(args),
        Command::Soak(args) => soak::run(args),
        Command::Micro(args) => micro::run(args),
        Command::Page(args) => page::run(args),
        Command::Neighbour(args) => neighbours::run(args),
    }
}
