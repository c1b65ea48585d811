//! `saccade kv warm`: sends prompts to a server, whose fetch plane then stores their KV.

mod metrics;
mod prompts;

use std::collections::BTreeMap;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::bail;
use bytes::Bytes;
use futures_util::stream::{self, StreamExt};
use saccade_chunk::CHUNK_TOKENS;
use saccade_load::{Session, Target};
use serde::Serialize;
use serde_json::Value;

use crate::args::WarmArgs;
use crate::text::{bar, bytes, count};
use metrics::{Fetch, Stored, until_stored};
use prompts::Request;

/// Version of the object that `--json` prints.
const SCHEMA: u32 = 1;
/// Of one request: a long prompt behind others.
const TIMEOUT: Duration = Duration::from_secs(600);
/// Failures that are told apart by their words.
const MAX_MESSAGES: usize = 16;

/// What happened so far; also what `--json` prints.
#[derive(Debug, Default, Serialize)]
struct Warmed {
    schema: u32,
    url: String,
    prompts: u64,
    answered: u64,
    failed: u64,
    /// What failures said, and how often.
    messages: BTreeMap<String, u64>,
    prompt_tokens: u64,
    /// Of these, found on the server or in the store.
    cached_tokens: u64,
    stored: Stored,
    interrupted: bool,
}

pub(crate) async fn run(args: &WarmArgs) -> anyhow::Result<ExitCode> {
    let requests = prompts::read(&args.prompts)?;
    let mut warmed = Warmed {
        schema: SCHEMA,
        url: args.url.clone(),
        prompts: requests.len() as u64,
        ..Warmed::default()
    };
    match crate::unless_interrupted(warm(args, requests, &mut warmed)).await? {
        Some(done) => done?,
        None => warmed.interrupted = true,
    }
    let text = if args.json { serde_json::to_string_pretty(&warmed)? } else { warmed.text() };
    crate::print(&text)?;
    if warmed.interrupted {
        return Ok(crate::interrupted());
    }
    let Stored { lost, unfinished, .. } = warmed.stored;
    let is_all = warmed.failed + lost + unfinished == 0;
    Ok(if is_all { ExitCode::SUCCESS } else { ExitCode::from(crate::EXIT_WRONG) })
}

async fn warm(args: &WarmArgs, requests: Vec<Request>, warmed: &mut Warmed) -> anyhow::Result<()> {
    let mut target = Target::new(&args.url);
    target.api_key = args.api_key.clone().filter(|key| !key.is_empty());
    let session = Session::new(&target, args.concurrency, TIMEOUT).await?;
    let before = Fetch::look(&session).await?;
    check(&before, &args.url)?;
    let default = match &args.model {
        Some(model) => model.clone(),
        None => session.first_model().await?,
    };
    let bodies = requests.into_iter().map(|request| {
        let Request { path, mut body } = request;
        if args.model.is_some() || !body.contains_key("model") {
            body.insert("model".to_owned(), Value::String(default.clone()));
        }
        (path, Bytes::from(Value::Object(body).to_string()))
    });
    let bar = bar("warming", warmed.prompts);
    let mut answers = stream::iter(bodies)
        .map(|(path, body)| ask(&session, path, body))
        .buffer_unordered(args.concurrency);
    while let Some(answer) = answers.next().await {
        warmed.add(answer);
        bar.inc(1);
        bar.set_message(format!("{} prompt tokens", warmed.prompt_tokens));
    }
    let within = Duration::from_secs(args.wait_s);
    warmed.stored = until_stored(&session, &before, within, |stored| {
        let (done, left) = (count(stored.chunks, "chunk"), stored.unfinished);
        bar.set_message(format!("{done} stored, {left} on their way"));
    })
    .await?;
    bar.finish_and_clear();
    Ok(())
}

fn check(fetch: &Fetch, url: &str) -> anyhow::Result<()> {
    if fetch.frames == 0.0 {
        bail!("{url} stores no KV: start it as saccade serve --prefix-store URL");
    }
    if fetch.alive == 0.0 {
        bail!("{url}: its fetch plane does not run; its log says why");
    }
    if fetch.breaker == 1.0 {
        bail!("{url}: its store fails and is left alone for now");
    }
    Ok(())
}

/// Tokens of the prompt, and those that were cached.
async fn ask(session: &Session, path: &str, body: Bytes) -> Result<(u64, u64), String> {
    let answer = session.post(path, body).await.map_err(|error| error.to_string())?;
    if answer.status != 200 {
        return Err(answer.message());
    }
    let answer: Value = serde_json::from_slice(&answer.body).map_err(|error| error.to_string())?;
    let usage = &answer["usage"];
    let number = |value: &Value| value.as_u64().unwrap_or(0);
    let cached = number(&usage["prompt_tokens_details"]["cached_tokens"]);
    Ok((number(&usage["prompt_tokens"]), cached))
}

impl Warmed {
    fn add(&mut self, answer: Result<(u64, u64), String>) {
        match answer {
            Ok((prompt, cached)) => {
                self.answered += 1;
                self.prompt_tokens += prompt;
                self.cached_tokens += cached;
            }
            Err(message) => {
                self.failed += 1;
                if self.messages.len() < MAX_MESSAGES || self.messages.contains_key(&message) {
                    *self.messages.entry(message).or_insert(0) += 1;
                }
            }
        }
    }

    fn text(&self) -> String {
        let Self { answered, failed, prompt_tokens, cached_tokens, stored, .. } = self;
        let prompts = count(self.prompts, "prompt");
        let mut text = format!(
            "{}\n\n{prompts}: {answered} answered, {failed} failed; {prompt_tokens} tokens, \
             {cached_tokens} of them cached",
            self.url
        );
        for (message, n) in &self.messages {
            text += &format!("\n  {n} x {message}");
        }
        if self.interrupted {
            return text;
        }
        let chunks = count(stored.chunks, "chunk");
        text += &format!("\nstored {chunks} of {CHUNK_TOKENS} tokens, {}", bytes(stored.bytes));
        if stored.lost > 0 {
            text += &format!("\n{} could not be stored", count(stored.lost, "chunk"));
        }
        if stored.unfinished > 0 {
            text += &format!(
                "\n{} still on the way: --wait-s waits longer",
                count(stored.unfinished, "chunk")
            );
        }
        text
    }
}
