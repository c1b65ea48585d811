//! `saccade bench micro tokenize`: the share of tokenization in the time to the first token, by
//! batch size and prompt length.

mod local;
mod report;
mod server;
mod text;

use std::path::{Path, PathBuf};

use anyhow::Context;
use saccade_host::CpuSet;
use saccade_load::Target;
use serde::{Deserialize, Serialize};
use tokenizers::Tokenizer;

use super::numbers::{self, within};
use super::stats::Spread;
use crate::output::counted;
use crate::tls_flags::TlsFlags;
pub(crate) use report::{Report, Row};
use text::Prompts;

/// The tokenizer of the bundled model.
const BUNDLED: &str = include_str!("../../../../../models/saccade-tiny/tokenizer.json");
const BUNDLED_NAME: &str = "saccade-tiny (bundled)";

/// Flags of `saccade bench micro tokenize`.
#[derive(Debug, Clone, clap::Args)]
#[group(skip)]
pub struct Args {
    /// File tokenizer.json, or a folder with one [default: that of the bundled model]
    #[arg(long, value_name = "PATH")]
    tokenizer: Option<PathBuf>,
    /// Text to make prompts of [default: the licence of this program]
    #[arg(long, value_name = "FILE")]
    text: Option<PathBuf>,
    /// Numbers of prompts at one time, as a list of numbers and ranges
    #[arg(long, default_value = "1,4,16", value_name = "LIST")]
    batches: String,
    /// Tokens of a prompt, as a list
    #[arg(long, default_value = "128,1024,8192,32768", value_name = "LIST")]
    lengths: String,
    /// Numbers of tokenizer threads, as a list [default: 1, and one per core]
    #[arg(long, value_name = "LIST")]
    threads: Option<String>,
    /// Measurements of each batch size and length
    #[arg(long, default_value_t = 5, value_parser = within::<u32>(1..=1000))]
    repeats: u32,
    /// Prefill rate of a device, tokens per second over the whole batch: computes a TTFT with it
    #[arg(long, value_name = "RATE", conflicts_with = "base_url")]
    prefill_tokens_per_s: Option<f64>,
    /// URL of a running server: measures its TTFT with prompts as text and as token ids
    #[arg(long, value_name = "URL")]
    base_url: Option<String>,
    /// Model of the server, which --tokenizer must belong to [default: the first that it lists]
    #[arg(long, requires = "base_url")]
    model: Option<String>,
    /// Bearer token for the server
    #[arg(long, requires = "base_url", env = "OPENAI_API_KEY", hide_env_values = true)]
    api_key: Option<String>,
    /// Seconds after which a request fails
    #[arg(long, value_name = "SECONDS", default_value_t = 600.0)]
    request_timeout_s: f64,
    #[command(flatten)]
    tls: TlsFlags,
}

/// The flags, read and checked.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Setup {
    pub tokenizer: String,
    pub batches: Vec<usize>,
    pub lengths: Vec<usize>,
    pub threads: Vec<usize>,
    pub repeats: usize,
    pub prefill_tokens_per_s: Option<f64>,
    pub base_url: Option<String>,
    #[serde(skip)]
    request_timeout_s: f64,
}

impl Setup {
    fn of(args: &Args) -> anyhow::Result<Setup> {
        let threads = match &args.threads {
            Some(list) => numbers::list("--threads", list, 1..=1024)?,
            None => {
                let cores = CpuSet::of_task(0).context("read the cores of this process")?.len();
                if cores == 1 { vec![1] } else { vec![1, cores] }
            }
        };
        if let Some(rate) = args.prefill_tokens_per_s {
            let sound = rate > 0.0 && rate.is_finite();
            anyhow::ensure!(sound, "--prefill-tokens-per-s: {rate}, must be above 0");
        }
        let path = args.tokenizer.as_deref();
        Ok(Setup {
            tokenizer: path.map_or_else(|| BUNDLED_NAME.into(), |p| p.display().to_string()),
            batches: numbers::list("--batches", &args.batches, 1..=4096)?,
            lengths: numbers::list("--lengths", &args.lengths, 1..=4_194_304)?,
            threads,
            repeats: args.repeats as usize,
            prefill_tokens_per_s: args.prefill_tokens_per_s,
            base_url: args.base_url.clone(),
            request_timeout_s: args.request_timeout_s,
        })
    }
}

