//! What a run comes to.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::{Arrival, Distribution, Outcome, RequestRecord, Run};

/// Targets that a good request meets, in milliseconds from the intended time.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
pub struct Slo {
    /// Time to the first token.
    pub ttft_ms: Option<f64>,
    /// Mean time per output token after the first.
    pub tpot_ms: Option<f64>,
    /// Time to the end of the answer.
    pub e2e_ms: Option<f64>,
}

/// How many requests met one target, or all of them. Requests that failed meet none.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Attainment {
    /// `ttft`, `tpot`, `e2e`, or `all`.
    pub target: String,
    /// The limit; `None` for `all`.
    pub limit_ms: Option<f64>,
    /// Requests that met it.
    pub met: u64,
    /// Their share of the measured requests.
    pub share: f64,
}

/// Latencies that depend on where the clock starts. Requests that were cut while they waited are
/// in the sample with the time that they had waited, a lower bound ([`Distribution::censored`]);
/// refused and broken ones are not.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
pub struct Latencies {
    /// To the first token.
    pub ttft_ms: Distribution,
    /// To the end of the answer.
    pub e2e_ms: Distribution,
}

/// The figures of one run, of its measured requests.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Summary {
    /// Measured requests.
    pub requests: u64,
    /// Those that were answered in full.
    pub ok: u64,
    /// The others, by [`Outcome::kind`].
    pub failures: BTreeMap<String, u64>,
    /// Length of [`Run::window_s`].
    pub window_s: f64,
    /// From the start of the window to the end of the last measured request.
    pub span_s: f64,
    /// Arrivals in the window per second of it.
    pub offered_rps: f64,
    /// Answers per second that the server kept up with, to be read against `offered_rps`: those
    /// that were completed, whenever they began, in the window moved on by the median E2E latency.
    /// What comes in a window goes out in one that is later by an answer, so that a server that
    /// keeps up achieves what is offered whatever its latency, and one that does not, its capacity.
    /// In a closed loop the window is not moved.
    pub achieved_rps: f64,
    /// Measured requests answered per second of the span (`request_throughput` of vLLM).
    pub requests_per_s: f64,
    /// Prompt tokens of answered requests per second of the span; 0 where the server counts none.
    pub input_tokens_per_s: f64,
    /// Output tokens of answered requests per second of the span.
    pub output_tokens_per_s: f64,
    /// Output tokens over all measured requests, failed ones too.
    pub output_tokens: u64,
    /// Answers whose length is not what was asked for exactly.
    pub wrong_lengths: u64,
    /// From the intended time: what a user who comes at that time waits.
    pub from_intended: Latencies,
    /// From the time of sending: what remains without the client's lateness.
    pub from_sent: Latencies,
    /// Mean time per output token after the first, one value per request.
    pub tpot_ms: Distribution,
    /// Time between consecutive events with tokens, over all requests.
    pub itl_ms: Distribution,
    /// Targets, and all of them together; empty without targets.
    pub attainment: Vec<Attainment>,
    /// Requests that met all targets, per second of the span; `None` without targets.
    pub goodput_rps: Option<f64>,
}

impl Summary {
    /// Of a run, against these targets.
    pub fn of(run: &Run, slo: &Slo) -> Summary {
        let measured: Vec<&RequestRecord> = run.measured().collect();
        let (start_s, stop_s) = run.window_s;
        let window_s = (stop_s - start_s).max(0.0);
        let last_end_s = measured.iter().map(|r| r.end_s).fold(start_s, f64::max);
        let span_s = last_end_s - start_s;
        let ok: Vec<&RequestRecord> = measured.iter().copied().filter(|r| is_ok(r)).collect();
        let in_window = |t: f64| t >= start_s && t <= stop_s;
        let delay_s = delay_s(run, &ok);
        let completed = |r: &&RequestRecord| is_ok(r) && in_window(r.end_s - delay_s);
        let completed = run.requests.iter().filter(completed).count();
        let arrived = measured.iter().filter(|r| in_window(r.intended_s)).count();
        let attainment = attainment(&measured, slo);
        let good = attainment.last().map(|all| all.met);
        Summary {
            requests: measured.len() as u64,
            ok: ok.len() as u64,
            failures: failures(&measured),
            window_s,
            span_s,
            offered_rps: per_second(arrived as f64, window_s),
            achieved_rps: per_second(completed as f64, window_s),
            requests_per_s: per_second(ok.len() as f64, span_s),
            input_tokens_per_s: per_second(
                ok.iter().map(|r| f64::from(r.prompt_tokens.unwrap_or(0))).sum(),
                span_s,
            ),
            output_tokens_per_s: per_second(
                ok.iter().map(|r| f64::from(r.output_tokens)).sum(),
                span_s,
            ),
            output_tokens: measured.iter().map(|r| u64::from(r.output_tokens)).sum(),
            wrong_lengths: wrong_lengths(run, &ok),
            from_intended: latencies(&measured, |r| r.intended_s),
            from_sent: latencies(&measured, |r| r.sent_s),
            tpot_ms: Distribution::of(ok.iter().filter_map(|r| r.tpot_s()).map(ms)),
            itl_ms: Distribution::of(
                measured.iter().filter(|r| answered_or_cut(r)).flat_map(|r| r.gaps_s()).map(ms),
            ),
            goodput_rps: good.map(|met| per_second(met as f64, span_s)),
            attainment,
        }
    }
}

