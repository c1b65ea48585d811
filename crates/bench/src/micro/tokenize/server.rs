//! The share of tokenization in a server's TTFT: batches of prompts sent as text, and again as
//! token ids, which the server need not tokenize.

use anyhow::Context;
use saccade_load::{
    Arrival, LoadSpec, Outcome, Priority, Prompt, Request, Run, Source, Target, Workload,
    run_on_own_thread,
};
use saccade_load::{nan_as_null, unknown};
use serde::{Deserialize, Serialize};
use tokenizers::Tokenizer;

use super::Setup;
use super::text::Prompts;
use crate::micro::stats::{Spread, median};
use crate::output::counted;

/// One batch size and length on a server, over the repeats.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct ServerRow {
    pub batch: usize,
    pub length: usize,
    /// From sending a batch of texts until the last of its first tokens, median.
    #[serde(with = "nan_as_null")]
    pub ttft_text_ms: f64,
    /// The same for a batch of token ids.
    #[serde(with = "nan_as_null")]
    pub ttft_ids_ms: f64,
    /// What the server spent on text: the difference within each repeat.
    pub difference_ms: Spread,
    /// The difference over the TTFT of text, of the same repeat.
    pub share: Spread,
    /// Prompt tokens of a request by the server's count, as text and as ids, if it says.
    pub server_tokens: Option<(f64, f64)>,
    /// Why there are no times.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub failed: Option<String>,
}

impl ServerRow {
    fn failed(batch: usize, length: usize, why: String) -> ServerRow {
        ServerRow {
            batch,
            length,
            ttft_text_ms: unknown(),
            ttft_ids_ms: unknown(),
            difference_ms: Spread::NONE,
            share: Spread::NONE,
            server_tokens: None,
            failed: Some(why),
        }
    }

    /// Of the times of both forms, one entry for each repeat.
    fn of(batch: usize, length: usize, text: &Form, ids: &Form) -> ServerRow {
        let pairs = || text.ttft_ms.iter().zip(&ids.ttft_ms);
        let counted = !text.prompt_tokens.is_empty() && !ids.prompt_tokens.is_empty();
        let tokens = || (median(&text.prompt_tokens), median(&ids.prompt_tokens));
        ServerRow {
            batch,
            length,
            ttft_text_ms: median(&text.ttft_ms),
            ttft_ids_ms: median(&ids.ttft_ms),
            difference_ms: Spread::of(pairs().map(|(text, ids)| text - ids)),
            share: Spread::of(pairs().map(|(text, ids)| (text - ids) / text)),
            server_tokens: counted.then(tokens),
            failed: None,
        }
    }
}

/// Times of one form of prompts.
#[derive(Debug, Default)]
struct Form {
    ttft_ms: Vec<f64>,
    prompt_tokens: Vec<f64>,
}

/// Measures every batch size and length.
///
/// # Errors
/// If the server cannot be reached; that it refuses a length is a result.
pub(super) fn measure(
    setup: &Setup,
    target: &Target,
    tokenizer: &Tokenizer,
    prompts: &mut Prompts,
) -> anyhow::Result<Vec<ServerRow>> {
    let mut rows = Vec::new();
    // The first run asks the server what it is; the others need not.
    let first = send(setup, target, vec![Prompt::Text(prompts.next(16))])?;
    let target = first.target;
    for &length in &setup.lengths {
        for &batch in &setup.batches {
            let tokens = counted(length, "token");
            eprintln!("tokenize: {batch} x {tokens} to {}", target.base_url);
            rows.push(measure_one(setup, &target, tokenizer, prompts, batch, length)?);
        }
    }
    Ok(rows)
}

fn measure_one(
    setup: &Setup,
    target: &Target,
    tokenizer: &Tokenizer,
    prompts: &mut Prompts,
    batch: usize,
    length: usize,
) -> anyhow::Result<ServerRow> {
    let (mut text, mut ids) = (Form::default(), Form::default());
    for repeat in 0..setup.repeats {
        // Each form goes first as often as the other. No prompt is sent twice: a prefix cache
        // would answer the second.
        for as_text in [repeat % 2 == 0, repeat % 2 != 0] {
            let batch_prompts: anyhow::Result<Vec<Prompt>> = (0..batch)
                .map(|_| prompts.next(length))
                .map(|p| if as_text { Ok(Prompt::Text(p)) } else { to_ids(tokenizer, &p) })
                .collect();
            let run = send(setup, target, batch_prompts?)?;
            let form = if as_text { &mut text } else { &mut ids };
            if let Err(why) = form.take(&run) {
                return Ok(ServerRow::failed(batch, length, why));
            }
        }
    }
    Ok(ServerRow::of(batch, length, &text, &ids))
}

impl Form {
    /// Takes the times of one batch, or says what went wrong with it.
    fn take(&mut self, run: &Run) -> Result<(), String> {
        let sent_s = run.requests.iter().map(|r| r.sent_s).fold(f64::INFINITY, f64::min);
        let mut last_s = sent_s;
        for request in &run.requests {
            match (&request.outcome, request.first_token_s) {
                (Outcome::Ok, Some(first_s)) => last_s = last_s.max(first_s),
                (Outcome::Ok, None) => return Err("an answer without a token".into()),
                (outcome, _) => {
                    let why = request.message().map(|why| format!(": {why}")).unwrap_or_default();
                    return Err(outcome.kind() + &why);
                }
            }
            self.prompt_tokens.extend(request.prompt_tokens.map(f64::from));
        }
        self.ttft_ms.push((last_s - sent_s) * 1e3);
        Ok(())
    }
}

fn to_ids(tokenizer: &Tokenizer, text: &str) -> anyhow::Result<Prompt> {
    let encoding = tokenizer.encode_fast(text, true).map_err(|e| anyhow::anyhow!("{e}"))?;
    Ok(Prompt::Ids(encoding.get_ids().to_vec()))
}

/// Sends all prompts at once, one token each.
fn send(setup: &Setup, target: &Target, prompts: Vec<Prompt>) -> anyhow::Result<Run> {
    let count = prompts.len();
    let request = |prompt| Request { prompt, max_tokens: 1, exact: false };
    let requests = prompts.into_iter().map(request).collect();
    let workload = Workload::of(Source::List { requests });
    let arrival = Arrival::Closed { concurrency: count };
    let spec = LoadSpec {
        request_timeout_s: setup.request_timeout_s,
        drain_timeout_s: setup.request_timeout_s,
        ..LoadSpec::new(arrival, workload, count as u64)
    };
    run_on_own_thread(target, &spec, &(), Priority::Normal).with_context(|| target.base_url.clone())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn differences_are_taken_within_repeats() {
        let form = |ttft_ms: &[f64]| Form { ttft_ms: ttft_ms.to_vec(), prompt_tokens: vec![] };
        // A slow repeat is slow for both forms: it is no difference.
        let row = ServerRow::of(1, 32, &form(&[40.0, 400.0, 50.0]), &form(&[30.0, 390.0, 30.0]));
        assert_eq!((row.ttft_text_ms, row.ttft_ids_ms), (50.0, 30.0));
        assert_eq!(row.difference_ms, Spread { p50: 10.0, min: 10.0, max: 20.0 });
        assert_eq!(row.share, Spread { p50: 0.25, min: 0.025, max: 0.4 });
    }
}
