//! Results as tables for a terminal; the report on a page uses the same tables.

use saccade_load::{Distribution, Summary};
use saccade_report::{Cell, Table};

use super::args::Metric;
use super::result::{Analysis, RunResult};

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
        censored += sample.censored;
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
        "Requests that timed out are in TTFT and E2E with the time that they had waited: these are \
         lower bounds.",
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
    std::iter::once(Cell::from(name)).chain(values.map(|v| ms(sample, v))).collect()
}

fn ms(sample: &Distribution, value: f64) -> Cell {
    if sample.count == 0 { Cell::Missing } else { Cell::Number(value, 2) }
}

/// Counts and rates of one run, one fact per line.
pub(super) fn facts(run: &RunResult) -> Vec<(&'static str, String)> {
    let s = &run.summary;
    let failures: Vec<String> = s.failures.iter().map(|(kind, n)| format!("{n} {kind}")).collect();
    let failed = s.requests - s.ok;
    let mut facts = vec![
        ("requests", format!("{} answered of {} measured", s.ok, s.requests)),
        ("window", format!("{:.2} s, {:.2} s to the last end", s.window_s, s.span_s)),
        ("offered", format!("{:.2} requests/s", s.offered_rps)),
        ("achieved", format!("{:.2} requests/s in the window", s.achieved_rps)),
        ("throughput", format!("{:.2} requests/s to the last end", s.requests_per_s)),
        ("tokens", format!("{:.0} in/s, {:.0} out/s", s.input_tokens_per_s, s.output_tokens_per_s)),
    ];
    if failed > 0 {
        facts.push(("failed", format!("{failed}: {}", failures.join(", "))));
    }
    if s.wrong_lengths > 0 {
        facts.push(("lengths", format!("{} answers not of the length asked for", s.wrong_lengths)));
    }
    if let Some(goodput) = s.goodput_rps {
        facts.push(("goodput", format!("{goodput:.2} requests/s")));
    }
    for target in &s.attainment {
        let limit = target.limit_ms.map(|l| format!(" ≤ {l} ms")).unwrap_or_default();
        let percent = 100.0 * target.share;
        facts.push(("attained", format!("{}{limit}: {percent:.2} %", target.target)));
    }
    facts.push(("client", health(run)));
    facts
}

fn health(run: &RunResult) -> String {
    let c = &run.client;
    let waited = c
        .run_queue_share
        .map(|s| format!(", {:.1} % waiting for it", s * 100.0))
        .unwrap_or_default();
    format!(
        "sends P50 {:.3} P99 {:.3} ms late, loop lags P99 {:.3} ms, {:.0} % of a core{waited}",
        c.send_lateness_ms.p50,
        c.send_lateness_ms.p99,
        c.loop_lag_ms.p99,
        c.cpu_share * 100.0
    )
}

/// One line per rate.
pub(super) fn ladder(runs: &[RunResult]) -> Table {
    let mut table = Table::new("Rates (requests/s; latencies in ms, from the intended time)")
        .column("rate")
        .column("offered")
        .column("achieved")
        .column("TTFT P50")
        .column("TTFT P99")
        .column("TPOT P50")
        .column("TPOT P99")
        .column("ITL P99")
        .column("E2E P99")
        .column("out tok/s")
        .column("failed")
        .column("goodput")
        .column("late P99");
    for run in runs {
        let s = &run.summary;
        let (ttft, e2e) = (&s.from_intended.ttft_ms, &s.from_intended.e2e_ms);
        table.push([
            run.rate_rps.map_or(Cell::Missing, |rate| Cell::Number(rate, 2)),
            Cell::Number(s.offered_rps, 2),
            Cell::Number(s.achieved_rps, 2),
            ms(ttft, ttft.p50),
            ms(ttft, ttft.p99),
            ms(&s.tpot_ms, s.tpot_ms.p50),
            ms(&s.tpot_ms, s.tpot_ms.p99),
            ms(&s.itl_ms, s.itl_ms.p99),
            ms(e2e, e2e.p99),
            Cell::Number(s.output_tokens_per_s, 0),
            Cell::from(s.requests - s.ok),
            s.goodput_rps.map_or(Cell::Missing, |rate| Cell::Number(rate, 2)),
            ms(&run.client.send_lateness_ms, run.client.send_lateness_ms.p99),
        ]);
    }
    table
}

/// What the rates say together.
pub(super) fn analysis(analysis: &Analysis) -> Vec<(&'static str, String)> {
    let rate = |value: Option<f64>| value.map_or("none".into(), |r| format!("{r:.2} requests/s"));
    let saturation = analysis.saturation.map_or_else(
        || "not reached: the highest rate is still served".to_owned(),
        |s| {
            let (knee, plateau) = (s.rate_rps, s.plateau_rps);
            format!("{knee:.2} requests/s, then a plateau of {plateau:.2} requests/s")
        },
    );
    let at = analysis.achieved_at_range_rps.zip(analysis.output_tokens_at_range_per_s);
    let achieved =
        at.map(|(r, t)| format!(", where {r:.2} requests/s and {t:.0} tok/s are achieved"));
    vec![
        ("saturation", saturation),
        ("serviceable", format!("{} at 95 %", rate(analysis.serviceable_rps))),
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

/// Facts as aligned lines.
pub(super) fn lines(facts: &[(&'static str, String)]) -> String {
    let width = facts.iter().map(|(name, _)| name.len()).max().unwrap_or(0);
    facts.iter().map(|(name, value)| format!("{name:width$}  {value}\n")).collect()
}
