//! What the requests of a tenant may ask for.

use crate::limits::{MAX_PRIORITY, MAX_SLO_MS, MIN_SLO_MS};

/// Ranges of the fields by which a request would come before others.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Terms {
    /// Least and greatest class; lower goes first.
    pub priority: (i64, i64),
    /// Time to the first token.
    pub slo_ttft: Targets,
    /// Time per token.
    pub slo_tpot: Targets,
}

/// Targets that a request may name, and what it has if it names none.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Targets {
    /// Tightest, milliseconds.
    pub min_ms: f64,
    /// Loosest, milliseconds.
    pub max_ms: f64,
    /// Milliseconds; 0 is the server's own.
    pub unnamed_ms: f64,
}

impl Targets {
    /// Whatever the API allows.
    const ANY: Self = Self { min_ms: MIN_SLO_MS, max_ms: MAX_SLO_MS, unnamed_ms: 0.0 };

    /// From `min_ms` to `max_ms`, where the server's own target is `own_ms`.
    pub fn within(min_ms: f64, max_ms: f64, own_ms: f64) -> Self {
        let fits = (min_ms..=max_ms).contains(&own_ms);
        let unnamed_ms = if fits { 0.0 } else { own_ms.clamp(min_ms, max_ms) };
        Self { min_ms, max_ms, unnamed_ms }
    }

    /// None tighter than the server's own.
    pub fn not_tighter_than(own_ms: f64) -> Self {
        Self::within(own_ms, MAX_SLO_MS, own_ms)
    }
}

impl Terms {
    /// Whatever the API allows.
    pub const ANY: Self = Self {
        priority: (-MAX_PRIORITY, MAX_PRIORITY),
        slo_ttft: Targets::ANY,
        slo_tpot: Targets::ANY,
    };

    /// Nothing that comes before a request that asks for nothing.
    pub fn ordinary(own: OwnTargets) -> Self {
        Self {
            priority: (0, 0),
            slo_ttft: Targets::not_tighter_than(own.ttft_ms),
            slo_tpot: Targets::not_tighter_than(own.tpot_ms),
        }
    }
}

/// The server's own targets, milliseconds.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct OwnTargets {
    /// Time to the first token.
    pub ttft_ms: f64,
    /// Time per token.
    pub tpot_ms: f64,
}

impl OwnTargets {
    /// From seconds as the ring has them.
    pub fn from_s(ttft_s: f32, tpot_s: f32) -> Self {
        // 0.1 s as an f32 is a little more than 100 ms.
        let ms = |s: f32| (f64::from(s) * 1e6).round() / 1e3;
        let bounded = |s| ms(s).clamp(MIN_SLO_MS, MAX_SLO_MS);
        Self { ttft_ms: bounded(ttft_s), tpot_ms: bounded(tpot_s) }
    }
}
