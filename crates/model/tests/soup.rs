//! No input makes a parser panic, and what is accepted is within bounds. Failing inputs are printed
//! (and kept next to this file) by proptest.

mod common;

use proptest::prelude::*;
use saccade_model::{
    TokenizerConfig, limits, parse_config, parse_generation_config, parse_safetensors_header,
    parse_weight_index,
};
use serde_json::{Map, Value, json};

/// Values that parsers get wrong.
fn odd_value() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<u64>().prop_map(Value::from),
        any::<f64>().prop_map(Value::from),
        (0u32..70).prop_map(Value::from),
        ".{0,8}".prop_map(Value::from),
        Just(json!("yarn")),
        Just(json!("llama3")),
        Just(json!("dynamic")),
        Just(json!("sliding_attention")),
    ];
    leaf.prop_recursive(3, 12, 4, |inner| {
        let key = prop_oneof![
            Just("rope_type".to_owned()),
            Just("factor".to_owned()),
            Just("full_attention".to_owned()),
            Just("content".to_owned()),
            ".{0,4}",
        ];
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
            prop::collection::vec((key, inner), 0..4)
                .prop_map(|pairs| Value::Object(pairs.into_iter().collect::<Map<_, _>>())),
        ]
    })
}

/// A valid config of some family with a few fields replaced.
fn damaged_config() -> impl Strategy<Value = Map<String, Value>> {
    let family = prop::sample::select(vec![
        ("LlamaForCausalLM", "llama"),
        ("MistralForCausalLM", "mistral"),
        ("Qwen2ForCausalLM", "qwen2"),
        ("Qwen3ForCausalLM", "qwen3"),
    ]);
    let field = prop::sample::select(vec![
        "hidden_size",
        "num_attention_heads",
        "num_key_value_heads",
        "num_hidden_layers",
        "head_dim",
        "vocab_size",
        "intermediate_size",
        "max_position_embeddings",
        "rope_scaling",
        "rope_parameters",
        "rope_theta",
        "layer_types",
        "sliding_window",
        "use_sliding_window",
        "max_window_layers",
        "eos_token_id",
        "bos_token_id",
        "dtype",
        "rms_norm_eps",
        "architectures",
        "model_type",
        "original_max_position_embeddings",
    ]);
    let changes = prop::collection::vec((field, odd_value()), 1..4);
    (family, changes).prop_map(|((architecture, model_type), changes)| {
        let mut map = common::base(architecture, model_type);
        map.extend(changes.into_iter().map(|(key, value)| (key.to_owned(), value)));
        map
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 512, ..ProptestConfig::default() })]

    #[test]
    fn any_text_is_parsed_or_refused(text in ".{0,200}") {
        let _ = parse_config(&text);
        let _ = parse_generation_config(&text);
        let _ = TokenizerConfig::parse(&text);
        let _ = parse_weight_index("index", &text);
    }

    #[test]
    fn any_json_is_parsed_or_refused(value in odd_value()) {
        let text = value.to_string();
        let _ = parse_config(&text);
        let _ = parse_generation_config(&text);
        let _ = TokenizerConfig::parse(&text);
        let _ = parse_weight_index("index", &text);
        let _ = TokenizerConfig::parse(&json!({"chat_template": value}).to_string());
        let _ = parse_weight_index("index", &json!({"weight_map": value}).to_string());
    }

    #[test]
    fn an_accepted_config_is_within_its_bounds(map in damaged_config()) {
        if let Ok(config) = common::parse(map) {
            prop_assert!((1..=limits::MAX_LAYERS).contains(&config.num_layers));
            prop_assert!((1..=limits::MAX_HIDDEN_SIZE).contains(&config.hidden_size));
            prop_assert!((1..=limits::MAX_HEADS).contains(&config.num_heads));
            prop_assert!(config.num_heads.is_multiple_of(config.num_kv_heads));
            prop_assert!(config.head_dim.is_multiple_of(2));
            prop_assert!((2..=limits::MAX_HEAD_DIM).contains(&config.head_dim));
            prop_assert_eq!(config.sliding_window.len(), config.num_layers as usize);
            prop_assert!(config.eos_ids.iter().all(|&id| id < config.vocab_size));
            prop_assert!((1..=limits::MAX_POSITIONS).contains(&config.max_model_len()));
            let tables = config.rope_tables(3);
            prop_assert_eq!(tables.cos.len(), 3 * config.head_dim as usize / 2);
            prop_assert!(tables.cos.iter().chain(&tables.sin).all(|value| value.is_finite()));
        }
    }

    #[test]
    fn any_bytes_are_no_header_or_one_inside_of_the_file(
        bytes in prop::collection::vec(any::<u8>(), 0..300)
    ) {
        check_header(&bytes)?;
    }

    #[test]
    fn any_json_header_is_refused_or_inside_of_the_file(
        value in odd_value(), name in ".{0,4}", data in prop::collection::vec(any::<u8>(), 0..64),
        from in 0usize..70, to in 0usize..70, shape in prop::collection::vec(0u64..9, 0..3),
    ) {
        let tensor = json!({"dtype": "F32", "shape": shape, "data_offsets": [from, to]});
        for header in [value.clone(), json!({name.clone(): tensor}), json!({name: value})] {
            let header = header.to_string();
            let length = (header.len() as u64).to_le_bytes();
            check_header(&[&length[..], header.as_bytes(), &data].concat())?;
        }
    }

    #[test]
    fn a_flipped_byte_is_survived(at in 0usize..2000, flip in 1u8..) {
        let path = common::reference().join("models/llama-plain-v4/model.safetensors");
        let mut bytes = std::fs::read(path).unwrap();
        bytes[at] ^= flip;
        check_header(&bytes)?;
    }
}

fn check_header(bytes: &[u8]) -> Result<(), TestCaseError> {
    if let Ok(tensors) = parse_safetensors_header("file", bytes) {
        for tensor in tensors.values() {
            prop_assert!(bytes.get(tensor.bytes.clone()).is_some());
        }
    }
    Ok(())
}
