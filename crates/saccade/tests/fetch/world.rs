//! Stores, servers that use them, and answers that can be compared.

use std::process::Command;
use std::time::{Duration, Instant};

use saccade_store::testing::{RedisServer, S3Server};
use serde_json::{Value, json};

use crate::common::{End, Result, Server, Streamed, tokens_of};

/// Longer than anything here takes on a busy machine.
pub const SOON: Duration = Duration::from_secs(60);
/// Tokens that are stored under one name.
pub const CHUNK: u64 = 256;
/// Loads whatever there is, however long it takes.
pub const PATIENT: [&str; 3] = ["--fetch-always", "--fetch-late-ms", "60000"];
/// KV of all documents of a test.
pub const ROOMY: [&str; 2] = ["--kv-cache-memory-bytes", "64000000"];
/// KV of two long documents at most: others are evicted, and looked for in the store.
pub const NARROW: [&str; 2] = ["--kv-cache-memory-bytes", "12000000"];

/// A store for one test.
pub enum Place {
    Folder(tempfile::TempDir),
    Redis(RedisServer),
    S3(S3Server),
}

impl Place {
    pub fn folder() -> Result<Place> {
        Ok(Place::Folder(tempfile::tempdir()?))
    }

    /// Every kind that can be started here.
    pub fn all() -> Result<Vec<Place>> {
        let s3 = S3Server::start().inspect(|server| server.make_bucket("chunks"));
        let redis = RedisServer::start(&[]).map(Place::Redis);
        Ok([Some(Place::folder()?), redis, s3.map(Place::S3)].into_iter().flatten().collect())
    }

    pub fn url(&self, namespace: &str) -> String {
        match self {
            Place::Folder(folder) => {
                format!("file://{}?namespace={namespace}", folder.path().display())
            }
            Place::Redis(server) => {
                format!("redis://{}/0?namespace={namespace}", server.address())
            }
            Place::S3(server) => {
                let endpoint = format!("endpoint=http://{}", server.address());
                format!("s3://chunks/kv?{endpoint}&region=us-east-1&namespace={namespace}")
            }
        }
    }
}

/// Starts a server with a store.
pub async fn serve(store: &str, flags: &[&[&str]]) -> Result<Server> {
    serve_by(Command::new(env!("CARGO_BIN_EXE_saccade")), store, flags).await
}

/// As [`serve`], by a command that ends in the program's name.
pub async fn serve_by(mut command: Command, store: &str, flags: &[&[&str]]) -> Result<Server> {
    command.envs(S3Server::variables());
    let own = ["--prefix-store", store, "--fetch-frame-bytes", "33554432"];
    let server = Server::launch(command, &[&own[..], &flags.concat()].concat()).await?;
    joined(&server, 1.0).await?;
    Ok(server)
}

/// Starts a server that computes every prompt.
pub async fn plain() -> Result<Server> {
    Server::start(&["--no-enable-prefix-caching"]).await
}

/// Waits for this many lives of the fetch plane.
pub async fn joined(server: &Server, lives: f64) -> Result<()> {
    at_least(server, "saccade:fetch_planes_joined_total", &[], lives).await
}

/// A prompt of token ids, unlike those of other `n`.
pub fn document(n: u64, tokens: u64) -> Vec<u64> {
    (0..tokens).map(|i| 10 + (n * 7919 + i * i * 31 + i * 17 + (i >> 5) * n) % 240).collect()
}

pub fn body(prompt: &[u64], max_tokens: u64) -> Value {
    json!({
        "model": "saccade-tiny", "prompt": prompt, "max_tokens": max_tokens, "seed": 7,
        "temperature": 0.8, "ignore_eos": true, "logprobs": 3, "return_tokens_as_token_ids": true,
    })
}

#[derive(Debug)]
pub struct Answer {
    pub said: Streamed,
    pub cached: u64,
}

impl Answer {
    /// Ids of the tokens that were said.
    pub fn ids(&self) -> Vec<u64> {
        let id = |token: &String| {
            let digits = token.strip_prefix("\"token_id:")?.split('"').next()?;
            digits.parse().ok()
        };
        self.said.logprobs.iter().filter_map(id).collect()
    }
}

pub async fn ask_as(server: &Server, key: Option<&str>, body: &Value) -> Result<Answer> {
    let mut request = server.http.post(format!("{}/v1/completions", server.url)).json(body);
    if let Some(key) = key {
        request = request.bearer_auth(key);
    }
    let answer = request.send().await?;
    let (status, answer) = (answer.status(), answer.json::<Value>().await?);
    assert!(status.is_success(), "{status}: {answer}");
    let (choice, usage) = (&answer["choices"][0], &answer["usage"]);
    let finish = choice["finish_reason"].as_str().unwrap_or_default();
    Ok(Answer {
        said: Streamed {
            text: choice["text"].as_str().unwrap_or_default().to_owned(),
            logprobs: tokens_of(&choice["logprobs"]),
            end: End::Done(finish.to_owned()),
        },
        cached: usage["prompt_tokens_details"]["cached_tokens"].as_u64().ok_or("no usage")?,
    })
}

pub async fn ask(server: &Server, body: &Value) -> Result<Answer> {
    ask_as(server, None, body).await
}

/// The value of a metric with these labels; 0 while there is none.
pub async fn count(server: &Server, name: &str, labels: &[(&str, &str)]) -> Result<f64> {
    let text = server.http.get(format!("{}/metrics", server.url)).send().await?.text().await?;
    let wanted: Vec<String> = labels.iter().map(|(k, v)| format!("{k}=\"{v}\"")).collect();
    let line = text.lines().find(|line| {
        line.strip_prefix(name).is_some_and(|rest| rest.starts_with(['{', ' ']))
            && wanted.iter().all(|label| line.contains(label))
    });
    Ok(line.and_then(|line| line.rsplit(' ').next()?.parse().ok()).unwrap_or_default())
}

/// Waits until a metric has reached a value.
pub async fn at_least(
    server: &Server,
    name: &str,
    labels: &[(&str, &str)],
    value: f64,
) -> Result<()> {
    let began = Instant::now();
    loop {
        let now = count(server, name, labels).await?;
        if now >= value {
            return Ok(());
        }
        if began.elapsed() > SOON {
            return Err(format!("{name} {labels:?} is {now}, less than {value}").into());
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

/// Commands of the fetch plane.
pub async fn commands(server: &Server, op: &str, result: &str) -> Result<f64> {
    count(server, "saccade:fetch_commands_total", &[("op", op), ("result", result)]).await
}

/// Waits until this many chunks are kept.
pub async fn stored(server: &Server, chunks: f64) -> Result<()> {
    let labels = [("op", "store"), ("result", "done")];
    at_least(server, "saccade:fetch_commands_total", &labels, chunks).await
}
