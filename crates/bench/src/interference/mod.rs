//! `saccade bench interference`: the same load in isolation and next to neighbours, on one or
//! several servers, interleaved; how much of its throughput each server keeps, and by how much its
//! latencies grow.

mod client;
mod host_record;
mod load_flags;
mod machine;
mod named;
mod plan;
mod present;
mod ratio;
mod record;
mod servers;
mod session;
mod sweep;

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::ensure;
use saccade_host::Root;
use saccade_report::{Report, grouped};

pub(crate) use client::{Client, ClientFlags};
pub(crate) use host_record::{HostRecord, HostWatch};
pub(crate) use machine::{Machine, command_line, shell_words};
pub(crate) use plan::Plan;
pub(crate) use ratio::median;
pub(crate) use record::{SCHEMAS, ServerRecord};
pub(crate) use servers::{Server, ServerFlags, ServerSpec};
pub(crate) use session::unix_s;

use crate::neighbours::Pauser;
use crate::output;
use load_flags::LoadFlags;
use plan::Slot;
use record::{Cell, Record};
use session::Session;
use sweep::SweepFlags;

/// Flags of `saccade bench interference`.
#[derive(Debug, clap::Args)]
pub struct Args {
    #[command(flatten, next_help_heading = "Servers")]
    servers: ServerFlags,
    /// Keep all started servers running, rather than start and stop them in turns
    #[arg(long, help_heading = "Servers")]
    keep_running: bool,
    /// Stop (SIGSTOP) the servers that are not measured at the moment
    #[arg(long, help_heading = "Servers")]
    pause_others: bool,
    /// Requests to a server after its start, not measured
    #[arg(long, value_name = "N", default_value_t = 8, help_heading = "Servers")]
    prime_requests: u64,
    #[command(flatten, next_help_heading = "Neighbours")]
    sweep: SweepFlags,
    #[command(flatten, next_help_heading = "Load")]
    load: LoadFlags,
    #[command(flatten, next_help_heading = "Client")]
    client: ClientFlags,
    /// Measurements of each server under each condition
    #[arg(long, value_name = "N", default_value_t = 3, help_heading = "Experiment",
        value_parser = clap::value_parser!(u32).range(1..=1000))]
    repeats: u32,
    /// Time between the start of a neighbour and the first request
    #[arg(long, value_name = "SECONDS", default_value_t = 2.0, help_heading = "Experiment")]
    settle: f64,
    /// Write the record as JSON, again after each cell
    #[arg(long, value_name = "FILE", help_heading = "Results")]
    json: Option<PathBuf>,
    /// Write a page with tables and plots
    #[arg(long, value_name = "FILE", help_heading = "Results")]
    html: Option<PathBuf>,
    /// Write the requests of each cell into a file in this folder
    #[arg(long, value_name = "FOLDER", help_heading = "Results")]
    raw_dir: Option<PathBuf>,
}

/// Longest time for a neighbour to settle.
const MAX_SETTLE_S: f64 = 3600.0;

