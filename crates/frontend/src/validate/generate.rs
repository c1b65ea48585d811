//! The parameters that every generating endpoint shares.

use std::collections::BTreeMap;

use serde::Serialize;
use sha2::{Digest, Sha256};

use super::ModelLimits;
use super::fields::{Fields, read_float, read_json, read_list};
use super::grammar::{AskedGrammar, grammar};
use super::params::*;
use crate::api_error::ApiError;
use crate::limits::*;
use crate::tenants::{DeviceShare, Targets};

/// Sampling and stopping of one request, bounded. `None` means that the request did not say: the
/// model's generation config or the API's default decides.
#[derive(Debug, Clone, PartialEq)]
pub struct GenerateParams {
    /// Choices per prompt.
    pub n: u32,
    /// Tokens to produce; 0 only for completions with `echo`.
    pub max_tokens: Option<u32>,
    /// Nothing stops the text before this many tokens.
    pub min_tokens: u32,
    /// 0 is greedy.
    pub temperature: Option<f32>,
    /// Nucleus mass.
    pub top_p: Option<f32>,
    /// 0 is all.
    pub top_k: Option<u32>,
    /// Relative to the most likely token.
    pub min_p: Option<f32>,
    /// 1 is none.
    pub repetition_penalty: Option<f32>,
    /// 0 is none.
    pub presence_penalty: f32,
    /// 0 is none.
    pub frequency_penalty: f32,
    /// Bits of the client's seed.
    pub seed: Option<u64>,
    /// Stop strings, none empty.
    pub stop: Vec<String>,
    /// Stop token ids below the vocabulary size.
    pub stop_token_ids: Vec<u32>,
    /// The stop string or token stays in the text.
    pub include_stop_str_in_output: bool,
    /// End-of-sequence ids do not stop.
    pub ignore_eos: bool,
    /// Special tokens leave no text.
    pub skip_special_tokens: bool,
    /// Whether the tokenizer adds its special tokens to the prompt.
    pub add_special_tokens: bool,
    /// Keep only the last N prompt tokens.
    pub truncate_prompt_tokens: Option<i64>,
    /// Token id and bias.
    pub logit_bias: Vec<(u32, f32)>,
    /// What the answer must obey.
    pub grammar: Option<AskedGrammar>,
    /// `Some(k)`: logprob of each token and `k` alternatives.
    pub logprobs: Option<u32>,
    /// The same for the tokens of the prompt; not of a stream.
    pub prompt_logprobs: Option<u32>,
    /// Logprobs name tokens as `token_id:N`.
    pub return_tokens_as_token_ids: bool,
    /// The answer has the ids of the prompt and of what was produced.
    pub return_token_ids: bool,
    /// Lower is earlier.
    pub priority: i32,
    /// Hash of the client's cache salt; 0 is shared.
    pub cache_salt: u64,
    /// Seconds; 0 is the server's default.
    pub slo_ttft_s: f32,
    /// Seconds; 0 is the server's default.
    pub slo_tbt_s: f32,
    /// Of whom it is, for the device.
    pub share: DeviceShare,
    /// Which adapter the model has, as the device counts them; 0: none.
    pub adapter: u32,
    /// Set when the answer is to be streamed.
    pub stream: Option<StreamOptions>,
    /// Part of the response id that the client chose.
    pub request_id: Option<String>,
}

/// `stream_options`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct StreamOptions {
    /// A last chunk without choices carries the usage.
    pub include_usage: bool,
    /// Every chunk carries the usage so far.
    pub continuous_usage_stats: bool,
}

/// SLO targets named in headers; a field in the body wins over its header.
#[derive(Debug, Clone, Copy, Default)]
pub struct SloHeaders<'a> {
    /// `x-slo-ttft-ms`
    pub ttft_ms: Option<&'a str>,
    /// `x-slo-tpot-ms`
    pub tpot_ms: Option<&'a str>,
}

