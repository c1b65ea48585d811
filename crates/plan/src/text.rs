//! What the terminal shows.

use saccade_device::sim::{devices, models};
use saccade_report::{Best, Cell, Table};

use crate::args::Policy;
use crate::fleet::{Fleet, MAX_DEVICES, OneLess, Shortfall};
use crate::outcome::Outcome;
use crate::results::{Results, Row};
use crate::workload::LengthSource;

/// Devices and models that have names.
pub(crate) fn names() -> String {
    let mut device_table = Table::new("Devices")
        .column("Device")
        .column("Memory GB")
        .column("TB/s")
        .column("TFLOPS bf16")
        .column("Link GB/s")
        .column("both ways GB/s")
        .column("Source");
    for d in devices() {
        device_table.push([
            d.name.into(),
            Cell::Number(d.hbm_bytes / 1e9, 0),
            Cell::Number(d.hbm_bytes_per_s / 1e12, 2),
            Cell::Number(d.flops_per_s / 1e12, 0),
            Cell::Number(d.link_bytes_per_s / 1e9, 0),
            Cell::Number(d.link_both_bytes_per_s / 1e9, 0),
            d.source.into(),
        ]);
    }
    let mut model_table = Table::new("Models")
        .column("Model")
        .column("Parameters, billions")
        .column("KV per token in bf16, KiB");
    for m in models() {
        model_table.push([
            m.name.into(),
            Cell::Number(m.shape.params() / 1e9, 1),
            Cell::Number(m.shape.kv_token_bytes(2.0) / 1024.0, 0),
        ]);
    }
    format!("{}\n{}", device_table.to_text(), model_table.to_text())
}

/// The lengths in one phrase.
pub(crate) fn lengths(source: &LengthSource) -> String {
    match source {
        LengthSource::File { file } => format!("lengths of {file}"),
        LengthSource::Trace { trace, requests, rate_rps, mean_input, mean_output } => format!(
            "trace {trace}: {requests} requests at {rate_rps:.2}/s, {mean_input:.0} tokens in and \
             {mean_output:.0} out on average"
        ),
        LengthSource::Drawn { input, output } => {
            let phrase = |l: &saccade_load::Lengths| match l {
                saccade_load::Lengths::LogNormal { mean, std, .. } => {
                    format!("{mean:.0} ± {std:.0}")
                }
                other => format!("{other:?}"),
            };
            format!("log-normal lengths, {} tokens in, {} out", phrase(input), phrase(output))
        }
    }
}

/// For how long requests arrive, in one phrase.
pub(crate) fn arrivals(r: &Results) -> String {
    match (r.duration_s, r.burstiness) {
        (Some(seconds), Some(shape)) => format!("{seconds} s of arrivals (burstiness {shape})"),
        (Some(seconds), None) => format!("the first {seconds} s of arrivals"),
        (None, _) => "all arrivals".into(),
    }
}

fn head(r: &Results) -> String {
    format!(
        "SIMULATED: {} on {}, {} KV blocks of {:.2} MiB ({} tokens), {} host blocks, {} copies, \
         scheduler on the {}\n{}, {}, seed {}; targets: TTFT {} s, mean TBT {} ms; {} slots\n{}\n",
        r.model,
        r.device,
        r.kv_blocks,
        r.block_mib,
        r.kv_tokens,
        r.host_blocks,
        r.copies,
        r.scheduler,
        lengths(&r.workload),
        arrivals(r),
        r.seed,
        r.slo.ttft_s,
        r.slo.tbt_s * 1e3,
        r.slots,
        capacity(r),
    )
}

/// The capacity in one phrase.
pub(crate) fn capacity(r: &Results) -> String {
    let c = &r.capacity;
    let capacity = format!("capacity {:.1} requests/s per device", c.rps);
    match c.num_seqs {
        Some(_) if c.rps == c.flood_rps => format!("{capacity}, with as many at once as fit"),
        Some(n) => format!(
            "{capacity}: up to {n} at once keep the TBT target ({:.1} requests/s with as many as \
             fit)",
            c.flood_rps
        ),
        None => format!("{capacity}, and not even one request at once keeps the TBT target"),
    }
}

fn percent(share: f64) -> Cell {
    Cell::Number(share * 100.0, 1)
}

/// Attainment and its parts, per rate and policy.
pub(crate) fn attainment(rows: &[Row]) -> Table {
    let mut table = Table::new("Attainment, %")
        .column("Rate")
        .column("Policy")
        .column("Goodput")
        .column("TTFT")
        .column("TBT token")
        .column("TBT mean")
        .column("TBT P99")
        .column("Good/s")
        .column("Tokens/s")
        .column("KV mean")
        .column("Refused");
    for row in rows {
        let (o, a) = (&row.outcome, row.outcome.attainment);
        table.push([
            Cell::Number(row.rate_rps, 1),
            row.policy.name().into(),
            percent(a.goodput),
            percent(a.ttft),
            percent(a.tbt_per_token),
            percent(a.tbt_mean),
            percent(a.tbt_p99),
            Cell::Number(o.goodput_per_s, 2),
            Cell::Number(o.output_tokens_per_s, 0),
            percent(o.kv_mean),
            percent(o.refused as f64 / o.requests.max(1) as f64),
        ]);
    }
    table.note(
        "Goodput: requests that met TTFT and mean TBT. TBT token: of all gaps; mean and P99: \
         requests whose mean gap, or 99th percentile of gaps, met it. Tokens/s: while requests \
         arrived. Refused: no slot was free. Simulated.",
    )
}

