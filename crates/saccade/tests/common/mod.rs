//! A running server for a test: the real binary, all planes, on a free port.
#![allow(dead_code, missing_docs)] // each test binary uses its part

use std::net::TcpListener;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use futures_util::StreamExt;
use serde_json::{Value, json};

pub type Result<T> = std::result::Result<T, Box<dyn std::error::Error + Send + Sync>>;

/// How long a server may take to be ready, on a busy machine.
const READY_WITHIN: Duration = Duration::from_secs(60);

pub struct Server {
    /// None: another owns the process.
    child: Option<Child>,
    pub url: String,
    pub http: reqwest::Client,
}

/// A request whose choices are there at once, however busy the host. They alone need more than 64
/// blocks of 8 tokens.
pub fn crowd() -> Value {
    json!({"prompt": "x", "n": 8, "max_tokens": 200, "ignore_eos": true})
}

impl Server {
    /// Starts `saccade serve` with the bundled model and these flags; returns when it is ready.
    pub async fn start(flags: &[&str]) -> Result<Server> {
        let command = Command::new(env!("CARGO_BIN_EXE_saccade"));
        Server::launch(command, &[&["--kv-cache-memory-bytes", "64000000"], flags].concat()).await
    }

    /// Starts what `command` begins, which names the program, with these flags and no others.
    pub async fn launch(mut command: Command, flags: &[&str]) -> Result<Server> {
        let port = TcpListener::bind("127.0.0.1:0")?.local_addr()?.port();
        let child = command
            .args(["serve", "--port", &port.to_string()])
            .args(flags)
            .env("SACCADE_LOG", "warn")
            .stdin(Stdio::null())
            .spawn()?;
        let url = format!("http://127.0.0.1:{port}");
        let server = Server { child: Some(child), url, http: reqwest::Client::new() };
        server.until_ready(READY_WITHIN).await?;
        Ok(server)
    }

    /// A server that runs, at this URL, for what only speaks HTTP.
    pub fn existing(url: &str) -> Server {
        Server { child: None, url: url.into(), http: reqwest::Client::new() }
    }

