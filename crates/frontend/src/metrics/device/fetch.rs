//! Traffic with the fetch plane: what of prompts came from a store, what went there, and why not.

use prometheus::{Gauge, IntCounter, IntCounterVec};
use saccade_ring::FetchStats;

use super::{Builder, raise};

/// Names of `SAC_FETCH_DONE` and the following results, in their order.
const RESULTS: [&str; 9] =
    ["done", "miss", "late", "trouble", "rejected", "full", "dropped", "cancelled", "invalid"];

/// Mirrored series; tokens carry the names that vLLM has for KV from elsewhere.
pub(super) struct Fetches {
    tokens: Vec<(IntCounter, Of)>,
    counters: Vec<(IntCounter, Of)>,
    gauges: Vec<(Gauge, OfGauge)>,
    /// By `op` and `result`.
    commands: IntCounterVec,
    /// By `kind`.
    rejections: IntCounterVec,
    troubles: IntCounterVec,
}

type Of = fn(&FetchStats) -> u64;
type OfGauge = fn(&FetchStats) -> u32;

impl Fetches {
    pub(super) fn new(b: &Builder) -> prometheus::Result<Self> {
        Ok(Self {
            tokens: counters(b, &TOKENS)?,
            counters: counters(b, &COUNTERS)?,
            gauges: GAUGES
                .iter()
                .map(|(name, help, of)| Ok((b.gauge(name, help)?, *of)))
                .collect::<prometheus::Result<_>>()?,
            commands: b.counters_by(
                "saccade:fetch_commands_total",
                "Commands that the fetch plane has answered: prompts looked up, chunks loaded and \
                 stored.",
                &["op", "result"],
            )?,
            rejections: b.counters(
                "saccade:fetch_rejected_chunks_total",
                "Chunks that came from a store and were not believed.",
                "kind",
            )?,
            troubles: b.counters(
                "saccade:fetch_troubles_total",
                "Commands that failed because the store did.",
                "kind",
            )?,
        })
    }

    pub(super) fn set(&self, stats: &FetchStats) {
        for (counter, of) in self.tokens.iter().chain(&self.counters) {
            raise(counter, of(stats));
        }
        for (gauge, of) in &self.gauges {
            gauge.set(f64::from(of(stats)));
        }
        if stats.num_frames == 0 {
            return; // no fetch plane, no series by label
        }
        for (op, counts) in
            [("lookup", stats.lookups), ("load", stats.loads), ("store", stats.stores)]
        {
            for (result, count) in RESULTS.iter().zip(counts) {
                raise(&self.commands.with_label_values(&[op, *result]), count);
            }
        }
        for (family, counts, kinds) in [
            (&self.rejections, stats.rejections, saccade_ring::REJECTION_KINDS),
            (&self.troubles, stats.troubles, saccade_ring::TROUBLE_KINDS),
        ] {
            for (kind, count) in kinds.iter().zip(counts).filter(|(kind, _)| !kind.is_empty()) {
                raise(&family.with_label_values(&[*kind]), count);
            }
        }
    }
}

fn counters(b: &Builder, rows: &[(&str, &str, Of)]) -> prometheus::Result<Vec<(IntCounter, Of)>> {
    rows.iter().map(|(name, help, of)| Ok((b.counter(name, help)?, *of))).collect()
}

const TOKENS: [(&str, &str, Of); 2] = [
    (
        "vllm:external_prefix_cache_queries_total",
        "Prompt tokens that a store was asked for.",
        |s| s.looked_up_tokens,
    ),
    ("vllm:external_prefix_cache_hits_total", "Prompt tokens whose KV came from a store.", |s| {
        s.fetched_tokens
    }),
];

const COUNTERS: [(&str, &str, Of); 12] = [
    ("saccade:fetch_lookups_skipped_total", "Prompts not looked up: no entry was free.", |s| {
        s.lookups_skipped
    }),
    ("saccade:fetch_lookups_given_up_total", "Lookups that were not answered in time.", |s| {
        s.lookups_given_up
    }),
    ("saccade:fetch_requests_loaded_total", "Requests that began to load chunks.", |s| {
        s.requests_loaded
    }),
    (
        "saccade:fetch_loads_refused_total",
        "Requests whose chunks were expected to come later than they are computed.",
        |s| s.loads_refused,
    ),
    (
        "saccade:fetch_loads_given_up_total",
        "Requests whose chunks did not all come, or not in time.",
        |s| s.loads_given_up,
    ),
    ("saccade:fetch_stores_dropped_total", "Computed chunks that found no room.", |s| {
        s.stores_dropped
    }),
    ("saccade:fetch_stores_evicted_total", "Chunks evicted before they were stored.", |s| {
        s.stores_evicted
    }),
    ("saccade:fetch_loaded_bytes_total", "Bytes that came, as the store keeps them.", |s| {
        s.loaded_bytes
    }),
    ("saccade:fetch_stored_bytes_total", "Bytes stored, as the store keeps them.", |s| {
        s.stored_bytes
    }),
    ("saccade:fetch_commands_lost_total", "Commands lost with a plane that died.", |s| {
        s.commands_lost
    }),
    ("saccade:fetch_planes_joined_total", "Lives of the fetch plane.", |s| s.planes_joined),
    ("saccade:fetch_planes_broken_total", "Lives that broke the protocol.", |s| s.planes_broken),
];

const GAUGES: [(&str, &str, OfGauge); 7] = [
    ("saccade:fetch_aside_requests", "Requests that wait for the answer to a lookup.", |s| {
        s.num_aside
    }),
    ("saccade:fetch_loading_requests", "Requests whose chunks are being loaded.", |s| {
        s.num_loading
    }),
    ("saccade:fetch_frames", "Chunks that can be on their way at one time.", |s| s.num_frames),
    ("saccade:fetch_frames_used", "Chunks on their way.", |s| s.frames_used),
    ("saccade:fetch_stores_waiting", "Computed chunks that wait to be stored.", |s| {
        s.stores_waiting
    }),
    ("saccade:fetch_plane_alive", "1 while the fetch plane's heart beats.", |s| s.plane_alive),
    (
        "saccade:fetch_breaker",
        "0: the store is used; 1: it failed and rests; 2: it is tried.",
        |s| s.breaker,
    ),
];
