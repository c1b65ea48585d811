//! Numbers.

use serde_json::Value;

use super::schema::{Compiler, Schema};
use super::texts::How;
use crate::GrammarError;
use crate::chars::Languages;
use crate::classes::Classes;
use crate::nfa::{RuleId, State};
use crate::regex::{self, Extent};

/// Digits of an integer, and of a fraction.
const MAX_DIGITS: u32 = 19;
/// The greatest integer of that many digits.
const MAX_WHOLE: i128 = 10_i128.pow(MAX_DIGITS) - 1;
/// Bounds of numbers that are no integers are at most this: then a parser reads what is written at
/// them, with a fraction, as they are.
const MAX_EXACT: i128 = 1 << 53;
/// Digits that a double keeps: two decimals of that many are never read as one number.
const EXACT_DIGITS: u32 = 15;
/// The greatest numerator of `multipleOf`.
const MAX_FACTOR: i128 = 10_000;

/// A decimal: `units` / 10^`decimals`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Decimal {
    units: i128,
    decimals: u32,
}

/// A bound, and whether it excludes itself.
struct Bound {
    value: Decimal,
    lower: bool,
    excluded: bool,
}

/// The decimals from one to another, in units of 10^-`decimals`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Range {
    low: i128,
    high: i128,
    decimals: u32,
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
        let bounds = bounds(schema, path)?;
        let rule = match multiple(schema, path)? {
            Some(unit) => {
                let decimals = if integer { 0 } else { unit.decimals };
                // So few digits that every parser reads what is written as it is.
                let most = 10_i128.pow(EXACT_DIGITS) - 1;
                let pattern = written(&range(&bounds, decimals, most, path)?);
                let name = format!("number {pattern} of {unit:?}");
                self.shared(&name, |c, start, end| c.multiples(&pattern, unit, start, end))?
            }
            None if bounds.is_empty() => self.number_rule(integer)?,
            None => {
                let decimals = if integer { 0 } else { decimals(&bounds, path)? };
                let most = MAX_WHOLE * 10_i128.pow(decimals);
                let pattern = written(&range(&bounds, decimals, most, path)?);
                if pattern.is_empty() {
                    return Ok(());
                }
                let name = format!("number {pattern}");
                self.shared(&name, |c, start, end| c.digits(&pattern, start, end))?
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
        regex::add(self.nfa, pattern, Extent::Whole, from, to)
    }

    /// The matches of a pattern that are multiples of `unit`.
    fn multiples(
        &mut self,
        pattern: &str,
        unit: Decimal,
        from: State,
        to: State,
    ) -> Result<(), GrammarError> {
        if pattern.is_empty() {
            return Ok(());
        }
        let mut languages = Languages::default();
        let fuel = &mut self.nfa.fuel;
        languages.add_pattern(fuel, pattern, Extent::Whole)?;
        languages.add_multiples(fuel, unit.units as u32, unit.decimals)?;
        let classes = Classes::of(&languages, fuel)?;
        let end_of = |languages: &[usize]| (languages.len() == 2).then_some(0);
        let chosen = classes.choose(end_of, (0, None), fuel)?;
        self.chosen(&chosen, How::Bare, from, &[to])
    }
}

/// The decimal that JSON text of a number spells, if it is no longer than a double's digits.
fn decimal(value: &Value) -> Option<Decimal> {
    let text = value.as_number()?.to_string();
    let (mantissa, exponent) = text.split_once(['e', 'E']).unwrap_or((&text, "0"));
    let (whole, fraction) = mantissa.split_once('.').unwrap_or((mantissa, ""));
    let fraction = fraction.trim_end_matches('0');
    let units: i128 = format!("{whole}{fraction}").parse().ok()?;
    let exponent: i32 = exponent.parse().ok()?;
    let decimals = i32::try_from(fraction.len()).ok()? - exponent;
    if units == 0 {
        return Some(Decimal { units, decimals: 0 });
    }
    // What does not fit is refused: no bound of that size is of use here.
    match u32::try_from(decimals) {
        Ok(decimals) if decimals <= EXACT_DIGITS => Some(Decimal { units, decimals }),
        Ok(_) => None,
        Err(_) if decimals < -20 => None,
        Err(_) => {
            let units = units.checked_mul(10_i128.pow(decimals.unsigned_abs()))?;
            Some(Decimal { units, decimals: 0 })
        }
    }
}

fn bounds(schema: &Schema, path: &str) -> Result<Vec<Bound>, GrammarError> {
    let mut bounds = Vec::new();
    for (keyword, lower, excluded) in [
        ("minimum", true, false),
        ("exclusiveMinimum", true, true),
        ("maximum", false, false),
        ("exclusiveMaximum", false, true),
    ] {
        let Some(value) = schema.get(keyword) else { continue };
        if !value.is_number() {
            let name = format!("`{keyword}` that is no number");
            return Err(GrammarError::unsupported(name, path));
        }
        let value = decimal(value)
            .ok_or_else(|| GrammarError::unsupported(format!("`{keyword}` of this size"), path))?;
        bounds.push(Bound { value, lower, excluded });
    }
    Ok(bounds)
}

/// `multipleOf` as a decimal of few digits.
fn multiple(schema: &Schema, path: &str) -> Result<Option<Decimal>, GrammarError> {
    let Some(value) = schema.get("multipleOf") else { return Ok(None) };
    if !value.as_f64().is_some_and(|f| f > 0.0) {
        return Err(GrammarError::invalid("`multipleOf` must be a number above 0", path));
    }
    match decimal(value) {
        Some(unit) if unit.units <= MAX_FACTOR => Ok(Some(unit)),
        _ => Err(GrammarError::unsupported("`multipleOf` of this many digits", path)),
    }
}

