//! What arrives: times and lengths, drawn once per rate and the same for every policy.

use saccade_device::sim::SimRequest;
use saccade_load::{Arrival, Lengths, share_gpt_lengths};
use serde::{Deserialize, Serialize};

use crate::args::{LoadArgs, Workload};

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

/// How lengths are drawn under these flags.
pub(crate) fn length_source(args: &LoadArgs) -> LengthSource {
    if let Some(file) = &args.dataset_path {
        return LengthSource::File { file: file.display().to_string() };
    }
    let [input, input_std, output, output_std] = moments(args.workload);
    let scaled = |mean: f64, std: f64, asked: Option<f64>| match asked {
        Some(asked) => lognormal(asked, std * asked / mean),
        None => lognormal(mean, std),
    };
    LengthSource::Drawn {
        input: scaled(input, input_std, args.input_len),
        output: scaled(output, output_std, args.output_len),
    }
}

fn lengths(args: &LoadArgs, count: usize) -> anyhow::Result<Vec<(u32, u32)>> {
    // Each of the three draws has a stream of its own, so that none shifts the others.
    let seed = args.seed.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    match length_source(args) {
        LengthSource::File { file } => {
            let known = share_gpt_lengths(file.as_ref(), seed)?;
            Ok(known.into_iter().cycle().take(count).collect())
        }
        LengthSource::Drawn { input, output } => {
            let inputs = input.draw("--input-len", count, seed ^ 1)?;
            let outputs = output.draw("--output-len", count, seed ^ 2)?;
            Ok(inputs.into_iter().zip(outputs).collect())
        }
    }
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

/// All requests of one rate, by arrival.
pub(crate) fn requests(args: &LoadArgs, rate_rps: f64) -> anyhow::Result<Vec<SimRequest>> {
    let arrival = Arrival::random(rate_rps, args.burstiness);
    let expected = rate_rps * args.duration;
    anyhow::ensure!(
        expected <= MAX_REQUESTS as f64,
        "--request-rate {rate_rps} for --duration {} s is more than {MAX_REQUESTS} requests",
        args.duration
    );
    let times: Vec<f64> = arrival
        .schedule(args.seed)?
        .take_while(|t| *t < args.duration)
        .take(MAX_REQUESTS)
        .collect();
    anyhow::ensure!(
        !times.is_empty(),
        "--request-rate {rate_rps}: no request arrives in --duration {} s",
        args.duration
    );
    let lengths = lengths(args, times.len())?;
    Ok(times.iter().zip(lengths).map(|(t, l)| request(args, *t, l)).collect())
}

/// `count` requests that are all there at the start: what the device does when it never waits.
pub(crate) fn flood(args: &LoadArgs, count: usize) -> anyhow::Result<Vec<SimRequest>> {
    Ok(lengths(args, count)?.into_iter().map(|l| request(args, 0.0, l)).collect())
}
