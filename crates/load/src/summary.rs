//! What a run comes to.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::throughput::{Steady, per_second};
use crate::{Distribution, Outcome, RequestRecord, Run, nan_as_null, unknown};

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

/// How many requests met one target, or all of them. A first token in time counts whatever became
/// of its stream; the other targets, and all together, are met by requests that were answered.
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

/// The figures of one run, of its measured requests. Figures that nothing was measured for are
/// not-a-number, `null` in JSON.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Summary {
    /// Measured requests.
    pub requests: u64,
    /// Requests that were answered in full.
    pub ok: u64,
    /// The others, by [`Outcome::kind`].
    pub failures: BTreeMap<String, u64>,
    /// The commonest message of each kind of failure, where there was one.
    #[serde(default)]
    pub failure_messages: BTreeMap<String, String>,
    /// Length of [`Run::window_s`].
    pub window_s: f64,
    /// From the start of the window to the end of the last measured request.
    pub span_s: f64,
    /// Arrivals in the window per second of it.
    #[serde(with = "nan_as_null")]
    pub offered_rps: f64,
    /// Answers per second that the server kept up with, to be read against `offered_rps`: answers
    /// that completed, whenever they began, in the window shifted by the median delay of an answer
    /// of their length. What arrives in a window leaves in one that is later by an answer, so a
    /// server that keeps up achieves the offered rate whatever its latency, and one that does not
    /// achieves its capacity.
    /// In a closed loop the window is not shifted and ends when the last request is sent; requests
    /// count by the share of their time in flight that lies in it.
    #[serde(with = "nan_as_null")]
    pub achieved_rps: f64,
    /// Output tokens per second that the server kept up with: tokens that came in the window
    /// shifted by the median TTFT and, for each further event, by the median time per event.
    /// Tokens of streams that the client cut count until then; results before version 2 have none.
    #[serde(with = "nan_as_null", default = "unknown")]
    pub achieved_tokens_per_s: f64,
    /// Measured requests answered per second of the span, which includes the drain after the last
    /// arrival (`request_throughput` of vLLM): longer answers make it lower.
    #[serde(with = "nan_as_null")]
    pub requests_per_s: f64,
    /// Prompt tokens of answered requests per second of the span; `None` where the server counts
    /// none.
    pub input_tokens_per_s: Option<f64>,
    /// Output tokens of answered requests per second of the span (`output_throughput` of vLLM).
    #[serde(with = "nan_as_null")]
    pub output_tokens_per_s: f64,
    /// Output tokens over all measured requests, failed ones too.
    pub output_tokens: u64,
    /// Answers whose length is not what was asked for exactly.
    pub wrong_lengths: u64,
    /// From the intended time: what a user who arrives at that time waits.
    pub from_intended: Latencies,
    /// From the time of sending: what remains without the client's lateness.
    pub from_sent: Latencies,
    /// Mean time per output token after the first, one value per answered request.
    pub tpot_ms: Distribution,
    /// Time between consecutive events with tokens, over all requests. A stream that was cut has a
    /// last value, from its last token to the cut: a lower bound ([`Distribution::censored`]).
    pub itl_ms: Distribution,
    /// Targets, and all of them together; empty without targets.
    pub attainment: Vec<Attainment>,
    /// Requests that met all targets, out of the ones that `offered_rps` counts, per second of the
    /// window; `None` without targets.
    pub goodput_rps: Option<f64>,
}