    /// Waits until /ready answers 200; returns how long that took.
    pub async fn until_ready(&self, within: Duration) -> Result<Duration> {
        let start = Instant::now();
        while start.elapsed() < within {
            if let Ok(answer) = self.http.get(format!("{}/ready", self.url)).send().await
                && answer.status().is_success()
            {
                return Ok(start.elapsed());
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        Err(format!("not ready within {within:?}").into())
    }

    pub fn pid(&self) -> u32 {
        self.child.as_ref().expect("a process of its own").id()
    }

    /// Process ids of the planes of a kind (`device` or `frontend`).
    pub fn planes(&self, kind: &str) -> Vec<u32> {
        let mut planes = children_of(self.pid());
        planes.retain(|pid| {
            let line = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
            line.split(|b| *b == 0).nth(1) == Some(kind.as_bytes())
        });
        planes
    }

    pub fn signal(&self, pid: u32, signal: i32) {
        // SAFETY: a signal to a process that this test started.
        unsafe { libc::kill(pid as i32, signal) };
    }

    pub async fn post(&self, path: &str, body: &Value) -> Result<(u16, Value)> {
        let answer = self.http.post(format!("{}{path}", self.url)).json(body).send().await?;
        Ok((answer.status().as_u16(), answer.json().await?))
    }

    /// The value of a metric without labels other than the model's.
    pub async fn metric(&self, name: &str) -> Result<f64> {
        let text = self.http.get(format!("{}/metrics", self.url)).send().await?.text().await?;
        let line = text
            .lines()
            .find(|l| l.strip_prefix(name).is_some_and(|rest| rest.starts_with(['{', ' '])))
            .ok_or_else(|| format!("no metric {name}"))?;
        Ok(line.rsplit(' ').next().unwrap_or_default().parse()?)
    }

    /// Waits until a metric has a value, or the time is up.
    pub async fn until_metric(&self, name: &str, value: f64, within: Duration) -> Result<()> {
        let start = Instant::now();
        let mut last = f64::NAN;
        while start.elapsed() < within {
            last = self.metric(name).await?;
            if last == value {
                return Ok(());
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        Err(format!("{name} is {last}, not {value}, after {within:?}").into())
    }

    /// Exit status after SIGTERM.
    pub fn wait(mut self) -> Result<std::process::ExitStatus> {
        // Nothing is left to kill.
        Ok(self.child.take().expect("a process of its own").wait()?)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let Some(mut child) = self.child.take() else { return };
        self.signal(child.id(), libc::SIGTERM);
        if ends_within(&mut child, Duration::from_secs(3)) {
            return;
        }
        child.kill().ok();
        if ends_within(&mut child, Duration::from_secs(5)) {
            return;
        }
        // Seen on Linux 6.18, with all planes on one core of a busy machine: the supervisor reaps a
        // plane and does not come out of the kernel, killed or not, until another plane has ended.
        children_of(child.id()).iter().for_each(|plane| self.signal(*plane, libc::SIGKILL));
        if !ends_within(&mut child, Duration::from_secs(30)) {
            eprintln!("server {} was killed and has not ended", child.id());
        }
    }
}

/// Process ids of the children of a process with one thread.
fn children_of(pid: u32) -> Vec<u32> {
    let path = format!("/proc/{pid}/task/{pid}/children");
    let children = std::fs::read_to_string(path).unwrap_or_default();
    children.split_whitespace().filter_map(|pid| pid.parse().ok()).collect()
}

fn ends_within(child: &mut Child, time: Duration) -> bool {
    let start = Instant::now();
    while start.elapsed() < time {
        if matches!(child.try_wait(), Ok(Some(_))) {
            return true;
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    false
}

/// How a stream ended.
#[derive(Debug, Clone, PartialEq)]
pub enum End {
    /// `[DONE]` after a finish reason.
    Done(String),
    /// An error event, with its code.
    Error(String),
    /// The connection broke.
    Broken,
}

/// What a stream of /v1/completions gave.
#[derive(Debug, Clone, PartialEq)]
pub struct Streamed {
    pub text: String,
    /// Text, logprob, alternatives and offset of each token.
    pub logprobs: Vec<String>,
    pub end: End,
}

/// What an event says about each of its tokens. How tokens are cut into events depends on timing;
/// what is said of them does not.
pub fn tokens_of(logprobs: &Value) -> Vec<String> {
    let fields = ["tokens", "token_logprobs", "top_logprobs", "text_offset"];
    let count = logprobs["tokens"].as_array().map_or(0, Vec::len);
    (0..count).map(|i| fields.map(|f| logprobs[f][i].to_string()).join(" ")).collect()
}

/// What the clients of several streams have seen so far.
#[derive(Default)]
pub struct Progress {
    /// Of text.
    pub bytes: AtomicUsize,
    /// Streams that ended normally.
    pub ended: AtomicUsize,
}

impl Progress {
    /// Waits until the clients have seen this much.
    pub async fn until(&self, bytes: usize, ended: usize, within: Duration) -> Result<()> {
        let start = Instant::now();
        while self.bytes.load(Ordering::Relaxed) < bytes
            || self.ended.load(Ordering::Relaxed) < ended
        {
            if start.elapsed() > within {
                return Err(format!("less than {bytes} bytes and {ended} ends of streams").into());
            }
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        Ok(())
    }
}

/// Streams a completion to its end.
pub async fn stream(server: &Server, body: &Value) -> Result<Streamed> {
    watched(server, body, &Progress::default()).await
}

/// As [`stream`], and counts in `progress` what comes.
pub async fn watched(server: &Server, body: &Value, progress: &Progress) -> Result<Streamed> {
    let mut body = body.clone();
    body["stream"] = true.into();
    let answer =
        server.http.post(format!("{}/v1/completions", server.url)).json(&body).send().await?;
    if !answer.status().is_success() {
        let status = answer.status().as_u16();
        return Ok(Streamed {
            text: String::new(),
            logprobs: vec![],
            end: End::Error(status.to_string()),
        });
    }
    let mut out = Streamed { text: String::new(), logprobs: vec![], end: End::Broken };
    let mut finish = String::new();
    let mut buffer = Vec::new();
    let mut chunks = answer.bytes_stream();
    while let Some(chunk) = chunks.next().await {
        let Ok(chunk) = chunk else { return Ok(out) };
        buffer.extend_from_slice(&chunk);
        while let Some(end) = buffer.windows(2).position(|w| w == b"\n\n") {
            let event: Vec<u8> = buffer.drain(..end + 2).collect();
            let event = String::from_utf8(event)?;
            let Some(data) = event.trim_end().strip_prefix("data: ") else { continue };
            if data == "[DONE]" {
                progress.ended.fetch_add(1, Ordering::Relaxed);
                out.end = End::Done(finish);
                return Ok(out);
            }
            let value: Value = serde_json::from_str(data)?;
            if let Some(error) = value.get("error") {
                out.end = End::Error(error["code"].as_str().unwrap_or_default().to_owned());
                return Ok(out);
            }
            let choice = &value["choices"][0];
            let text = choice["text"].as_str().unwrap_or_default();
            progress.bytes.fetch_add(text.len(), Ordering::Relaxed);
            out.text.push_str(text);
            out.logprobs.extend(tokens_of(&choice["logprobs"]));
            if let Some(reason) = choice["finish_reason"].as_str() {
                finish = reason.to_owned();
            }
        }
    }
    Ok(out)
}
