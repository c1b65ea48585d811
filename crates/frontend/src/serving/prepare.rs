//! From validated parameters to what the ring takes: prompt ids, limits, defaults.

use std::sync::Arc;
use std::time::Instant;

use saccade_ring::{DeviceInfo, RequestParams};

use super::Serving;
use super::answers::{AnswerAsk, AnswerSettings};
use super::model::{ModelAssets, ModelDefaults};
use crate::api_error::ApiError;
use crate::tenants::Tenant;
use crate::text::control;
use crate::text::detokenize::decode;
use crate::text::pool::PoolError;
use crate::text::tokenizer::EncodeParams;
use crate::validate::{ChatInput, GenerateParams, Prompt};

/// Where one prompt comes from.
pub enum PromptSource {
    /// A conversation to render.
    Chat(ChatInput),
    /// Text or ids.
    Completion(Prompt),
    /// The same, of which an embedding is asked for.
    Embedding(Prompt),
}

impl PromptSource {
    /// Bytes of the text to be tokenized, without what a template adds.
    pub fn text_bytes(&self) -> usize {
        match self {
            Self::Chat(chat) => chat.text_bytes(),
            Self::Completion(Prompt::Text(text)) | Self::Embedding(Prompt::Text(text)) => {
                text.len()
            }
            Self::Completion(Prompt::Ids(ids)) | Self::Embedding(Prompt::Ids(ids)) => {
                size_of_val(ids.as_slice())
            }
        }
    }

    /// The field that it is read from.
    fn param(&self) -> &'static str {
        match self {
            Self::Chat(_) => "messages",
            Self::Completion(_) => "prompt",
            Self::Embedding(_) => "input",
        }
    }
}

/// One prompt, ready to be submitted.
#[derive(Debug, Clone, PartialEq)]
pub struct Prepared {
    /// As the model sees it; not empty.
    pub ids: Vec<u32>,
    /// As the client sees it, if it will be echoed.
    pub text: String,
    /// Parameters but for the seed of each choice.
    pub params: RequestParams,
    /// The automaton that the answer obeys.
    pub grammar: Option<Arc<[u32]>>,
    /// Tokens that the client wants; 0 only scores the prompt.
    pub max_tokens: u32,
    /// How answers are taken apart; `None`: all of them is text.
    pub answer: Option<AnswerSettings>,
}

/// Renders and tokenizes `source` of `tenant` on the pool, and applies limits and defaults.
///
/// # Errors
/// 400 for a template's refusal or a prompt that is too long, 429 if the pool's queue is full.
pub async fn prepare(
    (serving, tenant): (&Serving, &Tenant),
    device: &DeviceInfo,
    source: PromptSource,
    params: &GenerateParams,
    echo: bool,
) -> Result<Prepared, ApiError> {
    let ask = match &source {
        PromptSource::Chat(chat) => Some(AnswerAsk::of(chat)),
        PromptSource::Completion(_) | PromptSource::Embedding(_) => None,
    };
    let mut strict = None;
    if let Some(ask) = &ask {
        serving.assets.answers.check(ask)?;
        strict = serving.assets.answers.strict_grammar(ask)?;
    }
    if let (Some(strict), Some(asked)) = (&strict, &params.grammar) {
        let message =
            format!("strict `{}` cannot be combined with `{}`", strict.param, asked.param);
        return Err(ApiError::invalid(strict.param, message));
    }
    let param = source.param();
    let embeds = matches!(source, PromptSource::Embedding(_));
    if params.truncate_prompt_tokens.is_none() {
        check_bytes(serving, &source, device.max_model_len)?;
    }
    let (ids, mut text) = tokenize(serving, source, params, echo).await?;
    let obeys = params.grammar.is_some();
    let answer = ask.and_then(|ask| serving.assets.answers.settings(ask, &text, obeys));
    let whole_len = ids.len();
    // What follows the prompt: a token at least, unless the prompt is all.
    let least = if embeds { 0 } else { params.max_tokens.unwrap_or(1).max(1) };
    let ids = truncated(ids, params, device.max_model_len.saturating_sub(least));
    if echo && ids.len() < whole_len {
        text = decode(serving.assets.tokenizer.vocab(), &ids, false);
    }
    let defaults = &serving.assets.defaults;
    let max_tokens = match embeds {
        true => check_length(ids.len(), device.max_model_len, param).map(|()| 0)?,
        false => max_tokens(ids.len(), params, defaults, device.max_model_len, param)?,
    };
    let grammar = match params.grammar.as_ref().or(strict.as_ref()) {
        Some(asked) => Some(serving.grammars.automaton(serving, tenant, device, asked).await?),
        None => None,
    };
    let params = match embeds {
        true => embedding_params(params, device.embedding_size),
        false => request_params(params, defaults, max_tokens, echo),
    };
    Ok(Prepared { params, grammar, ids, text, max_tokens, answer })
}

