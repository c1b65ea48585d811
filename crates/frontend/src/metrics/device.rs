//! Series that mirror what others count: the device's statistics, the ring's slots, the reader.

mod fetch;
mod roof;
mod tiers;

use prometheus::{Counter, Gauge, GaugeVec, IntCounter};
use saccade_ring::{DeviceInfo, DeviceStats, FetchStats, Roof};

use self::fetch::Fetches;
use self::roof::RoofMetrics;
use self::tiers::Tiers;
use super::kv::KvBytes;
use super::{Builder, raise_to};

/// Names of `SAC_STATE_*`, in their order.
const SLOT_STATES: [&str; 8] = [
    "empty",
    "prefill_pending",
    "prefill_processing",
    "decode_processing",
    "decode_paused",
    "decode_completed",
    "fetch_pending",
    "fetch_processing",
];

/// One reading of everything that is mirrored.
pub struct Reading {
    /// The device line.
    pub device: DeviceInfo,
    /// The device's counters.
    pub stats: DeviceStats,
    /// Its counters of the traffic with the fetch plane.
    pub fetch: FetchStats,
    /// Slots by state.
    pub slots: Vec<usize>,
    /// Jobs that wait for a tokenizer thread.
    pub tokenizer_queue: usize,
    /// Requests in flight over HTTP.
    pub requests: usize,
    /// Open connections.
    pub connections: usize,
    /// Tickets that ended because the device broke the protocol.
    pub violations: u64,
    /// Tickets whose consumer had no room.
    pub stalled: usize,
    /// Life of this frontend.
    pub frontend_epoch: u32,
}

/// The mirrored series; they move when [`DeviceMetrics::set`] is called.
pub struct DeviceMetrics {
    running: Gauge,
    waiting: Gauge,
    kv_usage: Gauge,
    cache_config: GaugeVec,
    cache_dtype: &'static str,
    preemptions: IntCounter,
    ready: Gauge,
    epoch: Gauge,
    frontend_epoch: Gauge,
    paused: Gauge,
    blocks_used_max: Gauge,
    last_step_tokens: Gauge,
    last_step_seqs: Gauge,
    slots: GaugeVec,
    tokenizer_queue: Gauge,
    requests: Gauge,
    connections: Gauge,
    stalled: Gauge,
    violations: IntCounter,
    counters: Vec<(IntCounter, Of)>,
    seconds: Vec<(Counter, Of)>,
    kv_bytes: KvBytes,
    tiers: Tiers,
    fetches: Fetches,
    roof: RoofMetrics,
}

impl DeviceMetrics {
    pub(super) fn new(b: &Builder, cache_dtype: &'static str) -> prometheus::Result<Self> {
        let slots = b.opts("saccade:slots", "Slots of this frontend by state.");
        let cache =
            b.opts("vllm:cache_config_info", "Block size, number and element type of KV blocks.");
        Ok(Self {
            running: b.gauge("vllm:num_requests_running", "Requests that hold a seat.")?,
            waiting: b.gauge("vllm:num_requests_waiting", "Requests that wait for a seat.")?,
            kv_usage: b.gauge("vllm:kv_cache_usage_perc", "KV blocks in use; 1 is all.")?,
            cache_config: b
                .add(GaugeVec::new(cache, &["block_size", "cache_dtype", "num_gpu_blocks"]))?,
            cache_dtype,
            preemptions: b.counter("vllm:num_preemptions_total", "Requests preempted.")?,
            ready: b.gauge("saccade:device_ready", "1 when the device takes requests.")?,
            epoch: b.gauge("saccade:device_epoch", "Life of the device, from 1.")?,
            frontend_epoch: b.gauge("saccade:frontend_epoch", "Life of this frontend, from 1.")?,
            paused: b.gauge("saccade:device_paused_requests", "Requests that are held.")?,
            blocks_used_max: b.gauge("saccade:device_blocks_used_max", "Most KV blocks in use.")?,
            last_step_tokens: b.gauge("saccade:device_last_step_tokens", "Rows of a step.")?,
            last_step_seqs: b.gauge("saccade:device_last_step_seqs", "Sequences of a step.")?,
            slots: b.add(GaugeVec::new(slots, &["state"]))?,
            tokenizer_queue: b.gauge("saccade:tokenizer_queue_depth", "Prompts that wait.")?,
            requests: b.gauge("saccade:requests_in_flight", "Requests being answered.")?,
            connections: b.gauge("saccade:http_connections", "Open connections.")?,
            stalled: b.gauge("saccade:reader_stalled_requests", "Requests with a slow reader.")?,
            violations: b.counter("saccade:ring_violations_total", "Protocol faults.")?,
            counters: counters(b)?,
            seconds: seconds(b)?,
            kv_bytes: KvBytes::new(b)?,
            tiers: Tiers::new(b)?,
            fetches: Fetches::new(b)?,
            roof: RoofMetrics::new(b)?,
        })
    }

