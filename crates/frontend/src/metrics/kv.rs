//! Bytes of KV, by where they came from.

use std::sync::{Mutex, PoisonError};

use prometheus::{IntCounter, IntCounterVec};
use saccade_ring::{DeviceInfo, DeviceStats};

use super::Builder;

/// `saccade:kv_bytes_total` by `source`; without series while blocks take no memory.
pub struct KvBytes {
    by_source: IntCounterVec,
    /// Prefill, decode and recomputed tokens as last read.
    last: Mutex<[u64; 3]>,
}

impl KvBytes {
    pub(super) fn new(b: &Builder) -> prometheus::Result<Self> {
        let by_source = b.counters(
            "saccade:kv_bytes_total",
            "KV written into device memory: computed, or recomputed after a preemption.",
            "source",
        )?;
        Ok(Self { by_source, last: Mutex::default() })
    }

    /// Sets both sources from the device's counters.
    pub fn set(&self, device: &DeviceInfo, stats: &DeviceStats) {
        if device.kv_block_bytes == 0 || device.block_size == 0 {
            return;
        }
        if self.restarted([stats.prefill_tokens, stats.decode_tokens, stats.recomputed_tokens]) {
            self.by_source.reset();
        }
        let rows = stats.prefill_tokens.saturating_add(stats.decode_tokens);
        let computed = rows.saturating_sub(stats.recomputed_tokens);
        let bytes = |tokens: u64| {
            let bytes = u128::from(tokens) * u128::from(device.kv_block_bytes);
            u64::try_from(bytes / u128::from(device.block_size)).unwrap_or(u64::MAX)
        };
        raise(&self.by_source.with_label_values(&["computed"]), bytes(computed));
        raise(&self.by_source.with_label_values(&["recomputed"]), bytes(stats.recomputed_tokens));
    }

    /// Each word only grows in the life of a device. Their difference may fall for a moment,
    /// because they are read one by one.
    fn restarted(&self, now: [u64; 3]) -> bool {
        // Three numbers are consistent after any panic.
        let mut last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        let fell = now.iter().zip(last.iter()).any(|(now, last)| now < last);
        *last = now;
        fell
    }
}

/// Brings a counter up to a total; never down.
fn raise(counter: &IntCounter, total: u64) {
    counter.inc_by(total.saturating_sub(counter.get()));
}