/// Latencies and what memory pressure did.
pub(crate) fn latencies(rows: &[Row]) -> Table {
    let mut table = Table::new("Latencies")
        .column("Rate")
        .column("Policy")
        .column("TTFT P50 s")
        .column("P99 s")
        .column("max s")
        .column("TBT P50 ms")
        .column("P99 ms")
        .column("max ms")
        .column("last end s")
        .column("step ms")
        .column("queue middle")
        .column("end")
        .column("preempted")
        .column("rotated")
        .column("speed-up");
    for row in rows {
        let o = &row.outcome;
        table.push([
            Cell::Number(row.rate_rps, 1),
            row.policy.name().into(),
            Cell::Number(o.ttft.p50, 2),
            Cell::Number(o.ttft.p99, 2),
            Cell::Number(o.ttft.max, 2),
            Cell::Number(o.tbt.p50 * 1e3, 1),
            Cell::Number(o.tbt.p99 * 1e3, 1),
            Cell::Number(o.tbt.max * 1e3, 0),
            Cell::Number(o.e2e.max, 1),
            Cell::Number(o.step_s * 1e3, 1),
            Cell::Number(o.queue.middle, 0),
            Cell::Number(o.queue.end, 0),
            Cell::from(o.preemptions),
            Cell::from(o.rotations),
            Cell::Number(row.speedup, 0),
        ]);
    }
    table.note(
        "Queue: mean number of requests that wait or are rotated out, in the middle fifth and in \
         the last fifth of the arrivals. Preempted: computed again. Speed-up: virtual seconds per \
         second of CPU time here. Simulated.",
    )
}

/// What prompts took from the cache, in runs in which one was looked up.
pub(crate) fn prefixes<'a>(
    runs: impl Iterator<Item = (f64, Policy, &'a Outcome)>,
) -> Option<Table> {
    let mut table = Table::new("Prompt tokens")
        .column("Rate")
        .column("Policy")
        .column("Looked up")
        .column("Cached")
        .column("Cached %")
        .column("Computed")
        .column("Blocks up");
    let mut found = false;
    for (rate_rps, policy, o) in runs {
        found |= o.prefix_query_tokens != 0;
        table.push([
            Cell::Number(rate_rps, 1),
            policy.name().into(),
            Cell::from(o.prefix_query_tokens),
            Cell::from(o.prefix_hit_tokens),
            percent(o.prefix_hit_rate),
            Cell::from(o.prefill_tokens),
            Cell::from(o.blocks_up),
        ]);
    }
    let table = table.note(
        "Looked up: of the prompts that were admitted. Cached: of these, tokens whose KV was \
         there. Computed: all others, and what was computed again. Blocks up: copied from host \
         memory, for prefixes and for requests that were rotated out. Simulated.",
    );
    found.then_some(table)
}

/// [`prefixes`] of everything in a result.
pub(crate) fn all_prefixes(r: &Results) -> Option<Table> {
    let rows = r.rows.iter().map(|row| (row.rate_rps, row.policy, &row.outcome));
    prefixes(rows.chain(r.fleets.iter().map(|f| (f.rate_rps, f.policy, &f.outcome))))
}

/// What to know of runs whose queue grows, a sentence for each.
pub(crate) fn unsteady(rows: &[Row]) -> Vec<String> {
    let grows = rows.iter().filter(|row| row.outcome.queue.grows);
    grows
        .map(|row| {
            let queue = row.outcome.queue;
            format!(
                "{} at {:.1} requests/s: {:.0} requests waited in the middle of the arrivals, \
                 {:.0} at their end. The queue grows; a longer run has worse figures.",
                row.policy.name(),
                row.rate_rps,
                queue.middle,
                queue.end
            )
        })
        .collect()
}

/// How many devices each load needs.
pub(crate) fn fleets(fleets: &[Fleet]) -> Table {
    let mut table = Table::new("Devices needed")
        .column("Rate")
        .column("Policy")
        .column_with_best("Devices", Best::None)
        .column("Capacity/s")
        .column("Goodput %")
        .column("TTFT P99 s")
        .column("TBT P99 ms")
        .column("one less %")
        .column("fails by");
    for f in fleets {
        table.push([
            Cell::Number(f.rate_rps, 1),
            f.policy.name().into(),
            f.devices.map_or_else(|| format!("more than {MAX_DEVICES}").into(), Cell::from),
            Cell::Number(f.capacity_rps, 1),
            percent(f.outcome.attainment.goodput),
            Cell::Number(f.outcome.ttft.p99, 2),
            Cell::Number(f.outcome.tbt.p99 * 1e3, 1),
            f.one_less.map_or(Cell::Missing, |less| percent(less.goodput)),
            f.one_less.map_or(Cell::Missing, |less| shortfall(&less).into()),
        ]);
    }
    table.note(
        "The fewest devices whose capacity is at least the rate, whose queue does not grow, and \
         that reach the target (--target). One less: goodput with one device less, and the first \
         of these that it fails by. Each device gets an even share of the requests. Simulated.",
    )
}

fn shortfall(less: &OneLess) -> String {
    match less.fails_by {
        Shortfall::Capacity => format!("capacity: {:.1}/s", less.capacity_rps),
        Shortfall::Queue => "a growing queue".into(),
        Shortfall::Goodput => "goodput".into(),
    }
}

/// All tables.
pub(crate) fn summary(r: &Results) -> String {
    let mut text = head(r);
    if !r.rows.is_empty() {
        text += &format!("\n{}\n{}", attainment(&r.rows).to_text(), latencies(&r.rows).to_text());
        let warnings = unsteady(&r.rows);
        text += if warnings.is_empty() { "" } else { "\n" };
        for sentence in warnings {
            text += &format!("NOT STEADY: {sentence}\n");
        }
    }
    if !r.fleets.is_empty() {
        text += &format!("\n{}", fleets(&r.fleets).to_text());
    }
    if let Some(table) = all_prefixes(r) {
        text += &format!("\n{}", table.to_text());
    }
    text
}
