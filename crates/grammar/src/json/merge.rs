//! Two schemas that a value must both obey, as one; and whether no value obeys both.

use serde_json::{Map, Value};

use super::schema::Schema;
use super::types::Types;
use crate::GrammarError;

/// Keywords of which the greater value is the stricter one, and those of which the lesser is.
const GREATER: &[&str] = &["minimum", "exclusiveMinimum", "minItems", "minLength"];
const LESSER: &[&str] = &["maximum", "exclusiveMaximum", "maxItems", "maxLength"];
/// Keywords that only say something about the schema.
const NOTES: &[&str] = &[
    "title",
    "description",
    "default",
    "examples",
    "example",
    "$comment",
    "$defs",
    "definitions",
    "$schema",
    "$id",
    "id",
    "deprecated",
    "readOnly",
    "writeOnly",
];

/// What both schemas accept.
///
/// # Errors
/// Where that has no schema of ours.
pub(super) fn merge(a: &Schema, b: &Schema, path: &str) -> Result<Schema, GrammarError> {
    check_closed(a, b, path)?;
    check_closed(b, a, path)?;
    if a.contains_key("items") != b.contains_key("items")
        && a.contains_key("prefixItems") != b.contains_key("prefixItems")
        && a.contains_key("items") != a.contains_key("prefixItems")
    {
        // `items` of the one would mean fewer items beside `prefixItems` of the other.
        return Err(GrammarError::unsupported(
            "`items` beside another schema's `prefixItems`",
            path,
        ));
    }
    let mut both = a.clone();
    for (key, value) in b {
        let Some(own) = a.get(key) else {
            both.insert(key.clone(), value.clone());
            continue;
        };
        if own == value || NOTES.contains(&key.as_str()) {
            continue;
        }
        let merged = merge_keyword(key, own, value, path)?;
        both.insert(key.clone(), merged);
    }
    // A type that only one of them names meets all keywords: that is what `type` means.
    if a.contains_key("type") && b.contains_key("type") {
        both.insert("type".into(), common_types(a, b, path)?);
    }
    Ok(both)
}

fn merge_keyword(key: &str, a: &Value, b: &Value, path: &str) -> Result<Value, GrammarError> {
    let number = |v: &Value| v.as_f64().unwrap_or(f64::NAN);
    match (key, a, b) {
        ("type", ..) => Ok(a.clone()), // replaced by the caller
        ("required", Value::Array(a), Value::Array(b)) => {
            let fresh = b.iter().filter(|name| !a.contains(name));
            Ok(Value::Array(a.iter().chain(fresh).cloned().collect()))
        }
        ("properties", Value::Object(a), Value::Object(b)) => merge_properties(a, b, path),
        ("enum", Value::Array(a), Value::Array(b)) => {
            Ok(Value::Array(a.iter().filter(|value| b.contains(value)).cloned().collect()))
        }
        _ if GREATER.contains(&key) && number(a) >= number(b) => Ok(a.clone()),
        _ if GREATER.contains(&key) && number(a) < number(b) => Ok(b.clone()),
        _ if LESSER.contains(&key) && number(a) <= number(b) => Ok(a.clone()),
        _ if LESSER.contains(&key) && number(a) > number(b) => Ok(b.clone()),
        _ => Err(GrammarError::unsupported(format!("two different `{key}` for one value"), path)),
    }
}

fn merge_properties(
    a: &Map<String, Value>,
    b: &Map<String, Value>,
    path: &str,
) -> Result<Value, GrammarError> {
    let mut both = a.clone();
    for (name, schema) in b {
        let merged = match (a.get(name), schema) {
            (None | Some(Value::Bool(true)), _) => schema.clone(),
            (Some(own), Value::Bool(true)) => own.clone(),
            (Some(own), _) if own == schema => own.clone(),
            (Some(Value::Bool(false)), _) | (_, Value::Bool(false)) => Value::Bool(false),
            (Some(Value::Object(own)), Value::Object(schema)) => {
                Value::Object(merge(own, schema, path)?)
            }
            _ => return Err(GrammarError::invalid("a schema must be an object", path)),
        };
        both.insert(name.clone(), merged);
    }
    Ok(Value::Object(both))
}

/// What one schema says of members that it does not name must not meet members of the other.
fn check_closed(a: &Schema, b: &Schema, path: &str) -> Result<(), GrammarError> {
    if a.get("additionalProperties").is_none_or(|v| *v == Value::Bool(true)) {
        return Ok(());
    }
    let names = |schema: &Schema| -> Vec<String> {
        let named = schema.get("properties").and_then(Value::as_object);
        named.into_iter().flat_map(Map::keys).cloned().collect()
    };
    let own = names(a);
    if names(b).iter().all(|name| own.contains(name)) {
        return Ok(());
    }
    Err(GrammarError::unsupported("`additionalProperties` beside other schemas' members", path))
}

fn common_types(a: &Schema, b: &Schema, path: &str) -> Result<Value, GrammarError> {
    let both = Types::read(a, path)?.and(Types::read(b, path)?);
    let names = ["null", "boolean", "number", "integer", "string", "array", "object"];
    let mut kept: Vec<Value> = Vec::new();
    let mut left = both;
    for name in names {
        let one =
            Types::read(&[("type".to_owned(), Value::from(name))].into_iter().collect(), path)?;
        if !one.is_empty() && left.has(one) {
            kept.push(name.into());
            left = left.without(one);
        }
    }
    if kept.is_empty() {
        return Err(GrammarError::Unsatisfiable);
    }
    Ok(Value::Array(kept))
}

/// True only if no value obeys both.
pub(super) fn are_disjoint(a: &Schema, b: &Schema, path: &str) -> Result<bool, GrammarError> {
    if Types::read(a, path)?.and(Types::read(b, path)?).is_empty() {
        return Ok(true);
    }
    let (listed_a, listed_b) = (listed(a), listed(b));
    if let (Some(listed_a), Some(listed_b)) = (&listed_a, &listed_b) {
        return Ok(!listed_a.iter().any(|value| listed_b.iter().any(|other| same(value, other))));
    }
    for (listed, other) in [(&listed_a, b), (&listed_b, a)] {
        let types = Types::read(other, path)?;
        if listed.as_ref().is_some_and(|values| values.iter().all(|value| !types.admits(value))) {
            return Ok(true);
        }
    }
    Ok(differ_in_a_member(a, b))
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
fn same(a: &Value, b: &Value) -> bool {
    match (a, b) {
        (Value::Number(a), Value::Number(b)) => a == b || a.as_f64() == b.as_f64(),
        (Value::Array(_) | Value::Object(_), Value::Array(_) | Value::Object(_)) => true,
        _ => a == b,
    }
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
                && !of_a.iter().any(|value| of_b.iter().any(|other| same(value, other)))
        })
}
