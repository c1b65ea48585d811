//! Languages of texts as nondeterministic automata over characters, apart from the answer's: they
//! are compared and combined before any of them is written. Characters are numbered without the
//! gap of the surrogates.

use regex_syntax::hir::Look;

use crate::GrammarError;
use crate::fuel::Fuel;
use crate::nfa::State;
use crate::regex::{self, Extent, Fragments};

/// Steps that a state or an edge costs.
const STEPS_PER_PART: usize = 8;
/// The surrogates' first number, and how many there are.
const SURROGATES: u32 = 0xd800;
const NUM_SURROGATES: u32 = 0x800;
/// The last character's number.
pub(crate) const LAST: u32 = char::MAX as u32 - NUM_SURROGATES;

/// A character's number.
pub(crate) fn number_of(c: char) -> u32 {
    let code = u32::from(c);
    if code < SURROGATES { code } else { code - NUM_SURROGATES }
}
/// The character with this number.
pub(crate) fn char_of(number: u32) -> char {
    let code = if number < SURROGATES { number } else { number + NUM_SURROGATES };
    char::from_u32(code).unwrap_or(char::MAX)
}

/// What an edge takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Take {
    Nothing,
    /// Nothing, where the text begins.
    AtStart,
    /// Nothing, where the text ends.
    AtEnd,
    /// A character of these numbers.
    Range(u32, u32),
}

/// Languages over shared states, each with a number.
#[derive(Default)]
pub(crate) struct Languages {
    pub(crate) states: Vec<Vec<(Take, State)>>,
    pub(crate) starts: Vec<State>,
    /// The state in which a text of each language ends.
    pub(crate) ends: Vec<State>,
}

impl Languages {
    /// The texts that a pattern describes; the language's number.
    pub(crate) fn add_pattern(
        &mut self,
        fuel: &mut Fuel,
        pattern: &str,
        extent: Extent,
    ) -> Result<usize, GrammarError> {
        let mut build = Build { languages: self, fuel };
        let (start, end) = build.new_language()?;
        regex::add(&mut build, pattern, extent, start, end)?;
        Ok(self.starts.len() - 1)
    }

    /// These texts.
    pub(crate) fn add_texts<'t>(
        &mut self,
        fuel: &mut Fuel,
        texts: impl IntoIterator<Item = &'t str>,
    ) -> Result<usize, GrammarError> {
        let mut build = Build { languages: self, fuel };
        let (start, end) = build.new_language()?;
        for text in texts {
            let mut at = start;
            for c in text.chars() {
                let next = build.state()?;
                build.range(c, c, at, next)?;
                at = next;
            }
            build.skip(at, end)?;
        }
        Ok(self.starts.len() - 1)
    }

    /// The decimals that are multiples of `factor` / 10^`decimals`, with at most that many digits
    /// behind the point.
    pub(crate) fn add_multiples(
        &mut self,
        fuel: &mut Fuel,
        factor: u32,
        decimals: u32,
    ) -> Result<usize, GrammarError> {
        let mut build = Build { languages: self, fuel };
        let (start, end) = build.new_language()?;
        // For each number of decimals that were read, a state for each remainder.
        let mut rows: Vec<Vec<State>> = Vec::new();
        for _ in 0..=decimals {
            let row = (0..factor).map(|_| build.state()).collect::<Result<_, _>>()?;
            rows.push(row);
        }
        build.skip(start, rows[0][0])?;
        build.range('-', '-', start, rows[0][0])?;
        for (read, row) in rows.iter().enumerate() {
            let next = if read == 0 { Some(row) } else { rows.get(read + 1) };
            // What the digits that are not written multiply by.
            let rest = 10_u64.pow(decimals - read as u32);
            for (remainder, &state) in (0_u64..).zip(row) {
                for (digit, c) in (0_u64..).zip('0'..='9') {
                    let to = (remainder * 10 + digit) % u64::from(factor);
                    if let Some(next) = next {
                        build.range(c, c, state, next[to as usize])?;
                    }
                }
                if read == 0 && decimals > 0 {
                    let point = build.state()?;
                    build.range('.', '.', state, point)?;
                    for (digit, c) in (0_u64..).zip('0'..='9') {
                        let to = (remainder * 10 + digit) % u64::from(factor);
                        build.range(c, c, point, rows[1][to as usize])?;
                    }
                }
                if (remainder * rest).is_multiple_of(u64::from(factor)) {
                    build.skip(state, end)?;
                }
            }
        }
        Ok(self.starts.len() - 1)
    }
}

/// Languages while one is added.
struct Build<'a> {
    languages: &'a mut Languages,
    fuel: &'a mut Fuel,
}

impl Build<'_> {
    fn new_language(&mut self) -> Result<(State, State), GrammarError> {
        let (start, end) = (self.state()?, self.state()?);
        self.languages.starts.push(start);
        self.languages.ends.push(end);
        Ok((start, end))
    }

    fn edge(&mut self, take: Take, from: State, to: State) -> Result<(), GrammarError> {
        self.fuel.burn(STEPS_PER_PART)?;
        self.languages.states[from as usize].push((take, to));
        Ok(())
    }
}

impl Fragments for Build<'_> {
    fn burn(&mut self, steps: usize) -> Result<(), GrammarError> {
        self.fuel.burn(steps)
    }
    fn state(&mut self) -> Result<State, GrammarError> {
        self.fuel.burn(STEPS_PER_PART)?;
        self.languages.states.push(Vec::new());
        Ok(self.languages.states.len() as State - 1)
    }
    fn skip(&mut self, from: State, to: State) -> Result<(), GrammarError> {
        self.edge(Take::Nothing, from, to)
    }
    fn range(&mut self, low: char, high: char, from: State, to: State) -> Result<(), GrammarError> {
        self.edge(Take::Range(number_of(low), number_of(high)), from, to)
    }
    fn anchor(&mut self, look: Look, from: State, to: State) -> Result<(), GrammarError> {
        match look {
            Look::Start => self.edge(Take::AtStart, from, to),
            Look::End => self.edge(Take::AtEnd, from, to),
            _ => Err(GrammarError::unsupported("an anchor of this kind in a pattern", "")),
        }
    }
}