/// From the arrivals of an open loop to their answers: the median.
fn delay_s(run: &Run, ok: &[&RequestRecord]) -> f64 {
    match run.spec.arrival {
        Arrival::Closed { .. } => 0.0,
        _ => Distribution::of(ok.iter().map(|r| r.e2e_s())).p50,
    }
}

fn ms(seconds: f64) -> f64 {
    seconds * 1e3
}

fn per_second(count: f64, seconds: f64) -> f64 {
    if seconds > 0.0 { count / seconds } else { 0.0 }
}

fn is_ok(record: &RequestRecord) -> bool {
    record.outcome == Outcome::Ok
}

/// Cut while it waited: what it waited is a lower bound of what it would have.
fn is_cut(record: &RequestRecord) -> bool {
    matches!(record.outcome, Outcome::Timeout | Outcome::Cut)
}

fn answered_or_cut(record: &RequestRecord) -> bool {
    is_ok(record) || is_cut(record)
}

fn failures(measured: &[&RequestRecord]) -> BTreeMap<String, u64> {
    let mut kinds = BTreeMap::new();
    for record in measured.iter().filter(|r| !is_ok(r)) {
        *kinds.entry(record.outcome.kind()).or_default() += 1;
    }
    kinds
}

fn wrong_lengths(run: &Run, ok: &[&RequestRecord]) -> u64 {
    let exact = run.spec.workload.exact;
    let wrong = |r: &&&RequestRecord| exact && r.output_tokens != r.requested_tokens;
    ok.iter().filter(wrong).count() as u64
}

fn latencies(measured: &[&RequestRecord], from: impl Fn(&RequestRecord) -> f64) -> Latencies {
    let sample = || measured.iter().filter(|r| answered_or_cut(r));
    // An answer without a token has no first one; a request that was cut without has a bound.
    let first = |r: &RequestRecord| r.first_token_s.or(is_cut(r).then_some(r.end_s));
    let mut ttft_ms = Distribution::of(sample().filter_map(|r| first(r).map(|t| ms(t - from(r)))));
    let mut e2e_ms = Distribution::of(sample().map(|r| ms(r.end_s - from(r))));
    let cut = || sample().filter(|r| is_cut(r));
    ttft_ms.censored = cut().filter(|r| r.first_token_s.is_none()).count() as u64;
    e2e_ms.censored = cut().count() as u64;
    Latencies { ttft_ms, e2e_ms }
}

fn attainment(measured: &[&RequestRecord], slo: &Slo) -> Vec<Attainment> {
    type Latency = fn(&RequestRecord) -> Option<f64>;
    let targets: Vec<(&str, f64, Latency)> = [
        ("ttft", slo.ttft_ms, (|r| r.ttft_s()) as Latency),
        // One token has no gap to be late in.
        ("tpot", slo.tpot_ms, |r| Some(r.tpot_s().unwrap_or(0.0))),
        ("e2e", slo.e2e_ms, |r| Some(r.e2e_s())),
    ]
    .into_iter()
    .filter_map(|(name, limit, latency)| Some((name, limit?, latency)))
    .collect();
    if targets.is_empty() {
        return Vec::new();
    }
    let meets = |r: &RequestRecord, limit: f64, latency: Latency| {
        is_ok(r) && latency(r).is_some_and(|s| ms(s) <= limit)
    };
    let count =
        |test: &dyn Fn(&RequestRecord) -> bool| measured.iter().filter(|r| test(r)).count() as u64;
    let share = |met: u64| per_second(met as f64, measured.len() as f64);
    let mut rows: Vec<Attainment> = targets
        .iter()
        .map(|&(name, limit, latency)| {
            let met = count(&|r| meets(r, limit, latency));
            Attainment { target: name.into(), limit_ms: Some(limit), met, share: share(met) }
        })
        .collect();
    let met = count(&|r| targets.iter().all(|&(_, limit, latency)| meets(r, limit, latency)));
    rows.push(Attainment { target: "all".into(), limit_ms: None, met, share: share(met) });
    rows
}
