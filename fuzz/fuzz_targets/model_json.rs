//! The JSON files of a model folder. The first byte chooses the file.

#![no_main]

use libfuzzer_sys::fuzz_target;
use saccade_model::{
    AdapterConfig, TokenizerConfig, parse_config, parse_generation_config, parse_weight_index,
};

/// Positions for which rotary tables are made of a configuration that parsed.
const POSITIONS: u32 = 8;

fuzz_target!(|data: &[u8]| {
    let Some((first, text)) = data.split_first() else { return };
    let Ok(text) = std::str::from_utf8(text) else { return };
    // Refusals are answers.
    match first % 5 {
        0 => {
            if let Ok(config) = parse_config(text) {
                assert_eq!(config.sliding_window.len(), config.num_layers as usize);
                assert_eq!(config.num_heads % config.num_kv_heads, 0);
                let tables = config.rope_tables(POSITIONS.min(config.max_model_len()));
                assert_eq!(tables.cos.len(), tables.sin.len());
            }
        }
        1 => drop(parse_generation_config(text)),
        2 => drop(TokenizerConfig::parse(text)),
        3 => drop(parse_weight_index("model.safetensors.index.json", text)),
        _ => {
            if let Ok(config) = AdapterConfig::parse(text) {
                let scaling = config.scaling_of("model.layers.0.self_attn.q_proj");
                assert!(scaling.is_finite());
            }
        }
    }
});
