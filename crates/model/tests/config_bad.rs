//! Bad configuration files: every refusal names the file, the field and the bound.

mod common;

use common::{llama, mistral, mixtral, parse, phi3, qwen2, qwen3, qwen3_moe};
use saccade_model::{parse_config, parse_generation_config};
use serde_json::{Map, Value, json};

type Make = fn(&Value) -> Map<String, Value>;

/// (family, changes, field that the error must name, words that it must contain)
fn table() -> Vec<(Make, Value, &'static str, &'static str)> {
    let list: Vec<(Make, Value, &str, &str)> = vec![
        (
            llama,
            json!({"architectures": ["GPT2LMHeadModel"]}),
            "architectures",
            "LlamaForCausalLM, MistralForCausalLM, Qwen2ForCausalLM, Qwen3ForCausalLM, \
             Phi3ForCausalLM, MixtralForCausalLM, Qwen3MoeForCausalLM",
        ),
        (llama, json!({"architectures": "-", "model_type": "gpt2"}), "architectures", "missing"),
        (llama, json!({"architectures": "LlamaForCausalLM"}), "architectures", "supported"),
        (llama, json!({"model_type": "qwen3"}), "model_type", "must be \"llama\""),
        (llama, json!({"hidden_size": "-"}), "hidden_size", "missing"),
        (llama, json!({"hidden_size": 0}), "hidden_size", "is 0, must be an integer in 1..=65536"),
        (llama, json!({"hidden_size": -64}), "hidden_size", "is -64"),
        (llama, json!({"hidden_size": 64.5}), "hidden_size", "is 64.5"),
        (llama, json!({"hidden_size": "64"}), "hidden_size", "is \"64\""),
        (llama, json!({"hidden_size": 65537}), "hidden_size", "1..=65536"),
        (llama, json!({"hidden_size": u64::MAX}), "hidden_size", "1..=65536"),
        (llama, json!({"hidden_size": 66}), "hidden_size", "divisible by num_attention_heads = 4"),
        (llama, json!({"intermediate_size": 0}), "intermediate_size", "1..=1048576"),
        (llama, json!({"num_hidden_layers": 0}), "num_hidden_layers", "1..=1024"),
        (llama, json!({"num_hidden_layers": 1025}), "num_hidden_layers", "1..=1024"),
        (llama, json!({"num_attention_heads": 0}), "num_attention_heads", "1..=1024"),
        (llama, json!({"num_key_value_heads": 3}), "num_key_value_heads", "must divide"),
        (llama, json!({"num_key_value_heads": 0}), "num_key_value_heads", "1..=1024"),
        (llama, json!({"num_key_value_heads": 8}), "num_key_value_heads", "must divide"),
        (qwen2, json!({"num_key_value_heads": "-"}), "num_key_value_heads", "is 32"),
        (llama, json!({"head_dim": 15}), "head_dim", "must be even"),
        (llama, json!({"head_dim": 1026}), "head_dim", "1..=1024"),
        (llama, json!({"hidden_size": 60}), "head_dim", "is 15, must be even"),
        (llama, json!({"hidden_size": 8192}), "head_dim", "is 2048"),
        (llama, json!({"vocab_size": 0}), "vocab_size", "1..=4194304"),
        (llama, json!({"max_position_embeddings": 0}), "max_position_embeddings", "1..=16777216"),
        (llama, json!({"max_position_embeddings": 1u64 << 40}), "max_position_embeddings", "1..="),
        (llama, json!({"rms_norm_eps": -1e-5}), "rms_norm_eps", "0..=1"),
        (llama, json!({"rms_norm_eps": "small"}), "rms_norm_eps", "a number"),
        (llama, json!({"tie_word_embeddings": 1}), "tie_word_embeddings", "true or false"),
        (llama, json!({"hidden_act": "gelu"}), "hidden_act", "must be \"silu\""),
        (llama, json!({"torch_dtype": "float8_e4m3fn"}), "torch_dtype", "bfloat16"),
        (llama, json!({"dtype": {"a": "b"}}), "dtype", "float32"),
        (llama, json!({"bos_token_id": 300}), "bos_token_id", "0..=299"),
        (llama, json!({"eos_token_id": -1}), "eos_token_id", "0..=299"),
        (llama, json!({"eos_token_id": [2, 300]}), "eos_token_id", "is 300"),
        (llama, json!({"eos_token_id": [2, null]}), "eos_token_id", "is null"),
        (llama, json!({"eos_token_id": vec![0; 17]}), "eos_token_id", "at most 16"),
        // Biases and windows of the wrong family.
        (mistral, json!({"attention_bias": true}), "attention_bias", "must be false"),
        (qwen3, json!({"mlp_bias": true}), "mlp_bias", "must be false"),
        (llama, json!({"sliding_window": 4096}), "sliding_window", "must be null"),
        (mistral, json!({"sliding_window": 0}), "sliding_window", "1..=16777216"),
        (
            mistral,
            json!({"sliding_window": 8, "layer_types": vec!["full_attention"; 3]}),
            "layer_types[0]",
            "contradicts sliding_window",
        ),
        (
            llama,
            json!({"layer_types": ["full_attention", "sliding_attention", "full_attention"]}),
            "layer_types[1]",
            "contradicts",
        ),
        (
            qwen3,
            json!({"layer_types": vec!["full_attention"; 2]}),
            "layer_types",
            "has 2 entries, must be num_hidden_layers = 3",
        ),
        (
            qwen3,
            json!({"layer_types": vec!["chunked_attention"; 3]}),
            "layer_types[0]",
            "chunked_attention",
        ),
        (
            qwen3,
            json!({"layer_types": vec!["sliding_attention"; 3]}),
            "layer_types",
            "use_sliding_window",
        ),
        (qwen3, json!({"layer_types": 3}), "layer_types", "a list"),
        // What is not implemented.
        (llama, json!({"attention_chunk_size": 8192}), "attention_chunk_size", "chunked"),
        (llama, json!({"partial_rotary_factor": 0.5}), "partial_rotary_factor", "is 0.5"),
        (llama, json!({"logits_scaling": 8.0}), "logits_scaling", "scaled logits"),
        (llama, json!({"num_local_experts": 8}), "num_local_experts", "mixture"),
        (llama, json!({"final_logit_softcapping": 30.0}), "final_logit_softcapping", "capped"),
        (mixtral, json!({"num_local_experts": 0}), "num_local_experts", "1..=1024"),
        (mixtral, json!({"num_experts_per_tok": 9}), "num_experts_per_tok", "at most"),
        (mixtral, json!({"attention_bias": true}), "attention_bias", "must be false"),
        (qwen3_moe, json!({"num_experts": 2000}), "num_experts", "0..=1024"),
        (
            qwen3_moe,
            json!({"num_experts": 8, "num_local_experts": 9}),
            "num_local_experts",
            "must be 8",
        ),
        (qwen3_moe, json!({"decoder_sparse_step": 0}), "decoder_sparse_step", "1..=1024"),
        (qwen3_moe, json!({"mlp_only_layers": [-1]}), "mlp_only_layers", "a list of layer"),
        (phi3, json!({"partial_rotary_factor": 0.2}), "partial_rotary_factor", "leaves 3"),
        (
            phi3,
            json!({"rope_scaling": {"type": "linear", "factor": 2.0}}),
            "rope_scaling.type",
            "must be default or longrope",
        ),
        (llama, json!({"is_causal": false}), "is_causal", "must be true"),
    ];
    list
}

