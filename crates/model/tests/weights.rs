//! Weights: the reference folders open, and every damage is named by file and tensor.
#![allow(clippy::unwrap_used)] // in helpers of tests

mod common;

use std::collections::{HashMap, HashSet};
use std::path::Path;

use saccade_model::{
    Dtype, ModelConfig, ModelFolder, OpenOptions, TensorRole, Weights, expected_tensors,
};
use safetensors::Dtype as StoredDtype;
use safetensors::tensor::TensorView;
use serde_json::{Value, json};

fn open(path: &Path) -> (ModelFolder, ModelConfig) {
    let folder = ModelFolder::open(path.to_str().unwrap(), &OpenOptions::default()).unwrap();
    let config = folder.config().unwrap();
    (folder, config)
}

#[test]
fn every_reference_model_opens() {
    let mut count = 0;
    for entry in std::fs::read_dir(common::reference().join("models")).unwrap() {
        let path = entry.unwrap().path();
        let (folder, config) = open(&path);
        let weights = Weights::open(&folder, &config).unwrap_or_else(|error| panic!("{error}"));
        assert_eq!(weights.unexpected(), [""; 0], "{path:?}");
        assert_eq!(weights.iter().len(), expected_tensors(&config).len());
        let stored = weights.stored_dtype().unwrap();
        assert!(config.dtype.is_none_or(|dtype| dtype == stored), "{path:?}");
        let mut bytes = 0;
        for tensor in weights.iter() {
            assert_eq!(tensor.dtype, stored);
            assert_eq!(tensor.data.len() as u64, tensor.rows * tensor.cols * stored.bytes());
            bytes += tensor.data.len() as u64;
        }
        assert_eq!(bytes, weights.total_bytes());
        let head = weights.iter().any(|tensor| tensor.role == TensorRole::LmHead);
        assert_eq!(head, !config.tie_word_embeddings);
        let unique: HashSet<_> = weights.iter().map(|t| (t.role, t.layer, t.expert)).collect();
        assert_eq!(unique.len(), weights.iter().len());
        count += 1;
    }
    assert!(count >= 17, "only {count} reference models");
}

/// A model of one layer that the tests damage.
struct Model {
    dir: tempfile::TempDir,
    config: Value,
    tensors: Vec<(String, Vec<u64>, StoredDtype)>,
}

impl Model {
    fn new(tied: bool) -> Self {
        let mut config = Value::Object(common::llama(&json!({
            "hidden_size": 8, "intermediate_size": 6, "num_attention_heads": 2,
            "num_key_value_heads": 1, "num_hidden_layers": 1, "vocab_size": 10,
            "torch_dtype": "float32",
        })));
        config["tie_word_embeddings"] = json!(tied);
        let parsed = saccade_model::parse_config(&config.to_string()).unwrap();
        let tensors = expected_tensors(&parsed)
            .into_iter()
            .map(|tensor| (tensor.name, tensor.shape, StoredDtype::F32))
            .collect();
        Self { dir: tempfile::tempdir().unwrap(), config, tensors }
    }

    /// The safetensors file of the tensors that `keep` selects; tensor i is filled with byte i.
    fn file(&self, keep: impl Fn(&str) -> bool) -> Vec<u8> {
        let data: Vec<Vec<u8>> = (self.tensors.iter().enumerate())
            .map(|(i, (_, shape, dtype))| {
                let elements = shape.iter().product::<u64>() as usize;
                vec![i as u8; elements * dtype.bitsize() / 8]
            })
            .collect();
        let views: HashMap<&str, TensorView<'_>> = (self.tensors.iter().zip(&data))
            .filter(|((name, ..), _)| keep(name))
            .map(|((name, shape, dtype), data)| {
                let shape = shape.iter().map(|&n| n as usize).collect();
                (name.as_str(), TensorView::new(*dtype, shape, data).unwrap())
            })
            .collect();
        safetensors::serialize(views, None).unwrap()
    }

    fn write(&self, name: &str, bytes: &[u8]) {
        std::fs::write(self.dir.path().join(name), bytes).unwrap();
    }

    fn write_single(&self) -> &Self {
        self.write("model.safetensors", &self.file(|_| true));
        self
    }

