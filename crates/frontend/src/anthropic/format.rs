//! Answers of the Messages API: content blocks, whole or as named events.

use serde_json::{Value, json};

use super::error_json;
use crate::api_error::ApiError;
use crate::openai::{Block, Blocks, CallIds, Change, ChunkUsage, Format, Frames, Head, Usage};
use crate::serving::{Delta, FinishReason};
use crate::validate::GenerateParams;

/// Renders deltas as messages.
pub struct MessagesFormat {
    head: Head,
    stop: Vec<String>,
    /// In a stream only their kinds are kept.
    blocks: Blocks,
    finish: Option<FinishReason>,
    has_started: bool,
}

impl MessagesFormat {
    /// For the one answer of a request.
    pub fn new(head: Head, params: &GenerateParams, ids: CallIds, include_thinking: bool) -> Self {
        Self {
            head,
            stop: params.stop.clone(),
            blocks: Blocks::new(ids, include_thinking),
            finish: None,
            has_started: false,
        }
    }

    fn stop_reason(&self) -> (Value, Value) {
        match &self.finish {
            None => (Value::Null, Value::Null),
            Some(FinishReason::Length) => ("max_tokens".into(), Value::Null),
            Some(FinishReason::StopString(index)) => {
                ("stop_sequence".into(), self.stop.get(*index).cloned().into())
            }
            Some(_) if self.blocks.calls_are_whole() => ("tool_use".into(), Value::Null),
            Some(_) => ("end_turn".into(), Value::Null),
        }
    }

    fn message(&self, content: Vec<Value>, usage: Usage) -> Value {
        let (stop_reason, stop_sequence) = self.stop_reason();
        json!({
            "id": self.head.id, "type": "message", "role": "assistant", "model": self.head.model,
            "content": content, "stop_reason": stop_reason, "stop_sequence": stop_sequence,
            "usage": usage_json(usage),
        })
    }

    fn start(&mut self, usage: Usage, frames: &mut Frames) {
        if !std::mem::replace(&mut self.has_started, true) {
            let message = self.message(Vec::new(), usage);
            event(frames, "message_start", json!({"message": message}));
        }
    }

    /// Closes the last block of a stream.
    fn close(&self, frames: &mut Frames) {
        if let Some(index) = self.blocks.list().len().checked_sub(1) {
            event(frames, "content_block_stop", json!({"index": index}));
        }
    }
}

/// As in a whole answer. Arguments that are no JSON, as of a call that was cut off, are kept as
/// a text, in the way that Anthropic's documents name.
fn block_json(block: &Block) -> Value {
    match block {
        Block::Text(text) => json!({"type": "text", "text": text}),
        Block::Reasoning(text) => {
            json!({"type": "thinking", "thinking": text, "signature": ""})
        }
        Block::Call { id, name, arguments } => {
            let input = match arguments.as_str() {
                "" => json!({}),
                text => {
                    serde_json::from_str(text).unwrap_or_else(|_| json!({"INVALID_JSON": text}))
                }
            };
            json!({"type": "tool_use", "id": id, "name": name, "input": input})
        }
    }
}

fn delta_json(block: &Block, more: &str) -> Value {
    match block {
        Block::Text(_) => json!({"type": "text_delta", "text": more}),
        Block::Reasoning(_) => json!({"type": "thinking_delta", "thinking": more}),
        Block::Call { .. } => json!({"type": "input_json_delta", "partial_json": more}),
    }
}

fn usage_json(usage: Usage) -> Value {
    let cached = usage.prompt_tokens_details.cached_tokens;
    // As there, tokens that were read from the cache are counted apart.
    json!({
        "input_tokens": usage.prompt_tokens - cached.min(usage.prompt_tokens),
        "cache_creation_input_tokens": 0,
        "cache_read_input_tokens": cached,
        "output_tokens": usage.completion_tokens,
    })
}

/// An event, whose data names its type as well.
fn event(frames: &mut Frames, name: &str, mut data: Value) {
    data["type"] = name.into();
    frames.event(name, &data);
}

impl Format for MessagesFormat {
    fn chunk(&mut self, _index: usize, mut delta: Delta, usage: ChunkUsage, frames: &mut Frames) {
        let usage = match usage {
            ChunkUsage::SoFar(usage) => usage,
            ChunkUsage::Absent | ChunkUsage::Null => Usage::default(),
        };
        self.start(usage, frames);
        for change in self.blocks.changes(&mut delta) {
            match change {
                Change::Begin(block) => {
                    self.close(frames);
                    let data = json!({"index": self.blocks.list().len(), "content_block": block_json(&block)});
                    event(frames, "content_block_start", data);
                    self.blocks.apply(Change::Begin(block));
                }
                Change::More(more) => {
                    let Some((block, before)) = self.blocks.list().split_last() else { continue };
                    let data = json!({"index": before.len(), "delta": delta_json(block, &more)});
                    event(frames, "content_block_delta", data);
                }
                Change::CallEnd => {}
            }
        }
        self.finish = delta.finish.or(self.finish.take());
    }

    fn usage_chunk(&self, usage: Usage, frames: &mut Frames) {
        let (stop_reason, stop_sequence) = self.stop_reason();
        let delta = json!({"stop_reason": stop_reason, "stop_sequence": stop_sequence});
        event(frames, "message_delta", json!({"delta": delta, "usage": usage_json(usage)}));
    }

    fn end(&mut self, usage: Usage, _wants_usage: bool, frames: &mut Frames) {
        self.start(usage, frames);
        self.close(frames);
        self.usage_chunk(usage, frames);
        event(frames, "message_stop", json!({}));
    }

    fn fail(&mut self, error: &ApiError, frames: &mut Frames) {
        frames.event("error", &error_json(error));
    }

    fn gather(&mut self, _index: usize, mut delta: Delta) {
        for change in self.blocks.changes(&mut delta) {
            self.blocks.apply(change);
        }
        self.finish = delta.finish.or(self.finish.take());
    }

    fn answer(&self, usage: Usage) -> serde_json::Result<Vec<u8>> {
        let content = self.blocks.list().iter().map(block_json).collect();
        serde_json::to_vec(&self.message(content, usage))
    }
}
