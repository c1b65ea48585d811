//! Rotary tables against the values of Hugging Face transformers, and the reference models'
//! configurations in both generations.
#![allow(clippy::unwrap_used)] // in helpers of tests

mod common;

use saccade_model::{inverse_frequencies, parse_config};
use serde_json::Value;

/// More than the largest position of the reference.
const POSITIONS: u32 = 40_001;

fn floats(value: &Value) -> Vec<f32> {
    value.as_array().unwrap().iter().map(|n| n.as_f64().unwrap() as f32).collect()
}

/// Distance in units in the last place, for positive numbers.
fn ulps(a: f32, b: f32) -> u32 {
    a.to_bits().abs_diff(b.to_bits())
}

#[test]
fn tables_equal_those_of_transformers() {
    let path = common::reference().join("expected/rope.json");
    let cases: Value = serde_json::from_str(&std::fs::read_to_string(path).unwrap()).unwrap();
    for case in cases.as_array().unwrap() {
        let name = case["name"].as_str().unwrap();
        let config = parse_config(&case["config"].to_string()).unwrap();
        let frequencies = inverse_frequencies(&config.rope);
        for (ours, theirs) in frequencies.iter().zip(floats(&case["inv_freq"])) {
            // Yarn and llama3 blend several rounded terms.
            assert!(ulps(*ours, theirs) <= 4, "{name}: inv_freq {ours} != {theirs}");
        }
        let tables = config.rope_tables(POSITIONS);
        assert_eq!(tables.cos.len(), POSITIONS as usize * tables.half_dim);
        for row in case["rows"].as_array().unwrap() {
            let position = row["position"].as_u64().unwrap() as usize;
            let range = position * tables.half_dim..(position + 1) * tables.half_dim;
            check_row(name, position, &frequencies, &tables.cos[range.clone()], &row["cos"]);
            check_row(name, position, &frequencies, &tables.sin[range], &row["sin"]);
        }
    }
}

/// An angle of position * frequency carries their rounding, so the bound grows with it.
fn check_row(name: &str, position: usize, frequencies: &[f32], ours: &[f32], theirs: &Value) {
    let theirs = floats(theirs);
    assert_eq!(ours.len(), theirs.len());
    for (i, (a, b)) in ours.iter().zip(&theirs).enumerate() {
        let angle = position as f32 * frequencies[i];
        let bound = 5e-7 + angle * 4.0 * f32::EPSILON;
        assert!((a - b).abs() <= bound, "{name}: position {position}, pair {i}: {a} != {b}");
    }
}

#[test]
fn a_shorter_table_is_a_prefix_of_a_longer_one() {
    let scaling = serde_json::json!({"rope_type": "dynamic", "factor": 4.0});
    let changes = serde_json::json!({"max_position_embeddings": 8, "rope_scaling": scaling});
    let config = common::good(common::llama(&changes));
    let (short, long) = (config.rope_tables(20), config.rope_tables(40));
    assert_eq!(short.cos, long.cos[..short.cos.len()]);
    assert_eq!(short.sin, long.sin[..short.sin.len()]);
    assert!(config.rope_tables(0).cos.is_empty());
}