impl Summary {
    /// Of a run, against these targets.
    pub fn of(run: &Run, slo: &Slo) -> Summary {
        let measured: Vec<&RequestRecord> = run.measured().collect();
        let steady = Steady::of(run);
        let start_s = run.window_s.0;
        let last_end_s = measured.iter().map(|r| r.end_s).fold(start_s, f64::max);
        let span_s = last_end_s - start_s;
        let ok: Vec<&RequestRecord> = measured.iter().copied().filter(|r| is_ok(r)).collect();
        let targets = Target::all(slo);
        Summary {
            requests: measured.len() as u64,
            ok: ok.len() as u64,
            failures: failures(&measured),
            failure_messages: failure_messages(&measured),
            window_s: steady.seconds(),
            span_s,
            offered_rps: steady.arrived_rps(|_| true),
            achieved_rps: steady.achieved_rps(),
            achieved_tokens_per_s: steady.achieved_tokens_per_s(),
            requests_per_s: per_second(ok.len() as f64, span_s),
            input_tokens_per_s: input_tokens(&ok).map(|tokens| per_second(tokens, span_s)),
            output_tokens_per_s: per_second(
                ok.iter().map(|r| f64::from(r.output_tokens)).sum(),
                span_s,
            ),
            output_tokens: measured.iter().map(|r| u64::from(r.output_tokens)).sum(),
            wrong_lengths: wrong_lengths(run, &ok),
            from_intended: latencies(&measured, |r| r.intended_s),
            from_sent: latencies(&measured, |r| r.sent_s),
            tpot_ms: Distribution::of(ok.iter().filter_map(|r| r.tpot_s()).map(ms)),
            itl_ms: gaps(&measured),
            goodput_rps: (!targets.is_empty())
                .then(|| steady.arrived_rps(|r| targets.iter().all(|t| t.is_met_in_full(r)))),
            attainment: attainment(&measured, &targets),
        }
    }
}