/// Refuses text that no tokenization can bring under the length limit: it is not worth the
/// tokenizer's time.
fn check_bytes(serving: &Serving, source: &PromptSource, limit: u32) -> Result<(), ApiError> {
    if let PromptSource::Completion(Prompt::Ids(_)) | PromptSource::Embedding(Prompt::Ids(_)) =
        source
    {
        return Ok(());
    }
    let bytes = source.text_bytes();
    if bytes <= serving.assets.tokenizer.vocab().max_text_bytes(limit) {
        return Ok(());
    }
    Err(ApiError::context_length(
        source.param(),
        format!(
            "This model's maximum context length is {limit} tokens. However, your request has \
             {bytes} bytes of text, more than that many tokens can hold."
        ),
    ))
}

/// Ids of a prompt, and its text if it will be echoed.
async fn tokenize(
    serving: &Serving,
    source: PromptSource,
    params: &GenerateParams,
    echo: bool,
) -> Result<(Vec<u32>, String), ApiError> {
    let source = match source {
        PromptSource::Completion(Prompt::Ids(ids)) if !echo => return Ok((ids, String::new())),
        PromptSource::Embedding(Prompt::Ids(ids)) => return Ok((ids, String::new())),
        other => other,
    };
    let (assets, metrics) = (serving.assets.clone(), serving.metrics.clone());
    let pool = serving.lanes.of(source.text_bytes());
    let (crew, add_special_tokens) = (pool.crew(), params.add_special_tokens);
    let cache_salt = params.cache_salt;
    let job = move || {
        let begun = Instant::now();
        let params = EncodeParams { add_special_tokens, cache_salt, crew: &crew };
        let encoded = encode(&assets, source, params);
        metrics.tokenized(begun.elapsed());
        encoded
    };
    pool.run(job).await.map_err(pool_error)?
}

/// Ids and text of a prompt. Slow: for the pool's threads.
///
/// # Errors
/// 400 for what the template or the tokenizer refuses.
pub fn encode(
    assets: &ModelAssets,
    source: PromptSource,
    params: EncodeParams<'_>,
) -> Result<(Vec<u32>, String), ApiError> {
    let param = source.param();
    match source {
        PromptSource::Chat(mut chat) => {
            let Some(template) = &assets.template else {
                return Err(ApiError::invalid(
                    "messages",
                    "this model has no chat template; use /v1/completions, or start the server \
                     with --chat-template",
                ));
            };
            let refused = |e| ApiError::invalid("messages", e);
            let mark = match assets.escape_special_tokens {
                true => control::mark(&mut chat, &assets.tokenizer).map_err(refused)?,
                false => None,
            };
            let rendered = template.render(&chat)?;
            let (text, breaks) = match mark {
                Some(mark) => control::unmark(&rendered, mark),
                None => (rendered, Vec::new()),
            };
            let encoded = assets.tokenizer.encode_chat(&text, &breaks, params, template.bos());
            Ok((encoded.map_err(refused)?, text))
        }
        PromptSource::Completion(Prompt::Text(text))
        | PromptSource::Embedding(Prompt::Text(text)) => {
            let ids =
                assets.tokenizer.encode(&text, params).map_err(|e| ApiError::invalid(param, e))?;
            Ok((ids, text))
        }
        PromptSource::Completion(Prompt::Ids(ids)) | PromptSource::Embedding(Prompt::Ids(ids)) => {
            let text = decode(assets.tokenizer.vocab(), &ids, false);
            Ok((ids, text))
        }
    }
}

/// What a pool's refusal means for a client.
pub fn pool_error(error: PoolError) -> ApiError {
    match error {
        PoolError::Full => ApiError::overloaded("too many prompts wait for the tokenizer", 1),
        PoolError::Failed => ApiError::internal("the tokenizer failed on this prompt"),
    }
}

