//! A sample of MaskBench (github.com/guidance-ai/jsonschemabench, `maskbench/data`, of its own
//! schemas and Glaive's): each schema compiles, and its instances are judged as the data say.
//! `bench/grammar/maskbench.py` runs all of it.
#![allow(clippy::unwrap_used)]

use saccade_grammar::{Limits, Source, Walk, compile};
use serde_json::Value;

/// JSON text as MaskBench writes instances: with a space behind commas and colons.
fn written(value: &Value) -> String {
    match value {
        Value::Array(items) => {
            format!("[{}]", items.iter().map(written).collect::<Vec<_>>().join(", "))
        }
        Value::Object(members) => {
            let member = |(name, value): (&String, &Value)| {
                format!("{}: {}", Value::from(name.as_str()), written(value))
            };
            format!("{{{}}}", members.iter().map(member).collect::<Vec<_>>().join(", "))
        }
        value => value.to_string(),
    }
}

#[test]
fn instances_of_the_sample_are_judged_as_the_data_say() {
    let rows = include_str!("maskbench.jsonl").lines();
    let (mut accepted, mut rejected) = (0, 0);
    for row in rows {
        let row: Value = serde_json::from_str(row).unwrap();
        let source = Source::JsonSchema(row["schema"].to_string());
        let name = &row["name"];
        let automaton =
            compile(&source, &Limits::default()).unwrap_or_else(|e| panic!("{name}: {e}"));
        for test in row["tests"].as_array().unwrap() {
            let text = written(&test["data"]);
            let mut walk = Walk::start();
            let got = walk.take_all(&automaton, text.as_bytes()) && walk.may_end(&automaton);
            assert_eq!(got, test["valid"] == true, "{name}: {text}");
            *(if got { &mut accepted } else { &mut rejected }) += 1;
        }
    }
    assert!(accepted > 60 && rejected > 60, "{accepted} accepted, {rejected} rejected");
}
