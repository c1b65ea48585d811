//! Strings.

use super::schema::{Compiler, Schema, count, text};
use crate::GrammarError;
use crate::nfa::{Label, RuleId, State};
use crate::regex::{self, Extent, Writing};

/// The pattern of a format that is checked. Days fit their months; February has 28.
fn format_pattern(format: &str) -> Option<String> {
    let date = concat!(
        "[0-9]{4}-((0[13578]|1[02])-(0[1-9]|[12][0-9]|3[01])",
        "|(0[469]|11)-(0[1-9]|[12][0-9]|30)|02-(0[1-9]|1[0-9]|2[0-8]))"
    );
    let time = concat!(
        r"([01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9](\.[0-9]{1,6})?",
        "(Z|[+-]([01][0-9]|2[0-3]):[0-5][0-9])"
    );
    let byte = "(25[0-5]|2[0-4][0-9]|1[0-9][0-9]|[1-9]?[0-9])";
    let hex = "[0-9a-fA-F]";
    // Names of hosts: a label, then labels that begin with a letter.
    let label = "[a-z0-9]([a-z0-9]{0,20}[a-z0-9])?";
    let host = format!(r"{label}(\.[a-z]([a-z0-9]{{0,20}}[a-z0-9])?){{1,3}}");
    Some(match format {
        "date" => date.into(),
        "time" => time.into(),
        "date-time" => format!("({date})T({time})"),
        "duration" => {
            let days = "P([0-9]{1,4}Y)?([0-9]{1,2}M)?[0-9]{1,2}D(T[0-9]{1,2}H([0-9]{1,2}M)?)?";
            format!("{days}|P[0-9]{{1,4}}W|PT[0-9]{{1,2}}H")
        }
        "uuid" => format!("{hex}{{8}}(-{hex}{{4}}){{3}}-{hex}{{12}}"),
        "ipv4" => format!(r"({byte}\.){{3}}{byte}"),
        "ipv6" => format!("({hex}{{1,4}}:){{7}}{hex}{{1,4}}"),
        "hostname" => host,
        "email" => format!(r"[a-z0-9_]{{1,20}}(\.[a-z0-9_]{{1,20}}){{0,2}}@{host}"),
        "uri" => format!("https?://{host}(/[A-Za-z0-9_.~-]*)*"),
        _ => return None,
    })
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
        let min = count(schema, "minLength", path)?.unwrap_or(0);
        let max = count(schema, "maxLength", path)?;
        let pattern = schema.get("pattern").map(|p| text(p, "pattern", path)).transpose()?;
        let format = schema.get("format").map(|f| text(f, "format", path)).transpose()?;
        let counted = min > 0 || max.is_some();
        if usize::from(counted) + usize::from(pattern.is_some()) + usize::from(format.is_some()) > 1
        {
            let name = "more than one of `pattern`, `format` and lengths of a string";
            return Err(GrammarError::unsupported(name, path));
        }
        if let Some(pattern) = pattern {
            return self.matching(pattern, Extent::Part, from, to, path);
        }
        if let Some(format) = format {
            let pattern = format_pattern(format)
                .ok_or_else(|| GrammarError::unsupported(format!("format `{format}`"), path))?;
            return self.matching(&pattern, Extent::Whole, from, to, path);
        }
        if counted {
            return self.counted(min, max, from, to);
        }
        let rule = self.string_rule()?;
        self.nfa.call(from, rule, to)
    }

    /// Any string.
    pub(super) fn string_rule(&mut self) -> Result<RuleId, GrammarError> {
        self.shared("string", |c, start, end| {
            let body = c.nfa.state()?;
            c.nfa.literal(b"\"", start, body)?;
            c.plain_chars(&[], body, body)?;
            c.escapes(body, body)?;
            c.nfa.literal(b"\"", body, end)
        })
    }

    fn matching(
        &mut self,
        pattern: &str,
        extent: Extent,
        from: State,
        to: State,
        path: &str,
    ) -> Result<(), GrammarError> {
        let (body, behind) = (self.nfa.state()?, self.nfa.state()?);
        self.nfa.literal(b"\"", from, body)?;
        regex::add(self.nfa, pattern, Writing::Json, extent, body, behind).map_err(
            |e| match e {
                GrammarError::Unsupported { name, .. } => GrammarError::unsupported(name, path),
                GrammarError::Invalid { message, .. } => GrammarError::invalid(message, path),
                other => other,
            },
        )?;
        self.nfa.literal(b"\"", behind, to)
    }

    /// A string of `min` to `max` characters.
    fn counted(
        &mut self,
        min: usize,
        max: Option<usize>,
        from: State,
        to: State,
    ) -> Result<(), GrammarError> {
        // What takes several bytes is a rule: then each length is one state.
        let long = self.shared("long character", |c, start, end| {
            c.escapes(start, end)?;
            c.nfa.chars('\u{80}', char::MAX, start, end)
        })?;
        let mut at = self.nfa.state()?;
        self.nfa.literal(b"\"", from, at)?;
        for length in 0.. {
            if length >= min {
                self.nfa.literal(b"\"", at, to)?;
            }
            let looping = max.is_none() && length >= min;
            if max.is_some_and(|max| length >= max) {
                break;
            }
            let next = if looping { at } else { self.nfa.state()? };
            for (low, high) in [(b' ', b'!'), (b'#', b'['), (b']', 0x7f)] {
                self.nfa.edge(at, Label::Bytes(low, high), next)?;
            }
            self.nfa.call(at, long, next)?;
            if looping {
                break;
            }
            at = next;
        }
        Ok(())
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
            Writing::Plain,
            Extent::Whole,
            at,
            to,
        )
    }
}