/// The same for `quantization_config`.
fn fp8_table() -> Vec<(Value, &'static str, &'static str)> {
    let compressed = |changes: Value| {
        let mut config = json!({
            "quant_method": "compressed-tensors", "format": "float-quantized",
            "config_groups": {"group_0": {"weights": {
                "num_bits": 8, "type": "float", "strategy": "channel",
            }}},
        });
        merge(&mut config, &changes);
        config
    };
    let weights =
        |changes: Value| compressed(json!({"config_groups": {"group_0": {"weights": changes}}}));
    const WEIGHTS: &str = "config_groups.group_0.weights";
    let of_weights = |field: &str| -> &'static str { format!("{WEIGHTS}.{field}").leak() };
    vec![
        (json!({"bits": 4}), "quant_method", "missing"),
        (
            json!({"quant_method": "gptq"}),
            "quant_method",
            "is \"gptq\", must be \"fp8\" or \"fbgemm_fp8\" or \"compressed-tensors\"",
        ),
        (json!({"quant_method": "fp8", "fmt": "e5m2"}), "fmt", "must be \"e4m3\""),
        (json!({"quant_method": "fp8", "activation_scheme": "x"}), "activation_scheme", "static"),
        (json!({"quant_method": "fp8", "expert_dtype": "fp4"}), "expert_dtype", "\"fp8\""),
        (
            json!({"quant_method": "fp8", "weight_block_size": [64, 128]}),
            "weight_block_size",
            "is [64,128], must be [128, 128] or absent",
        ),
        (
            json!({"quant_method": "fp8", "weight_block_size": 128}),
            "weight_block_size",
            "a list of at most 8 numbers",
        ),
        (compressed(json!({"format": "pack-quantized"})), "format", "\"float-quantized\""),
        (compressed(json!({"format": null})), "format", "missing"),
        (compressed(json!({"quantization_status": "frozen"})), "quantization_status", "compressed"),
        (
            compressed(json!({"sparsity_config": {"format": "sparse-24-bitmask"}})),
            "sparsity_config.format",
            "\"dense\"",
        ),
        (compressed(json!({"transform_config": {"a": 1}})), "transform_config", "is not empty"),
        (compressed(json!({"config_groups": null})), "config_groups", "missing"),
        (
            compressed(json!({"config_groups": {"group_0": {"format": "pack-quantized"}}})),
            "config_groups.group_0.format",
            "float-quantized",
        ),
        (compressed(json!({"config_groups": {"group_0": {"weights": null}}})), WEIGHTS, "missing"),
        (
            compressed(json!({"config_groups": {"group_1": {"weights": {
                "num_bits": 8, "type": "float", "strategy": "tensor",
            }}}})),
            "config_groups.group_1.weights.strategy",
            "another strategy",
        ),
        (weights(json!({"num_bits": 4})), of_weights("num_bits"), "is 4"),
        (weights(json!({"type": "int"})), of_weights("type"), "must be \"float\""),
        (weights(json!({"symmetric": false})), of_weights("symmetric"), "must be true"),
        (weights(json!({"strategy": "group"})), of_weights("strategy"), "must be \"tensor\""),
        (weights(json!({"strategy": "block"})), of_weights("block_structure"), "missing"),
        (
            weights(json!({"strategy": "block", "block_structure": [1, 128]})),
            of_weights("block_structure"),
            "[128, 128]",
        ),
    ]
}

