//! What was seen. All times are seconds since the start of the run, read from the monotonic clock.

use serde::{Deserialize, Serialize};

use crate::{Distribution, LoadSpec, Target};

/// How a request ended.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Outcome {
    /// A whole answer.
    Ok,
    /// Another status than 2xx.
    HttpStatus(u16),
    /// No end within the request's time-out.
    Timeout,
    /// Still in flight when the run's drain ended.
    Cut,
    /// No connection, or one that broke off: before the answer, or in the middle of its stream.
    Broken(String),
    /// An error within the stream, after a status of 200: what the server says.
    ErrorEvent(String),
}

impl Outcome {
    /// The kind, without detail: `ok`, `http_503`, `timeout`, `cut`, `broken`, `error_event`.
    pub fn kind(&self) -> String {
        match self {
            Outcome::Ok => "ok".into(),
            Outcome::HttpStatus(code) => format!("http_{code}"),
            Outcome::Timeout => "timeout".into(),
            Outcome::Cut => "cut".into(),
            Outcome::Broken(_) => "broken".into(),
            Outcome::ErrorEvent(_) => "error_event".into(),
        }
    }
}

/// Where a count of output tokens comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum TokenSource {
    /// The server's `usage`.
    Usage,
    /// Events that brought content, for servers that give no usage: speculative decoding and
    /// batched events make it too low.
    Events,
}

/// One request.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct RequestRecord {
    /// Place in the order of arrivals, from 0, warm-up included.
    pub index: u64,
    /// Excluded from statistics.
    pub warmup: bool,
    /// When the arrival process wanted it sent. Closed loop: when its place became free.
    pub intended_s: f64,
    /// When the client began to send it: before it takes or opens a connection.
    pub sent_s: f64,
    /// Seconds spent on opening a connection; `None` where a kept one served.
    pub connect_s: Option<f64>,
    /// First event with a token.
    pub first_token_s: Option<f64>,
    /// Each event that brought one token or several, in order; the first is `first_token_s`.
    pub token_times_s: Vec<f64>,
    /// The end of the answer, or of the waiting for it.
    pub end_s: f64,
    /// Prompt tokens by the server's count; `None` where it does not say.
    pub prompt_tokens: Option<u32>,
    /// Output tokens that were asked for (`max_tokens`).
    pub requested_tokens: u32,
    /// Output tokens that came.
    pub output_tokens: u32,
    /// Where the count comes from.
    pub token_source: TokenSource,
    /// How it ended.
    pub outcome: Outcome,
    /// What the server said when it refused, its beginning.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

impl RequestRecord {
    /// Why it failed, in words, where there are any.
    pub fn message(&self) -> Option<&str> {
        match &self.outcome {
            Outcome::Broken(why) | Outcome::ErrorEvent(why) => Some(why),
            _ => self.reason.as_deref(),
        }
    }

    /// Seconds from the intended time to the first token.
    pub fn ttft_s(&self) -> Option<f64> {
        self.first_token_s.map(|t| t - self.intended_s)
    }

    /// Seconds from the intended time to the end.
    pub fn e2e_s(&self) -> f64 {
        self.end_s - self.intended_s
    }

    /// Mean seconds per output token after the first: (last token − first token) / (tokens − 1).
    /// `None` below two tokens.
    pub fn tpot_s(&self) -> Option<f64> {
        let (first, last) = (self.token_times_s.first()?, self.token_times_s.last()?);
        (self.output_tokens > 1).then(|| (last - first) / f64::from(self.output_tokens - 1))
    }

    /// Seconds between consecutive events with tokens.
    pub fn gaps_s(&self) -> impl Iterator<Item = f64> + '_ {
        self.token_times_s.windows(2).map(|pair| pair[1] - pair[0])
    }
}

/// Was the client up to it? A run whose client was the bottleneck says nothing about the server.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ClientHealth {
    /// Sent minus intended, of measured requests.
    pub send_lateness_ms: Distribution,
    /// How late a timer of the client's event loop fires: the error of every time stamp.
    pub loop_lag_ms: Distribution,
    /// Share of one core that the client's thread used.
    pub cpu_share: f64,
    /// Share of the run that the client's thread was ready but not running (a neighbour had its
    /// core); `None` where the system does not tell.
    pub run_queue_share: Option<f64>,
    /// Arrivals that found `max_in_flight` reached and waited.
    pub bound_hits: u64,
    /// Most requests in flight at one time.
    pub max_in_flight_seen: usize,
    /// Connections opened.
    pub connections: u64,
    /// Why the figures may be the client's, in words; empty when it was healthy.
    pub warnings: Vec<String>,
}

/// One run and all that it saw.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Run {
    /// The server.
    pub target: Target,
    /// The model name that was sent.
    pub model: String,
    /// What was asked for.
    pub spec: LoadSpec,
    /// Wall time of the start, seconds since 1970.
    pub started_unix_s: f64,
    /// `CLOCK_MONOTONIC` of the start in seconds: aligns runs of one host.
    pub started_monotonic_s: f64,
    /// Before the index in the `x-request-id` of each request: finds it in the server's log.
    pub request_id_prefix: String,
    /// The measured window in seconds since the start: from the end of the warm-up to the end of
    /// the arrivals, which in a closed loop is the time at which the last request was sent (where
    /// all are sent at once, the last end).
    pub window_s: (f64, f64),
    /// Every request in order of `index`, warm-up included.
    pub requests: Vec<RequestRecord>,
    /// The client.
    pub client: ClientHealth,
    /// Extensions that the server refused and requests were sent without, in words.
    pub notes: Vec<String>,
    /// The observer ended the arrivals before their time.
    #[serde(default)]
    pub stopped: bool,
}

impl Run {
    /// The requests that count.
    pub fn measured(&self) -> impl Iterator<Item = &RequestRecord> {
        self.requests.iter().filter(|r| !r.warmup)
    }
}
