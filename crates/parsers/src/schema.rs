//! What the tools of a request say about the types of their parameters. Formats that write values
//! without quotes need it: `007` is a number or a text.

use std::collections::HashMap;

use serde_json::Value;

/// References that are followed for one parameter.
const MAX_REFERENCES: u32 = 8;

/// JSON types that a value may have.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Types(u8);

impl Types {
    const STRING: u8 = 1;
    const NUMBER: u8 = 2;
    const BOOLEAN: u8 = 4;
    const NULL: u8 = 8;
    const OBJECT: u8 = 16;
    const ARRAY: u8 = 32;

    fn named(name: &str) -> Self {
        Self(match name {
            "string" => Self::STRING,
            "number" | "integer" => Self::NUMBER,
            "boolean" => Self::BOOLEAN,
            "null" => Self::NULL,
            "object" => Self::OBJECT,
            "array" => Self::ARRAY,
            _ => 0,
        })
    }

    fn of(value: &Value) -> Self {
        Self(match value {
            Value::String(_) => Self::STRING,
            Value::Number(_) => Self::NUMBER,
            Value::Bool(_) => Self::BOOLEAN,
            Value::Null => Self::NULL,
            Value::Object(_) => Self::OBJECT,
            Value::Array(_) => Self::ARRAY,
        })
    }

    fn and(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    /// Only text is certain to be meant. A type that nothing is known about is text as well.
    pub fn is_text(self) -> bool {
        self.0 == 0 || self.0 == Self::STRING
    }

    /// Whether `value` has one of the types.
    pub fn allow(self, value: &Value) -> bool {
        self.0 & Self::of(value).0 != 0
    }
}

/// The types of all parameters of a request's tools.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Schemas(HashMap<String, HashMap<String, Types>>);

impl Schemas {
    /// Reads them from functions: name, and JSON Schema of the parameters.
    pub fn of<'a>(functions: impl IntoIterator<Item = (&'a str, Option<&'a Value>)>) -> Self {
        let types = |schema: Option<&Value>| {
            let (Some(schema), properties) = (schema, schema.and_then(|s| s.get("properties")))
            else {
                return HashMap::new();
            };
            let properties = properties.and_then(Value::as_object).into_iter().flatten();
            let one = |(name, property)| -> (String, Types) {
                let mut references = MAX_REFERENCES;
                (String::clone(name), types_of(property, schema, &mut references))
            };
            properties.map(one).collect()
        };
        Self(functions.into_iter().map(|(name, schema)| (name.to_owned(), types(schema))).collect())
    }

    /// Types of a parameter; none if the function does not have it.
    pub fn types(&self, function: &str, parameter: &str) -> Types {
        self.0.get(function).and_then(|f| f.get(parameter)).copied().unwrap_or_default()
    }
}

/// Types that a schema allows, through alternatives, values and references within `root`.
fn types_of(schema: &Value, root: &Value, references: &mut u32) -> Types {
    let mut types = match schema.get("type") {
        Some(Value::String(name)) => Types::named(name),
        Some(Value::Array(names)) => {
            let names = names.iter().filter_map(Value::as_str);
            names.map(Types::named).fold(Types::default(), Types::and)
        }
        _ => Types::default(),
    };
    if types != Types::default() {
        return types;
    }
    for values in ["enum", "const"].into_iter().filter_map(|key| schema.get(key)) {
        types = match values {
            Value::Array(values) => values.iter().map(Types::of).fold(types, Types::and),
            value => types.and(Types::of(value)),
        };
    }
    for key in ["anyOf", "oneOf", "allOf"] {
        for option in schema.get(key).and_then(Value::as_array).into_iter().flatten() {
            if *references == 0 {
                return types;
            }
            *references -= 1;
            types = types.and(types_of(option, root, references));
        }
    }
    let reference = schema.get("$ref").and_then(Value::as_str);
    let target = reference.and_then(|r| r.strip_prefix('#')).and_then(|path| root.pointer(path));
    match target {
        Some(target) if *references > 0 => {
            *references -= 1;
            types.and(types_of(target, root, references))
        }
        _ => types,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn types_are_found_behind_alternatives_and_references() {
        let schema = json!({"properties": {
            "text": {"type": "string"}, "count": {"type": ["integer", "null"]},
            "unit": {"$ref": "#/$defs/Unit"}, "either": {"anyOf": [{"type": "string"}, {"type": "number"}]},
            "self": {"$ref": "#/properties/self"}, "any": {}},
            "$defs": {"Unit": {"enum": ["a", "b"]}}});
        let schemas = Schemas::of([("f", Some(&schema)), ("g", None)]);
        let is_text = |name| schemas.types("f", name).is_text();
        assert!(is_text("text") && is_text("unit") && is_text("any") && is_text("self"));
        assert!(is_text("unknown") && schemas.types("g", "text").is_text());
        assert!(!is_text("count") && !is_text("either"));
        assert!(schemas.types("f", "count").allow(&json!(1)));
        assert!(!schemas.types("f", "count").allow(&json!("1")));
    }
}
