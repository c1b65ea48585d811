//! Numbers.

use serde_json::Value;

use super::schema::{Compiler, Schema};
use crate::GrammarError;
use crate::nfa::{RuleId, State};
use crate::regex::{self, Extent, Writing};

/// Digits of an integer, and of a fraction.
const MAX_DIGITS: u32 = 19;
/// The greatest integer of that many digits.
const MAX_WHOLE: i128 = 10_i128.pow(MAX_DIGITS) - 1;
/// Bounds that exclude themselves are at most this: then no fraction of [`FINE_DIGITS`] is rounded
/// to them.
const MAX_EXCLUSIVE: i128 = 1_000_000_000;
/// Bounds of numbers that are no integers are at most this: then a parser reads what is written at
/// them, with a fraction, as they are.
const MAX_EXACT: i128 = 1 << 53;
/// Digits of the fraction of a number with bounds.
const FINE_DIGITS: u32 = 6;

/// The numbers from one integer to another, each with or without itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Range {
    low: i128,
    high: i128,
    without_low: bool,
    without_high: bool,
}

impl Compiler<'_> {
    /// A number of what the keywords say.
    pub(super) fn number(
        &mut self,
        schema: &Schema,
        integer: bool,
        from: State,
        to: State,
        path: &str,
    ) -> Result<(), GrammarError> {
        let rule = match range(schema, integer, path)? {
            None => self.number_rule(integer)?,
            Some(range) => {
                let pattern = if integer { integers(&range) } else { numbers(&range) };
                if pattern.is_empty() {
                    return Ok(());
                }
                self.own_rule(|c, start, end| c.digits(&pattern, start, end))?
            }
        };
        self.nfa.call(from, rule, to)
    }

    fn number_rule(&mut self, integer: bool) -> Result<RuleId, GrammarError> {
        let digits = MAX_DIGITS - 1;
        if integer {
            let pattern = format!("0|-?[1-9][0-9]{{0,{digits}}}");
            return self.shared("integer", |c, start, end| c.digits(&pattern, start, end));
        }
        let pattern = format!(
            r"-?(0|[1-9][0-9]{{0,{digits}}})(\.[0-9]{{1,{MAX_DIGITS}}})?([eE][+-]?[0-9]{{1,2}})?"
        );
        self.shared("number", |c, start, end| c.digits(&pattern, start, end))
    }

    fn digits(&mut self, pattern: &str, from: State, to: State) -> Result<(), GrammarError> {
        regex::add(self.nfa, pattern, Writing::Plain, Extent::Whole, from, to)
    }
}

/// The range that the keywords leave; none, if they leave all.
fn range(schema: &Schema, integer: bool, path: &str) -> Result<Option<Range>, GrammarError> {
    let mut range =
        Range { low: -MAX_WHOLE, high: MAX_WHOLE, without_low: false, without_high: false };
    let mut bounded = false;
    for (keyword, lower, without) in [
        ("minimum", true, false),
        ("exclusiveMinimum", true, true),
        ("maximum", false, false),
        ("exclusiveMaximum", false, true),
    ] {
        let Some(value) = schema.get(keyword) else { continue };
        bounded = true;
        let (bound, without) = bound(value, keyword, lower, without, integer, path)?;
        let most = if without { MAX_EXCLUSIVE } else { MAX_EXACT };
        if !integer && bound.abs() > most {
            let name = format!("`{keyword}` beyond {most} for a number");
            return Err(GrammarError::unsupported(name, path));
        }
        if lower && (bound, without) > (range.low, range.without_low) {
            (range.low, range.without_low) = (bound, without);
        }
        if !lower && (bound, !without) < (range.high, !range.without_high) {
            (range.high, range.without_high) = (bound, without);
        }
    }
    Ok(bounded.then_some(range))
}

