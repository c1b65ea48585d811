//! Numbers for people.

use crate::histogram::{Quantile, QuantileKind};

/// What is not known.
pub const UNKNOWN: &str = "–";

/// Seconds with three digits and a fitting unit.
pub fn seconds(s: f64) -> String {
    let (value, unit) = match s.abs() {
        x if x >= 100.0 => return format!("{s:.0} s"),
        x if x >= 1.0 => (s, "s"),
        x if x >= 1e-3 => (s * 1e3, "ms"),
        x if x >= 1e-6 => (s * 1e6, "µs"),
        x if x > 0.0 => (s * 1e9, "ns"),
        _ => return "0 s".into(),
    };
    format!("{} {unit}", digits(value))
}

/// A count or rate, with k, M, G.
pub fn count(n: f64) -> String {
    let (value, unit) = match n.abs() {
        x if x >= 1e9 => (n / 1e9, "G"),
        x if x >= 1e6 => (n / 1e6, "M"),
        x if x >= 1e4 => (n / 1e3, "k"),
        _ if n.fract() == 0.0 => return format!("{n:.0}"),
        _ => (n, ""),
    };
    format!("{}{unit}", digits(value))
}

/// Bytes with binary units.
pub fn bytes(n: f64) -> String {
    for (limit, unit) in [(1u64 << 40, "TiB"), (1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB")]
    {
        if n >= limit as f64 {
            return format!("{} {unit}", digits(n / limit as f64));
        }
    }
    format!("{n:.0} B")
}

/// A share as per cent.
pub fn percent(share: f64) -> String {
    match share * 100.0 {
        p if p >= 99.95 || p <= 0.0 => format!("{p:.0} %"),
        p if p >= 10.0 => format!("{p:.1} %"),
        p => format!("{p:.2} %"),
    }
}

/// A percentile: an estimate, or what the buckets tell where they are coarse.
pub fn quantile(q: Quantile) -> String {
    if let Some((low, high)) = q.coarse_bounds() {
        return range(low, high);
    }
    let value = seconds(q.seconds);
    match q.kind {
        QuantileKind::Estimate => value,
        QuantileKind::AtMost => format!("≤{value}"),
        QuantileKind::AtLeast => format!(">{value}"),
    }
}

/// Bounds of a bucket, which are round numbers, in eight columns: `10–25ms`, `.1–.25s`.
fn range(low_s: f64, high_s: f64) -> String {
    let (scale, unit) = match high_s {
        x if x >= 0.1 => (1.0, "s"),
        x if x >= 1e-4 => (1e3, "ms"),
        _ => (1e6, "µs"),
    };
    let short = |s: f64| {
        let text = ((s * scale * 1e3).round() / 1e3).to_string();
        text.strip_prefix("0.").map_or(text.clone(), |rest| format!(".{rest}"))
    };
    format!("{}–{}{unit}", short(low_s), short(high_s))
}

/// A value if there is one.
pub fn or_unknown(value: Option<f64>, form: impl Fn(f64) -> String) -> String {
    value.map_or(UNKNOWN.into(), form)
}

fn digits(value: f64) -> String {
    match value.abs() {
        x if x >= 99.95 => format!("{value:.0}"),
        x if x >= 9.995 => format!("{value:.1}"),
        _ => format!("{value:.2}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn units_fit() {
        for (value, text) in [
            (0.0, "0 s"),
            (2.5e-7, "250 ns"),
            (1.234e-3, "1.23 ms"),
            (0.0999, "99.9 ms"),
            (12.34, "12.3 s"),
            (640.0, "640 s"),
        ] {
            assert_eq!(seconds(value), text);
        }
        for (value, text) in [(7.0, "7"), (1.5, "1.50"), (12345.0, "12.3k"), (3.2e6, "3.20M")] {
            assert_eq!(count(value), text);
        }
        assert_eq!(bytes(1536.0), "1.50 KiB");
        assert_eq!(bytes(12.0), "12 B");
        for (value, text) in [(0.0, "0 %"), (0.9999, "100 %"), (0.5, "50.0 %"), (0.012, "1.20 %")] {
            assert_eq!(percent(value), text);
        }
        let of = |seconds, kind, low_seconds, high_seconds| {
            quantile(Quantile { seconds, kind, low_seconds, high_seconds })
        };
        assert_eq!(of(0.01, QuantileKind::AtMost, 0.0, Some(0.01)), "≤10.0 ms");
        assert_eq!(of(80.0, QuantileKind::AtLeast, 80.0, None), ">80.0 s");
        assert_eq!(of(0.014, QuantileKind::Estimate, 0.01, Some(0.015)), "14.0 ms");
        assert_eq!(of(0.014, QuantileKind::Estimate, 0.01, Some(0.025)), "10–25ms");
        assert_eq!(of(0.2, QuantileKind::Estimate, 0.1, Some(0.25)), ".1–.25s");
        assert_eq!(of(0.7, QuantileKind::Estimate, 0.5, Some(1.0)), ".5–1s");
        assert_eq!(of(7e-4, QuantileKind::Estimate, 5e-4, Some(1e-3)), ".5–1ms");
        assert_eq!(or_unknown(None, count), UNKNOWN);
    }
}
