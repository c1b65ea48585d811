//! The embeddings of one request: all inputs in flight together, and what is made of what comes.

use std::future::poll_fn;
use std::sync::Arc;
use std::time::{Duration, Instant};

use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use saccade_model::{Dimensions, EmbeddingConfig};
use saccade_ring::Finish;
use tokio::time::timeout_at;

use super::Serving;
use super::choice::{let_go, no_answer};
use super::generation::{arena_bytes_of, submission, submit_error};
use super::prepare::Prepared;
use crate::api_error::ApiError;
use crate::http::{Made, Tally, Times, Tokens};
use crate::metrics::{Finished, Metrics};
use crate::ring::Flight;
use crate::tenants::Admission;
use crate::validate::GenerateParams;

/// What a hidden state becomes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct EmbeddingForm {
    /// Values that are kept, the first ones.
    dimensions: usize,
    /// The Euclidean length of what is kept is made 1.
    normalize: bool,
}

impl EmbeddingForm {
    /// What was asked of a model whose device gives `size` values.
    ///
    /// # Errors
    /// 400 for values that the model was not trained to have, and for a model whose embeddings are
    /// not made in this way.
    pub fn of(
        config: &EmbeddingConfig,
        size: u32,
        dimensions: Option<u32>,
        normalize: Option<bool>,
    ) -> Result<Self, ApiError> {
        if let Some(reason) = &config.refused {
            let message = format!("embeddings of this model are not implemented: {reason}");
            return Err(ApiError::invalid("model", message));
        }
        let normalize = normalize.unwrap_or(config.normalize);
        let Some(wanted) = dimensions else {
            return Ok(Self { dimensions: size as usize, normalize });
        };
        let refused = |message| Err(ApiError::invalid("dimensions", message));
        match &config.dimensions {
            Dimensions::Whole => refused(
                "`dimensions`: the model does not support matryoshka representation, so other \
                 output dimensions would lead to poor results"
                    .into(),
            ),
            Dimensions::Of(list) if !list.contains(&wanted) => {
                refused(format!("`dimensions` must be one of {list:?}, got {wanted}"))
            }
            _ if wanted > size => {
                refused(format!("`dimensions` must be at most {size}, got {wanted}"))
            }
            _ => Ok(Self { dimensions: wanted as usize, normalize }),
        }
    }

    /// The embedding, or `None` for a state that is no vector of numbers.
    fn made_of(self, mut values: Vec<f32>) -> Option<Vec<f32>> {
        values.truncate(self.dimensions);
        if !values.iter().all(|value| value.is_finite()) {
            return None;
        }
        if self.normalize {
            let square = |value: &f32| f64::from(*value) * f64::from(*value);
            // Where all values are 0 there is no direction: they stay.
            let length = values.iter().map(square).sum::<f64>().sqrt().max(f64::MIN_POSITIVE);
            values.iter_mut().for_each(|value| *value = (f64::from(*value) / length) as f32);
        }
        Some(values)
    }
}

/// The embeddings of a request, and what they took.
pub struct Embedded {
    /// By input.
    pub values: Vec<Vec<f32>>,
    /// Tokens of all inputs.
    pub prompt_tokens: u64,
    /// Of these, what was not computed.
    pub cached_tokens: u64,
}

/// Submits all inputs, or none, and waits for their embeddings. Dropped before that, it cancels
/// the ones that have not come.
///
/// # Errors
/// 429 if they do not all fit now, 503 without a device, 400 for what would not fit if nothing else
/// waited; and of the first input that ended without an embedding.
pub async fn embed(
    serving: &Serving,
    prompts: &[Prepared],
    (params, form): (&GenerateParams, EmbeddingForm),
    arrived: Instant,
    (admission, tally): (Admission, Option<Arc<Tally>>),
) -> Result<Embedded, ApiError> {
    check_arena(serving.port.arena_bytes(), prompts, params)?;
    let mut open = FuturesUnordered::new();
    for (index, prompt) in prompts.iter().enumerate() {
        let submission = submission(prompt, params, 0);
        // An error drops the inputs so far, which cancels them.
        let flight = Flight::submit(&serving.port, &serving.registry, serving.thread, &submission)
            .map_err(|e| submit_error(e, serving.retry_after_s()))?;
        open.push(wait(index, flight, prompt.params.embedding_size as usize, form));
    }
    let mut account = Account::new(serving, prompts, params, arrived, (admission, tally));
    let gather = async {
        while let Some(done) = open.next().await {
            account.take(done?);
        }
        Ok(())
    };
    let gathered = match serving.request_timeout {
        None => gather.await,
        Some(limit) => timeout_at((arrived + limit).into(), gather)
            .await
            .unwrap_or_else(|_| Err(ApiError::request_timeout(limit))),
    };
    gathered.inspect_err(|error| account.fail(error.code))?;
    Ok(account.embedded())
}