/// Changes within objects; null takes a field away.
fn merge(into: &mut Value, changes: &Value) {
    let (Value::Object(into), Value::Object(changes)) = (into, changes) else { unreachable!() };
    for (name, change) in changes {
        match into.get_mut(name) {
            Some(old) if old.is_object() && change.is_object() => merge(old, change),
            _ => drop(into.insert(name.clone(), change.clone())),
        }
    }
}

#[test]
fn quantizations_that_are_not_supported_name_their_field() {
    for name in ["quantization_config", "compression_config"] {
        for (config, field, words) in fp8_table() {
            let error = parse(llama(&json!({name: config}))).unwrap_err().to_string();
            let field = format!("config.json: {name}.{field} ");
            assert!(error.starts_with(&field) && error.contains(words), "{config}: {error}");
        }
    }
    let both = json!({"quantization_config": {"quant_method": "fp8"}, "compression_config": {}});
    let error = parse(llama(&both)).unwrap_err().to_string();
    assert_eq!(error, "config.json: compression_config must be absent beside quantization_config");
}

/// The same for `rope_scaling`.
fn rope_table() -> Vec<(Value, &'static str, &'static str)> {
    vec![
        (
            json!({"rope_type": "axial", "factor": 2.0}),
            "rope_scaling.rope_type",
            "default, linear, dynamic, yarn, longrope, llama3, proportional",
        ),
        (json!({"rope_type": "longrope"}), "rope_scaling.short_factor", "missing"),
        (
            json!({"rope_type": "longrope", "short_factor": vec![1.0; 7]}),
            "rope_scaling.short_factor",
            "has 7 entries, must be 8",
        ),
        (
            json!({"rope_type": "longrope", "short_factor": vec![0.0; 8]}),
            "rope_scaling.short_factor",
            "a list of at most 1024 numbers in 0.000001..=1000000",
        ),
        (json!({"type": "su", "factor": 2.0}), "rope_scaling.type", "\"su\""),
        (json!({"rope_type": 3}), "rope_scaling.rope_type", "a string"),
        (
            json!({"rope_type": "default", "mrope_section": [1]}),
            "rope_scaling.mrope_section",
            "not a rope parameter",
        ),
        (json!({"rope_type": "linear"}), "rope_scaling.factor", "missing"),
        (json!({"rope_type": "linear", "factor": 0.5}), "rope_scaling.factor", "1..=1000000"),
        (json!({"rope_type": "linear", "factor": 1e9}), "rope_scaling.factor", "1..=1000000"),
        (json!({"rope_type": "dynamic", "factor": "2"}), "rope_scaling.factor", "a number"),
        (
            json!({"rope_type": "default", "partial_rotary_factor": 0.25}),
            "rope_scaling.partial_rotary_factor",
            "is 0.25, must be 1 for LlamaForCausalLM",
        ),
        (json!({"rope_type": "default", "rope_theta": 0}), "rope_scaling.rope_theta", "is 0"),
        (json!({"rope_type": "yarn"}), "rope_scaling.factor", "missing"),
        (
            json!({"rope_type": "yarn", "factor": 2.0, "original_max_position_embeddings": 0}),
            "rope_scaling.original_max_position_embeddings",
            "1..=",
        ),
        (
            json!({"rope_type": "yarn", "factor": 2.0, "truncate": "no"}),
            "rope_scaling.truncate",
            "true or false",
        ),
        (json!({"rope_type": "llama3", "factor": 8.0}), "rope_scaling.low_freq_factor", "missing"),
        (
            json!({"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 4.0,
            "high_freq_factor": 4.0}),
            "rope_scaling.high_freq_factor",
            "must be above low_freq_factor",
        ),
    ]
}

