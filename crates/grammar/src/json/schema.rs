//! Schemas, and the rules that are made of them.

use std::collections::HashMap;

use serde_json::{Map, Value};

use super::judge::Verdict;
use super::keywords::{self, SPLITTING, implied, is_supported};
use super::refs::Rebased;
use super::types::Types;
use crate::classes::Classes;
use crate::nfa::{Nfa, RuleId, State};
use crate::regex::Extent;
use crate::{Bound, GrammarError};

/// Schemas within schemas, and references behind references.
pub(super) const MAX_DEPTH: usize = 96;

/// What the names of rules begin with that are named by a schema.
pub(super) const SCHEMA: &str = "schema ";

/// A JSON object as a schema.
pub(super) type Schema = Map<String, Value>;

/// What documents that are compiled together have in common.
#[derive(Default)]
pub(crate) struct Common {
    /// Rules by their names that mean the same in every document.
    rules: HashMap<String, RuleId>,
    /// Rules of whole documents, by their text.
    pub(super) documents: HashMap<String, RuleId>,
}

/// Compiles schemas of one document.
pub(crate) struct Compiler<'a> {
    pub(super) nfa: &'a mut Nfa,
    common: &'a mut Common,
    pub(super) root: &'a Value,
    pub(super) rebased: Rebased,
    /// The document's own rules: by `#` and a pointer, or by the schema.
    rules: HashMap<String, RuleId>,
    /// Patterns that given texts were held against.
    pub(super) patterns: HashMap<(String, Extent), Classes>,
    depth: usize,
}

