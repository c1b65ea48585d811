//! The shapes of answers, as the OpenAI API and vLLM have them.

mod blocks;
mod calls;
mod chat;
mod completion;
mod logprobs;
mod rendered;

pub use blocks::{Block, Blocks, Change, Kind};
pub use calls::CallIds;
pub use chat::{Answering, ChatFormat};
pub use completion::CompletionFormat;
pub use logprobs::{ChatToken, TokenNames};
pub use rendered::Rendered;

use serde::{Deserialize, Serialize};

use crate::api_error::ApiError;
use crate::serving::Delta;
use crate::validate::StreamOptions;

/// Says which build answered.
pub const SYSTEM_FINGERPRINT: &str = concat!("saccade-", env!("CARGO_PKG_VERSION"));

/// Token counts of a request.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Usage {
    /// Each prompt once.
    pub prompt_tokens: u64,
    /// Both together.
    pub total_tokens: u64,
    /// All choices together.
    pub completion_tokens: u64,
    /// What of the prompts was not computed.
    pub prompt_tokens_details: PromptTokensDetails,
    /// What the tokens of answers were for, if that was looked for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub completion_tokens_details: Option<CompletionTokensDetails>,
}

/// What the tokens of answers were for.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CompletionTokensDetails {
    /// Between the markers of reasoning.
    pub reasoning_tokens: u64,
}

/// Where the tokens of prompts came from.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PromptTokensDetails {
    /// Their KV was in the prefix cache.
    pub cached_tokens: u64,
}

impl Usage {
    /// Counts of a request.
    pub fn new(prompt_tokens: u64, cached_tokens: u64, completion_tokens: u64) -> Self {
        Self {
            prompt_tokens,
            completion_tokens,
            total_tokens: prompt_tokens + completion_tokens,
            prompt_tokens_details: PromptTokensDetails { cached_tokens },
            completion_tokens_details: None,
        }
    }

    /// The same with the tokens of reasoning, if they were counted.
    pub fn with_reasoning(self, reasoning_tokens: Option<u64>) -> Self {
        let details =
            reasoning_tokens.map(|reasoning_tokens| CompletionTokensDetails { reasoning_tokens });
        Self { completion_tokens_details: details, ..self }
    }
}

/// What all chunks and the whole answer of one request have in common.
#[derive(Debug, Clone)]
pub struct Head {
    /// `chatcmpl-…`, `cmpl-…` and the like.
    pub id: String,
    /// Seconds since 1970.
    pub created: u64,
    /// The model's name as the request wrote it.
    pub model: String,
}

/// How one API renders deltas: as chunks of a stream, or gathered into one answer.
pub trait Format: Send {
    /// Appends what a stream begins with, before there is a token.
    fn begin(&mut self, _frames: &mut Frames) {}
    /// Appends the JSON chunks for `delta` of choice `index` to `frames`.
    fn chunk(&mut self, index: usize, delta: Delta, usage: ChunkUsage, frames: &mut Frames);
    /// Appends the last chunk, which has no choice, where the API has such a chunk.
    fn usage_chunk(&self, _usage: Usage, _frames: &mut Frames) {}
    /// Gathers `delta` of choice `index`.
    fn gather(&mut self, index: usize, delta: Delta);
    /// Appends what ends a stream. `wants_usage`: the client asked for the usage.
    fn end(&mut self, usage: Usage, wants_usage: bool, frames: &mut Frames) {
        if wants_usage {
            self.usage_chunk(usage, frames);
        }
        frames.text("[DONE]");
    }
    /// Appends what ends a stream that failed midway.
    fn fail(&mut self, error: &ApiError, frames: &mut Frames) {
        frames.text(&error.to_json());
    }
    /// The whole answer as JSON.
    fn answer(&self, usage: Usage) -> serde_json::Result<Vec<u8>>;
}

/// The `usage` field of a chunk that is not the last.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ChunkUsage {
    /// Left out.
    Absent,
    /// `null`: the last chunk will have it.
    Null,
    /// So far.
    SoFar(Usage),
}

impl ChunkUsage {
    /// What the stream's options ask for.
    pub fn of(options: StreamOptions, usage: Usage) -> Self {
        match options {
            StreamOptions { continuous_usage_stats: true, include_usage: true } => {
                ChunkUsage::SoFar(usage)
            }
            StreamOptions { include_usage: true, .. } => ChunkUsage::Null,
            StreamOptions { .. } => ChunkUsage::Absent,
        }
    }

    /// For serde: outer `None` is left out, inner `None` is `null`.
    fn field(self) -> Option<Option<Usage>> {
        match self {
            ChunkUsage::Absent => None,
            ChunkUsage::Null => Some(None),
            ChunkUsage::SoFar(usage) => Some(Some(usage)),
        }
    }
}

/// Server-sent events under construction.
#[derive(Debug, Default)]
pub struct Frames(Vec<u8>);

impl Frames {
    /// Adds one event with JSON data.
    pub fn json(&mut self, data: &impl Serialize) {
        self.0.extend_from_slice(b"data: ");
        // These types are strings and numbers: they always serialise, into memory.
        let _ = serde_json::to_writer(&mut self.0, data);
        self.0.extend_from_slice(b"\n\n");
    }

    /// Adds one event that has a name.
    pub fn event(&mut self, name: &str, data: &impl Serialize) {
        self.0.extend_from_slice(b"event: ");
        self.0.extend_from_slice(name.as_bytes());
        self.0.push(b'\n');
        self.json(data);
    }

    /// Adds one event with data that is text on one line.
    pub fn text(&mut self, data: &str) {
        self.0.extend_from_slice(b"data: ");
        self.0.extend_from_slice(data.as_bytes());
        self.0.extend_from_slice(b"\n\n");
    }

    /// Adds a comment, which clients skip.
    pub fn comment(&mut self, text: &str) {
        self.0.extend_from_slice(b": ");
        self.0.extend_from_slice(text.as_bytes());
        self.0.extend_from_slice(b"\n\n");
    }

    /// Whether there is anything to send.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Bytes so far.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// The bytes; the frames start over.
    pub fn take(&mut self) -> bytes::Bytes {
        std::mem::take(&mut self.0).into()
    }
}