/// What exceeds the arena never fits, and trying again does not help.
fn check_arena(
    arena_bytes: u64,
    prompts: &[Prepared],
    params: &GenerateParams,
) -> Result<(), ApiError> {
    let bytes = arena_bytes_of(prompts, params);
    if bytes <= arena_bytes {
        return Ok(());
    }
    let tokens: usize = prompts.iter().map(|p| p.ids.len()).sum();
    Err(ApiError::invalid(
        "input",
        format!(
            "`input` must take at most {arena_bytes} bytes of tokens, 4 each (--arena-bytes of \
             this server), got {bytes}: {tokens} tokens of {} inputs",
            prompts.len()
        ),
    ))
}

/// What came of one input.
struct Done {
    index: usize,
    values: Vec<f32>,
    cached: u32,
    admitted: Option<Instant>,
    at: Instant,
}

/// Waits for one input's embedding.
async fn wait(
    index: usize,
    flight: Flight,
    size: usize,
    form: EmbeddingForm,
) -> Result<Done, ApiError> {
    let mut values = Vec::with_capacity(size);
    let end = loop {
        if let Some(end) = poll_fn(|cx| flight.poll_embedding(&mut values, cx)).await {
            break end;
        }
    };
    let at = Instant::now();
    let mailbox = flight.mailbox();
    let (cached, admitted) = (mailbox.cached(), mailbox.admitted());
    match let_go(end, Some(flight))? {
        Finish::Stop if values.len() == size => {}
        Finish::Stop | Finish::Length => {
            return Err(ApiError::internal("the device gave no embedding"));
        }
        other => return Err(no_answer(other)),
    }
    let made = form.made_of(values);
    let values = made.ok_or_else(|| ApiError::internal("the model's step gave no numbers"))?;
    Ok(Done { index, values, cached, admitted, at })
}

/// What is counted of a request, and told of it when it is over.
struct Account {
    prompts: Vec<usize>,
    values: Vec<Vec<f32>>,
    cached_tokens: u64,
    /// Inputs whose embeddings came.
    done: usize,
    times: Times,
    /// Targets in seconds; 0 is the server's default.
    slo: (f32, f32),
    priority: i32,
    arrived: Instant,
    metrics: Arc<Metrics>,
    /// What its tenant has in flight with it.
    admission: Admission,
    tally: Option<Arc<Tally>>,
    /// Code of the error that ended it.
    failure: Option<&'static str>,
}

impl Account {
    fn new(
        serving: &Serving,
        prompts: &[Prepared],
        params: &GenerateParams,
        arrived: Instant,
        (admission, tally): (Admission, Option<Arc<Tally>>),
    ) -> Self {
        Self {
            prompts: prompts.iter().map(|p| p.ids.len()).collect(),
            values: vec![Vec::new(); prompts.len()],
            cached_tokens: 0,
            done: 0,
            times: Times::default(),
            slo: (params.slo_ttft_s, params.slo_tbt_s),
            priority: params.priority,
            arrived,
            metrics: serving.metrics.clone(),
            admission,
            tally,
            failure: None,
        }
    }

    fn take(&mut self, done: Done) {
        let prompt_tokens = self.prompts[done.index];
        let took = done.at.saturating_duration_since(self.arrived);
        let queued = done.admitted.map(|at| at.saturating_duration_since(self.arrived));
        self.metrics.prompted(prompt_tokens as u32);
        self.metrics.finished(&Finished {
            reason: "stop",
            prompt_tokens,
            tokens: 0,
            e2e: took,
            queued,
            // It is what the first token is elsewhere.
            ttft: Some(took),
            decode: Duration::ZERO,
            slo_ttft_s: self.slo.0,
            slo_tpot_s: self.slo.1,
            priority: self.priority,
        });
        self.times.admitted = self.times.admitted.into_iter().chain(queued).min();
        // A device that claims more than there is was wrong.
        self.cached_tokens += u64::from(done.cached).min(prompt_tokens as u64);
        self.values[done.index] = done.values;
        self.done += 1;
    }

