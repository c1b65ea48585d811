//! `saccade bench micro`: the parts of a serving engine that its host slows down, each measured
//! alone: tokenization, the broadcast of every step, barriers of ranks that wait for a core; and
//! what the machine allows at most.
//!
//! Sources: "Characterizing CPU-Induced Slowdowns in Multi-GPU LLM Inference" (Chung et al., 2026),
//! sections IV-A, V-A and V-B.

// Without the device plane `broadcast` only says so, and its helpers are unused.
#![cfg_attr(not(feature = "device"), allow(dead_code))]

mod broadcast;
mod numbers;
mod os;
mod output;
mod page;
mod role;
mod roof;
mod stats;
mod straggler;
mod tokenize;

use std::process::ExitCode;

pub(crate) use os::crew::Part;
use output::Document;
pub(crate) use output::SCHEMAS;
use saccade_report::Report;

/// Flags of `saccade bench micro`.
#[derive(Debug, clap::Args)]
pub struct Args {
    #[command(subcommand)]
    what: What,
}

#[derive(Debug, clap::Subcommand)]
enum What {
    /// Measure the share of tokenization in the time to the first token
    Tokenize {
        #[command(flatten)]
        flags: tokenize::Args,
        #[command(flatten)]
        output: output::Args,
    },
    /// Compare one scheduler that broadcasts each step with ranks that each decide it
    Broadcast {
        #[command(flatten)]
        flags: broadcast::Args,
        #[command(flatten)]
        output: output::Args,
    },
    /// Measure barriers of ranks that outnumber their cores
    Straggler {
        #[command(flatten)]
        flags: straggler::Args,
        #[command(flatten)]
        output: output::Args,
    },
    /// Ask a Saccade server what its memory and arithmetic allow its steps
    Roof {
        #[command(flatten)]
        flags: roof::Args,
        #[command(flatten)]
        output: output::Args,
    },
    /// Run the first three: tokenize with its flags, the others with their defaults
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
    let (What::Tokenize { output, .. }
    | What::Broadcast { output, .. }
    | What::Straggler { output, .. }
    | What::Roof { output, .. }
    | What::All { output, .. }) = &args.what;
    output.check()?;
    let mut document = Document::new();
    match &args.what {
        What::Tokenize { flags, .. } => document.tokenize = Some(tokenize::measure(flags)?),
        What::Broadcast { flags, .. } => document.broadcast = Some(broadcast::measure(flags)?),
        What::Straggler { flags, .. } => document.straggler = Some(straggler::measure(flags)?),
        What::Roof { flags, .. } => document.roof = Some(roof::measure(flags)?),
        What::All { flags, .. } => {
            document.tokenize = Some(tokenize::measure(flags)?);
            if cfg!(feature = "device") {
                document.broadcast = Some(broadcast::measure(&defaults())?);
            } else {
                document.skipped.push(broadcast::NO_DEVICE.into());
            }
            document.straggler = Some(straggler::measure(&defaults())?);
        }
    }
    document.put_out(output)?;
    Ok(ExitCode::SUCCESS)
}

/// The page of a document, from its JSON.
///
/// # Errors
/// It is not of one of [`SCHEMAS`].
pub(crate) fn page_of(json: &str) -> anyhow::Result<Report> {
    page::of(&serde_json::from_str(json)?)
}

/// Flags as if none were given.
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
