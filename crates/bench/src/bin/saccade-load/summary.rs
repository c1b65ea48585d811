//! Percentiles of what was measured.

use serde_json::{Value, json};

use crate::client::Outcome;

/// One JSON object: throughput, TTFT, TPOT (mean gap of a request), ITL (each gap), E2E.
pub(crate) fn summarise(
    outcomes: &[Outcome],
    wall_s: f64,
    client_share: f64,
    concurrency: usize,
) -> Value {
    let tokens: usize = outcomes.iter().map(|o| o.tokens).sum();
    let tpot = |o: &Outcome| o.gaps_s.iter().sum::<f64>() / o.gaps_s.len().max(1) as f64;
    json!({
        "concurrency": concurrency,
        "requests": outcomes.len(),
        "wall_s": wall_s,
        "requests_per_s": outcomes.len() as f64 / wall_s,
        "output_tokens_per_s": tokens as f64 / wall_s,
        "ttft_ms": percentiles(outcomes.iter().map(|o| o.ttft_s)),
        "tpot_ms": percentiles(outcomes.iter().filter(|o| o.tokens > 1).map(tpot)),
        "itl_ms": percentiles(outcomes.iter().flat_map(|o| o.gaps_s.iter().copied())),
        "e2e_ms": percentiles(outcomes.iter().map(|o| o.e2e_s)),
        "client_core_share": client_share,
    })
}

fn percentiles(seconds: impl Iterator<Item = f64>) -> Value {
    let mut ms: Vec<f64> = seconds.map(|s| s * 1e3).collect();
    if ms.is_empty() {
        return Value::Null;
    }
    ms.sort_by(f64::total_cmp);
    // Nearest rank.
    let at = |p: f64| ms[((p * ms.len() as f64).ceil() as usize).clamp(1, ms.len()) - 1];
    json!({"p50": at(0.50), "p95": at(0.95), "p99": at(0.99), "max": at(1.0)})
}

/// One line.
pub(crate) fn for_people(s: &Value) -> String {
    let ms = |key: &str, p: &str| s[key][p].as_f64().unwrap_or(f64::NAN);
    format!(
        "{:>4} streams: {:>8.1} req/s {:>9.1} tok/s | TTFT p50 {:.1} p99 {:.1} ms | TPOT p50 {:.2} p99 \
         {:.2} ms | client {:.2} core",
        s["concurrency"],
        s["requests_per_s"].as_f64().unwrap_or(f64::NAN),
        s["output_tokens_per_s"].as_f64().unwrap_or(f64::NAN),
        ms("ttft_ms", "p50"),
        ms("ttft_ms", "p99"),
        ms("tpot_ms", "p50"),
        ms("tpot_ms", "p99"),
        s["client_core_share"].as_f64().unwrap_or(f64::NAN),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nearest_rank() {
        let p = percentiles((1..=100).map(|i| f64::from(i) / 1e3));
        assert_eq!((p["p50"].as_f64(), p["p99"].as_f64()), (Some(50.0), Some(99.0)));
        assert_eq!(percentiles(std::iter::empty()), Value::Null);
    }
}
