//! Numbers, and lists of them, in flags: `1,2,4`, `1-8`.

use std::ops::RangeInclusive;

use anyhow::{Context, bail};
use clap::builder::RangedU64ValueParser;

/// Reads one number within bounds.
pub(crate) fn within<T: TryFrom<u64>>(bounds: RangeInclusive<u64>) -> RangedU64ValueParser<T> {
    RangedU64ValueParser::new().range(bounds)
}

/// Reads a list; duplicates are dropped, order is kept.
///
/// # Errors
/// Names the flag, the entry and the bound.
pub(crate) fn list(
    flag: &str,
    text: &str,
    bounds: RangeInclusive<usize>,
) -> anyhow::Result<Vec<usize>> {
    let mut numbers = Vec::new();
    for entry in text.split(',').map(str::trim) {
        let (first, last) = entry.split_once('-').unwrap_or((entry, entry));
        let read = |number: &str| {
            let context = || format!("{flag}: {entry:?} is neither a number nor a range");
            number.trim().parse::<usize>().with_context(context)
        };
        let (first, last) = (read(first)?, read(last)?);
        if first > last || !bounds.contains(&first) || !bounds.contains(&last) {
            bail!("{flag}: {entry:?}, must be within {} ..= {}", bounds.start(), bounds.end());
        }
        for number in first..=last {
            if !numbers.contains(&number) {
                numbers.push(number);
            }
        }
    }
    Ok(numbers)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_are_read() {
        assert_eq!(list("--n", "1-3, 8,2", 1..=8).unwrap(), [1, 2, 3, 8]);
        for wrong in ["", "a", "3-1", "0", "9", "1-9", "1,,2", "-1"] {
            let error = list("--n", wrong, 1..=8).unwrap_err().to_string();
            assert!(error.starts_with("--n: "), "{error}");
        }
    }
}
