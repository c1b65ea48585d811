//! Flags of `saccade bench serve`. Where `vllm bench serve` has a flag for something, it has the
//! same name here.

use std::path::PathBuf;

use saccade_load::{Api, Priority};

use crate::prompt_flags::PromptFlags;
use crate::tls_flags::TlsFlags;

/// Flags of `saccade bench serve`.
#[derive(Debug, clap::Args)]
pub struct Args {
    #[command(flatten)]
    pub(super) target: TargetArgs,
    #[command(flatten)]
    pub(super) workload: WorkloadArgs,
    #[command(flatten)]
    pub(super) load: LoadArgs,
    #[command(flatten)]
    pub(super) output: OutputArgs,
}

#[derive(Debug, clap::Args)]
#[command(next_help_heading = "Server")]
pub(super) struct TargetArgs {
    /// URL of the server, with or without /v1
    #[arg(long, value_name = "URL", default_value = "http://127.0.0.1:8000")]
    pub base_url: String,
    /// API that prompts are sent to
    #[arg(long, value_enum, default_value = "completions")]
    pub api: ApiName,
    /// Path in place of the API's own; one that ends in chat/completions selects the chat API
    #[arg(long, value_name = "PATH")]
    pub endpoint: Option<String>,
    /// Model name in the requests [default: the first that the server lists]
    #[arg(long)]
    pub model: Option<String>,
    /// Bearer token
    #[arg(long, value_name = "KEY", env = "OPENAI_API_KEY", hide_env_values = true)]
    pub api_key: Option<String>,
    /// Name of the server in reports [default: its URL]
    #[arg(long)]
    pub name: Option<String>,
    /// JSON object with more fields for each request; null removes a field
    #[arg(long, value_name = "JSON")]
    pub extra_body: Option<String>,
    #[command(flatten)]
    pub tls: TlsFlags,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(super) enum ApiName {
    Completions,
    Chat,
}

impl From<ApiName> for Api {
    fn from(name: ApiName) -> Api {
        match name {
            ApiName::Completions => Api::Completions,
            ApiName::Chat => Api::Chat,
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(super) enum Dataset {
    /// Prompts and lengths drawn at random
    Random,
    /// A ShareGPT file: a JSON array of conversations
    Sharegpt,
    /// JSON lines with context and input, the form of LongBench
    Longbench,
    /// JSON lines with prompt (or messages) and, optionally, output_tokens
    Custom,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(super) enum Spread {
    /// Evenly within --random-range-ratio of the length
    Uniform,
    /// Normal with --random-input-std and --random-output-std
    Normal,
    /// Log-normal with --random-input-std and --random-output-std
    Lognormal,
}

#[derive(Debug, clap::Args)]
#[command(next_help_heading = "Workload")]
pub(super) struct WorkloadArgs {
    /// Source of the prompts
    #[arg(long, value_enum, default_value = "random")]
    pub dataset_name: Dataset,
    /// File with the data set
    #[arg(long, value_name = "FILE")]
    pub dataset_path: Option<PathBuf>,
    /// Tokens of a prompt (words, where prompts are text)
    #[arg(long, value_name = "N", default_value_t = 1024)]
    pub random_input_len: u32,
    /// Tokens of an answer
    #[arg(long, value_name = "N", default_value_t = 128)]
    pub random_output_len: u32,
    /// Draw lengths between length·(1−R) and length·(1+R)
    #[arg(long, value_name = "R", default_value_t = 0.0)]
    pub random_range_ratio: f64,
    /// Distribution of lengths
    #[arg(long, value_enum, default_value = "uniform")]
    pub random_distribution: Spread,
    /// Standard deviation of prompt lengths
    #[arg(long, value_name = "TOKENS", default_value_t = 0.0)]
    pub random_input_std: f64,
    /// Standard deviation of output lengths
    #[arg(long, value_name = "TOKENS", default_value_t = 0.0)]
    pub random_output_std: f64,
    /// Tokens of a shared prefix, before each prompt's own
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub random_prefix_len: u32,
    /// Share of the prompts that begin with a shared prefix
    #[arg(long, value_name = "SHARE", default_value_t = 1.0)]
    pub random_prefix_share: f64,
    /// Number of different shared prefixes
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub random_prefix_groups: u32,
    /// Tokens of an answer to a prompt from a file, in place of the recorded number
    #[arg(long, value_name = "N")]
    pub output_len: Option<u32>,
    #[command(flatten)]
    pub prompts: PromptFlags,
    /// Ask for answers of exactly the given length (ignore_eos, min_tokens)
    #[arg(long, value_name = "BOOL", default_value_t = true, num_args = 0..=1,
        default_missing_value = "true", action = clap::ArgAction::Set)]
    pub ignore_eos: bool,
}

#[derive(Debug, clap::Args)]
#[command(next_help_heading = "Load")]
pub(super) struct LoadArgs {
    /// Requests per second, with Poisson arrivals; inf sends all at once, or keeps
    /// --max-concurrency requests in flight
    #[arg(long, value_name = "RPS", default_value = "inf",
        conflicts_with_all = ["rates", "ladder", "trace"])]
    pub request_rate: f64,
    /// Shape of the gamma-distributed gaps between arrivals: 1 is Poisson, less is burstier
    #[arg(long, value_name = "SHAPE", default_value_t = 1.0, conflicts_with = "evenly")]
    pub burstiness: f64,
    /// Space arrivals evenly
    #[arg(long)]
    pub evenly: bool,
    /// Replay arrival times from a file: a time in seconds on each line, or JSON lines in the form
    /// of Mooncake's traces (timestamp in ms, input_length, output_length, hash_ids), whose lengths
    /// replace the data set
    #[arg(long, value_name = "FILE", conflicts_with_all = ["rates", "ladder"])]
    pub trace: Option<PathBuf>,
    /// Replay faster by this factor
    #[arg(long, value_name = "FACTOR", default_value_t = 1.0, requires = "trace")]
    pub trace_speed: f64,
    /// Most requests in flight; with a rate, further arrivals are sent late and reported
    #[arg(long, value_name = "N")]
    pub max_concurrency: Option<usize>,
    /// Measured requests [default: 1000, unless --duration, --rates, --ladder or --trace is given]
    #[arg(long, value_name = "N")]
    pub num_prompts: Option<u64>,
    /// Measured seconds [default: 60 at each rate of --rates or --ladder]
    #[arg(long, value_name = "SECONDS")]
    pub duration: Option<f64>,
    /// Requests before the measurement, not measured
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub num_warmups: u64,
    /// Seconds of load before the measurement, not measured [default: 0; with --rates or --ladder
    /// a tenth of the duration, at most 5]
    #[arg(long, value_name = "SECONDS")]
    pub warmup: Option<f64>,
    /// Run at each of these rates, and find the saturation point and the serviceable load
    #[arg(long, value_name = "RPS,…", value_delimiter = ',')]
    pub rates: Vec<f64>,
    /// Run at the rates of a published study: blink has 13, from 1 to 32
    #[arg(long, value_enum, conflicts_with = "rates")]
    pub ladder: Option<Ladder>,
    /// Runs at each rate; the analysis averages over them
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=100))]
    pub repeat: u32,
    /// Time after which a request is cut and counts as timed out
    #[arg(long, value_name = "SECONDS", default_value_t = 600.0)]
    pub request_timeout: f64,
    /// Time after the last arrival at which requests in flight are cut
    #[arg(long, value_name = "SECONDS", default_value_t = 120.0)]
    pub drain_timeout: f64,
    /// Seed of arrival times, lengths and prompts
    #[arg(long, default_value_t = 0)]
    pub seed: u64,
    /// Priority of the client's thread: normal, nice:-20..19 or fifo:1..99
    #[arg(long, value_name = "PRIORITY", default_value = "normal")]
    pub client_priority: Priority,
    /// Stop, and exit with code 1, when more than N requests (or P % of them) of a run have failed
    #[arg(long, value_name = "N|P%")]
    pub max_failed: Option<MaxFailed>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(super) enum Ladder {
    Blink,
}

