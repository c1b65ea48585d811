//! Prompts that begin alike are computed once, by a real server: what usage and metrics say of it,
//! and that no token changes.

mod common;

use common::{Result, Server, tokens_of};
use serde_json::{Value, json};

/// Tokens of a KV block, by default.
const BLOCK: u64 = 16;
const PREFILLED: &str = "saccade:device_prefill_tokens_total";

/// Several blocks of text, unlike those of other `n`.
fn document(n: usize) -> String {
    format!("{n}: {}", "In the beginning the earth was without form, and void. ".repeat(8))
}

fn body(prompt: &str) -> Value {
    json!({
        "model": "saccade-tiny", "prompt": prompt, "max_tokens": 12, "seed": 7,
        "temperature": 0.8, "ignore_eos": true, "logprobs": 3,
    })
}

struct Answer {
    /// Text and logprobs of each choice.
    choices: Value,
    prompt: u64,
    cached: u64,
    status: u16,
}

impl Answer {
    /// All full blocks of the prompt but the one with its last token.
    fn shareable(&self) -> u64 {
        (self.prompt - 1) / BLOCK * BLOCK
    }
}

async fn ask_with(server: &Server, key: Option<&str>, body: &Value) -> Result<Answer> {
    let mut request = server.http.post(format!("{}/v1/completions", server.url)).json(body);
    if let Some(key) = key {
        request = request.bearer_auth(key);
    }
    let answer = request.send().await?;
    let status = answer.status().as_u16();
    let answer: Value = answer.json().await?;
    let usage = &answer["usage"];
    Ok(Answer {
        choices: answer["choices"].clone(),
        prompt: usage["prompt_tokens"].as_u64().unwrap_or_default(),
        cached: usage["prompt_tokens_details"]["cached_tokens"].as_u64().unwrap_or_default(),
        status,
    })
}

async fn ask(server: &Server, body: &Value) -> Result<Answer> {
    let answer = ask_with(server, None, body).await?;
    assert_eq!(answer.status, 200, "{}", answer.choices);
    Ok(answer)
}

/// What a client learns of one choice, whole or in events.
#[derive(Debug, Default, PartialEq)]
struct Said {
    text: String,
    /// Of each token: itself, its logprob and its alternatives.
    tokens: Vec<String>,
    finish: String,
}

impl Said {
    /// Takes in an answer, or an event of a stream.
    fn add(&mut self, choice: &Value) {
        let part = [&choice["text"], &choice["message"]["content"], &choice["delta"]["content"]];
        self.text.extend(part.iter().filter_map(|text| text.as_str()));
        let logprobs = &choice["logprobs"];
        self.tokens.extend(tokens_of(logprobs));
        let chat = logprobs["content"].as_array().into_iter().flatten();
        self.tokens.extend(chat.map(Value::to_string));
        self.finish.push_str(choice["finish_reason"].as_str().unwrap_or_default());
    }
}

/// An answer, and the tokens of its prompt in all and from the cache.
async fn say(server: &Server, path: &str, body: &Value, stream: bool) -> Result<(Said, u64, u64)> {
    let mut body = body.clone();
    if stream {
        body["stream"] = json!(true);
        body["stream_options"] = json!({"include_usage": true});
    }
    let answer = server.http.post(format!("{}{path}", server.url)).json(&body).send().await?;
    let answer = answer.error_for_status()?.text().await?;
    let mut said = Said::default();
    let mut usage = Value::Null;
    let events = answer.split("\n\n").filter_map(|event| event.strip_prefix("data: "));
    let parts: Vec<&str> = if stream { events.collect() } else { vec![&answer] };
    for part in parts.iter().filter(|part| **part != "[DONE]") {
        let part: Value = serde_json::from_str(part)?;
        part["choices"].as_array().into_iter().flatten().for_each(|choice| said.add(choice));
        if part["usage"].is_object() {
            usage = part["usage"].clone();
        }
    }
    let cached = usage["prompt_tokens_details"]["cached_tokens"].as_u64().unwrap_or_default();
    Ok((said, usage["prompt_tokens"].as_u64().ok_or("no usage")?, cached))
}

async fn reset(server: &Server, key: Option<&str>) -> Result<u16> {
    let mut request = server.http.post(format!("{}/reset_prefix_cache", server.url));
    if let Some(key) = key {
        request = request.bearer_auth(key);
    }
    Ok(request.send().await?.status().as_u16())
}

#[tokio::test]
async fn an_equal_prompt_is_computed_once_until_a_reset() -> Result<()> {
    let server = Server::start(&[]).await?;
    let body = body(&document(1));
    let first = ask(&server, &body).await?;
    assert!(first.shareable() >= 4 * BLOCK, "a prompt of {} tokens", first.prompt);
    assert_eq!(first.cached, 0);
    let again = ask(&server, &body).await?;
    assert_eq!(again.cached, again.shareable());
    assert_eq!(again.choices, first.choices);
    let (asked, found) = (2 * first.prompt, again.cached);
    let minute = std::time::Duration::from_secs(60);
    server.until_metric("vllm:prefix_cache_queries_total", asked as f64, minute).await?;
    server.until_metric("vllm:prefix_cache_hits_total", found as f64, minute).await?;

    assert_eq!(reset(&server, None).await?, 200);
    let anew = ask(&server, &body).await?;
    assert_eq!(anew.cached, 0, "found what was filed before the reset");
    assert_eq!(anew.choices, first.choices);
    assert_eq!(ask(&server, &body).await?.cached, first.shareable());
    Ok(())
}