impl GenerateParams {
    /// Reads the shared fields. `max_tokens` and `logprobs` differ by endpoint and are left `None`;
    /// `add_special_tokens` is the endpoint's default.
    pub(super) fn read(
        fields: &Fields,
        headers: SloHeaders,
        model: ModelLimits,
        add_special_tokens: bool,
    ) -> Result<Self, ApiError> {
        let small = |bound| fields.float(bound).map(|v| v.map(|v| v as f32));
        Ok(Self {
            n: fields.int(&N)?.unwrap_or(1) as u32,
            max_tokens: None,
            min_tokens: fields.int(&MIN_TOKENS)?.unwrap_or(0) as u32,
            temperature: fields.float(&TEMPERATURE)?.map(temperature),
            top_p: small(&TOP_P)?,
            top_k: fields.int(&TOP_K)?.map(|k| (k.max(0) as u32).min(model.vocab_size)),
            min_p: small(&MIN_P)?,
            repetition_penalty: small(&REPETITION_PENALTY)?,
            presence_penalty: small(&PRESENCE_PENALTY)?.unwrap_or(0.0),
            frequency_penalty: small(&FREQUENCY_PENALTY)?.unwrap_or(0.0),
            seed: fields.int(&SEED)?.map(|seed| seed as u64),
            stop: stop_strings(fields)?,
            stop_token_ids: stop_token_ids(fields, model)?,
            include_stop_str_in_output: fields.boolean("include_stop_str_in_output", false)?,
            ignore_eos: fields.boolean("ignore_eos", false)?,
            skip_special_tokens: fields.boolean("skip_special_tokens", true)?,
            add_special_tokens: fields.boolean("add_special_tokens", add_special_tokens)?,
            truncate_prompt_tokens: truncation(fields)?,
            logit_bias: logit_bias(fields, model)?,
            grammar: grammar(fields)?,
            logprobs: None,
            prompt_logprobs: fields.int(&PROMPT_LOGPROBS)?.map(|k| k as u32),
            return_tokens_as_token_ids: fields.boolean("return_tokens_as_token_ids", false)?,
            return_token_ids: fields.boolean("return_token_ids", false)?,
            priority: priority(fields, model)?,
            cache_salt: fields.text(&CACHE_SALT)?.map_or(0, |salt| hash_salt(&salt)),
            slo_ttft_s: slo(
                fields,
                (&SLO_TTFT_MS, model.terms.slo_ttft),
                ("x-slo-ttft-ms", headers.ttft_ms),
            )?,
            slo_tbt_s: slo(
                fields,
                (&SLO_TPOT_MS, model.terms.slo_tpot),
                ("x-slo-tpot-ms", headers.tpot_ms),
            )?,
            share: DeviceShare::default(),
            adapter: 0,
            stream: stream(fields)?,
            request_id: fields.text(&REQUEST_ID)?.map(visible_request_id).transpose()?,
        })
    }

    /// Checks the relations between fields, once the endpoint has filled in its own.
    pub(super) fn check(self) -> Result<Self, ApiError> {
        match self.max_tokens {
            Some(max) if self.min_tokens > max => Err(ApiError::invalid(
                "min_tokens",
                format!("`min_tokens` ({}) must be at most `max_tokens` ({max})", self.min_tokens),
            )),
            _ if self.prompt_logprobs.is_some() && self.stream.is_some() => Err(ApiError::invalid(
                PROMPT_LOGPROBS.name,
                "`prompt_logprobs` must be null where `stream` is true",
            )),
            _ => Ok(self),
        }
    }
}

/// What vLLM calls greedy stays greedy: dividing by less would only overflow.
fn temperature(value: f64) -> f32 {
    if value < GREEDY_TEMPERATURE { 0.0 } else { value as f32 }
}

fn truncation(fields: &Fields) -> Result<Option<i64>, ApiError> {
    match fields.int(&TRUNCATE_PROMPT_TOKENS)? {
        Some(0) => Err(ApiError::invalid(
            TRUNCATE_PROMPT_TOKENS.name,
            "`truncate_prompt_tokens` must be -1 or at least 1, got 0",
        )),
        other => Ok(other),
    }
}

fn priority(fields: &Fields, model: ModelLimits) -> Result<i32, ApiError> {
    let priority = fields.int(&PRIORITY)?.unwrap_or(0);
    if priority != 0 && !model.priority {
        return Err(ApiError::invalid(
            "priority",
            format!("`priority` must be 0: the scheduling policy has no classes, got {priority}"),
        ));
    }
    if !model.priority {
        return Ok(0);
    }
    let (min, max) = model.terms.priority;
    // 0 asks for nothing: it is what the tenant's range has nearest to it.
    if priority != 0 && !(min..=max).contains(&priority) {
        return Err(beyond_terms("priority", &min, &max, &priority));
    }
    Ok(priority.clamp(min, max) as i32)
}

/// 400: within the API's bounds, but not what this tenant may ask for.
fn beyond_terms(
    name: &str,
    min: &dyn std::fmt::Display,
    max: &dyn std::fmt::Display,
    got: &dyn std::fmt::Display,
) -> ApiError {
    let message = format!(
        "`{name}` must be between {min} and {max} for this key, got {got}; the server's operator \
         sets the range (--tenants, --enable-request-priority)"
    );
    ApiError::invalid(name, message)
}

fn stop_strings(fields: &Fields) -> Result<Vec<String>, ApiError> {
    let Some(raw) = fields.raw("stop") else { return Ok(Vec::new()) };
    let stop: Vec<String> = if raw.starts_with('[') {
        read_list("stop", raw, MAX_STOP_STRINGS)?
    } else {
        vec![read_json("stop", raw)?]
    };
    for text in &stop {
        if text.is_empty() || text.len() > MAX_STOP_BYTES {
            return Err(ApiError::invalid(
                "stop",
                format!("a stop string must have 1 to {MAX_STOP_BYTES} bytes, got {}", text.len()),
            ));
        }
    }
    Ok(stop)
}