#[derive(Debug, clap::Args)]
#[command(next_help_heading = "Results")]
pub(super) struct OutputArgs {
    /// Targets in ms that a good request meets, as in `--goodput ttft:200 tpot:50 e2e:10000`
    #[arg(long, value_name = "METRIC:MS", num_args = 1..)]
    pub goodput: Vec<Target>,
    /// Latencies to print
    #[arg(long, value_enum, value_delimiter = ',', default_value = "ttft,tpot,itl,e2e")]
    pub percentile_metrics: Vec<Metric>,
    /// Write the results as JSON (bench/schema/bench-serve.v2.schema.json); - writes them to the
    /// standard output, and nothing else there
    #[arg(long, value_name = "FILE")]
    pub json: Option<PathBuf>,
    /// Put a record of every request into the JSON, with the times of its tokens
    #[arg(long, requires = "json")]
    pub save_detailed: bool,
    /// Write a page with tables and plots
    #[arg(long, value_name = "FILE")]
    pub html: Option<PathBuf>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(super) enum Metric {
    /// Time to the first token
    Ttft,
    /// Mean time per output token after the first
    Tpot,
    /// Time between events with tokens
    Itl,
    /// Time to the end
    #[value(alias = "e2el")]
    E2e,
}

/// One target of `--goodput`.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Target {
    pub metric: Metric,
    pub limit_ms: f64,
}

