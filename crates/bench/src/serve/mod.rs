//! `saccade bench serve`: load on one OpenAI-compatible server.

mod args;
mod page;
mod plan;
mod plot;
mod progress;
mod result;
mod text;

use std::process::ExitCode;

use anyhow::Context;
use saccade_load::{Run, Summary, Target, run_on_own_thread};
use saccade_report::Report;

pub use args::Args;
use plan::{Plan, Planned};
pub(crate) use result::SCHEMAS;
use result::{Ended, Results, RunResult};

use crate::output;

/// As a shell reports a command that Ctrl-C ended.
const INTERRUPTED: u8 = 130;

/// Runs it. The exit code is 1 if no request was answered or more failed than `--max-failed`
/// allows, and 130 after Ctrl-C.
///
/// # Errors
/// For flags out of their bounds, files that cannot be read or written, and a server that does not
/// answer at all. Requests that fail are results.
pub fn run(args: &Args) -> anyhow::Result<ExitCode> {
    let plan = plan::plan(args)?;
    output::check_writable("--json", args.output.json.as_deref())?;
    output::check_writable("--html", args.output.html.as_deref())?;
    progress::catch_interrupt();
    let target = resolved(&plan)?;
    let plan = Plan { target, ..plan };
    let (runs, ended) = measure(args, &plan)?;
    let priority = args.load.client_priority.to_string();
    let results = Results::new(&plan, priority, runs, ended);
    print_end(args, &results);
    if let Some(path) = &args.output.json {
        output::write_json(path, &results)?;
    }
    if let Some(path) = &args.output.html {
        output::write_page(path, &page::report(&results))?;
    }
    let answered: u64 = results.runs.iter().map(|r| r.summary.ok).sum();
    Ok(match ended {
        Ended::Interrupted => ExitCode::from(INTERRUPTED),
        Ended::Complete if answered > 0 => ExitCode::SUCCESS,
        Ended::Complete | Ended::MaxFailed => ExitCode::FAILURE,
    })
}

/// The page of results, from their JSON.
///
/// # Errors
/// It is not of one of [`SCHEMAS`].
pub(crate) fn page_of(json: &str) -> anyhow::Result<Report> {
    Ok(page::report(&serde_json::from_str(json)?))
}

/// Asks the server once, before the first run, on a runtime that is gone when runs begin.
fn resolved(plan: &Plan) -> anyhow::Result<Target> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let workload = &plan.runs.first().context("no rates: --rates is empty")?.spec.workload;
    Ok(runtime.block_on(plan.target.resolve(workload))?)
}

/// Makes the runs until the last, Ctrl-C, or one with too many failures.
fn measure(args: &Args, plan: &Plan) -> anyhow::Result<(Vec<RunResult>, Ended)> {
    let mut runs = Vec::new();
    for planned in &plan.runs {
        if progress::stopped() {
            return Ok((runs, Ended::Interrupted));
        }
        let most = args.load.max_failed.and_then(|limit| limit.most(planned.spec.requests));
        let label = result::label(planned.rate_rps, &planned.spec, planned.repeat);
        let run = progress::shown(&label, &planned.spec, most, |observer| {
            run_on_own_thread(&plan.target, &planned.spec, observer, args.load.client_priority)
        })?;
        let result = reduced(args, plan, planned, &run);
        print_run(args, plan, &result);
        let ended = if failed_too_often(args, &result) { Ended::MaxFailed } else { result.ended };
        runs.push(result);
        if ended != Ended::Complete {
            return Ok((runs, ended));
        }
    }
    Ok((runs, Ended::Complete))
}

fn reduced(args: &Args, plan: &Plan, planned: &Planned, run: &Run) -> RunResult {
    let ended = match run.stopped {
        false => Ended::Complete,
        true if progress::stopped() => Ended::Interrupted,
        true => Ended::MaxFailed,
    };
    let summary = Summary::of(run, &plan.slo);
    RunResult::new(planned, run, summary, ended, args.output.save_detailed)
}

fn failed_too_often(args: &Args, run: &RunResult) -> bool {
    let summary = &run.summary;
    let failed = summary.requests - summary.ok;
    args.load.max_failed.is_some_and(|limit| limit.is_exceeded(failed, summary.requests))
}

/// Tables go to the standard output, unless the JSON does.
fn say(args: &Args, text: &str) {
    if args.output.json.as_deref().is_some_and(output::is_stdout) {
        eprintln!("{text}");
    } else {
        println!("{text}");
    }
}

fn warn(kind: &str, label: &str, text: &str) {
    eprintln!("{}", output::wrapped(&format!("{kind}: {label}{text}"), 2));
}

fn print_run(args: &Args, plan: &Plan, result: &RunResult) {
    let label = result.label();
    if !plan.is_ladder {
        say(args, &format!("{} at {label}", plan.target.name));
        say(args, &output::lines(&text::facts(result)));
        say(args, &text::latencies(result, &args.output.percentile_metrics).to_text());
    }
    if !result.client.warnings.is_empty() {
        warn("warning", &format!("{label}: "), &result.client.warnings.join("; "));
    }
    for note in &result.notes {
        warn("note", &format!("{label}: "), note);
    }
}

fn print_end(args: &Args, results: &Results) {
    if let Some(analysis) = &results.analysis {
        say(args, &text::rates(&results.runs).to_text());
        say(args, &text::rate_latencies(&results.runs).to_text());
        for run in &results.runs {
            for (_, failure) in text::failures(&run.summary) {
                say(args, &output::wrapped(&format!("{}: {failure}", run.label()), 2));
            }
        }
        say(args, &output::lines(&text::analysis(analysis)));
        say(args, &text::geometric_means(analysis).to_text());
        for warning in &analysis.warnings {
            warn("warning", "", warning);
        }
    }
    if results.ended != Ended::Complete {
        let limit = args.load.max_failed.filter(|_| results.ended == Ended::MaxFailed);
        let limit = limit.map(|limit| format!(" (--max-failed {limit})")).unwrap_or_default();
        say(args, &output::wrapped(&(text::end(results) + &limit), 0));
    }
}
