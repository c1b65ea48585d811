//! Results as tables for a terminal; the report on a page uses the same tables.

use saccade_load::{Distribution, Summary};
use saccade_report::{Cell, Table, grouped};

use super::args::Metric;
use super::result::{Analysis, Ended, Results, RunResult};
use crate::output::counted;

/// Latencies of one run.
pub(super) fn latencies(run: &RunResult, metrics: &[Metric]) -> Table {
    let summary = &run.summary;
    let mut table = Table::new("Latency in ms, from the intended time").column("");
    for title in ["mean", "P50", "P95", "P99", "P99.9", "max"] {
        table = table.column(title);
    }
    let mut censored = 0;
    for metric in metrics {
        let (name, sample) = of(*metric, summary);
        censored = censored.max(sample.censored);
        table.push(row(name, &sample));
        match metric {
            Metric::Ttft => table.push(row("  from sending", &summary.from_sent.ttft_ms)),
            Metric::E2e => table.push(row("  from sending", &summary.from_sent.e2e_ms)),
            Metric::Tpot | Metric::Itl => {}
        }
    }
    if censored == 0 {
        return table;
    }
    table.note(
        "Requests that were cut while they waited are in TTFT, ITL and E2E with the time they had \
         waited: lower bounds. TPOT is of answered requests alone.",
    )
}

fn of(metric: Metric, summary: &Summary) -> (&'static str, Distribution) {
    match metric {
        Metric::Ttft => ("TTFT", summary.from_intended.ttft_ms),
        Metric::Tpot => ("TPOT", summary.tpot_ms),
        Metric::Itl => ("ITL", summary.itl_ms),
        Metric::E2e => ("E2E", summary.from_intended.e2e_ms),
    }
}

fn row(name: &str, sample: &Distribution) -> Vec<Cell> {
    let values = [sample.mean, sample.p50, sample.p95, sample.p99, sample.p999, sample.max];
    std::iter::once(Cell::from(name)).chain(values.map(|v| Cell::Number(v, 2))).collect()
}

/// A rate with its unit, or that it is not known.
fn rate(value: f64, decimals: usize, unit: &str) -> String {
    if value.is_nan() { format!("unknown {unit}") } else { format!("{value:.decimals$} {unit}") }
}

/// Counts and rates of one run, one fact per line.
pub(super) fn facts(run: &RunResult) -> Vec<(&'static str, String)> {
    let s = &run.summary;
    let of_requests = |value| rate(value, 2, "requests/s");
    let mut facts = vec![
        ("requests", format!("{} answered of {} measured", s.ok, s.requests)),
        ("window", format!("{:.2} s, {:.2} s until the last answer", s.window_s, s.span_s)),
        ("offered", of_requests(s.offered_rps)),
        (
            "achieved",
            format!(
                "{}, {} in the window",
                of_requests(s.achieved_rps),
                rate(s.achieved_tokens_per_s, 0, "tokens/s")
            ),
        ),
        (
            "with the drain",
            format!(
                "{}, {} out, {} in",
                of_requests(s.requests_per_s),
                rate(s.output_tokens_per_s, 0, "tokens/s"),
                rate(s.input_tokens_per_s.unwrap_or(f64::NAN), 0, "tokens/s")
            ),
        ),
    ];
    facts.extend(failures(s));
    if s.wrong_lengths > 0 {
        let wrong = s.wrong_lengths;
        facts.push(("lengths", format!("{wrong} answers of another length than asked for")));
    }
    if let Some(goodput) = s.goodput_rps {
        facts.push(("goodput", format!("{} in the window", of_requests(goodput))));
    }
    for target in &s.attainment {
        let limit = target.limit_ms.map(|l| format!(" ≤ {l} ms")).unwrap_or_default();
        let percent = 100.0 * target.share;
        facts.push(("attained", format!("{}{limit}: {percent:.2} %", target.target)));
    }
    facts.push(("client", health(run)));
    facts
}

/// How many failed, and why: each kind with its commonest message.
pub(super) fn failures(s: &Summary) -> Vec<(&'static str, String)> {
    let failed = s.requests - s.ok;
    if failed == 0 {
        return Vec::new();
    }
    let mut facts = vec![("failed", format!("{failed} of {}", s.requests))];
    for (kind, count) in &s.failures {
        let message = s.failure_messages.get(kind);
        let message = message.map(|words| format!(": {}", short(words))).unwrap_or_default();
        facts.push(("", format!("{count} {kind}{message}")));
    }
    facts
}

/// The beginning of a message: the rest is in the JSON.
fn short(words: &str) -> String {
    const MAX_CHARS: usize = 160;
    let mut short: String = words.chars().take(MAX_CHARS).collect();
    if short.len() < words.len() {
        short.push('…');
    }
    short
}

