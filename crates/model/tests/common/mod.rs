//! Helpers of the integration tests.
#![allow(clippy::unwrap_used)] // in helpers of tests
#![allow(dead_code)] // each test binary uses some of them

use std::path::PathBuf;

use saccade_model::{ModelConfig, ModelError, parse_config};
use serde_json::{Map, Value, json};

/// tests/reference of the repository.
pub fn reference() -> PathBuf {
    PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/reference"))
}

/// A small, valid config.json of the given family, in the layout of transformers v4.
pub fn base(architecture: &str, model_type: &str) -> Map<String, Value> {
    let value = json!({
        "architectures": [architecture],
        "model_type": model_type,
        "hidden_act": "silu",
        "hidden_size": 64,
        "intermediate_size": 96,
        "max_position_embeddings": 512,
        "num_attention_heads": 4,
        "num_hidden_layers": 3,
        "num_key_value_heads": 2,
        "rms_norm_eps": 1e-5,
        "rope_scaling": null,
        "rope_theta": 10000.0,
        "torch_dtype": "bfloat16",
        "vocab_size": 300,
        "bos_token_id": 1,
        "eos_token_id": 2,
    });
    value.as_object().unwrap().clone()
}

/// `base` with fields replaced; a `"-"` removes the field.
pub fn with(mut map: Map<String, Value>, changes: &Value) -> Map<String, Value> {
    for (key, value) in changes.as_object().unwrap() {
        if value == "-" {
            map.remove(key);
        } else {
            map.insert(key.clone(), value.clone());
        }
    }
    map
}

pub fn llama(changes: &Value) -> Map<String, Value> {
    with(base("LlamaForCausalLM", "llama"), changes)
}

pub fn mistral(changes: &Value) -> Map<String, Value> {
    with(base("MistralForCausalLM", "mistral"), changes)
}

pub fn qwen2(changes: &Value) -> Map<String, Value> {
    with(base("Qwen2ForCausalLM", "qwen2"), changes)
}

pub fn qwen3(changes: &Value) -> Map<String, Value> {
    with(base("Qwen3ForCausalLM", "qwen3"), changes)
}

pub fn phi3(changes: &Value) -> Map<String, Value> {
    with(base("Phi3ForCausalLM", "phi3"), changes)
}

pub fn mixtral(changes: &Value) -> Map<String, Value> {
    with(base("MixtralForCausalLM", "mixtral"), changes)
}

pub fn qwen3_moe(changes: &Value) -> Map<String, Value> {
    with(base("Qwen3MoeForCausalLM", "qwen3_moe"), changes)
}

pub fn parse(map: Map<String, Value>) -> Result<ModelConfig, ModelError> {
    parse_config(&Value::Object(map).to_string())
}

#[track_caller]
pub fn good(map: Map<String, Value>) -> ModelConfig {
    parse(map).unwrap_or_else(|error| panic!("{error}"))
}
