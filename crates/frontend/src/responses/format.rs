//! Answers of the Responses API: items, whole or as typed events.

use std::cell::Cell;

use serde::Serialize;
use serde_json::json;

use super::echo::Echo;
use super::objects::{
    Item, ItemEvent, Kept, Part, PartEvent, ResponseEvent, ResponseObject, Status, StreamEvent,
    TextDelta, TextDone,
};
use crate::api_error::ApiError;
use crate::http::budget::Charge;
use crate::openai::{
    Block, Blocks, Change, ChatToken, ChunkUsage, Format, Frames, Head, Kind, TokenNames, Usage,
};
use crate::serving::{Delta, FinishReason, Prepared, TokenLogprobs};

/// The only part of an item.
const CONTENT_INDEX: usize = 0;

/// Renders deltas as items of a response.
pub struct ResponsesFormat {
    head: Head,
    echo: Echo,
    temperature: f32,
    top_p: f32,
    blocks: Blocks,
    logprobs: Logprobs,
    finish: Option<FinishReason>,
    /// The last block has begun and not ended in the stream.
    is_open: bool,
    /// Of the next event.
    sequence_number: Cell<u64>,
    /// For what the answer repeats.
    _charge: Charge,
}

/// Logprobs of texts. Tokens may come before their text, which waits for more of them.
struct Logprobs {
    names: TokenNames,
    waiting: Vec<TokenLogprobs>,
    /// Of each block.
    of_blocks: Vec<Vec<ChatToken>>,
}

impl ResponsesFormat {
    /// For the one answer of a request; `charge` is for what `echo` holds.
    pub fn new(
        head: Head,
        (echo, charge): (Echo, Charge),
        prompt: &Prepared,
        blocks: Blocks,
        names: TokenNames,
    ) -> Self {
        Self {
            head,
            echo,
            temperature: prompt.params.temperature,
            top_p: prompt.params.top_p,
            blocks,
            logprobs: Logprobs { names, waiting: Vec::new(), of_blocks: Vec::new() },
            finish: None,
            is_open: false,
            sequence_number: Cell::new(0),
            _charge: charge,
        }
    }

    /// Makes the changes that a delta says, and tells a stream of them.
    fn take(&mut self, mut delta: Delta, mut frames: Option<&mut Frames>) {
        self.logprobs.waiting.append(&mut delta.logprobs);
        for change in self.blocks.changes(&mut delta) {
            self.change(change, frames.as_deref_mut());
        }
        self.finish = delta.finish.or(self.finish.take());
        match self.blocks.list().last().map(Block::kind) {
            // What ends the answer has logprobs and no text.
            Some(Kind::Text) if self.finish.is_some() && !self.logprobs.waiting.is_empty() => {
                self.change(Change::More(String::new()), frames);
            }
            None | Some(Kind::Text) => {}
            Some(Kind::Reasoning | Kind::Call) => self.logprobs.waiting.clear(),
        }
    }

    fn change(&mut self, change: Change, mut frames: Option<&mut Frames>) {
        match change {
            Change::Begin(block) => {
                if let Some(frames) = frames.as_deref_mut() {
                    self.close(Status::Completed, frames);
                }
                self.blocks.apply(Change::Begin(block));
                self.logprobs.of_blocks.push(Vec::new());
                if let Some(frames) = frames {
                    self.open(frames);
                }
            }
            Change::More(more) => {
                let tokens = self.name_waiting();
                if let Some(frames) = frames {
                    self.tell(&more, &tokens, frames);
                }
                self.blocks.apply(Change::More(more));
                if let Some(of_block) = self.logprobs.of_blocks.last_mut() {
                    of_block.extend(tokens);
                }
            }
            Change::CallEnd => {
                // A client can run the function while the model goes on.
                if let Some(frames) = frames {
                    self.close(Status::Completed, frames);
                }
            }
        }
    }