    fn fail(&mut self, code: &'static str) {
        self.failure = Some(code);
        self.metrics.failed(code);
    }

    fn prompt_tokens(&self) -> u64 {
        self.prompts.iter().map(|&len| len as u64).sum()
    }

    fn embedded(&mut self) -> Embedded {
        Embedded {
            values: std::mem::take(&mut self.values),
            prompt_tokens: self.prompt_tokens(),
            cached_tokens: self.cached_tokens,
        }
    }
}

impl Drop for Account {
    fn drop(&mut self) {
        let prompt = self.prompt_tokens();
        if let Some(tally) = &self.tally {
            tally.made(Made {
                tokens: Tokens { prompt, cached: self.cached_tokens, completion: 0 },
                finish_reasons: vec!["stop"; self.done],
                failure: self.failure,
                times: self.times,
            });
        }
        self.admission.used(prompt);
        if self.failure.is_none() && self.done < self.prompts.len() {
            self.metrics.cancelled();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn config(dimensions: Dimensions) -> EmbeddingConfig {
        EmbeddingConfig { dimensions, normalize: true, refused: None }
    }

    fn form(dimensions: Dimensions, asked: Option<u32>) -> Result<usize, String> {
        let form = EmbeddingForm::of(&config(dimensions), 8, asked, None);
        form.map(|form| form.dimensions).map_err(|error| {
            assert_eq!(error.param.as_deref(), Some("dimensions"));
            error.message
        })
    }

    #[test]
    fn only_models_that_were_trained_for_it_have_fewer_values() {
        assert_eq!(form(Dimensions::Whole, None), Ok(8));
        assert!(form(Dimensions::Whole, Some(8)).is_err_and(|e| e.contains("matryoshka")));
        assert_eq!(form(Dimensions::Any, Some(3)), Ok(3));
        assert!(form(Dimensions::Any, Some(9)).is_err_and(|e| e.contains("at most 8")));
        assert_eq!(form(Dimensions::Of(vec![2, 4, 16]), Some(4)), Ok(4));
        assert!(form(Dimensions::Of(vec![2, 4]), Some(3)).is_err_and(|e| e.contains("[2, 4]")));
        assert!(form(Dimensions::Of(vec![16]), Some(16)).is_err_and(|e| e.contains("at most 8")));
        assert_eq!(form(Dimensions::Of(vec![2, 4]), None), Ok(8));
    }

    #[test]
    fn a_model_that_pools_otherwise_is_refused_with_the_reason() {
        let refused = Some("1_Pooling/config.json: mean".to_owned());
        let config = EmbeddingConfig { refused, ..config(Dimensions::Whole) };
        let error = EmbeddingForm::of(&config, 8, None, None).unwrap_err();
        assert!(error.message.contains("1_Pooling/config.json: mean"), "{}", error.message);
    }

    #[test]
    fn what_is_kept_has_length_one_unless_it_shall_not() {
        let made = |dimensions, normalize, values: &[f32]| {
            EmbeddingForm { dimensions, normalize }.made_of(values.to_vec())
        };
        assert_eq!(made(2, true, &[3.0, -4.0, 12.0]), Some(vec![0.6, -0.8]));
        assert_eq!(made(3, false, &[3.0, -4.0, 12.0]), Some(vec![3.0, -4.0, 12.0]));
        assert_eq!(made(2, true, &[0.0, 0.0]), Some(vec![0.0, 0.0]));
        assert_eq!(made(2, true, &[f32::MAX, 0.0]), Some(vec![1.0, 0.0]), "no overflow");
        assert_eq!(made(1, true, &[f32::MIN_POSITIVE / 4.0]), Some(vec![1.0]), "no underflow");
        assert_eq!(made(2, true, &[1.0, f32::NAN]), None);
        assert_eq!(made(2, false, &[f32::INFINITY, 1.0]), None);
        assert_eq!(made(1, true, &[1.0, f32::NAN]), Some(vec![1.0]), "what is cut off");
    }
}