fn health(run: &RunResult) -> String {
    let c = &run.client;
    let waited = c
        .run_queue_share
        .map(|s| format!(", waited for it {:.1} % of the time", s * 100.0))
        .unwrap_or_default();
    format!(
        "sent {} ms late at P50, {} ms at P99; event loop {} ms late at P99; used {:.0} % of a \
         core{waited}",
        grouped(c.send_lateness_ms.p50, 3),
        grouped(c.send_lateness_ms.p99, 3),
        grouped(c.loop_lag_ms.p99, 3),
        c.cpu_share * 100.0
    )
}

/// Says that the measurement ended early, and how.
pub(super) fn end(results: &Results) -> String {
    let (made, planned) = (results.runs.len(), results.planned_runs);
    let last = match results.runs.last() {
        Some(run) if run.ended != Ended::Complete => ", the last one not to its end",
        _ => "",
    };
    let why = match results.ended {
        Ended::Complete => return String::new(),
        Ended::Interrupted => "Interrupted",
        Ended::MaxFailed => "Stopped because too many requests failed",
    };
    format!("{why}: {made} of {} made{last}.", counted(planned, "run"))
}

/// Throughput at each rate, one line per run.
pub(super) fn rates(runs: &[RunResult]) -> Table {
    let mut table = Table::new("Throughput by rate, requests/s and output tokens/s")
        .column("rate")
        .column("offered")
        .column("achieved")
        .column("tokens/s")
        .column("goodput")
        .column("failed")
        .column("client late P99 ms");
    for run in runs {
        let s = &run.summary;
        table.push([
            rate_cell(run),
            Cell::Number(s.offered_rps, 2),
            Cell::Number(s.achieved_rps, 2),
            Cell::Number(s.achieved_tokens_per_s, 0),
            s.goodput_rps.map_or(Cell::Missing, |rate| Cell::Number(rate, 2)),
            Cell::from(s.requests - s.ok),
            Cell::Number(run.client.send_lateness_ms.p99, 2),
        ]);
    }
    table
}

/// Latencies at each rate, one line per run.
pub(super) fn rate_latencies(runs: &[RunResult]) -> Table {
    let mut table = Table::new("Latency by rate, ms from the intended time")
        .column("rate")
        .column("TTFT P50")
        .column("TTFT P99")
        .column("TPOT P50")
        .column("TPOT P99")
        .column("ITL P99")
        .column("E2E P99");
    for run in runs {
        let s = &run.summary;
        let (ttft, e2e) = (&s.from_intended.ttft_ms, &s.from_intended.e2e_ms);
        let values = [ttft.p50, ttft.p99, s.tpot_ms.p50, s.tpot_ms.p99, s.itl_ms.p99, e2e.p99];
        let values = values.into_iter().map(|value| Cell::Number(value, 2));
        table.push(std::iter::once(rate_cell(run)).chain(values));
    }
    table
}

fn rate_cell(run: &RunResult) -> Cell {
    run.rate_rps.map_or(Cell::Missing, |rate| Cell::Number(rate, 2))
}

/// What the rates say together.
pub(super) fn analysis(analysis: &Analysis) -> Vec<(&'static str, String)> {
    let rate = |value: Option<f64>| value.map_or("none".into(), |r| format!("{r:.2} requests/s"));
    let saturation = analysis.saturation.map_or_else(
        || "not reached: the server keeps up with the highest rate".to_owned(),
        |s| {
            let (knee, plateau) = (s.rate_rps, s.plateau_rps);
            format!("{knee:.2} requests/s, then a plateau of {plateau:.2} requests/s")
        },
    );
    let at = analysis.achieved_at_range_rps.zip(analysis.achieved_tokens_at_range_per_s);
    let achieved =
        at.map(|(r, t)| format!(", where it achieves {r:.2} requests/s and {t:.0} tokens/s"));
    vec![
        ("saturation", saturation),
        ("serviceable", format!("{} (95 % achieved)", rate(analysis.serviceable_rps))),
        (
            "operating range",
            format!("to {}{}", rate(analysis.operating_range_rps), achieved.unwrap_or_default()),
        ),
    ]
}

/// Geometric means over the operating range.
pub(super) fn geometric_means(analysis: &Analysis) -> Table {
    let means = &analysis.geometric_means;
    let cell = |value: Option<f64>| value.map_or(Cell::Missing, |v| Cell::Number(v, 2));
    Table::new("Geometric means over the operating range, in ms")
        .column("TTFT P50")
        .column("TTFT P99")
        .column("TPOT P50")
        .column("TPOT P99")
        .column("ITL P99")
        .column("E2E P99")
        .row([
            cell(means.ttft_p50_ms),
            cell(means.ttft_p99_ms),
            cell(means.tpot_p50_ms),
            cell(means.tpot_p99_ms),
            cell(means.itl_p99_ms),
            cell(means.e2e_p99_ms),
        ])
}
