//! Folders: how models are found, and what the smaller files say.
#![allow(clippy::unwrap_used)] // in helpers of tests

mod common;

use saccade_model::{Dtype, DtypeChoice, ModelFolder, OpenOptions, parse_generation_config};
use serde_json::{Value, json};

fn folder(files: &[(&str, &str)]) -> (tempfile::TempDir, ModelFolder) {
    let dir = tempfile::tempdir().unwrap();
    let config = Value::Object(common::llama(&json!({}))).to_string();
    std::fs::write(dir.path().join("config.json"), config).unwrap();
    for (name, text) in files {
        std::fs::write(dir.path().join(name), text).unwrap();
    }
    let folder = ModelFolder::open(dir.path().to_str().unwrap(), &OpenOptions::default()).unwrap();
    (dir, folder)
}

#[track_caller]
fn not_found(model: &str, words: &str) {
    let error = ModelFolder::open(model, &OpenOptions::default()).unwrap_err().to_string();
    assert!(error.contains(words) && error.contains(model), "{error}");
}

#[test]
fn what_is_neither_directory_nor_id_is_refused_without_the_network() {
    for model in ["./no/such", "/no/such/dir", "a/b/c", "../x", "", "-x", "a b", "a/", "a/..", "é"]
    {
        not_found(model, "neither a directory nor a hub id");
    }
    let (dir, _) = folder(&[]);
    let file = dir.path().join("config.json");
    not_found(file.to_str().unwrap(), "is a file");
    let empty = tempfile::tempdir().unwrap();
    not_found(empty.path().to_str().unwrap(), "has no config.json");
}

#[test]
fn paths_are_of_files_that_exist() {
    let (dir, bare) = folder(&[]);
    assert_eq!(bare.root(), dir.path());
    assert_eq!(bare.config_path(), dir.path().join("config.json"));
    assert_eq!((bare.tokenizer_path(), bare.tokenizer_config_path()), (None, None));
    assert_eq!((bare.generation_config_path(), bare.chat_template_path()), (None, None));
    let (dir, full) = folder(&[("tokenizer.json", "{}"), ("chat_template.jinja", "")]);
    assert_eq!(full.tokenizer_path(), Some(dir.path().join("tokenizer.json")));
    assert_eq!(full.chat_template_path(), Some(dir.path().join("chat_template.jinja")));
}

