//! `saccade bench serve`: load on one OpenAI-compatible server.

mod args;
mod page;
mod plan;
mod progress;
mod result;
mod text;

use std::path::Path;
use std::process::ExitCode;

use anyhow::Context;
use saccade_load::{Run, Summary, Target, run_on_own_thread};

pub use args::Args;
use page::Samples;
use plan::{Plan, Planned};
use result::{Results, RunResult};

/// Runs it.
///
/// # Errors
/// For flags out of their bounds, files that cannot be read or written, and a server that does not
/// answer at all. Requests that fail are results; if none succeeds, the exit code is 1.
pub fn run(args: &Args) -> anyhow::Result<ExitCode> {
    let plan = plan::plan(args)?;
    progress::catch_interrupt();
    let mut target = resolved(&plan)?;
    let (mut runs, mut samples) = (Vec::new(), Vec::new());
    for planned in &plan.runs {
        if progress::stopped() {
            break;
        }
        let label = label(planned, plan.runs.len());
        let run = progress::with_bar(&label, &planned.spec, |observer| {
            run_on_own_thread(&target, &planned.spec, observer, args.load.client_priority)
        })?;
        target = run.target.clone();
        let result = reduced(planned, &run, &plan, args.output.save_detailed);
        print_run(args, &plan, &label, &result);
        if args.output.html.is_some() {
            samples.push(Samples::of(label, &run));
        }
        runs.push(result);
    }
    let model = target.model.clone().unwrap_or_default();
    let plan = Plan { target, ..plan };
    let priority = args.load.client_priority.to_string();
    let results = Results::new(&plan, priority, runs, model);
    print_end(args, &results);
    if let Some(path) = &args.output.json {
        write_json(path, &results)?;
    }
    if let Some(path) = &args.output.html {
        page::report(&results, &samples)
            .write(path)
            .with_context(|| format!("--html {}", path.display()))?;
    }
    let answered: u64 = results.runs.iter().map(|r| r.summary.ok).sum();
    Ok(if answered > 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Asks the server once, before the first run, on a runtime that is gone when runs begin.
fn resolved(plan: &Plan) -> anyhow::Result<Target> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let workload = &plan.runs.first().context("no rates: --rates is empty")?.spec.workload;
    Ok(runtime.block_on(plan.target.resolve(workload))?)
}

fn reduced(planned: &Planned, run: &Run, plan: &Plan, detailed: bool) -> RunResult {
    RunResult::new(planned, run, Summary::of(run, &plan.slo), detailed)
}

fn label(planned: &Planned, runs: usize) -> String {
    let rate = planned.rate_rps.map(|rate| format!("{rate} requests/s"));
    let rate = rate.unwrap_or_else(|| match planned.spec.arrival {
        saccade_load::Arrival::Closed { concurrency } => format!("{concurrency} in flight"),
        _ => "replay".into(),
    });
    if runs > 1 && planned.repeat > 0 { format!("{rate} #{}", planned.repeat + 1) } else { rate }
}

/// Tables go to the standard output, unless the JSON does.
fn say(args: &Args, text: &str) {
    if args.output.json.as_deref() == Some(Path::new("-")) {
        eprintln!("{text}");
    } else {
        println!("{text}");
    }
}

fn print_run(args: &Args, plan: &Plan, label: &str, result: &RunResult) {
    if !plan.is_ladder {
        say(args, &format!("{} at {label}", plan.target.name));
        say(args, &text::lines(&text::facts(result)));
        say(args, &text::latencies(result, &args.output.percentile_metrics).to_text());
    }
    if !result.client.warnings.is_empty() {
        eprintln!("warning: {label}: {}", result.client.warnings.join("; "));
    }
    for note in &result.notes {
        eprintln!("note: {label}: {note}");
    }
}

fn print_end(args: &Args, results: &Results) {
    let Some(analysis) = &results.analysis else { return };
    say(args, &text::ladder(&results.runs).to_text());
    say(args, &text::lines(&text::analysis(analysis)));
    say(args, &text::geometric_means(analysis).to_text());
    for warning in &analysis.warnings {
        eprintln!("warning: {warning}");
    }
}

fn write_json(path: &Path, results: &Results) -> anyhow::Result<()> {
    let text = serde_json::to_string_pretty(results)?;
    if path == Path::new("-") {
        println!("{text}");
        return Ok(());
    }
    std::fs::write(path, text + "\n").with_context(|| format!("--json {}", path.display()))
}
