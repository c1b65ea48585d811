//! Counters, gauges and histograms: the `vllm:` names that dashboards and routers know, and ours.
//! Seconds and ratios; every series carries `model_name`.

mod adapters;
mod device;
mod kv;
mod planes;
mod recent;
mod slo;
mod tenants;
mod tokenizer;

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use prometheus::core::Collector;
use prometheus::{
    Counter, Encoder, Gauge, Histogram, HistogramOpts, IntCounter, IntCounterVec, Opts, Registry,
    TextEncoder,
};

pub use adapters::AdapterMetrics;
pub use device::{DeviceMetrics, Reading};
pub use planes::PlaneMetrics;
pub use recent::{Recent, RecentState};
pub use slo::SloMetrics;
pub use tenants::TenantMetrics;
pub use tokenizer::TokenizerMetrics;

use crate::traces::TraceCounts;

/// Buckets of vLLM 0.2x, so that dashboards made for it read right.
const TTFT_BUCKETS_S: &[f64] = &[
    0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0,
    20.0, 40.0, 80.0, 160.0, 640.0, 2560.0,
];
/// vLLM's bounds, the first of which is 10 ms, with finer ones between and below: gaps of a few
/// milliseconds are told apart. A query that names one of vLLM's bounds finds it.
const TOKEN_BUCKETS_S: &[f64] = &[
    0.0005, 0.001, 0.0015, 0.002, 0.003, 0.004, 0.005, 0.0075, 0.01, 0.015, 0.02, 0.025, 0.03,
    0.04, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0, 20.0, 40.0,
    80.0,
];
const REQUEST_BUCKETS_S: &[f64] = &[
    0.3, 0.5, 0.8, 1.0, 1.5, 2.0, 2.5, 5.0, 10.0, 15.0, 20.0, 30.0, 40.0, 50.0, 60.0, 120.0, 240.0,
    480.0, 960.0, 1920.0, 7680.0,
];
const LENGTH_BUCKETS: &[f64] =
    &[1.0, 2.0, 5.0, 10.0, 20.0, 50.0, 100.0, 200.0, 500.0, 1e3, 2e3, 5e3, 1e4, 2e4, 5e4, 1e5, 2e5];
const TOKENIZE_BUCKETS_S: &[f64] =
    &[1e-5, 2e-5, 5e-5, 1e-4, 2e-4, 5e-4, 1e-3, 2e-3, 5e-3, 1e-2, 2e-2, 5e-2, 0.1, 0.2, 0.5, 1.0];
/// Bounds of `Retry-After` in seconds.
const RETRY_AFTER_S: (f64, f64) = (1.0, 60.0);

/// All series of one frontend.
pub struct Metrics {
    registry: Registry,
    /// Gauges and counters that are read on demand.
    pub device: DeviceMetrics,
    /// Core time of the planes, likewise.
    pub planes: PlaneMetrics,
    /// Which adapters have requests, likewise.
    pub adapters: AdapterMetrics,
    /// What the cache of tokenized texts does, likewise.
    pub tokenizer: TokenizerMetrics,
    /// What the page shows.
    pub recent: Recent,
    slo: SloMetrics,
    prompt_tokens: IntCounter,
    generation_tokens: IntCounter,
    finished: IntCounterVec,
    ttft_s: Histogram,
    inter_token_s: Histogram,
    inter_token_old_name_s: Histogram,
    per_output_token_s: Histogram,
    e2e_s: Histogram,
    queue_s: Histogram,
    inference_s: Histogram,
    prefill_s: Histogram,
    decode_s: Histogram,
    prompt_length: Histogram,
    generation_length: Histogram,
    tokenize_s: Histogram,
    detokenize_s: Counter,
    rejected: IntCounterVec,
    failed: IntCounterVec,
    cancelled: IntCounter,
    unknown_fields: IntCounter,
    reloads: IntCounterVec,
    access_log_dropped: IntCounter,
    trace_spans: IntCounterVec,
    /// By tenant, likewise read on demand.
    pub tenants: TenantMetrics,
}

/// Targets in seconds.
#[derive(Debug, Clone, Copy)]
pub struct SloTargets {
    /// Time to the first token.
    pub ttft_s: f64,
    /// Time per produced token.
    pub tpot_s: f64,
}

