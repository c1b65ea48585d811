//! `saccade bench micro`: the parts of a serving engine that its host slows down, each measured
//! alone: tokenization, the broadcast of every step, barriers of ranks that wait for a core.
//!
//! Sources: "Characterizing CPU-Induced Slowdowns in Multi-GPU LLM Inference" (Chung et al., 2026),
//! sections IV-A, V-A and V-B.

// Without the device plane `broadcast` only says so, and what nobody else uses lies idle.
#![cfg_attr(not(feature = "device"), allow(dead_code))]

mod broadcast;
mod numbers;
mod os;
mod output;
mod page;
mod role;
mod stats;
mod straggler;
mod tokenize;

use std::process::ExitCode;

pub(crate) use os::crew::Part;
use output::Document;

/// Flags of `saccade bench micro`.
#[derive(Debug, clap::Args)]
pub struct Args {
    #[command(subcommand)]
    what: What,
}

#[derive(Debug, clap::Subcommand)]
enum What {
    /// Share of tokenization in the time to the first token, by batch size and prompt length
    Tokenize {
        #[command(flatten)]
        flags: tokenize::Args,
        #[command(flatten)]
        output: output::Args,
    },
    /// Deciding a step for N ranks: one scheduler that broadcasts, or every rank for itself
    Broadcast {
        #[command(flatten)]
        flags: broadcast::Args,
        #[command(flatten)]
        output: output::Args,
    },
    /// Barriers of ranks that outnumber their cores
    Straggler {
        #[command(flatten)]
        flags: straggler::Args,
        #[command(flatten)]
        output: output::Args,
    },
    /// All three; the flags are those of tokenize, the others run with their defaults
    All {
        #[command(flatten)]
        flags: tokenize::Args,
        #[command(flatten)]
        output: output::Args,
    },
}

/// Runs it.
///
/// # Errors
/// Of the flags, of a file, of a server that cannot be reached, or of a process of the measurement.
pub fn run(args: &Args) -> anyhow::Result<ExitCode> {
    let mut document = Document::new();
    let output = match &args.what {
        What::Tokenize { flags, output } => {
            document.tokenize = Some(tokenize::measure(flags)?);
            output
        }
        What::Broadcast { flags, output } => {
            document.broadcast = Some(broadcast::measure(flags)?);
            output
        }
        What::Straggler { flags, output } => {
            document.straggler = Some(straggler::measure(flags)?);
            output
        }
        What::All { flags, output } => {
            document.tokenize = Some(tokenize::measure(flags)?);
            if cfg!(feature = "device") {
                document.broadcast = Some(broadcast::measure(&defaults())?);
            } else {
                document.skipped.push(broadcast::NO_DEVICE.into());
            }
            document.straggler = Some(straggler::measure(&defaults())?);
            output
        }
    };
    document.put_out(output)?;
    Ok(ExitCode::SUCCESS)
}

/// Flags as if none was given.
fn defaults<A: clap::Args>() -> A {
    #[derive(clap::Parser)]
    struct Alone<A: clap::Args> {
        #[command(flatten)]
        flags: A,
    }
    <Alone<A> as clap::Parser>::parse_from(["micro"]).flags
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_command_has_defaults() {
        let _: tokenize::Args = defaults();
        let _: broadcast::Args = defaults();
        let _: straggler::Args = defaults();
    }
}
