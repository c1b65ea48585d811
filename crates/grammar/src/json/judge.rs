//! Whether a schema accepts a given value: for `enum` and `const` beside other keywords.

use std::collections::hash_map::Entry;

use serde_json::{Map, Value};

use super::formats;
use super::keywords::{is_idle, is_keyword, is_of_one_type};
use super::merge::equal;
use super::schema::{Compiler, Schema, count, text};
use super::string::{NOT_PATTERNS, NOT_VALUES, PATTERNS};
use super::texts::at;
use super::types::Types;
use crate::GrammarError;
use crate::chars::Languages;
use crate::classes::Classes;
use crate::regex::Extent;

/// Schemas within schemas.
const MAX_DEPTH: usize = 32;

/// What is found out about a value: the first keyword that is not understood is named.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Verdict {
    Accepted,
    Rejected,
    Unknown(String),
}
use Verdict::{Accepted, Rejected};

impl Verdict {
    fn of(accepted: bool) -> Verdict {
        if accepted { Accepted } else { Rejected }
    }
    fn not_understood(keyword: &str) -> Verdict {
        Verdict::Unknown(format!("`{keyword}` beside `enum` or `const`"))
    }
    fn not(self) -> Verdict {
        match self {
            Accepted => Rejected,
            Rejected => Accepted,
            unknown @ Verdict::Unknown(_) => unknown,
        }
    }
    /// Both must accept: one that rejects decides.
    fn and(self, other: Verdict) -> Verdict {
        match (self, other) {
            (Rejected, _) | (_, Rejected) => Rejected,
            (Accepted, other) => other,
            (unknown, _) => unknown,
        }
    }
    fn or(self, other: Verdict) -> Verdict {
        self.not().and(other.not()).not()
    }
}

impl Compiler<'_> {
    /// Judges a value.
    pub(super) fn judge(
        &mut self,
        schema: &Value,
        value: &Value,
        path: &str,
    ) -> Result<Verdict, GrammarError> {
        Judge { compiler: self, path, depth: 0 }.schema(schema, value)
    }

    /// A pattern has a match in a text.
    pub(super) fn matches(
        &mut self,
        pattern: &str,
        extent: Extent,
        text: &str,
        path: &str,
    ) -> Result<bool, GrammarError> {
        let fuel = &mut self.nfa.fuel;
        fuel.burn(text.len())?;
        let classes = match self.patterns.entry((pattern.to_owned(), extent)) {
            Entry::Occupied(known) => known.into_mut(),
            Entry::Vacant(new) => {
                let mut languages = Languages::default();
                languages.add_pattern(fuel, pattern, extent).map_err(at(path))?;
                new.insert(Classes::of(&languages, fuel)?)
            }
        };
        Ok(!classes.languages_of(text).is_empty())
    }
}

struct Judge<'c, 'n> {
    compiler: &'c mut Compiler<'n>,
    path: &'c str,
    depth: usize,
}

type Judged = Result<Verdict, GrammarError>;

impl Judge<'_, '_> {
    fn schema(&mut self, schema: &Value, value: &Value) -> Judged {
        self.compiler.nfa.fuel.burn(64)?;
        match schema {
            Value::Bool(accepts) => Ok(Verdict::of(*accepts)),
            Value::Object(_) if self.depth == MAX_DEPTH => {
                Ok(Verdict::Unknown("schemas of this depth beside `enum` or `const`".into()))
            }
            Value::Object(schema) => {
                self.depth += 1;
                let mut all = Accepted;
                for key in schema.keys() {
                    all = all.and(self.keyword(key, schema, value)?);
                    if all == Rejected {
                        break;
                    }
                }
                self.depth -= 1;
                Ok(all)
            }
            _ => Err(GrammarError::invalid("a schema must be an object or a boolean", self.path)),
        }
    }

    fn keyword(&mut self, key: &str, schema: &Schema, value: &Value) -> Judged {
        let of_key = &schema[key];
        match value {
            _ if is_of_any_type(key) => self.of_any_type(key, schema, value),
            Value::String(text) => self.of_text(key, schema, text),
            Value::Number(_) => Ok(of_number(key, schema, value)),
            Value::Array(items) => self.of_array(key, schema, items),
            Value::Object(members) => self.of_object(key, schema, members),
            Value::Null | Value::Bool(_) => Ok(Accepted),
        }
        .map(|verdict| match verdict {
            // `nullable: false` and the like say nothing.
            Verdict::Unknown(_) if is_idle(key, of_key) => Accepted,
            verdict => verdict,
        })
    }

