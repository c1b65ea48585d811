//! Sources that are short to say and long to compile.

use saccade_grammar::{Limits, Source};
use serde_json::{Value, json};

/// Each with a name.
pub fn all() -> Vec<(&'static str, Source)> {
    let schema = |value: &Value| Source::JsonSchema(value.to_string());
    let regex = |pattern: &str| Source::Regex(pattern.into());
    let most_bytes = Limits::default().source_bytes;
    vec![
        ("counts within counts", regex("((a{1000}){1000}){1000}")),
        ("what came forty characters before", regex("(.*a.{40})+")),
        ("repeats that overlap", regex("(x+x+)+y{99999}")),
        ("ten million letters", Source::Regex("a".repeat(10_000_000))),
        ("open groups", Source::Regex("(".repeat(most_bytes))),
        ("open classes", Source::Regex("[".repeat(most_bytes))),
        ("closed groups", Source::Regex("()".repeat(most_bytes / 2))),
        ("groups of nothing or nothing", Source::Regex("(|)a".repeat(most_bytes / 4))),
        ("letters that may be absent", Source::Regex("aa?".repeat(most_bytes / 3))),
        ("alternatives", Source::Regex("a|".repeat(most_bytes / 2))),
        ("look-arounds", Source::Regex("(?=a)".repeat(most_bytes / 5))),
        ("large classes", Source::Regex(r"\p{L}".repeat(40_000))),
        ("lists in lists", schema(&nested_lists())),
        ("doubled members", schema(&doubled_members())),
        ("doubled alternatives", schema(&doubled_alternatives())),
        ("negations", schema(&negations())),
        ("a long enum", schema(&long_enum())),
        ("a long count", schema(&json!({"pattern": "a", "maxLength": 100_000_000}))),
        ("many members", schema(&json!({"type": "object", "minProperties": 1_000_000}))),
        (
            "a reference to itself",
            schema(&json!({"$ref": "#", "minItems": 1, "items": {"$ref": "#"}})),
        ),
        ("open brackets", Source::JsonSchema("[".repeat(100_000))),
    ]
}

fn nested_lists() -> Value {
    (0..60).fold(json!(true), |inner, _| json!({"type": "array", "items": inner, "minItems": 2}))
}

fn doubled_members() -> Value {
    (0..12).fold(json!({"type": "integer"}), |inner, i| {
        let one =
            |name: &str| json!({"type": "object", "properties": {format!("{name}{i}"): inner}});
        json!({"anyOf": [one("a"), one("b")]})
    })
}

fn doubled_alternatives() -> Value {
    (0..40).fold(json!({"type": "object"}), |inner, i| {
        let one = |name: &str| json!({"properties": {format!("{name}{i}"): {"type": "null"}}});
        json!({"allOf": [inner, {"anyOf": [one("a"), one("b")]}]})
    })
}

fn negations() -> Value {
    (0..40).fold(
        json!({"const": 0}),
        |inner, i| json!({"not": {"oneOf": [inner, {"required": [format!("a{i}")]}]}}),
    )
}

fn long_enum() -> Value {
    let texts: Vec<String> = (0..40_000_u64).map(|i| format!("{:x}", i * 2_654_435_761)).collect();
    json!({"enum": texts})
}
