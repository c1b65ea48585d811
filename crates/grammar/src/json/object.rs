//! Objects.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

use super::schema::{Compiler, Schema};
use super::values::literal;
use crate::GrammarError;
use crate::nfa::{RuleId, State};

/// A member that has a name.
struct Member<'v> {
    name: &'v str,
    schema: &'v Value,
    required: bool,
}

impl Compiler<'_> {
    /// An object of what `properties`, `required` and `additionalProperties` say.
    pub(super) fn object(
        &mut self,
        schema: &Schema,
        from: State,
        to: State,
        path: &str,
    ) -> Result<(), GrammarError> {
        let additional = schema.get("additionalProperties").unwrap_or(&Value::Bool(true));
        let members = members(schema, additional, path)?;
        let open = self.token(b'{', from)?;
        // Before the first member that is written, and behind one.
        let (mut first, mut next) = (open, self.nfa.state()?);
        for member in &members {
            let (after_first, after) = (self.nfa.state()?, self.nfa.state()?);
            let begin = self.nfa.state()?;
            self.nfa.skip(first, begin)?;
            let comma = self.token(b',', next)?;
            self.nfa.skip(comma, begin)?;
            self.member(member, begin, after, path)?;
            if !member.required {
                self.nfa.skip(first, after_first)?;
                self.nfa.skip(next, after)?;
            }
            (first, next) = (after_first, after);
        }
        self.others(additional, &members, (first, next), path)?;
        // Without members, the gap behind the bracket is also the one before the other.
        self.nfa.literal(b"}", first, to)?;
        self.close(b'}', next, to)
    }

    fn member(
        &mut self,
        member: &Member<'_>,
        from: State,
        to: State,
        path: &str,
    ) -> Result<(), GrammarError> {
        let name = literal(&Value::String(member.name.to_owned()));
        let behind = self.nfa.state()?;
        self.nfa.literal(name.as_bytes(), from, behind)?;
        let value = self.token(b':', behind)?;
        let path = format!("{path}/properties/{}", pointer_token(member.name));
        self.schema(member.schema, value, to, &path)
    }

    /// Members that are not named, any number, from where none was written and where some were.
    fn others(
        &mut self,
        additional: &Value,
        members: &[Member<'_>],
        (first, next): (State, State),
        path: &str,
    ) -> Result<(), GrammarError> {
        if *additional == Value::Bool(false) {
            return Ok(());
        }
        let value = if *additional == Value::Bool(true) {
            self.value_rule()?
        } else {
            let path = format!("{path}/additionalProperties");
            self.own_rule(|c, start, end| c.schema(additional, start, end, &path))?
        };
        let key = self.other_key(members)?;
        let begin = self.nfa.state()?;
        self.nfa.skip(first, begin)?;
        let comma = self.token(b',', next)?;
        self.nfa.skip(comma, begin)?;
        let behind = self.nfa.state()?;
        self.nfa.call(begin, key, behind)?;
        let at = self.token(b':', behind)?;
        self.nfa.call(at, value, next)
    }

    /// A member's name that is none of these.
    fn other_key(&mut self, members: &[Member<'_>]) -> Result<RuleId, GrammarError> {
        if members.is_empty() {
            return self.string_rule();
        }
        let names: BTreeSet<&str> = members.iter().map(|member| member.name).collect();
        self.own_rule(|c, start, end| {
            let body = c.nfa.state()?;
            c.nfa.literal(b"\"", start, body)?;
            // A name without escapes cannot spell one with them.
            let free = c.nfa.state()?;
            c.plain_chars(&[], free, free)?;
            c.nfa.literal(b"\"", free, end)?;
            c.other_name(&names.into_iter().collect::<Vec<_>>(), (body, free, end))
        })
    }

    /// From `body`, the names that are none of `names` (sorted, whose common beginning was read).
    fn other_name(
        &mut self,
        names: &[&str],
        (body, free, end): (State, State, State),
    ) -> Result<(), GrammarError> {
        let mut open = vec![(names.to_vec(), body)];
        while let Some((names, at)) = open.pop() {
            if !names.contains(&"") {
                self.nfa.literal(b"\"", at, end)?;
            }
            let mut children: BTreeMap<char, Vec<&str>> = BTreeMap::new();
            for name in names {
                let mut rest = name.chars();
                if let Some(c) = rest.next() {
                    children.entry(c).or_default().push(rest.as_str());
                }
            }
            let named: Vec<char> = children.keys().copied().collect();
            self.plain_chars(&named, at, free)?;
            for (c, names) in children {
                if matches!(c, '"' | '\\' | '\0'..='\u{1f}') {
                    continue;
                }
                let child = self.nfa.state()?;
                self.nfa.chars(c, c, at, child)?;
                open.push((names, child));
            }
        }
        Ok(())
    }
}

/// All members with names, in order: those of `properties`, then others that are required.
fn members<'v>(
    schema: &'v Schema,
    additional: &'v Value,
    path: &str,
) -> Result<Vec<Member<'v>>, GrammarError> {
    let properties = match schema.get("properties") {
        None => None,
        Some(Value::Object(properties)) => Some(properties),
        Some(_) => return Err(GrammarError::invalid("`properties` must be an object", path)),
    };
    let wrong = || GrammarError::invalid("`required` must be a list of strings", path);
    let required: Vec<&str> = match schema.get("required") {
        None => Vec::new(),
        Some(Value::Array(names)) => {
            names.iter().map(|name| name.as_str().ok_or_else(wrong)).collect::<Result<_, _>>()?
        }
        Some(_) => return Err(wrong()),
    };
    let mut seen: BTreeSet<&str> = BTreeSet::new();
    let is_required: BTreeSet<&str> = required.iter().copied().collect();
    let mut members = Vec::new();
    for (name, schema) in properties.into_iter().flatten() {
        seen.insert(name);
        members.push(Member { name, schema, required: is_required.contains(name.as_str()) });
    }
    for name in required {
        if seen.insert(name) {
            members.push(Member { name, schema: additional, required: true });
        }
    }
    Ok(members)
}

/// A name as a part of a JSON pointer.
fn pointer_token(name: &str) -> String {
    name.replace('~', "~0").replace('/', "~1")
}