/// One choice that ended well.
#[derive(Debug, Clone, Copy)]
pub struct Finished {
    /// `stop` or `length`.
    pub reason: &'static str,
    /// Prompt tokens.
    pub prompt_tokens: usize,
    /// Tokens produced.
    pub tokens: u32,
    /// From arrival to the end.
    pub e2e: Duration,
    /// From arrival until the device took it from the queue.
    pub queued: Option<Duration>,
    /// From arrival to the first token.
    pub ttft: Option<Duration>,
    /// From the first token to the last.
    pub decode: Duration,
    /// The request's own targets in seconds; 0 is the server's default.
    pub slo_ttft_s: f32,
    /// See `slo_ttft_s`.
    pub slo_tpot_s: f32,
    /// Its class.
    pub priority: i32,
}

impl Finished {
    /// Mean seconds per token after the first; `None` for a single token.
    pub fn tpot_s(&self) -> Option<f64> {
        (self.tokens > 1).then(|| self.decode.as_secs_f64() / f64::from(self.tokens - 1))
    }
}

/// Raises a counter to an external total; a smaller total means a restart.
fn raise_to(counter: &Counter, total: f64) {
    if total < counter.get() {
        counter.reset();
    }
    counter.inc_by(total - counter.get());
}

/// Registers series under one set of labels.
struct Builder {
    registry: Registry,
    labels: HashMap<String, String>,
}

impl Builder {
    fn opts(&self, name: &str, help: &str) -> Opts {
        Opts::new(name, help).const_labels(self.labels.clone())
    }

    fn add<C: Collector + Clone + 'static>(
        &self,
        made: prometheus::Result<C>,
    ) -> prometheus::Result<C> {
        let collector = made?;
        self.registry.register(Box::new(collector.clone()))?;
        Ok(collector)
    }

    fn histogram(&self, name: &str, help: &str, buckets: &[f64]) -> prometheus::Result<Histogram> {
        let opts = HistogramOpts::new(name, help)
            .const_labels(self.labels.clone())
            .buckets(buckets.to_vec());
        self.add(Histogram::with_opts(opts))
    }

    fn counter(&self, name: &str, help: &str) -> prometheus::Result<IntCounter> {
        self.add(IntCounter::with_opts(self.opts(name, help)))
    }

    fn counters(&self, name: &str, help: &str, by: &str) -> prometheus::Result<IntCounterVec> {
        self.counters_by(name, help, &[by])
    }

    fn counters_by(
        &self,
        name: &str,
        help: &str,
        by: &[&str],
    ) -> prometheus::Result<IntCounterVec> {
        self.add(IntCounterVec::new(self.opts(name, help), by))
    }

    fn gauge(&self, name: &str, help: &str) -> prometheus::Result<Gauge> {
        self.add(Gauge::with_opts(self.opts(name, help)))
    }
}

