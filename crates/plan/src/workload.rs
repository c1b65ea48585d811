//! What arrives: times and lengths, drawn once per rate or taken from a trace, and the same for
//! every policy.

use anyhow::Context;
use saccade_device::sim::{SimLoad, SimRequest};
use saccade_load::{Arrival, Lengths, share_gpt_lengths};
use serde::{Deserialize, Serialize};

use crate::args::{LoadArgs, Workload};
use crate::trace::{Recorded, Trace};

/// Longest prompt and longest output that a workload draws, tokens.
const MAX_LEN: u32 = 4096;
/// Shortest: load tools leave shorter turns out.
const MIN_LEN: u32 = 4;
/// Requests of one run at most: memory for the time of every token.
const MAX_REQUESTS: usize = 1_000_000;

/// Parameters of lengths, for reports.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(untagged)]
pub(crate) enum LengthSource {
    /// Drawn.
    Drawn {
        /// Prompts.
        input: Lengths,
        /// Outputs.
        output: Lengths,
    },
    /// From a file.
    File {
        /// Its path.
        file: String,
    },
    /// Recorded, with the arrivals.
    Trace {
        /// Path of the file.
        trace: String,
        /// In all of it.
        requests: usize,
        /// As recorded.
        rate_rps: f64,
        /// Tokens of a prompt.
        mean_input: f64,
        /// Tokens of an answer.
        mean_output: f64,
    },
}

fn lognormal(mean: f64, std: f64) -> Lengths {
    Lengths::LogNormal { mean, std, min: MIN_LEN, max: MAX_LEN }
}

/// Mean and deviation of prompts, then of outputs. Means: SharegptFirst is what vLLM's paper gives
/// for first turns of ShareGPT, Lmsys what the paper of LMSYS-Chat-1M gives for its conversations,
/// Sharegpt has later turns with their context. Deviations follow the means as those of real
/// conversations do.
fn moments(workload: Workload) -> [f64; 4] {
    match workload {
        Workload::Sharegpt => [300.0, 330.0, 400.0, 360.0],
        Workload::SharegptFirst => [161.0, 180.0, 338.0, 300.0],
        Workload::Lmsys => [70.0, 120.0, 215.0, 200.0],
    }
}

/// Requests of one run, and what their prompts are made of.
#[derive(Debug, Clone)]
pub(crate) struct Requests<'a> {
    /// By arrival.
    pub list: Vec<SimRequest>,
    block_ids: &'a [u32],
}

impl Requests<'_> {
    /// As the simulator takes them.
    pub(crate) fn load(&self) -> SimLoad<'_> {
        SimLoad {
            requests: &self.list,
            block_ids: self.block_ids,
            block_tokens: crate::trace::BLOCK_TOKENS,
        }
    }

    /// What one of several devices gets if they are dealt in turn.
    pub(crate) fn share(&self, first: usize, devices: usize) -> Self {
        let dealt = self.list.iter().skip(first).step_by(devices);
        Requests { list: dealt.copied().collect(), block_ids: self.block_ids }
    }

    /// Tokens of the longest, prompt and answer.
    pub(crate) fn longest(&self) -> u32 {
        self.list.iter().map(|r| r.prompt_len + r.output_len).max().unwrap_or(2)
    }
}

/// What arrives at one rate.
#[derive(Debug, Clone)]
pub(crate) struct Load<'a> {
    pub requests: Requests<'a>,
    /// Requests per second, in the mean.
    pub rate_rps: f64,
    /// For how long they arrive.
    pub seconds: f64,
}

/// Where loads come from.
#[derive(Debug)]
pub(crate) struct Source<'a> {
    args: &'a LoadArgs,
    pub trace: Option<Trace>,
}

