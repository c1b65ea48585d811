//! Any JSON value, and given ones.

use serde_json::Value;

use super::schema::{Compiler, Schema};
use crate::GrammarError;
use crate::nfa::{Label, RuleId, State};

/// Spaces and tabs that a line may begin with. A bound: a model that only indents must go on.
const MAX_INDENT: usize = 40;

/// The one way in which a given text or number is written.
pub(super) fn literal(value: &Value) -> String {
    value.to_string()
}

impl Compiler<'_> {
    /// Any value.
    pub(super) fn any_value(&mut self, from: State, to: State) -> Result<(), GrammarError> {
        let rule = self.value_rule()?;
        self.nfa.call(from, rule, to)
    }

    pub(super) fn value_rule(&mut self) -> Result<RuleId, GrammarError> {
        self.shared("value", |c, start, end| {
            c.nfa.literal(b"null", start, end)?;
            c.booleans(start, end)?;
            let none = Schema::new();
            c.number(&none, false, start, end, "")?;
            c.string(&none, start, end, "")?;
            c.array(&none, start, end, "")?;
            c.any_object(start, end)
        })
    }

    /// A given value, with gaps between its tokens.
    pub(super) fn given(
        &mut self,
        value: &Value,
        from: State,
        to: State,
    ) -> Result<(), GrammarError> {
        let parts: Vec<(Option<&str>, &Value)> = match value {
            Value::Array(items) => items.iter().map(|item| (None, item)).collect(),
            Value::Object(members) => {
                members.iter().map(|(name, value)| (Some(name.as_str()), value)).collect()
            }
            _ => return self.nfa.literal(literal(value).as_bytes(), from, to),
        };
        let (open, close) = if value.is_array() { (b'[', b']') } else { (b'{', b'}') };
        let mut at = self.token(open, from)?;
        for (i, (name, part)) in parts.iter().enumerate() {
            if i > 0 {
                at = self.token(b',', at)?;
            }
            if let Some(name) = name {
                let behind = self.nfa.state()?;
                self.nfa.literal(literal(&Value::from(*name)).as_bytes(), at, behind)?;
                at = self.token(b':', behind)?;
            }
            let behind = self.nfa.state()?;
            self.given(part, at, behind)?;
            at = behind;
        }
        if parts.is_empty() {
            return self.nfa.edge(at, Label::Bytes(close, close), to);
        }
        self.close(close, at, to)
    }

    pub(super) fn booleans(&mut self, from: State, to: State) -> Result<(), GrammarError> {
        self.nfa.literal(b"true", from, to)?;
        self.nfa.literal(b"false", from, to)
    }

    /// Any object.
    pub(crate) fn any_object(&mut self, from: State, to: State) -> Result<(), GrammarError> {
        self.object(&Schema::new(), from, to, "")
    }

    /// What may come between two tokens: nothing, a space, or a line break and an indent.
    pub(super) fn gap(&mut self, from: State) -> Result<State, GrammarError> {
        let to = self.nfa.state()?;
        self.nfa.skip(from, to)?;
        self.nfa.edge(from, Label::Bytes(b' ', b' '), to)?;
        let line = self.line_rule()?;
        self.nfa.call(from, line, to)?;
        Ok(to)
    }

    /// A line break and an indent: one rule for all gaps, because each has many states.
    fn line_rule(&mut self) -> Result<RuleId, GrammarError> {
        self.shared("line", |c, start, end| {
            let mut at = c.nfa.state()?;
            c.nfa.edge(start, Label::Bytes(b'\n', b'\n'), at)?;
            for _ in 0..MAX_INDENT {
                let next = c.nfa.state()?;
                c.nfa.edge(at, Label::Bytes(b' ', b' '), next)?;
                c.nfa.edge(at, Label::Bytes(b'\t', b'\t'), next)?;
                c.nfa.skip(at, end)?;
                at = next;
            }
            c.nfa.skip(at, end)
        })
    }

    /// A byte and what may follow it.
    pub(super) fn token(&mut self, byte: u8, from: State) -> Result<State, GrammarError> {
        let at = self.nfa.state()?;
        self.nfa.edge(from, Label::Bytes(byte, byte), at)?;
        self.gap(at)
    }

    /// What may come before a closing bracket, and that.
    pub(super) fn close(&mut self, byte: u8, from: State, to: State) -> Result<(), GrammarError> {
        let at = self.gap(from)?;
        self.nfa.edge(at, Label::Bytes(byte, byte), to)
    }
}