impl Metrics {
    /// All series at zero.
    ///
    /// # Errors
    /// If two series clash: a mistake in this file.
    pub fn new(
        model_name: &str,
        slo: SloTargets,
        cache_dtype: &'static str,
    ) -> prometheus::Result<Arc<Self>> {
        let labels = HashMap::from([("model_name".to_owned(), model_name.to_owned())]);
        let b = Builder { registry: Registry::new(), labels };
        let seconds = |name: &str, help: &str, buckets| b.histogram(name, help, buckets);
        Ok(Arc::new(Self {
            device: DeviceMetrics::new(&b, cache_dtype)?,
            planes: PlaneMetrics::new(&b)?,
            adapters: AdapterMetrics::new(&b)?,
            tokenizer: TokenizerMetrics::new(&b)?,
            recent: Recent::default(),
            slo: SloMetrics::new(&b, slo)?,
            prompt_tokens: b.counter("vllm:prompt_tokens_total", "Prompt tokens processed.")?,
            generation_tokens: b.counter("vllm:generation_tokens_total", "Tokens generated.")?,
            finished: b.counters(
                "vllm:request_success_total",
                "Requests that ended well.",
                "finished_reason",
            )?,
            ttft_s: seconds(
                "vllm:time_to_first_token_seconds",
                "From arrival to the first token.",
                TTFT_BUCKETS_S,
            )?,
            inter_token_s: seconds(
                "vllm:inter_token_latency_seconds",
                "Between two tokens of a request.",
                TOKEN_BUCKETS_S,
            )?,
            inter_token_old_name_s: seconds(
                "vllm:time_per_output_token_seconds",
                "Older name of inter_token_latency_seconds.",
                TOKEN_BUCKETS_S,
            )?,
            per_output_token_s: seconds(
                "vllm:request_time_per_output_token_seconds",
                "Mean time per token after the first, by request.",
                TOKEN_BUCKETS_S,
            )?,
            e2e_s: seconds(
                "vllm:e2e_request_latency_seconds",
                "From arrival to the last token.",
                REQUEST_BUCKETS_S,
            )?,
            queue_s: seconds(
                "vllm:request_queue_time_seconds",
                "From arrival until the device took the request.",
                REQUEST_BUCKETS_S,
            )?,
            inference_s: seconds(
                "vllm:request_inference_time_seconds",
                "From when the device took the request to its last token.",
                REQUEST_BUCKETS_S,
            )?,
            prefill_s: seconds(
                "vllm:request_prefill_time_seconds",
                "From when the device took the request to its first token.",
                REQUEST_BUCKETS_S,
            )?,
            decode_s: seconds(
                "vllm:request_decode_time_seconds",
                "From the first token to the last.",
                REQUEST_BUCKETS_S,
            )?,
            prompt_length: seconds(
                "vllm:request_prompt_tokens",
                "Prompt tokens, by request.",
                LENGTH_BUCKETS,
            )?,
            generation_length: seconds(
                "vllm:request_generation_tokens",
                "Tokens generated, by request.",
                LENGTH_BUCKETS,
            )?,
            tokenize_s: seconds(
                "saccade:tokenize_seconds",
                "Template and tokenizer, by prompt, without the wait for a thread.",
                TOKENIZE_BUCKETS_S,
            )?,
            detokenize_s: b.add(Counter::with_opts(b.opts(
                "saccade:detokenize_seconds_total",
                "Time spent turning tokens into text and looking for stop strings.",
            )))?,
            rejected: b.counters(
                "saccade:requests_rejected_total",
                "Requests answered with an error before they reached the device.",
                "reason",
            )?,
            failed: b.counters(
                "saccade:requests_failed_total",
                "Requests that ended without an answer after they had reached the device.",
                "reason",
            )?,
            cancelled: b
                .counter("saccade:requests_cancelled_total", "Requests whose client went away.")?,
            unknown_fields: b.counter(
                "saccade:unknown_fields_total",
                "Fields of request bodies that no reader knows.",
            )?,
            access_log_dropped: b.counter(
                "saccade:access_log_dropped_total",
                "Lines of the access log that the disk was too slow for.",
            )?,
            trace_spans: b.counters(
                "saccade:trace_spans_total",
                "Spans of sampled requests: exported, or lost because the queue was full or no \
                 collector took them.",
                "result",
            )?,
            reloads: b.counters_by(
                "saccade:reloads_total",
                "Times that changed files of keys or certificates were read again.",
                &["files", "result"],
            )?,
            tenants: TenantMetrics::new(&b)?,
            registry: b.registry,
        }))
    }

    /// A request's first token came `after` its arrival.
    pub fn first_token(&self, after: Duration) {
        self.ttft_s.observe(after.as_secs_f64());
        self.recent.first_token(after);
    }

    /// A token came `after` the one before.
    pub fn next_token(&self, after: Duration) {
        let seconds = after.as_secs_f64();
        self.inter_token_s.observe(seconds);
        self.inter_token_old_name_s.observe(seconds);
        self.recent.next_token(after);
    }

    /// The prompt of a choice has been processed.
    pub fn prompted(&self, tokens: u32) {
        self.prompt_tokens.inc_by(u64::from(tokens));
    }

    /// A choice has one more token.
    pub fn produced(&self) {
        self.generation_tokens.inc();
    }

