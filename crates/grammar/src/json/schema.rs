//! Schemas: which keywords there are, references, and combinations.

use std::collections::HashMap;

use serde_json::{Map, Value};

use super::merge::{are_disjoint, merge};
use super::types::Types;
use super::values::literal;
use crate::GrammarError;
use crate::nfa::{Nfa, RuleId, State};

/// Keywords that say nothing about a value, or name others.
const ANNOTATIONS: &[&str] = &[
    "title",
    "description",
    "default",
    "examples",
    "example",
    "$comment",
    "$schema",
    "$defs",
    "definitions",
    "deprecated",
    "readOnly",
    "writeOnly",
    "contentMediaType",
    "contentEncoding",
    "contentSchema",
    "$vocabulary",
];
/// Keywords that are understood.
const SUPPORTED: &[&str] = &[
    "$ref",
    "type",
    "enum",
    "const",
    "anyOf",
    "oneOf",
    "allOf",
    "properties",
    "required",
    "additionalProperties",
    "items",
    "prefixItems",
    "minItems",
    "maxItems",
    "minLength",
    "maxLength",
    "pattern",
    "format",
    "minimum",
    "maximum",
    "exclusiveMinimum",
    "exclusiveMaximum",
    "multipleOf",
];
/// Keywords that mean something and are not understood, unless they have this value.
const REFUSED: &[(&str, &str)] = &[
    ("not", ""),
    ("if", ""),
    ("then", ""),
    ("else", ""),
    ("patternProperties", "{}"),
    ("propertyNames", "true"),
    ("unevaluatedProperties", "true"),
    ("unevaluatedItems", "true"),
    ("dependentRequired", "{}"),
    ("dependentSchemas", "{}"),
    ("dependencies", "{}"),
    ("minProperties", "0"),
    ("maxProperties", ""),
    ("additionalItems", "true"),
    ("uniqueItems", "false"),
    ("contains", ""),
    ("minContains", ""),
    ("maxContains", ""),
    ("nullable", "false"),
    ("$dynamicRef", ""),
    ("$recursiveRef", ""),
    ("$anchor", ""),
    ("$dynamicAnchor", ""),
    ("$recursiveAnchor", ""),
    ("disallow", ""),
    ("extends", ""),
    ("divisibleBy", ""),
];
/// Schemas within schemas, and references behind references.
const MAX_DEPTH: usize = 96;

/// A JSON object as a schema, and where it stands.
pub(super) type Schema = Map<String, Value>;

/// Compiles schemas of one document.
pub(crate) struct Compiler<'a> {
    pub(super) nfa: &'a mut Nfa,
    root: &'a Value,
    /// Rules by what they are: `#` and a pointer, or a name of ours.
    rules: HashMap<String, RuleId>,
    depth: usize,
}

