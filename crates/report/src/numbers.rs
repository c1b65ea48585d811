//! Numbers as people read them.

/// `1234567.8` → `1,234,567.8`: groups of three and a fixed number of decimals.
/// Not-a-number is `–`, infinity `∞`.
#[must_use]
pub fn grouped(value: f64, decimals: usize) -> String {
    if value.is_nan() {
        return "–".to_owned();
    }
    if value.is_infinite() {
        return if value > 0.0 { "∞" } else { "−∞" }.to_owned();
    }
    let text = format!("{:.decimals$}", value.abs());
    let (whole, fraction) = match text.split_once('.') {
        Some((whole, fraction)) => (whole, Some(fraction)),
        None => (text.as_str(), None),
    };
    let mut out = String::with_capacity(text.len() + text.len() / 3 + 2);
    if value < 0.0 && text.bytes().any(|b| (b'1'..=b'9').contains(&b)) {
        out.push('−');
    }
    for (i, digit) in whole.chars().enumerate() {
        if i > 0 && (whole.len() - i).is_multiple_of(3) {
            out.push(',');
        }
        out.push(digit);
    }
    if let Some(fraction) = fraction {
        out.push('.');
        out.push_str(fraction);
    }
    out
}

/// About four significant digits, without trailing zeros: `0.012346` → `0.01235`.
#[must_use]
pub fn short(value: f64) -> String {
    let magnitude = value.abs();
    if !value.is_finite() || magnitude == 0.0 {
        return grouped(value, 0);
    }
    if !(1e-6..1e15).contains(&magnitude) {
        return format!("{value:.2e}");
    }
    let decimals = (3.0 - magnitude.log10().floor()).clamp(0.0, 9.0) as usize;
    let text = grouped(value, decimals);
    if !text.contains('.') {
        return text;
    }
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

/// The label of a tick among ticks `step` apart: as many decimals as the step needs, and `M`, `G`
/// for large numbers, which would not fit next to an axis.
pub(crate) fn tick(value: f64, step: f64) -> String {
    for (limit, letter) in [(1e12, "T"), (1e9, "G"), (1e6, "M")] {
        if value.abs() >= limit {
            return format!("{}{letter}", tick(value / limit, step / limit));
        }
    }
    if value != 0.0 && value.abs() < 1e-5 {
        return format!("{value:e}");
    }
    let mut decimals = (-step.abs().log10().floor()).clamp(0.0, 9.0) as usize;
    // A step of 0.25 or 2.5 needs one more than its magnitude says.
    while decimals < 9 && {
        let scaled = step * 10f64.powi(decimals as i32);
        (scaled - scaled.round()).abs() > 1e-6 * scaled.abs()
    } {
        decimals += 1;
    }
    grouped(value, decimals)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn groups_of_three() {
        assert_eq!(grouped(0.0, 0), "0");
        assert_eq!(grouped(999.0, 0), "999");
        assert_eq!(grouped(1000.0, 0), "1,000");
        assert_eq!(grouped(1234567.891, 1), "1,234,567.9");
        assert_eq!(grouped(-0.001, 2), "0.00");
        assert_eq!(grouped(-12345.0, 0), "−12,345");
        assert_eq!(grouped(f64::INFINITY, 3), "∞");
    }

    #[test]
    fn four_digits() {
        assert_eq!(short(0.0123456), "0.01235");
        assert_eq!(short(12.0), "12");
        assert_eq!(short(123.456), "123.5");
        assert_eq!(short(123456.0), "123,456");
        assert_eq!(short(1e-9), "1.00e-9");
    }

    #[test]
    fn ticks_have_the_decimals_of_their_step() {
        assert_eq!(tick(0.25, 0.25), "0.25");
        assert_eq!(tick(2.0, 0.5), "2.0");
        assert_eq!(tick(1500.0, 500.0), "1,500");
        assert_eq!(tick(2_500_000.0, 500_000.0), "2.5M");
    }
}
