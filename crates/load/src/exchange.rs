//! One streamed request, with the times of its tokens.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http_body_util::BodyExt;
use hyper::body::Incoming;
use hyper::header::CONTENT_TYPE;
use tokio::sync::watch;
use tokio::time::Instant;

use crate::clock::Epoch;
use crate::event::{Event, message_in};
use crate::http::{Answer, Client, chain, read_up_to};
use crate::sse::Parser;
use crate::{Outcome, RequestRecord, TokenSource};

/// What all requests of a run share.
#[derive(Debug)]
pub(crate) struct Shared {
    pub client: Client,
    pub path: String,
    /// Before the index in each request's `x-request-id`.
    pub id_prefix: String,
    pub epoch: Epoch,
    pub timeout: Duration,
}

/// What one request is.
#[derive(Debug)]
pub(crate) struct Order {
    pub index: u64,
    pub warmup: bool,
    pub intended_s: f64,
    pub body: Bytes,
    pub max_tokens: u32,
}

/// Sends a request and reads its stream. It ends with the answer, its time-out, or `cut`.
pub(crate) async fn exchange(
    shared: Arc<Shared>,
    order: Order,
    mut cut: watch::Receiver<bool>,
) -> RequestRecord {
    let sent_s = shared.epoch.elapsed_s();
    let mut seen = Seen::default();
    let deadline = Instant::now() + shared.timeout;
    let outcome = tokio::select! {
        biased;
        result = seen.perform(&shared, &order) => {
            result.map_or_else(|failed| failed, |()| Outcome::Ok)
        }
        () = tokio::time::sleep_until(deadline) => Outcome::Timeout,
        _ = cut.wait_for(|cut| *cut) => Outcome::Cut,
    };
    let end_s = seen.end_s.unwrap_or_else(|| shared.epoch.elapsed_s());
    seen.record(&order, sent_s, end_s, outcome)
}

/// What has been seen of an answer: it outlives the future that is cut.
#[derive(Debug, Default)]
struct Seen {
    connect_s: Option<f64>,
    token_times_s: Vec<f64>,
    prompt_tokens: Option<u32>,
    /// The server's count so far.
    counted: Option<u32>,
    /// Events with a choice before the end have had a count.
    counts_continuously: bool,
    finished: bool,
    done: bool,
    end_s: Option<f64>,
    refusal: Option<String>,
}

impl Seen {
    async fn perform(&mut self, shared: &Shared, order: &Order) -> Result<(), Outcome> {
        let id = format!("{}{}", shared.id_prefix, order.index);
        let client = &shared.client;
        let post = client.post(&shared.path, &order.body, Some(&id), &mut self.connect_s).await;
        let Answer { response, connection } = post.map_err(Outcome::Broken)?;
        let status = response.status();
        if !status.is_success() {
            self.end_s = Some(shared.epoch.elapsed_s());
            if let Ok(text) = read_up_to(response.into_body(), MAX_REFUSAL_BYTES).await {
                self.refusal = Some(message_in(&text));
            }
            return Err(Outcome::HttpStatus(status.as_u16()));
        }
        let content = response.headers().get(CONTENT_TYPE);
        let content = content.map(|value| String::from_utf8_lossy(value.as_bytes()).into_owned());
        if content.as_deref().is_none_or(|c| !c.starts_with("text/event-stream")) {
            let content = content.as_deref().unwrap_or("none");
            return Err(Outcome::Broken(format!("not a stream: content type {content}")));
        }
        self.read(response.into_body(), shared.epoch).await?;
        shared.client.give_back(connection);
        Ok(())
    }

    async fn read(&mut self, mut body: Incoming, epoch: Epoch) -> Result<(), Outcome> {
        let mut parser = Parser::default();
        while let Some(frame) = body.frame().await {
            let now_s = epoch.elapsed_s();
            let frame = match frame {
                Ok(frame) => frame,
                // Complete but for the end of the transfer: servers that close at [DONE].
                Err(_) if self.done => return Ok(()),
                Err(error) => return Err(Outcome::Broken(chain(&error))),
            };
            let Ok(data) = frame.into_data() else { continue };
            let mut result = Ok(());
            let fed = parser.feed(&data, |name, data| {
                if result.is_ok() {
                    result = self.event(name, data, now_s);
                }
            });
            result?;
            fed.map_err(|_| Outcome::Broken("an event without an end".into()))?;
        }
        let now_s = epoch.elapsed_s();
        let mut result = Ok(());
        parser.finish(|name, data| {
            if result.is_ok() {
                result = self.event(name, data, now_s);
            }
        });
        result?;
        self.end_s.get_or_insert(now_s);
        if self.done || self.finished {
            return Ok(());
        }
        Err(Outcome::Broken("the stream ended without [DONE] or a finish_reason".into()))
    }

    fn event(&mut self, name: &[u8], data: &[u8], now_s: f64) -> Result<(), Outcome> {
        if data == b"[DONE]" {
            self.done = true;
            self.end_s.get_or_insert(now_s);
            return Ok(());
        }
        let event = Event::parse(name, data)?;
        // Tokens without text (half a character, a special token) are seen by the count alone.
        // A count that comes first at the end is the total, not one more token.
        let more = event.output_tokens > self.counted;
        let total_only = event.finished && !self.counts_continuously;
        let one = self.counted.is_none() && event.output_tokens == Some(1);
        let counted = event.choice && more && event.output_tokens != Some(0);
        if event.content || (counted && (one || !total_only)) {
            self.token_times_s.push(now_s);
        }
        self.counts_continuously |= event.choice && event.output_tokens.is_some();
        self.prompt_tokens = event.prompt_tokens.or(self.prompt_tokens);
        self.counted = event.output_tokens.or(self.counted);
        self.finished |= event.finished;
        Ok(())
    }

    fn record(self, order: &Order, sent_s: f64, end_s: f64, outcome: Outcome) -> RequestRecord {
        let events = self.token_times_s.len() as u32;
        let (output_tokens, token_source) = match self.counted {
            Some(tokens) => (tokens, TokenSource::Usage),
            None => (events, TokenSource::Events),
        };
        RequestRecord {
            index: order.index,
            warmup: order.warmup,
            intended_s: order.intended_s,
            sent_s,
            connect_s: self.connect_s,
            first_token_s: self.token_times_s.first().copied(),
            token_times_s: self.token_times_s,
            end_s,
            prompt_tokens: self.prompt_tokens,
            requested_tokens: order.max_tokens,
            output_tokens,
            token_source,
            outcome,
            reason: self.refusal.filter(|words| !words.is_empty()),
        }
    }
}

/// Bytes of a refusal that are read: its beginning says why.
const MAX_REFUSAL_BYTES: usize = 4096;