impl<'a> Compiler<'a> {
    pub(super) fn new(nfa: &'a mut Nfa, root: &'a Value) -> Compiler<'a> {
        Compiler { nfa, root, rules: HashMap::new(), depth: 0 }
    }

    /// The document itself.
    pub(super) fn root(&mut self, from: State, to: State) -> Result<(), GrammarError> {
        let rule = self.referred("#", "")?;
        self.nfa.call(from, rule, to)
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
        if let Some(&rule) = self.rules.get(name) {
            return Ok(rule);
        }
        let rule = self.nfa.new_rule()?;
        self.rules.insert(name.to_owned(), rule);
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

    /// The rule of what `$ref` names.
    fn referred(&mut self, reference: &str, path: &str) -> Result<RuleId, GrammarError> {
        let schema = self.resolve(reference, path)?;
        self.shared(reference, |c, start, end| c.schema(schema, start, end, reference))
    }

    /// What `$ref` names: a place in this document.
    pub(super) fn resolve(&self, reference: &str, path: &str) -> Result<&'a Value, GrammarError> {
        let Some(pointer) = reference.strip_prefix('#') else {
            return Err(GrammarError::unsupported("`$ref` to another document", path));
        };
        if !pointer.is_empty() && !pointer.starts_with('/') {
            return Err(GrammarError::unsupported("`$ref` to an anchor", path));
        }
        if pointer.contains('%') {
            return Err(GrammarError::unsupported("`$ref` with `%` in it", path));
        }
        self.root.pointer(pointer).ok_or_else(|| {
            GrammarError::invalid(format!("`$ref` names nothing: {reference}"), path)
        })
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
            return Err(GrammarError::TooLarge { what: "the depth of its schemas", limit });
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
        self.check_keywords(schema, path)?;
        if let Some(reference) = schema.get("$ref") {
            if schema.keys().any(|key| key != "$ref" && SUPPORTED.contains(&key.as_str())) {
                return self.schema(
                    &Value::Object(self.without_ref(schema, path)?),
                    from,
                    to,
                    path,
                );
            }
            let rule = self.referred(text(reference, "$ref", path)?, path)?;
            return self.nfa.call(from, rule, to);
        }
        for (keyword, exclusive) in [("allOf", false), ("anyOf", false), ("oneOf", true)] {
            if let Some(branches) = schema.get(keyword) {
                let branches = list(branches, keyword, path)?;
                let mut base = schema.clone();
                base.remove(keyword);
                return if keyword == "allOf" {
                    let all = self.all_of(base, branches, path)?;
                    self.schema(&all, from, to, path)
                } else {
                    self.one_of(&base, branches, exclusive, (from, to), path)
                };
            }
        }
        if schema.contains_key("const") || schema.contains_key("enum") {
            return self.listed(schema, from, to, path);
        }
        self.by_type(schema, from, to, path)
    }

    /// A schema whose `$ref` has neighbours: both count.
    fn without_ref(&self, schema: &Schema, path: &str) -> Result<Schema, GrammarError> {
        let mut rest = schema.clone();
        let reference = rest.remove("$ref").unwrap_or_default();
        let target = self.resolve(text(&reference, "$ref", path)?, path)?;
        match target {
            Value::Bool(true) => Ok(rest),
            Value::Object(target) => merge(&rest, target, path),
            _ => Err(GrammarError::unsupported("`$ref` to `false`", path)),
        }
    }

    fn all_of(&self, base: Schema, branches: &[Value], path: &str) -> Result<Value, GrammarError> {
        let mut all = base;
        for branch in branches {
            match branch {
                Value::Bool(true) => {}
                Value::Bool(false) => return Ok(Value::Bool(false)),
                Value::Object(branch) => all = merge(&all, branch, path)?,
                _ => return Err(GrammarError::invalid("a schema must be an object", path)),
            }
        }
        Ok(Value::Object(all))
    }

    /// `anyOf`, or `oneOf` where no value can obey two branches.
    fn one_of(
        &mut self,
        base: &Schema,
        branches: &[Value],
        exclusive: bool,
        (from, to): (State, State),
        path: &str,
    ) -> Result<(), GrammarError> {
        let keyword = if exclusive { "oneOf" } else { "anyOf" };
        let mut merged = Vec::with_capacity(branches.len());
        for branch in branches {
            match branch {
                Value::Bool(false) => {}
                Value::Bool(true) => merged.push(base.clone()),
                Value::Object(branch) => merged.push(merge(base, branch, path)?),
                _ => return Err(GrammarError::invalid("a schema must be an object", path)),
            }
        }
        if exclusive {
            self.check_exclusive(&merged, path)?;
        }
        for (i, branch) in merged.into_iter().enumerate() {
            let path = format!("{path}/{keyword}/{i}");
            self.schema(&Value::Object(branch), from, to, &path)?;
        }
        Ok(())
    }

    fn check_exclusive(&self, branches: &[Schema], path: &str) -> Result<(), GrammarError> {
        for (i, a) in branches.iter().enumerate() {
            for b in &branches[i + 1..] {
                if !are_disjoint(&self.followed(a, path)?, &self.followed(b, path)?, path)? {
                    let name = "`oneOf` with branches that one value may obey";
                    return Err(GrammarError::unsupported(name, path));
                }
            }
        }
        Ok(())
    }

    /// The schema itself, or what it only refers to.
    fn followed(&self, schema: &Schema, path: &str) -> Result<Schema, GrammarError> {
        let mut schema = schema.clone();
        for _ in 0..MAX_DEPTH {
            if !schema.contains_key("$ref") {
                return Ok(schema);
            }
            schema = self.without_ref(&schema, path)?;
        }
        Err(GrammarError::invalid("`$ref` refers to itself", path))
    }

    /// `const` and `enum`, each value as JSON text.
    fn listed(
        &mut self,
        schema: &Schema,
        from: State,
        to: State,
        path: &str,
    ) -> Result<(), GrammarError> {
        const ALONE: &[&str] = &["const", "enum", "type"];
        let other = schema
            .keys()
            .find(|key| SUPPORTED.contains(&key.as_str()) && !ALONE.contains(&key.as_str()));
        if let Some(other) = other {
            let name = format!("`{other}` beside `enum` or `const`");
            return Err(GrammarError::unsupported(name, path));
        }
        let types = Types::read(schema, path)?;
        let fixed = schema.get("const");
        let values = match schema.get("enum") {
            None => std::slice::from_ref(fixed.unwrap_or(&Value::Null)),
            Some(values) => list(values, "enum", path)?,
        };
        for value in values {
            if types.admits(value) && fixed.is_none_or(|fixed| fixed == value) {
                self.nfa.literal(literal(value).as_bytes(), from, to)?;
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

    fn check_keywords(&self, schema: &Schema, path: &str) -> Result<(), GrammarError> {
        for (key, value) in schema {
            let key = key.as_str();
            if SUPPORTED.contains(&key) || ANNOTATIONS.contains(&key) {
                continue;
            }
            if matches!(key, "$id" | "id") && !path.is_empty() && path != "#" && value.is_string() {
                return Err(GrammarError::unsupported(format!("`{key}` within a schema"), path));
            }
            let refused = REFUSED.iter().find(|row| row.0 == key);
            let text = value.to_string();
            if refused.is_some_and(|row| text != row.1) {
                return Err(GrammarError::unsupported(format!("`{key}`"), path));
            }
            // Any other keyword is an annotation, as the specification has it.
        }
        Ok(())
    }
}

/// The types that keywords for some types speak of; all, if there is none. A schema that does not
/// name a type also accepts values of the others: those are not written.
fn implied(schema: &Schema) -> Types {
    const ROWS: &[(Types, &[&str])] = &[
        (Types::OBJECT, &["properties", "required", "additionalProperties"]),
        (Types::ARRAY, &["items", "prefixItems", "minItems", "maxItems"]),
        (Types::STRING, &["minLength", "maxLength", "pattern", "format"]),
        (Types::NUMBER, &["minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum"]),
        (Types::NUMBER, &["multipleOf"]),
    ];
    if schema.contains_key("type") {
        return Types::ALL;
    }
    let named = ROWS.iter().filter(|row| row.1.iter().any(|key| schema.contains_key(*key)));
    let types = named.fold(Types::NONE, |all, row| all.or(row.0));
    if types.is_empty() { Types::ALL } else { types }
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
fn list<'v>(value: &'v Value, keyword: &str, path: &str) -> Result<&'v [Value], GrammarError> {
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
