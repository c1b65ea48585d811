//! What a schema does not accept, as schemas: for `not`, `if`, and `oneOf` whose branches overlap.

use serde_json::{Value, json};

use super::keywords::{is_idle, is_keyword};
use super::merge::num_values;
use super::schema::{Compiler, Schema};
use super::string::{NOT_PATTERNS, NOT_VALUES};
use super::types::Types;
use crate::GrammarError;

/// Schemas of which a value must obey one.
type Alternatives = Vec<Schema>;

/// Pairs of alternatives that are tried: those beyond are left out.
const MAX_PAIRS: usize = 256;
/// Alternatives of one negation: those beyond are left out.
const MAX_ALTERNATIVES: usize = 64;

/// A part of the values that a schema does not accept.
#[derive(Clone)]
struct Negation {
    alternatives: Alternatives,
    /// It is all of them.
    whole: bool,
}

impl Negation {
    fn of(alternatives: Alternatives) -> Negation {
        Negation { alternatives, whole: true }
    }
    /// Values that have no schema of ours are left out.
    fn left_out() -> Negation {
        Negation { alternatives: Vec::new(), whole: false }
    }
    fn one(schema: Value) -> Negation {
        match schema {
            Value::Object(schema) => Negation::of(vec![schema]),
            _ => Negation::left_out(),
        }
    }
    /// Leaves alternatives out that are too many, the longest ones.
    fn cut(&mut self) {
        self.whole &= self.alternatives.len() <= MAX_ALTERNATIVES;
        self.alternatives.sort_by_cached_key(num_values);
        self.alternatives.truncate(MAX_ALTERNATIVES);
    }
    /// Without alternatives of other types than `beside` admits.
    fn of_types(mut self, beside: &Schema, path: &str) -> Result<Negation, GrammarError> {
        let types = Types::read(beside, path)?;
        let mut kept = Vec::with_capacity(self.alternatives.len());
        for schema in self.alternatives {
            if !Types::read(&schema, path)?.and(types).is_empty() {
                kept.push(schema);
            }
        }
        self.alternatives = kept;
        Ok(self)
    }
    /// An object with a member of one of these values.
    fn in_member(self, name: &str) -> Negation {
        let alternatives = self.alternatives.into_iter().filter_map(|schema| {
            let members = json!({name: schema});
            json!({"type": "object", "required": [name], "properties": members})
                .as_object()
                .cloned()
        });
        Negation { alternatives: alternatives.collect(), whole: self.whole }
    }
    fn or(mut self, other: Negation) -> Negation {
        self.alternatives.extend(other.alternatives);
        Negation { whole: self.whole && other.whole, ..self }
    }
}

impl Compiler<'_> {
    /// Values that `schema` does not accept: some of them, where not all have a schema. They must
    /// also obey `beside`. None, where none of them has one: that is remembered, because it may
    /// be why no answer is left.
    pub(super) fn negated(
        &mut self,
        schema: &Value,
        beside: &Schema,
        path: &str,
    ) -> Result<Alternatives, GrammarError> {
        let negation = Negate { compiler: self, path, depth: 0 }.schema(schema, beside)?;
        if negation.alternatives.is_empty() && !negation.whole {
            let reason = GrammarError::unsupported("the opposite of this schema", path);
            self.nfa.left_out.get_or_insert(reason);
        }
        Ok(negation.alternatives)
    }
}

struct Negate<'c, 'n> {
    compiler: &'c mut Compiler<'n>,
    path: &'c str,
    depth: usize,
}

type Negated = Result<Negation, GrammarError>;

impl Negate<'_, '_> {
    fn schema(&mut self, schema: &Value, beside: &Schema) -> Negated {
        const MAX_DEPTH: usize = 16;
        self.compiler.nfa.fuel.burn(64)?;
        let schema = match schema {
            Value::Bool(true) => return Ok(Negation::of(Vec::new())),
            Value::Bool(false) => return Ok(Negation::of(vec![Schema::new()])),
            Value::Object(schema) if self.depth < MAX_DEPTH => schema,
            Value::Object(_) => return Ok(Negation::left_out()),
            _ => return Err(GrammarError::invalid("a schema must be an object", self.path)),
        };
        self.depth += 1;
        let mut all = Negation::of(Vec::new());
        // Old drafts ignore the neighbours of `$ref`, so they reject nothing here.
        if let Some(reference) = schema.get("$ref") {
            all = self.keyword("$ref", reference, schema, beside)?;
            all.whole = false;
        } else {
            for (key, value) in schema {
                let opposite = self.keyword(key, value, schema, beside)?;
                all = all.or(opposite.of_types(beside, self.path)?);
                all.cut();
            }
        }
        self.depth -= 1;
        Ok(all)
    }

