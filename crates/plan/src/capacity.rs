//! What a device can serve: measured with requests that are all there at once.

use saccade_device::DeviceConfig;
use saccade_device::sim::{NEVER_NS, SimRequest, SimRing, SimRun, run};
use serde::{Deserialize, Serialize};

use crate::args::{Args, Policy};
use crate::outcome::{Slo, mean_gap_s};
use crate::simulate::{Machine, device_config};
use crate::workload::Source;

/// Least number of requests in a measurement.
const LEAST: usize = 3000;
/// How often the requests fill and empty the device. With fewer fills, most would be there from the
/// start, and the middle half would end without any prompts computed alongside it.
const FILLS: usize = 8;
/// Share of the requests that must keep the TBT target in the mean of their gaps: a short request
/// may meet a long step under any load.
const KEPT: f64 = 0.99;
/// The number of requests at once is found to one part in this many.
const PARTS: u32 = 32;

/// Requests per second that one device completes when it never waits for one and computes nothing
/// twice: first come, first served, over host memory without end and a link as given.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub(crate) struct Capacity {
    /// The smaller of the next two.
    pub rps: f64,
    /// With as many at once as fit, whatever steps take.
    pub flood_rps: f64,
    /// With as many at once as keep the TBT target; none if a single one does not.
    pub within_tbt_rps: Option<f64>,
    /// Most requests at once that keep it.
    pub num_seqs: Option<u32>,
}

/// The middle half of a flood: the batch is full of requests of every age.
#[derive(Debug, Clone, Copy)]
struct Flood {
    rps: f64,
    /// Share of the requests that kept the TBT target in the mean.
    kept: f64,
}

impl Flood {
    fn of(requests: &[SimRequest], done: &SimRun, slo: Slo) -> Flood {
        let mut ends = Vec::with_capacity(requests.len());
        let mut rest = &done.token_ns[..];
        for r in requests {
            let (tokens, behind) = rest.split_at(r.output_len as usize);
            rest = behind;
            ends.push((tokens.last().copied().unwrap_or(NEVER_NS), mean_gap_s(tokens)));
        }
        ends.sort_unstable_by_key(|(end_ns, _)| *end_ns);
        let middle = &ends[ends.len() / 4..=ends.len() * 3 / 4];
        let mut rate = (middle.len() - 1, middle[middle.len() - 1].0 - middle[0].0);
        if rate.1 == 0 {
            // Few requests may end with the same step.
            rate = (ends.len(), ends[ends.len() - 1].0);
        }
        let kept = middle.iter().filter(|(_, gap_s)| *gap_s <= slo.tbt_s).count();
        Flood {
            rps: rate.0 as f64 / (rate.1 as f64 * 1e-9),
            kept: kept as f64 / middle.len() as f64,
        }
    }
}

/// One device, with memory without end behind it.
struct Bench<'a> {
    args: &'a Args,
    machine: &'a Machine,
    source: &'a Source<'a>,
    /// Whole requests of mean length that its memory holds.
    in_memory: usize,
}

impl<'a> Bench<'a> {
    fn new(
        args: &'a Args,
        machine: &'a Machine,
        source: &'a Source<'a>,
    ) -> anyhow::Result<Bench<'a>> {
        let some = source.flood(LEAST)?.list;
        let tokens: usize = some.iter().map(|r| (r.prompt_len + r.output_len) as usize).sum();
        let holds = machine.num_blocks as usize * args.scheduler.block_size as usize;
        Ok(Bench { args, machine, source, in_memory: holds * some.len() / tokens })
    }

    /// Blocks of host memory. Without end, unless prompts share: it would keep prefixes that the
    /// memory which the flags give does not.
    fn num_host_blocks(&self) -> u32 {
        if self.args.shares_prefixes() && self.source.trace.is_some() {
            self.machine.num_host_blocks
        } else {
            self.machine.num_blocks.saturating_mul(4)
        }
    }

    /// With at most `num_seqs` requests at once.
    fn flood(&self, num_seqs: u32) -> anyhow::Result<Flood> {
        let count = LEAST.max(FILLS * self.in_memory.min(num_seqs as usize));
        let requests = self.source.flood(count)?;
        let config = DeviceConfig {
            max_num_seqs: num_seqs,
            num_host_blocks: self.num_host_blocks(),
            ..device_config(self.args, self.machine, Policy::Fcfs, requests.longest())
        };
        let ring = SimRing::ENDLESS;
        let done = run(&config, &self.machine.config, &ring, &requests.load(), u64::MAX / 4, 0)?;
        Ok(Flood::of(&requests.list, &done, self.args.load.slo()))
    }

    /// The rate with the most requests at once that keep the target, and how many these are;
    /// `missed` of them do not.
    fn within_tbt(&self, mut missed: u32) -> anyhow::Result<Option<(f64, u32)>> {
        let mut kept = 0;
        let mut best = None;
        while missed - kept > (missed / PARTS).max(1) {
            let middle = kept + (missed - kept) / 2;
            let flood = self.flood(middle)?;
            if flood.kept >= KEPT {
                kept = middle;
                best = Some((flood.rps, middle));
            } else {
                missed = middle;
            }
        }
        Ok(best)
    }
}

/// Measures it. Where not even one request at a time keeps the TBT target, no rate does, and the
/// capacity is that of the flood.
///
/// # Errors
/// If a run cannot be made with these flags.
pub(crate) fn capacity(
    args: &Args,
    machine: &Machine,
    source: &Source<'_>,
) -> anyhow::Result<Capacity> {
    let bench = Bench::new(args, machine, source)?;
    let most = args.scheduler.max_num_seqs;
    let flood = bench.flood(most)?;
    let within =
        if flood.kept >= KEPT { Some((flood.rps, most)) } else { bench.within_tbt(most)? };
    let (within_tbt_rps, num_seqs) = within.unzip();
    let rps = within_tbt_rps.map_or(flood.rps, |rps| flood.rps.min(rps));
    Ok(Capacity { rps, flood_rps: flood.rps, within_tbt_rps, num_seqs })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_middle_half_of_a_flood_counts() {
        // Request i ends at i + 1 seconds, after two gaps of half its end.
        let requests: Vec<SimRequest> =
            (0..8).map(|_| SimRequest { output_len: 3, ..SimRequest::default() }).collect();
        let token_ns = (1..=8).flat_map(|end| [0, end * 500_000_000, end * 1_000_000_000]);
        let result = saccade_device::sim::SimResult::default();
        let done = SimRun { token_ns: token_ns.collect(), samples: vec![], result };
        let flood = Flood::of(&requests, &done, Slo { ttft_s: 1.0, tbt_s: 2.0 });
        // From the end of the third to that of the seventh: 4 in 4 s; two of the five at most 2 s.
        assert_eq!((flood.rps, flood.kept), (1.0, 0.4));
    }
}