    fn index(&self, shard_of: impl Fn(&str) -> String) -> Value {
        let map: serde_json::Map<_, _> =
            (self.tensors.iter()).map(|(name, ..)| (name.clone(), json!(shard_of(name)))).collect();
        json!({"metadata": {"total_size": 1}, "weight_map": map})
    }

    fn open(&self) -> saccade_model::Result<Weights> {
        self.write("config.json", self.config.to_string().as_bytes());
        let (folder, config) = open(self.dir.path());
        Weights::open(&folder, &config)
    }

    #[track_caller]
    fn refused(&self, words: &[&str]) {
        let error = match self.open() {
            Ok(_) => panic!("accepted"),
            Err(error) => error.to_string(),
        };
        for word in words {
            assert!(error.contains(word), "{error:?} lacks {word:?}");
        }
    }

    fn tensor_mut(&mut self, name: &str) -> &mut (String, Vec<u64>, StoredDtype) {
        self.tensors.iter_mut().find(|tensor| tensor.0 == name).unwrap()
    }

    fn remove(&mut self, name: &str) {
        self.tensors.retain(|tensor| tensor.0 != name);
    }
}

const UP: &str = "model.layers.0.mlp.up_proj.weight";
const INDEX: &str = "model.safetensors.index.json";

#[test]
fn one_file_and_shards_hold_the_same() {
    let single = Model::new(false);
    let from_single = single.write_single().open().unwrap();
    let sharded = Model::new(false);
    let shard_of = |name: &str| match name.contains("mlp") {
        true => "model-00002-of-00002.safetensors".to_owned(),
        false => "model-00001-of-00002.safetensors".to_owned(),
    };
    for shard in ["model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors"] {
        sharded.write(shard, &sharded.file(|name| shard_of(name) == shard));
    }
    sharded.write(INDEX, sharded.index(shard_of).to_string().as_bytes());
    let from_shards = sharded.open().unwrap();
    assert_eq!(from_single.total_bytes(), from_shards.total_bytes());
    for ((i, a), b) in from_single.iter().enumerate().zip(from_shards.iter()) {
        assert_eq!((a.role, a.layer, a.dtype), (b.role, b.layer, Dtype::F32));
        assert_eq!((a.rows, a.cols), (b.rows, b.cols));
        assert!(a.data == b.data && a.data.iter().all(|&byte| byte == i as u8));
    }
    let roles: Vec<_> = from_single.iter().map(|tensor| tensor.role).take(3).collect();
    assert_eq!(roles, [TensorRole::Embed, TensorRole::FinalNorm, TensorRole::LmHead]);
}

/// As Qwen3-Embedding is: its tied head is nowhere.
#[test]
fn a_decoder_saved_without_its_head_is_the_same_model() {
    let whole = Model::new(true);
    whole.write_single();
    let mut bare = Model::new(true);
    for (name, ..) in &mut bare.tensors {
        *name = name.strip_prefix("model.").unwrap().to_owned();
    }
    let sharded = |m: &Model| {
        let of = |name: &str| if name.starts_with("layers") { "b" } else { "a" };
        for shard in ["a", "b"] {
            m.write(&format!("{shard}.safetensors"), &m.file(|name| of(name) == shard));
        }
        let index = m.index(|name| format!("{}.safetensors", of(name)));
        m.write(INDEX, index.to_string().as_bytes());
    };
    let read = |m: &Model| -> Vec<_> {
        let weights = m.open().unwrap();
        assert_eq!(weights.unexpected(), [""; 0]);
        weights.iter().map(|t| (t.role, t.layer, t.data.to_vec())).collect()
    };
    let expected = read(&whole);
    sharded(&bare);
    assert!(read(&bare) == expected, "in shards");
    bare.write_single();
    assert!(read(&bare) == expected, "in one file");
    bare.remove("norm.weight");
    bare.write_single();
    bare.refused(&["model.norm.weight", "missing"]);
}

#[test]
fn wrong_tensors_are_named() {
    let mut model = Model::new(false);
    model.tensor_mut(UP).1 = vec![7, 8];
    model.write_single().refused(&["model.safetensors: ", UP, "has shape [7, 8], expected [6, 8]"]);

    let mut model = Model::new(false);
    model.tensor_mut(UP).1 = vec![48];
    model.write_single().refused(&[UP, "has shape [48], expected [6, 8]"]);

    let mut model = Model::new(false);
    model.tensor_mut(UP).2 = StoredDtype::F8_E4M3;
    model.write_single().refused(&[UP, "has dtype F8_E4M3, expected F32, BF16 or F16"]);

    let mut model = Model::new(false);
    model.remove(UP);
    model.write_single().refused(&["model.safetensors: ", UP, "is missing"]);
}

