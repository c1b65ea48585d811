//! The second tier of KV memory: what it holds, and what moved between the two.

use prometheus::{Gauge, IntCounter, IntCounterVec};
use saccade_ring::{DeviceInfo, DeviceStats};

use super::{Builder, raise};

/// Mirrored series; bytes and usage carry the names that vLLM's offloading has.
pub(super) struct Tiers {
    rotations: IntCounter,
    rotated: Gauge,
    usage: Gauge,
    host_blocks: Gauge,
    host_blocks_used: Gauge,
    host_blocks_used_max: Gauge,
    blocks_cached: Gauge,
    host_blocks_cached: Gauge,
    /// By `kind`: eager and urgent go down, up comes back.
    blocks: IntCounterVec,
    bytes: IntCounterVec,
}

impl Tiers {
    pub(super) fn new(b: &Builder) -> prometheus::Result<Self> {
        Ok(Self {
            rotations: b.counter(
                "saccade:device_rotations_total",
                "Times that a request's KV went to host memory.",
            )?,
            rotated: b.gauge(
                "saccade:device_rotated_requests",
                "Requests whose KV is in host memory only.",
            )?,
            usage: b.gauge(
                "vllm:kv_offload_cpu_cache_usage_perc",
                "KV blocks of host memory in use; 1 is all.",
            )?,
            host_blocks: b.gauge("saccade:device_host_blocks", "KV blocks of host memory.")?,
            host_blocks_used: b
                .gauge("saccade:device_host_blocks_used", "KV blocks of host memory in use.")?,
            host_blocks_used_max: b.gauge(
                "saccade:device_host_blocks_used_max",
                "Most KV blocks of host memory in use.",
            )?,
            blocks_cached: b.gauge(
                "saccade:device_blocks_cached",
                "KV blocks that hold a prefix and are used by no request.",
            )?,
            host_blocks_cached: b.gauge(
                "saccade:device_host_blocks_cached",
                "KV blocks of host memory that hold a prefix and are used by no request.",
            )?,
            blocks: b.counters(
                "saccade:device_blocks_copied_total",
                "KV blocks copied: eager and urgent to host memory, up from there.",
                "kind",
            )?,
            bytes: b.counters(
                "vllm:kv_offload_total_bytes_total",
                "Bytes of KV copied between device and host memory.",
                "transfer_type",
            )?,
        })
    }

    pub(super) fn set(&self, device: &DeviceInfo, stats: &DeviceStats) {
        raise(&self.rotations, stats.rotations);
        self.rotated.set(f64::from(stats.num_rotated));
        self.usage
            .set(f64::from(stats.host_blocks_used) / f64::from(device.num_host_blocks.max(1)));
        self.host_blocks.set(f64::from(device.num_host_blocks));
        self.host_blocks_used.set(f64::from(stats.host_blocks_used));
        self.host_blocks_used_max.set(f64::from(stats.host_blocks_used_max));
        self.blocks_cached.set(f64::from(stats.blocks_cached));
        self.host_blocks_cached.set(f64::from(stats.host_blocks_cached));
        if device.num_host_blocks == 0 {
            return;
        }
        let down = stats.blocks_down_eager.saturating_add(stats.blocks_down_urgent);
        raise(&self.blocks.with_label_values(&["eager"]), stats.blocks_down_eager);
        raise(&self.blocks.with_label_values(&["urgent"]), stats.blocks_down_urgent);
        raise(&self.blocks.with_label_values(&["up"]), stats.blocks_up);
        let bytes = |blocks: u64| blocks.saturating_mul(device.kv_block_bytes);
        raise(&self.bytes.with_label_values(&["GPU_to_CPU"]), bytes(down));
        raise(&self.bytes.with_label_values(&["CPU_to_GPU"]), bytes(stats.blocks_up));
    }
}
