//! What the cache of tokenized texts does.

use prometheus::{Gauge, IntCounter};
use saccade_tokenizer::CacheCounters;

use super::{Builder, device::raise};

/// Series of the cache; they move when [`TokenizerMetrics::set`] is called.
pub struct TokenizerMetrics {
    hits: IntCounter,
    misses: IntCounter,
    evictions: IntCounter,
    hit_bytes: IntCounter,
    held_bytes: Gauge,
}

impl TokenizerMetrics {
    pub(super) fn new(b: &Builder) -> prometheus::Result<Self> {
        Ok(Self {
            hits: b.counter(
                "saccade:tokenizer_cache_hits_total",
                "Texts between added tokens whose ids were kept.",
            )?,
            misses: b.counter(
                "saccade:tokenizer_cache_misses_total",
                "Texts long enough to be kept that had to be tokenized.",
            )?,
            evictions: b.counter(
                "saccade:tokenizer_cache_evictions_total",
                "Texts whose ids made room for others.",
            )?,
            hit_bytes: b.counter(
                "saccade:tokenizer_cache_hit_bytes_total",
                "Bytes of text that were not tokenized again.",
            )?,
            held_bytes: b
                .gauge("saccade:tokenizer_cache_bytes", "Memory of the texts and ids kept.")?,
        })
    }

    /// Sets every series.
    pub fn set(&self, now: CacheCounters) {
        raise(&self.hits, now.hits);
        raise(&self.misses, now.misses);
        raise(&self.evictions, now.evictions);
        raise(&self.hit_bytes, now.hit_bytes);
        self.held_bytes.set(now.held_bytes as f64);
    }
}
