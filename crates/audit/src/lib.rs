//! CPU-to-GPU ratios of a cluster, from its scheduler's accounting.
//!
//! Reads what `sacct` or `kubectl` say was allocated, and tells how many cores there were per GPU,
//! weighted by GPU hours: percentiles, shares below the bounds under which slow-downs were
//! measured ([`rule`]), what more cores would have cost. Millions of rows stream through in
//! constant memory ([`distribution`]); rows that cannot be read are counted by reason.
//!
//! Exit codes: 0 healthy, 1 GPU hours at risk, 2 wrong usage, 3 no input or no GPU job in it,
//! 4 GPU hours starved.

pub mod distribution;
mod input;
pub mod job;
mod kubernetes;
mod lines;
mod page;
mod ratio;
pub mod result;
pub mod rule;
mod slurm;
mod tables;
pub mod tally;

use std::io::{BufRead, Write};
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::{SystemTime, UNIX_EPOCH};

use anyhow::{Context, Result};
use saccade_doctor::reference::Prices;

use input::Source;
use kubernetes::Cluster;
use result::{Audit, Verdict};
use tally::Tally;

/// More than the allowed share of GPU hours has fewer than four cores per GPU.
pub const EXIT_AT_RISK: u8 = 1;
/// Nothing could be judged. (2 is wrong usage, as everywhere.)
pub const EXIT_NOTHING: u8 = 3;
/// More than the allowed share of GPU hours has fewer cores than #GPUs + 1.
pub const EXIT_STARVED: u8 = 4;

/// Which accounting, and how to report it.
#[derive(Debug, Clone, clap::Args)]
#[command(after_help = "Make the input with:\n  \
    sacct -a -X -P -S 2026-01-01 -o JobID,Partition,AllocTRES,AllocCPUS,ElapsedRaw > jobs.txt\n  \
    kubectl get nodes,pods -A -o json > cluster.json\n\n\
    A row that occurs twice counts twice: the periods of several files must not overlap.\n\n\
    Exit codes: 0 healthy, 1 GPU hours at risk (fewer than 4 cores per GPU), 2 wrong usage,\n\
    3 no input or no GPU job in it, 4 GPU hours starved (fewer than #GPUs + 1 cores).")]
pub struct Args {
    /// Files or quoted patterns, plain, gzip or zstd; '-' or none for standard input
    #[arg(value_name = "FILE")]
    pub files: Vec<String>,
    /// Format of the files; auto goes by their first byte
    #[arg(long, value_enum, default_value_t = Format::Auto)]
    pub format: Format,
    /// File of nodes (kubectl get nodes -o json) whose labels name the GPUs of pods
    #[arg(long, value_name = "FILE")]
    pub nodes: Vec<String>,
    /// Time at which the pods were listed; running pods count until then [default: now]
    #[arg(long, value_name = "TIME", value_parser = at)]
    pub at: Option<u64>,
    /// Share of GPU hours (0 to 1) that may be short of cores without a failing exit code
    #[arg(long, default_value_t = 0.05, value_name = "SHARE", value_parser = share)]
    pub allow: f64,
    /// Most partitions or namespaces in the printed table
    #[arg(long, default_value_t = 20, value_name = "N")]
    pub top: usize,
    /// Print JSON (schema saccade.audit/1)
    #[arg(long)]
    pub json: bool,
    /// Write a self-contained HTML report
    #[arg(long, value_name = "FILE")]
    pub html: Option<PathBuf>,
    /// Price table in place of the built-in one (TOML, as crates/doctor/src/prices.toml)
    #[arg(long, value_name = "FILE")]
    pub prices: Option<PathBuf>,
    /// US dollars per hour of one core
    #[arg(long, value_name = "USD")]
    pub price_core: Option<f64>,
    /// US dollars per hour of one GPU
    #[arg(long, value_name = "USD")]
    pub price_gpu: Option<f64>,
}

/// What a file holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum Format {
    /// By the first byte.
    Auto,
    /// `sacct --parsable2`, with its header.
    Slurm,
    /// Objects as JSON: lists, arrays, one per line.
    Kubernetes,
}

fn at(text: &str) -> Result<u64, String> {
    let time = humantime::parse_rfc3339_weak(text).map_err(|e| format!("{text:?}: {e}"))?;
    let since = time.duration_since(UNIX_EPOCH).map_err(|_| format!("{text:?} is before 1970"))?;
    Ok(since.as_secs())
}

