//! Kubernetes' quantities: `500m`, `2`, `0.5`, `1.5k`, `1e3`, `4Ki`.

/// Thousandths in a quantity, rounded up as the scheduler does. None if it is not a quantity, is
/// negative, or does not fit.
pub fn thousandths(text: &str) -> Option<u64> {
    let text = text.trim();
    let split = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    let (number, suffix) = text.split_at(split);
    let (numerator, denominator) = multiplier(suffix)?;
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    if whole.is_empty() && fraction.is_empty() || fraction.contains('.') || fraction.len() > 12 {
        return None;
    }
    let digits: u128 = format!("{whole}{fraction}").parse().ok()?;
    let scale = 10u128.pow(fraction.len() as u32).checked_mul(denominator)?;
    let product = digits.checked_mul(numerator)?.checked_mul(1000)?;
    u64::try_from(product.div_ceil(scale)).ok()
}

/// What a suffix multiplies by, as a fraction.
fn multiplier(suffix: &str) -> Option<(u128, u128)> {
    Some(match suffix {
        "" => (1, 1),
        "n" => (1, 1_000_000_000),
        "u" => (1, 1_000_000),
        "m" => (1, 1000),
        "k" => (1000, 1),
        "M" => (1_000_000, 1),
        "G" => (1_000_000_000, 1),
        "Ki" => (1 << 10, 1),
        "Mi" => (1 << 20, 1),
        "Gi" => (1 << 30, 1),
        _ => return exponent(suffix.strip_prefix(['e', 'E'])?),
    })
}

fn exponent(text: &str) -> Option<(u128, u128)> {
    let exponent: i32 = text.parse().ok()?;
    let power = 10u128.checked_pow(exponent.unsigned_abs()).filter(|p| *p <= 1_000_000_000_000)?;
    Some(if exponent < 0 { (1, power) } else { (power, 1) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn forms() {
        for (text, expected) in [
            ("2", 2000),
            ("500m", 500),
            ("0.1", 100),
            (".5", 500),
            ("2.", 2000),
            ("1.0001", 1001),
            ("1e3", 1_000_000),
            ("5E-1", 500),
            ("1k", 1_000_000),
            ("100u", 1),
            ("0", 0),
        ] {
            assert_eq!(thousandths(text), Some(expected), "{text}");
        }
        for bad in ["", "m", "-1", "1..2", "abc", "1e99", "1Q", "99999999999999999999999", "1e"] {
            assert_eq!(thousandths(bad), None, "{bad}");
        }
    }
}