impl<'a> Compiler<'a> {
    pub(super) fn new(nfa: &'a mut Nfa, common: &'a mut Common, root: &'a Value) -> Compiler<'a> {
        Compiler {
            nfa,
            common,
            root,
            rebased: Rebased::of(root),
            rules: HashMap::new(),
            patterns: HashMap::new(),
            depth: 0,
        }
    }

    /// The document names a draft in which `prefixItems` means nothing.
    pub(super) fn is_older_than_prefix_items(&self) -> bool {
        let named = self.root.get("$schema").and_then(Value::as_str).unwrap_or_default();
        ["draft-03", "draft-04", "draft-06", "draft-07", "2019-09"]
            .iter()
            .any(|d| named.contains(d))
    }

    /// The rule of this name; `build` fills it in when it is new.
    pub(super) fn shared(
        &mut self,
        name: &str,
        build: impl FnOnce(&mut Self, State, State) -> Result<(), GrammarError>,
    ) -> Result<RuleId, GrammarError> {
        // A schema may refer to others of its document.
        let is_own = name.starts_with('#') || name.starts_with(SCHEMA);
        let rules = if is_own { &mut self.rules } else { &mut self.common.rules };
        if let Some(&rule) = rules.get(name) {
            return Ok(rule);
        }
        let rule = self.nfa.new_rule()?;
        rules.insert(name.to_owned(), rule);
        let ends = self.nfa.rule(rule);
        build(self, ends.start, ends.end)?;
        Ok(rule)
    }

    /// A rule that only its maker knows.
    pub(super) fn own_rule(
        &mut self,
        build: impl FnOnce(&mut Self, State, State) -> Result<(), GrammarError>,
    ) -> Result<RuleId, GrammarError> {
        let rule = self.nfa.new_rule()?;
        let ends = self.nfa.rule(rule);
        build(self, ends.start, ends.end)?;
        Ok(rule)
    }

    /// The values that a schema accepts.
    pub(super) fn schema(
        &mut self,
        schema: &Value,
        from: State,
        to: State,
        path: &str,
    ) -> Result<(), GrammarError> {
        match schema {
            Value::Bool(true) => self.any_value(from, to),
            Value::Bool(false) => Ok(()),
            Value::Object(schema) => self.nested(|c| c.object_schema(schema, from, to, path)),
            _ => Err(GrammarError::invalid("a schema must be an object or a boolean", path)),
        }
    }

    fn nested<T>(
        &mut self,
        build: impl FnOnce(&mut Self) -> Result<T, GrammarError>,
    ) -> Result<T, GrammarError> {
        if self.depth == MAX_DEPTH {
            let limit = MAX_DEPTH as u64;
            return Err(GrammarError::TooLarge {
                bound: Bound::Source("the depth of its schemas"),
                limit,
            });
        }
        self.depth += 1;
        let result = build(self);
        self.depth -= 1;
        result
    }

    fn object_schema(
        &mut self,
        schema: &Schema,
        from: State,
        to: State,
        path: &str,
    ) -> Result<(), GrammarError> {
        keywords::check(schema, path)?;
        if let Some(reference) = schema.get("$ref") {
            if schema.keys().any(|key| key != "$ref" && is_supported(key)) {
                let both = match self.without_ref(schema, path) {
                    Err(GrammarError::Unsatisfiable) => return Ok(()),
                    both => both?,
                };
                return self.schema(&Value::Object(both), from, to, path);
            }
            let rule = self.referred(text(reference, "$ref", path)?, path)?;
            return self.nfa.call(from, rule, to);
        }
        if schema.contains_key("const") || schema.contains_key("enum") {
            return self.listed(schema, from, to, path);
        }
        if SPLITTING.iter().any(|key| schema.contains_key(*key)) {
            return self.split(schema, from, to, path);
        }
        if let Some(branches) = schema.get("allOf") {
            let branches = list(branches, "allOf", path)?;
            let mut base = self.copied(schema)?;
            base.remove("allOf");
            return match self.all_of(base, branches, path) {
                Err(GrammarError::Unsatisfiable) => Ok(()),
                all => self.schema(&all?, from, to, path),
            };
        }
        self.by_type(schema, from, to, path)
    }

    /// `const` and `enum`: those of the values that the other keywords accept as well.
    fn listed(
        &mut self,
        schema: &Schema,
        from: State,
        to: State,
        path: &str,
    ) -> Result<(), GrammarError> {
        let (keyword, values) = match (schema.get("const"), schema.get("enum")) {
            (Some(value), _) => ("const", std::slice::from_ref(value)),
            (None, Some(Value::Array(values))) => ("enum", values.as_slice()),
            _ => return Err(GrammarError::invalid("`enum` must be a list", path)),
        };
        let others = schema.iter().filter(|(key, _)| *key != keyword);
        let others = Value::Object(others.map(|(key, v)| (key.clone(), v.clone())).collect());
        for value in values {
            match self.judge(&others, value, path)? {
                Verdict::Accepted => self.given(value, from, to)?,
                Verdict::Rejected => {}
                Verdict::Unknown(name) => return Err(GrammarError::unsupported(name, path)),
            }
        }
        Ok(())
    }

    fn by_type(
        &mut self,
        schema: &Schema,
        from: State,
        to: State,
        path: &str,
    ) -> Result<(), GrammarError> {
        let types = Types::read(schema, path)?.and(implied(schema));
        if types == Types::ALL {
            return self.any_value(from, to);
        }
        if types.has(Types::NULL) {
            self.nfa.literal(b"null", from, to)?;
        }
        if types.has(Types::BOOLEAN) {
            self.booleans(from, to)?;
        }
        if types.has(Types::NUMBER) {
            self.number(schema, false, from, to, path)?;
        } else if types.has(Types::INTEGER) {
            self.number(schema, true, from, to, path)?;
        }
        if types.has(Types::STRING) {
            self.string(schema, from, to, path)?;
        }
        if types.has(Types::ARRAY) {
            self.array(schema, from, to, path)?;
        }
        if types.has(Types::OBJECT) {
            self.object(schema, from, to, path)?;
        }
        Ok(())
    }
}

/// A keyword's text.
pub(super) fn text<'v>(
    value: &'v Value,
    keyword: &str,
    path: &str,
) -> Result<&'v str, GrammarError> {
    value
        .as_str()
        .ok_or_else(|| GrammarError::invalid(format!("`{keyword}` must be a string"), path))
}
/// A keyword's list, which is not empty.
pub(super) fn list<'v>(
    value: &'v Value,
    keyword: &str,
    path: &str,
) -> Result<&'v [Value], GrammarError> {
    match value {
        Value::Array(items) if !items.is_empty() => Ok(items),
        _ => Err(GrammarError::invalid(format!("`{keyword}` must be a list, not empty"), path)),
    }
}
/// A keyword that counts something.
pub(super) fn count(
    schema: &Schema,
    keyword: &str,
    path: &str,
) -> Result<Option<usize>, GrammarError> {
    let wrong =
        || GrammarError::invalid(format!("`{keyword}` must be a number, not below 0"), path);
    let Some(value) = schema.get(keyword) else { return Ok(None) };
    if let Some(count) = value.as_u64() {
        return usize::try_from(count).map(Some).map_err(|_| wrong());
    }
    match value.as_f64() {
        Some(f) if f >= 0.0 && f.fract() == 0.0 && f < 1e9 => Ok(Some(f as usize)),
        _ => Err(wrong()),
    }
}