#[test]
fn a_missing_output_projection_names_both_files() {
    let mut model = Model::new(false);
    model.remove("lm_head.weight");
    let words =
        ["model.safetensors: ", "lm_head.weight", "config.json", "tie_word_embeddings=false"];
    model.write_single().refused(&words);
}

#[test]
fn a_tied_checkpoint_may_hold_either_copy_or_equal_ones() {
    let head = || ("lm_head.weight".to_owned(), vec![10, 8], StoredDtype::F32);
    let mut other_name = Model::new(true);
    other_name.remove("model.embed_tokens.weight");
    other_name.tensors.insert(0, head());
    let weights = other_name.write_single().open().unwrap();
    assert_eq!(weights.iter().next().unwrap().role, TensorRole::Embed);

    // Fill bytes differ from tensor to tensor, so these two copies do.
    let mut unequal = Model::new(true);
    unequal.tensors.push(head());
    unequal.write_single().refused(&["lm_head.weight", "differs", "tie_word_embeddings=true"]);

    let equal = Model::new(true);
    let zeros = vec![0u8; 10 * 8 * 4];
    let views = equal.tensors.iter().map(|(name, shape, dtype)| {
        let shape: Vec<usize> = shape.iter().map(|&n| n as usize).collect();
        let bytes = shape.iter().product::<usize>() * 4;
        (name.as_str(), TensorView::new(*dtype, shape, &zeros[..bytes]).unwrap())
    });
    let head = TensorView::new(StoredDtype::F32, vec![10, 8], &zeros).unwrap();
    let file = safetensors::serialize(views.chain([("lm_head.weight", head)]), None).unwrap();
    equal.write("model.safetensors", &file);
    assert!(equal.open().unwrap().unexpected().is_empty());
}

#[test]
fn tensors_that_nobody_needs_are_listed() {
    let mut model = Model::new(false);
    for name in ["model.layers.0.self_attn.q_proj.bias", "model.layers.0.x.rotary_emb.inv_freq"] {
        model.tensors.push((name.to_owned(), vec![8], StoredDtype::I64));
    }
    let weights = model.write_single().open().unwrap();
    assert_eq!(weights.unexpected(), ["model.layers.0.self_attn.q_proj.bias"]);
}

#[test]
fn scales_of_kv_are_found_under_each_name_and_must_be_numbers() {
    const LAYER: &str = "model.layers.0.self_attn";
    // Tensor i is filled with byte i.
    let with = |tensors: &[(&str, Vec<u64>, StoredDtype)]| {
        let mut model = Model::new(false);
        let first = model.tensors.len() as u8;
        let named = |(name, shape, dtype): &(&str, Vec<u64>, StoredDtype)| {
            (format!("{LAYER}.{name}"), shape.clone(), *dtype)
        };
        model.tensors.extend(tensors.iter().map(named));
        let weights = model.write_single().open().unwrap();
        assert_eq!(weights.unexpected(), [""; 0]);
        (weights.kv_scales(1).map_err(|error| error.to_string()), first)
    };
    let f32_of = |byte: u8| f32::from_le_bytes([byte; 4]);
    let (f32, bf16, f16) = (StoredDtype::F32, StoredDtype::BF16, StoredDtype::F16);
    assert_eq!(with(&[]).0, Ok(Vec::new()));
    let (both, i) = with(&[("k_scale", vec![1], f32), ("v_scale", vec![], bf16)]);
    let bf16_of = |byte: u8| f32::from_le_bytes([0, 0, byte, byte]);
    assert_eq!(both, Ok(vec![[f32_of(i), bf16_of(i + 1)]]));
    let (one, i) = with(&[("v_proj.v_scale", vec![1, 1], f32)]);
    assert_eq!(one, Ok(vec![[1.0, f32_of(i)]]));
    let (half, i) = with(&[("k_proj.output_scale", vec![1], f16)]);
    let bits = u16::from(i) << 8 | u16::from(i);
    let (exponent, fraction) = (i32::from(bits >> 10), f32::from(1024 | bits & 0x3ff));
    assert_eq!(half, Ok(vec![[fraction * 2f32.powi(exponent - 25), 1.0]]));
    let (wide, _) = with(&[("k_scale", vec![2], f32)]);
    let wide = wide.unwrap_err();
    assert!(wide.contains("self_attn.k_scale") && wide.contains("F32 [2]"), "{wide}");

    let mut zero = Model::new(false);
    zero.tensors.insert(0, (format!("{LAYER}.k_scale"), vec![1], f32));
    let error = zero.write_single().open().unwrap().kv_scales(1).unwrap_err().to_string();
    assert!(error.contains("self_attn.k_scale") && error.contains("above 0"), "{error}");
}

