//! What is sent to each server in each cell. Flags have the names that `bench serve` gives them.

use std::path::PathBuf;

use saccade_load::{Arrival, Lengths, LoadSpec, Source, Warmup, Workload};

use crate::prompt_flags::PromptFlags;

/// The load, the same for all servers and conditions.
#[derive(Debug, Clone, clap::Args)]
#[command(mut_arg("max_prompt_tokens", |arg| arg.requires("sharegpt")))]
pub struct LoadFlags {
    /// Requests per second, with Poisson arrivals [default: --max-concurrency requests in flight]
    #[arg(long, value_name = "RPS")]
    pub request_rate: Option<f64>,
    /// Shape of the gaps between arrivals: 1 is Poisson, less is burstier
    #[arg(long, value_name = "SHAPE", default_value_t = 1.0, requires = "request_rate")]
    pub burstiness: f64,
    /// Requests in flight, without a rate
    #[arg(long, value_name = "N", default_value_t = 8, conflicts_with = "request_rate")]
    pub max_concurrency: usize,
    /// Measured requests of each cell
    #[arg(long, value_name = "N", default_value_t = 64)]
    pub num_prompts: u64,
    /// Measured seconds of each cell, in place of a number of requests
    #[arg(long, value_name = "SECONDS", conflicts_with = "num_prompts")]
    pub duration: Option<f64>,
    /// Requests before the measurement of each cell, not measured
    #[arg(long, value_name = "N", default_value_t = 8)]
    pub num_warmups: u64,
    /// Tokens of each prompt
    #[arg(long, value_name = "N", default_value_t = 128)]
    pub random_input_len: u32,
    /// Tokens of each answer
    #[arg(long, value_name = "N", default_value_t = 64)]
    pub random_output_len: u32,
    #[command(flatten)]
    pub prompts: PromptFlags,
    /// Take prompts and answer lengths from this ShareGPT file
    #[arg(long, value_name = "FILE", conflicts_with_all = ["random_input_len", "vocab"])]
    pub sharegpt: Option<PathBuf>,
    /// Time after which a request is cut and counts as timed out
    #[arg(long, value_name = "SECONDS", default_value_t = 200.0)]
    pub request_timeout: f64,
    /// Seed of arrivals, prompts and the order of cells
    #[arg(long, default_value_t = 0)]
    pub seed: u64,
}

impl LoadFlags {
    /// The load with its first seed.
    ///
    /// # Errors
    /// Names the flag that is out of its bounds.
    pub fn spec(&self) -> anyhow::Result<LoadSpec> {
        let arrival = match self.request_rate {
            None => Arrival::Closed { concurrency: self.max_concurrency },
            Some(rate_rps) => Arrival::random(rate_rps, self.burstiness),
        };
        let mut spec = LoadSpec::new(arrival, self.workload(), self.num_prompts);
        if self.duration.is_some() {
            (spec.requests, spec.duration_s) = (None, self.duration);
        }
        spec.warmup = Warmup { requests: self.num_warmups, seconds: 0.0 };
        spec.request_timeout_s = self.request_timeout;
        spec.drain_timeout_s = self.request_timeout;
        spec.seed = self.seed;
        spec.validate()?;
        Ok(spec)
    }

    fn workload(&self) -> Workload {
        let fixed = |tokens| Lengths::Fixed { tokens };
        self.prompts.of(match &self.sharegpt {
            Some(path) => Workload::of(Source::ShareGpt { path: path.clone(), output: None }),
            None => {
                Workload::generated(fixed(self.random_input_len), fixed(self.random_output_len))
            }
        })
    }
}
