//! How many requests met their targets, by class.

use prometheus::IntCounterVec;

use super::{Builder, Finished, SloTargets};

/// `saccade:slo_requests_total`. Classes are priorities, and the API accepts only a few, so that
/// clients cannot create series without bound.
pub struct SloMetrics {
    defaults: SloTargets,
    requests: IntCounterVec,
}

impl SloMetrics {
    pub(super) fn new(b: &Builder, defaults: SloTargets) -> prometheus::Result<Self> {
        let opts = b.opts(
            "saccade:slo_requests_total",
            "Finished requests by target (goodput: both), outcome and priority.",
        );
        let requests = b.add(IntCounterVec::new(opts, &["target", "met", "priority"]))?;
        Ok(Self { defaults, requests })
    }

    /// Counts a choice that ended well. A single token has no time between tokens: it meets that
    /// target trivially, and only `goodput` counts it.
    pub(super) fn finished(&self, f: &Finished) {
        let Some(ttft) = f.ttft else { return };
        let met = |seconds: f64, own: f32, default: f64| {
            seconds <= if own > 0.0 { f64::from(own) } else { default }
        };
        let ttft_met = met(ttft.as_secs_f64(), f.slo_ttft_s, self.defaults.ttft_s);
        let tpot_met = f.tpot_s().map(|s| met(s, f.slo_tpot_s, self.defaults.tpot_s));
        let priority = f.priority.to_string();
        let count = |target, met| {
            let met = if met { "true" } else { "false" };
            self.requests.with_label_values(&[target, met, &priority]).inc();
        };
        count("ttft", ttft_met);
        if let Some(met) = tpot_met {
            count("tpot", met);
        }
        count("goodput", ttft_met && tpot_met != Some(false));
    }
}
