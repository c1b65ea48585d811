//! What tenants have in flight, used, and were refused.

use prometheus::{CounterVec, IntCounterVec, IntGaugeVec};

use super::Builder;
use crate::tenants::Counts;

/// Series with the label `tenant`.
pub struct TenantMetrics {
    requests: IntGaugeVec,
    tokens: IntGaugeVec,
    used: IntCounterVec,
    refused: IntCounterVec,
    grammars: CounterVec,
}

impl TenantMetrics {
    pub(super) fn new(b: &Builder) -> prometheus::Result<Self> {
        let gauges = |name, help| b.add(IntGaugeVec::new(b.opts(name, help), &["tenant"]));
        let counters = |name, help| b.counters(name, help, "tenant");
        Ok(Self {
            requests: gauges("saccade:tenant_requests", "Choices in flight.")?,
            tokens: gauges(
                "saccade:tenant_tokens",
                "Tokens of choices in flight: prompts, and what they may produce.",
            )?,
            used: counters(
                "saccade:tenant_tokens_used_total",
                "Tokens of requests that have ended: prompts, and what was produced.",
            )?,
            refused: counters(
                "saccade:tenant_requests_refused_total",
                "Requests refused for a limit of their tenant.",
            )?,
            grammars: b.add(CounterVec::new(
                b.opts(
                    "saccade:tenant_grammar_seconds_total",
                    "Processor time that compiling grammars took, refused ones as well.",
                ),
                &["tenant"],
            ))?,
        })
    }

    /// Mirrors the counts of all tenants there are.
    pub fn set(&self, counts: &[(String, Counts)]) {
        // A tenant that is gone has no more series.
        self.requests.reset();
        self.tokens.reset();
        for (tenant, counts) in counts {
            let label = &[tenant.as_str()];
            self.requests.with_label_values(label).set(counts.requests as i64);
            self.tokens.with_label_values(label).set(counts.tokens as i64);
            for (series, total) in
                [(&self.used, counts.tokens_used), (&self.refused, counts.refused)]
            {
                let series = series.with_label_values(label);
                series.inc_by(total.saturating_sub(series.get()));
            }
            let seconds = self.grammars.with_label_values(label);
            seconds.inc_by((counts.grammars_us as f64 / 1e6 - seconds.get()).max(0.0));
        }
    }
}