    fn of_any_type(&mut self, key: &str, schema: &Schema, value: &Value) -> Judged {
        let of_key = &schema[key];
        let branches = of_key.as_array().map(Vec::as_slice).unwrap_or_default();
        Ok(match key {
            "type" => Verdict::of(Types::read(schema, self.path)?.admits(value)),
            "const" => Verdict::of(equal(of_key, value)),
            "enum" => Verdict::of(branches.iter().any(|listed| equal(listed, value))),
            "allOf" => self.each(branches, value)?.into_iter().fold(Accepted, Verdict::and),
            "anyOf" => self.each(branches, value)?.into_iter().fold(Rejected, Verdict::or),
            "oneOf" => exactly_one(&self.each(branches, value)?),
            "not" => self.schema(of_key, value)?.not(),
            "if" => self.condition(schema, value)?,
            "$ref" => {
                let reference = text(of_key, "$ref", self.path)?;
                let target = self.compiler.resolve(reference, self.path)?;
                self.schema(target, value)?
            }
            _ => Verdict::not_understood(key),
        })
    }

    fn each(&mut self, schemas: &[Value], value: &Value) -> Result<Vec<Verdict>, GrammarError> {
        schemas.iter().map(|schema| self.schema(schema, value)).collect()
    }

    fn condition(&mut self, schema: &Schema, value: &Value) -> Judged {
        let holds = self.schema(&schema["if"], value)?;
        let mut branch =
            |key: &str| schema.get(key).map_or(Ok(Accepted), |schema| self.schema(schema, value));
        let (then, otherwise) = (branch("then")?, branch("else")?);
        Ok(holds.clone().not().or(then).and(holds.or(otherwise)))
    }

    fn of_text(&mut self, key: &str, schema: &Schema, value: &str) -> Judged {
        let of_key = &schema[key];
        let path = self.path;
        Ok(match key {
            "minLength" | "maxLength" => counted(key, schema, value.chars().count(), path)?,
            "pattern" => self.matches(text(of_key, key, path)?, value)?,
            PATTERNS => self.match_each(of_key, value, Verdict::and)?,
            NOT_PATTERNS => self.match_each(of_key, value, Verdict::or)?.not(),
            NOT_VALUES => {
                let listed = of_key.as_array().into_iter().flatten();
                Verdict::of(!listed.into_iter().any(|listed| listed == value))
            }
            // What our pattern of a format leaves out may be of that format.
            "format" => match formats::pattern(text(of_key, key, path)?) {
                None => Accepted,
                Some(pattern) => {
                    let whole = Extent::Whole;
                    if self.compiler.matches(&pattern, whole, value, path)? {
                        Accepted
                    } else {
                        Verdict::not_understood(key)
                    }
                }
            },
            _ => of_other_types(key),
        })
    }

    fn matches(&mut self, pattern: &str, text: &str) -> Judged {
        self.compiler.matches(pattern, Extent::Part, text, self.path).map(Verdict::of)
    }

    fn match_each(
        &mut self,
        patterns: &Value,
        text: &str,
        join: fn(Verdict, Verdict) -> Verdict,
    ) -> Judged {
        let start = join(Accepted, Rejected).not();
        let patterns = patterns.as_array().into_iter().flatten().filter_map(Value::as_str);
        let mut all = start;
        for pattern in patterns {
            all = join(all, self.matches(pattern, text)?);
        }
        Ok(all)
    }

    fn of_array(&mut self, key: &str, schema: &Schema, items: &[Value]) -> Judged {
        let of_key = &schema[key];
        let prefix = schema.get("prefixItems").and_then(Value::as_array);
        Ok(match key {
            "minItems" | "maxItems" => counted(key, schema, items.len(), self.path)?,
            "uniqueItems" if *of_key == Value::Bool(true) => {
                let differ = |(i, a): (usize, &Value)| !items[..i].iter().any(|b| equal(a, b));
                Verdict::of(items.iter().enumerate().all(differ))
            }
            "items" if !of_key.is_array() => {
                let items = items.get(prefix.map_or(0, Vec::len)..).unwrap_or_default();
                self.all_obey(of_key, items)?
            }
            "prefixItems" if !self.compiler.is_older_than_prefix_items() => {
                let mut all = Accepted;
                for (schema, item) in prefix.into_iter().flatten().zip(items) {
                    all = all.and(self.schema(schema, item)?);
                }
                all
            }
            _ => of_other_types(key),
        })
    }

