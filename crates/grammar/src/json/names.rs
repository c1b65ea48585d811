//! Members of objects that `properties` does not name: which names they may have, and which values
//! under them.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Map, Value};

use super::judge::Verdict;
use super::merge::merge_schemas;
use super::object::{Member, pointer_token};
use super::schema::{Compiler, Schema};
use super::texts::{How, TextLimits, at};
use super::types::Types;
use crate::GrammarError;
use crate::chars::Languages;
use crate::classes::{Chosen, Classes};
use crate::nfa::{RuleId, State};
use crate::regex::Extent;

/// What an object's keywords say of members without names of their own.
pub(super) struct Others<'v> {
    patterns: Option<&'v Map<String, Value>>,
    additional: &'v Value,
    names: &'v Value,
}

impl<'v> Others<'v> {
    pub(super) fn read(schema: &'v Schema, path: &str) -> Result<Others<'v>, GrammarError> {
        let or_any = |key: &str| schema.get(key).unwrap_or(&Value::Bool(true));
        let patterns = match schema.get("patternProperties") {
            None => None,
            Some(Value::Object(patterns)) => Some(patterns).filter(|p| !p.is_empty()),
            Some(_) => {
                let message = "`patternProperties` must be an object";
                return Err(GrammarError::invalid(message, path));
            }
        };
        let additional = or_any("additionalProperties");
        Ok(Others { patterns, additional, names: or_any("propertyNames") })
    }

    /// There may be such members.
    pub(super) fn are_allowed(&self) -> bool {
        let no_values = *self.additional == Value::Bool(false) && self.patterns.is_none();
        !no_values && *self.names != Value::Bool(false)
    }

    fn patterns(&self) -> impl Iterator<Item = (&'v String, &'v Value)> {
        self.patterns.into_iter().flatten()
    }
}

/// A member of [`Others`]: its name and, behind each of the name's ends, its value.
pub(super) enum OtherMember {
    /// Any name that is not taken.
    Free {
        name: RuleId,
        value: RuleId,
    },
    Chosen {
        names: Chosen,
        values: Vec<RuleId>,
    },
}

impl Compiler<'_> {
    /// The schema of a member that has a name: what `properties` says of it, if it does, and what
    /// patterns and `propertyNames` say of such a name.
    pub(super) fn named_schema(
        &mut self,
        name: &str,
        own: Option<&Value>,
        others: &Others<'_>,
        path: &str,
    ) -> Result<Value, GrammarError> {
        match self.judge(others.names, &name.into(), path)? {
            Verdict::Accepted => {}
            Verdict::Rejected => return Ok(Value::Bool(false)),
            Verdict::Unknown(_) => {
                let name = "`propertyNames` of this kind beside a name";
                return Err(GrammarError::unsupported(name, path));
            }
        }
        let mut schemas: Vec<&Value> = own.into_iter().collect();
        for (pattern, schema) in others.patterns() {
            if self.matches(pattern, Extent::Part, name, path)? {
                schemas.push(schema);
            }
        }
        match schemas.split_first() {
            None => Ok(others.additional.clone()),
            Some((first, rest)) => rest
                .iter()
                .try_fold((*first).clone(), |all, schema| merge_schemas(&all, schema, path)),
        }
    }