#[track_caller]
fn assert_refused(map: Map<String, Value>, field: &str, words: &str) {
    let shown = Value::Object(map.clone()).to_string();
    let error = match parse(map) {
        Ok(_) => panic!("accepted: {shown}"),
        Err(error) => error.to_string(),
    };
    assert!(error.starts_with(&format!("config.json: {field} ")), "{error}\nfor {shown}");
    assert!(error.contains(words), "{error:?} lacks {words:?}\nfor {shown}");
}

#[test]
fn bad_fields_are_refused_by_name_and_bound() {
    for (make, changes, field, words) in table() {
        assert_refused(make(&changes), field, words);
    }
}

#[test]
fn bad_rope_parameters_are_refused_by_name_and_bound() {
    for (scaling, field, words) in rope_table() {
        assert_refused(llama(&json!({"rope_scaling": scaling})), field, words);
        let field = field.replace("rope_scaling", "rope_parameters");
        let new = json!({"rope_scaling": "-", "rope_parameters": scaling});
        assert_refused(llama(&new), &field, words);
        let field = field.replace("rope_parameters", "rope_parameters.full_attention");
        let nested = json!({"rope_scaling": "-", "rope_parameters": {"full_attention": scaling}});
        assert_refused(llama(&nested), &field, words);
    }
}

#[test]
fn contradicting_rope_parameters_are_refused() {
    let a = json!({"rope_type": "linear", "factor": 2.0});
    let b = json!({"rope_type": "linear", "factor": 4.0});
    let both = json!({"rope_scaling": a, "rope_parameters": b});
    assert_refused(llama(&both), "rope_parameters", "differ");
    let layers = json!({"rope_parameters": {"full_attention": a, "sliding_attention": b}});
    assert_refused(llama(&layers), "rope_parameters", "differs between layer types");
    let mixed = json!({"rope_parameters": {"full_attention": a, "rope_theta": 1e4}});
    assert_refused(llama(&mixed), "rope_parameters.rope_theta", "must be one object");
    let lengths = json!({"original_max_position_embeddings": 64, "rope_scaling":
        {"rope_type": "yarn", "factor": 2.0, "original_max_position_embeddings": 128}});
    let field = "rope_scaling.original_max_position_embeddings";
    assert_refused(llama(&lengths), field, "is 128, must be 64");
    let tiny = json!({"head_dim": 2, "rope_scaling": {"rope_type": "dynamic", "factor": 2.0}});
    assert_refused(llama(&tiny), "rope_scaling.rope_type", "head_dim of at least 4");
}

#[test]
fn what_is_not_an_object_is_refused() {
    for text in ["", "[]", "null", "{", "{\"a\": NaN}", "\u{feff}{}", "3"] {
        let error = parse_config(text).unwrap_err().to_string();
        assert!(error.starts_with("config.json: is not "), "{error}");
    }
    // Deep nesting must not exhaust the stack.
    let deep = "{\"a\":".repeat(100_000);
    assert!(parse_config(&deep).unwrap_err().to_string().contains("recursion limit"));
}

#[test]
fn errors_quote_long_values_shortened() {
    let long = "x".repeat(100_000);
    let error = parse(llama(&json!({"hidden_size": long}))).unwrap_err().to_string();
    assert!(error.len() < 200, "{}", error.len());
}

#[test]
fn generation_parameters_have_bounds() {
    let cases = [
        (json!({"temperature": -0.1}), "temperature", "0..=100"),
        (json!({"temperature": "hot"}), "temperature", "a number"),
        (json!({"top_p": 0.0}), "top_p", "..=1"),
        (json!({"top_p": 1.5}), "top_p", "..=1"),
        (json!({"top_k": -1}), "top_k", "0..=4194304"),
        (json!({"min_p": 2}), "min_p", "0..=1"),
        (json!({"repetition_penalty": 0}), "repetition_penalty", "..=100"),
        (json!({"max_new_tokens": 0}), "max_new_tokens", "1..="),
        (json!({"eos_token_id": "</s>"}), "eos_token_id", "an integer"),
    ];
    for (value, field, words) in cases {
        let error = parse_generation_config(&value.to_string()).unwrap_err().to_string();
        assert!(error.starts_with(&format!("generation_config.json: {field} ")), "{error}");
        assert!(error.contains(words), "{error} lacks {words}");
    }
}