    fn all_obey<'v>(
        &mut self,
        schema: &Value,
        values: impl IntoIterator<Item = &'v Value>,
    ) -> Judged {
        values.into_iter().try_fold(Accepted, |all, value| Ok(all.and(self.schema(schema, value)?)))
    }

    fn of_object(&mut self, key: &str, schema: &Schema, members: &Map<String, Value>) -> Judged {
        let of_key = &schema[key];
        Ok(match key {
            "required" => {
                let mut names = of_key.as_array().into_iter().flatten().filter_map(Value::as_str);
                Verdict::of(names.all(|name| members.contains_key(name)))
            }
            "minProperties" | "maxProperties" => counted(key, schema, members.len(), self.path)?,
            "properties" => {
                let mut all = Accepted;
                for (name, schema) in of_key.as_object().into_iter().flatten() {
                    if let Some(value) = members.get(name) {
                        all = all.and(self.schema(schema, value)?);
                    }
                }
                all
            }
            "patternProperties" => {
                let mut all = Accepted;
                for (pattern, schema) in of_key.as_object().into_iter().flatten() {
                    for (name, value) in members {
                        if self.matches(pattern, name)? == Accepted {
                            all = all.and(self.schema(schema, value)?);
                        }
                    }
                }
                all
            }
            "additionalProperties" => {
                let mut others = Vec::new();
                for (name, value) in members {
                    if !self.is_named(name, schema)? {
                        others.push(value);
                    }
                }
                self.all_obey(of_key, others)?
            }
            "propertyNames" => {
                let names: Vec<Value> = members.keys().map(|name| name.as_str().into()).collect();
                self.all_obey(of_key, &names)?
            }
            _ => of_other_types(key),
        })
    }

    /// `properties` or `patternProperties` speak of a member.
    fn is_named(&mut self, name: &str, schema: &Schema) -> Result<bool, GrammarError> {
        let members = |key: &str| schema.get(key).and_then(Value::as_object);
        if members("properties").is_some_and(|members| members.contains_key(name)) {
            return Ok(true);
        }
        for pattern in members("patternProperties").into_iter().flat_map(Map::keys) {
            if self.matches(pattern, name)? == Accepted {
                return Ok(true);
            }
        }
        Ok(false)
    }
}

/// A keyword that may reject values of every type.
fn is_of_any_type(key: &str) -> bool {
    ["type", "const", "enum", "allOf", "anyOf", "oneOf", "not", "if", "$ref", "nullable"]
        .contains(&key)
        || key.starts_with('$') && key.ends_with("Ref")
        || ["disallow", "extends", "unevaluatedItems", "unevaluatedProperties"].contains(&key)
}

/// A keyword about values of other types says nothing; one that is not understood may say more.
fn of_other_types(key: &str) -> Verdict {
    let is_of_condition = key == "then" || key == "else";
    if is_of_one_type(key) || is_of_condition || !is_keyword(key) {
        Accepted
    } else {
        Verdict::not_understood(key)
    }
}

fn counted(key: &str, schema: &Schema, counted: usize, path: &str) -> Judged {
    let limit = count(schema, key, path)?.unwrap_or_default();
    Ok(Verdict::of(if key.starts_with("min") { counted >= limit } else { counted <= limit }))
}

fn of_number(key: &str, schema: &Schema, value: &Value) -> Verdict {
    let number = |value: &Value| value.as_f64().unwrap_or(f64::NAN);
    let limit = &schema[key];
    let (a, b) = (number(value), number(limit));
    match key {
        "minimum" | "maximum" | "exclusiveMinimum" | "exclusiveMaximum" if b.is_nan() => {
            Verdict::not_understood(key)
        }
        "minimum" => Verdict::of(a >= b),
        "maximum" => Verdict::of(a <= b),
        "exclusiveMinimum" => Verdict::of(a > b),
        "exclusiveMaximum" => Verdict::of(a < b),
        "multipleOf" => match (value.as_i64(), limit.as_i64()) {
            (Some(value), Some(unit)) if unit > 0 => Verdict::of(value % unit == 0),
            _ => Verdict::not_understood(key),
        },
        _ => of_other_types(key),
    }
}

fn exactly_one(branches: &[Verdict]) -> Verdict {
    let accepted = branches.iter().filter(|verdict| **verdict == Accepted).count();
    let unknown = branches.iter().find(|verdict| matches!(verdict, Verdict::Unknown(_)));
    match unknown {
        _ if accepted > 1 => Rejected,
        Some(unknown) => unknown.clone(),
        None => Verdict::of(accepted == 1),
    }
}
