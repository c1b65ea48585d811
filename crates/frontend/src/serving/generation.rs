//! All choices of one request together.

use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use saccade_ring::{Submission, SubmitError};
use tokio::time::{Sleep, sleep_until};

use super::Serving;
use super::choice::{Choice, ChoiceSettings, Delta};
use super::prepare::Prepared;
use crate::api_error::ApiError;
use crate::http::{Made, Tally, Times, Tokens};
use crate::metrics::{Finished, Metrics};
use crate::ring::Flight;
use crate::tenants::Admission;
use crate::validate::GenerateParams;

/// The choices of a request, in flight together. Dropping it cancels the unfinished ones.
pub struct Generation {
    choices: Vec<Choice>,
    prompts: Vec<usize>,
    /// Targets in seconds, of the first token and per token; 0 is the server's default.
    slo: (f32, f32),
    priority: i32,
    arrived: Instant,
    metrics: Arc<Metrics>,
    timeout: Option<Timeout>,
    /// What its tenant has in flight with it.
    admission: Admission,
    tally: Option<Arc<Tally>>,
    /// Code of the error that ended it.
    failure: Option<&'static str>,
    /// Why choices ended, in the order of their ends.
    finish_reasons: Vec<&'static str>,
    /// Where the next poll begins, so that no choice is always first.
    next: usize,
}

/// Ends a request that takes too long.
struct Timeout {
    limit: Duration,
    over: Pin<Box<Sleep>>,
}

impl Timeout {
    fn of(serving: &Serving, arrived: Instant) -> Option<Self> {
        let limit = serving.request_timeout?;
        let over = Box::pin(sleep_until((arrived + limit).into()));
        Some(Self { limit, over })
    }

    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<ApiError> {
        self.over.as_mut().poll(cx).map(|()| ApiError::request_timeout(self.limit))
    }
}

impl Generation {
    /// Submits `n` choices for each prompt: all of them, or none.
    ///
    /// # Errors
    /// 429 if they do not all fit now, 503 without a device, 400 for what breaks the wire's bounds
    /// or would not fit if nothing else waited.
    pub fn submit(
        serving: &Serving,
        prompts: &[Prepared],
        params: &GenerateParams,
        arrived: Instant,
        (admission, tally): (Admission, Option<Arc<Tally>>),
    ) -> Result<Self, ApiError> {
        let port = &serving.port;
        let wanted = prompts.len() * params.n as usize;
        check_arena(port.arena_bytes(), prompts, params)?;
        let seed = params.seed.map_or_else(random_seed, Ok)?;
        let mut choices = Vec::with_capacity(wanted);
        for prompt in prompts {
            let settings = Arc::new(settings(serving, prompt, params, arrived));
            for k in 0..params.n {
                let submission = submission(prompt, params, seed.wrapping_add(u64::from(k)));
                // An error drops the choices so far, which cancels them.
                let flight = Flight::submit(port, &serving.registry, serving.thread, &submission)
                    .map_err(|e| submit_error(e, serving.retry_after_s()))?;
                choices.push(Choice::new(settings.clone(), flight));
            }
        }
        Ok(Self {
            choices,
            prompts: prompts.iter().map(|p| p.ids.len()).collect(),
            slo: (params.slo_ttft_s, params.slo_tbt_s),
            priority: params.priority,
            arrived,
            metrics: serving.metrics.clone(),
            timeout: Timeout::of(serving, arrived),
            admission,
            tally,
            failure: None,
            finish_reasons: Vec::new(),
            next: 0,
        })
    }

    /// The next delta of any choice, with its index; `None` when all are over.
    ///
    /// # Errors
    /// When a choice ended without an answer. The request has failed then: drop it.
    pub async fn next(&mut self) -> Option<Result<(usize, Delta), ApiError>> {
        let next = poll_fn(|cx| self.poll_next(cx)).await;
        match &next {
            Some(Ok((index, Delta { finish: Some(reason), .. }))) => {
                self.finish_reasons.push(reason.as_str());
                self.metrics.finished(&self.account(*index, reason.as_str()));
                self.metrics.detokenized(self.choices[*index].spent());
            }
            Some(Err(error)) => {
                self.failure = Some(error.code);
                self.metrics.failed(error.code);
            }
            _ => {}
        }
        next
    }

