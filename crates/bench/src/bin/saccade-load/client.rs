//! One streamed completion over one kept-alive connection, with the times of its tokens.

use std::time::Instant;

use anyhow::{Context, ensure};
use http_body_util::{BodyExt, Full};
use hyper::body::Bytes;
use hyper::client::conn::http1::{SendRequest, handshake};
use hyper_util::rt::TokioIo;
use serde_json::json;
use tokio::net::TcpStream;

/// What one request saw.
#[derive(Debug, Clone)]
pub(crate) struct Outcome {
    /// Seconds from sending to the first event with content.
    pub ttft_s: f64,
    /// Seconds between events with content.
    pub gaps_s: Vec<f64>,
    /// Seconds from sending to the end.
    pub e2e_s: f64,
    /// Events with content.
    pub tokens: usize,
}

/// A server and the request it is asked.
#[derive(Debug)]
pub(crate) struct Target {
    server: String,
    model: String,
    output_tokens: usize,
    every_token: bool,
}

impl Target {
    pub fn new(server: &str, model: &str, output_tokens: usize, every_token: bool) -> Target {
        Target { server: server.into(), model: model.into(), output_tokens, every_token }
    }

    pub async fn connect(&self) -> anyhow::Result<SendRequest<Full<Bytes>>> {
        let stream = TcpStream::connect(&self.server)
            .await
            .with_context(|| format!("connect to {}", self.server))?;
        stream.set_nodelay(true)?;
        let (sender, connection) = handshake(TokioIo::new(stream)).await?;
        tokio::spawn(connection);
        Ok(sender)
    }

    pub async fn complete(
        &self,
        connection: &mut SendRequest<Full<Bytes>>,
        prompt: &[u32],
    ) -> anyhow::Result<Outcome> {
        let mut body = json!({
            "model": self.model, "prompt": prompt, "max_tokens": self.output_tokens,
            "temperature": 0, "ignore_eos": true, "stream": true,
        });
        if self.every_token {
            body["stream_options"] = json!({"include_usage": true, "continuous_usage_stats": true});
        }
        let request = hyper::Request::post("/v1/completions")
            .header("host", &self.server)
            .header("content-type", "application/json")
            .body(Full::new(Bytes::from(body.to_string())))?;
        connection.ready().await?;
        let start = Instant::now();
        let answer = connection.send_request(request).await?;
        ensure!(answer.status().is_success(), "status {}", answer.status());
        read_stream(answer.into_body(), start).await
    }
}

async fn read_stream(mut body: hyper::body::Incoming, start: Instant) -> anyhow::Result<Outcome> {
    let mut seen = Events::default();
    let (mut first_s, mut last_s) = (0.0, 0.0);
    let mut outcome = Outcome { ttft_s: 0.0, gaps_s: vec![], e2e_s: 0.0, tokens: 0 };
    while let Some(frame) = body.frame().await {
        let Ok(data) = frame?.into_data() else { continue };
        let new = seen.count(&data);
        let now_s = start.elapsed().as_secs_f64();
        for i in 0..new {
            if outcome.tokens == 0 {
                first_s = now_s;
            } else {
                outcome.gaps_s.push(if i == 0 { now_s - last_s } else { 0.0 });
            }
            last_s = now_s;
            outcome.tokens += 1;
        }
    }
    ensure!(seen.done, "the stream ended without [DONE]");
    outcome.ttft_s = first_s;
    outcome.e2e_s = start.elapsed().as_secs_f64();
    Ok(outcome)
}

/// Counts events that have a choice in a stream of bytes, across its cuts.
#[derive(Debug, Default)]
struct Events {
    tail: Vec<u8>,
    done: bool,
}

impl Events {
    fn count(&mut self, data: &[u8]) -> usize {
        self.tail.extend_from_slice(data);
        let mut events = 0;
        while let Some(end) = self.tail.windows(2).position(|w| w == b"\n\n") {
            let event = &self.tail[..end];
            self.done |= event == b"data: [DONE]";
            events += usize::from(has_choice(event));
            self.tail.drain(..end + 2);
        }
        events
    }
}

/// The last event, with the usage, has none.
fn has_choice(event: &[u8]) -> bool {
    const CHOICE: &[u8] = b"\"choices\":[{";
    event.starts_with(b"data: {") && event.windows(CHOICE.len()).any(|w| w == CHOICE)
}

/// Prompt ids of request `index`: splitmix64, so that no two requests share a prefix.
pub(crate) fn prompt(index: u64, tokens: usize, vocab: u32) -> Vec<u32> {
    let mut state = index.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    (0..tokens)
        .map(|_| {
            state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
            let mut z = state;
            z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
            z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
            ((z ^ (z >> 31)) % u64::from(vocab)) as u32
        })
        .collect()
}

/// CPU seconds that this process has used (it has one busy thread).
pub(crate) fn thread_cpu_seconds() -> f64 {
    let stat = std::fs::read_to_string("/proc/self/schedstat").unwrap_or_default();
    let ns: f64 = stat.split(' ').next().and_then(|n| n.parse().ok()).unwrap_or(f64::NAN);
    ns / 1e9
}
