//! What good config.json files mean, for every family and both generations.

mod common;

use common::{good, llama, mistral, mixtral, phi3, qwen2, qwen3, qwen3_moe};
use saccade_model::{Biases, Dtype, Family, Fp8Scales, RopeScaling};
use serde_json::{Value, json};

#[test]
fn llama_as_written_by_transformers_4() {
    let config = good(llama(&json!({})));
    assert_eq!(config.family, Family::Llama);
    assert_eq!((config.num_layers, config.hidden_size, config.intermediate_size), (3, 64, 96));
    assert_eq!((config.num_heads, config.num_kv_heads, config.head_dim), (4, 2, 16));
    assert_eq!((config.vocab_size, config.max_position_embeddings), (300, 512));
    assert_eq!(config.rms_norm_eps, 1e-5);
    assert!(!config.tie_word_embeddings && !config.qk_norm);
    assert_eq!(config.biases, Biases::default());
    assert_eq!(config.sliding_window, [0, 0, 0]);
    assert_eq!((config.rope.theta, config.rope.rotary_dim), (10000.0, 16));
    assert_eq!(config.rope.scaling, RopeScaling::Default);
    assert_eq!(config.dtype, Some(Dtype::Bf16));
    assert_eq!((config.bos_id, &config.eos_ids[..]), (Some(1), &[2][..]));
}