fn share(text: &str) -> Result<f64, String> {
    let share: f64 = text.parse().map_err(|_| format!("{text:?} is not a number"))?;
    if (0.0..=1.0).contains(&share) {
        Ok(share)
    } else {
        Err(format!("{text} is not within 0 .. 1"))
    }
}

/// Reads, prints, and exits by verdict.
///
/// # Errors
/// Wrong usage only: a price table that cannot be read, a report that cannot be written.
pub fn run(args: &Args) -> Result<ExitCode> {
    let prices = Prices::load(args.prices.as_deref(), args.price_core, args.price_gpu)?;
    let (tally, inputs) = match collect(args) {
        Ok(collected) => collected,
        Err(error) => {
            eprintln!("saccade audit: {error:#}");
            return Ok(ExitCode::from(EXIT_NOTHING));
        }
    };
    let audit = Audit::new(&tally, inputs, &prices, args.allow);
    if let Some(path) = &args.html {
        page::write(&audit, "partition or namespace", path)?;
    }
    let text = if args.json {
        serde_json::to_string_pretty(&audit).context("the result")? + "\n"
    } else {
        text(&audit, args.top)
    };
    // A reader that has gone (`| head`) is no failure of the cluster.
    let _ = std::io::stdout().write_all(text.as_bytes());
    Ok(match audit.verdict {
        Verdict::Healthy => ExitCode::SUCCESS,
        Verdict::AtRisk => ExitCode::from(EXIT_AT_RISK),
        Verdict::Starved => ExitCode::from(EXIT_STARVED),
        Verdict::Nothing => ExitCode::from(EXIT_NOTHING),
    })
}

/// Counts all inputs; also returns their names.
///
/// # Errors
/// An input cannot be read, or is not what [`Args::format`] says.
pub fn collect(args: &Args) -> Result<(Tally, Vec<String>)> {
    let now = || SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |d| d.as_secs());
    let mut cluster = Cluster::new(args.at.unwrap_or_else(now));
    // No file means standard input elsewhere; here it means that there are none.
    let nodes = if args.nodes.is_empty() { vec![] } else { input::sources(&args.nodes)? };
    for source in nodes {
        let read = source.open().and_then(|i| kubernetes::read(i, &mut cluster, &mut |_| {}));
        read.with_context(|| format!("--nodes {}", source.name()))?;
    }
    let mut tally = Tally::default();
    let sources = input::sources(&args.files)?;
    for source in &sources {
        count(source, args.format, &mut cluster, &mut tally)
            .with_context(|| format!("cannot read {}", source.name()))?;
    }
    Ok((tally, sources.iter().map(Source::name).collect()))
}

fn count(source: &Source, format: Format, cluster: &mut Cluster, tally: &mut Tally) -> Result<()> {
    let mut input = source.open()?;
    let is_json = |start: &[u8]| {
        let first = start.iter().find(|b| !b.is_ascii_whitespace());
        matches!(first, Some(b'{' | b'['))
    };
    let mut sink = |row| tally.add(row);
    match format {
        Format::Kubernetes => kubernetes::read(input, cluster, &mut sink),
        Format::Auto if is_json(input.fill_buf()?) => kubernetes::read(input, cluster, &mut sink),
        Format::Slurm | Format::Auto => slurm::read(input, &mut sink),
    }
}

fn text(audit: &Audit, top: usize) -> String {
    let (_, title, verdict) = page::verdict(audit);
    let mut out = String::new();
    if audit.overall.jobs > 0 {
        let place = "partition or namespace";
        for table in [
            tables::percentiles(audit, "GPU type", &audit.by_model, top.max(20)),
            tables::percentiles(audit, place, &audit.by_place, top),
            tables::bands_short(audit),
        ] {
            out.push_str(&table.to_text());
            out.push('\n');
        }
        out.push_str(&tables::sources(&audit.bands));
        out.push('\n');
        out.push_str(&tables::cost(&audit.cost).to_text());
        out.push('\n');
    }
    out.push_str(&tables::rows(audit).to_text());
    out.push('\n');
    for note in &audit.notes {
        out.push_str(&format!("Note: {note}\n"));
    }
    out.push_str(&format!("\n{title}: {verdict}\n"));
    out
}
