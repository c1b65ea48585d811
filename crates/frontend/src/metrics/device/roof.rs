//! What memory and arithmetic allow the device's steps.

use prometheus::{Gauge, GaugeVec};
use saccade_ring::Roof;

use super::Builder;

/// Mirrored series, without samples or 0 where the device has measured nothing.
pub(super) struct RoofMetrics {
    info: GaugeVec,
    packed_bytes: Gauge,
    huge_page_bytes: Gauge,
    step_weight_bytes: Gauge,
    read_bytes_per_s: Gauge,
    product_flop_per_s: GaugeVec,
}

impl RoofMetrics {
    pub(super) fn new(b: &Builder) -> prometheus::Result<Self> {
        let info = b.opts("saccade:device_info", "Kernel set and threads of the cpu device.");
        let products = b.opts(
            "saccade:device_product_flops_per_second",
            "Products by rows, with operands in caches, as last measured.",
        );
        Ok(Self {
            info: b.add(GaugeVec::new(info, &["kernels", "threads"]))?,
            packed_bytes: b
                .gauge("saccade:device_weight_bytes", "Weights, as kernels read them.")?,
            huge_page_bytes: b
                .gauge("saccade:device_weight_huge_page_bytes", "Of the weights, in huge pages.")?,
            step_weight_bytes: b.gauge(
                "saccade:device_step_weight_bytes",
                "Weights that a step of one row reads.",
            )?,
            read_bytes_per_s: b.gauge(
                "saccade:device_read_bytes_per_second",
                "Reading of the weights by the step's threads, without products, as last measured.",
            )?,
            product_flop_per_s: b.add(GaugeVec::new(products, &["rows"]))?,
        })
    }

    pub(super) fn set(&self, roof: Option<&Roof>) {
        self.info.reset();
        self.product_flop_per_s.reset();
        let of = |field: fn(&Roof) -> u64| roof.map_or(0, field) as f64;
        self.packed_bytes.set(of(|r| r.packed_bytes));
        self.huge_page_bytes.set(of(|r| r.huge_page_bytes));
        self.step_weight_bytes.set(of(|r| r.step_weight_bytes));
        self.read_bytes_per_s.set(of(|r| r.read_bytes_per_s));
        let Some(roof) = roof else { return };
        let threads = roof.num_threads.to_string();
        self.info.with_label_values(&[roof.kernels.as_str(), &threads]).set(1.0);
        for (rows, rate) in &roof.product_flop_per_s {
            self.product_flop_per_s.with_label_values(&[&rows.to_string()]).set(*rate as f64);
        }
    }
}
