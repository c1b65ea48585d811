//! `saccade plan`: how a named device would serve a load, from the shipped scheduler over a cost
//! model, in virtual time. Everything it prints is simulated, and says so.

mod args;
mod capacity;
mod fleet;
mod outcome;
mod page;
mod results;
mod simulate;
mod text;
mod trace;
mod workload;

use std::io::Write;
use std::path::Path;
use std::process::ExitCode;

use anyhow::Context;

pub use args::Args;
use args::{Command, PageArgs};
use fleet::{Fleet, MAX_DEVICES, Search};
use results::{Results, Row};
use simulate::Machine;
use workload::{Load, Source};

/// Runs the command.
///
/// # Errors
/// For flags out of their bounds, and files that cannot be read or written.
pub fn run(args: &Args) -> anyhow::Result<ExitCode> {
    match &args.command {
        Some(Command::Page(page)) => draw(page)?,
        None if args.output.list => print!("{}", text::names()),
        None => plan(args)?,
    }
    Ok(ExitCode::SUCCESS)
}

/// The page of a result that `saccade plan --json` wrote: the same page that `--html` wrote then.
///
/// # Errors
/// The text is not such a result, or one of another version's schema.
pub fn page_of_json(json: &str) -> anyhow::Result<String> {
    Ok(page::report(&Results::from_json(json)?)?.to_html())
}

fn plan(args: &Args) -> anyhow::Result<()> {
    let machine = Machine::new(args)?;
    let source = Source::new(&args.load)?;
    if let Some(trace) = &source.trace {
        trace.check_fits(machine.kv_tokens(args))?;
    }
    let capacity = capacity::capacity(args, &machine, &source)?;
    let mut results = Results::new(args, &machine, &source, capacity);
    if args.output.find_devices {
        results.fleets = fleets(args, &machine, &source, capacity.rps)?;
    } else {
        results.add_rows(rows(args, &machine, &source, capacity.rps)?);
    }
    let json = results.to_json()?;
    match args.output.json.as_deref() {
        Some(path) if path == Path::new("-") => print!("{json}"),
        Some(path) => write("--json", path, &json)?,
        None => {}
    }
    if args.output.json.as_deref() != Some(Path::new("-")) {
        print!("{}", text::summary(&results));
    }
    match &args.output.html {
        Some(path) => write("--html", path, &page_of_json(&json)?),
        None => Ok(()),
    }
}

fn draw(args: &PageArgs) -> anyhow::Result<()> {
    let name = || args.result.display().to_string();
    let json = std::fs::read_to_string(&args.result).with_context(name)?;
    let page = page_of_json(&json).with_context(name)?;
    match &args.html {
        Some(path) => write("--html", path, &page),
        None => Ok(std::io::stdout().write_all(page.as_bytes())?),
    }
}

fn write(flag: &str, path: &Path, text: &str) -> anyhow::Result<()> {
    std::fs::write(path, text).with_context(|| format!("{flag} {}", path.display()))
}

/// Every rate with every policy, as many at a time as there are cores.
fn rows(
    args: &Args,
    machine: &Machine,
    source: &Source<'_>,
    capacity_rps: f64,
) -> anyhow::Result<Vec<Row>> {
    let loads = source.rates_rps(capacity_rps).into_iter().map(|rate| source.load(rate));
    let loads: Vec<Load<'_>> = loads.collect::<anyhow::Result<_>>()?;
    let policies = &args.scheduler.scheduling_policy;
    let jobs: Vec<_> =
        loads.iter().flat_map(|load| policies.iter().map(move |policy| (load, *policy))).collect();
    let next = std::sync::atomic::AtomicUsize::new(0);
    let work = || {
        let mut done = Vec::new();
        loop {
            let i = next.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
            let Some((load, policy)) = jobs.get(i) else { return Ok(done) };
            let began = thread_cpu_time();
            let cell = simulate::simulate(args, machine, *policy, load, 1)?;
            done.push((i, Row::new(load.rate_rps, *policy, cell, thread_cpu_time() - began)));
        }
    };
    let threads = std::thread::available_parallelism().map_or(1, usize::from).min(jobs.len());
    let mut all = std::thread::scope(|scope| -> anyhow::Result<Vec<(usize, Row)>> {
        let crew: Vec<_> = (0..threads).map(|_| scope.spawn(work)).collect();
        let mut all = Vec::new();
        for member in crew {
            let done: anyhow::Result<Vec<(usize, Row)>> =
                member.join().map_err(|_| anyhow::anyhow!("a simulation panicked"))?;
            all.extend(done?);
        }
        Ok(all)
    })?;
    all.sort_by_key(|(i, _)| *i);
    Ok(all.into_iter().map(|(_, row)| row).collect())
}

/// CPU time of this thread: other processes may have its core meanwhile.
fn thread_cpu_time() -> std::time::Duration {
    // SAFETY: an all-zero timespec is valid, the call fills it, and the clock exists on Linux.
    let t = unsafe {
        let mut t: libc::timespec = std::mem::zeroed();
        libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &mut t);
        t
    };
    std::time::Duration::new(t.tv_sec as u64, t.tv_nsec as u32)
}

/// The least number of devices that is enough, for each rate and policy.
fn fleets(
    args: &Args,
    machine: &Machine,
    source: &Source<'_>,
    capacity_rps: f64,
) -> anyhow::Result<Vec<Fleet>> {
    let target = args.output.target;
    anyhow::ensure!(target > 0.0 && target <= 1.0, "--target is {target}, outside (0, 1]");
    let mut fleets = Vec::new();
    for rate_rps in source.rates_rps(capacity_rps) {
        let load = source.load(rate_rps)?;
        let search = Search { rate_rps, capacity_rps, target, bound: MAX_DEVICES };
        for policy in &args.scheduler.scheduling_policy {
            let try_with = |devices| {
                let cell = simulate::simulate(args, machine, *policy, &load, devices)?;
                anyhow::Ok(cell.outcome)
            };
            fleets.push(search.run(*policy, try_with)?);
        }
    }
    Ok(fleets)
}
