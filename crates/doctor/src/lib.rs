//! Says whether a running engine is short of CPU, and what that costs.
//!
//! Looks from outside, through /proc and /sys: any engine, nothing to install in it, no request
//! sent (but one to /metrics with `--url`). [`observe`](facts::observe) reads and watches,
//! [`rules`] judge by the numbers of [`thresholds`], [`report`] and [`text`] say it.
//!
//! Exit codes: 0 healthy, 1 warnings, 2 wrong usage, 3 could not look, 4 trouble.

pub mod case;
pub mod clock;
pub mod container;
pub mod counters;
pub mod engine;
pub mod facts;
pub mod finding;
pub mod reference;
mod remedy;
pub mod report;
pub mod rules;
pub mod server_metrics;
pub mod target;
pub mod text;
pub mod thresholds;
mod words;

use std::io::Write;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use saccade_host::Root;

use case::Case;
use clock::{Clock, MachineClock};
use facts::Watch;
use reference::Prices;
use report::{Report, ServerReport, Verdict};
use target::Target;

/// Something will cost latency under load.
pub const EXIT_WARNINGS: u8 = 1;
/// No server, or not readable. (2 is wrong usage, as everywhere.)
pub const EXIT_COULD_NOT_LOOK: u8 = 3;
/// Something costs latency.
pub const EXIT_TROUBLE: u8 = 4;
/// Longest watch.
const MAX_SECONDS: f64 = 3600.0;
/// Shortest: counters of /proc move in steps of 10 ms.
const MIN_SECONDS: f64 = 0.1;

/// Which server, and how to look at it.
#[derive(Debug, Clone, clap::Args)]
#[command(after_help = "Exit codes: 0 healthy, 1 warnings, 2 wrong usage, 3 could not look, \
                        4 trouble.\n\nWithout --pid, --url or --container it examines every \
                        engine that it knows by its command line.\nRun it as root to see the \
                        processes of other users; what it cannot read it names.")]
pub struct Args {
    /// Topmost process of the server; its descendants belong to it
    #[arg(long, value_name = "PID", group = "target")]
    pub pid: Option<u32>,
    /// URL where the server listens, on this machine; its /metrics is read too
    #[arg(long, value_name = "URL", group = "target")]
    pub url: Option<String>,
    /// Name or id of the server's container (Docker, Podman, containerd, lxc)
    #[arg(long, value_name = "NAME|ID", group = "target")]
    pub container: Option<String>,
    /// Seconds to watch
    #[arg(long, default_value_t = 5.0, value_name = "SECONDS", value_parser = seconds)]
    pub seconds: f64,
    /// Number of GPUs that the server drives, in place of what was detected
    #[arg(long, value_name = "N")]
    pub gpus: Option<usize>,
    /// Print every finding with its evidence, remedies and prices
    #[arg(long, short, conflicts_with = "json")]
    pub verbose: bool,
    /// Print JSON (schema saccade.doctor/1)
    #[arg(long)]
    pub json: bool,
    /// Price table in place of the built-in one (TOML, as crates/doctor/src/prices.toml)
    #[arg(long, value_name = "FILE")]
    pub prices: Option<PathBuf>,
    /// US dollars per hour of one core
    #[arg(long, value_name = "USD")]
    pub price_core: Option<f64>,
    /// US dollars per hour of one GPU
    #[arg(long, value_name = "USD")]
    pub price_gpu: Option<f64>,
    /// Folder with the machine's proc and sys, such as /host in a container
    #[arg(long, value_name = "FOLDER", default_value = "/")]
    pub root: PathBuf,
}

fn seconds(text: &str) -> Result<f64, String> {
    let seconds: f64 = text.parse().map_err(|_| format!("{text:?} is not a number"))?;
    if (MIN_SECONDS..=MAX_SECONDS).contains(&seconds) {
        return Ok(seconds);
    }
    Err(format!("not within {MIN_SECONDS} .. {MAX_SECONDS} seconds"))
}

/// Looks, prints, and exits by verdict.
///
/// # Errors
/// Wrong usage only: a price table or a URL that cannot be read.
pub fn run(args: &Args) -> Result<ExitCode> {
    let prices = Prices::load(args.prices.as_deref(), args.price_core, args.price_gpu)?;
    let root = Root::at(&args.root);
    let watch = Watch { time: Duration::from_secs_f64(args.seconds), gpus: args.gpus };
    let report = match examine(&root, &args.target(), watch, &prices, &mut MachineClock) {
        Ok(report) => report,
        Err(error) => {
            eprintln!("saccade doctor: {error:#}");
            return Ok(ExitCode::from(EXIT_COULD_NOT_LOOK));
        }
    };
    let text = if args.json {
        serde_json::to_string_pretty(&report).context("the report")? + "\n"
    } else if args.verbose {
        text::full(&report)
    } else {
        text::brief(&report)
    };
    // A reader that has gone (`| head`) is no failure of the server.
    let _ = std::io::stdout().write_all(text.as_bytes());
    Ok(exit_code(&report))
}

/// Looks at what `target` means, one server after the other.
///
/// # Errors
/// There is no such server on this machine, or none of them can be watched.
pub fn examine(
    root: &Root,
    target: &Target,
    watch: Watch,
    prices: &Prices,
    clock: &mut dyn Clock,
) -> Result<Report> {
    let (mut servers, mut failed) = (Vec::new(), Vec::new());
    for server in target::find(root, target)? {
        match facts::observe(root, &server, watch, clock) {
            Ok(facts) => servers.push(ServerReport::of(&Case { facts: &facts, prices })?),
            Err(error) => failed.push(format!("pid {}: {error:#}", server.pid)),
        }
    }
    ensure!(!servers.is_empty(), "{}", failed.join("; "));
    Ok(Report::new(servers, failed))
}

/// The exit code of a verdict.
pub fn exit_code(report: &Report) -> ExitCode {
    match report.verdict {
        Verdict::Healthy if report.failed.is_empty() => ExitCode::SUCCESS,
        Verdict::Healthy | Verdict::Unknown => ExitCode::from(EXIT_COULD_NOT_LOOK),
        Verdict::Warnings => ExitCode::from(EXIT_WARNINGS),
        Verdict::Trouble => ExitCode::from(EXIT_TROUBLE),
    }
}

impl Args {
    /// What to look at.
    pub fn target(&self) -> Target {
        match (&self.pid, &self.url, &self.container) {
            (Some(pid), _, _) => Target::Pid(*pid),
            (_, Some(url), _) => Target::Url(url.clone()),
            (_, _, Some(name)) => Target::Container(name.clone()),
            _ => Target::Everything,
        }
    }
}