    /// Sets every series to what was read.
    pub fn set(&self, r: &Reading) {
        let stats = &r.stats;
        self.running.set(f64::from(stats.num_running));
        self.waiting.set(f64::from(stats.num_waiting));
        self.kv_usage.set(kv_usage(r));
        self.cache_config.reset();
        let (block_size, num_blocks) =
            (r.device.block_size.to_string(), r.device.num_blocks.to_string());
        let labels = [block_size.as_str(), self.cache_dtype, num_blocks.as_str()];
        self.cache_config.with_label_values(&labels).set(1.0);
        raise(&self.preemptions, stats.preemptions);
        self.ready.set(f64::from(u8::from(r.device.ready())));
        self.epoch.set(f64::from(r.device.epoch));
        self.frontend_epoch.set(f64::from(r.frontend_epoch));
        self.paused.set(f64::from(stats.num_paused));
        self.blocks_used_max.set(f64::from(stats.blocks_used_max));
        self.last_step_tokens.set(f64::from(stats.last_step_tokens));
        self.last_step_seqs.set(f64::from(stats.last_step_seqs));
        for (name, count) in SLOT_STATES.iter().zip(&r.slots) {
            self.slots.with_label_values(&[name]).set(*count as f64);
        }
        self.tokenizer_queue.set(r.tokenizer_queue as f64);
        self.requests.set(r.requests as f64);
        self.connections.set(r.connections as f64);
        self.stalled.set(r.stalled as f64);
        raise(&self.violations, r.violations);
        for (counter, of) in &self.counters {
            raise(counter, of(stats));
        }
        for (counter, of) in &self.seconds {
            raise_to(counter, of(stats) as f64 * 1e-9);
        }
        self.kv_bytes.set(&r.device, stats);
        self.tiers.set(&r.device, stats);
        self.fetches.set(&r.fetch);
    }

    /// What the device's memory and arithmetic allow its steps; the page does not show it.
    pub fn set_roof(&self, roof: Option<&Roof>) {
        self.roof.set(roof);
    }
}

/// Share of the KV blocks in use.
fn kv_usage(r: &Reading) -> f64 {
    f64::from(r.stats.blocks_used) / f64::from(r.device.num_blocks.max(1))
}

/// Raises a counter to an external total; a smaller total means a restart.
pub(super) fn raise(counter: &IntCounter, total: u64) {
    if total < counter.get() {
        counter.reset();
    }
    counter.inc_by(total.saturating_sub(counter.get()));
}

type Of = fn(&DeviceStats) -> u64;

fn counters(b: &Builder) -> prometheus::Result<Vec<(IntCounter, Of)>> {
    let rows: [(&str, &str, Of); 14] = [
        ("saccade:device_ticks_total", "Ticks.", |s| s.ticks),
        ("saccade:device_steps_total", "Model steps.", |s| s.steps),
        ("saccade:device_prefill_tokens_total", "Prompt tokens computed.", |s| s.prefill_tokens),
        ("saccade:device_decode_tokens_total", "Decode rows computed.", |s| s.decode_tokens),
        ("saccade:device_recomputed_tokens_total", "Tokens computed again.", |s| {
            s.recomputed_tokens
        }),
        ("saccade:device_forced_tokens_total", "Not drawn: grammars left no choice.", |s| {
            s.forced_tokens
        }),
        ("saccade:device_requests_accepted_total", "Taken.", |s| s.requests_accepted),
        ("saccade:device_requests_rejected_total", "Refused.", |s| s.requests_rejected),
        ("saccade:device_requests_finished_total", "Ended.", |s| s.requests_finished),
        ("saccade:device_requests_reclaimed_total", "Of lost frontends.", |s| s.requests_reclaimed),
        ("saccade:device_reader_stalls_total", "Held for a slow reader.", |s| s.reader_stalls),
        ("vllm:prefix_cache_queries_total", "Prompt tokens looked up in the prefix cache.", |s| {
            s.prefix_query_tokens
        }),
        ("vllm:prefix_cache_hits_total", "Prompt tokens whose KV was in the prefix cache.", |s| {
            s.prefix_hit_tokens
        }),
        ("saccade:device_prefix_evictions_total", "Cached KV blocks that left both tiers.", |s| {
            s.prefix_evictions
        }),
    ];
    let one = |(name, help, of): (&str, &str, Of)| Ok((b.counter(name, help)?, of));
    rows.into_iter().map(one).collect()
}

fn seconds(b: &Builder) -> prometheus::Result<Vec<(Counter, Of)>> {
    let rows: [(&str, &str, Of); 4] = [
        ("saccade:device_step_seconds_total", "Time of steps, summed.", |s| s.step_ns),
        (
            "saccade:device_host_wait_seconds_total",
            "Time without a step although a request could run: the host had to act first.",
            |s| s.host_wait_ns,
        ),
        (
            "saccade:device_reader_wait_seconds_total",
            "Time without a step because every request was held for a slow reader.",
            |s| s.reader_wait_ns,
        ),
        (
            "saccade:device_copy_wait_seconds_total",
            "Time without a step because requests waited for KV between device and host memory.",
            |s| s.copy_wait_ns,
        ),
    ];
    let one = |(name, help, of): (&str, &str, Of)| {
        Ok((b.add(Counter::with_opts(b.opts(name, help)))?, of))
    };
    rows.into_iter().map(one).collect()
}