    /// The tokens of the text that is told next.
    fn name_waiting(&mut self) -> Vec<ChatToken> {
        let waiting = std::mem::take(&mut self.logprobs.waiting);
        let is_text = self.blocks.list().last().is_some_and(|block| block.kind() == Kind::Text);
        let told = waiting.iter().filter(|_| is_text);
        told.map(|token| ChatToken::of(&self.logprobs.names, token, token.top.len())).collect()
    }

    fn event(&self, kind: &'static str, data: impl Serialize, frames: &mut Frames) {
        let sequence_number = self.sequence_number.get();
        self.sequence_number.set(sequence_number + 1);
        frames.event(kind, &StreamEvent { kind, sequence_number, data });
    }

    /// Index and id of the last block.
    fn last(&self) -> Option<(usize, String)> {
        let index = self.blocks.list().len().checked_sub(1)?;
        Some((index, self.item_id(index)))
    }

    fn item_id(&self, index: usize) -> String {
        let prefix = match self.blocks.list()[index].kind() {
            Kind::Text => "msg",
            Kind::Reasoning => "rs",
            Kind::Call => "fc",
        };
        let id = self.head.id.strip_prefix("resp_").unwrap_or(&self.head.id);
        format!("{prefix}_{id}_{index}")
    }

    fn part(&self, index: usize) -> Option<Part<'_>> {
        match &self.blocks.list()[index] {
            Block::Text(text) => {
                let logprobs = &self.logprobs.of_blocks[index];
                Some(Part::OutputText { text, annotations: [], logprobs })
            }
            Block::Reasoning(text) => Some(Part::ReasoningText { text }),
            Block::Call { .. } => None,
        }
    }

    /// A block as an item; one that has just begun has no part yet.
    fn item(&self, index: usize, status: Status) -> Item<'_> {
        let id = self.item_id(index);
        let has_begun_only = status == Status::InProgress;
        let content = || self.part(index).filter(|_| !has_begun_only).into_iter().collect();
        match &self.blocks.list()[index] {
            Block::Text(_) => Item::Message { id, status, role: "assistant", content: content() },
            Block::Reasoning(_) => Item::Reasoning { id, status, summary: [], content: content() },
            Block::Call { id: call_id, name, arguments } => {
                Item::FunctionCall { id, status, call_id, name, arguments }
            }
        }
    }

    /// Tells that the last block has begun.
    fn open(&mut self, frames: &mut Frames) {
        let Some((index, id)) = self.last() else { return };
        self.is_open = true;
        let item = self.item(index, Status::InProgress);
        let added = ItemEvent { output_index: index, item };
        self.event("response.output_item.added", added, frames);
        self.part_event("response.content_part.added", (index, id), frames);
    }

    fn part_event(&self, kind: &'static str, at: (usize, String), frames: &mut Frames) {
        let (output_index, item_id) = at;
        let Some(part) = self.part(output_index) else { return };
        let event = PartEvent { item_id, output_index, content_index: CONTENT_INDEX, part };
        self.event(kind, event, frames);
    }

    /// Tells more of the last block.
    fn tell(&self, delta: &str, logprobs: &[ChatToken], frames: &mut Frames) {
        let Some((output_index, item_id)) = self.last() else { return };
        let content_index = CONTENT_INDEX;
        match self.blocks.list()[output_index].kind() {
            Kind::Text => {
                let more = TextDelta { item_id, output_index, content_index, delta, logprobs };
                self.event("response.output_text.delta", more, frames);
            }
            Kind::Reasoning => {
                let more = json!({"item_id": item_id, "output_index": output_index,
                                  "content_index": content_index, "delta": delta});
                self.event("response.reasoning_text.delta", more, frames);
            }
            Kind::Call => {
                let more =
                    json!({"item_id": item_id, "output_index": output_index, "delta": delta});
                self.event("response.function_call_arguments.delta", more, frames);
            }
        }
    }

    /// Tells that the last block is over, if that has not been told.
    fn close(&mut self, status: Status, frames: &mut Frames) {
        let Some((index, id)) = self.last().filter(|_| self.is_open) else { return };
        self.is_open = false;
        self.whole(index, id.clone(), frames);
        self.part_event("response.content_part.done", (index, id), frames);
        let item = self.item(index, status);
        self.event("response.output_item.done", ItemEvent { output_index: index, item }, frames);
    }

    /// Tells all that a block says.
    fn whole(&self, output_index: usize, item_id: String, frames: &mut Frames) {
        let content_index = CONTENT_INDEX;
        match &self.blocks.list()[output_index] {
            Block::Text(text) => {
                let logprobs = &self.logprobs.of_blocks[output_index];
                let done = TextDone { item_id, output_index, content_index, text, logprobs };
                self.event("response.output_text.done", done, frames);
            }
            Block::Reasoning(text) => {
                let done = json!({"item_id": item_id, "output_index": output_index,
                                  "content_index": content_index, "text": text});
                self.event("response.reasoning_text.done", done, frames);
            }
            Block::Call { name, arguments, .. } => {
                let done = json!({"item_id": item_id, "output_index": output_index,
                                  "name": name, "arguments": arguments});
                self.event("response.function_call_arguments.done", done, frames);
            }
        }
    }

    /// How the answer ended.
    fn status(&self) -> Status {
        match self.finish {
            Some(FinishReason::Length) => Status::Incomplete,
            Some(_) => Status::Completed,
            None => Status::Failed,
        }
    }

    /// How the last item ended. A call that is whole is, whatever came behind it; one that a stop
    /// string cut is none.
    fn last_status(&self) -> Status {
        let is_call = self.blocks.list().last().is_some_and(|block| block.kind() == Kind::Call);
        let is_whole = match is_call {
            true => self.blocks.calls_are_whole(),
            false => self.status() == Status::Completed,
        };
        if is_whole { Status::Completed } else { Status::Incomplete }
    }

    /// The response with all items so far.
    fn response(&self, status: Status, usage: Option<Usage>) -> ResponseObject<'_> {
        let last = self.blocks.list().len().saturating_sub(1);
        let status_of = |index| if index == last { self.last_status() } else { Status::Completed };
        let item = |index| self.item(index, status_of(index));
        let is_cut = status == Status::Incomplete;
        ResponseObject {
            id: &self.head.id,
            object: "response",
            created_at: self.head.created,
            status,
            error: None,
            incomplete_details: is_cut.then(|| json!({"reason": "max_output_tokens"})),
            model: &self.head.model,
            output: (0..self.blocks.list().len()).map(item).collect(),
            temperature: self.temperature,
            top_p: self.top_p,
            usage: usage.map(Into::into),
            kept: Kept::NOTHING,
            echo: &self.echo,
        }
    }
}

