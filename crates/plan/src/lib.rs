//! `saccade plan`: what a load would come to on a named device, from the shipped scheduler over a
//! cost model, in virtual time. Everything it prints is simulated, and says so.

mod args;
mod capacity;
mod outcome;
mod page;
mod results;
mod simulate;
mod text;
mod workload;

use std::path::Path;
use std::process::ExitCode;

use anyhow::Context;

pub use args::Args;
use results::{Fleet, Results, Row};
use simulate::Machine;

/// Most devices that --find-devices tries.
const MAX_DEVICES: usize = 512;

/// Runs the command.
///
/// # Errors
/// For flags out of their bounds, and files that cannot be read or written.
pub fn run(args: &Args) -> anyhow::Result<ExitCode> {
    if args.output.list {
        print!("{}", text::names());
        return Ok(ExitCode::SUCCESS);
    }
    let machine = Machine::new(args)?;
    let capacity = capacity::capacity(args, &machine)?;
    let mut results = Results::new(args, &machine, capacity);
    if args.output.find_devices {
        results.fleets = fleets(args, &machine, capacity.rps)?;
    } else {
        results.rows = rows(args, &machine, capacity.rps)?;
    }
    if args.output.json.as_deref() != Some(Path::new("-")) {
        print!("{}", text::summary(&results));
    }
    if let Some(path) = &args.output.json {
        write_json(path, &results)?;
    }
    if let Some(path) = &args.output.html {
        page::report(&results)?
            .write(path)
            .with_context(|| format!("--html {}", path.display()))?;
    }
    Ok(ExitCode::SUCCESS)
}

/// Every rate with every policy, as many at a time as there are cores.
fn rows(args: &Args, machine: &Machine, capacity_rps: f64) -> anyhow::Result<Vec<Row>> {
    let mut jobs = Vec::new();
    for rate in args.load.rate.iter().map(|r| r.rps(capacity_rps)) {
        let requests = workload::requests(&args.load, rate)?;
        anyhow::ensure!(!requests.is_empty(), "--rate {rate}: nobody arrives");
        for policy in &args.scheduler.policy {
            jobs.push((rate, *policy, requests.clone()));
        }
    }
    let next = std::sync::atomic::AtomicUsize::new(0);
    let work = || {
        let mut done = Vec::new();
        loop {
            let i = next.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
            let Some((rate, policy, requests)) = jobs.get(i) else { return Ok(done) };
            let began = thread_cpu_time();
            let cell = simulate::simulate(args, machine, *policy, requests, 1)?;
            done.push((i, Row::new(*rate, *policy, cell, thread_cpu_time() - began)));
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

/// The least number of devices that meets the target, for each rate and policy.
fn fleets(args: &Args, machine: &Machine, capacity_rps: f64) -> anyhow::Result<Vec<Fleet>> {
    let target = args.output.target;
    anyhow::ensure!(target > 0.0 && target <= 1.0, "--target is {target}, outside (0, 1]");
    let mut fleets = Vec::new();
    for rate in args.load.rate.iter().map(|r| r.rps(capacity_rps)) {
        let requests = workload::requests(&args.load, rate)?;
        anyhow::ensure!(!requests.is_empty(), "--rate {rate}: nobody arrives");
        for policy in &args.scheduler.policy {
            let try_with = |devices| {
                let cell = simulate::simulate(args, machine, *policy, &requests, devices)?;
                anyhow::Ok(cell.outcome)
            };
            // Below the capacity nothing meets a target of nearly one: start there.
            let floor = ((rate / capacity_rps * target).floor() as usize).max(1);
            fleets.push(Fleet::find(rate, *policy, target, floor, MAX_DEVICES, try_with)?);
        }
    }
    Ok(fleets)
}

fn write_json(path: &Path, results: &Results) -> anyhow::Result<()> {
    let text = serde_json::to_string_pretty(results)?;
    if path == Path::new("-") {
        println!("{text}");
        return Ok(());
    }
    std::fs::write(path, text + "\n").with_context(|| format!("--json {}", path.display()))
}
