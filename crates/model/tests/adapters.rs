//! Adapters: those of the reference set open, and whatever would change a result and is not
//! implemented is refused by file and field or tensor.
#![allow(clippy::unwrap_used)] // in helpers of tests

mod common;

use std::path::Path;

use saccade_model::{
    Adapter, AdapterConfig, Dtype, ModelConfig, ModelFolder, OpenOptions, TensorRole,
};
use safetensors::Dtype as StoredDtype;
use safetensors::tensor::TensorView;
use serde_json::{Value, json};

const LAYER: &str = "base_model.model.model.layers";

fn model(name: &str) -> ModelConfig {
    let path = common::reference().join("models").join(name);
    let folder = ModelFolder::open(path.to_str().unwrap(), &OpenOptions::default()).unwrap();
    folder.config().unwrap()
}

/// An adapter of a model with a hidden size of 64 and 4 heads of 16, which the tests damage.
struct Draft {
    config: Value,
    tensors: Vec<(String, Vec<usize>, StoredDtype, Vec<u8>)>,
}

impl Draft {
    fn new() -> Self {
        let config = json!({"peft_type": "LORA", "r": 4, "lora_alpha": 8, "bias": "none",
            "target_modules": ["q_proj", "o_proj", "down_proj"], "task_type": "CAUSAL_LM"});
        let mut draft = Self { config, tensors: Vec::new() };
        draft.add("0.self_attn.q_proj", 4, [64, 64]);
        draft.add("1.mlp.down_proj", 4, [44, 64]);
        draft
    }

    /// A and B of a module; `shape` is inputs and outputs.
    fn add(&mut self, module: &str, rank: usize, shape: [usize; 2]) {
        self.push(&format!("{LAYER}.{module}.lora_A.weight"), vec![rank, shape[0]]);
        self.push(&format!("{LAYER}.{module}.lora_B.weight"), vec![shape[1], rank]);
    }

    fn push(&mut self, name: &str, shape: Vec<usize>) {
        let count: usize = shape.iter().product();
        let data = (0..count).flat_map(|i| (i as f32).to_le_bytes()).collect();
        self.tensors.push((name.to_owned(), shape, StoredDtype::F32, data));
    }

    fn set(mut self, field: &str, value: Value) -> Self {
        self.config[field] = value;
        self
    }

    fn write(&self, dir: &Path) {
        std::fs::write(dir.join("adapter_config.json"), self.config.to_string()).unwrap();
        let views = self.tensors.iter().map(|(name, shape, dtype, data)| {
            (name.clone(), TensorView::new(*dtype, shape.clone(), data).unwrap())
        });
        let bytes = safetensors::serialize(views, None).unwrap();
        std::fs::write(dir.join("adapter_model.safetensors"), bytes).unwrap();
    }

    fn open(&self) -> saccade_model::Result<Adapter> {
        let dir = tempfile::tempdir().unwrap();
        self.write(dir.path());
        Adapter::open(dir.path(), &model("llama-plain-v4"), 16)
    }

    fn refusal(&self) -> String {
        self.open().err().expect("refused").to_string()
    }

    fn refuses(self, parts: &[&str]) {
        let said = self.refusal();
        for part in parts {
            assert!(said.contains(part), "{said}: {part}");
        }
    }
}

#[test]
fn the_adapters_of_the_reference_set_open() {
    let mut count = 0;
    for entry in std::fs::read_dir(common::reference().join("lora")).unwrap() {
        let path = entry.unwrap().path();
        if !path.is_dir() {
            continue;
        }
        let of = std::fs::read_to_string(path.with_extension("json")).unwrap();
        let of: Value = serde_json::from_str(&of).unwrap();
        let adapter = Adapter::open(&path, &model(of["model"].as_str().unwrap()), 64)
            .unwrap_or_else(|error| panic!("{path:?}: {error}"));
        for pair in adapter.iter() {
            let elements = u64::from(pair.rank) * pair.inputs;
            assert_eq!(pair.a.data.len() as u64, elements * pair.a.dtype.bytes(), "{path:?}");
            let elements = u64::from(pair.rank) * pair.outputs;
            assert_eq!(pair.b.data.len() as u64, elements * pair.b.dtype.bytes(), "{path:?}");
        }
        count += 1;
    }
    assert!(count >= 8, "only {count} adapters");
}

#[test]
fn what_is_read_is_what_was_written() {
    let adapter = Draft::new().open().unwrap();
    let pairs: Vec<_> = adapter.iter().collect();
    assert_eq!(pairs.len(), 2);
    let q = pairs.iter().find(|pair| pair.role == TensorRole::Q).unwrap();
    assert_eq!((q.layer, q.rank, q.scaling), (0, 4, 2.0));
    assert_eq!((q.inputs, q.outputs, q.a.dtype), (64, 64, Dtype::F32));
    assert_eq!(q.a.data[4..8], 1.0f32.to_le_bytes());
    let down = pairs.iter().find(|pair| pair.role == TensorRole::Down).unwrap();
    assert_eq!((down.layer, down.inputs, down.outputs), (1, 44, 64));
}