impl Format for ResponsesFormat {
    fn begin(&mut self, frames: &mut Frames) {
        for kind in ["response.created", "response.in_progress"] {
            let response = self.response(Status::InProgress, None);
            self.event(kind, ResponseEvent { response }, frames);
        }
    }

    fn chunk(&mut self, _index: usize, delta: Delta, _usage: ChunkUsage, frames: &mut Frames) {
        self.take(delta, Some(frames));
    }

    fn end(&mut self, usage: Usage, _wants_usage: bool, frames: &mut Frames) {
        self.close(self.last_status(), frames);
        let status = self.status();
        let kind = match status {
            Status::Incomplete => "response.incomplete",
            _ => "response.completed",
        };
        let response = self.response(status, Some(usage));
        self.event(kind, ResponseEvent { response }, frames);
    }

    fn fail(&mut self, error: &ApiError, frames: &mut Frames) {
        let said =
            json!({"code": error.code, "message": error.message, "param": error.param.as_deref()});
        self.event("error", said, frames);
        let mut response = self.response(Status::Failed, None);
        // Codes of this API are a closed list.
        response.error = Some(json!({"code": "server_error", "message": error.message}));
        self.event("response.failed", ResponseEvent { response }, frames);
    }

    fn gather(&mut self, _index: usize, delta: Delta) {
        self.take(delta, None);
    }

    fn answer(&self, usage: Usage) -> serde_json::Result<Vec<u8>> {
        serde_json::to_vec(&self.response(self.status(), Some(usage)))
    }
}
