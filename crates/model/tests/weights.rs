//! Weights: the reference folders open, and every damage is named by file and tensor.
#![allow(clippy::unwrap_used)] // in helpers of tests

mod common;

use std::collections::{HashMap, HashSet};
use std::path::Path;

use saccade_model::{
    ModelConfig, ModelFolder, OpenOptions, TensorDtype, TensorRole, Weights, expected_tensors,
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
            let scaled = tensor.dtype == TensorDtype::Fp8;
            assert!(scaled || tensor.dtype == stored.into(), "{path:?}");
            assert_eq!((scaled, tensor.scales.is_some()), (tensor.scales.is_some(), scaled));
            let elements = tensor.rows * tensor.cols;
            assert_eq!(tensor.data.len() as u64, elements * tensor.dtype.bytes());
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
        assert_eq!((a.role, a.layer, a.dtype), (b.role, b.layer, TensorDtype::F32));
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
    let words = [UP, "has dtype F8_E4M3, but config.json has no quantization_config"];
    model.write_single().refused(&words);

    let mut model = Model::new(false);
    model.remove(UP);
    model.write_single().refused(&["model.safetensors: ", UP, "is missing"]);
}

const UP_SCALE: &str = "model.layers.0.mlp.up_proj.weight_scale";

/// A model whose up projection, `[6, 8]`, is in e4m3.
fn scaled(method: &Value, suffix: &str, shape: &[u64], dtype: StoredDtype) -> Model {
    let mut model = Model::new(false);
    model.config["quantization_config"] = method.clone();
    model.tensor_mut(UP).2 = StoredDtype::F8_E4M3;
    model.tensors.push((format!("{UP}{suffix}"), shape.to_vec(), dtype));
    model
}

fn block_method() -> Value {
    json!({"quant_method": "fp8", "weight_block_size": [128, 128]})
}

fn compressed_method(strategy: &str) -> Value {
    json!({
        "quant_method": "compressed-tensors", "format": "float-quantized",
        "config_groups": {"group_0": {
            "targets": ["Linear"],
            "weights": {"num_bits": 8, "type": "float", "strategy": strategy},
        }},
    })
}

#[test]
fn scales_are_found_in_every_published_form() {
    let tensor = json!({"quant_method": "fp8", "activation_scheme": "static"});
    let channel = json!({"quant_method": "fbgemm_fp8"});
    let forms: [(Value, &str, &[u64]); 8] = [
        (block_method(), "_scale_inv", &[1, 1]),
        (tensor.clone(), "_scale", &[]),
        (tensor.clone(), "_scale", &[1]),
        (tensor, "_scale_inv", &[1]),
        (channel, "_scale", &[6, 1]),
        (compressed_method("channel"), "_scale", &[6, 1]),
        (compressed_method("channel"), "_scale", &[6]),
        (compressed_method("tensor"), "_scale", &[1]),
    ];
    for (method, suffix, shape) in forms {
        for dtype in [StoredDtype::F32, StoredDtype::BF16] {
            let mut model = scaled(&method, suffix, shape, dtype);
            // Of activations and KV: not a surprise, nor in use.
            for other in ["mlp.up_proj.input_scale", "self_attn.k_scale"] {
                let name = format!("model.layers.0.{other}");
                model.tensors.push((name, vec![1], StoredDtype::F32));
            }
            let weights = model.write_single().open().unwrap();
            assert_eq!(weights.unexpected(), [""; 0], "{method}");
            let up = weights.iter().find(|t| t.role == TensorRole::Up).unwrap();
            assert_eq!((up.dtype, up.data.len()), (TensorDtype::Fp8, 48));
            let scales = up.scales.unwrap().expand(up.rows, up.cols);
            // File i holds bytes i.
            let byte = model.tensors.iter().position(|t| t.0.contains("up_proj.weight_scale"));
            let value = f32::from_le_bytes([byte.unwrap() as u8; 4]);
            let value = if dtype == StoredDtype::F32 { value } else { truncated(value) };
            assert_eq!(scales, [value; 6], "{method} {dtype:?}");
            assert!(
                weights.iter().filter(|t| t.role != TensorRole::Up).all(|t| t.scales.is_none())
            );
            assert_eq!(weights.fp8_roles(), [1 << TensorRole::Up.code()]);
        }
    }
    let plain = Model::new(false);
    assert_eq!(plain.write_single().open().unwrap().fp8_roles(), [0]);
}

fn truncated(value: f32) -> f32 {
    f32::from_bits(value.to_bits() & 0xffff_0000)
}