#[tokio::test]
async fn choices_compute_their_prompt_once() -> Result<()> {
    let server = Server::start(&[]).await?;
    let mut body = body(&document(2));
    body["n"] = json!(4);
    let four = ask(&server, &body).await?;
    assert_eq!(four.choices.as_array().map(Vec::len), Some(4));
    let rest = four.prompt - four.shareable();
    let computed = (four.prompt + 3 * rest) as f64;
    server.until_metric(PREFILLED, computed, std::time::Duration::from_secs(60)).await
}

#[tokio::test]
async fn without_prefix_caching_every_prompt_is_computed() -> Result<()> {
    let cached = Server::start(&[]).await?;
    let plain = Server::start(&["--no-enable-prefix-caching"]).await?;
    let body = body(&document(3));
    let expected = ask(&cached, &body).await?;
    for _ in 0..2 {
        let answer = ask(&plain, &body).await?;
        assert_eq!(answer.cached, 0);
        assert_eq!(answer.choices, expected.choices);
    }
    for name in ["vllm:prefix_cache_queries_total", "vllm:prefix_cache_hits_total"] {
        assert_eq!(plain.metric(name).await?, 0.0, "{name}");
    }
    assert_eq!(reset(&plain, None).await?, 200, "there is nothing to find either");
    for chat in [false, true] {
        same_streamed_or_not(&plain, &cached, chat).await?;
    }
    Ok(())
}

/// Without a cache, cold and warm, whole and in events.
async fn same_streamed_or_not(plain: &Server, cached: &Server, chat: bool) -> Result<()> {
    let path = if chat { "/v1/chat/completions" } else { "/v1/completions" };
    let mut body = body(&document(5 + usize::from(chat)));
    if chat {
        body["messages"] = json!([{"role": "user", "content": body["prompt"].take()}]);
        body["logprobs"] = json!(true);
        body["top_logprobs"] = json!(3);
        if let Some(body) = body.as_object_mut() {
            body.remove("prompt");
        }
    }
    let (expected, prompt, _) = say(plain, path, &body, false).await?;
    assert_eq!(expected.tokens.len(), 12, "{path}");
    let shareable = (prompt - 1) / BLOCK * BLOCK;
    for (server, stream, found) in
        [(plain, true, 0), (cached, true, 0), (cached, true, shareable), (cached, false, shareable)]
    {
        let got = say(server, path, &body, stream).await?;
        assert_eq!((&got.0, got.1, got.2), (&expected, prompt, found), "{path} {stream}");
    }
    assert_eq!(reset(cached, None).await?, 200);
    let cold = say(cached, path, &body, false).await?;
    assert_eq!((cold.0, cold.2), (expected, 0), "{path}");
    Ok(())
}

#[tokio::test]
async fn keys_share_nothing_with_each_other() -> Result<()> {
    let flags = ["--api-key", "one", "two", "--cache-salt-by-key"];
    let server = Server::start(&flags).await?;
    let body = body(&document(4));
    assert_eq!(ask_with(&server, None, &body).await?.status, 401);
    let first = ask_with(&server, Some("one"), &body).await?;
    assert_eq!((first.status, first.cached), (200, 0));
    let other = ask_with(&server, Some("two"), &body).await?;
    assert_eq!((other.status, other.cached), (200, 0), "one key found what another computed");
    assert_eq!(other.choices, first.choices);
    for key in ["one", "two"] {
        let again = ask_with(&server, Some(key), &body).await?;
        assert_eq!(again.cached, again.shareable(), "{key}");
    }
    assert_eq!(reset(&server, None).await?, 401);
    assert_eq!(reset(&server, Some("two")).await?, 200);
    assert_eq!(ask_with(&server, Some("one"), &body).await?.cached, 0);
    Ok(())
}

#[test]
fn flags_that_cannot_hold_are_refused_by_name() -> Result<()> {
    let refused = |flag: &str, words: [&str; 2]| -> Result<()> {
        let ended = std::process::Command::new(env!("CARGO_BIN_EXE_saccade"))
            .args(["serve", "--port", "0", flag])
            .env_remove("SACCADE_API_KEY")
            .env("SACCADE_ENABLE_PREFIX_CACHING", "true")
            .output()?;
        let said = String::from_utf8_lossy(&ended.stderr);
        assert!(!ended.status.success(), "{flag}");
        assert!(words.iter().all(|word| said.contains(word)), "{flag}: {said}");
        Ok(())
    };
    refused("--cache-salt-by-key", ["--cache-salt-by-key", "--api-key"])?;
    let both = ["--enable-prefix-caching", "--no-enable-prefix-caching"];
    refused("--no-enable-prefix-caching", both)
}