#[test]
fn fused_projections_become_their_parts() {
    let mut draft = Draft::new().set("target_modules", json!(["qkv_proj"])).set("r", json!(2));
    draft.tensors.clear();
    let phi = model("phi3-plain-v4");
    let width = |heads: u32| (heads * phi.head_dim) as usize;
    let (q, kv) = (width(phi.num_heads), width(phi.num_kv_heads));
    draft.add("1.self_attn.qkv_proj", 2, [phi.hidden_size as usize, q + 2 * kv]);
    let dir = tempfile::tempdir().unwrap();
    draft.write(dir.path());
    let adapter = Adapter::open(dir.path(), &phi, 16).unwrap();
    let pairs: Vec<_> = adapter.iter().collect();
    let roles: Vec<_> = pairs.iter().map(|pair| (pair.role, pair.outputs as usize)).collect();
    assert_eq!(roles, [(TensorRole::Q, q), (TensorRole::K, kv), (TensorRole::V, kv)]);
    assert!(pairs.iter().all(|pair| pair.a.data == pairs[0].a.data));
    let first = |at: usize| ((2 * at) as f32).to_le_bytes();
    assert_eq!(pairs[1].b.data[..4], first(q));
    assert_eq!(pairs[2].b.data[..4], first(q + kv));
}

#[test]
fn a_bare_decoder_names_its_layers_without_the_model() {
    let mut draft = Draft::new();
    for (name, ..) in &mut draft.tensors {
        *name = name.replace("model.model.layers", "model.layers");
    }
    assert_eq!(draft.set("task_type", json!("FEATURE_EXTRACTION")).open().unwrap().iter().len(), 2);
}

#[test]
fn ranks_and_scalings_follow_patterns_in_order() {
    let text = json!({"peft_type": "LORA", "r": 4, "lora_alpha": 8,
        "rank_pattern": {"q_proj": 2, "layers.1.*": 16}, "alpha_pattern": {"layers.0.*": 3}});
    let config = AdapterConfig::parse(&text.to_string()).unwrap();
    let of = |module: &str| (config.rank_of(module), config.scaling_of(module));
    assert_eq!(of("model.layers.1.self_attn.q_proj"), (2, 4.0)); // the first that matches
    assert_eq!(of("model.layers.1.self_attn.k_proj"), (16, 0.5));
    assert_eq!(of("model.layers.0.self_attn.k_proj"), (4, 0.75));
    let text = json!({"peft_type": "LORA", "r": 16, "lora_alpha": 8, "use_rslora": true});
    assert_eq!(AdapterConfig::parse(&text.to_string()).unwrap().scaling_of("q_proj"), 2.0);
}

#[test]
fn equal_adapters_have_equal_bytes_and_others_have_others() {
    let bytes = |draft: &Draft| {
        let mut all = Vec::new();
        draft.open().unwrap().read_all(|part| all.extend_from_slice(part));
        all
    };
    let plain = bytes(&Draft::new());
    assert!(plain == bytes(&Draft::new().set("base_model_name_or_path", json!("elsewhere"))));
    assert!(plain != bytes(&Draft::new().set("lora_alpha", json!(9))));
    let mut other = Draft::new();
    other.tensors[1].3[0] ^= 1;
    assert!(plain != bytes(&other));
}

#[test]
fn fields_that_change_the_result_are_refused_by_name() {
    for (field, value) in [
        ("peft_type", json!("IA3")),
        ("task_type", json!("SEQ_CLS")),
        ("bias", json!("lora_only")),
        ("use_dora", json!(true)),
        ("modules_to_save", json!(["lm_head"])),
        ("trainable_token_indices", json!([1])),
        ("lora_bias", json!(true)),
        ("fan_in_fan_out", json!(true)),
        ("megatron_config", json!({"a": 1})),
        ("layer_replication", json!([[0, 1]])),
        ("alora_invocation_tokens", json!([1, 2])),
        ("target_parameters", json!(["experts"])),
        ("use_qalora", json!(true)),
        ("init_lora_weights", json!("pissa")),
        ("init_lora_weights", json!("pissa_niter_4")),
        ("init_lora_weights", json!("olora")),
        ("init_lora_weights", json!("corda")),
        ("init_lora_weights", json!("loftq")),
        ("a_field_of_next_year", json!(1)),
        ("r", json!(0)),
        ("r", json!(513)),
        ("r", json!("8")),
        ("r", Value::Null),
        ("lora_alpha", Value::Null),
        ("lora_alpha", json!(1e9)),
        ("rank_pattern", json!({"q_proj": 0})),
        ("rank_pattern", json!({"(q|k)_proj": 4})),
        ("alpha_pattern", json!({"q_proj": "4"})),
        ("target_modules", json!([1])),
    ] {
        let what = format!("{field} = {value}");
        let said = Draft::new().set(field, value).refusal();
        assert!(
            said.starts_with("adapter_config.json: ") && said.contains(field),
            "{what}: {said}"
        );
    }
}