fn stop_token_ids(fields: &Fields, model: ModelLimits) -> Result<Vec<u32>, ApiError> {
    let ids: Vec<u32> = fields.list("stop_token_ids", MAX_STOP_IDS)?.unwrap_or_default();
    match ids.iter().find(|&&id| id >= model.vocab_size) {
        Some(id) => Err(out_of_vocab("stop_token_ids", *id, model)),
        None => Ok(ids),
    }
}

/// 400: a token id that the model does not have.
pub(super) fn out_of_vocab(param: &str, id: u32, model: ModelLimits) -> ApiError {
    ApiError::invalid(
        param,
        format!("`{param}`: token id {id} is not below the vocabulary size {}", model.vocab_size),
    )
}

fn logit_bias(fields: &Fields, model: ModelLimits) -> Result<Vec<(u32, f32)>, ApiError> {
    let name = LOGIT_BIAS.name;
    let Some(raw) = fields.raw(name) else { return Ok(Vec::new()) };
    if raw.len() > MAX_LOGIT_BIAS_BYTES {
        return Err(ApiError::invalid(
            name,
            format!("`{name}` must have at most {MAX_LOGIT_BIAS_BYTES} bytes of JSON"),
        ));
    }
    let map: BTreeMap<String, &serde_json::value::RawValue> = read_json(name, raw)?;
    if map.len() > MAX_LOGIT_BIAS {
        return Err(ApiError::invalid(
            name,
            format!("`{name}` must have at most {MAX_LOGIT_BIAS} entries, got {}", map.len()),
        ));
    }
    let pair = |(key, bias): (String, &serde_json::value::RawValue)| {
        let id: u32 = key.parse().map_err(|_| {
            let shown = super::fields::cut(&key);
            ApiError::invalid(name, format!("`{name}`: `{shown}` is not a token id"))
        })?;
        if id >= model.vocab_size {
            return Err(out_of_vocab(name, id, model));
        }
        Ok((id, read_float(&LOGIT_BIAS, bias.get())? as f32))
    };
    map.into_iter().map(pair).collect()
}

/// A target in seconds, 0 if there is none. A complaint names the field or the header.
fn slo(
    fields: &Fields,
    (bound, targets): (&Float, Targets),
    (header_name, header): (&'static str, Option<&str>),
) -> Result<f32, ApiError> {
    let (name, ms) = match (fields.float(bound)?, header) {
        (Some(ms), _) => (bound.name, ms),
        (None, Some(text)) => {
            let bound = Float { name: header_name, ..*bound };
            (header_name, read_float(&bound, text.trim())?)
        }
        (None, None) => return Ok((targets.unnamed_ms / 1e3) as f32),
    };
    let Targets { min_ms, max_ms, .. } = targets;
    if !(min_ms..=max_ms).contains(&ms) {
        return Err(beyond_terms(name, &min_ms, &max_ms, &ms));
    }
    Ok((ms / 1000.0) as f32)
}

fn stream(fields: &Fields) -> Result<Option<StreamOptions>, ApiError> {
    let stream = fields.boolean("stream", false)?;
    let options = match fields.raw("stream_options") {
        None => StreamOptions::default(),
        Some(_) if !stream => {
            return Err(ApiError::invalid(
                "stream_options",
                "`stream_options` is only allowed when `stream` is true",
            ));
        }
        Some(raw) => {
            let inner = Fields::parse(raw.as_bytes())
                .map_err(|_| ApiError::invalid("stream_options", "must be an object"))?;
            StreamOptions {
                include_usage: inner.boolean("include_usage", false)?,
                continuous_usage_stats: inner.boolean("continuous_usage_stats", false)?,
            }
        }
    };
    Ok(stream.then_some(options))
}

/// A salt becomes the first 8 bytes of its SHA-256, never 0: clients must not be able to make
/// collisions.
pub fn hash_salt(salt: &str) -> u64 {
    first_word(&Sha256::digest(salt.as_bytes()))
}

/// The first 8 bytes of a digest, or of what there is; never 0.
pub fn first_word(digest: &[u8]) -> u64 {
    digest.iter().take(8).rfold(0, |word, byte| word << 8 | u64::from(*byte)).max(1)
}

fn visible_request_id(id: String) -> Result<String, ApiError> {
    if id.bytes().all(|b| b.is_ascii_graphic()) {
        return Ok(id);
    }
    Err(ApiError::invalid("request_id", "`request_id` must be visible ASCII without spaces"))
}
