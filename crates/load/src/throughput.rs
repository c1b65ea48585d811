//! What came, and what a server kept up with: rates over the steady part of a run.
//!
//! A rate over the whole run, until the last answer, makes every slow answer look like lost
//! throughput: the longer the answers take, the longer nothing new comes in. The rates here do not
//! depend on latency as long as the server keeps up, and are its capacity when it does not.
//!
//! - **Open loop.** What comes in during the window goes out in the same window shifted by a
//!   delay: for the first token of a stream the median TTFT, for each further event the median time
//!   per event on top, for the end of an answer that of its last event. (One delay for all answers
//!   would mistake long ones for late ones.) A token counts at the time it came, however its
//!   request ended; only the tokens of refused and broken answers do not count. Where
//!   the drain cut requests, the window shifts no further than that.
//! - **Closed loop.** The window ends when the last request is sent: until then all places are
//!   taken, after it fewer and fewer. A request counts by the share of its time in flight that lies
//!   in the window, so that it does not matter whether answers end one by one or all at once.

use crate::{Arrival, Distribution, Outcome, RequestRecord, Run};

/// Times are sums of floats: a window's edge takes in what is this near.
const ROUNDING_S: f64 = 1e-6;

/// The window of a run, and how far its answers are behind its arrivals.
#[derive(Debug)]
pub(crate) struct Steady<'a> {
    run: &'a Run,
    start_s: f64,
    stop_s: f64,
    delays: Option<Delays>,
}

/// Of an open loop.
#[derive(Debug, Clone, Copy)]
struct Delays {
    /// From an intended time to the end of an answer without events.
    empty_s: f64,
    /// From an intended time to the first event with a token.
    first_event_s: f64,
    /// From one event to the next.
    per_event_s: f64,
    /// From the last event to the end of the answer.
    end_s: f64,
    /// The window shifts no further than this: then the drain cut what was in flight.
    most_s: f64,
}

impl Delays {
    fn of(run: &Run) -> Delays {
        let median = |values: &mut dyn Iterator<Item = f64>| {
            Some(Distribution::of(values).p50).filter(|p50| p50.is_finite()).unwrap_or(0.0)
        };
        let seen = || run.measured().filter(|r| tokens_count(r));
        let answered = || run.measured().filter(|r| r.outcome == Outcome::Ok);
        let cut = run.requests.iter().filter(|r| r.outcome == Outcome::Cut).map(|r| r.end_s);
        Delays {
            empty_s: median(
                &mut answered().filter(|r| r.token_times_s.is_empty()).map(RequestRecord::e2e_s),
            ),
            first_event_s: median(&mut seen().filter_map(RequestRecord::ttft_s)),
            per_event_s: median(&mut seen().filter_map(per_event_s)),
            end_s: median(&mut answered().filter_map(|r| Some(r.end_s - r.token_times_s.last()?))),
            most_s: (cut.fold(f64::INFINITY, f64::min) - run.window_s.1).max(0.0),
        }
    }

    /// Of the event with this index, from 0.
    fn of_event(&self, index: usize) -> f64 {
        (self.first_event_s + index as f64 * self.per_event_s).min(self.most_s)
    }

    /// Of an answer's end.
    fn of_answer(&self, record: &RequestRecord) -> f64 {
        match record.token_times_s.len() {
            0 => self.empty_s.min(self.most_s),
            events => (self.of_event(events - 1) + self.end_s).min(self.most_s),
        }
    }
}