    fn poll_next(
        &mut self,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<(usize, Delta), ApiError>>> {
        let count = self.choices.len();
        let mut open = false;
        for offset in 0..count {
            let index = (self.next + offset) % count;
            let choice = &mut self.choices[index];
            if choice.is_over() {
                continue;
            }
            open = true;
            if let Poll::Ready(delta) = choice.poll_delta(cx) {
                self.next = (index + 1) % count;
                return Poll::Ready(Some(delta.map(|delta| (index, delta))));
            }
        }
        if !open {
            return Poll::Ready(None);
        }
        match self.timeout.as_mut().map(|timeout| timeout.poll(cx)) {
            Some(Poll::Ready(error)) => Poll::Ready(Some(Err(error))),
            _ => Poll::Pending,
        }
    }

    fn account(&self, index: usize, reason: &'static str) -> Finished {
        let choice = &self.choices[index];
        let per_prompt = self.choices.len() / self.prompts.len();
        Finished {
            reason,
            prompt_tokens: self.prompts[index / per_prompt],
            tokens: choice.produced(),
            e2e: self.arrived.elapsed(),
            queued: choice.admitted().map(|at| at - self.arrived),
            ttft: choice.times().map(|(first, _)| first - self.arrived),
            decode: choice.times().map_or(Duration::ZERO, |(first, last)| last - first),
            slo_ttft_s: self.slo.0,
            slo_tpot_s: self.slo.1,
            priority: self.priority,
        }
    }

    /// Prompt tokens, each prompt once.
    pub fn prompt_tokens(&self) -> u64 {
        self.prompts.iter().map(|&len| len as u64).sum()
    }

    /// Of these, the tokens that were cached before any choice of their prompt was computed.
    pub fn cached_tokens(&self) -> u64 {
        let per_prompt = self.choices.len() / self.prompts.len();
        let least = |choices: &[Choice]| choices.iter().map(Choice::cached).min().unwrap_or(0);
        let of_prompts = self.choices.chunks(per_prompt).zip(&self.prompts);
        // A device that claims more than there is was wrong.
        of_prompts.map(|(choices, &len)| u64::from(least(choices)).min(len as u64)).sum()
    }

    fn times(&self) -> Times {
        let since_arrival = |at: Instant| at.saturating_duration_since(self.arrived);
        let tokens = || self.choices.iter().filter_map(Choice::times);
        Times {
            admitted: self.choices.iter().filter_map(Choice::admitted).min().map(since_arrival),
            first_token: tokens().map(|(first, _)| first).min().map(since_arrival),
            last_token: tokens().map(|(_, last)| last).max().map(since_arrival),
        }
    }

    /// Tokens of reasoning among these; `None` if reasoning is not looked for.
    pub fn reasoning_tokens(&self) -> Option<u64> {
        self.choices.iter().map(|c| c.reasoning_tokens().map(u64::from)).sum()
    }

    /// Tokens produced so far, all choices together.
    pub fn produced(&self) -> u64 {
        self.choices.iter().map(|c| u64::from(c.produced())).sum()
    }
}

impl Drop for Generation {
    fn drop(&mut self) {
        let per_prompt = (self.choices.len() / self.prompts.len().max(1)) as u64;
        if let Some(tally) = &self.tally {
            tally.made(Made {
                tokens: Tokens {
                    prompt: self.prompt_tokens(),
                    cached: self.cached_tokens(),
                    completion: self.produced(),
                },
                finish_reasons: std::mem::take(&mut self.finish_reasons),
                failure: self.failure,
                times: self.times(),
            });
        }
        self.admission.used(self.prompt_tokens() * per_prompt + self.produced());
        if self.failure.is_none() && self.choices.iter().any(|c| !c.is_over()) {
            self.metrics.cancelled();
        }
    }
}

pub(super) fn submission<'a>(
    prompt: &'a Prepared,
    params: &'a GenerateParams,
    seed: u64,
) -> Submission<'a> {
    Submission {
        prompt: &prompt.ids,
        logit_bias: &params.logit_bias,
        stop_ids: &params.stop_token_ids,
        grammar: prompt.grammar.as_deref().unwrap_or_default(),
        params: saccade_ring::RequestParams { seed, ..prompt.params },
    }
}

/// What a request takes of the arena: all choices are submitted at once, each with its own copy of
/// its prompt.
pub(super) fn arena_bytes_of(prompts: &[Prepared], params: &GenerateParams) -> u64 {
    let of_all = |p: &Prepared| u64::from(params.n) * submission(p, params, 0).arena_bytes();
    prompts.iter().map(of_all).sum()
}

/// What exceeds the arena never fits, and trying again does not help.
///
/// # Errors
/// 400
pub fn check_arena(
    arena_bytes: u64,
    prompts: &[Prepared],
    params: &GenerateParams,
) -> Result<(), ApiError> {
    let bytes = arena_bytes_of(prompts, params);
    if bytes <= arena_bytes {
        return Ok(());
    }
    Err(ApiError::invalid(
        "n",
        format!(
            "`n` times the prompts must take at most {arena_bytes} bytes of tokens, 4 each \
             (--arena-bytes of this server), got {bytes}"
        ),
    ))
}

fn settings(
    serving: &Serving,
    prompt: &Prepared,
    params: &GenerateParams,
    arrived: Instant,
) -> ChoiceSettings {
    let eos: &[u32] = if params.ignore_eos { &[] } else { &serving.assets.eos_ids };
    let prompt_records =
        if prompt.params.prompt_logprobs { prompt.ids.len() as u32 - 1 } else { 0 };
    ChoiceSettings {
        vocab: serving.assets.tokenizer.vocab().clone(),
        skip_special: params.skip_special_tokens,
        answer: prompt.answer.clone(),
        stop: params.stop.clone(),
        include_stop: params.include_stop_str_in_output,
        min_tokens: params.min_tokens,
        stop_ids: params.stop_token_ids.iter().chain(eos).copied().collect(),
        num_eos: eos.len(),
        logprobs: params.logprobs.is_some(),
        token_ids: params.return_token_ids,
        max_tokens: prompt.max_tokens,
        prompt_tokens: prompt.ids.len() as u32,
        prompt_records,
        arrived,
        metrics: serving.metrics.clone(),
    }
}

fn random_seed() -> Result<u64, ApiError> {
    getrandom::u64().map_err(|e| ApiError::internal(format!("no random seed: {e}")))
}

pub(super) fn submit_error(error: SubmitError, retry_after_s: u32) -> ApiError {
    match error {
        SubmitError::DeviceNotReady => ApiError::not_ready("the device is not ready"),
        SubmitError::SlotsFull => {
            ApiError::overloaded("all slots of this server are in use", retry_after_s)
        }
        SubmitError::ArenaFull => {
            ApiError::overloaded("the prompts that wait leave no room for this one", retry_after_s)
        }
        SubmitError::Invalid(message) => ApiError::invalid("body", message),
    }
}