#[test]
fn fields_without_effect_are_not_in_the_way() {
    for (field, value) in [
        ("init_lora_weights", json!(true)),
        ("init_lora_weights", json!("gaussian")),
        ("lora_dropout", json!(0.1)),
        ("layers_to_transform", json!([0, 1])),
        ("megatron_core", json!("megatron.core")),
        ("loftq_config", json!({})),
        ("use_dora", json!(false)),
        ("modules_to_save", json!([])),
        ("a_field_of_next_year", Value::Null),
        ("target_modules", json!(".*_proj")),
        ("target_modules", json!("all-linear")),
    ] {
        let what = format!("{field} = {value}");
        Draft::new().set(field, value).open().unwrap_or_else(|error| panic!("{what}: {error}"));
    }
}

#[test]
fn tensors_that_do_not_fit_are_refused_by_name() {
    let named = |name: &str, shape: &[usize]| {
        let mut draft = Draft::new();
        draft.push(name, shape.to_vec());
        draft
    };
    for name in ["lm_head.weight", "base_model.model.model.layers.0.self_attn.q_proj.weight"] {
        named(name, &[4, 4]).refuses(&[
            "adapter_model.safetensors: tensor",
            name,
            "not understood",
        ]);
    }
    let lonely = format!("{LAYER}.0.self_attn.o_proj.lora_A.weight");
    named(&lonely, &[4, 64]).refuses(&[&lonely, "has no B beside it"]);
    let lonely = format!("{LAYER}.0.self_attn.o_proj.lora_B.weight");
    named(&lonely, &[64, 4]).refuses(&[&lonely, "has no A beside it"]);
    let with = |module: &str| {
        let mut draft = Draft::new();
        draft.add(module, 4, [64, 64]);
        draft
    };
    with("2.self_attn.o_proj").refuses(&["layers.2.self_attn.o_proj, which the model does not"]);
    with("0.input_layernorm").refuses(&["which takes no adapter"]);
    with("0.mlp.experts.0.up_proj").refuses(&["experts take no adapters"]);
    with("0.self_attn.k_proj").refuses(&["which target_modules does not name"]);
    let mut embed = Draft::new();
    let prefix = "base_model.model.model.embed_tokens";
    embed.push(&format!("{prefix}.lora_A.weight"), vec![4, 272]);
    embed.push(&format!("{prefix}.lora_B.weight"), vec![64, 4]);
    embed.refuses(&["embed_tokens, which takes no adapter"]);
    let changed = |change: fn(&mut Draft)| {
        let mut draft = Draft::new();
        change(&mut draft);
        draft
    };
    changed(|d| d.tensors[0].1 = vec![64, 4]).refuses(&["lora_A", "expected [4, 64]"]);
    changed(|d| d.tensors[1].1 = vec![32, 8]).refuses(&["lora_B", "expected [64, 4]"]);
    changed(|d| {
        d.tensors[0].2 = StoredDtype::I32;
    })
    .refuses(&["dtype I32"]);
    for wrong in [f32::NAN, f32::INFINITY] {
        let mut draft = Draft::new();
        draft.tensors[1].3[..4].copy_from_slice(&wrong.to_le_bytes());
        draft.refuses(&["lora_B", "not finite"]);
    }
    let mut high = Draft::new().set("r", json!(17));
    high.tensors.clear();
    high.add("0.self_attn.q_proj", 17, [64, 64]);
    high.refuses(&["has rank 17, must be at most 16 (--max-lora-rank)"]);
    let mut none = Draft::new();
    none.tensors.clear();
    none.refuses(&["has no tensors"]);
}

#[test]
fn a_folder_without_its_files_is_refused() {
    let options = OpenOptions::default();
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().to_str().unwrap();
    let said = Adapter::locate(path, &options).unwrap_err().to_string();
    assert!(said.contains("has no adapter_config.json"), "{said}");
    Draft::new().write(dir.path());
    assert_eq!(Adapter::locate(path, &options).unwrap(), dir.path());
    std::fs::remove_file(dir.path().join("adapter_model.safetensors")).unwrap();
    std::fs::write(dir.path().join("adapter_model.bin"), b"pickle").unwrap();
    let said = Adapter::open(dir.path(), &model("llama-plain-v4"), 16).err().unwrap().to_string();
    assert!(said.contains("adapter_model.safetensors: is missing"), "{said}");
}
