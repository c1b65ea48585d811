//! Many units one behind the other, in few states: rules that call smaller rules.
//!
//! A rule of a level is a unit and then [`FAN`] rules of the level below, so that a count takes
//! states by its logarithm. A rule of "up to" its units may end behind each of them. The walk takes
//! the innermost rule that goes on, so a rule only ends early where no unit follows.
//!
//! The last units are a rule of their own, the tail: behind all others a whole tail may follow,
//! which is what makes most places of a long string plain (`plain.rs`).

use super::schema::Compiler;
use crate::GrammarError;
use crate::nfa::{RuleId, State};
use crate::plain::PLAIN_CHARS;

/// Units of the smallest rule.
const LEAF: usize = 16;
/// Units of a tail.
const TAIL: usize = PLAIN_CHARS;
/// The highest level: a bound on how deep rules are called.
const MAX_LEVEL: u32 = 5;
/// Rules of one level in a rule of the next.
const FAN: usize = 8;

/// What is repeated. The first byte of a unit must not be one that may follow it.
pub(super) trait Unit {
    /// The rules' name in the compiler.
    fn name(&self) -> String;
    /// One unit, which is not empty.
    fn add(&self, c: &mut Compiler<'_>, from: State, to: State) -> Result<(), GrammarError>;
}

/// Whether a text of fewer units will do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Count {
    Exactly,
    UpTo,
}

impl Compiler<'_> {
    /// `min` to `max` units.
    pub(super) fn repeat(
        &mut self,
        unit: &dyn Unit,
        (min, max): (usize, Option<usize>),
        from: State,
        to: State,
    ) -> Result<(), GrammarError> {
        let Some(max) = max else {
            let least = self.nfa.state()?;
            self.bulk(unit, min, None, from, least)?;
            unit.add(self, least, least)?;
            return self.nfa.skip(least, to);
        };
        if max < min {
            return Ok(());
        }
        if max <= TAIL {
            return self.chain(unit, (min, max), from, to);
        }
        // Units that may be missing: of the tail, and before it.
        let in_tail = TAIL.min(max - min);
        let before = max - min - in_tail;
        let (least, last) = (self.nfa.state()?, self.nfa.state()?);
        self.bulk(unit, max - TAIL - before, None, from, least)?;
        self.bulk(unit, before, Some(to), least, last)?;
        let tail = self.tail(unit, TAIL - in_tail)?;
        self.nfa.call(last, tail, to)?;
        if in_tail == TAIL { self.nfa.skip(last, to) } else { Ok(()) }
    }

    /// Units one by one.
    fn chain(
        &mut self,
        unit: &dyn Unit,
        (min, max): (usize, usize),
        from: State,
        to: State,
    ) -> Result<(), GrammarError> {
        let mut at = from;
        for i in 0..max {
            if i >= min {
                self.nfa.skip(at, to)?;
            }
            let next = self.nfa.state()?;
            unit.add(self, at, next)?;
            at = next;
        }
        self.nfa.skip(at, to)
    }

    /// Units before a tail; fewer lead to `end`, where they will do.
    fn bulk(
        &mut self,
        unit: &dyn Unit,
        count: usize,
        end: Option<State>,
        from: State,
        to: State,
    ) -> Result<(), GrammarError> {
        let kind = if end.is_some() { Count::UpTo } else { Count::Exactly };
        let (mut at, mut left) = (from, count);
        while left > 0 {
            if let Some(end) = end {
                self.nfa.skip(at, end)?;
            }
            let next = self.nfa.state()?;
            if left < LEAF {
                unit.add(self, at, next)?;
                left -= 1;
            } else {
                let level = level_within(left);
                let rule = self.level(unit, kind, level)?;
                self.nfa.call(at, rule, next)?;
                left -= units_of(level);
            }
            at = next;
        }
        self.nfa.skip(at, to)
    }

    /// The rule of [`TAIL`] units, or of fewer: one at least, and `least`.
    fn tail(&mut self, unit: &dyn Unit, least: usize) -> Result<RuleId, GrammarError> {
        self.shared(&format!("tail {least} {}", unit.name()), |c, start, end| {
            let first = c.nfa.state()?;
            unit.add(c, start, first)?;
            c.chain(unit, (least.saturating_sub(1), TAIL - 1), first, end)
        })
    }

    /// The rule of a level.
    fn level(&mut self, unit: &dyn Unit, kind: Count, level: u32) -> Result<RuleId, GrammarError> {
        let name = format!("{kind:?} {level} {}", unit.name());
        self.shared(&name, |c, start, end| {
            let mut at = c.nfa.state()?;
            unit.add(c, start, at)?;
            let parts = if level == 0 { LEAF - 1 } else { FAN };
            for _ in 0..parts {
                if kind == Count::UpTo {
                    c.nfa.skip(at, end)?;
                }
                let next = c.nfa.state()?;
                if level == 0 {
                    unit.add(c, at, next)?;
                } else {
                    let rule = c.level(unit, kind, level - 1)?;
                    c.nfa.call(at, rule, next)?;
                }
                at = next;
            }
            c.nfa.skip(at, end)
        })
    }
}

/// Units of a rule of this level.
fn units_of(level: u32) -> usize {
    (0..level).fold(LEAF, |below, _| below.saturating_mul(FAN).saturating_add(1))
}
/// The highest level whose rule has at most `units`.
fn level_within(units: usize) -> u32 {
    (0..=MAX_LEVEL).take_while(|&level| units_of(level) <= units).last().unwrap_or(0)
}
