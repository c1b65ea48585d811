//! Text completions: chunks and the whole answer.

use std::sync::Arc;

use serde::Serialize;

use super::chat::StopReason;
use super::logprobs::{CompletionLogprobs, PromptLogprobs, TokenNames};
use super::{ChunkUsage, Format, Frames, Head, SYSTEM_FINGERPRINT, Usage};
use crate::serving::{Delta, FinishReason, Prepared, TokenLogprobs};
use crate::text::vocab::Vocab;
use crate::validate::GenerateParams;

/// Renders deltas as text completions.
pub struct CompletionFormat {
    head: Head,
    names: TokenNames,
    stop: Vec<String>,
    /// Alternatives of each token, if logprobs were asked for.
    logprobs: Option<usize>,
    /// The same of the prompt's tokens.
    prompt_logprobs: Option<usize>,
    token_ids: bool,
    every_token: bool,
    choices: Vec<Gathered>,
}

#[derive(Default)]
struct Gathered {
    /// Text and first token of the prompt, until they have been said.
    echo: Option<(String, u32)>,
    /// Ids of the prompt, if they are wanted; of a stream until they have been said.
    prompt_ids: Option<Vec<u32>>,
    /// Of the first delta, if they are wanted; not of a stream.
    prompt_logprobs: Option<PromptLogprobs>,
    ids: Vec<u32>,
    text: String,
    logprobs: CompletionLogprobs,
    offset: usize,
    finish: Option<FinishReason>,
}

#[derive(Serialize)]
struct Answer<'a> {
    id: &'a str,
    object: &'static str,
    created: u64,
    model: &'a str,
    system_fingerprint: &'static str,
    choices: &'a [AnswerChoice<'a>],
    #[serde(skip_serializing_if = "Option::is_none")]
    usage: Option<Option<Usage>>,
}

#[derive(Serialize)]
struct AnswerChoice<'a> {
    index: usize,
    text: &'a str,
    logprobs: Option<&'a CompletionLogprobs>,
    finish_reason: Option<&'static str>,
    stop_reason: Option<StopReason<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    prompt_logprobs: Option<&'a PromptLogprobs>,
    #[serde(skip_serializing_if = "Option::is_none")]
    prompt_token_ids: Option<&'a [u32]>,
    #[serde(skip_serializing_if = "Option::is_none")]
    token_ids: Option<&'a [u32]>,
}

impl CompletionFormat {
    /// For `params.n` choices of each prompt; with `echo` their text starts with it.
    pub fn new(
        head: Head,
        vocab: Arc<Vocab>,
        prompts: &[Prepared],
        params: &GenerateParams,
        echo: bool,
    ) -> Self {
        let choices = prompts.iter().flat_map(|prompt| {
            (0..params.n).map(move |_| Gathered {
                echo: echo.then(|| (prompt.text.clone(), prompt.ids[0])),
                prompt_ids: params.return_token_ids.then(|| prompt.ids.clone()),
                ..Gathered::default()
            })
        });
        Self {
            head,
            names: TokenNames::new(vocab, params.return_tokens_as_token_ids),
            stop: params.stop.clone(),
            logprobs: params.logprobs.map(|k| k as usize),
            prompt_logprobs: params.prompt_logprobs.map(|k| k as usize),
            token_ids: params.return_token_ids,
            every_token: params.stream.is_some_and(|s| s.continuous_usage_stats),
            choices: choices.collect(),
        }
    }

    /// Text and logprobs of a delta, those of an echoed prompt before the first one.
    fn spoken(&mut self, index: usize, delta: &mut Delta) -> (String, Option<CompletionLogprobs>) {
        let choice = &mut self.choices[index];
        let num_top = self.logprobs.unwrap_or(0);
        let (mut text, mut logprobs) = (String::new(), CompletionLogprobs::default());
        let mut add = |tokens: &[TokenLogprobs]| {
            logprobs.extend(&self.names, tokens, num_top, &mut choice.offset);
        };
        if let Some((prompt, first_id)) = choice.echo.take() {
            text = prompt;
            add(&[TokenLogprobs { id: first_id, logprob: None, top: Box::default() }]);
            add(&delta.prompt);
        }
        text.push_str(&delta.text);
        add(&delta.logprobs);
        (text, self.logprobs.map(|_| logprobs))
    }

    fn gathered(&self, index: usize) -> AnswerChoice<'_> {
        let choice = &self.choices[index];
        let finish = choice.finish.as_ref();
        AnswerChoice {
            index,
            text: &choice.text,
            logprobs: self.logprobs.map(|_| &choice.logprobs),
            finish_reason: finish.map(FinishReason::as_str),
            stop_reason: finish.map(|f| StopReason::of(f, &self.stop)),
            prompt_logprobs: choice.prompt_logprobs.as_ref(),
            prompt_token_ids: choice.prompt_ids.as_deref(),
            token_ids: self.token_ids.then_some(&choice.ids),
        }
    }

    fn body<'a>(
        &'a self,
        choices: &'a [AnswerChoice<'a>],
        usage: Option<Option<Usage>>,
    ) -> Answer<'a> {
        Answer {
            id: &self.head.id,
            object: "text_completion",
            created: self.head.created,
            model: &self.head.model,
            system_fingerprint: SYSTEM_FINGERPRINT,
            choices,
            usage,
        }
    }
}

impl Format for CompletionFormat {
    fn chunk(&mut self, index: usize, mut delta: Delta, usage: ChunkUsage, frames: &mut Frames) {
        let (text, logprobs) = self.spoken(index, &mut delta);
        let silent = text.is_empty() && delta.logprobs.is_empty() && delta.ids.is_empty();
        if silent && delta.finish.is_none() && !self.every_token {
            return;
        }
        let prompt_ids = self.choices[index].prompt_ids.take();
        let choice = AnswerChoice {
            index,
            text: &text,
            logprobs: logprobs.as_ref(),
            finish_reason: delta.finish.as_ref().map(FinishReason::as_str),
            stop_reason: delta.finish.as_ref().map(|f| StopReason::of(f, &self.stop)),
            prompt_logprobs: None,
            prompt_token_ids: prompt_ids.as_deref(),
            token_ids: self.token_ids.then_some(&delta.ids),
        };
        frames.json(&self.body(&[choice], usage.field()));
    }

    fn usage_chunk(&self, usage: Usage, frames: &mut Frames) {
        frames.json(&self.body(&[], Some(Some(usage))));
    }

    fn gather(&mut self, index: usize, mut delta: Delta) {
        let (text, logprobs) = self.spoken(index, &mut delta);
        let choice = &mut self.choices[index];
        if let (Some(num_top), None) = (self.prompt_logprobs, &choice.prompt_logprobs) {
            let tokens = std::mem::take(&mut delta.prompt);
            choice.prompt_logprobs = Some(PromptLogprobs::of(&self.names, tokens, num_top));
        }
        choice.text.push_str(&text);
        choice.ids.append(&mut delta.ids);
        if let Some(logprobs) = logprobs {
            choice.logprobs.append(logprobs);
        }
        choice.finish = delta.finish.or(choice.finish.take());
    }

    fn answer(&self, usage: Usage) -> serde_json::Result<Vec<u8>> {
        let choices: Vec<_> = (0..self.choices.len()).map(|i| self.gathered(i)).collect();
        serde_json::to_vec(&self.body(&choices, Some(Some(usage))))
    }
}
