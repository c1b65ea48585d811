//! The figures of a run, from the time of each token.

use saccade_device::sim::{NEVER_NS, SimRequest, SimRun, SimSample};
use saccade_load::Distribution;
use serde::{Deserialize, Serialize};

/// Parts of the time of arrivals over which the queue is averaged: around its middle, and its end.
const MIDDLE: (f64, f64) = (0.4, 0.6);
const END: (f64, f64) = (0.8, 1.0);
/// A queue grows if it gained more than this many standard deviations of the number of requests
/// that arrive between the two parts. A queue in a steady state gains far less: it is pulled back.
const GROWTH_DEVIATIONS: f64 = 2.0;

/// Targets of a run, seconds.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub(crate) struct Slo {
    pub ttft_s: f64,
    pub tbt_s: f64,
}

/// Shares of what met its target; requests that did not end meet none. Refused ones have no gaps:
/// TBT is counted over the others.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
pub(crate) struct Attainment {
    /// Requests, by their time to first token.
    pub ttft: f64,
    /// Gaps between tokens, all requests together.
    pub tbt_per_token: f64,
    /// Requests, by the mean of their gaps.
    pub tbt_mean: f64,
    /// Requests, by the 99th percentile of their gaps.
    pub tbt_p99: f64,
    /// Requests that met TTFT and mean TBT.
    pub goodput: f64,
}

/// How requests arrive.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Arrivals {
    /// For how long, seconds.
    pub seconds: f64,
    /// Shape of the gamma-distributed gaps: the variance of a count is its mean divided by this.
    pub burstiness: f64,
}

/// Requests that wait, on all devices together.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
pub(crate) struct Queue {
    /// Mean around the middle of the arrivals.
    pub middle: f64,
    /// Mean over their last fifth.
    pub end: f64,
    /// The end is longer than the middle, by more than random arrivals explain: the run is not
    /// steady, and a longer one has worse figures.
    pub grows: bool,
}

impl Queue {
    fn new(middle: f64, end: f64, requests: usize, burstiness: f64) -> Queue {
        let centre = |part: (f64, f64)| (part.0 + part.1) / 2.0;
        let between = requests as f64 * (centre(END) - centre(MIDDLE));
        let grows = end - middle > GROWTH_DEVIATIONS * (between / burstiness).sqrt();
        Queue { middle, end, grows }
    }
}

/// Requests that were in no step: without a seat, or rotated out with one.
pub(crate) fn waiting(sample: &SimSample) -> u32 {
    sample.num_waiting + sample.num_running.saturating_sub(sample.step_seqs)
}

/// Mean number of waiting requests in a part of the time of arrivals.
fn mean_waiting(samples: &[SimSample], part: (f64, f64), until_s: f64) -> f64 {
    let inside = |s: &&SimSample| {
        let share = s.at_ns as f64 * 1e-9 / until_s;
        (part.0..=part.1).contains(&share)
    };
    let (mut sum, mut count) = (0.0, 0usize);
    for sample in samples.iter().filter(inside) {
        sum += f64::from(waiting(sample));
        count += 1;
    }
    sum / count.max(1) as f64
}

/// One run in figures.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct Outcome {
    pub requests: usize,
    /// Seconds for which they arrived.
    pub arrivals_s: f64,
    pub unfinished: u64,
    /// Requests that found no free slot.
    pub refused: u64,
    pub queue: Queue,
    pub attainment: Attainment,
    /// Seconds.
    pub ttft: Distribution,
    /// Gaps between tokens, seconds.
    pub tbt: Distribution,
    /// Mean gap of each request, seconds.
    pub tpot: Distribution,
    /// Seconds from arrival to the last token.
    pub e2e: Distribution,
    /// Tokens per second while requests arrived.
    pub output_tokens_per_s: f64,
    /// Requests that ended per second while requests arrived.
    pub requests_per_s: f64,
    /// Requests that met both targets, per second of arrivals.
    pub goodput_per_s: f64,
    /// Share of the KV blocks in use, over time.
    pub kv_mean: f64,
    pub kv_max: f64,
    /// Host blocks in use at most.
    pub host_blocks_max: u32,
    pub preemptions: u64,
    pub recomputed_tokens: u64,
    pub rotations: u64,
    pub blocks_down: u64,
    pub blocks_up: u64,
    /// Tokens of prompts that were looked up when their requests were admitted.
    pub prefix_query_tokens: u64,
    /// Of these, tokens that were not computed: their KV was there.
    pub prefix_hit_tokens: u64,
    /// Hits per query; 0 without queries.
    pub prefix_hit_rate: f64,
    /// Prompt tokens computed, and of requests that lost their KV the tokens computed again.
    pub prefill_tokens: u64,
    pub steps: u64,
    /// Mean seconds of a step.
    pub step_s: f64,
    /// Virtual seconds of the run.
    pub simulated_s: f64,
}

