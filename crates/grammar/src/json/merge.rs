//! Two schemas that a value must both obey, as one; and whether no value obeys both.

use serde_json::{Map, Value};

use super::keywords::{SPLITTING, is_keyword, is_note};
use super::schema::{Compiler, Schema};
use super::string::{NOT_PATTERNS, NOT_VALUES, PATTERNS};
use super::types::Types;
use crate::GrammarError;

/// Keywords of which the greater value is the stricter one, and those of which the lesser is.
const GREATER: &[&str] = &["minimum", "exclusiveMinimum", "minItems", "minLength", "minProperties"];
const LESSER: &[&str] = &["maximum", "exclusiveMaximum", "maxItems", "maxLength", "maxProperties"];
impl Compiler<'_> {
    /// What both schemas accept; see [`merge`].
    pub(super) fn merged(
        &mut self,
        a: &Schema,
        b: &Schema,
        path: &str,
    ) -> Result<Schema, GrammarError> {
        // It takes time that no state shows.
        self.nfa.fuel.burn(64 + COPY_STEPS * (2 * num_values(a) + num_values(b)))?;
        merge(a, b, path)
    }

    /// A copy of a schema.
    pub(super) fn copied(&mut self, schema: &Schema) -> Result<Schema, GrammarError> {
        self.nfa.fuel.burn(COPY_STEPS * num_values(schema))?;
        Ok(schema.clone())
    }
}

/// Steps that a copy of a value costs.
pub(super) const COPY_STEPS: usize = 12;

/// Values in a schema.
pub(super) fn num_values(schema: &Schema) -> usize {
    fn of(value: &Value) -> usize {
        match value {
            Value::Object(members) => 1 + num_values(members),
            Value::Array(items) => 1 + items.iter().map(of).sum::<usize>(),
            _ => 1,
        }
    }
    schema.values().map(of).sum()
}

/// What both schemas accept.
///
/// # Errors
/// Where that has no schema of ours; [`GrammarError::Unsatisfiable`], if no value obeys both.
fn merge(a: &Schema, b: &Schema, path: &str) -> Result<Schema, GrammarError> {
    let (a, b) = (&opened(a, b, path)?, &opened(b, a, path)?);
    let prefixed = |schema: &Schema| schema.contains_key("prefixItems");
    let unprefixed_items = |schema: &Schema| schema.contains_key("items") && !prefixed(schema);
    if unprefixed_items(a) && prefixed(b) || unprefixed_items(b) && prefixed(a) {
        // `items` of the one speaks of all items, and would mean fewer beside the other's prefix.
        return Err(GrammarError::unsupported(
            "`items` beside another schema's `prefixItems`",
            path,
        ));
    }
    let mut both = a.clone();
    let mut later = Schema::new();
    // Of two schemas that have one, the second is left for later.
    let splits_twice = |key: &str| SPLITTING.contains(&key) && a.contains_key(key);
    let conditional = ["if", "then", "else"];
    for (key, value) in b {
        let key = key.as_str();
        let own = a.get(key);
        if own == Some(value) && !conditional.contains(&key) || own.is_some() && is_note(key) {
            continue;
        }
        // A condition and what follows from it stay together.
        let apart = conditional.contains(&key) && conditional.iter().any(|k| a.contains_key(*k));
        if apart || splits_twice(key) {
            later.insert(key.into(), value.clone());
            continue;
        }
        let merged = own
            .map_or_else(|| Ok(Some(value.clone())), |own| merge_keyword(key, own, value, path))?;
        match merged {
            Some(merged) => both.insert(key.into(), merged),
            // Both patterns count.
            None => both.insert(PATTERNS.into(), with_pattern(&both, value)),
        };
    }
    if !later.is_empty() {
        let mut all = both.get("allOf").and_then(Value::as_array).cloned().unwrap_or_default();
        all.push(Value::Object(later));
        both.insert("allOf".into(), Value::Array(all));
    }
    // A type that only one of them names meets all keywords: that is what `type` means.
    if a.contains_key("type") && b.contains_key("type") {
        both.insert("type".into(), common_types(a, b, path)?);
    }
    Ok(both)
}