#[test]
fn scales_of_blocks_meet_their_rows_and_columns() {
    let mut model = Model::new(false);
    model.config["hidden_size"] = json!(140);
    model.config["num_attention_heads"] = json!(10);
    model.config["num_key_value_heads"] = json!(10);
    model.config["intermediate_size"] = json!(300);
    let parsed = saccade_model::parse_config(&model.config.to_string()).unwrap();
    model.tensors = expected_tensors(&parsed)
        .into_iter()
        .map(|tensor| (tensor.name, tensor.shape, StoredDtype::BF16))
        .collect();
    model.config["quantization_config"] = block_method();
    model.tensor_mut(UP).2 = StoredDtype::F8_E4M3;
    model.tensors.push((format!("{UP}_scale_inv"), vec![3, 2], StoredDtype::F32));
    let mut bytes = model.file(|_| true);
    // The scales are filled with the number of their tensor: the last one's bytes occur once.
    let filler = vec![model.tensors.len() as u8 - 1; 24];
    let at = bytes.windows(24).position(|window| window == filler).unwrap();
    for i in 0..6u8 {
        let scale = f32::from(i) + 0.5;
        bytes[at + 4 * usize::from(i)..][..4].copy_from_slice(&scale.to_le_bytes());
    }
    model.write("model.safetensors", &bytes);
    let weights = model.open().unwrap();
    let up = weights.iter().find(|t| t.role == TensorRole::Up).unwrap();
    let scales = up.scales.unwrap().expand(up.rows, up.cols);
    let expected: Vec<f32> = (0..300_u16)
        .flat_map(|row| [0, 1].map(|group| f32::from(row / 128 * 2 + group) + 0.5))
        .collect();
    assert_eq!(scales, expected);
}

#[test]
fn wrong_scales_are_named() {
    let mut model = scaled(&block_method(), "_scale_inv", &[1, 1], StoredDtype::F32);
    model.remove(&format!("{UP}_scale_inv"));
    let words = [UP, "has dtype F8_E4M3, but neither", "up_proj.weight_scale nor", "_scale_inv"];
    model.write_single().refused(&words);

    let model = scaled(&block_method(), "_scale", &[6, 1], StoredDtype::F32);
    model.write_single().refused(&[UP_SCALE, "has shape [6, 1], expected [1, 1]"]);
    let model = scaled(&compressed_method("channel"), "_scale", &[1], StoredDtype::F32);
    model.write_single().refused(&[UP_SCALE, "has shape [1], expected [6, 1] or [6]"]);
    let model = scaled(&compressed_method("tensor"), "_scale", &[6], StoredDtype::F32);
    model.write_single().refused(&[UP_SCALE, "has shape [6], expected [1] or [] or [1, 1]"]);
    let model = scaled(&block_method(), "_scale", &[1, 1], StoredDtype::F16);
    model.write_single().refused(&[UP_SCALE, "has dtype F16, expected F32 or BF16"]);

    let mut model = scaled(&block_method(), "_scale", &[1, 1], StoredDtype::F32);
    model.tensor_mut(UP).2 = StoredDtype::F8_E5M2;
    model.write_single().refused(&[UP, "has dtype F8_E5M2, expected F32, BF16, F16 or F8_E4M3"]);
    let mut model = scaled(&block_method(), "_scale", &[1, 1], StoredDtype::F32);
    model.tensor_mut("model.norm.weight").2 = StoredDtype::F8_E4M3;
    model.write_single().refused(&["model.norm.weight", "is a vector with dtype F8_E4M3"]);
}

#[test]
fn a_changed_scale_is_another_model() {
    let model = scaled(&block_method(), "_scale", &[1, 1], StoredDtype::F32);
    let seen = |model: &Model| {
        let weights = model.open().unwrap();
        let (mut identity, mut all) = (Vec::new(), Vec::new());
        weights.identify(|bytes| identity.extend_from_slice(bytes)).unwrap();
        weights.read_all(|bytes| all.extend_from_slice(bytes));
        (identity, all)
    };
    let path = model.dir.path().join("model.safetensors");
    let before = seen(model.write_single());
    let modified = std::fs::metadata(&path).unwrap().modified().unwrap();
    let mut bytes = std::fs::read(&path).unwrap();
    let filler = [model.tensors.len() as u8 - 1; 4];
    let at = bytes.windows(4).position(|window| window == filler).unwrap();
    bytes[at] ^= 1;
    std::fs::write(&path, bytes).unwrap();
    std::fs::File::options().write(true).open(&path).unwrap().set_modified(modified).unwrap();
    let after = seen(&model);
    assert!(before.0 != after.0, "its identity");
    assert!(before.1 != after.1, "all that it holds");
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
