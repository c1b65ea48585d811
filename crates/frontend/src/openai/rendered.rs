//! A prompt that was rendered and not sent, as vLLM's `render` endpoints answer with it.

use std::collections::BTreeMap;

use serde::Serialize;

use crate::serving::Prepared;
use crate::validate::{GenerateParams, StreamOptions};

/// All of it but the prompt's ids and text.
#[derive(Debug, Serialize)]
pub struct Rendered<'a> {
    request_id: &'a str,
    model: &'a str,
    /// Images and the like: there are none.
    features: Option<()>,
    sampling_params: SamplingParams<'a>,
    stream: bool,
    stream_options: Option<StreamOptions>,
    priority: i32,
}

/// What holds for the answer, defaults filled in.
#[derive(Debug, Serialize)]
struct SamplingParams<'a> {
    n: u32,
    presence_penalty: f32,
    frequency_penalty: f32,
    repetition_penalty: f32,
    temperature: f32,
    top_p: f32,
    top_k: u32,
    min_p: f32,
    seed: Option<i64>,
    stop: &'a [String],
    stop_token_ids: &'a [u32],
    ignore_eos: bool,
    max_tokens: u32,
    min_tokens: u32,
    logprobs: Option<u32>,
    prompt_logprobs: Option<u32>,
    skip_special_tokens: bool,
    include_stop_str_in_output: bool,
    logit_bias: Option<BTreeMap<u32, f32>>,
}

impl<'a> Rendered<'a> {
    /// Of one prompt. `echo`: the answer has the prompt's logprobs too, if it has any.
    pub fn new(
        (request_id, model): (&'a str, &'a str),
        prompt: &Prepared,
        params: &'a GenerateParams,
        echo: bool,
    ) -> Self {
        Self {
            request_id,
            model,
            features: None,
            sampling_params: SamplingParams::of(prompt, params, echo),
            stream: params.stream.is_some(),
            stream_options: params.stream,
            priority: params.priority,
        }
    }
}

impl<'a> SamplingParams<'a> {
    fn of(prompt: &Prepared, asked: &'a GenerateParams, echo: bool) -> Self {
        let holds = &prompt.params;
        let bias: BTreeMap<u32, f32> = asked.logit_bias.iter().copied().collect();
        Self {
            n: asked.n,
            presence_penalty: holds.presence_penalty,
            frequency_penalty: holds.frequency_penalty,
            repetition_penalty: holds.repetition_penalty,
            temperature: holds.temperature,
            top_p: holds.top_p,
            top_k: holds.top_k,
            min_p: holds.min_p,
            // The bits of what the client wrote.
            seed: asked.seed.map(|bits| bits as i64),
            stop: &asked.stop,
            stop_token_ids: &asked.stop_token_ids,
            ignore_eos: asked.ignore_eos,
            max_tokens: prompt.max_tokens,
            min_tokens: asked.min_tokens,
            logprobs: asked.logprobs,
            prompt_logprobs: asked.prompt_logprobs.or(asked.logprobs.filter(|_| echo)),
            skip_special_tokens: asked.skip_special_tokens,
            include_stop_str_in_output: asked.include_stop_str_in_output,
            logit_bias: (!bias.is_empty()).then_some(bias),
        }
    }
}
