//! Flags of `saccade bench serve`. Where `vllm bench serve` has a flag for something, it has the
//! same name here.

use std::path::PathBuf;

use saccade_load::{Api, Priority};

use crate::prompt_flags::PromptFlags;

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
    /// Where the server is; a trailing /v1 is understood
    #[arg(long, value_name = "URL", default_value = "http://127.0.0.1:8000")]
    pub base_url: String,
    /// Which API carries the prompts
    #[arg(long, value_enum, default_value = "completions")]
    pub api: ApiName,
    /// Path in place of the API's own; one that ends in chat/completions means the chat API
    #[arg(long, value_name = "PATH")]
    pub endpoint: Option<String>,
    /// Model name in the requests; without it the server is asked for its first
    #[arg(long)]
    pub model: Option<String>,
    /// Bearer token
    #[arg(long, value_name = "KEY", env = "OPENAI_API_KEY", hide_env_values = true)]
    pub api_key: Option<String>,
    /// What the server is called in reports [default: its URL]
    #[arg(long)]
    pub name: Option<String>,
    /// JSON object of further fields of each request; a null removes one of ours
    #[arg(long, value_name = "JSON")]
    pub extra_body: Option<String>,
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
    /// JSON lines with context and input, as LongBench has them
    Longbench,
    /// JSON lines with prompt (or messages), and output_tokens where known
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
    /// Where prompts come from
    #[arg(long, value_enum, default_value = "random")]
    pub dataset_name: Dataset,
    /// File of the data set
    #[arg(long, value_name = "FILE")]
    pub dataset_path: Option<PathBuf>,
    /// Prompt tokens (of text: words)
    #[arg(long, value_name = "N", default_value_t = 1024)]
    pub random_input_len: u32,
    /// Output tokens
    #[arg(long, value_name = "N", default_value_t = 128)]
    pub random_output_len: u32,
    /// Lengths are drawn from length·(1−R) to length·(1+R)
    #[arg(long, value_name = "R", default_value_t = 0.0)]
    pub random_range_ratio: f64,
    /// How lengths are drawn
    #[arg(long, value_enum, default_value = "uniform")]
    pub random_distribution: Spread,
    /// Standard deviation of prompt lengths
    #[arg(long, value_name = "TOKENS", default_value_t = 0.0)]
    pub random_input_std: f64,
    /// Standard deviation of output lengths
    #[arg(long, value_name = "TOKENS", default_value_t = 0.0)]
    pub random_output_std: f64,
    /// Tokens that prompts begin with in common, before their own
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub random_prefix_len: u32,
    /// Share of the prompts that begin with a common prefix
    #[arg(long, value_name = "SHARE", default_value_t = 1.0)]
    pub random_prefix_share: f64,
    /// Different common prefixes
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub random_prefix_groups: u32,
    /// Output tokens of prompts from files, in place of the recorded ones
    #[arg(long, value_name = "N")]
    pub output_len: Option<u32>,
    #[command(flatten)]
    pub prompts: PromptFlags,
    /// Ask for exactly the output length (ignore_eos, min_tokens)
    #[arg(long, value_name = "BOOL", default_value_t = true, num_args = 0..=1,
        default_missing_value = "true", action = clap::ArgAction::Set)]
    pub ignore_eos: bool,
}

#[derive(Debug, clap::Args)]
#[command(next_help_heading = "Load")]
pub(super) struct LoadArgs {
    /// Requests per second, Poisson arrivals; inf sends all at once, or as many as
    /// --max-concurrency allows, each next one when one ends
    #[arg(long, value_name = "RPS", default_value = "inf",
        conflicts_with_all = ["rates", "ladder", "trace"])]
    pub request_rate: f64,
    /// Gamma-distributed gaps of this shape: below 1 burstier than Poisson, above 1 more even
    #[arg(long, value_name = "SHAPE", default_value_t = 1.0, conflicts_with = "evenly")]
    pub burstiness: f64,
    /// Evenly spaced arrivals
    #[arg(long)]
    pub evenly: bool,
    /// Replay arrival times: one time in seconds per line, or JSON lines as in Mooncake's traces
    /// (timestamp in ms, input_length, output_length, hash_ids: lengths replace the data set)
    #[arg(long, value_name = "FILE", conflicts_with_all = ["rates", "ladder"])]
    pub trace: Option<PathBuf>,
    /// Replay so many times as fast
    #[arg(long, value_name = "FACTOR", default_value_t = 1.0, requires = "trace")]
    pub trace_speed: f64,
    /// Most requests in flight. With a rate, an arrival beyond it is sent late, and counted
    #[arg(long, value_name = "N")]
    pub max_concurrency: Option<usize>,
    /// Measured requests [default: 1000 without --duration, --rates, --ladder and --trace]
    #[arg(long, value_name = "N")]
    pub num_prompts: Option<u64>,
    /// Measured seconds [default with --rates and --ladder: 60 at each rate]
    #[arg(long, value_name = "SECONDS")]
    pub duration: Option<f64>,
    /// Requests before the measurement, of the same load
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub num_warmups: u64,
    /// Seconds before the measurement, of the same load [default with --rates and --ladder: a
    /// tenth of the duration, at most 5; else 0]
    #[arg(long, value_name = "SECONDS")]
    pub warmup: Option<f64>,
    /// One run at each of these rates, then saturation point and serviceable load
    #[arg(long, value_name = "RPS,…", value_delimiter = ',')]
    pub rates: Vec<f64>,
    /// The rates of a published study: blink has 13 from 1 to 32
    #[arg(long, value_enum, conflicts_with = "rates")]
    pub ladder: Option<Ladder>,
    /// Runs at each rate; percentiles are averaged over them in the analysis
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=100))]
    pub repeat: u32,
    /// A request that has not ended by then counts as timed out
    #[arg(long, value_name = "SECONDS", default_value_t = 600.0)]
    pub request_timeout: f64,
    /// What is in flight so long after the last arrival is cut
    #[arg(long, value_name = "SECONDS", default_value_t = 120.0)]
    pub drain_timeout: f64,
    /// Seed of arrival times, lengths and prompts
    #[arg(long, default_value_t = 0)]
    pub seed: u64,
    /// Priority of the client's thread: normal, nice:-20..19 or fifo:1..99
    #[arg(long, value_name = "PRIORITY", default_value = "normal")]
    pub client_priority: Priority,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(super) enum Ladder {
    Blink,
}

#[derive(Debug, clap::Args)]
#[command(next_help_heading = "Results")]
pub(super) struct OutputArgs {
    /// Targets of a good request in ms, as in `--goodput ttft:200 tpot:50 e2e:10000`
    #[arg(long, value_name = "METRIC:MS", num_args = 1..)]
    pub goodput: Vec<Target>,
    /// Latencies in the table that is printed
    #[arg(long, value_enum, value_delimiter = ',', default_value = "ttft,tpot,itl,e2e")]
    pub percentile_metrics: Vec<Metric>,
    /// Write the results as JSON (bench/schema/bench-serve.v1.schema.json); - is the standard
    /// output, and nothing else is printed there
    #[arg(long, value_name = "FILE")]
    pub json: Option<PathBuf>,
    /// Put the record of every request into the JSON, token times too
    #[arg(long, requires = "json")]
    pub save_detailed: bool,
    /// Write a report with plots, one file
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
