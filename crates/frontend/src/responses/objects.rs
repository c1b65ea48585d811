//! The JSON of answers: the response, its items, and their parts.

use serde::Serialize;
use serde_json::Value;

use super::echo::Echo;
use crate::openai::{ChatToken, Usage};

/// The `response` object, whole or so far.
#[derive(Serialize)]
pub struct ResponseObject<'a> {
    pub id: &'a str,
    pub object: &'static str,
    pub created_at: u64,
    pub status: Status,
    pub error: Option<Value>,
    pub incomplete_details: Option<Value>,
    pub model: &'a str,
    pub output: Vec<Item<'a>>,
    /// What the answer was drawn with.
    pub temperature: f32,
    pub top_p: f32,
    pub usage: Option<ResponseUsage>,
    #[serde(flatten)]
    pub kept: Kept,
    #[serde(flatten)]
    pub echo: &'a Echo,
}

/// Fields about what this server does not do.
#[derive(Serialize)]
pub struct Kept {
    background: bool,
    store: bool,
    previous_response_id: Option<()>,
    service_tier: &'static str,
    truncation: &'static str,
}

impl Kept {
    /// Nothing.
    pub const NOTHING: Self = Self {
        background: false,
        store: false,
        previous_response_id: None,
        service_tier: "default",
        truncation: "disabled",
    };
}

/// How far a response or an item of it is.
#[derive(Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Status {
    InProgress,
    Completed,
    Incomplete,
    Failed,
}

/// An item of an answer.
#[derive(Serialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum Item<'a> {
    Message {
        id: String,
        status: Status,
        role: &'static str,
        content: Vec<Part<'a>>,
    },
    Reasoning {
        id: String,
        status: Status,
        summary: [(); 0],
        content: Vec<Part<'a>>,
    },
    FunctionCall {
        id: String,
        status: Status,
        /// What the call's output refers to; `id` is the item's.
        call_id: &'a str,
        name: &'a str,
        arguments: &'a str,
    },
}

/// A part of the content of an item.
#[derive(Serialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum Part<'a> {
    OutputText { text: &'a str, annotations: [(); 0], logprobs: &'a [ChatToken] },
    ReasoningText { text: &'a str },
}

/// Token counts of an answer.
#[derive(Serialize)]
pub struct ResponseUsage {
    input_tokens: u64,
    input_tokens_details: InputDetails,
    output_tokens: u64,
    output_tokens_details: OutputDetails,
    total_tokens: u64,
}

#[derive(Serialize)]
struct InputDetails {
    cached_tokens: u64,
    /// Writing to the cache is not accounted for.
    cache_write_tokens: u64,
}

#[derive(Serialize)]
struct OutputDetails {
    reasoning_tokens: u64,
}

impl From<Usage> for ResponseUsage {
    fn from(usage: Usage) -> Self {
        let reasoning = usage.completion_tokens_details.map(|details| details.reasoning_tokens);
        Self {
            input_tokens: usage.prompt_tokens,
            input_tokens_details: InputDetails {
                cached_tokens: usage.prompt_tokens_details.cached_tokens,
                cache_write_tokens: 0,
            },
            output_tokens: usage.completion_tokens,
            output_tokens_details: OutputDetails { reasoning_tokens: reasoning.unwrap_or(0) },
            total_tokens: usage.total_tokens,
        }
    }
}

/// An event of a stream.
#[derive(Serialize)]
pub struct StreamEvent<T> {
    #[serde(rename = "type")]
    pub kind: &'static str,
    pub sequence_number: u64,
    #[serde(flatten)]
    pub data: T,
}

/// More of a text.
#[derive(Serialize)]
pub struct TextDelta<'a> {
    pub item_id: String,
    pub output_index: usize,
    pub content_index: usize,
    pub delta: &'a str,
    pub logprobs: &'a [ChatToken],
}

/// A whole text.
#[derive(Serialize)]
pub struct TextDone<'a> {
    pub item_id: String,
    pub output_index: usize,
    pub content_index: usize,
    pub text: &'a str,
    pub logprobs: &'a [ChatToken],
}

/// A part that begins or ends.
#[derive(Serialize)]
pub struct PartEvent<'a> {
    pub item_id: String,
    pub output_index: usize,
    pub content_index: usize,
    pub part: Part<'a>,
}

/// An item that begins or ends.
#[derive(Serialize)]
pub struct ItemEvent<'a> {
    pub output_index: usize,
    pub item: Item<'a>,
}

/// A response that begins or ends.
#[derive(Serialize)]
pub struct ResponseEvent<'a> {
    pub response: ResponseObject<'a>,
}
