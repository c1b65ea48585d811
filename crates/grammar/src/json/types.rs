//! The types of JSON, as sets.

use serde_json::{Map, Value};

use crate::GrammarError;

/// A set of JSON types.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Types(u8);

impl Types {
    pub(super) const NULL: Types = Types(1);
    pub(super) const BOOLEAN: Types = Types(2);
    pub(super) const INTEGER: Types = Types(4);
    /// Numbers, integers among them.
    pub(super) const NUMBER: Types = Types(4 | 8);
    pub(super) const STRING: Types = Types(16);
    pub(super) const ARRAY: Types = Types(32);
    pub(super) const OBJECT: Types = Types(64);
    pub(super) const ALL: Types = Types(127);
    pub(super) const NONE: Types = Types(0);

    pub(super) fn has(self, other: Types) -> bool {
        self.0 & other.0 == other.0
    }
    pub(super) fn and(self, other: Types) -> Types {
        Types(self.0 & other.0)
    }
    pub(super) fn or(self, other: Types) -> Types {
        Types(self.0 | other.0)
    }
    pub(super) fn without(self, other: Types) -> Types {
        Types(self.0 & !other.0)
    }
    pub(super) fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// Names that are read as these types.
    pub(super) fn names(self) -> Vec<&'static str> {
        let named = [
            (Types::NULL, "null"),
            (Types::BOOLEAN, "boolean"),
            (Types::NUMBER, "number"),
            (Types::INTEGER, "integer"),
            (Types::STRING, "string"),
            (Types::ARRAY, "array"),
            (Types::OBJECT, "object"),
        ];
        let mut left = self;
        let mut names = Vec::new();
        for (types, name) in named {
            if left.has(types) {
                names.push(name);
                left = left.without(types);
            }
        }
        names
    }

    fn named(name: &str) -> Option<Types> {
        Some(match name {
            "null" => Types::NULL,
            "boolean" => Types::BOOLEAN,
            "integer" => Types::INTEGER,
            "number" => Types::NUMBER,
            "string" => Types::STRING,
            "array" => Types::ARRAY,
            "object" => Types::OBJECT,
            _ => return None,
        })
    }

    /// What `type` names; all without it.
    pub(super) fn read(schema: &Map<String, Value>, path: &str) -> Result<Types, GrammarError> {
        let wrong = || GrammarError::invalid("`type` must be a JSON type or a list of them", path);
        let one = |name: &Value| name.as_str().and_then(Types::named).ok_or_else(wrong);
        match schema.get("type") {
            None => Ok(Types::ALL),
            Some(Value::Array(names)) if !names.is_empty() => {
                names.iter().try_fold(Types::NONE, |all, name| Ok(all.or(one(name)?)))
            }
            Some(name) => one(name),
        }
    }

    /// Whether a value's type is among them.
    pub(super) fn admits(self, value: &Value) -> bool {
        self.has(match value {
            Value::Null => Types::NULL,
            Value::Bool(_) => Types::BOOLEAN,
            Value::Number(n) if n.is_i64() || n.is_u64() => Types::INTEGER,
            Value::Number(n) if n.as_f64().is_some_and(|f| f.fract() == 0.0) => Types::INTEGER,
            Value::Number(_) => Types::NUMBER,
            Value::String(_) => Types::STRING,
            Value::Array(_) => Types::ARRAY,
            Value::Object(_) => Types::OBJECT,
        })
    }
}