    /// A choice ended well.
    pub fn finished(&self, f: &Finished) {
        self.finished.with_label_values(&[f.reason]).inc();
        self.prompt_length.observe(f.prompt_tokens as f64);
        self.generation_length.observe(f64::from(f.tokens));
        self.e2e_s.observe(f.e2e.as_secs_f64());
        self.decode_s.observe(f.decode.as_secs_f64());
        self.recent.request(f.e2e);
        if let Some(queued) = f.queued {
            self.queue_s.observe(queued.as_secs_f64());
            self.inference_s.observe(f.e2e.saturating_sub(queued).as_secs_f64());
            if let Some(ttft) = f.ttft {
                self.prefill_s.observe(ttft.saturating_sub(queued).as_secs_f64());
            }
        }
        if let Some(mean) = f.tpot_s() {
            self.per_output_token_s.observe(mean);
        }
        self.slo.finished(f);
    }

    /// Rendering and tokenizing a prompt took this long.
    pub fn tokenized(&self, took: Duration) {
        self.tokenize_s.observe(took.as_secs_f64());
    }

    /// A choice spent this long on its text.
    pub fn detokenized(&self, took: Duration) {
        self.detokenize_s.inc_by(took.as_secs_f64());
    }

    /// A request was answered with an error and never reached the device.
    pub fn rejected(&self, reason: &str) {
        self.rejected.with_label_values(&[reason]).inc();
    }

    /// A request ended without an answer.
    pub fn failed(&self, reason: &str) {
        self.failed.with_label_values(&[reason]).inc();
    }

    /// A request's client went away.
    pub fn cancelled(&self) {
        self.cancelled.inc();
    }

    /// A body had fields that no reader knows.
    pub fn unknown_fields(&self, count: usize) {
        self.unknown_fields.inc_by(count as u64);
    }

    /// Lines of the access log that were dropped, all in all.
    pub fn access_log_dropped(&self, total: u64) {
        let counter = &self.access_log_dropped;
        counter.inc_by(total.saturating_sub(counter.get()));
    }

    /// Spans by what became of them, all in all.
    pub fn trace_spans(&self, counts: TraceCounts) {
        for (result, total) in [
            ("exported", counts.exported),
            ("queue_full", counts.queue_full),
            ("failed", counts.failed),
        ] {
            let counter = self.trace_spans.with_label_values(&[result]);
            counter.inc_by(total.saturating_sub(counter.get()));
        }
    }

    /// Files have changed.
    pub fn reloaded(&self, files: &str, well: bool) {
        self.reloads.with_label_values(&[files, if well { "done" } else { "refused" }]).inc();
    }

    /// Seconds until one of `running` requests may have ended: the mean time of recent requests,
    /// shared among them.
    pub fn retry_after_s(&self, running: u32) -> u32 {
        let seconds = self.recent.mean_request_s() / f64::from(running.max(1));
        seconds.ceil().clamp(RETRY_AFTER_S.0, RETRY_AFTER_S.1) as u32
    }

    /// All series in the Prometheus text format.
    ///
    /// # Errors
    /// If a series is not consistent: a mistake in this file.
    pub fn render(&self) -> prometheus::Result<Vec<u8>> {
        let mut text = Vec::new();
        TextEncoder::new().encode(&self.registry.gather(), &mut text)?;
        Ok(text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Bounds of vLLM's histograms of times between tokens.
    const VLLM_TOKEN_BUCKETS_S: [f64; 19] = [
        0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0,
        20.0, 40.0, 80.0,
    ];

    #[test]
    fn gaps_of_milliseconds_are_told_apart_and_vllms_bounds_are_kept() {
        let metrics = Metrics::new("m", SloTargets { ttft_s: 1.0, tpot_s: 1.0 }, "auto").unwrap();
        for gap_us in [1_600, 4_200, 12_000] {
            metrics.next_token(Duration::from_micros(gap_us));
        }
        let text = String::from_utf8(metrics.render().unwrap()).unwrap();
        let within = |bound: f64| {
            let labels = format!("{{model_name=\"m\",le=\"{bound}\"}} ");
            let name = format!("vllm:inter_token_latency_seconds_bucket{labels}");
            let line = text.lines().find_map(|line| line.strip_prefix(&name));
            line.unwrap_or_else(|| panic!("no bucket {bound}")).parse::<u64>().unwrap()
        };
        assert_eq!([0.0015, 0.002, 0.004, 0.005, 0.01, 0.015].map(within), [0, 1, 1, 2, 2, 3]);
        for bound in VLLM_TOKEN_BUCKETS_S {
            assert!(within(bound) >= 2, "{bound}");
        }
    }
}