#[test]
fn an_index_cannot_leave_the_folder_or_lie() {
    let names = [
        "../model.safetensors",
        "/etc/x.safetensors",
        "a/b.safetensors",
        "..safetensors",
        "a\\b.safetensors",
        "pytorch_model.bin",
        "",
        "nul\0.safetensors",
    ];
    for name in names {
        let model = Model::new(false);
        model.write(INDEX, model.index(|_| name.to_owned()).to_string().as_bytes());
        model.refused(&["model.safetensors.index.json: weight_map.", "must be the name of"]);
    }
    let model = Model::new(false);
    model.write("part.safetensors", &model.file(|name| name != UP));
    model.write(INDEX, model.index(|_| "part.safetensors".to_owned()).to_string().as_bytes());
    model.refused(&["part.safetensors: ", UP, "is not there"]);

    model.write(INDEX, model.index(|_| "absent.safetensors".to_owned()).to_string().as_bytes());
    model.refused(&["absent.safetensors", "No such file"]);

    for index in
        ["{}", "{\"weight_map\": []}", "{\"weight_map\": {}}", "{\"weight_map\": {\"a\": 1}}"]
    {
        model.write(INDEX, index.as_bytes());
        model.refused(&["model.safetensors.index.json: weight_map"]);
    }
}

#[test]
fn damaged_headers_are_refused() {
    let model = Model::new(false);
    let good = model.file(|_| true);
    let header_bytes = u64::from_le_bytes(good[..8].try_into().unwrap()) as usize;
    let check = |bytes: &[u8]| {
        model.write("model.safetensors", bytes);
        model.refused(&["model.safetensors: is not valid safetensors"]);
    };
    for len in [0, 4, 8, 8 + header_bytes / 2, 8 + header_bytes, good.len() - 1] {
        check(&good[..len]);
    }
    check(&[&good[..], &[0]].concat());
    for lie in [0u64, 1, header_bytes as u64 + 1, 100_000_001, u64::MAX - 7, u64::MAX] {
        let mut bytes = good.clone();
        bytes[..8].copy_from_slice(&lie.to_le_bytes());
        check(&bytes);
    }
    let headers = [
        r#"{"a":{"dtype":"F32","shape":[1],"data_offsets":[0,8]}}"#,
        r#"{"a":{"dtype":"F32","shape":[2],"data_offsets":[8,0]}}"#,
        r#"{"a":{"dtype":"F32","shape":[2],"data_offsets":[4,12]}}"#,
        r#"{"a":{"dtype":"F32","shape":[4611686018427387904,4],"data_offsets":[0,8]}}"#,
        r#"{"a":{"dtype":"F32","shape":[2],"data_offsets":[0,18446744073709551615]}}"#,
        r#"{"a":{"dtype":"F99","shape":[2],"data_offsets":[0,8]}}"#,
        r#"{"a":{"dtype":"F32","shape":[-2],"data_offsets":[0,8]}}"#,
        r#"{"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]},
            "b":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}}"#,
        r#"[]"#,
    ];
    for header in headers {
        let length = (header.len() as u64).to_le_bytes();
        check(&[&length[..], header.as_bytes(), &[0; 8]].concat());
    }
}

#[test]
fn pickles_are_never_loaded() {
    let model = Model::new(false);
    model.refused(&["model.safetensors: is missing"]);
    model.write("pytorch_model.bin", b"\x80\x02.");
    model.refused(&["model.safetensors: is missing", "pickled weights are never loaded"]);
}