/// How many digits of a fraction may be written beside these bounds, so that a parser that reads
/// doubles compares as decimals do. Inclusive bounds need no care: rounding keeps the order.
fn decimals(bounds: &[Bound], path: &str) -> Result<u32, GrammarError> {
    let mut most = EXACT_DIGITS;
    for bound in bounds {
        let Decimal { units, decimals } = bound.value;
        let whole = units.abs() / 10_i128.pow(decimals);
        if whole > MAX_EXACT {
            let name = format!("a bound beyond {MAX_EXACT} for a number");
            return Err(GrammarError::unsupported(name, path));
        }
        if bound.excluded && units != 0 {
            most = most.min(EXACT_DIGITS.saturating_sub(whole.to_string().len() as u32));
        }
    }
    if bounds.iter().any(|bound| bound.value.decimals > most) {
        return Err(GrammarError::unsupported("a bound with this many digits", path));
    }
    Ok(most)
}

/// What the bounds leave of the decimals up to `most` units, either sign.
fn range(bounds: &[Bound], decimals: u32, most: i128, path: &str) -> Result<Range, GrammarError> {
    let mut range = Range { low: -most, high: most, decimals };
    for bound in bounds {
        let value = bound.value;
        // In units of the range: one that is between two of them excludes nothing more.
        let (units, rest) = if value.decimals <= decimals {
            let scale = 10_i128.pow(decimals - value.decimals);
            let wide = || GrammarError::unsupported("a bound of this size", path);
            (value.units.checked_mul(scale).ok_or_else(wide)?, 0)
        } else {
            let scale = 10_i128.pow(value.decimals - decimals);
            (value.units.div_euclid(scale), value.units.rem_euclid(scale))
        };
        if bound.lower {
            let low = units + i128::from(rest > 0 || bound.excluded);
            range.low = range.low.max(low);
        } else {
            range.high = range.high.min(units - i128::from(rest == 0 && bound.excluded));
        }
    }
    Ok(range)
}

/// A pattern of the decimals of a range, without exponents; empty, if there is none.
fn written(range: &Range) -> String {
    let mut parts = Vec::new();
    if range.low < 0 {
        let mirrored = Range { low: (-range.high).max(1), high: -range.low, ..*range };
        magnitudes(&mirrored).iter().for_each(|part| parts.push(format!("-{part}")));
    }
    parts.extend(magnitudes(&Range { low: range.low.max(0), ..*range }));
    parts.join("|")
}

/// Patterns of the decimals of a range that is not below 0.
fn magnitudes(range: &Range) -> Vec<String> {
    let Range { low, high, decimals } = *range;
    if low > high {
        return Vec::new();
    }
    if decimals == 0 {
        return wholes(low, high);
    }
    let one = 10_i128.pow(decimals);
    let digits = |fraction: i128| format!("{fraction:0width$}", width = decimals as usize);
    let (first, last) = (low / one, high / one);
    let (least, greatest) = (digits(low % one), digits(high % one));
    if first == last {
        return with_fraction(first, Some(&least), Some(&greatest), decimals);
    }
    let mut parts = with_fraction(first, Some(&least), None, decimals);
    let between = wholes(first + 1, last - 1);
    if !between.is_empty() {
        parts.push(format!(r"({})(\.[0-9]{{1,{decimals}}})?", between.join("|")));
    }
    parts.extend(with_fraction(last, None, Some(&greatest), decimals));
    parts
}

/// Patterns of a whole number with the fractions from `least` to `greatest`, which have `decimals`
/// digits; without one of them, there is no bound.
fn with_fraction(
    whole: i128,
    least: Option<&str>,
    greatest: Option<&str>,
    decimals: u32,
) -> Vec<String> {
    let mut parts = vec![format!(r"{whole}\.{}", fraction(least, greatest, decimals, false))];
    if may_end(least) {
        parts.push(whole.to_string());
    }
    parts
}

/// No digit but 0 is missing.
fn may_end(least: Option<&str>) -> bool {
    least.is_none_or(|digits| digits.bytes().all(|digit| digit == b'0'))
}

/// A pattern of the next digits of a fraction, at most `left`; `ends` where it may be over.
fn fraction(least: Option<&str>, greatest: Option<&str>, left: u32, ends: bool) -> String {
    if left == 0 {
        return String::new();
    }
    let least = least.filter(|digits| digits.bytes().any(|digit| digit != b'0'));
    let greatest = greatest.filter(|digits| digits.bytes().any(|digit| digit != b'9'));
    if least.is_none() && greatest.is_none() {
        return format!("[0-9]{{{},{left}}}", u32::from(!ends));
    }
    let digit = |digits: Option<&str>, free: u8| digits.map_or(free, |d| d.as_bytes()[0] - b'0');
    let (low, high) = (digit(least, 0), digit(greatest, 9));
    let (least_rest, greatest_rest) = (least.map(|d| &d[1..]), greatest.map(|d| &d[1..]));
    let mut parts = Vec::new();
    if ends && may_end(least) {
        parts.push(String::new());
    }
    // The first and the last digit are followed by what the bounds leave of theirs, those between
    // them by anything.
    let edges = if low == high { vec![low] } else { vec![low, high] };
    for digit in edges {
        let least = least_rest.filter(|_| digit == low);
        let greatest = greatest_rest.filter(|_| digit == high);
        parts.push(format!("{digit}{}", fraction(least, greatest, left - 1, true)));
    }
    if low + 1 < high {
        let rest = fraction(None, None, left - 1, true);
        parts.push(format!("[{}-{}]{rest}", low + 1, high - 1));
    }
    format!("({})", parts.join("|"))
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
