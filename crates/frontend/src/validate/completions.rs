//! `POST /v1/completions`.

use super::fields::{Fields, read_json, read_list};
use super::generate::{GenerateParams, SloHeaders, out_of_vocab};
use super::params::*;
use super::{Generating, ModelLimits, unsupported};
use crate::api_error::ApiError;
use crate::limits::*;

/// A validated completions request.
#[derive(Debug, Clone, PartialEq)]
pub struct CompletionRequest {
    /// The model asked for; absent means the served one.
    pub model: Option<String>,
    /// At least one; choice `i * n + k` is the `k`-th of prompt `i`.
    pub prompts: Vec<Prompt>,
    /// The text starts with the prompt.
    pub echo: bool,
    /// Sampling and stopping.
    pub params: GenerateParams,
}

/// One prompt.
#[derive(Debug, Clone, PartialEq)]
pub enum Prompt {
    /// To be tokenized.
    Text(String),
    /// As the model sees it; ids below the vocabulary size.
    Ids(Vec<u32>),
}

/// Tokens to produce when a completions request does not say, as in the OpenAI API.
pub const DEFAULT_COMPLETION_TOKENS: u32 = 16;

impl Generating for CompletionRequest {
    fn model(&self) -> Option<&str> {
        self.model.as_deref()
    }

    fn params_mut(&mut self) -> &mut GenerateParams {
        &mut self.params
    }
}

impl CompletionRequest {
    /// Reads and checks a request.
    pub fn read(fields: &Fields, slo: SloHeaders, model: ModelLimits) -> Result<Self, ApiError> {
        unsupported::refuse_completions(fields)?;
        let mut params = GenerateParams::read(fields, slo, model, true)?;
        let echo = fields.boolean("echo", false)?;
        let max_tokens = fields.int(&COMPLETION_MAX_TOKENS)?.map(|v| v as u32);
        if max_tokens == Some(0) && !echo {
            return Err(ApiError::invalid(
                "max_tokens",
                "`max_tokens` must be at least 1 unless `echo` is true, got 0",
            ));
        }
        params.max_tokens = max_tokens.or(Some(DEFAULT_COMPLETION_TOKENS));
        params.logprobs = fields.int(&LOGPROBS)?.map(|k| k as u32);
        let prompts = read_prompts(fields, model, "prompt", MAX_PROMPTS)?;
        let choices = prompts.len() * params.n as usize;
        if choices > MAX_CHOICES {
            return Err(ApiError::invalid(
                "n",
                format!(
                    "`n` times the number of prompts must be at most {MAX_CHOICES}, got {choices}"
                ),
            ));
        }
        Ok(Self { model: fields.text(&MODEL)?, prompts, echo, params: params.check()? })
    }
}

/// One prompt or several, each text or ids.
pub(super) fn read_prompts(
    fields: &Fields,
    model: ModelLimits,
    name: &'static str,
    most: usize,
) -> Result<Vec<Prompt>, ApiError> {
    let required = || ApiError::invalid(name, format!("`{name}` is required"));
    let raw = fields.raw(name).ok_or_else(required)?.trim();
    let first = raw.strip_prefix('[').map(|rest| rest.trim_start().as_bytes().first().copied());
    let prompts = match first.flatten() {
        None => vec![Prompt::Text(read_json(name, raw)?)],
        Some(b'"') => read_list(name, raw, most)?.into_iter().map(Prompt::Text).collect(),
        Some(b'[') => {
            let lists: Vec<&serde_json::value::RawValue> = read_list(name, raw, most)?;
            let ids = |list: &&serde_json::value::RawValue| read_ids(name, list.get(), model);
            lists.iter().map(ids).collect::<Result<_, _>>()?
        }
        Some(_) => vec![read_ids(name, raw, model)?],
    };
    Ok(prompts)
}

fn read_ids(name: &'static str, raw: &str, model: ModelLimits) -> Result<Prompt, ApiError> {
    let ids: Vec<u32> = read_list(name, raw, MAX_PROMPT_IDS)?;
    if ids.is_empty() {
        return Err(ApiError::invalid(name, format!("`{name}` must not be an empty array")));
    }
    match ids.iter().find(|&&id| id >= model.vocab_size) {
        Some(id) => Err(out_of_vocab(name, *id, model)),
        None => Ok(Prompt::Ids(ids)),
    }
}
