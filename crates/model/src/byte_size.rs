//! Sizes in bytes as people write them.

/// Bytes from a number, or from a number with a suffix: `k`, `m`, `g`, `t` count in thousands, and
/// take fractions (`1.5g`); `K`, `M`, `G`, `T`, also written `Ki`, `Mi`, `Gi`, `Ti`, count in
/// 1,024s and take none. The letters mean what they do in vLLM.
///
/// # Errors
/// A sentence with the text and the forms that are taken; sizes from 2^64 bytes on are refused.
pub fn byte_size(text: &str) -> Result<u64, String> {
    parse(text.trim()).ok_or_else(|| {
        format!(
            "{text:?} is not a size in bytes below 2^64: a whole number, one with K, M, G or T \
             (1,024s; also Ki, Mi, Gi, Ti), or a number with k, m, g or t (1,000s)"
        )
    })
}

fn parse(text: &str) -> Option<u64> {
    let digits = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    let (number, suffix) = text.split_at(digits);
    let (multiplier, fractions) = match suffix {
        "" => (1, false),
        "k" => (1_000, true),
        "m" => (1_000_000, true),
        "g" => (1_000_000_000, true),
        "t" => (1_000_000_000_000, true),
        "K" | "Ki" => (1 << 10, false),
        "M" | "Mi" => (1 << 20, false),
        "G" | "Gi" => (1 << 30, false),
        "T" | "Ti" => (1_u64 << 40, false),
        _ => return None,
    };
    match number.split_once('.') {
        None => number.parse::<u64>().ok()?.checked_mul(multiplier),
        Some((whole, fraction)) if fractions => {
            let whole = whole.parse::<u64>().ok()?.checked_mul(multiplier)?;
            whole.checked_add(part_of(fraction, multiplier)?)
        }
        Some(_) => None,
    }
}

/// `0.fraction * of`, rounded down; `of` is a power of ten.
fn part_of(fraction: &str, of: u64) -> Option<u64> {
    if fraction.is_empty() || !fraction.bytes().all(|b| b.is_ascii_digit()) {
        return None;
    }
    let (mut sum, mut place) = (0, of);
    for digit in fraction.bytes() {
        place /= 10;
        sum += u64::from(digit - b'0') * place;
    }
    Some(sum)
}

#[cfg(test)]
mod tests {
    use super::byte_size;

    #[test]
    fn suffixes_count_in_thousands_or_in_1024s() {
        for (text, bytes) in [
            ("0", 0),
            ("64000000", 64_000_000),
            ("1k", 1_000),
            ("1K", 1_024),
            ("1Ki", 1_024),
            ("25.6k", 25_600),
            ("2m", 2_000_000),
            ("2M", 2 << 20),
            ("1.5g", 1_500_000_000),
            ("1G", 1 << 30),
            ("3Gi", 3 << 30),
            (" 2T ", 2 << 40),
            ("0.0000000000019t", 1),
            ("18446744073709551615", u64::MAX),
        ] {
            assert_eq!(byte_size(text), Ok(bytes), "{text}");
        }
    }

    #[test]
    fn what_is_no_size_is_refused() {
        let large = ["18446744073709551616", "16777216T", "18446744073.8g"];
        let fractions = ["1.5G", "1.5Gi", "1.5", "1..5k", ".5k", "1.k"];
        for text in ["", "G", "-1", "+1k", "1e9", "1 G", "1GB", "1ki"]
            .into_iter()
            .chain(fractions)
            .chain(large)
        {
            let error = byte_size(text).expect_err(text);
            assert!(error.contains("K, M, G or T"), "{error}");
        }
    }
}
