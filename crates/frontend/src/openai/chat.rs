//! Chat completions: chunks and the whole answer.

use std::sync::Arc;

use serde::Serialize;

use super::calls::{Call, CallCount, CallDelta, CallIds, Said, gather};
use super::logprobs::{ChatLogprobs, PromptLogprobs, TokenNames};
use super::{ChunkUsage, Format, Frames, Head, SYSTEM_FINGERPRINT, Usage};
use crate::serving::{Delta, FinishReason, Prepared};
use crate::text::vocab::Vocab;
use crate::validate::GenerateParams;

/// Renders deltas as chat completions.
pub struct ChatFormat {
    head: Head,
    names: TokenNames,
    stop: Vec<String>,
    /// Alternatives of each token, if logprobs were asked for.
    logprobs: Option<usize>,
    /// The same of the prompt's tokens.
    prompt_logprobs: Option<usize>,
    /// What came of them, from the first choice that had them; not of a stream.
    of_prompt: Option<PromptLogprobs>,
    token_ids: bool,
    /// Ids of the prompt, if they are wanted; of a stream until they have been said.
    prompt_ids: Option<Vec<u32>>,
    /// The client wants a chunk for each token, text or not.
    every_token: bool,
    /// Text that every choice starts with.
    echo: String,
    answering: Answering,
    choices: Vec<Gathered>,
}

/// What a request wants of its answers besides text.
pub struct Answering {
    /// Ids of their calls.
    pub ids: CallIds,
    /// They tell what the model thought.
    pub include_reasoning: bool,
}

#[derive(Default)]
struct Gathered {
    opened: bool,
    reasoning: String,
    text: String,
    count: CallCount,
    calls: Vec<Call>,
    logprobs: ChatLogprobs,
    ids: Vec<u32>,
    finish: Option<FinishReason>,
}

#[derive(Serialize)]
struct Chunk<'a> {
    id: &'a str,
    object: &'static str,
    created: u64,
    model: &'a str,
    system_fingerprint: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    prompt_token_ids: Option<Vec<u32>>,
    choices: &'a [ChunkChoice<'a>],
    #[serde(skip_serializing_if = "Option::is_none")]
    usage: Option<Option<Usage>>,
}

#[derive(Serialize)]
struct ChunkChoice<'a> {
    index: usize,
    delta: ChunkDelta<'a>,
    logprobs: Option<ChatLogprobs>,
    finish_reason: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    stop_reason: Option<StopReason<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    token_ids: Option<&'a [u32]>,
}

#[derive(Serialize, Default)]
struct ChunkDelta<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    role: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    content: Option<&'a str>,
    #[serde(flatten)]
    reasoning: Thought<'a>,
    #[serde(skip_serializing_if = "<[CallDelta]>::is_empty")]
    tool_calls: &'a [CallDelta],
}

/// What the model thought, under both names that clients know: DeepSeek's and vLLM's.
#[derive(Serialize, Default)]
struct Thought<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    reasoning_content: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    reasoning: Option<&'a str>,
}

impl<'a> Thought<'a> {
    fn of(text: &'a str) -> Self {
        let text = (!text.is_empty()).then_some(text);
        Self { reasoning_content: text, reasoning: text }
    }
}

/// Which part of the request stopped a choice: a string, a token id, or nothing (`null`).
#[derive(Serialize)]
#[serde(untagged)]
pub(super) enum StopReason<'a> {
    Text(&'a str),
    Token(u32),
    None,
}

impl<'a> StopReason<'a> {
    pub(super) fn of(finish: &FinishReason, stop: &'a [String]) -> Self {
        match finish {
            FinishReason::StopString(index) => {
                stop.get(*index).map_or(StopReason::None, |s| StopReason::Text(s))
            }
            FinishReason::StopToken(id) => StopReason::Token(*id),
            FinishReason::Eos | FinishReason::Calls | FinishReason::Length => StopReason::None,
        }
    }
}

#[derive(Serialize)]
struct Answer<'a> {
    id: &'a str,
    object: &'static str,
    created: u64,
    model: &'a str,
    system_fingerprint: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    prompt_logprobs: Option<&'a PromptLogprobs>,
    #[serde(skip_serializing_if = "Option::is_none")]
    prompt_token_ids: Option<&'a [u32]>,
    choices: Vec<AnswerChoice<'a>>,
    usage: Usage,
}

#[derive(Serialize)]
struct AnswerChoice<'a> {
    index: usize,
    message: AnswerMessage<'a>,
    logprobs: Option<&'a ChatLogprobs>,
    finish_reason: Option<&'static str>,
    stop_reason: Option<StopReason<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    token_ids: Option<&'a [u32]>,
}

#[derive(Serialize)]
struct AnswerMessage<'a> {
    role: &'static str,
    content: Option<&'a str>,
    refusal: Option<()>,
    #[serde(flatten)]
    reasoning: Thought<'a>,
    #[serde(skip_serializing_if = "<[Call]>::is_empty")]
    tool_calls: &'a [Call],
}

impl ChatFormat {
    /// For `params.n` choices; `echo` is text that each of them starts with.
    pub fn new(
        head: Head,
        vocab: Arc<Vocab>,
        prompt: &Prepared,
        params: &GenerateParams,
        echo: String,
        answering: Answering,
    ) -> Self {
        Self {
            head,
            names: TokenNames::new(vocab, params.return_tokens_as_token_ids),
            stop: params.stop.clone(),
            logprobs: params.logprobs.map(|k| k as usize),
            prompt_logprobs: params.prompt_logprobs.map(|k| k as usize),
            of_prompt: None,
            token_ids: params.return_token_ids,
            prompt_ids: params.return_token_ids.then(|| prompt.ids.clone()),
            every_token: params.stream.is_some_and(|s| s.continuous_usage_stats),
            echo,
            answering,
            choices: (0..params.n).map(|_| Gathered::default()).collect(),
        }
    }

