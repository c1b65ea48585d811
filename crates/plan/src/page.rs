//! The page: the same tables, and plots.

use saccade_report::{Axis, Chart, Level, LineChart, Report, Section, Series};

use crate::args::Policy;
use crate::results::{Results, Row};
use crate::text;

/// Everything on one page.
///
/// # Errors
/// If the results have no JSON form.
pub(crate) fn report(r: &Results) -> anyhow::Result<Report> {
    let mut report = Report::new(format!("Plan: {} on {}", r.model, r.device))
        .subtitle("Simulated: the shipped scheduler over a cost model, in virtual time")
        .fact("model", format!("{} ({:.1} billion parameters)", r.model, r.params / 1e9))
        .fact("device", format!("{} ({})", r.device, r.device_source))
        .fact("KV", format!("{} blocks, {} tokens", r.kv_blocks, r.kv_tokens))
        .fact("host memory for KV", format!("{} blocks, {} copies", r.host_blocks, r.copies))
        .fact("scheduler", format!("on the {}", r.scheduler))
        .fact("workload", text::lengths(&r.workload))
        .fact("arrivals", text::arrivals(r))
        .fact("targets", format!("TTFT {} s, TBT {} ms", r.slo.ttft_s, r.slo.tbt_s * 1e3))
        .fact("capacity", text::capacity(r))
        .fact("seed", r.seed.to_string());
    if !r.rows.is_empty() {
        report = report.section(by_rate(r)).section(over_time(r));
    }
    if !r.fleets.is_empty() {
        let section = simulated(Section::new("Devices"));
        report = report.section(section.table(text::fleets(&r.fleets)));
    }
    if let Some(table) = text::all_prefixes(r) {
        report = report.section(simulated(Section::new("Shared prefixes")).table(table));
    }
    report.data("plan", r)
}

fn policies(r: &Results) -> Vec<Policy> {
    let mut found: Vec<Policy> = Vec::new();
    for row in &r.rows {
        if !found.contains(&row.policy) {
            found.push(row.policy);
        }
    }
    found
}

fn chart(r: &Results, title: &str, y: Axis, value: impl Fn(&Row) -> f64) -> LineChart {
    let mut chart = LineChart::new(title, Axis::linear("Offered", "requests/s"), y)
        .vertical(r.capacity_rps, "capacity");
    for policy in policies(r) {
        let rows = r.rows.iter().filter(|row| row.policy == policy);
        let points = rows.map(|row| (row.rate_rps, value(row)));
        chart = chart.series(Series::new(policy.name()).points(points));
    }
    chart
}

fn by_rate(r: &Results) -> Section {
    let share = || Axis::linear("Share of requests", "%");
    let charts: [Chart; 6] = [
        chart(r, "Goodput attainment", share(), |w| w.outcome.attainment.goodput * 100.0).into(),
        chart(r, "TTFT attainment", share(), |w| w.outcome.attainment.ttft * 100.0).into(),
        chart(r, "TBT attainment, by request's mean", share(), |w| {
            w.outcome.attainment.tbt_mean * 100.0
        })
        .into(),
        chart(r, "TTFT P99", Axis::log("TTFT", "s"), |w| w.outcome.ttft.p99).into(),
        chart(r, "TBT P99", Axis::log("TBT", "ms"), |w| w.outcome.tbt.p99 * 1e3).into(),
        chart(r, "Throughput", Axis::linear("Output", "tokens/s"), |w| {
            w.outcome.output_tokens_per_s
        })
        .into(),
    ];
    let mut section = simulated(Section::new("By rate"));
    for warning in text::unsteady(&r.rows) {
        section = section.callout(Level::Warning, "Not steady", warning);
    }
    section.side_by_side(charts).table(text::attainment(&r.rows)).table(text::latencies(&r.rows))
}

fn simulated(section: Section) -> Section {
    section.callout(Level::Info, "Simulated", "No figure here was measured on the device named.")
}

/// Memory and queue over time, at the highest rate.
fn over_time(r: &Results) -> Section {
    let time = || Axis::linear("Time", "s");
    let mut blocks = LineChart::new("KV blocks in use", time(), Axis::linear("Blocks", ""))
        .horizontal(f64::from(r.kv_blocks), "all of the device");
    let mut queue = LineChart::new("Requests that wait", time(), Axis::linear("Requests", ""));
    for row in &r.rows {
        let Some(series) = &row.over_time else { continue };
        let named = || Series::new(row.policy.name());
        blocks = blocks.series(named().points(series.points(&series.blocks_used)).steps());
        queue = queue.series(named().points(series.points(&series.waiting)).steps());
    }
    let title = format!("Over time, at {} requests/s", r.highest_rate_rps());
    Section::new(title).side_by_side([Chart::from(blocks), Chart::from(queue)])
}
