//! The thread that turns records into spans and sends them.

use std::sync::atomic::Ordering;
use std::sync::mpsc as blocking;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use opentelemetry::trace::TracerProvider;
use opentelemetry::{Context, InstrumentationScope, Key, KeyValue};
use opentelemetry_otlp::{Protocol, SpanExporter, WithExportConfig, WithHttpConfig};
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::error::OTelSdkResult;
use opentelemetry_sdk::trace::{
    SdkTracer, SdkTracerProvider, Span, SpanData, SpanExporter as _, SpanProcessor,
};
use tokio::sync::mpsc::Receiver;
use tokio::sync::oneshot;

use super::collector::{Collector, endpoint};
use super::{Counters, environment, span};
use crate::error::FrontendError;
use crate::http::Ended;

/// Spans that are sent at once.
const BATCH_SPANS: usize = 512;
/// How long the first span of a batch waits for others.
const GATHER_WITHIN: Duration = Duration::from_secs(1);
/// How long the end of a frontend waits for what is still to be sent. Less than the supervisor
/// gives a frontend beyond its time to drain.
const FLUSH_WITHIN: Duration = Duration::from_secs(3);

/// The thread, as the frontend holds it; it also ends when this is dropped.
pub struct Exporting {
    close: oneshot::Sender<()>,
    done: blocking::Receiver<()>,
    counters: Arc<Counters>,
}

impl Exporting {
    /// Lets the thread send what it has, and waits for that, but not for long.
    pub fn flush(self) {
        drop(self.close);
        let late = self.done.recv_timeout(FLUSH_WITHIN) == Err(blocking::RecvTimeoutError::Timeout);
        // SYNC: only a number for the log.
        let waiting = self.counters.waiting.load(Ordering::Relaxed);
        if late && waiting > 0 {
            tracing::warn!("traces: {waiting} spans are lost: no collector took them in time");
        }
    }
}

/// Starts the thread.
///
/// # Errors
/// For an endpoint or a variable that is wrong, and if the system refuses the thread.
pub fn start(
    given: &str,
    queue: Receiver<Ended>,
    counters: Arc<Counters>,
) -> Result<Exporting, FrontendError> {
    let endpoint = endpoint(given)?;
    environment::check(|name| std::env::var(name).ok().filter(|value| !value.is_empty()))?;
    let resource = resource();
    let mut exporter = SpanExporter::builder()
        .with_http()
        .with_http_client(Collector::of(&endpoint)?)
        .with_protocol(Protocol::HttpBinary)
        .with_endpoint(endpoint.to_string())
        .build()
        .map_err(|e| FrontendError::Config {
            field: "otlp_traces_endpoint",
            reason: e.to_string(),
        })?;
    exporter.set_resource(&resource);
    let (close, closing) = oneshot::channel();
    let (ended, done) = blocking::channel();
    let export = Export {
        queue,
        closing,
        closed: false,
        spans: Spans::new(resource),
        exporter,
        counters: counters.clone(),
        failing: false,
    };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    std::thread::Builder::new().name("traces".into()).spawn(move || {
        runtime.block_on(export.run());
        drop(ended);
    })?;
    Ok(Exporting { close, done, counters })
}

/// What the spans are of: the environment's word, else this server.
fn resource() -> Resource {
    let version = KeyValue::new("service.version", env!("CARGO_PKG_VERSION"));
    let named = Resource::builder().build();
    let name = named.get(&Key::from_static_str("service.name"));
    match name.is_none_or(|name| name.as_str().starts_with("unknown_service")) {
        true => Resource::builder().with_service_name("saccade").with_attribute(version).build(),
        false => named,
    }
}

/// Makes spans by the SDK, which knows the samplers and the limits of the environment.
struct Spans {
    tracer: SdkTracer,
    /// Sampled spans that are not sent yet.
    made: Made,
    _provider: SdkTracerProvider,
}

/// Where the SDK puts spans that have ended: within the call that ends them.
#[derive(Debug, Clone, Default)]
struct Made(Arc<Mutex<Vec<SpanData>>>);

impl Made {
    fn take(&self) -> Vec<SpanData> {
        std::mem::take(&mut *self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }

    fn len(&self) -> usize {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).len()
    }
}

impl SpanProcessor for Made {
    fn on_start(&self, _span: &mut Span, _cx: &Context) {}

    fn on_end(&self, span: SpanData) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).push(span);
    }

    fn force_flush(&self) -> OTelSdkResult {
        Ok(())
    }

    fn shutdown_with_timeout(&self, _timeout: Duration) -> OTelSdkResult {
        Ok(())
    }
}

impl Spans {
    fn new(resource: Resource) -> Self {
        let made = Made::default();
        let provider = SdkTracerProvider::builder()
            .with_span_processor(made.clone())
            .with_resource(resource)
            .build();
        let scope =
            InstrumentationScope::builder("saccade").with_version(env!("CARGO_PKG_VERSION"));
        Self { tracer: provider.tracer_with_scope(scope.build()), made, _provider: provider }
    }
}

struct Export {
    queue: Receiver<Ended>,
    closing: oneshot::Receiver<()>,
    /// Nothing new comes into the queue.
    closed: bool,
    spans: Spans,
    exporter: SpanExporter,
    counters: Arc<Counters>,
    /// The last batch was lost.
    failing: bool,
}

impl Export {
    async fn run(mut self) {
        let mut open = true;
        while open {
            open = self.gather().await;
            self.send().await;
        }
    }

    /// Makes the spans of the next batch; false when there will be no other.
    async fn gather(&mut self) -> bool {
        let Some(first) = self.next().await else { return false };
        self.make(&first);
        let more = async {
            while self.spans.made.len() < BATCH_SPANS {
                let Some(ended) = self.next().await else { return false };
                self.make(&ended);
            }
            true
        };
        tokio::time::timeout(GATHER_WITHIN, more).await.unwrap_or(true)
    }

    /// The next record; `None` once all have come and the frontend ends.
    async fn next(&mut self) -> Option<Ended> {
        loop {
            tokio::select! {
                biased;
                ended = self.queue.recv() => return ended,
                _ = &mut self.closing, if !self.closed => {
                    self.closed = true;
                    self.queue.close();
                }
            }
        }
    }

    fn make(&self, ended: &Ended) {
        let before = self.spans.made.len();
        span::make(&self.spans.tracer, ended);
        if self.spans.made.len() == before {
            // It was not sampled.
            self.counters.waiting.fetch_sub(1, Ordering::Relaxed);
        }
    }

    async fn send(&mut self) {
        let spans = self.spans.made.take();
        if spans.is_empty() {
            return;
        }
        let count = spans.len() as u64;
        let sent = self.exporter.export(spans).await;
        self.counters.waiting.fetch_sub(count, Ordering::Relaxed);
        let counter = match sent {
            Ok(()) => &self.counters.exported,
            Err(_) => &self.counters.failed,
        };
        counter.fetch_add(count, Ordering::Relaxed);
        if let Err(error) = &sent
            && !self.failing
        {
            tracing::error!("traces: {count} spans are lost: {error}");
        }
        // Said once per trouble, not per batch.
        self.failing = sent.is_err();
    }
}
