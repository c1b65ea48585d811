//! The keywords of JSON Schema: which are understood, and which types they speak of.

use serde_json::Value;

use super::formats;
use super::schema::Schema;
use super::string::{NOT_PATTERNS, NOT_VALUES, PATTERNS};
use super::types::Types;
use crate::GrammarError;

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
    // Says something beside a list of `items` only, and that is refused.
    "additionalItems",
    "$vocabulary",
];
/// Keywords that may say something about values of every type, and make no alternatives.
const OF_ANY_TYPE: &[&str] = &["type", "enum", "const", "allOf"];
/// Keywords that split a schema into alternatives, or name another.
pub(super) const SPLITTING: &[&str] = &[
    "$ref",
    "anyOf",
    "oneOf",
    "not",
    "if",
    "then",
    "else",
    "dependencies",
    "dependentRequired",
    "dependentSchemas",
];
/// Keywords that mean something and are not understood, unless they have this value.
const REFUSED: &[(&str, &str)] = &[
    ("unevaluatedProperties", "true"),
    ("unevaluatedItems", "true"),
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
const OBJECT_KEYWORDS: &[&str] = &[
    "properties",
    "required",
    "additionalProperties",
    "patternProperties",
    "propertyNames",
    "minProperties",
    "maxProperties",
];
/// Keywords that speak of values of one type.
const KEYWORDS_OF_TYPES: &[(Types, &[&str])] = &[
    (Types::OBJECT, OBJECT_KEYWORDS),
    (Types::ARRAY, &["items", "prefixItems", "minItems", "maxItems"]),
    (
        Types::STRING,
        &["minLength", "maxLength", "pattern", "format", PATTERNS, NOT_PATTERNS, NOT_VALUES],
    ),
    (Types::NUMBER, &["minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf"]),
];

/// All keywords are understood, or say nothing.
///
/// # Errors
/// Names the one that is not.
pub(super) fn check(schema: &Schema, path: &str) -> Result<(), GrammarError> {
    for (key, value) in schema {
        let key = key.as_str();
        let refused = REFUSED.iter().any(|row| row.0 == key);
        if refused && !is_idle(key, value) {
            return Err(GrammarError::unsupported(format!("`{key}`"), path));
        }
        // Any other keyword is an annotation, as the specification has it.
    }
    Ok(())
}

/// A keyword that is not understood has a value with which it says nothing.
pub(super) fn is_idle(key: &str, value: &Value) -> bool {
    let text = value.to_string();
    REFUSED.contains(&(key, text.as_str()))
}

/// A keyword that says something about values.
pub(super) fn is_keyword(key: &str) -> bool {
    is_supported(key) || REFUSED.iter().any(|row| row.0 == key)
}
/// A keyword that is understood.
pub(super) fn is_supported(key: &str) -> bool {
    OF_ANY_TYPE.contains(&key) || SPLITTING.contains(&key) || is_of_one_type(key)
}
/// A keyword about values of one type.
pub(super) fn is_of_one_type(key: &str) -> bool {
    KEYWORDS_OF_TYPES.iter().any(|row| row.1.contains(&key))
}
/// A keyword that only says something about the schema.
pub(super) fn is_note(key: &str) -> bool {
    ANNOTATIONS.contains(&key) || key == "$id" || key == "id"
}

/// The types that keywords for some types speak of; all, if there is none. A schema that does not
/// name a type also accepts values of the others: those are not written.
pub(super) fn implied(schema: &Schema) -> Types {
    if schema.contains_key("type") {
        return Types::ALL;
    }
    let speaks = |key: &&str| -> bool {
        schema.get(*key).is_some_and(|value| *key != "format" || formats::is_known(value))
    };
    let named = KEYWORDS_OF_TYPES.iter().filter(|row| row.1.iter().any(speaks));
    let types = named.fold(Types::NONE, |all, row| all.or(row.0));
    if types.is_empty() { Types::ALL } else { types }
}