impl<'a> Steady<'a> {
    pub(crate) fn of(run: &'a Run) -> Steady<'a> {
        let (start_s, stop_s) = run.window_s;
        let is_open = !matches!(run.spec.arrival, Arrival::Closed { .. });
        Steady { run, start_s, stop_s, delays: is_open.then(|| Delays::of(run)) }
    }

    /// Length of the window.
    pub(crate) fn seconds(&self) -> f64 {
        (self.stop_s - self.start_s).max(0.0)
    }

    /// Measured requests per second for which `counts` holds, by the time they came. In a closed
    /// loop: as [`Steady::achieved_rps`] counts them.
    pub(crate) fn arrived_rps(&self, counts: impl Fn(&RequestRecord) -> bool) -> f64 {
        let wanted = self.run.requests.iter().filter(|r| counts(r));
        let number: f64 = match self.delays {
            None => wanted.map(|r| self.share_in_window(r)).sum(),
            Some(_) => wanted.filter(|r| !r.warmup && self.is_inside(r.intended_s)).count() as f64,
        };
        self.per_second(number)
    }

    /// Answers per second.
    pub(crate) fn achieved_rps(&self) -> f64 {
        let answered = self.run.requests.iter().filter(|r| r.outcome == Outcome::Ok);
        let number: f64 = match self.delays {
            None => answered.map(|r| self.share_in_window(r)).sum(),
            Some(delays) => {
                answered.filter(|r| self.is_inside(r.end_s - delays.of_answer(r))).count() as f64
            }
        };
        self.per_second(number)
    }

    /// Output tokens per second.
    pub(crate) fn achieved_tokens_per_s(&self) -> f64 {
        let counted = self.run.requests.iter().filter(|r| tokens_count(r));
        self.per_second(counted.map(|r| self.tokens_in_window(r)).sum())
    }

    fn tokens_in_window(&self, record: &RequestRecord) -> f64 {
        let tokens = f64::from(record.output_tokens);
        let events = &record.token_times_s;
        if events.is_empty() {
            // Tokens that the usage alone tells of: they were there at the end.
            let delay_s = self.delays.map_or(0.0, |delays| delays.of_answer(record));
            return if self.is_inside(record.end_s - delay_s) { tokens } else { 0.0 };
        }
        let delay_s = |index| self.delays.map_or(0.0, |delays| delays.of_event(index));
        let inside = |(index, at_s): (usize, &f64)| self.is_inside(at_s - delay_s(index));
        let inside = events.iter().enumerate().filter(|event| inside(*event)).count();
        tokens * inside as f64 / events.len() as f64
    }

    fn is_inside(&self, at_s: f64) -> bool {
        at_s >= self.start_s - ROUNDING_S && at_s <= self.stop_s + ROUNDING_S
    }

    /// Of a request's time in flight, what lies in the window.
    fn share_in_window(&self, record: &RequestRecord) -> f64 {
        let (from_s, to_s) = (record.sent_s, record.end_s);
        if to_s <= from_s {
            return if self.is_inside(to_s) { 1.0 } else { 0.0 };
        }
        let inside_s = to_s.min(self.stop_s) - from_s.max(self.start_s);
        inside_s.max(0.0) / (to_s - from_s)
    }

    fn per_second(&self, number: f64) -> f64 {
        per_second(number, self.seconds())
    }
}

/// Not-a-number over no time.
pub(crate) fn per_second(number: f64, seconds: f64) -> f64 {
    // The sum of no numbers is -0.0, which would be printed with its sign.
    if seconds > 0.0 { (number + 0.0) / seconds } else { f64::NAN }
}

/// Answered, or cut off by the client: what came until then came.
fn tokens_count(record: &RequestRecord) -> bool {
    matches!(record.outcome, Outcome::Ok | Outcome::Timeout | Outcome::Cut)
}

fn per_event_s(record: &RequestRecord) -> Option<f64> {
    let (first, last) = (record.token_times_s.first()?, record.token_times_s.last()?);
    let gaps = record.token_times_s.len() - 1;
    (gaps > 0).then(|| (last - first) / gaps as f64)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use crate::test_runs::{Stream, open_run, run_of};
    use crate::{Arrival, Outcome, Run, Slo, Summary};

    fn figures(run: &Run) -> Summary {
        Summary::of(run, &Slo { ttft_ms: Some(1e9), ..Slo::default() })
    }

    /// Of a server with this capacity in tokens per second, which takes requests in order.
    fn saturated(rate_rps: f64, requests: usize, tokens: u32, tokens_per_s: f64) -> Run {
        let gap_s = 1.0 / tokens_per_s;
        let mut free_s = 0.0f64;
        let streams = (0..requests).map(|i| {
            let intended_s = i as f64 / rate_rps;
            let begin_s = free_s.max(intended_s);
            free_s = begin_s + f64::from(tokens) * gap_s;
            Stream { intended_s, ttft_s: begin_s + gap_s - intended_s, gap_s, tokens }
        });
        open_run(rate_rps, streams.collect::<Vec<_>>())
    }

    #[test]
    fn capacity_is_what_a_saturated_server_achieves() {
        let run = saturated(10.0, 600, 20, 100.0);
        let s = figures(&run);
        assert!((s.achieved_tokens_per_s / 100.0 - 1.0).abs() < 0.03, "{s:?}");
        assert!((s.achieved_rps / 5.0 - 1.0).abs() < 0.03, "{s:?}");
        assert_eq!(s.offered_rps.round(), 10.0);
    }

    /// The drain may cut long before the last answer: capacity is still what came by then.
    #[test]
    fn a_drain_that_cuts_hides_no_capacity() {
        let mut run = saturated(10.0, 600, 20, 50.0);
        let cut_s = run.window_s.1 + 1.0;
        for r in run.requests.iter_mut().filter(|r| r.end_s > cut_s) {
            r.outcome = Outcome::Cut;
            r.end_s = cut_s;
            r.token_times_s.retain(|t| *t <= cut_s);
            r.output_tokens = r.token_times_s.len() as u32;
            r.first_token_s = r.token_times_s.first().copied();
        }
        let s = figures(&run);
        assert!((s.achieved_tokens_per_s / 50.0 - 1.0).abs() < 0.03, "{s:?}");
        assert!((s.achieved_rps / 2.5 - 1.0).abs() < 0.03, "{s:?}");
    }

    /// Four places, answers of one second; the last request takes a hundred.
    #[test]
    fn the_tail_of_a_closed_loop_is_not_measured() {
        let times = |i: usize| ((i / 4) as f64, if i == 39 { 100.0 } else { 1.0 });
        let streams: Vec<Stream> = (0..40)
            .map(times)
            .map(|(intended_s, seconds)| Stream {
                intended_s,
                ttft_s: seconds / 10.0,
                gap_s: seconds / 10.0,
                tokens: 10,
            })
            .collect();
        let mut run = run_of(Arrival::Closed { concurrency: 4 }, &streams);
        run.window_s = (0.0, 9.0);
        let s = figures(&run);
        for rate in [s.achieved_rps, s.offered_rps] {
            assert!((rate - 4.0).abs() < 1e-9, "{s:?}");
        }
        assert!((s.achieved_tokens_per_s - 40.0).abs() < 0.5, "{s:?}");
        assert!(s.output_tokens_per_s < 5.0, "of the whole time, the drain too: {s:?}");
    }

    #[test]
    fn what_was_refused_or_broke_is_not_achieved() {
        let stream = |i| Stream { intended_s: i as f64, ttft_s: 0.1, gap_s: 0.01, tokens: 5 };
        let mut run = open_run(1.0, (0..20).map(stream).collect());
        for r in run.requests.iter_mut().filter(|r| r.index % 2 == 0) {
            r.outcome = Outcome::Broken("cut off".into());
        }
        let s = figures(&run);
        assert!((s.achieved_rps - 0.5).abs() < 1e-9, "{s:?}");
        assert!((s.achieved_tokens_per_s - 2.5).abs() < 1e-9, "{s:?}");
    }

    #[test]
    fn nothing_answered_is_zero_without_a_sign() {
        let stream = |i| Stream { intended_s: i as f64, ttft_s: 0.1, gap_s: 0.01, tokens: 5 };
        for arrival in [Arrival::Closed { concurrency: 1 }, open_run(1.0, vec![]).spec.arrival] {
            let mut run = run_of(arrival, &(0..20).map(stream).collect::<Vec<_>>());
            run.window_s = (0.0, 9.0);
            for r in &mut run.requests {
                r.outcome = Outcome::Broken("refused".into());
            }
            let s = figures(&run);
            for rate in [s.achieved_rps, s.achieved_tokens_per_s, s.output_tokens_per_s] {
                assert_eq!(format!("{rate:.1}"), "0.0");
            }
        }
    }

    proptest! {
        /// A server that keeps up retains all of its throughput, however long it takes.
        #[test]
        fn latency_is_not_lost_throughput(
            gaps_s in prop::collection::vec(0.001f64..0.5, 2..80),
            lengths in prop::collection::vec(1u32..60, 80),
            ttft_s in 0.001f64..2.0, gap_s in 0.0f64..0.1, times in 1.0f64..20.0,
        ) {
            let slowed = |by: f64| {
                let mut intended_s = 0.0;
                let stream = |(gap, tokens): (&f64, &u32)| {
                    intended_s += gap;
                    Stream { intended_s, ttft_s: ttft_s * by, gap_s: gap_s * by, tokens: *tokens }
                };
                let streams: Vec<Stream> = gaps_s.iter().zip(&lengths).map(stream).collect();
                figures(&open_run(1.0, streams))
            };
            let (quick, slow) = (slowed(1.0), slowed(times));
            let kept = slow.achieved_tokens_per_s / quick.achieved_tokens_per_s;
            prop_assert!((kept - 1.0).abs() < 1e-9, "tokens: {}", kept);
            let kept = slow.achieved_rps / quick.achieved_rps;
            prop_assert!((kept - 1.0).abs() < 1e-9, "requests: {}", kept);
        }

        /// None of the rates over the window exceeds what was offered in it.
        #[test]
        fn goodput_is_at_most_what_was_offered(
            gaps_s in prop::collection::vec(0.001f64..0.5, 1..60),
            ttfts_s in prop::collection::vec(0.001f64..3.0, 60),
        ) {
            let mut intended_s = 0.0;
            let stream = |(gap, ttft_s): (&f64, &f64)| {
                intended_s += gap;
                Stream { intended_s, ttft_s: *ttft_s, gap_s: 0.01, tokens: 3 }
            };
            let run = open_run(1.0, gaps_s.iter().zip(&ttfts_s).map(stream).collect());
            let s = Summary::of(&run, &Slo { ttft_ms: Some(1000.0), ..Slo::default() });
            let goodput = s.goodput_rps.expect("there is a target");
            prop_assert!(goodput <= s.offered_rps + 1e-9, "{:?}", s);
        }
    }
}
