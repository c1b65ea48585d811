//! What the server does: a JSON file, flags over it.

use anyhow::{Context, Result, ensure};
use serde::Deserialize;

use crate::dist::{Count, Delay};
use crate::weak::Weaknesses;

/// A server's behaviour. Every field has a default; unknown ones are refused.
#[derive(Debug, Clone, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Script {
    /// The model's name in `/v1/models`; other names get a 404.
    pub model: String,
    /// Where set, what `Authorization: Bearer` must carry.
    pub api_key: Option<String>,
    /// Of every draw. A request's draws depend on it and on the request's index only.
    pub seed: u64,
    /// From the moment a request gets its seat to its first event.
    pub ttft: Delay,
    /// Added to `ttft` for each token of the prompt.
    pub prefill_us_per_token: f64,
    /// Between events.
    pub itl: Delay,
    /// Tokens in one event.
    pub tokens_per_event: Count,
    /// Where a generation ends on its own, unless the request has `ignore_eos`; otherwise it
    /// always runs to `max_tokens`.
    pub natural_tokens: Option<Count>,
    /// A text of this many characters, or a part of it, is a token of a prompt.
    pub chars_per_token: usize,
    /// Prompt and `max_tokens` together; more is a 400.
    pub max_model_len: usize,
    /// How many requests are served at once, and how many wait.
    pub capacity: Capacity,
    /// When nothing is answered.
    pub stalls: Vec<Stall>,
    /// How many requests go wrong.
    pub failures: Failures,
    /// What one client may do to others.
    pub weaknesses: Weaknesses,
    /// Fields of a body that get a 400, whatever their value.
    pub refused_fields: Vec<String>,
    /// What the bytes look like.
    pub wire: Wire,
    /// Where set, delays come from work on the processor in place of `ttft` and `itl`.
    pub cpu: Option<Cpu>,
    /// Requests and events that are kept for `/records`; the oldest requests are dropped.
    pub max_records: usize,
    /// How long before each due time the server spins, microseconds.
    pub spin_us: f64,
}

impl Default for Script {
    fn default() -> Self {
        Self {
            model: "mock".to_owned(),
            api_key: None,
            seed: 0,
            ttft: Delay::constant(0.020),
            prefill_us_per_token: 0.0,
            itl: Delay::constant(0.010),
            tokens_per_event: Count::constant(1),
            natural_tokens: None,
            chars_per_token: 4,
            max_model_len: 131_072,
            capacity: Capacity::default(),
            stalls: Vec::new(),
            failures: Failures::default(),
            weaknesses: Weaknesses::default(),
            refused_fields: Vec::new(),
            wire: Wire::default(),
            cpu: None,
            max_records: 4_000_000,
            spin_us: 60.0,
        }
    }
}

/// Seats and the queue for them.
#[derive(Debug, Clone, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Capacity {
    /// Requests served at once.
    pub running: usize,
    /// Requests that wait, first come first served; more get a 429.
    pub waiting: usize,
    /// `Retry-After` of a 429.
    pub retry_after_s: u32,
    /// Open connections; more wait in the kernel's queue.
    pub connections: usize,
}

impl Default for Capacity {
    fn default() -> Self {
        Self { running: 1024, waiting: 4096, retry_after_s: 1, connections: 16_384 }
    }
}

/// A time in which the server answers nothing (`/records` and `/reset` apart).
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Stall {
    /// Begins this long after the start, or the last reset.
    pub at_s: Option<f64>,
    /// Begins when this request comes, counted from 0.
    pub at_request: Option<u64>,
    /// How long it lasts.
    pub for_s: f64,
    /// What happens meanwhile.
    #[serde(default)]
    pub mode: StallMode,
}

/// What a stalled server does meanwhile.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum StallMode {
    /// Nothing: everything that follows is delayed by as much.
    #[default]
    Freeze,
    /// It continues but holds back its output, which comes all at once at the end.
    Hold,
}

/// Shares of requests, from 0 to 1, that go wrong; together at most 1.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Failures {
    /// Answered at once with status 500.
    pub http_500: f64,
    /// The connection is closed in place of one of the events after the first.
    pub cut: f64,
    /// An error event is sent in place of one of the events after the first.
    pub error_event: f64,
    /// Never answered. Takes no seat.
    pub hang: f64,
    /// Requests before this one, counted from 0, do not go wrong; nor is a token of theirs said
    /// twice.
    pub from_request: u64,
}

/// What the bytes of a stream look like.
#[derive(Debug, Clone, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Wire {
    /// Whether `data: [DONE]` ends a stream.
    pub done: bool,
    /// `lf` or `crlf`.
    pub line_end: LineEnd,
    /// A comment line before each event whose number is a multiple of this; 0: none.
    pub comment_every: usize,
    /// How often each event's bytes are cut, at random places. Each piece is an HTTP chunk.
    pub cuts: usize,
    /// Time between the pieces, microseconds. The event counts as written with its last piece.
    pub cut_gap_us: f64,
    /// When a chat stream's first event, with the role and no content, is sent.
    pub role: Role,
    /// Bytes of a comment before each event: answers as long as with log-probabilities.
    pub pad_bytes: usize,
}

