//! What keywords say of a text, which is a string or a member's name, and texts told apart written
//! into the answer's automaton.

use serde_json::Value;

use super::formats;
use super::repeat::Unit;
use super::schema::{Compiler, Schema, count, text};
use super::string::{NOT_PATTERNS, NOT_VALUES, PATTERNS};
use crate::GrammarError;
use crate::chars::{LAST, Languages, char_of, number_of};
use crate::classes::{Chosen, Classes};
use crate::fuel::Fuel;
use crate::nfa::{Label, State};
use crate::regex::Extent;
use crate::runs::Place;

/// How characters are written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum How {
    /// As in a JSON string, with escapes.
    String,
    /// Only characters that need no escape: then a text is written in one way.
    Bare,
}

/// Texts that a keyword speaks of.
#[derive(Debug)]
enum Language {
    Pattern(String, Extent),
    Listed(Vec<String>),
}

/// What a text must obey.
#[derive(Debug)]
pub(super) struct TextLimits {
    all: Vec<Language>,
    none: Vec<Language>,
    pub(super) min: usize,
    pub(super) max: Option<usize>,
}

impl TextLimits {
    /// Reads the keywords of strings.
    pub(super) fn read(schema: &Schema, path: &str) -> Result<TextLimits, GrammarError> {
        let pattern = |pattern: &str| Language::Pattern(pattern.to_owned(), Extent::Part);
        let mut all = Vec::new();
        if let Some(value) = schema.get("pattern") {
            all.push(pattern(text(value, "pattern", path)?));
        }
        if let Some(format) = schema.get("format") {
            let format = text(format, "format", path)?;
            let format = formats::pattern(format);
            all.extend(format.map(|format| Language::Pattern(format, Extent::Whole)));
        }
        all.extend(strings(schema, PATTERNS, path)?.into_iter().map(pattern));
        let mut none: Vec<Language> =
            strings(schema, NOT_PATTERNS, path)?.into_iter().map(pattern).collect();
        let values = strings(schema, NOT_VALUES, path)?;
        if !values.is_empty() {
            none.push(Language::Listed(values.into_iter().map(str::to_owned).collect()));
        }
        let min = count(schema, "minLength", path)?.unwrap_or(0);
        let max = count(schema, "maxLength", path)?;
        Ok(TextLimits { all, none, min, max })
    }

    /// The text must also be one of these.
    pub(super) fn list(&mut self, texts: Vec<String>) {
        self.all.push(Language::Listed(texts));
    }

    /// The text must be none of these.
    pub(super) fn none_of(&mut self, texts: Vec<String>) {
        self.none.push(Language::Listed(texts));
    }

    /// Nothing but lengths counts.
    pub(super) fn is_only_counted(&self) -> bool {
        self.all.is_empty() && self.none.is_empty()
    }

    /// The numbers of the languages that a text must be in, and of others that it must not be in.
    pub(super) fn add_to(
        &self,
        languages: &mut Languages,
        fuel: &mut Fuel,
    ) -> Result<Asked, GrammarError> {
        let mut add = |language: &Language| match language {
            Language::Pattern(pattern, extent) => languages.add_pattern(fuel, pattern, *extent),
            Language::Listed(texts) => languages.add_texts(fuel, texts.iter().map(String::as_str)),
        };
        let all = self.all.iter().map(&mut add).collect::<Result<_, _>>()?;
        let none = self.none.iter().map(&mut add).collect::<Result<_, _>>()?;
        if !self.none.is_empty() {
            // A text of no language has no state, so there is one that has all texts.
            add(&Language::Pattern(String::new(), Extent::Part))?;
        }
        Ok(Asked { all, none })
    }
}

/// Languages that a text must be in, and others that it must not be in.
pub(super) struct Asked {
    all: Vec<usize>,
    none: Vec<usize>,
}

impl Asked {
    /// A text of these languages obeys.
    pub(super) fn has(&self, languages: &[usize]) -> bool {
        self.all.iter().all(|language| languages.contains(language))
            && !self.none.iter().any(|language| languages.contains(language))
    }
}

/// A list of strings that a keyword of ours holds.
fn strings<'v>(
    schema: &'v Schema,
    keyword: &str,
    path: &str,
) -> Result<Vec<&'v str>, GrammarError> {
    let Some(Value::Array(values)) = schema.get(keyword) else { return Ok(Vec::new()) };
    let wrong = || GrammarError::invalid("a list of strings has something else", path);
    values.iter().map(|value| value.as_str().ok_or_else(wrong)).collect()
}

/// An error about a pattern, with its place.
pub(super) fn at(path: &str) -> impl Fn(GrammarError) -> GrammarError {
    move |error| match error {
        GrammarError::Unsupported { name, .. } => GrammarError::unsupported(name, path),
        GrammarError::Invalid { message, .. } => GrammarError::invalid(message, path),
        other => other,
    }
}

/// One character of these ranges.
struct OneOf {
    ranges: Vec<(u32, u32)>,
    how: How,
}

impl Unit for OneOf {
    fn name(&self) -> String {
        format!("one of {:?} {:?}", self.how, self.ranges)
    }
    fn add(&self, c: &mut Compiler<'_>, from: State, to: State) -> Result<(), GrammarError> {
        c.chars_of(&self.ranges, self.how, from, to)
    }
}