/// The patterns that a string must match beside `pattern`, with one more.
fn with_pattern(schema: &Schema, pattern: &Value) -> Value {
    let mut patterns = schema.get(PATTERNS).and_then(Value::as_array).cloned().unwrap_or_default();
    patterns.push(pattern.clone());
    Value::Array(patterns)
}

/// None: both count.
fn merge_keyword(
    key: &str,
    a: &Value,
    b: &Value,
    path: &str,
) -> Result<Option<Value>, GrammarError> {
    let number = |v: &Value| v.as_f64().unwrap_or(f64::NAN);
    Ok(Some(match (key, a, b) {
        ("type", ..) => a.clone(), // replaced by the caller
        (
            "required" | "allOf" | PATTERNS | NOT_PATTERNS | NOT_VALUES,
            Value::Array(a),
            Value::Array(b),
        ) => {
            let fresh = b.iter().filter(|name| !a.contains(name));
            Value::Array(a.iter().chain(fresh).cloned().collect())
        }
        ("pattern", Value::String(_), Value::String(_)) => return Ok(None),
        ("properties" | "patternProperties", Value::Object(a), Value::Object(b)) => {
            merge_properties(a, b, path)?
        }
        ("items" | "additionalProperties" | "propertyNames", ..) => merge_schemas(a, b, path)?,
        ("enum", Value::Array(a), Value::Array(b)) => {
            Value::Array(a.iter().filter(|value| b.contains(value)).cloned().collect())
        }
        ("const", a, b) if equal(a, b) => a.clone(),
        ("const", ..) => return Err(GrammarError::Unsatisfiable),
        _ if GREATER.contains(&key) && number(a) >= number(b) => a.clone(),
        _ if GREATER.contains(&key) && number(a) < number(b) => b.clone(),
        _ if LESSER.contains(&key) && number(a) <= number(b) => a.clone(),
        _ if LESSER.contains(&key) && number(a) > number(b) => b.clone(),
        // These say nothing about a value.
        _ if !is_keyword(key) => a.clone(),
        _ => {
            let name = format!("two different `{key}` for one value");
            return Err(GrammarError::unsupported(name, path));
        }
    }))
}

/// What two schemas of a part of a value accept.
pub(super) fn merge_schemas(a: &Value, b: &Value, path: &str) -> Result<Value, GrammarError> {
    Ok(match (a, b) {
        (Value::Bool(false), _) | (_, Value::Bool(false)) => Value::Bool(false),
        (Value::Bool(true), other) | (other, Value::Bool(true)) => other.clone(),
        (a, b) if a == b => a.clone(),
        (Value::Object(a), Value::Object(b)) => match merge(a, b, path) {
            Err(GrammarError::Unsatisfiable) => Value::Bool(false),
            merged => Value::Object(merged?),
        },
        _ => return Err(GrammarError::invalid("a schema must be an object", path)),
    })
}

fn merge_properties(
    a: &Map<String, Value>,
    b: &Map<String, Value>,
    path: &str,
) -> Result<Value, GrammarError> {
    let mut both = a.clone();
    for (name, schema) in b {
        let merged = match a.get(name) {
            None => schema.clone(),
            Some(own) => merge_schemas(own, schema, path)?,
        };
        both.insert(name.clone(), merged);
    }
    Ok(Value::Object(both))
}

/// `a` with what its `additionalProperties` says of members that only `b` names.
fn opened(a: &Schema, b: &Schema, path: &str) -> Result<Schema, GrammarError> {
    let mut opened = a.clone();
    let Some(additional) = a.get("additionalProperties").filter(|v| **v != Value::Bool(true))
    else {
        return Ok(opened);
    };
    let own = a.get("properties").and_then(Value::as_object).cloned().unwrap_or_default();
    let others = b.get("properties").and_then(Value::as_object).into_iter().flatten();
    let fresh: Vec<&String> =
        others.map(|(name, _)| name).filter(|name| !own.contains_key(*name)).collect();
    let has_patterns = |schema: &Schema| schema.contains_key("patternProperties");
    let same_patterns = a.get("patternProperties") == b.get("patternProperties");
    if has_patterns(b) && !same_patterns || has_patterns(a) && !fresh.is_empty() {
        return Err(GrammarError::unsupported(
            "`additionalProperties` beside other schemas' members",
            path,
        ));
    }
    if !fresh.is_empty() {
        let fresh = fresh.into_iter().map(|name| (name.clone(), additional.clone()));
        let members = own.into_iter().chain(fresh).collect();
        opened.insert("properties".into(), Value::Object(members));
    }
    Ok(opened)
}