/// Sums over the requests of one or several devices.
#[derive(Debug, Default)]
pub(crate) struct Tally {
    ttft: Vec<f64>,
    /// Nanoseconds: they are many, and integers sort faster.
    gaps: Vec<u64>,
    tpot: Vec<f64>,
    e2e: Vec<f64>,
    requests: usize,
    good: usize,
    mean_ok: usize,
    p99_ok: usize,
    unfinished: u64,
    refused: u64,
    tokens_in_time: usize,
    ended_in_time: usize,
    occupancy: Vec<f64>,
    /// See [`Queue`].
    waiting_middle: f64,
    waiting_end: f64,
    results: Vec<saccade_device::sim::SimResult>,
}

impl Tally {
    /// Adds a device's run. `until_s`: when arrivals ended.
    pub(crate) fn add(
        &mut self,
        requests: &[SimRequest],
        run: &SimRun,
        num_blocks: u32,
        slo: Slo,
        until_s: f64,
    ) {
        let mut from = 0;
        for request in requests {
            let to = from + request.output_len as usize;
            self.add_request(request, &run.token_ns[from..to], slo, until_s);
            from = to;
        }
        let share = |blocks: u32| f64::from(blocks) / f64::from(num_blocks);
        let within = |s: &&SimSample| s.at_ns as f64 * 1e-9 <= until_s;
        self.occupancy.extend(run.samples.iter().filter(within).map(|s| share(s.blocks_used)));
        self.waiting_middle += mean_waiting(&run.samples, MIDDLE, until_s);
        self.waiting_end += mean_waiting(&run.samples, END, until_s);
        self.unfinished += run.result.num_unfinished;
        self.refused += run.result.num_refused;
        self.results.push(run.result);
    }

    fn add_request(&mut self, request: &SimRequest, token_ns: &[u64], slo: Slo, until_s: f64) {
        self.requests += 1;
        let came = token_ns.partition_point(|t| *t != NEVER_NS);
        let in_time = (until_s * 1e9) as u64;
        self.tokens_in_time += token_ns.partition_point(|t| *t <= in_time);
        let (Some(&first), Some(&last)) = (token_ns.first(), token_ns.last()) else { return };
        if came == 0 {
            return;
        }
        let ttft = (first - request.arrival_ns) as f64 * 1e-9;
        self.ttft.push(ttft);
        let start = self.gaps.len();
        self.gaps.extend(token_ns[..came].windows(2).map(|t| t[1] - t[0]));
        if came < token_ns.len() {
            return;
        }
        self.e2e.push((last - request.arrival_ns) as f64 * 1e-9);
        self.ended_in_time += usize::from(last <= in_time);
        let mean = mean_gap_s(token_ns);
        self.tpot.push(mean);
        self.mean_ok += usize::from(mean <= slo.tbt_s);
        self.p99_ok += usize::from(p99(&self.gaps[start..]) <= ns(slo.tbt_s));
        self.good += usize::from(mean <= slo.tbt_s && ttft <= slo.ttft_s);
    }