    /// What a member without a name of its own may be.
    pub(super) fn other_member(
        &mut self,
        others: &Others<'_>,
        members: &[Member],
        path: &str,
    ) -> Result<OtherMember, GrammarError> {
        if others.patterns.is_none() && *others.names == Value::Bool(true) {
            let value = self.other_value(others.additional, path)?;
            return Ok(OtherMember::Free { name: self.other_key(members)?, value });
        }
        let mut limits = self.name_limits(others.names, path)?;
        let mut languages = Languages::default();
        for (pattern, _) in others.patterns() {
            let fuel = &mut self.nfa.fuel;
            languages.add_pattern(fuel, pattern, Extent::Part).map_err(at(path))?;
        }
        let num_patterns = languages.starts.len();
        limits.none_of(members.iter().map(|member| member.name.clone()).collect());
        let asked = limits.add_to(&mut languages, &mut self.nfa.fuel).map_err(at(path))?;
        let classes = Classes::of(&languages, &mut self.nfa.fuel)?;
        // The patterns that a name matches, for each end.
        let mut ends: Vec<Vec<usize>> = Vec::new();
        let end_of = |languages: &[usize]| {
            let matching: Vec<usize> =
                languages.iter().copied().filter(|&language| language < num_patterns).collect();
            let closed = matching.is_empty() && *others.additional == Value::Bool(false);
            if closed || !asked.has(languages) {
                return None;
            }
            let end = ends.iter().position(|end| *end == matching);
            Some(end.unwrap_or_else(|| {
                ends.push(matching);
                ends.len() - 1
            }))
        };
        let names = classes.choose(end_of, (limits.min, limits.max), &mut self.nfa.fuel)?;
        let patterns: Vec<(&String, &Value)> = others.patterns().collect();
        let values = ends.iter().map(|matching| {
            let schemas = matching.iter().map(|&i| patterns[i].1);
            let all = schemas
                .clone()
                .try_fold(Value::Bool(true), |all, schema| merge_schemas(&all, schema, path))?;
            match matching.first() {
                None => self.other_value(others.additional, path),
                Some(&first) => {
                    let token = pointer_token(patterns[first].0);
                    let path = format!("{path}/patternProperties/{token}");
                    self.part_rule(&all, &path)
                }
            }
        });
        let values = values.collect::<Result<_, _>>()?;
        Ok(OtherMember::Chosen { names, values })
    }

    /// A member, from before its name to behind its value.
    pub(super) fn add_other(
        &mut self,
        other: &OtherMember,
        from: State,
        to: State,
    ) -> Result<(), GrammarError> {
        match other {
            OtherMember::Free { name, value } => {
                let behind = self.nfa.state()?;
                self.nfa.call(from, *name, behind)?;
                let at = self.token(b':', behind)?;
                self.nfa.call(at, *value, to)
            }
            OtherMember::Chosen { names, values } => {
                let body = self.nfa.state()?;
                self.nfa.literal(b"\"", from, body)?;
                let mut ends = Vec::with_capacity(values.len());
                for &value in values {
                    let (end, behind) = (self.nfa.state()?, self.nfa.state()?);
                    self.nfa.literal(b"\"", end, behind)?;
                    let at = self.token(b':', behind)?;
                    self.nfa.call(at, value, to)?;
                    ends.push(end);
                }
                self.chosen(names, How::Bare, body, &ends)
            }
        }
    }

    fn other_value(&mut self, additional: &Value, path: &str) -> Result<RuleId, GrammarError> {
        self.part_rule(additional, &format!("{path}/additionalProperties"))
    }

    /// What `propertyNames` says of texts.
    fn name_limits(&mut self, names: &Value, path: &str) -> Result<TextLimits, GrammarError> {
        const UNDERSTOOD: &[&str] =
            &["type", "enum", "const", "pattern", "format", "minLength", "maxLength"];
        let path = format!("{path}/propertyNames");
        let schema = match names {
            Value::Object(schema) => self.followed(schema, &path)?,
            _ => Schema::new(),
        };
        let unknown = schema
            .keys()
            .find(|key| super::keywords::is_keyword(key) && !UNDERSTOOD.contains(&key.as_str()));
        if let Some(key) = unknown {
            return Err(GrammarError::unsupported(format!("`{key}` in `propertyNames`"), &path));
        }
        let mut limits = TextLimits::read(&schema, &path)?;
        if !Types::read(&schema, &path)?.has(Types::STRING) {
            limits.list(Vec::new());
        }
        let texts = |values: &[Value]| {
            values.iter().filter_map(Value::as_str).map(str::to_owned).collect::<Vec<_>>()
        };
        if let Some(value) = schema.get("const") {
            limits.list(texts(std::slice::from_ref(value)));
        }
        if let Some(Value::Array(values)) = schema.get("enum") {
            limits.list(texts(values));
        }
        Ok(limits)
    }

    /// A member's name that is none of these.
    fn other_key(&mut self, members: &[Member]) -> Result<RuleId, GrammarError> {
        if members.is_empty() {
            return self.string_rule();
        }
        let names: BTreeSet<&str> = members.iter().map(|member| member.name.as_str()).collect();
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
