//! Schemas that are short to say and long to compile: each level doubles what is left to do.

use serde_json::{Value, json};

use super::bodies::Draw;

/// What is large about a schema.
pub(super) const CASES: [&str; 6] = [
    "nested-lists",
    "doubled-members",
    "doubled-alternatives",
    "endless-ref",
    "long-enum",
    "repeats",
];

/// Levels of what nests.
const LEVELS: u32 = 40;
/// Texts of the long list.
const TEXTS: usize = 20_000;

/// Name and value of the field that asks for the schema of this turn, which no other request has.
pub(super) fn field(turn: u64, draw: &mut Draw) -> (&'static str, Value) {
    let case = CASES[(turn % CASES.len() as u64) as usize];
    let name = format!("n{}", draw.below(u64::MAX));
    let schema = json!({"type": "object", "additionalProperties": false, "required": [name],
        "properties": {name: schema(case, draw)}});
    (
        case,
        json!({"type": "json_schema",
        "json_schema": {"name": "answer", "strict": true, "schema": schema}}),
    )
}

fn schema(case: &str, draw: &mut Draw) -> Value {
    let levels = 0..LEVELS;
    match case {
        "nested-lists" => levels
            .fold(json!(true), |inner, _| json!({"type": "array", "items": inner, "minItems": 2})),
        "doubled-members" => levels.take(10).fold(json!({"type": "integer"}), |inner, i| {
            let one =
                |name: &str| json!({"type": "object", "properties": {format!("{name}{i}"): inner}});
            json!({"anyOf": [one("a"), one("b")]})
        }),
        "doubled-alternatives" => levels.fold(json!({"type": "object"}), |inner, i| {
            let one = |name: &str| json!({"properties": {format!("{name}{i}"): {"type": "null"}}});
            json!({"allOf": [inner, {"anyOf": [one("a"), one("b")]}]})
        }),
        "endless-ref" => json!({"$ref": "#", "minItems": 1, "items": {"$ref": "#"}}),
        "long-enum" => {
            let texts: Vec<String> =
                (0..TEXTS).map(|_| format!("{:x}", draw.below(u64::MAX))).collect();
            json!({"enum": texts})
        }
        _ => json!({"type": "string", "pattern": "^(.*a.{400})+(x+x+)+y{9999}$"}),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_turn_has_a_schema_of_its_own() {
        let mut draw = Draw::new(7);
        let fields: Vec<_> = (0..12).map(|turn| field(turn, &mut draw)).collect();
        for (i, (case, value)) in fields.iter().enumerate() {
            assert_eq!(*case, CASES[i % CASES.len()]);
            assert!(value.to_string().len() < 1 << 20, "{case} is not short");
            assert!(fields[..i].iter().all(|(_, other)| other != value), "{case}");
        }
    }
}
