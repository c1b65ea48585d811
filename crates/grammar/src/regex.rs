//! Regular expressions as automata.

use regex_syntax::ParserBuilder;
use regex_syntax::hir::{Class, Hir, HirKind, Look, Repetition};

use crate::GrammarError;
use crate::nfa::{Nfa, State};
use crate::pattern::normalize;

/// Depth of parentheses.
const MAX_NESTING: u32 = 64;
/// Characters that a class may name one by one, where each is written in its own way.
const CONTROLS: char = '\u{1f}';

/// How the characters of a match are written in the answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Writing {
    /// As they are.
    Plain,
    /// As in a JSON string.
    Json,
}

/// What of a text a pattern describes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Extent {
    /// All of it.
    Whole,
    /// Some part, unless anchors say otherwise.
    Part,
}

/// The answer is a match of `pattern`.
pub(crate) fn compile(nfa: &mut Nfa, pattern: &str) -> Result<(), GrammarError> {
    let main = nfa.main();
    add(nfa, pattern, Writing::Plain, Extent::Whole, main.start, main.end)
}

/// Adds the texts that `pattern` describes.
pub(crate) fn add(
    nfa: &mut Nfa,
    pattern: &str,
    writing: Writing,
    extent: Extent,
    from: State,
    to: State,
) -> Result<(), GrammarError> {
    let hir =
        ParserBuilder::new().nest_limit(MAX_NESTING).build().parse(&normalize(pattern)?).map_err(
            |e| GrammarError::invalid(format!("not a regular expression: {}", brief(&e)), ""),
        )?;
    Matcher { nfa, writing, extent }.anchored(&hir, from, to)
}

/// The last line says what is wrong, the others draw it.
fn brief(error: &regex_syntax::Error) -> String {
    let text = error.to_string();
    text.lines().last().unwrap_or_default().trim_start_matches("error: ").to_owned()
}

struct Matcher<'a> {
    nfa: &'a mut Nfa,
    writing: Writing,
    extent: Extent,
}

impl Matcher<'_> {
    /// Anchors are understood at the ends of the whole pattern's alternatives.
    fn anchored(&mut self, hir: &Hir, from: State, to: State) -> Result<(), GrammarError> {
        match hir.kind() {
            HirKind::Alternation(branches) => {
                branches.iter().try_for_each(|branch| self.anchored(branch, from, to))
            }
            HirKind::Capture(capture) => self.anchored(&capture.sub, from, to),
            HirKind::Look(Look::Start | Look::End) => self.between(&[], hir, from, to),
            HirKind::Concat(parts) => self.between(parts, hir, from, to),
            _ => self.between(std::slice::from_ref(hir), hir, from, to),
        }
    }

    /// A sequence without the anchors at its ends, with any text where there are none.
    fn between(
        &mut self,
        parts: &[Hir],
        whole: &Hir,
        from: State,
        to: State,
    ) -> Result<(), GrammarError> {
        let is = |hir: &Hir, look| *hir.kind() == HirKind::Look(look);
        let lone = |look| parts.is_empty() && is(whole, look);
        let mut parts = parts;
        let mut at_start = lone(Look::Start);
        let mut at_end = lone(Look::End);
        while let Some((first, rest)) = parts.split_first().filter(|(p, _)| is(p, Look::Start)) {
            let _ = first;
            (parts, at_start) = (rest, true);
        }
        while let Some((last, rest)) = parts.split_last().filter(|(p, _)| is(p, Look::End)) {
            let _ = last;
            (parts, at_end) = (rest, true);
        }
        let open = self.extent == Extent::Part;
        let from = if open && !at_start { self.any_text(from)? } else { from };
        let end = self.nfa.state()?;
        self.sequence(parts, from, end)?;
        let end = if open && !at_end { self.any_text(end)? } else { end };
        self.nfa.skip(end, to)
    }

    /// Any characters from here on; where they may end.
    fn any_text(&mut self, from: State) -> Result<State, GrammarError> {
        let state = self.nfa.state()?;
        self.nfa.skip(from, state)?;
        self.range('\0', char::MAX, state, state)?;
        Ok(state)
    }

    fn sequence(&mut self, parts: &[Hir], from: State, to: State) -> Result<(), GrammarError> {
        let Some((last, first)) = parts.split_last() else { return self.nfa.skip(from, to) };
        let mut at = from;
        for part in first {
            let next = self.nfa.state()?;
            self.part(part, at, next)?;
            at = next;
        }
        self.part(last, at, to)
    }

    fn part(&mut self, hir: &Hir, from: State, to: State) -> Result<(), GrammarError> {
        match hir.kind() {
            HirKind::Empty => self.nfa.skip(from, to),
            HirKind::Literal(literal) => {
                let text = std::str::from_utf8(&literal.0)
                    .map_err(|_| GrammarError::invalid("a pattern's literal is not UTF-8", ""))?;
                self.text(text, from, to)
            }
            HirKind::Class(Class::Unicode(class)) => {
                class.ranges().iter().try_for_each(|r| self.range(r.start(), r.end(), from, to))
            }
            HirKind::Class(Class::Bytes(_)) => {
                Err(GrammarError::unsupported("a class of bytes in a pattern", ""))
            }
            HirKind::Look(_) => Err(GrammarError::unsupported("an anchor inside of a pattern", "")),
            HirKind::Repetition(repetition) => self.repeat(repetition, from, to),
            HirKind::Capture(capture) => self.part(&capture.sub, from, to),
            HirKind::Concat(parts) => self.sequence(parts, from, to),
            HirKind::Alternation(branches) => {
                branches.iter().try_for_each(|branch| self.part(branch, from, to))
            }
        }
    }

    fn repeat(&mut self, r: &Repetition, from: State, to: State) -> Result<(), GrammarError> {
        let mut at = from;
        for _ in 0..r.min {
            let next = self.nfa.state()?;
            self.part(&r.sub, at, next)?;
            at = next;
        }
        let Some(max) = r.max else {
            let again = self.nfa.state()?;
            self.nfa.skip(at, again)?;
            self.part(&r.sub, again, again)?;
            return self.nfa.skip(again, to);
        };
        for _ in r.min..max {
            self.nfa.skip(at, to)?;
            let next = self.nfa.state()?;
            self.part(&r.sub, at, next)?;
            at = next;
        }
        self.nfa.skip(at, to)
    }

    fn text(&mut self, text: &str, from: State, to: State) -> Result<(), GrammarError> {
        let mut at = from;
        for c in text.chars() {
            let next = self.nfa.state()?;
            self.range(c, c, at, next)?;
            at = next;
        }
        self.nfa.skip(at, to)
    }

    /// One character of a range.
    fn range(&mut self, low: char, high: char, from: State, to: State) -> Result<(), GrammarError> {
        if self.writing == Writing::Plain {
            return self.nfa.chars(low, high, from, to);
        }
        for c in (low..=high.min(CONTROLS)).chain(['"', '\\']) {
            if (low..=high).contains(&c) {
                self.nfa.literal(json_escape(c).as_bytes(), from, to)?;
            }
        }
        for (first, last) in [(' ', '!'), ('#', '['), (']', char::MAX)] {
            if low.max(first) <= high.min(last) {
                self.nfa.chars(low.max(first), high.min(last), from, to)?;
            }
        }
        Ok(())
    }
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