fn common_types(a: &Schema, b: &Schema, path: &str) -> Result<Value, GrammarError> {
    let names = Types::read(a, path)?.and(Types::read(b, path)?).names();
    if names.is_empty() {
        return Err(GrammarError::Unsatisfiable);
    }
    Ok(names.into())
}

/// True only if no value obeys both.
pub(super) fn are_disjoint(a: &Schema, b: &Schema, path: &str) -> Result<bool, GrammarError> {
    if Types::read(a, path)?.and(Types::read(b, path)?).is_empty() {
        return Ok(true);
    }
    let (listed_a, listed_b) = (listed(a), listed(b));
    if let (Some(listed_a), Some(listed_b)) = (&listed_a, &listed_b) {
        return Ok(!listed_a.iter().any(|value| listed_b.iter().any(|other| equal(value, other))));
    }
    for (listed, other) in [(&listed_a, b), (&listed_b, a)] {
        let types = Types::read(other, path)?;
        if listed.as_ref().is_some_and(|values| values.iter().all(|value| !types.admits(value))) {
            return Ok(true);
        }
    }
    Ok(differ_in_a_member(a, b) || excludes_required(a, b) || excludes_required(b, a))
}

/// The values of `const` or `enum`.
fn listed(schema: &Schema) -> Option<Vec<&Value>> {
    match (schema.get("const"), schema.get("enum")) {
        (Some(value), _) => Some(vec![value]),
        (None, Some(Value::Array(values))) => Some(values.iter().collect()),
        _ => None,
    }
}

/// Equal as JSON Schema has it: 1 and 1.0 are one number.
pub(super) fn equal(a: &Value, b: &Value) -> bool {
    match (a, b) {
        (Value::Number(a), Value::Number(b)) => {
            a == b || (a.is_f64() || b.is_f64()) && a.as_f64() == b.as_f64()
        }
        (Value::Array(a), Value::Array(b)) => {
            a.len() == b.len() && a.iter().zip(b).all(|(a, b)| equal(a, b))
        }
        (Value::Object(a), Value::Object(b)) => {
            a.len() == b.len()
                && a.iter()
                    .all(|(name, value)| b.get(name).is_some_and(|other| equal(value, other)))
        }
        _ => a == b,
    }
}

/// Both are objects only, and `a` does not allow a member that `b` requires.
fn excludes_required(a: &Schema, b: &Schema) -> bool {
    let is_object = |schema: &Schema| schema.get("type") == Some(&Value::from("object"));
    let members = a.get("properties").and_then(Value::as_object);
    let allows = |name: &Value| {
        let name = name.as_str().unwrap_or_default();
        let additional = || a.get("additionalProperties") != Some(&Value::Bool(false));
        members
            .and_then(|members| members.get(name))
            .map_or_else(additional, |member| *member != Value::Bool(false))
    };
    let required = b.get("required").and_then(Value::as_array);
    is_object(a)
        && is_object(b)
        && !a.contains_key("patternProperties")
        && required.into_iter().flatten().any(|name| !allows(name))
}

/// Both are objects only, and have a member whose listed values differ.
fn differ_in_a_member(a: &Schema, b: &Schema) -> bool {
    let is_object = |schema: &Schema| schema.get("type") == Some(&Value::from("object"));
    let requires = |schema: &Schema, name: &str| {
        let names = schema.get("required").and_then(Value::as_array);
        names.is_some_and(|names| names.iter().any(|n| n == name))
    };
    let values = |schema: &Schema, name: &str| -> Option<Vec<Value>> {
        let member = schema.get("properties")?.get(name)?.as_object()?;
        listed(member).map(|values| values.into_iter().cloned().collect())
    };
    let named = a.get("properties").and_then(Value::as_object);
    is_object(a)
        && is_object(b)
        && named.into_iter().flat_map(Map::keys).any(|name| {
            let (Some(of_a), Some(of_b)) = (values(a, name), values(b, name)) else { return false };
            requires(a, name)
                && requires(b, name)
                && !of_a.iter().any(|value| of_b.iter().any(|other| equal(value, other)))
        })
}
