//! Answers of the Messages API: content blocks, whole or as named events.

use saccade_parsers::Event;
use serde_json::{Value, json};

use super::error_json;
use crate::api_error::ApiError;
use crate::openai::{CallIds, ChunkUsage, Format, Frames, Head, Usage};
use crate::serving::{Delta, FinishReason};
use crate::validate::GenerateParams;

/// Renders deltas as messages.
pub struct MessagesFormat {
    head: Head,
    ids: CallIds,
    stop: Vec<String>,
    include_thinking: bool,
    /// Blocks so far; the last one may go on. In a stream only their kinds are kept.
    blocks: Vec<Block>,
    calls: usize,
    /// A call that has begun is whole.
    last_call_is_whole: bool,
    finish: Option<FinishReason>,
    has_started: bool,
}

enum Block {
    Text(String),
    Thinking(String),
    Call { id: String, name: String, arguments: String },
}

/// What a delta does to the blocks.
enum Change {
    /// A new block, the last one from here on.
    Begin(Block),
    /// More of the last one.
    More(String),
}

impl MessagesFormat {
    /// For the one answer of a request.
    pub fn new(head: Head, params: &GenerateParams, ids: CallIds, include_thinking: bool) -> Self {
        Self {
            head,
            ids,
            stop: params.stop.clone(),
            include_thinking,
            blocks: Vec::new(),
            calls: 0,
            last_call_is_whole: false,
            finish: None,
            has_started: false,
        }
    }

    /// What a delta says, in order.
    fn changes(&mut self, delta: &mut Delta) -> Vec<Change> {
        let text = std::mem::take(&mut delta.text);
        let text = (!text.is_empty()).then_some(Event::Text(text));
        let mut changes = Vec::new();
        // The kind of the block that is open, by what has been said.
        let mut open = self.blocks.last().map(Block::kind);
        for event in text.into_iter().chain(std::mem::take(&mut delta.parts)) {
            let (kind, more) = match event {
                Event::Text(text) => (Kind::Text, text),
                Event::Reasoning(text) if self.include_thinking => (Kind::Thinking, text),
                Event::Reasoning(_) => continue,
                Event::Call(name) => {
                    let id = self.ids.id(0, self.calls);
                    self.calls += 1;
                    self.last_call_is_whole = false;
                    open = Some(Kind::Call);
                    let arguments = String::new();
                    changes.push(Change::Begin(Block::Call { id, name, arguments }));
                    continue;
                }
                Event::Arguments(text) => (Kind::Call, text),
                Event::CallEnd => {
                    self.last_call_is_whole = true;
                    continue;
                }
            };
            if open != Some(kind) {
                open = Some(kind);
                changes.push(Change::Begin(match kind {
                    Kind::Thinking => Block::Thinking(String::new()),
                    _ => Block::Text(String::new()),
                }));
            }
            changes.push(Change::More(more));
        }
        changes
    }

    fn stop_reason(&self) -> (Value, Value) {
        match &self.finish {
            None => (Value::Null, Value::Null),
            Some(FinishReason::Length) => ("max_tokens".into(), Value::Null),
            Some(FinishReason::StopString(index)) => {
                ("stop_sequence".into(), self.stop.get(*index).cloned().into())
            }
            Some(_) if self.calls > 0 && self.last_call_is_whole => {
                ("tool_use".into(), Value::Null)
            }
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
        if let Some(index) = self.blocks.len().checked_sub(1) {
            event(frames, "content_block_stop", json!({"index": index}));
        }
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Text,
    Thinking,
    Call,
}

impl Block {
    fn kind(&self) -> Kind {
        match self {
            Self::Text(_) => Kind::Text,
            Self::Thinking(_) => Kind::Thinking,
            Self::Call { .. } => Kind::Call,
        }
    }

    fn add(&mut self, more: &str) {
        match self {
            Self::Text(text) | Self::Thinking(text) => text.push_str(more),
            Self::Call { arguments, .. } => arguments.push_str(more),
        }
    }

    /// As in a whole answer. Arguments that are no JSON, as of a call that was cut off, are kept as
    /// a text, in the way that Anthropic's documents name.
    fn json(&self) -> Value {
        match self {
            Self::Text(text) => json!({"type": "text", "text": text}),
            Self::Thinking(text) => {
                json!({"type": "thinking", "thinking": text, "signature": ""})
            }
            Self::Call { id, name, arguments } => {
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

    fn delta(&self, more: &str) -> Value {
        match self {
            Self::Text(_) => json!({"type": "text_delta", "text": more}),
            Self::Thinking(_) => json!({"type": "thinking_delta", "thinking": more}),
            Self::Call { .. } => json!({"type": "input_json_delta", "partial_json": more}),
        }
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
        for change in self.changes(&mut delta) {
            match change {
                Change::Begin(block) => {
                    self.close(frames);
                    let data = json!({"index": self.blocks.len(), "content_block": block.json()});
                    event(frames, "content_block_start", data);
                    self.blocks.push(block);
                }
                Change::More(more) => {
                    let Some(block) = self.blocks.last() else { continue };
                    let data = json!({"index": self.blocks.len() - 1, "delta": block.delta(&more)});
                    event(frames, "content_block_delta", data);
                }
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

    fn fail(&self, error: &ApiError, frames: &mut Frames) {
        frames.event("error", &error_json(error));
    }

    fn gather(&mut self, _index: usize, mut delta: Delta) {
        for change in self.changes(&mut delta) {
            match change {
                Change::Begin(block) => self.blocks.push(block),
                Change::More(more) => {
                    if let Some(block) = self.blocks.last_mut() {
                        block.add(&more);
                    }
                }
            }
        }
        self.finish = delta.finish.or(self.finish.take());
    }

    fn answer(&self, usage: Usage) -> serde_json::Result<Vec<u8>> {
        let content = self.blocks.iter().map(Block::json).collect();
        serde_json::to_vec(&self.message(content, usage))
    }
}
