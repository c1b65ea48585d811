//! OpenTelemetry traces: a span for each request of the API, when its answer has ended
//! ([ADR 23](../../../../docs/adr/0023-traces.md)).
//!
//! A thread that serves puts a record into a bounded queue, or counts it as dropped: it never
//! waits. All else is done by one thread of its own, which asks the sampler, makes spans and sends
//! them in batches. A collector that is slow or dead costs spans, never an answer.

mod collector;
mod environment;
mod export;
mod span;

use std::num::NonZeroUsize;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use opentelemetry::Context;
use opentelemetry::propagation::{Extractor, TextMapPropagator};
use opentelemetry::trace::{SpanContext, TraceContextExt};
use opentelemetry_sdk::propagation::TraceContextPropagator;
use tokio::sync::mpsc::{Sender, channel, error::TrySendError};

use crate::error::FrontendError;
use crate::http::Ended;
pub use export::Exporting;

/// The least that participants must pass on of a trace state (W3C Trace Context, section 3.3.1.5);
/// a longer one is left out.
const TRACE_HEADER_BYTES: usize = 512;
/// Characters of a path that a span carries.
const MAX_PATH_CHARS: usize = 256;

/// Where spans go.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TracesConfig {
    /// URL of a collector that takes OTLP by HTTP with protobuf; `/v1/traces` is added to one
    /// without a path.
    pub endpoint: String,
    /// Requests that may wait to be sent; more are dropped and counted.
    pub queue_spans: NonZeroUsize,
}

impl TracesConfig {
    /// To this endpoint, with a queue of 4096.
    pub fn to(endpoint: String) -> Self {
        Self { endpoint, queue_spans: NonZeroUsize::new(4096).unwrap_or(NonZeroUsize::MIN) }
    }
}

/// The traces of one frontend.
pub struct Traces {
    queue: Sender<Ended>,
    counters: Arc<Counters>,
}

/// Spans by what became of them.
#[derive(Debug, Default)]
struct Counters {
    waiting: AtomicU64,
    exported: AtomicU64,
    queue_full: AtomicU64,
    failed: AtomicU64,
}

/// A reading of the counters.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TraceCounts {
    /// A collector took them.
    pub exported: u64,
    /// The queue had no room for them.
    pub queue_full: u64,
    /// They were sent, and no collector took them.
    pub failed: u64,
}

impl Traces {
    /// Checks the configuration and starts the thread that sends spans.
    ///
    /// # Errors
    /// For an endpoint or a variable of the environment that is wrong.
    pub fn start(config: &TracesConfig) -> Result<(Arc<Self>, Exporting), FrontendError> {
        let (queue, waiting) = channel(config.queue_spans.get());
        let counters = Arc::new(Counters::default());
        let exporting = export::start(&config.endpoint, waiting, counters.clone())?;
        Ok((Arc::new(Self { queue, counters }), exporting))
    }

    /// Takes the record of a request, or counts it as dropped.
    pub fn tell(&self, mut ended: Ended) {
        if let Some((end, _)) = ended.path.char_indices().nth(MAX_PATH_CHARS) {
            ended.path.truncate(end);
            ended.path.shrink_to_fit();
        }
        self.counters.waiting.fetch_add(1, Ordering::Relaxed);
        if let Err(TrySendError::Full(_) | TrySendError::Closed(_)) = self.queue.try_send(ended) {
            self.counters.waiting.fetch_sub(1, Ordering::Relaxed);
            self.counters.queue_full.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Spans so far.
    pub fn counts(&self) -> TraceCounts {
        let of = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        TraceCounts {
            exported: of(&self.counters.exported),
            queue_full: of(&self.counters.queue_full),
            failed: of(&self.counters.failed),
        }
    }
}

/// The span that a request's `traceparent` names.
pub fn parent_of(headers: &http::HeaderMap) -> Option<SpanContext> {
    headers.get("traceparent")?;
    let context =
        TraceContextPropagator::new().extract_with_context(&Context::new(), &Bounded(headers));
    let parent = context.span().span_context().clone();
    parent.is_valid().then_some(parent)
}

/// Headers of a length that may wait in the queue.
struct Bounded<'a>(&'a http::HeaderMap);

impl Extractor for Bounded<'_> {
    fn get(&self, key: &str) -> Option<&str> {
        let value = self.0.get(key)?.to_str().ok()?;
        (value.len() <= TRACE_HEADER_BYTES).then_some(value)
    }

    fn keys(&self) -> Vec<&str> {
        self.0.keys().map(http::HeaderName::as_str).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PARENT: &str = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";

    fn headers(parent: &str, state: &str) -> http::HeaderMap {
        let mut headers = http::HeaderMap::new();
        headers.insert("traceparent", parent.parse().expect("a value"));
        headers.insert("tracestate", state.parse().expect("a value"));
        headers
    }

    #[test]
    fn a_parent_is_taken_from_well_formed_headers_only() {
        let parent = parent_of(&headers(PARENT, "a=b")).expect("a parent");
        assert_eq!(parent.trace_id().to_string(), "0af7651916cd43dd8448eb211c80319c");
        assert_eq!(parent.span_id().to_string(), "b7ad6b7169203331");
        assert!(parent.is_sampled() && parent.is_remote());
        assert_eq!(parent.trace_state().header(), "a=b");
        let long = format!("a={}", "b".repeat(600));
        let parent = parent_of(&headers(PARENT, &long)).expect("a parent");
        assert_eq!(parent.trace_state().header(), "", "too long to wait in the queue");
        let none = "00-00000000000000000000000000000000-b7ad6b7169203331-01";
        for wrong in ["", "00", "é", none, &PARENT.to_uppercase(), &"0-".repeat(400)] {
            assert!(parent_of(&headers(wrong, "")).is_none(), "{wrong}");
        }
        assert!(parent_of(&http::HeaderMap::new()).is_none());
    }
}