#[test]
fn end_of_sequence_ids_of_the_generation_config_win() {
    let eos = |text: &str| folder(&[("generation_config.json", text)]).1.config().unwrap().eos_ids;
    assert_eq!(folder(&[]).1.config().unwrap().eos_ids, [2]);
    assert_eq!(eos(r#"{"eos_token_id": [7, 8]}"#), [7, 8]);
    assert_eq!(eos(r#"{"eos_token_id": 9}"#), [9]);
    assert_eq!(eos("{}"), [2]);
    let (_dir, bad) = folder(&[("generation_config.json", r#"{"eos_token_id": 300}"#)]);
    let error = bad.config().unwrap_err().to_string();
    assert!(error.contains("generation_config.json: eos_token_id is 300"), "{error}");
}

#[test]
fn sampling_defaults_are_read() {
    let text = json!({"temperature": 0.6, "top_p": 0.95, "top_k": 20, "min_p": 0, "do_sample": true,
        "repetition_penalty": 1.05, "max_new_tokens": 100, "num_beams": 4, "typical_p": 1.0,
        "suppress_tokens": [1]});
    let config = parse_generation_config(&text.to_string()).unwrap();
    assert_eq!((config.temperature, config.top_p), (Some(0.6), Some(0.95)));
    assert_eq!((config.top_k, config.min_p), (Some(20), Some(0.0)));
    assert_eq!((config.repetition_penalty, config.max_new_tokens), (Some(1.05), Some(100)));
    assert_eq!(config.ignored, ["num_beams=4", "suppress_tokens=[1]"]);
    let (_dir, bare) = folder(&[]);
    assert_eq!(bare.generation_config().unwrap(), Default::default());
}

#[test]
fn chat_templates_come_from_field_or_file() {
    let field = json!({"chat_template": "field", "bos_token": "<s>",
        "eos_token": {"content": "</s>", "special": true}, "pad_token": null});
    let (_dir, one) = folder(&[("tokenizer_config.json", &field.to_string())]);
    let config = one.tokenizer_config().unwrap();
    assert_eq!(config.template(None), Some("field"));
    assert_eq!(
        (config.bos_token.as_deref(), config.eos_token.as_deref()),
        (Some("<s>"), Some("</s>"))
    );
    assert_eq!((config.pad_token, config.unk_token), (None, None));

    let list = json!({"chat_template": [{"name": "default", "template": "a"},
                                        {"name": "tool_use", "template": "b"}]});
    let files = [("tokenizer_config.json", &list.to_string()[..])];
    let (_dir, named) = folder(&files);
    let config = named.tokenizer_config().unwrap();
    assert_eq!((config.template(None), config.template(Some("tool_use"))), (Some("a"), Some("b")));
    assert_eq!(config.template(Some("rag")), None);

    let (_dir, file) = folder(&[files[0], ("chat_template.jinja", "file")]);
    let config = file.tokenizer_config().unwrap();
    assert_eq!(
        (config.template(None), config.template(Some("tool_use"))),
        (Some("file"), Some("b"))
    );

    let (_dir, old) = folder(&[("chat_template.json", r#"{"chat_template": "json"}"#)]);
    assert_eq!(old.tokenizer_config().unwrap().template(None), Some("json"));
    assert_eq!(folder(&[]).1.tokenizer_config().unwrap().template(None), None);
}

#[test]
fn bad_tokenizer_configurations_are_named() {
    let cases = [
        (json!({"chat_template": 3}), "chat_template must be a string or a list"),
        (json!({"chat_template": [{"name": "a"}]}), "chat_template[0] must have"),
        (json!({"bos_token": 1}), "bos_token must be a string or an object"),
    ];
    for (value, words) in cases {
        let (_dir, bad) = folder(&[("tokenizer_config.json", &value.to_string())]);
        let error = bad.tokenizer_config().unwrap_err().to_string();
        assert!(error.contains(&format!("tokenizer_config.json: {words}")), "{error}");
    }
}

#[test]
fn files_have_a_largest_size() {
    let (dir, big) = folder(&[]);
    std::fs::write(dir.path().join("config.json"), vec![b' '; (4 << 20) + 1]).unwrap();
    let error = big.config().unwrap_err().to_string();
    assert_eq!(error, "config.json: is larger than 4194304 bytes");
    std::fs::write(dir.path().join("config.json"), [0xff, 0xfe]).unwrap();
    assert_eq!(big.config().unwrap_err().to_string(), "config.json: is not UTF-8");
}

#[test]
fn dtype_choices_resolve() {
    let parse = |name: &str| name.parse::<DtypeChoice>();
    assert_eq!(parse("auto").unwrap().resolve(Some(Dtype::F32), Some(Dtype::Bf16)), Dtype::F32);
    assert_eq!(parse("auto").unwrap().resolve(None, Some(Dtype::Bf16)), Dtype::Bf16);
    assert_eq!(parse("auto").unwrap().resolve(None, None), Dtype::F32);
    for (name, dtype) in [("bf16", Dtype::Bf16), ("half", Dtype::F16), ("float", Dtype::F32)] {
        assert_eq!(parse(name).unwrap().resolve(Some(Dtype::F32), None), dtype);
    }
    assert!(DtypeChoice::NAMES.iter().all(|name| parse(name).is_ok()));
    assert!(parse("fp8").unwrap_err().contains("auto, bfloat16"));
}

/// A hub cache as the Python client lays it out, opened without network.
#[cfg(feature = "hub")]
#[test]
fn a_cached_hub_model_opens_offline() {
    let cache = tempfile::tempdir().unwrap();
    let commit = "0123456789abcdef0123456789abcdef01234567";
    let model = cache.path().join("models--acme--tiny");
    let snapshot = model.join("snapshots").join(commit);
    std::fs::create_dir_all(&snapshot).unwrap();
    std::fs::create_dir_all(model.join("refs")).unwrap();
    std::fs::write(model.join("refs/main"), commit).unwrap();
    let config = Value::Object(common::qwen3(&json!({}))).to_string();
    std::fs::write(snapshot.join("config.json"), config).unwrap();
    let mut options = OpenOptions {
        cache_dir: Some(cache.path().to_owned()),
        token: Some("hf_secret".to_owned()),
        offline: true,
        ..OpenOptions::default()
    };
    assert!(!format!("{options:?}").contains("hf_secret"));
    let found = ModelFolder::open("acme/tiny", &options).unwrap();
    assert_eq!(found.root(), snapshot);
    options.revision = Some("v2".to_owned());
    let error = ModelFolder::open("acme/tiny", &options).unwrap_err().to_string();
    assert!(error.contains("acme/tiny") && error.contains("not been downloaded"), "{error}");
    options.revision = Some(commit.to_owned());
    assert_eq!(ModelFolder::open("acme/tiny", &options).unwrap(), found);
}
