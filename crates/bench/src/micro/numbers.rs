//! Lists of numbers in flags: `1,2,4`, `1-8`, `0-3,6`.

use std::ops::RangeInclusive;

use anyhow::{Context, bail};
use clap::builder::RangedU64ValueParser;

use super::os::cores;

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

/// The cores of a flag, or all that this process may use.
///
/// # Errors
/// If a core may not be used.
pub(crate) fn cores(flag: Option<&str>) -> anyhow::Result<Vec<usize>> {
    let allowed = cores::allowed().context("read the cores of this process")?;
    let Some(text) = flag else { return Ok(allowed) };
    let chosen = list("--cores", text, 0..=4095)?;
    if let Some(core) = chosen.iter().find(|core| !allowed.contains(core)) {
        bail!("--cores: core {core} may not be used by this process (it may use {allowed:?})");
    }
    Ok(chosen)
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
