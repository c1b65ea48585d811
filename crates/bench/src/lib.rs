//! The commands of `saccade bench`: load on a server, load beside neighbours, load against a
//! victim, and the parts of an engine that its host slows down.

pub mod attack;
pub mod interference;
pub mod micro;
pub mod neighbours;
mod prompt_flags;
pub mod serve;

use std::process::ExitCode;

/// What to measure.
#[derive(Debug, clap::Subcommand)]
pub enum Command {
    /// Load on one OpenAI-compatible server: latency percentiles, goodput, saturation
    Serve(Box<serve::Args>),
    /// The same load in isolation and beside neighbours, on one or several servers, interleaved
    Interference(Box<interference::Args>),
    /// Attackers with long prompts against a victim, by number of cores
    Attack(Box<attack::Args>),
    /// Tokenization share, broadcast per step, stragglers at barriers
    Micro(Box<micro::Args>),
    /// What the other commands start themselves: a neighbour, or the keeper of a server
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
        Command::Micro(args) => micro::run(args),
        Command::Neighbour(args) => neighbours::run(args),
    }
}