impl Default for Wire {
    fn default() -> Self {
        Self {
            done: true,
            line_end: LineEnd::Lf,
            comment_every: 0,
            cuts: 0,
            cut_gap_us: 0.0,
            role: Role::WithFirstToken,
            pad_bytes: 0,
        }
    }
}

/// What ends a line of a stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum LineEnd {
    /// `\n`
    Lf,
    /// `\r\n`
    Crlf,
}

/// When the event with the role is sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Role {
    /// Directly before the first token.
    WithFirstToken,
    /// As soon as the request has its seat.
    AtOnce,
}

/// An engine's work: a pool that tokenizes, and one thread whose steps serve all running requests.
#[derive(Debug, Clone, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Cpu {
    /// Threads that tokenize.
    pub tokenizer_threads: usize,
    /// Processor time for each character of a text prompt (ids cost nothing).
    pub tokenize_us_per_char: f64,
    /// Processor time of a step, whatever is in it.
    pub step_us: f64,
    /// Processor time for each prompt token of a step.
    pub prefill_us_per_token: f64,
    /// Processor time for each request that gets a token in a step.
    pub decode_us: f64,
    /// Tokens of a step, prompts' and new ones together.
    pub max_step_tokens: usize,
}

impl Default for Cpu {
    fn default() -> Self {
        Self {
            tokenizer_threads: 1,
            tokenize_us_per_char: 0.2,
            step_us: 500.0,
            prefill_us_per_token: 20.0,
            decode_us: 100.0,
            max_step_tokens: 2048,
        }
    }
}

impl Script {
    /// Reads a script from JSON.
    ///
    /// # Errors
    /// Not JSON, an unknown field, or a value outside its bounds.
    pub fn from_json(text: &str) -> Result<Self> {
        let script: Self = serde_json::from_str(text).context("script")?;
        script.check()?;
        Ok(script)
    }

    /// Whether every value is within its bounds.
    ///
    /// # Errors
    /// The field and its bound.
    pub fn check(&self) -> Result<()> {
        ensure!(self.chars_per_token >= 1, "chars_per_token is at least 1");
        ensure!(self.capacity.running >= 1, "capacity.running is at least 1");
        ensure!(self.max_records >= 1, "max_records is at least 1");
        within("prefill_us_per_token", self.prefill_us_per_token, 1e6)?;
        within("spin_us", self.spin_us, 1000.0)?;
        within("wire.cut_gap_us", self.wire.cut_gap_us, 1e6)?;
        ensure!(self.wire.cuts <= 64, "wire.cuts is at most 64");
        ensure!(self.wire.pad_bytes <= 1 << 20, "wire.pad_bytes is at most 1048576");
        within("weaknesses.doubled_token", self.weaknesses.doubled_token, 1.0)?;
        ensure!(
            (1..=16_384).contains(&self.capacity.connections),
            "capacity.connections is from 1 to 16384"
        );
        self.failures.check()?;
        for stall in &self.stalls {
            stall.check()?;
        }
        self.cpu.as_ref().map_or(Ok(()), Cpu::check)
    }
}

impl Failures {
    fn check(&self) -> Result<()> {
        within("failures.http_500", self.http_500, 1.0)?;
        within("failures.cut", self.cut, 1.0)?;
        within("failures.error_event", self.error_event, 1.0)?;
        within("failures.hang", self.hang, 1.0)?;
        let sum = self.http_500 + self.cut + self.error_event + self.hang;
        within("the sum of failures", sum, 1.0)
    }
}

impl Stall {
    fn check(&self) -> Result<()> {
        ensure!(
            self.at_s.is_some() != self.at_request.is_some(),
            "stalls: exactly one of at_s and at_request"
        );
        within("stalls.at_s", self.at_s.unwrap_or(0.0), 1e6)?;
        within("stalls.for_s", self.for_s, 3600.0)
    }
}

impl Cpu {
    fn check(&self) -> Result<()> {
        ensure!(
            (1..=256).contains(&self.tokenizer_threads),
            "cpu.tokenizer_threads is from 1 to 256"
        );
        ensure!(self.max_step_tokens >= 1, "cpu.max_step_tokens is at least 1");
        within("cpu.tokenize_us_per_char", self.tokenize_us_per_char, 1e6)?;
        within("cpu.step_us", self.step_us, 1e6)?;
        within("cpu.prefill_us_per_token", self.prefill_us_per_token, 1e6)?;
        within("cpu.decode_us", self.decode_us, 1e6)
    }
}

fn within(name: &str, value: f64, max: f64) -> Result<()> {
    ensure!((0.0..=max).contains(&value), "{name} is from 0 to {max}, not {value}");
    Ok(())
}