#[test]
fn both_generations_of_a_file_mean_the_same() {
    let scalings = [
        json!({"rope_type": "default"}),
        json!({"rope_type": "linear", "factor": 2.0}),
        json!({"rope_type": "dynamic", "factor": 4}),
        json!({"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 128}),
        json!({"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0,
               "high_freq_factor": 4.0, "original_max_position_embeddings": 256}),
    ];
    for make in [llama, mistral, qwen2, qwen3] {
        for scaling in &scalings {
            let old = json!({"rope_theta": 5e5, "rope_scaling": scaling});
            let old_config = good(make(&old));
            let mut parameters = scaling.clone();
            parameters["rope_theta"] = json!(5e5);
            let new = json!({"rope_theta": "-", "rope_scaling": "-", "torch_dtype": "-",
                             "dtype": "bfloat16", "rope_parameters": parameters});
            assert_eq!(old_config, good(make(&new)), "{scaling}");
            assert_eq!(old_config.rope.theta, 5e5);
            let nested = json!({"rope_theta": "-", "rope_scaling": "-", "rope_parameters":
                {"full_attention": parameters, "sliding_attention": parameters}});
            assert_eq!(old_config, good(make(&nested)), "{scaling}");
            let both = json!({"rope_theta": 5e5, "rope_scaling": scaling,
                              "rope_parameters": parameters});
            assert_eq!(old_config, good(make(&both)), "{scaling}");
        }
    }
}

#[test]
fn the_theta_inside_wins_over_the_one_outside() {
    let inside = json!({"rope_theta": 1e4, "rope_parameters": {"rope_theta": 1e6}});
    assert_eq!(good(llama(&inside)).rope.theta, 1e6);
    let outside = json!({"rope_theta": 1e6, "rope_parameters": {"rope_type": "default"}});
    assert_eq!(good(llama(&outside)).rope.theta, 1e6);
    assert_eq!(good(llama(&json!({"rope_theta": "-"}))).rope.theta, 1e4);
}

#[test]
fn rope_type_wins_over_type() {
    let scaling = json!({"type": "linear", "rope_type": "dynamic", "factor": 2.0});
    let config = good(llama(&json!({"rope_scaling": scaling})));
    assert_eq!(config.rope.scaling, RopeScaling::Dynamic { factor: 2.0, max_positions: 512 });
}

#[test]
fn absent_and_null_fields_mean_the_defaults_of_the_class() {
    let heads = json!({"num_key_value_heads": "-"});
    assert_eq!(good(llama(&heads)).num_kv_heads, 4);
    let many = json!({"num_attention_heads": 32, "num_key_value_heads": "-"});
    assert_eq!(good(mistral(&many)).num_kv_heads, 8);
    assert_eq!(good(qwen2(&many)).num_kv_heads, 32);
    assert_eq!(good(mistral(&json!({"num_key_value_heads": null}))).num_kv_heads, 4);

    let positions = json!({"max_position_embeddings": "-"});
    assert_eq!(good(llama(&positions)).max_position_embeddings, 2048);
    assert_eq!(good(mistral(&positions)).max_position_embeddings, 131072);
    assert_eq!(good(qwen3(&positions)).max_position_embeddings, 32768);

    assert_eq!(good(llama(&json!({}))).head_dim, 16);
    assert_eq!(good(llama(&json!({"head_dim": 40}))).head_dim, 40);
    assert_eq!(good(qwen3(&json!({}))).head_dim, 128);
    assert_eq!(good(qwen3(&json!({"head_dim": null}))).head_dim, 16);
    assert_eq!(good(llama(&json!({"rms_norm_eps": "-"}))).rms_norm_eps, 1e-6);
    assert_eq!(good(llama(&json!({"torch_dtype": "-"}))).dtype, None);
    assert!(good(llama(&json!({"eos_token_id": null}))).eos_ids.is_empty());
    assert_eq!(good(llama(&json!({"eos_token_id": [5, 6]}))).eos_ids, [5, 6]);
}

#[test]
fn biases_and_norms_follow_the_family() {
    let all = Biases { qkv: true, o: true, mlp: true };
    assert_eq!(good(llama(&json!({"attention_bias": true, "mlp_bias": true}))).biases, all);
    let qkv = Biases { qkv: true, o: false, mlp: false };
    assert_eq!(good(qwen2(&json!({}))).biases, qkv);
    assert_eq!(good(qwen2(&json!({"attention_bias": false}))).biases, qkv);
    let attention = Biases { qkv: true, o: true, mlp: false };
    assert_eq!(good(qwen3(&json!({"attention_bias": true}))).biases, attention);
    assert!(good(qwen3(&json!({}))).qk_norm && !good(qwen2(&json!({}))).qk_norm);
}

#[test]
fn sliding_windows_follow_the_family() {
    assert_eq!(good(mistral(&json!({}))).sliding_window, [4096; 3]);
    assert_eq!(good(mistral(&json!({"sliding_window": null}))).sliding_window, [0; 3]);
    assert_eq!(good(mistral(&json!({"sliding_window": 32}))).sliding_window, [32; 3]);

    assert_eq!(good(qwen2(&json!({"sliding_window": 32}))).sliding_window, [0; 3]);
    let used = json!({"use_sliding_window": true, "sliding_window": 32, "max_window_layers": 2});
    assert_eq!(good(qwen2(&used)).sliding_window, [0, 0, 32]);
    let late = json!({"use_sliding_window": true, "sliding_window": 32});
    assert_eq!(good(qwen3(&late)).sliding_window, [0; 3]);
    let typed = json!({"use_sliding_window": true, "sliding_window": 32, "max_window_layers": 0,
        "layer_types": ["full_attention", "sliding_attention", "full_attention"]});
    assert_eq!(good(qwen3(&typed)).sliding_window, [0, 32, 0]);
}

#[test]
fn values_that_change_nothing_are_accepted() {
    let neutral = json!({"quantization_config": null, "partial_rotary_factor": 1.0,
        "logits_scaling": 1, "num_experts": 0, "use_mrope": false, "pretraining_tp": 1,
        "attention_dropout": 0.0, "auto_map": {"AutoModel": "x"}, "hidden_act": "swish"});
    assert_eq!(good(llama(&neutral)), good(llama(&json!({}))));
}

/// As Qwen3-*-FP8, AutoFP8, Meta's FP8 models and llm-compressor have them.
#[test]
fn published_fp8_configurations_are_read() {
    let fp8 = |config: Value| good(qwen3(&json!({"quantization_config": config}))).fp8;
    let qwen3 = json!({"quant_method": "fp8", "fmt": "e4m3", "activation_scheme": "dynamic",
        "weight_block_size": [128, 128], "modules_to_not_convert": ["lm_head"]});
    assert_eq!(fp8(qwen3), Some(Fp8Scales::Block));
    let auto_fp8 = json!({"quant_method": "fp8", "activation_scheme": "static",
        "kv_cache_scheme": "static", "ignored_layers": ["lm_head"]});
    assert_eq!(fp8(auto_fp8), Some(Fp8Scales::Tensor));
    let fbgemm = json!({"quant_method": "fbgemm_fp8", "activation_scale_ub": 1200.0,
        "modules_to_not_convert": []});
    assert_eq!(fp8(fbgemm), Some(Fp8Scales::Channel));
    let compressed = |weights: Value| {
        json!({"quant_method": "compressed-tensors", "format": "float-quantized",
            "quantization_status": "compressed", "global_compression_ratio": 1.5,
            "ignore": ["lm_head", "re:.*gate$"], "kv_cache_scheme": null, "version": "0.12.2",
            "sparsity_config": {}, "transform_config": {},
            "config_groups": {"group_0": {"targets": ["Linear"], "format": "float-quantized",
                "input_activations": {"num_bits": 8, "type": "float", "strategy": "token",
                    "dynamic": true},
                "output_activations": null, "weights": weights}}})
    };
    let weights = |strategy| {
        json!({"num_bits": 8, "type": "float", "strategy": strategy, "symmetric": true,
            "block_structure": [128, 128], "group_size": null, "dynamic": false})
    };
    for (strategy, scales) in [
        ("tensor", Fp8Scales::Tensor),
        ("channel", Fp8Scales::Channel),
        ("block", Fp8Scales::Block),
    ] {
        assert_eq!(fp8(compressed(weights(strategy))), Some(scales));
    }
    assert_eq!(fp8(Value::Null), None);
}

#[test]
fn the_family_can_come_from_model_type_alone() {
    assert_eq!(good(qwen3(&json!({"architectures": "-"}))).family, Family::Qwen3);
    assert_eq!(good(qwen3(&json!({"model_type": "-"}))).family, Family::Qwen3);
}

#[test]
fn yarn_parameters_are_resolved() {
    let yarn = |scaling| match good(llama(&json!({"rope_scaling": scaling}))).rope.scaling {
        RopeScaling::Yarn(yarn) => yarn,
        other => panic!("{other:?}"),
    };
    let plain = yarn(json!({"type": "yarn", "factor": 4.0}));
    assert_eq!((plain.original_max_positions, plain.truncate), (512, true));
    assert_eq!((plain.beta_fast, plain.beta_slow), (32.0, 1.0));
    assert!((plain.attention_factor - (0.1 * 4f64.ln() + 1.0)).abs() < 1e-12);
    let ratio = yarn(json!({"type": "yarn", "factor": null,
                            "original_max_position_embeddings": 64, "beta_fast": 0}));
    assert_eq!((ratio.factor, ratio.beta_fast), (8.0, 32.0));
    let given = yarn(json!({"type": "yarn", "factor": 4.0, "attention_factor": 0.5}));
    assert_eq!(given.attention_factor, 0.5);
}

#[test]
fn the_longest_context_follows_the_scaling() {
    let length = |scaling| good(llama(&json!({"rope_scaling": scaling}))).max_model_len();
    assert_eq!(length(json!(null)), 512);
    assert_eq!(length(json!({"rope_type": "linear", "factor": 2.0})), 1024);
    assert_eq!(length(json!({"rope_type": "dynamic", "factor": 2.0})), 1024);
    let yarn = json!({"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 100});
    assert_eq!(length(yarn), 400);
    let llama3 = json!({"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0,
        "high_freq_factor": 4.0, "original_max_position_embeddings": 64});
    assert_eq!(length(llama3), 512);
}

/// Phi-3.5's spread of the parameters, the first files' names for the type, and the new generation.
#[test]
fn every_spelling_of_phi_s_longrope_means_the_same() {
    let lists = json!({"short_factor": vec![1.25; 6], "long_factor": vec![4.0; 6]});
    let old = |name: &str| {
        let mut scaling = lists.clone();
        scaling["type"] = json!(name);
        let fields = json!({"partial_rotary_factor": 0.75, "original_max_position_embeddings": 64,
                            "rope_scaling": scaling});
        good(phi3(&fields))
    };
    let mut parameters = lists.clone();
    parameters["rope_type"] = json!("longrope");
    parameters["rope_theta"] = json!(10000.0);
    parameters["partial_rotary_factor"] = json!(0.75);
    parameters["original_max_position_embeddings"] = json!(64);
    let new = good(phi3(&json!({"rope_scaling": "-", "rope_theta": "-",
        "original_max_position_embeddings": 64, "rope_parameters": parameters})));
    for name in ["longrope", "su", "yarn"] {
        assert_eq!(old(name), new, "{name}");
    }
    assert_eq!((new.rope.rotary_dim, new.head_dim, new.max_model_len()), (12, 16, 512));
    let RopeScaling::LongRope(rope) = &new.rope.scaling else { panic!("{:?}", new.rope) };
    // sqrt(1 + ln(512 / 64) / ln(64))
    assert!((rope.attention_factor - 1.5f64.sqrt()).abs() < 1e-12);
    assert_eq!((new.rope_switch_len(512), new.rope_switch_len(64)), (64, 0));
}

#[test]
fn experts_stand_in_the_layers_that_the_class_puts_them_in() {
    let config = good(mixtral(&json!({"num_local_experts": 4})));
    let experts = config.experts.expect("experts");
    assert_eq!((experts.num_experts, experts.experts_per_token), (4, 2));
    assert_eq!((experts.intermediate_size, experts.norm_topk_prob), (96, true));
    assert_eq!(experts.sparse_layers, [1, 1, 1]);
    assert_eq!((config.rms_norm_eps, config.rope.theta), (1e-5, 1e4));
    assert_eq!(good(mixtral(&json!({"rope_theta": "-"}))).rope.theta, 1e6);

    let sparse = |changes| good(qwen3_moe(&changes)).experts.map(|e| e.sparse_layers);
    assert_eq!(sparse(json!({})), Some(vec![1, 1, 1]));
    assert_eq!(sparse(json!({"decoder_sparse_step": 2})), Some(vec![0, 1, 0]));
    assert_eq!(sparse(json!({"mlp_only_layers": [0, 9]})), Some(vec![0, 1, 1]));
    assert_eq!(sparse(json!({"num_experts": 0})), None);
    let experts = good(qwen3_moe(&json!({}))).experts.expect("experts");
    assert_eq!((experts.num_experts, experts.experts_per_token), (128, 8));
    assert_eq!((experts.intermediate_size, experts.norm_topk_prob), (768, false));
}
