//! Regular expressions as automata.

use regex_syntax::ParserBuilder;
use regex_syntax::hir::{Class, Hir, HirKind, Look, Repetition};

use crate::GrammarError;
use crate::nfa::{Nfa, State};
use crate::pattern::normalize;

/// Depth of parentheses.
const MAX_NESTING: u32 = 64;
/// What of a text a pattern describes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Extent {
    /// All of it.
    Whole,
    /// Some part, unless anchors say otherwise.
    Part,
}

/// What fragments of a pattern are built in.
pub(crate) trait Fragments {
    /// Steps that no state shows.
    fn burn(&mut self, steps: usize) -> Result<(), GrammarError>;
    fn state(&mut self) -> Result<State, GrammarError>;
    fn skip(&mut self, from: State, to: State) -> Result<(), GrammarError>;
    /// One character of a range.
    fn range(&mut self, low: char, high: char, from: State, to: State) -> Result<(), GrammarError>;
    /// An anchor that is not at an end of the pattern.
    fn anchor(&mut self, look: Look, from: State, to: State) -> Result<(), GrammarError>;
}

/// The answer is a match of `pattern`.
pub(crate) fn compile(nfa: &mut Nfa, pattern: &str) -> Result<(), GrammarError> {
    let main = nfa.main();
    add(nfa, pattern, Extent::Whole, main.start, main.end)
}

/// Adds the texts that `pattern` describes.
pub(crate) fn add(
    fragments: &mut impl Fragments,
    pattern: &str,
    extent: Extent,
    from: State,
    to: State,
) -> Result<(), GrammarError> {
    add_parsed(fragments, &normalize(pattern)?, Options::default(), extent, from, to)
}

/// How regex-syntax reads a pattern.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Options {
    pub(crate) ignores_case: bool,
    /// `.` is a line break as well.
    pub(crate) dot_is_any: bool,
}

/// Adds the texts that `pattern`, as regex-syntax reads it, describes.
pub(crate) fn add_parsed(
    fragments: &mut impl Fragments,
    pattern: &str,
    options: Options,
    extent: Extent,
    from: State,
    to: State,
) -> Result<(), GrammarError> {
    fragments.burn(steps_to_read(pattern, options))?;
    let mut parser = ParserBuilder::new();
    parser.nest_limit(MAX_NESTING).case_insensitive(options.ignores_case);
    parser.dot_matches_new_line(options.dot_is_any);
    let hir = parser.build().parse(pattern).map_err(|e| {
        GrammarError::invalid(format!("not a regular expression: {}", brief(&e)), "")
    })?;
    Matcher { fragments, extent }.anchored(&hir, from, to)
}

/// Steps that reading a pattern is worth: a class like `\w` has hundreds of ranges, letters in any
/// case are looked for in all of them, and groups, alternatives, repeats and escapes take long also
/// where they hold little.
fn steps_to_read(pattern: &str, options: Options) -> usize {
    let has_cases = options.ignores_case || pattern.contains("(?");
    let mut steps = 0;
    let mut is_escaped = false;
    for c in pattern.chars() {
        steps += match c {
            'w' | 'W' | 'd' | 'D' | 's' | 'S' | 'p' | 'P' if is_escaped => 1000,
            '[' | '.' if has_cases => 1000,
            '[' => 64,
            '(' => 256,
            '|' => 48,
            '?' | '*' | '+' | '{' | '\\' => 64,
            _ => 8,
        };
        is_escaped = c == '\\' && !is_escaped;
    }
    steps
}

/// The last line says what is wrong, the others draw it.
fn brief(error: &regex_syntax::Error) -> String {
    let text = error.to_string();
    text.lines().last().unwrap_or_default().trim_start_matches("error: ").to_owned()
}

struct Matcher<'a, F> {
    fragments: &'a mut F,
    extent: Extent,
}

impl<F: Fragments> Matcher<'_, F> {
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
        let end = self.fragments.state()?;
        self.sequence(parts, from, end)?;
        let end = if open && !at_end { self.any_text(end)? } else { end };
        self.fragments.skip(end, to)
    }

    /// Any characters from here on; where they may end.
    fn any_text(&mut self, from: State) -> Result<State, GrammarError> {
        let state = self.fragments.state()?;
        self.fragments.skip(from, state)?;
        self.fragments.range('\0', char::MAX, state, state)?;
        Ok(state)
    }

    fn sequence(&mut self, parts: &[Hir], from: State, to: State) -> Result<(), GrammarError> {
        let Some((last, first)) = parts.split_last() else { return self.fragments.skip(from, to) };
        let mut at = from;
        for part in first {
            let next = self.fragments.state()?;
            self.part(part, at, next)?;
            at = next;
        }
        self.part(last, at, to)
    }

    fn part(&mut self, hir: &Hir, from: State, to: State) -> Result<(), GrammarError> {
        match hir.kind() {
            HirKind::Empty => self.fragments.skip(from, to),
            HirKind::Literal(literal) => {
                let text = std::str::from_utf8(&literal.0)
                    .map_err(|_| GrammarError::invalid("a pattern's literal is not UTF-8", ""))?;
                self.text(text, from, to)
            }
            HirKind::Class(Class::Unicode(class)) => class
                .ranges()
                .iter()
                .try_for_each(|r| self.fragments.range(r.start(), r.end(), from, to)),
            HirKind::Class(Class::Bytes(_)) => {
                Err(GrammarError::unsupported("a class of bytes in a pattern", ""))
            }
            HirKind::Look(look) => self.fragments.anchor(*look, from, to),
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
            let next = self.fragments.state()?;
            self.part(&r.sub, at, next)?;
            at = next;
        }
        let Some(max) = r.max else {
            let again = self.fragments.state()?;
            self.fragments.skip(at, again)?;
            self.part(&r.sub, again, again)?;
            return self.fragments.skip(again, to);
        };
        for _ in r.min..max {
            self.fragments.skip(at, to)?;
            let next = self.fragments.state()?;
            self.part(&r.sub, at, next)?;
            at = next;
        }
        self.fragments.skip(at, to)
    }

    fn text(&mut self, text: &str, from: State, to: State) -> Result<(), GrammarError> {
        let mut at = from;
        for c in text.chars() {
            let next = self.fragments.state()?;
            self.fragments.range(c, c, at, next)?;
            at = next;
        }
        self.fragments.skip(at, to)
    }
}

impl Fragments for Nfa {
    fn burn(&mut self, steps: usize) -> Result<(), GrammarError> {
        self.fuel.burn(steps)
    }

    fn state(&mut self) -> Result<State, GrammarError> {
        Nfa::state(self)
    }

    fn skip(&mut self, from: State, to: State) -> Result<(), GrammarError> {
        Nfa::skip(self, from, to)
    }

    fn range(&mut self, low: char, high: char, from: State, to: State) -> Result<(), GrammarError> {
        self.chars(low, high, from, to)
    }

    fn anchor(&mut self, _: Look, _: State, _: State) -> Result<(), GrammarError> {
        Err(GrammarError::unsupported("an anchor inside of a pattern", ""))
    }
}