impl Compiler<'_> {
    /// The texts that obey, without quotes.
    pub(super) fn limited(
        &mut self,
        limits: &TextLimits,
        from: State,
        to: State,
        path: &str,
    ) -> Result<(), GrammarError> {
        let mut languages = Languages::default();
        let fuel = &mut self.nfa.fuel;
        let asked = limits.add_to(&mut languages, fuel).map_err(at(path))?;
        let classes = Classes::of(&languages, fuel)?;
        let end_of = |languages: &[usize]| asked.has(languages).then_some(0);
        let chosen = classes.choose(end_of, (limits.min, limits.max), fuel)?;
        self.chosen(&chosen, How::String, from, &[to])
    }

    /// Writes an automaton of characters; each text leads to its end.
    pub(super) fn chosen(
        &mut self,
        chosen: &Chosen,
        how: How,
        from: State,
        ends: &[State],
    ) -> Result<(), GrammarError> {
        let mut states = Vec::with_capacity(chosen.states.len());
        for _ in &chosen.states {
            states.push(self.nfa.state()?);
        }
        self.nfa.skip(from, states[0])?;
        let runs = chosen.runs(&mut self.nfa.fuel)?;
        for (i, (state, &at)) in chosen.states.iter().zip(&states).enumerate() {
            match &runs[i] {
                Place::Inside => {}
                Place::Head(run) => {
                    let unit = OneOf { ranges: run.ranges.clone(), how };
                    let next = states[run.next as usize];
                    let (least, to) = match run.end {
                        None => (run.length, next),
                        Some(end) => (0, ends[end]),
                    };
                    self.repeat(&unit, (least, Some(run.length)), at, to)?;
                }
                Place::Alone => {
                    if let Some(end) = state.end {
                        self.nfa.skip(at, ends[end])?;
                    }
                    for (to, ranges) in state.by_target() {
                        self.chars_of(&ranges, how, at, states[to as usize])?;
                    }
                }
            }
        }
        Ok(())
    }

    /// One character of these ranges.
    fn chars_of(
        &mut self,
        ranges: &[(u32, u32)],
        how: How,
        from: State,
        to: State,
    ) -> Result<(), GrammarError> {
        if ranges == [(0, LAST)] {
            return match how {
                How::String if from == to => self.any_chars(from),
                How::String => self.any_char(from, to),
                How::Bare => self.plain_chars(&[], from, to),
            };
        }
        self.ascii(ranges, from, to)?;
        if how == How::String {
            self.escaped(ranges, from, to)?;
        }
        let beyond = within(ranges, 0x80, LAST);
        if beyond.is_empty() {
            return Ok(());
        }
        let write = |c: &mut Self, from, to| {
            let mut each = beyond.iter();
            each.try_for_each(|r| c.nfa.chars(char_of(r.0), char_of(r.1), from, to))
        };
        if beyond.len() == 1 && beyond[0].0 == beyond[0].1 {
            return write(self, from, to);
        }
        // What takes several bytes is a rule: then a step over a character is one edge.
        let rule = self.shared(&format!("characters {beyond:?}"), write)?;
        self.nfa.call(from, rule, to)
    }

    /// ASCII as it is.
    fn ascii(&mut self, ranges: &[(u32, u32)], from: State, to: State) -> Result<(), GrammarError> {
        for (first, last) in [(b' ', b'!'), (b'#', b'['), (b']', 0x7f)] {
            for (low, high) in within(ranges, first.into(), last.into()) {
                self.nfa.edge(from, Label::Bytes(low as u8, high as u8), to)?;
            }
        }
        Ok(())
    }

    /// The characters that a string cannot hold as they are, each in one way.
    fn escaped(
        &mut self,
        ranges: &[(u32, u32)],
        from: State,
        to: State,
    ) -> Result<(), GrammarError> {
        let special = ('\0'..='\u{1f}').chain(['"', '\\']);
        let special: String =
            special.filter(|&c| !within(ranges, number_of(c), number_of(c)).is_empty()).collect();
        let write = |c: &mut Self, from, to| {
            let mut each = special.chars();
            each.try_for_each(|special| c.nfa.literal(json_escape(special).as_bytes(), from, to))
        };
        match special.chars().count() {
            0 => Ok(()),
            1 => write(self, from, to),
            _ => {
                let rule = self.shared(&format!("escapes {special:?}"), write)?;
                self.nfa.call(from, rule, to)
            }
        }
    }
}

/// The parts of ranges that are between two numbers.
fn within(ranges: &[(u32, u32)], first: u32, last: u32) -> Vec<(u32, u32)> {
    let cut = ranges.iter().map(|&(low, high)| (low.max(first), high.min(last)));
    cut.filter(|(low, high)| low <= high).collect()
}

/// A character that a JSON string cannot hold as it is.
fn json_escape(c: char) -> String {
    match c {
        '"' => "\\\"".into(),
        '\\' => "\\\\".into(),
        '\n' => "\\n".into(),
        '\r' => "\\r".into(),
        '\t' => "\\t".into(),
        c => format!("\\u{:04x}", u32::from(c)),
    }
}