/// `from_file` and `from_bytes` are generic: each crate that calls them compiles the parser again.
fn parse(json: &str) -> anyhow::Result<Tokenizer> {
    json.parse().map_err(|e: tokenizers::Error| anyhow::anyhow!(e))
}

/// The tokenizer that every build carries.
fn bundled() -> anyhow::Result<Tokenizer> {
    parse(BUNDLED).map_err(|e| anyhow::anyhow!("the bundled tokenizer: {e}"))
}

fn load(path: Option<&Path>) -> anyhow::Result<Tokenizer> {
    let mut tokenizer = match path {
        None => bundled()?,
        Some(path) => {
            let file = if path.is_dir() { path.join("tokenizer.json") } else { path.into() };
            std::fs::read_to_string(&file)
                .map_err(anyhow::Error::from)
                .and_then(|text| parse(&text))
                .map_err(|e| anyhow::anyhow!("--tokenizer {}: {e}", file.display()))?
        }
    };
    // As in serving, prompts are neither cut nor padded.
    tokenizer.with_truncation(None).map_err(|e| anyhow::anyhow!("{e}"))?;
    tokenizer.with_padding(None);
    Ok(tokenizer)
}

fn count_tokens(tokenizer: &Tokenizer, text: &str) -> anyhow::Result<usize> {
    let encoding = tokenizer.encode_fast(text, true).map_err(|e| anyhow::anyhow!("{e}"))?;
    Ok(encoding.get_ids().len())
}

/// Measures every batch size and length, here and on the server if there is one.
///
/// # Errors
/// Of the flags or files, or if the server cannot be reached.
pub(crate) fn measure(args: &Args) -> anyhow::Result<Report> {
    let setup = Setup::of(args)?;
    let tokenizer = load(args.tokenizer.as_deref())?;
    let read = |path: &PathBuf| {
        std::fs::read_to_string(path).with_context(|| format!("--text {}", path.display()))
    };
    let text = args.text.as_ref().map(read).transpose()?;
    let mut prompts = Prompts::new(&tokenizer, text.as_deref())?;
    let mut rows = Vec::new();
    for &length in &setup.lengths {
        for &batch in &setup.batches {
            eprintln!("tokenize: {batch} x {} here", counted(length, "token"));
            rows.extend(measure_here(&setup, &tokenizer, &mut prompts, batch, length)?);
        }
    }
    let server = match &args.base_url {
        None => Vec::new(),
        Some(url) => {
            let target = Target {
                model: args.model.clone(),
                api_key: args.api_key.clone(),
                tls: args.tls.tls(),
                ..Target::new(url.clone())
            };
            server::measure(&setup, &target, &tokenizer, &mut prompts)?
        }
    };
    Ok(Report::new(setup, rows, server))
}

/// A row for each number of threads; they take turns.
fn measure_here(
    setup: &Setup,
    tokenizer: &Tokenizer,
    prompts: &mut Prompts,
    batch: usize,
    length: usize,
) -> anyhow::Result<Vec<Row>> {
    let mut times_ms = vec![Vec::new(); setup.threads.len()];
    let mut tokens = 0;
    // The first round fills the tokenizer's cache of words, as the first requests of a server do.
    for round in 0..=setup.repeats {
        for (&threads, times_ms) in setup.threads.iter().zip(&mut times_ms) {
            let texts: Vec<String> = (0..batch).map(|_| prompts.next(length)).collect();
            let encoded = local::encode_all(tokenizer, &texts, threads)?;
            if round > 0 {
                times_ms.push(encoded.time.as_secs_f64() * 1e3);
                tokens += encoded.tokens;
            }
        }
    }
    let mean_tokens = tokens as f64 / (setup.repeats * setup.threads.len()) as f64;
    let rows = setup.threads.iter().zip(times_ms);
    Ok(rows
        .map(|(&threads, times)| {
            Row::of(setup, batch, length, threads, mean_tokens, Spread::of(times))
        })
        .collect())
}
