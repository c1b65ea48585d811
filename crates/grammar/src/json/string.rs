//! Strings.

use super::repeat::Unit;
use super::schema::{Compiler, Schema};
use super::texts::TextLimits;
use crate::GrammarError;
use crate::nfa::{Label, RuleId, State};
use crate::regex::{self, Extent};

/// Keywords of ours, which a combination of schemas leaves: patterns that a string must match,
/// patterns that it must not match, and strings that it must not be.
pub(super) const PATTERNS: &str = "\u{0}patterns";
pub(super) const NOT_PATTERNS: &str = "\u{0}notPatterns";
pub(super) const NOT_VALUES: &str = "\u{0}notValues";

/// A character of a string.
struct AnyChar;

impl Unit for AnyChar {
    fn name(&self) -> String {
        "any character".into()
    }
    fn add(&self, c: &mut Compiler<'_>, from: State, to: State) -> Result<(), GrammarError> {
        c.any_char(from, to)
    }
}

impl Compiler<'_> {
    /// A string of what the keywords say.
    pub(super) fn string(
        &mut self,
        schema: &Schema,
        from: State,
        to: State,
        path: &str,
    ) -> Result<(), GrammarError> {
        let limits = TextLimits::read(schema, path)?;
        if !limits.is_only_counted() {
            // A rule: formats and patterns are often asked for in many places.
            let rule = self.shared(&format!("{limits:?}"), |c, start, end| {
                let (body, behind) = (c.nfa.state()?, c.nfa.state()?);
                c.nfa.literal(b"\"", start, body)?;
                c.limited(&limits, body, behind, path)?;
                c.nfa.literal(b"\"", behind, end)
            })?;
            return self.nfa.call(from, rule, to);
        }
        if limits.min > 0 || limits.max.is_some() {
            let (body, behind) = (self.nfa.state()?, self.nfa.state()?);
            self.nfa.literal(b"\"", from, body)?;
            self.repeat(&AnyChar, (limits.min, limits.max), body, behind)?;
            return self.nfa.literal(b"\"", behind, to);
        }
        let rule = self.string_rule()?;
        self.nfa.call(from, rule, to)
    }

    /// Any string.
    pub(super) fn string_rule(&mut self) -> Result<RuleId, GrammarError> {
        self.shared("string", |c, start, end| {
            let body = c.nfa.state()?;
            c.nfa.literal(b"\"", start, body)?;
            c.any_chars(body)?;
            c.nfa.literal(b"\"", body, end)
        })
    }

    /// Any characters, as a loop.
    pub(super) fn any_chars(&mut self, at: State) -> Result<(), GrammarError> {
        self.plain_chars(&[], at, at)?;
        self.escapes(at, at)
    }

    /// Any character.
    pub(super) fn any_char(&mut self, from: State, to: State) -> Result<(), GrammarError> {
        // What takes several bytes is a rule: then each length of a text is one state.
        let long = self.shared("long character", |c, start, end| {
            c.escapes(start, end)?;
            c.nfa.chars('\u{80}', char::MAX, start, end)
        })?;
        for (low, high) in [(b' ', b'!'), (b'#', b'['), (b']', 0x7f)] {
            self.nfa.edge(from, Label::Bytes(low, high), to)?;
        }
        self.nfa.call(from, long, to)
    }

    /// One character as it is, but for `without` (ascending).
    pub(super) fn plain_chars(
        &mut self,
        without: &[char],
        from: State,
        to: State,
    ) -> Result<(), GrammarError> {
        let mut low = Some(' ');
        let mut holes: Vec<char> = without.iter().copied().chain(['"', '\\']).collect();
        holes.sort_unstable();
        for hole in holes {
            let Some(begin) = low else { break };
            if hole < begin {
                continue;
            }
            // Surrogates are no characters: a range of chars steps over them.
            if let Some(last) = (begin..hole).next_back() {
                self.nfa.chars(begin, last, from, to)?;
            }
            low = (hole..=char::MAX).nth(1);
        }
        if let Some(low) = low {
            self.nfa.chars(low, char::MAX, from, to)?;
        }
        Ok(())
    }

    /// One character as an escape. Halves of surrogate pairs are left out: characters beyond the
    /// first plane are written as they are.
    fn escapes(&mut self, from: State, to: State) -> Result<(), GrammarError> {
        let at = self.nfa.state()?;
        self.nfa.literal(b"\\", from, at)?;
        for byte in *b"\"\\/bfnrt" {
            self.nfa.edge(at, Label::Bytes(byte, byte), to)?;
        }
        regex::add(
            self.nfa,
            "u([0-9a-cA-CefEF][0-9a-fA-F]{3}|[dD][0-7][0-9a-fA-F]{2})",
            Extent::Whole,
            at,
            to,
        )
    }
}
