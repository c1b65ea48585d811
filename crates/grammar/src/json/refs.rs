//! References within a document.

use std::collections::HashSet;

use serde_json::Value;

use super::schema::{Compiler, MAX_DEPTH, Schema, text};
use crate::GrammarError;
use crate::nfa::RuleId;

/// `$ref` texts that an `$id` above them may give another meaning.
#[derive(Default)]
pub(super) struct Rebased(HashSet<String>);

impl Rebased {
    pub(super) fn of(root: &Value) -> Rebased {
        let mut rebased = Rebased::default();
        let parts = root.as_object().into_iter().flat_map(|root| root.values());
        parts.for_each(|part| rebased.add(part, false));
        rebased
    }

    fn add(&mut self, value: &Value, beneath: bool) {
        match value {
            Value::Array(items) => items.iter().for_each(|item| self.add(item, beneath)),
            Value::Object(members) => {
                // A fragment alone is an anchor of an older draft.
                let names_base = |key: &str| {
                    let id = members.get(key).and_then(Value::as_str);
                    id.is_some_and(|id| !id.starts_with('#'))
                };
                let beneath = beneath || names_base("$id") || names_base("id");
                if let Some(reference) = members.get("$ref").and_then(Value::as_str)
                    && beneath
                {
                    self.0.insert(reference.to_owned());
                }
                members.values().for_each(|member| self.add(member, beneath));
            }
            _ => {}
        }
    }
}

impl<'a> Compiler<'a> {
    /// The rule of what `$ref` names.
    pub(super) fn referred(&mut self, reference: &str, path: &str) -> Result<RuleId, GrammarError> {
        let schema = self.resolve(reference, path)?;
        self.shared(reference, |c, start, end| c.schema(schema, start, end, reference))
    }

    /// What `$ref` names: a place in this document.
    pub(super) fn resolve(&self, reference: &str, path: &str) -> Result<&'a Value, GrammarError> {
        if self.rebased.0.contains(reference) {
            return Err(GrammarError::unsupported("`$ref` beneath an `$id`", path));
        }
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

    /// A schema whose `$ref` has neighbours: both count.
    pub(super) fn without_ref(
        &mut self,
        schema: &Schema,
        path: &str,
    ) -> Result<Schema, GrammarError> {
        let mut rest = self.copied(schema)?;
        let reference = rest.remove("$ref").unwrap_or_default();
        let target = self.resolve(text(&reference, "$ref", path)?, path)?;
        match target {
            Value::Bool(true) => Ok(rest),
            Value::Object(target) => self.merged(&rest, target, path),
            _ => Err(GrammarError::unsupported("`$ref` to `false`", path)),
        }
    }

    /// The schema itself, or what it only refers to.
    pub(super) fn followed(&mut self, schema: &Schema, path: &str) -> Result<Schema, GrammarError> {
        let mut schema = self.copied(schema)?;
        for _ in 0..MAX_DEPTH {
            if !schema.contains_key("$ref") {
                return Ok(schema);
            }
            schema = self.without_ref(&schema, path)?;
        }
        Err(GrammarError::invalid("`$ref` refers to itself", path))
    }
}