    /// Values that do not obey one keyword.
    fn keyword(&mut self, key: &str, value: &Value, schema: &Schema, beside: &Schema) -> Negated {
        let list = value.as_array().map(Vec::as_slice).unwrap_or_default();
        Ok(match key {
            "type" => Negation::one(types_schema(other_types(Types::read(schema, self.path)?))),
            "const" => other_values(std::slice::from_ref(value)),
            "enum" => other_values(list),
            "required" => {
                let names = list.iter().filter_map(Value::as_str);
                let without = names.map(without_member).filter_map(|s| s.as_object().cloned());
                Negation::of(without.collect())
            }
            "properties" => self.members(value)?,
            "additionalProperties" => self.others(value, schema, beside)?,
            "allOf" => list.iter().try_fold(Negation::of(Vec::new()), |all, branch| {
                Ok::<_, GrammarError>(all.or(self.schema(branch, beside)?))
            })?,
            "anyOf" => self.none_of(list, beside)?,
            // Values that obey several branches are left out.
            "oneOf" => Negation { whole: false, ..self.none_of(list, beside)? },
            "not" => match value {
                Value::Bool(true) => Negation::of(vec![Schema::new()]),
                Value::Bool(false) => Negation::of(Vec::new()),
                other => Negation::one(other.clone()),
            },
            "$ref" => match value.as_str() {
                Some(reference) => {
                    let target = self.compiler.resolve(reference, self.path)?;
                    self.schema(target, beside)?
                }
                None => Negation::left_out(),
            },
            // It says of `type` that it means more.
            "nullable" => {
                return Err(GrammarError::unsupported("`nullable` in a negation", self.path));
            }
            "pattern" => Negation::one(json!({"type": "string", NOT_PATTERNS: [value]})),
            _ => bound_negation(key, value),
        })
    }

    /// An object with one of these members that does not obey its schema.
    fn members(&mut self, members: &Value) -> Negated {
        let mut all = Negation::of(Vec::new());
        for (name, schema) in members.as_object().into_iter().flatten() {
            let opposite = self.schema(schema, &Schema::new())?;
            all = all.or(opposite.in_member(name));
        }
        Ok(all)
    }

    /// An object with a member that `properties` does not name, and that does not obey
    /// `additionalProperties`: of members that the schema beside names.
    fn others(&mut self, additional: &Value, schema: &Schema, beside: &Schema) -> Negated {
        let members =
            |schema: &Schema| schema.get("properties").and_then(Value::as_object).cloned();
        let named = members(schema).unwrap_or_default();
        if schema.contains_key("patternProperties") || *additional == Value::Bool(true) {
            let whole = *additional == Value::Bool(true);
            return Ok(Negation { alternatives: Vec::new(), whole });
        }
        let opposite = self.schema(additional, &Schema::new())?;
        let mut all = Negation::of(Vec::new());
        for name in members(beside).unwrap_or_default().keys() {
            if !named.contains_key(name) {
                all = all.or(opposite.clone().in_member(name));
            }
        }
        all.whole &= beside.get("additionalProperties") == Some(&Value::Bool(false))
            && !beside.contains_key("patternProperties");
        Ok(all)
    }

    /// Values that obey none of the branches.
    fn none_of(&mut self, branches: &[Value], beside: &Schema) -> Negated {
        let start = beside.get("type").map(|types| ("type".to_owned(), types.clone()));
        let mut all = Negation::of(vec![start.into_iter().collect()]);
        for branch in branches {
            let opposite = self.schema(branch, beside)?;
            let mut both =
                Negation { alternatives: Vec::new(), whole: all.whole && opposite.whole };
            let pairs = pairs(&all.alternatives, &opposite.alternatives);
            both.whole &= pairs.len() <= MAX_PAIRS;
            for (a, b) in pairs.into_iter().take(MAX_PAIRS) {
                match self.compiler.merged(a, b, self.path) {
                    Ok(merged) => both.alternatives.push(merged),
                    Err(GrammarError::Unsatisfiable) => {}
                    Err(error @ GrammarError::TooLarge { .. }) => return Err(error),
                    Err(_) => both.whole = false,
                }
            }
            both.cut();
            all = both;
        }
        Ok(all)
    }
}