    /// The figures.
    pub(crate) fn outcome(mut self, slo: Slo, arrivals: Arrivals) -> Outcome {
        let Arrivals { seconds: arrivals_s, burstiness } = arrivals;
        let queue = Queue::new(self.waiting_middle, self.waiting_end, self.requests, burstiness);
        let share_of = |count: usize, n: usize| count as f64 / n.max(1) as f64;
        let share = |count: usize| share_of(count, self.requests);
        let taken = self.requests - self.refused as usize;
        let in_time = |v: &[f64], bound: f64| v.iter().filter(|x| **x <= bound).count();
        let attainment = Attainment {
            ttft: share(in_time(&self.ttft, slo.ttft_s)),
            tbt_per_token: self.gaps.iter().filter(|g| **g <= ns(slo.tbt_s)).count() as f64
                / self.gaps.len().max(1) as f64,
            tbt_mean: share_of(self.mean_ok, taken),
            tbt_p99: share_of(self.p99_ok, taken),
            goodput: share(self.good),
        };
        let sum = |f: fn(&saccade_device::sim::SimResult) -> u64| -> u64 {
            self.results.iter().map(f).sum()
        };
        let steps = sum(|r| r.steps);
        let (queries, hits) = (sum(|r| r.prefix_query_tokens), sum(|r| r.prefix_hit_tokens));
        let host_blocks = self.results.iter().map(|r| r.host_blocks_used_max).max().unwrap_or(0);
        let end = self.results.iter().map(|r| r.end_ns).max().unwrap_or(0);
        Outcome {
            requests: self.requests,
            arrivals_s,
            unfinished: self.unfinished,
            refused: self.refused,
            queue,
            attainment,
            ttft: distribution(&mut self.ttft),
            tbt: distribution_of_ns(&mut self.gaps),
            tpot: distribution(&mut self.tpot),
            e2e: distribution(&mut self.e2e),
            output_tokens_per_s: self.tokens_in_time as f64 / arrivals_s,
            requests_per_s: self.ended_in_time as f64 / arrivals_s,
            goodput_per_s: self.good as f64 / arrivals_s,
            kv_mean: self.occupancy.iter().sum::<f64>() / self.occupancy.len().max(1) as f64,
            kv_max: self.occupancy.iter().copied().fold(0.0, f64::max),
            host_blocks_max: host_blocks,
            preemptions: sum(|r| r.preemptions),
            recomputed_tokens: sum(|r| r.recomputed_tokens),
            rotations: sum(|r| r.rotations),
            blocks_down: sum(|r| r.blocks_down),
            blocks_up: sum(|r| r.blocks_up),
            prefix_query_tokens: queries,
            prefix_hit_tokens: hits,
            prefix_hit_rate: hits as f64 / queries.max(1) as f64,
            prefill_tokens: sum(|r| r.prefill_tokens),
            steps,
            step_s: sum(|r| r.busy_ns) as f64 * 1e-9 / steps.max(1) as f64,
            simulated_s: end as f64 * 1e-9,
        }
    }
}

/// Of a request that ended; 0 if it yielded one token.
pub(crate) fn mean_gap_s(token_ns: &[u64]) -> f64 {
    match token_ns {
        [first, .., last] => (last - first) as f64 * 1e-9 / (token_ns.len() - 1) as f64,
        _ => 0.0,
    }
}

/// Sorted without regard to the order of equals: gaps are many.
fn distribution(values: &mut [f64]) -> Distribution {
    values.sort_unstable_by(f64::total_cmp);
    Distribution::of_sorted(values)
}

fn distribution_of_ns(values: &mut [u64]) -> Distribution {
    values.sort_unstable();
    let seconds: Vec<f64> = values.iter().map(|ns| *ns as f64 * 1e-9).collect();
    Distribution::of_sorted(&seconds)
}

fn ns(seconds: f64) -> u64 {
    (seconds * 1e9).round() as u64
}

/// By nearest rank; 0 without gaps.
fn p99(gaps: &[u64]) -> u64 {
    if gaps.is_empty() {
        return 0;
    }
    let rank = (gaps.len() * 99).div_ceil(100);
    let mut copy = gaps.to_vec();
    *copy.select_nth_unstable(rank - 1).1
}

#[cfg(test)]
mod tests {
    use super::*;
    use saccade_device::sim::SimResult;

    const SLO: Slo = Slo { ttft_s: 1.0, tbt_s: 0.1 };
    const ARRIVALS: Arrivals = Arrivals { seconds: 10.0, burstiness: 1.0 };