/// A bound as an integer, within [`MAX_WHOLE`], and whether it excludes itself.
fn bound(
    value: &Value,
    keyword: &str,
    lower: bool,
    without: bool,
    integer: bool,
    path: &str,
) -> Result<(i128, bool), GrammarError> {
    let Value::Number(number) = value else {
        let name = format!("`{keyword}` that is no number");
        return Err(GrammarError::unsupported(name, path));
    };
    if let Some(bound) = number.as_i128() {
        return Ok((bound, without));
    }
    let bound = number.as_f64().unwrap_or(f64::NAN);
    if bound.fract() == 0.0 && bound.abs() <= 9e15 {
        return Ok((bound as i128, without));
    }
    if !bound.is_finite() || bound.abs() > 9e15 {
        let name = format!("`{keyword}` of this size");
        return Err(GrammarError::unsupported(name, path));
    }
    if !integer {
        let name = format!("`{keyword}` with a fraction, for a number");
        return Err(GrammarError::unsupported(name, path));
    }
    // No integer is equal to it.
    Ok((if lower { bound.ceil() as i128 } else { bound.floor() as i128 }, false))
}

/// A pattern of the integers of a range; empty, if there is none.
fn integers(range: &Range) -> String {
    let low = (range.low + i128::from(range.without_low)).max(-MAX_WHOLE);
    let high = (range.high - i128::from(range.without_high)).min(MAX_WHOLE);
    let mut parts = Vec::new();
    if low < 0 {
        wholes((-high).max(1), -low).iter().for_each(|part| parts.push(format!("-{part}")));
    }
    parts.extend(wholes(low.max(0), high));
    parts.join("|")
}

/// A pattern of the numbers of a range, without exponents.
fn numbers(range: &Range) -> String {
    let mut parts = Vec::new();
    if range.low < 0 {
        let mirrored = Range {
            low: (-range.high).max(0),
            high: -range.low,
            without_low: range.high >= 0 || range.without_high,
            without_high: range.without_low,
        };
        magnitudes(&mirrored).iter().for_each(|part| parts.push(format!("-{part}")));
    }
    if range.high >= 0 {
        let from_zero = Range {
            low: range.low.max(0),
            without_low: range.low >= 0 && range.without_low,
            ..*range
        };
        parts.extend(magnitudes(&from_zero));
    }
    parts.join("|")
}

/// Patterns of the numbers of a range that is not below 0.
fn magnitudes(range: &Range) -> Vec<String> {
    let mut parts = Vec::new();
    let (low, high) = (range.low, range.high.min(MAX_WHOLE));
    if low > high || (low == high && (range.without_low || range.without_high)) {
        return parts;
    }
    // The bounds themselves, then what is strictly between them.
    if !range.without_low {
        parts.push(format!(r"{low}(\.0{{1,{FINE_DIGITS}}})?"));
    }
    if !range.without_high && high != low {
        parts.push(format!(r"{high}(\.0{{1,{FINE_DIGITS}}})?"));
    }
    if low < high {
        // Of the lower bound's own unit, fractions that are not 0.
        let before = FINE_DIGITS - 1;
        parts.push(format!(r"{low}\.[0-9]{{0,{before}}}[1-9]"));
        for whole in wholes(low + 1, high - 1) {
            parts.push(format!(r"{whole}(\.[0-9]{{1,{FINE_DIGITS}}})?"));
        }
    }
    parts
}

/// Patterns of the integers from `low` to `high`, neither below 0, without leading zeros.
fn wholes(low: i128, high: i128) -> Vec<String> {
    let mut parts = Vec::new();
    if low > high || high < 0 {
        return parts;
    }
    let (mut at, high) = (low.max(0), high.min(MAX_WHOLE));
    if at == 0 {
        parts.push("0".into());
        at = 1;
    }
    while at <= high {
        // As many trailing digits as may be anything, and one that has a range.
        let digits = at.to_string().len() as u32;
        let most = high.min(10_i128.pow(digits) - 1);
        let mut free = 0;
        while free + 1 < digits
            && at % 10_i128.pow(free + 1) == 0
            && at + 10_i128.pow(free + 1) - 1 <= most
        {
            free += 1;
        }
        // `free` digits are anything; the digit before them goes up while that holds.
        let unit = 10_i128.pow(free);
        let digit = at / unit % 10;
        let steps = (9 - digit).min((most + 1 - at) / unit - 1).max(0);
        let head = if at / unit / 10 == 0 { String::new() } else { (at / unit / 10).to_string() };
        let tail = if free == 0 { String::new() } else { format!("[0-9]{{{free}}}") };
        parts.push(format!("{head}[{digit}-{}]{tail}", digit + steps));
        at += unit * (steps + 1);
    }
    parts
}