/// The last ones, as many as were asked for; -1 asks for `most`.
fn truncated(mut ids: Vec<u32>, params: &GenerateParams, most: u32) -> Vec<u32> {
    let Some(keep) = params.truncate_prompt_tokens else { return ids };
    let keep = if keep < 0 { most.max(1) as usize } else { keep as usize };
    ids.split_off(ids.len().saturating_sub(keep))
}

/// A prompt that nothing follows.
fn check_length(prompt_len: usize, max_model_len: u32, param: &str) -> Result<(), ApiError> {
    if prompt_len == 0 {
        return Err(empty(param));
    }
    if prompt_len as u64 > u64::from(max_model_len) {
        return Err(too_long(prompt_len, max_model_len, param));
    }
    Ok(())
}

fn empty(param: &str) -> ApiError {
    ApiError::invalid(param, format!("`{param}` is empty: no token to start from"))
}

fn too_long(prompt_len: usize, max_model_len: u32, param: &str) -> ApiError {
    ApiError::context_length(
        param,
        format!(
            "This model's maximum context length is {max_model_len} tokens. However, your request \
             has {prompt_len} input tokens. Please reduce the length of the input messages."
        ),
    )
}

fn max_tokens(
    prompt_len: usize,
    params: &GenerateParams,
    defaults: &ModelDefaults,
    max_model_len: u32,
    param: &'static str,
) -> Result<u32, ApiError> {
    if prompt_len == 0 {
        return Err(empty(param));
    }
    let room = u64::from(max_model_len).saturating_sub(prompt_len as u64);
    if room == 0 {
        return Err(too_long(prompt_len, max_model_len, param));
    }
    match params.max_tokens {
        Some(wanted) if u64::from(wanted) > room => Err(ApiError::context_length(
            "max_tokens",
            format!(
                "'max_tokens' or 'max_completion_tokens' is too large: {wanted}. This model's \
                 maximum context length is {max_model_len} tokens and your request has \
                 {prompt_len} input tokens ({wanted} > {max_model_len} - {prompt_len})."
            ),
        )),
        Some(wanted) => Ok(wanted),
        None => {
            let default = (defaults.max_new_tokens.map_or(room, |d| room.min(u64::from(d)))) as u32;
            if params.min_tokens > default {
                return Err(ApiError::invalid(
                    "min_tokens",
                    format!(
                        "`min_tokens` ({}) must be at most {default}, the tokens that are left",
                        params.min_tokens
                    ),
                ));
            }
            Ok(default)
        }
    }
}

/// Request value, then the model's default, then the API's.
fn request_params(
    params: &GenerateParams,
    defaults: &ModelDefaults,
    max_tokens: u32,
    echo: bool,
) -> RequestParams {
    RequestParams {
        ignore_eos: params.ignore_eos,
        logprobs: params.logprobs.is_some(),
        prompt_logprobs: params.prompt_logprobs.is_some() || echo && params.logprobs.is_some(),
        // The device always produces one; a request that only scores its prompt drops it.
        max_tokens: max_tokens.max(1),
        min_tokens: params.min_tokens,
        num_top_logprobs: params.logprobs.max(params.prompt_logprobs).unwrap_or(0),
        temperature: params.temperature.or(defaults.temperature).unwrap_or(1.0),
        top_p: params.top_p.or(defaults.top_p).unwrap_or(1.0),
        min_p: params.min_p.or(defaults.min_p).unwrap_or(0.0),
        top_k: params.top_k.or(defaults.top_k).unwrap_or(0),
        repetition_penalty: params
            .repetition_penalty
            .or(defaults.repetition_penalty)
            .unwrap_or(1.0),
        presence_penalty: params.presence_penalty,
        frequency_penalty: params.frequency_penalty,
        priority: params.priority,
        seed: 0,
        cache_salt: params.cache_salt,
        slo_ttft_s: params.slo_ttft_s,
        slo_tbt_s: params.slo_tbt_s,
        tenant: params.share.tenant,
        tenant_weight: params.share.weight,
        embedding_size: 0,
        adapter: params.adapter,
    }
}

/// Who asks, of which model, and how urgently: there is nothing else to say of an embedding.
fn embedding_params(params: &GenerateParams, embedding_size: u32) -> RequestParams {
    RequestParams {
        priority: params.priority,
        cache_salt: params.cache_salt,
        slo_ttft_s: params.slo_ttft_s,
        slo_tbt_s: params.slo_tbt_s,
        tenant: params.share.tenant,
        tenant_weight: params.share.weight,
        adapter: params.adapter,
        ..RequestParams::embedding(embedding_size)
    }
}