    fn outcome(requests: &[(u64, Vec<u64>)]) -> Outcome {
        let asked: Vec<SimRequest> = requests
            .iter()
            .map(|(arrival_ms, times)| SimRequest {
                arrival_ns: arrival_ms * 1_000_000,
                prompt_len: 1,
                output_len: times.len() as u32,
                ..SimRequest::default()
            })
            .collect();
        let all = requests.iter().flat_map(|(_, times)| times.iter());
        let token_ns = all.map(|ms| if *ms == u64::MAX { NEVER_NS } else { ms * 1_000_000 });
        let run =
            SimRun { token_ns: token_ns.collect(), samples: vec![], result: SimResult::default() };
        let mut tally = Tally::default();
        tally.add(&asked, &run, 1, SLO, 10.0);
        tally.outcome(SLO, ARRIVALS)
    }

    #[test]
    fn each_kind_of_attainment_counts_what_it_says() {
        let o = outcome(&[
            (0, vec![500, 550, 600]),      // good
            (0, vec![1500, 1550, 1600]),   // first token late
            (0, vec![500, 510, 690]),      // mean in time, one gap late
            (0, vec![500, 700, 900]),      // all gaps late
            (0, vec![500, 550, u64::MAX]), // never ended
        ]);
        let a = o.attainment;
        assert_eq!((a.ttft, a.tbt_mean, a.tbt_p99, a.goodput), (0.8, 0.6, 0.4, 0.4));
        assert_eq!(a.tbt_per_token, 6.0 / 9.0);
        assert_eq!(o.ttft.max, 1.5);
        assert_eq!(o.output_tokens_per_s, 1.4);
    }

    #[test]
    fn refused_requests_miss_all_but_a_time_between_tokens() {
        let mut tally = Tally::default();
        let asked = [SimRequest { output_len: 2, ..SimRequest::default() }; 4];
        let token_ns = (0..8).map(|i| if i < 2 { i + 1 } else { NEVER_NS }).collect();
        let result = SimResult { num_refused: 2, num_unfinished: 1, ..SimResult::default() };
        tally.add(&asked, &SimRun { token_ns, samples: vec![], result }, 1, SLO, 10.0);
        let o = tally.outcome(SLO, ARRIVALS);
        let a = o.attainment;
        assert_eq!((a.ttft, a.goodput, a.tbt_mean, a.tbt_p99), (0.25, 0.25, 0.5, 0.5));
        assert_eq!((o.refused, o.unfinished), (2, 1));
    }

    /// 400 requests over 10 s; at each second `waiting` of them wait, half of those without a seat.
    fn queue(waiting: impl Fn(u64) -> u32, burstiness: f64) -> Queue {
        let asked = [SimRequest { output_len: 1, ..SimRequest::default() }; 400];
        let sample = |s| SimSample {
            at_ns: s * 1_000_000_000,
            num_waiting: waiting(s) / 2,
            num_running: 9 + waiting(s) / 2,
            step_seqs: 9,
            ..SimSample::default()
        };
        let run = SimRun {
            token_ns: vec![1; 400],
            samples: (0..=20).map(sample).collect(),
            result: SimResult::default(),
        };
        let mut tally = Tally::default();
        tally.add(&asked, &run, 1, SLO, 10.0);
        tally.outcome(SLO, Arrivals { seconds: 10.0, burstiness }).queue
    }

    #[test]
    fn a_queue_grows_if_random_arrivals_do_not_explain_it() {
        // 160 requests arrive between the middles of both parts: two deviations are 25.3.
        let grown = queue(|s| 10 * s as u32, 1.0);
        assert_eq!((grown.middle, grown.end, grown.grows), (50.0, 90.0, true));
        assert!(!queue(|s| 6 * s as u32, 1.0).grows);
        assert!(!queue(|s| 10 * s as u32, 0.25).grows, "bursts explain more");
        assert!(!queue(|_| 300, 1.0).grows, "long, and steady");
        assert!(!queue(|s| 500 - 20 * s as u32, 1.0).grows, "it shrinks");
    }

    #[test]
    fn a_single_token_has_no_gaps_and_misses_none() {
        let o = outcome(&[(100, vec![200])]);
        assert_eq!(o.attainment.goodput, 1.0);
        assert_eq!(o.tbt.count, 0);
        assert!((o.ttft.mean - 0.1).abs() < 1e-9);
    }
}