impl std::str::FromStr for Target {
    type Err = String;

    fn from_str(text: &str) -> Result<Target, String> {
        let (name, limit) = text.split_once(':').ok_or("must be METRIC:MS, as in ttft:200")?;
        let metric = match name {
            "ttft" => Metric::Ttft,
            "tpot" => Metric::Tpot,
            "e2e" | "e2el" => Metric::E2e,
            _ => return Err(format!("'{name}' is none of: ttft, tpot, e2e")),
        };
        match limit.parse::<f64>() {
            Ok(limit_ms) if limit_ms > 0.0 && limit_ms.is_finite() => {
                Ok(Target { metric, limit_ms })
            }
            _ => Err(format!("'{limit}' is not a number of milliseconds above 0")),
        }
    }
}

/// How many requests of a run may fail.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum MaxFailed {
    /// This many.
    Count(u64),
    /// This share of the measured requests, 0 to 1.
    Share(f64),
}

impl MaxFailed {
    /// Whether a run of `requests` measured requests had too many failures.
    pub fn is_exceeded(self, failed: u64, requests: u64) -> bool {
        match self {
            MaxFailed::Count(most) => failed > most,
            MaxFailed::Share(most) => failed as f64 > most * requests as f64,
        }
    }

    /// Failures that a run may have by its whole number of requests, if that is known.
    pub fn most(self, requests: Option<u64>) -> Option<u64> {
        match self {
            MaxFailed::Count(most) => Some(most),
            MaxFailed::Share(most) => requests.map(|n| (most * n as f64).floor() as u64),
        }
    }
}

impl std::str::FromStr for MaxFailed {
    type Err = String;

    fn from_str(text: &str) -> Result<MaxFailed, String> {
        let wrong = || format!("'{text}' is neither a number of requests nor a share, as in 5%");
        let Some(percent) = text.strip_suffix('%') else {
            return text.parse().map(MaxFailed::Count).map_err(|_| wrong());
        };
        match percent.parse::<f64>() {
            Ok(percent) if (0.0..=100.0).contains(&percent) => {
                Ok(MaxFailed::Share(percent / 100.0))
            }
            Ok(_) => Err(format!("'{text}' must lie in 0%..=100%")),
            Err(_) => Err(wrong()),
        }
    }
}

impl std::fmt::Display for MaxFailed {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            MaxFailed::Count(most) => write!(f, "{most}"),
            MaxFailed::Share(most) => write!(f, "{} %", most * 100.0),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn failures_are_limited_by_number_or_share() {
        assert_eq!("3".parse(), Ok(MaxFailed::Count(3)));
        assert_eq!("5%".parse(), Ok(MaxFailed::Share(0.05)));
        for wrong in ["", "x", "-1", "101%", "%", "1.5"] {
            assert!(wrong.parse::<MaxFailed>().is_err(), "{wrong}");
        }
        let (three, some) = (MaxFailed::Count(3), MaxFailed::Share(0.05));
        assert!(!three.is_exceeded(3, 10) && three.is_exceeded(4, 10));
        assert!(!some.is_exceeded(5, 100) && some.is_exceeded(6, 100));
        assert_eq!(
            (three.most(None), some.most(None), some.most(Some(50))),
            (Some(3), None, Some(2))
        );
    }
}