impl<'a> Source<'a> {
    /// # Errors
    /// The trace cannot be read.
    pub(crate) fn new(args: &'a LoadArgs) -> anyhow::Result<Source<'a>> {
        let trace = args.trace.as_deref().map(Trace::read).transpose()?;
        Ok(Source { args, trace })
    }

    /// Parameters of the lengths.
    pub(crate) fn lengths(&self) -> LengthSource {
        if let Some(file) = &self.args.dataset_path {
            return LengthSource::File { file: file.display().to_string() };
        }
        let Some(trace) = &self.trace else {
            let (input, output) = distributions(self.args);
            return LengthSource::Drawn { input, output };
        };
        let (mean_input, mean_output) = trace.mean_lengths();
        LengthSource::Trace {
            trace: trace.file.clone(),
            requests: trace.requests.len(),
            rate_rps: trace.rate_rps(),
            mean_input,
            mean_output,
        }
    }

    /// The rates to run at. A trace has one of its own.
    pub(crate) fn rates_rps(&self, capacity_rps: f64) -> Vec<f64> {
        let asked = &self.args.request_rate;
        match &self.trace {
            Some(trace) if asked.is_empty() => vec![trace.rate_rps()],
            _ => asked.iter().map(|r| r.rps(capacity_rps)).collect(),
        }
    }

    /// All requests of one rate.
    ///
    /// # Errors
    /// There are too many of them, or none.
    pub(crate) fn load(&self, rate_rps: f64) -> anyhow::Result<Load<'_>> {
        let Some(trace) = &self.trace else { return drawn(self.args, rate_rps) };
        let stretch = trace.rate_rps() / rate_rps;
        let all_s = trace.requests.len() as f64 / rate_rps;
        let seconds = self.args.duration.unwrap_or(all_s).min(all_s);
        let arrives = trace.requests.iter().take_while(|r| r.at_s * stretch < seconds);
        let list: Vec<_> = arrives.map(|r| recorded(self.args, r, r.at_s * stretch)).collect();
        anyhow::ensure!(!list.is_empty(), "--duration {seconds}: no request arrives in that time");
        Ok(Load { requests: Requests { list, block_ids: &trace.block_ids }, rate_rps, seconds })
    }

    /// `count` requests that are all there at the start: what the device does when it never waits.
    /// Of a trace the first, and no more than it has.
    ///
    /// # Errors
    /// The lengths cannot be drawn.
    pub(crate) fn flood(&self, count: usize) -> anyhow::Result<Requests<'_>> {
        let Some(trace) = &self.trace else {
            let list = lengths(self.args, count)?;
            let list = list.into_iter().map(|l| request(self.args, 0.0, l)).collect();
            return Ok(Requests { list, block_ids: &[] });
        };
        let list = trace.requests.iter().take(count).map(|r| recorded(self.args, r, 0.0));
        Ok(Requests { list: list.collect(), block_ids: &trace.block_ids })
    }
}

/// How prompts and outputs are drawn under these flags.
fn distributions(args: &LoadArgs) -> (Lengths, Lengths) {
    let [input, input_std, output, output_std] = moments(args.workload);
    let scaled = |mean: f64, std: f64, asked: Option<f64>| match asked {
        Some(asked) => lognormal(asked, std * asked / mean),
        None => lognormal(mean, std),
    };
    (scaled(input, input_std, args.input_len), scaled(output, output_std, args.output_len))
}

fn lengths(args: &LoadArgs, count: usize) -> anyhow::Result<Vec<(u32, u32)>> {
    // Each of the three draws has a stream of its own, so that none shifts the others.
    let seed = args.seed.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    if let Some(file) = &args.dataset_path {
        let known = share_gpt_lengths(file, seed)?;
        return Ok(known.into_iter().cycle().take(count).collect());
    }
    let (input, output) = distributions(args);
    let inputs = input.draw("--input-len", count, seed ^ 1)?;
    let outputs = output.draw("--output-len", count, seed ^ 2)?;
    Ok(inputs.into_iter().zip(outputs).collect())
}

fn request(args: &LoadArgs, arrival_s: f64, (input, output): (u32, u32)) -> SimRequest {
    SimRequest {
        arrival_ns: (arrival_s * 1e9) as u64,
        prompt_len: input,
        output_len: output,
        slo_ttft_s: args.slo().ttft_s as f32,
        slo_tbt_s: args.slo().tbt_s as f32,
        ..SimRequest::default()
    }
}

fn recorded(args: &LoadArgs, r: &Recorded, arrival_s: f64) -> SimRequest {
    SimRequest {
        first_block_id: r.first_block_id,
        num_block_ids: r.num_block_ids,
        ..request(args, arrival_s, (r.input, r.output))
    }
}

/// Times and lengths of one rate.
fn drawn(args: &LoadArgs, rate_rps: f64) -> anyhow::Result<Load<'static>> {
    let seconds = args.duration.context("--duration is missing")?;
    let arrival = Arrival::random(rate_rps, args.burstiness);
    let expected = rate_rps * seconds;
    anyhow::ensure!(
        expected <= MAX_REQUESTS as f64,
        "--request-rate {rate_rps} for --duration {seconds} s is more than {MAX_REQUESTS} requests"
    );
    let times: Vec<f64> =
        arrival.schedule(args.seed)?.take_while(|t| *t < seconds).take(MAX_REQUESTS).collect();
    anyhow::ensure!(
        !times.is_empty(),
        "--request-rate {rate_rps}: no request arrives in --duration {seconds} s"
    );
    let lengths = lengths(args, times.len())?;
    let list = times.iter().zip(lengths).map(|(t, l)| request(args, *t, l)).collect();
    Ok(Load { requests: Requests { list, block_ids: &[] }, rate_rps, seconds })
}
