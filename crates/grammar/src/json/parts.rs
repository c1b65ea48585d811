//! Schemas of parts of a value, as rules that are shared by what they say: schemas repeat
//! themselves, and alternatives of one object repeat its members.

use std::fmt::Write;

use serde_json::Value;

use super::keywords::{SPLITTING, is_note};
use super::schema::{Compiler, SCHEMA, Schema};
use super::types::Types;
use crate::GrammarError;
use crate::nfa::{RuleId, State};

/// Listed values that are not worth a rule.
const FEW: usize = 4;

impl Compiler<'_> {
    /// The values that a member's or an item's schema accepts.
    pub(super) fn part(
        &mut self,
        schema: &Value,
        from: State,
        to: State,
        path: &str,
    ) -> Result<(), GrammarError> {
        if is_small(schema) {
            return self.schema(schema, from, to, path);
        }
        let rule = self.part_rule(schema, path)?;
        self.nfa.call(from, rule, to)
    }

    /// The same, as a rule.
    pub(super) fn part_rule(&mut self, schema: &Value, path: &str) -> Result<RuleId, GrammarError> {
        if *schema == Value::Bool(true) {
            return self.value_rule();
        }
        let mut name = String::from(SCHEMA);
        write_schema(schema, &mut name);
        self.nfa.fuel.burn(16 + name.len() / 2)?;
        self.shared(&name, |c, start, end| c.schema(schema, start, end, path))
    }
}

/// As short inline as a call would be.
fn is_small(schema: &Value) -> bool {
    let Value::Object(schema) = schema else { return true };
    if let Some(values) = schema.get("enum").and_then(Value::as_array) {
        return values.len() <= FEW && values.iter().all(|value| !value.is_object());
    }
    let is_reference = schema.contains_key("$ref");
    let larger = Types::ARRAY.or(Types::OBJECT);
    let is_plain = Types::read(schema, "").is_ok_and(|types| types.and(larger).is_empty())
        && schema.keys().all(|key| !SPLITTING.contains(&key.as_str()));
    is_reference || is_plain
}

/// Writes a schema without what only says something about it.
fn write_schema(schema: &Value, text: &mut String) {
    let Value::Object(members) = schema else { return write_value(schema, text) };
    text.push('{');
    for (key, value) in members.iter().filter(|(key, _)| !is_note(key)) {
        write_value(&Value::from(key.as_str()), text);
        text.push(':');
        match (key.as_str(), value) {
            ("properties" | "patternProperties" | "dependentSchemas", Value::Object(schemas)) => {
                write_schemas(schemas, text);
            }
            ("allOf" | "anyOf" | "oneOf" | "prefixItems", Value::Array(schemas)) => {
                schemas.iter().for_each(|schema| {
                    write_schema(schema, text);
                    text.push(',');
                });
            }
            (
                "items" | "additionalProperties" | "propertyNames" | "not" | "if" | "then" | "else",
                schema,
            ) => write_schema(schema, text),
            (_, value) => write_value(value, text),
        }
        text.push(';');
    }
    text.push('}');
}

fn write_schemas(schemas: &Schema, text: &mut String) {
    for (name, schema) in schemas {
        write_value(&Value::from(name.as_str()), text);
        text.push(':');
        write_schema(schema, text);
    }
}

fn write_value(value: &Value, text: &mut String) {
    // Writing to a string does not fail.
    let _ = write!(text, "{value}");
}