/// Runs it. The exit status is 1 if a cell could not be measured, for instance because its server
/// did not start or exited. The other cells are measured.
///
/// # Errors
/// Flags out of bounds, a neighbour's placement that is not permitted, no server that answers, a
/// file that cannot be written.
pub fn run(args: &Args) -> anyhow::Result<ExitCode> {
    let (mut session, mut record, order) = prepare(args)?;
    session.bring_up_all()?;
    for (index, slot) in order.iter().enumerate() {
        let cell = session.measure(index, *slot);
        let head = format!("[{}/{}] ", index + 1, order.len());
        eprintln!("{}", told(&(head + &line(&cell))));
        record.cells.push(cell);
        note_servers(&session, &mut record);
        record.compare();
        args.json.as_ref().map_or(Ok(()), |path| output::write_json(path, &record))?;
    }
    session.end()?;
    print!("{}", present::text(&record));
    for (_, title, words) in present::warnings(&record) {
        println!("\n{}", told(&format!("{title}. {words}")));
    }
    if let Some(path) = &args.html {
        output::write_page(path, &present::report(&record)?)?;
    }
    let failed = record.cells.iter().any(|cell| cell.error.is_some());
    Ok(if failed { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}

/// Each line broken where a terminal ends.
pub(crate) fn told(text: &str) -> String {
    text.lines().map(|line| output::wrapped(line, 4)).collect::<Vec<_>>().join("\n")
}

/// The page of a record, from its JSON.
///
/// # Errors
/// It is not of one of [`SCHEMAS`].
pub(crate) fn page_of(json: &str) -> anyhow::Result<Report> {
    present::report(&serde_json::from_str(json)?)
}

fn prepare(args: &Args) -> anyhow::Result<(Session, Record, Vec<Slot>)> {
    let specs = args.servers.specs()?;
    let conditions = args.sweep.conditions()?;
    let load = args.load.spec()?;
    let client = Client::settle(&args.client)?;
    ensure!(
        (0.0..=MAX_SETTLE_S).contains(&args.settle),
        "--settle: {} is outside 0 .. {MAX_SETTLE_S} s",
        args.settle
    );
    output::check_writable("--json", args.json.as_deref())?;
    output::check_writable("--html", args.html.as_deref())?;
    if let Some(folder) = &args.raw_dir {
        output::check_folder("--raw-dir", folder)?;
    }
    let started = specs.iter().any(|spec| spec.start.is_some());
    let in_turns = started && specs.len() > 1 && !args.keep_running;
    let plan = Plan {
        servers: specs.len(),
        conditions: conditions.len(),
        repeats: args.repeats as usize,
        seed: load.seed,
        in_turns,
    };
    let record = Record {
        schema: SCHEMAS[0].into(),
        version: env!("CARGO_PKG_VERSION").into(),
        started_unix_s: unix_s(),
        command: command_line(),
        machine: Machine::read(&Root::default()),
        load: load.clone(),
        client: client.clone(),
        in_turns,
        settle_s: args.settle,
        servers: specs.iter().map(ServerRecord::of).collect(),
        conditions: conditions.clone(),
        cells: Vec::new(),
        comparisons: Vec::new(),
    };
    let session = Session {
        root: Root::default(),
        running: specs.iter().map(|_| None).collect(),
        startups_s: vec![Vec::new(); specs.len()],
        failed: vec![None; specs.len()],
        specs,
        conditions,
        load,
        client,
        settle: Duration::from_secs_f64(args.settle),
        in_turns,
        prime_requests: args.prime_requests,
        raw_dir: args.raw_dir.clone(),
        pauser: args.pause_others.then(Pauser::start).transpose()?,
    };
    Ok((session, record, plan.order()))
}

/// What was learned about the servers while they ran.
fn note_servers(session: &Session, record: &mut Record) {
    for (i, server) in record.servers.iter_mut().enumerate() {
        server.startup_s.clone_from(&session.startups_s[i]);
        if let Some(running) = &session.running[i] {
            server.model.clone_from(&running.target.model);
        }
    }
}

/// One cell in one line.
fn line(cell: &Cell) -> String {
    let head = format!("repeat {}, {}, {}", cell.repeat + 1, cell.server, cell.condition);
    let Some(summary) = cell.summary.as_ref().filter(|_| cell.error.is_none()) else {
        return format!("{head}: {}", cell.error.as_deref().unwrap_or("not measured"));
    };
    let late = if cell.distrust.is_empty() { "" } else { " (client late: left out)" };
    let (ttft, tpot) = (&summary.from_intended.ttft_ms, &summary.tpot_ms);
    let failed = match summary.requests - summary.ok {
        0 => String::new(),
        failed => format!(", {failed} of {} failed", summary.requests),
    };
    format!(
        "{head}: {} tokens/s, TTFT P50 {} P99 {} ms, TPOT P50 {} P99 {} ms{failed}{late}",
        grouped(summary.achieved_tokens_per_s, 1),
        grouped(ttft.p50, 1),
        grouped(ttft.p99, 1),
        grouped(tpot.p50, 2),
        grouped(tpot.p99, 2)
    )
}

#[cfg(test)]
pub(crate) mod tests {
    use saccade_load::{Distribution, Latencies, Summary};

    /// An empty summary, for tests to fill in.
    pub(crate) fn empty_summary() -> Summary {
        let nothing = Distribution::default();
        Summary {
            requests: 0,
            ok: 0,
            failures: Default::default(),
            failure_messages: Default::default(),
            window_s: 0.0,
            span_s: 0.0,
            offered_rps: 0.0,
            achieved_rps: 0.0,
            achieved_tokens_per_s: 0.0,
            requests_per_s: 0.0,
            input_tokens_per_s: None,
            output_tokens_per_s: 0.0,
            output_tokens: 0,
            wrong_lengths: 0,
            from_intended: Latencies::default(),
            from_sent: Latencies::default(),
            tpot_ms: nothing,
            itl_ms: nothing,
            attainment: Vec::new(),
            goodput_rps: None,
        }
    }
}