    fn write(
        &self,
        chunk: (Option<Vec<u32>>, &[ChunkChoice]),
        usage: Option<Option<Usage>>,
        frames: &mut Frames,
    ) {
        let (prompt_token_ids, choices) = chunk;
        frames.json(&Chunk {
            id: &self.head.id,
            object: "chat.completion.chunk",
            created: self.head.created,
            model: &self.head.model,
            system_fingerprint: SYSTEM_FINGERPRINT,
            prompt_token_ids,
            choices,
            usage,
        });
    }

    fn gathered(&self, index: usize) -> AnswerChoice<'_> {
        let choice = &self.choices[index];
        let finish = choice.finish.as_ref();
        AnswerChoice {
            index,
            message: AnswerMessage {
                role: "assistant",
                content: (choice.calls.is_empty() || !choice.text.is_empty())
                    .then_some(&choice.text),
                refusal: None,
                reasoning: Thought::of(&choice.reasoning),
                tool_calls: &choice.calls,
            },
            logprobs: self.logprobs.map(|_| &choice.logprobs),
            finish_reason: finish.map(|f| finish_name(f, &choice.count)),
            stop_reason: finish.map(|f| StopReason::of(f, &self.stop)),
            token_ids: self.token_ids.then_some(&choice.ids),
        }
    }

    /// What a delta says: its text is one of the parts if it was not taken apart.
    fn said(&mut self, index: usize, delta: &mut Delta) -> Said {
        let (count, ids) = (&mut self.choices[index].count, &self.answering.ids);
        let mut said = Said::of(std::mem::take(&mut delta.parts), count, ids, index);
        said.text.insert_str(0, &delta.text);
        if !self.answering.include_reasoning {
            said.reasoning.clear();
        }
        said
    }

    fn open(&mut self, index: usize, usage: ChunkUsage, frames: &mut Frames) {
        let prompt_ids = self.prompt_ids.take();
        let choice = ChunkChoice {
            index,
            delta: ChunkDelta {
                role: Some("assistant"),
                content: Some(&self.echo),
                ..ChunkDelta::default()
            },
            logprobs: None,
            finish_reason: None,
            stop_reason: None,
            token_ids: None,
        };
        self.write((prompt_ids, &[choice]), usage.field(), frames);
    }
}

/// An answer that ends by itself with calls ends for them. One that was cut off did not, and a call
/// that is not whole is none.
fn finish_name(finish: &FinishReason, calls: &CallCount) -> &'static str {
    match finish {
        FinishReason::Length => finish.as_str(),
        _ if calls.are_whole() => "tool_calls",
        _ => finish.as_str(),
    }
}

impl Format for ChatFormat {
    fn chunk(&mut self, index: usize, mut delta: Delta, usage: ChunkUsage, frames: &mut Frames) {
        if !std::mem::replace(&mut self.choices[index].opened, true) {
            self.open(index, usage, frames);
        }
        let said = self.said(index, &mut delta);
        let silent = said.is_empty() && delta.logprobs.is_empty() && delta.ids.is_empty();
        if silent && delta.finish.is_none() && !self.every_token {
            return;
        }
        let logprobs = self.logprobs.map(|num_top| {
            let mut logprobs = ChatLogprobs::default();
            logprobs.extend(&self.names, &delta.logprobs, num_top);
            logprobs
        });
        let has_others = !said.reasoning.is_empty() || !said.calls.is_empty();
        let no_text = said.text.is_empty() && (delta.finish.is_some() || has_others);
        let count = &self.choices[index].count;
        let choice = ChunkChoice {
            index,
            delta: ChunkDelta {
                role: None,
                content: (!no_text).then_some(&said.text),
                reasoning: Thought::of(&said.reasoning),
                tool_calls: &said.calls,
            },
            logprobs,
            finish_reason: delta.finish.as_ref().map(|f| finish_name(f, count)),
            stop_reason: delta.finish.as_ref().map(|f| StopReason::of(f, &self.stop)),
            token_ids: self.token_ids.then_some(&delta.ids),
        };
        self.write((None, &[choice]), usage.field(), frames);
    }

    fn usage_chunk(&self, usage: Usage, frames: &mut Frames) {
        self.write((None, &[]), Some(Some(usage)), frames);
    }

    fn gather(&mut self, index: usize, mut delta: Delta) {
        let said = self.said(index, &mut delta);
        let choice = &mut self.choices[index];
        if !std::mem::replace(&mut choice.opened, true) {
            choice.text.push_str(&self.echo);
        }
        choice.reasoning.push_str(&said.reasoning);
        choice.text.push_str(&said.text);
        gather(&mut choice.calls, said.calls);
        choice.logprobs.extend(&self.names, &delta.logprobs, self.logprobs.unwrap_or(0));
        if let (Some(num_top), None) = (self.prompt_logprobs, &self.of_prompt) {
            self.of_prompt = Some(PromptLogprobs::of(&self.names, delta.prompt, num_top));
        }
        choice.ids.append(&mut delta.ids);
        choice.finish = delta.finish.or(choice.finish.take());
    }

    fn answer(&self, usage: Usage) -> serde_json::Result<Vec<u8>> {
        serde_json::to_vec(&Answer {
            id: &self.head.id,
            object: "chat.completion",
            created: self.head.created,
            model: &self.head.model,
            system_fingerprint: SYSTEM_FINGERPRINT,
            prompt_logprobs: self.of_prompt.as_ref(),
            prompt_token_ids: self.prompt_ids.as_deref(),
            choices: (0..self.choices.len()).map(|index| self.gathered(index)).collect(),
            usage,
        })
    }
}