/// All pairs, those of the first few of both lists first.
fn pairs<'a, T>(a: &'a [T], b: &'a [T]) -> Vec<(&'a T, &'a T)> {
    let mut pairs: Vec<_> = (0..a.len()).flat_map(|i| (0..b.len()).map(move |j| (i, j))).collect();
    pairs.sort_by_key(|(i, j)| i + j);
    pairs.into_iter().map(|(i, j)| (&a[i], &b[j])).collect()
}

/// Any object without this member.
fn without_member(name: &str) -> Value {
    json!({"type": "object", "properties": {name: false}})
}

/// All types but these. Numbers that are no integers are no type of their own: they are left out.
fn other_types(types: Types) -> Types {
    let others = Types::ALL.without(types);
    if others.has(Types::NUMBER) { others } else { others.without(Types::NUMBER) }
}

fn types_schema(types: Types) -> Value {
    if types.is_empty() { Value::Bool(false) } else { json!({"type": types.names()}) }
}

/// Values that are none of these. Of numbers, arrays and objects those with a value among these
/// are left out.
fn other_values(values: &[Value]) -> Negation {
    let types = values.iter().fold(Types::NONE, |all, value| {
        all.or(match value {
            Value::Null => Types::NULL,
            Value::Bool(_) => Types::BOOLEAN,
            Value::Number(_) => Types::NUMBER,
            Value::String(_) => Types::STRING,
            Value::Array(_) => Types::ARRAY,
            Value::Object(_) => Types::OBJECT,
        })
    });
    let mut all = Negation::one(types_schema(other_types(types)));
    all.whole = !types.has(Types::NUMBER) && !types.has(Types::ARRAY) && !types.has(Types::OBJECT);
    if types.has(Types::STRING) {
        let texts: Vec<&Value> = values.iter().filter(|value| value.is_string()).collect();
        all = all.or(Negation::one(json!({"type": "string", NOT_VALUES: texts})));
    }
    let left: Vec<bool> =
        [false, true].into_iter().filter(|flag| !values.contains(&Value::Bool(*flag))).collect();
    if types.has(Types::BOOLEAN) && !left.is_empty() {
        all = all.or(Negation::one(json!({"enum": left})));
    }
    all
}

/// Values that do not obey a bound; of keywords that say nothing about values, none.
fn bound_negation(key: &str, value: &Value) -> Negation {
    const COUNTS: &[(&str, &str, &str)] = &[
        ("minLength", "maxLength", "string"),
        ("minItems", "maxItems", "array"),
        ("minProperties", "maxProperties", "object"),
    ];
    const NUMBERS: &[(&str, &str)] = &[
        ("minimum", "exclusiveMaximum"),
        ("exclusiveMinimum", "maximum"),
        ("maximum", "exclusiveMinimum"),
        ("exclusiveMaximum", "minimum"),
    ];
    for &(least, most, name) in COUNTS {
        match value.as_u64() {
            Some(0) if key == least => return Negation::of(Vec::new()),
            Some(count) if key == least => {
                return Negation::one(json!({"type": name, most: count - 1}));
            }
            Some(count) if key == most => {
                return Negation::one(json!({"type": name, least: count.saturating_add(1)}));
            }
            _ if key == least || key == most => return Negation::left_out(),
            _ => {}
        }
    }
    for &(own, opposite) in NUMBERS {
        if key == own {
            return if value.is_number() {
                Negation::one(json!({"type": "number", opposite: value}))
            } else {
                Negation::left_out()
            };
        }
    }
    // `if` answers for these.
    let says_nothing = ["then", "else"].contains(&key) || !is_keyword(key) || is_idle(key, value);
    if says_nothing { Negation::of(Vec::new()) } else { Negation::left_out() }
}