fn ms(seconds: f64) -> f64 {
    seconds * 1e3
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

/// The commonest message of each kind; of equally common ones the first in the alphabet.
fn failure_messages(measured: &[&RequestRecord]) -> BTreeMap<String, String> {
    let mut counts: BTreeMap<(String, &str), u64> = BTreeMap::new();
    for record in measured.iter().filter(|r| !is_ok(r)) {
        if let Some(message) = record.message() {
            *counts.entry((record.outcome.kind(), message)).or_default() += 1;
        }
    }
    let mut commonest: BTreeMap<String, (u64, &str)> = BTreeMap::new();
    for ((kind, message), count) in counts {
        let best = commonest.entry(kind).or_insert((0, ""));
        if count > best.0 {
            *best = (count, message);
        }
    }
    commonest.into_iter().map(|(kind, (_, message))| (kind, message.to_owned())).collect()
}

/// `None` where the server counted the prompt of no request.
fn input_tokens(ok: &[&RequestRecord]) -> Option<f64> {
    let mut counts = ok.iter().filter_map(|r| r.prompt_tokens).map(f64::from).peekable();
    counts.peek()?;
    Some(counts.sum())
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

/// Gaps between events, and what streams that were cut waited for their next.
fn gaps(measured: &[&RequestRecord]) -> Distribution {
    let sample = || measured.iter().filter(|r| answered_or_cut(r));
    let waited = |r: &&&RequestRecord| {
        let last = r.token_times_s.last().filter(|_| is_cut(r))?;
        Some(r.end_s - last)
    };
    let bounds: Vec<f64> = sample().filter_map(|r| waited(&r)).collect();
    let all = sample().flat_map(|r| r.gaps_s()).chain(bounds.iter().copied());
    Distribution { censored: bounds.len() as u64, ..Distribution::of(all.map(ms)) }
}

/// One target: what it limits, and how much.
struct Target {
    name: &'static str,
    limit_ms: f64,
    latency_s: fn(&RequestRecord) -> Option<f64>,
    /// Met or missed before the answer ends.
    is_early: bool,
}

impl Target {
    fn all(slo: &Slo) -> Vec<Target> {
        let of = |name, limit: Option<f64>, is_early, latency_s| {
            Some(Target { name, limit_ms: limit?, latency_s, is_early })
        };
        let ttft = of("ttft", slo.ttft_ms, true, |r: &RequestRecord| r.ttft_s());
        // One token has no gap to be late in.
        let tpot = of("tpot", slo.tpot_ms, false, |r| Some(r.tpot_s().unwrap_or(0.0)));
        let e2e = of("e2e", slo.e2e_ms, false, |r| Some(r.e2e_s()));
        [ttft, tpot, e2e].into_iter().flatten().collect()
    }

    fn is_met(&self, record: &RequestRecord) -> bool {
        (self.is_early || is_ok(record))
            && (self.latency_s)(record).is_some_and(|s| ms(s) <= self.limit_ms)
    }

    /// By a request that was answered.
    fn is_met_in_full(&self, record: &RequestRecord) -> bool {
        is_ok(record) && self.is_met(record)
    }
}

fn attainment(measured: &[&RequestRecord], targets: &[Target]) -> Vec<Attainment> {
    if targets.is_empty() {
        return Vec::new();
    }
    let row = |name: &str, limit_ms, test: &dyn Fn(&RequestRecord) -> bool| {
        let met = measured.iter().filter(|r| test(r)).count() as u64;
        let share = met as f64 / measured.len().max(1) as f64;
        Attainment { target: name.into(), limit_ms, met, share }
    };
    let mut rows: Vec<Attainment> =
        targets.iter().map(|t| row(t.name, Some(t.limit_ms), &|r| t.is_met(r))).collect();
    rows.push(row("all", None, &|r| targets.iter().all(|t| t.is_met_in_full(r))));
    rows
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test_runs::{Stream, open_run};

    /// Ten answers, one a second: TTFT 100 ms, 5 tokens 10 ms apart.
    fn ten() -> Run {
        let stream = |i| Stream { intended_s: i as f64, ttft_s: 0.1, gap_s: 0.01, tokens: 5 };
        open_run(1.0, (0..10).map(stream).collect())
    }

    fn cut_after(record: &mut RequestRecord, tokens: usize, waited_s: f64) {
        record.token_times_s.truncate(tokens);
        record.first_token_s = record.token_times_s.first().copied();
        record.output_tokens = tokens as u32;
        record.end_s = record.token_times_s.last().unwrap_or(&record.sent_s) + waited_s;
        record.outcome = Outcome::Timeout;
    }

    #[test]
    fn a_stream_that_stalls_after_its_first_token_met_its_first_target() {
        let mut run = ten();
        cut_after(&mut run.requests[3], 2, 30.0);
        cut_after(&mut run.requests[4], 0, 30.0);
        let slo = Slo { ttft_ms: Some(150.0), tpot_ms: Some(15.0), e2e_ms: None };
        let s = Summary::of(&run, &slo);
        let met: Vec<u64> = s.attainment.iter().map(|a| a.met).collect();
        assert_eq!(met, [9, 8, 8], "{:?}", s.attainment);
        assert_eq!(s.goodput_rps, Some(0.8));
        // Eight whole streams with four gaps, one gap of the stalled one, and what it waited.
        assert_eq!((s.itl_ms.count, s.itl_ms.censored), (8 * 4 + 1 + 1, 1));
        assert!((s.itl_ms.max - 30e3).abs() < 1e-6, "{:?}", s.itl_ms);
        assert_eq!(s.from_intended.ttft_ms.censored, 1);
        assert_eq!(s.from_intended.e2e_ms.censored, 2);
    }

    #[test]
    fn what_the_server_does_not_count_is_unknown() {
        let mut run = ten();
        run.requests.iter_mut().for_each(|r| r.prompt_tokens = None);
        assert_eq!(Summary::of(&run, &Slo::default()).input_tokens_per_s, None);
        run.requests[0].prompt_tokens = Some(8);
        let s = Summary::of(&run, &Slo::default());
        assert!(s.input_tokens_per_s.is_some_and(|rate| rate > 0.0), "{s:?}");
    }

    #[test]
    fn a_run_of_failures_has_reasons_and_no_latencies() {
        let mut run = ten();
        for r in &mut run.requests {
            r.outcome = match r.index {
                0..4 => Outcome::HttpStatus(503),
                4..9 => Outcome::ErrorEvent("no room".into()),
                _ => Outcome::ErrorEvent("other".into()),
            };
            r.reason = (r.index < 4).then(|| "busy".to_owned());
        }
        let s = Summary::of(&run, &Slo::default());
        assert_eq!((s.failures["http_503"], s.failures["error_event"]), (4, 6));
        assert_eq!(s.failure_messages["http_503"], "busy");
        assert_eq!(s.failure_messages["error_event"], "no room");
        let json = serde_json::to_value(&s).expect("JSON");
        assert!(json["tpot_ms"]["p50"].is_null() && json["input_tokens_per_s"].is_null(), "{json}");
        let back: Summary = serde_json::from_value(json).expect("a summary");
        assert!(back.tpot_ms.p50.is_nan() && back.from_intended.e2e_ms.max.is_nan());
    }
}
