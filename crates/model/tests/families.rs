//! docs/families.md, from the families of the code and the reference models that are held against
//! Hugging Face transformers.
#![allow(clippy::unwrap_used)] // in helpers of tests

mod common;

use std::fmt::Write;

use saccade_model::{Family, Fp8Scales, ModelConfig, RopeScaling, parse_config};

fn scaling_name(config: &ModelConfig) -> &'static str {
    match config.rope.scaling {
        RopeScaling::Default => "default",
        RopeScaling::Linear { .. } => "linear",
        RopeScaling::Dynamic { .. } => "dynamic",
        RopeScaling::Yarn(_) => "yarn",
        RopeScaling::Proportional { .. } => "proportional",
        RopeScaling::LongRope(_) => "longrope",
        RopeScaling::Llama3 { .. } => "llama3",
    }
}

/// What one reference model has in addition to the plain decoder.
fn features(config: &ModelConfig) -> Vec<String> {
    let mut list = vec![format!("{} rope", scaling_name(config))];
    if config.rope.rotary_dim < config.head_dim {
        list.push(format!("{} of {} elements rotate", config.rope.rotary_dim, config.head_dim));
    }
    match config.sliding_window.iter().filter(|window| **window > 0).count() {
        0 => {}
        n if n == config.sliding_window.len() => list.push("window on all layers".into()),
        _ => list.push("window on some layers".into()),
    }
    if config.qk_norm {
        list.push("q and k norms".into());
    }
    for (has, what) in [(config.biases.qkv, "q, k, v"), (config.biases.mlp, "MLP")] {
        if has {
            list.push(format!("{what} biases"));
        }
    }
    if let Some(experts) = &config.experts {
        let sparse = experts.sparse_layers.iter().sum::<u32>();
        let normed = if experts.norm_topk_prob { ", normed" } else { "" };
        let (top, all) = (experts.experts_per_token, experts.num_experts);
        let layers = config.num_layers;
        list.push(format!("top {top} of {all} experts{normed}, in {sparse} of {layers} layers"));
    }
    if config.tie_word_embeddings {
        list.push("tied".into());
    }
    if let Some(scales) = config.fp8 {
        let of = match scales {
            Fp8Scales::Tensor => "matrices",
            Fp8Scales::Channel => "outputs",
            Fp8Scales::Block => "blocks",
        };
        list.push(format!("FP8, scales of {of}"));
    }
    list
}

fn reference_models() -> Vec<(String, ModelConfig)> {
    let entries = std::fs::read_dir(common::reference().join("models")).unwrap();
    let mut models: Vec<_> = entries
        .map(|entry| {
            let path = entry.unwrap().path();
            let text = std::fs::read_to_string(path.join("config.json")).unwrap();
            let name = path.file_name().unwrap().to_str().unwrap().to_owned();
            (name, parse_config(&text).unwrap())
        })
        .collect();
    models.sort_by(|a, b| a.0.cmp(&b.0));
    models
}

fn page() -> String {
    let mut text = String::from(
        "# Families\n\nGenerated from the code by a test; `UPDATE_DOCS=1 cargo test -p \
         saccade-model` regenerates it.\n\nFiles of transformers 4 and 5 mean the same. What is \
         not supported is refused by the name of its field. Each reference is a small random model \
         whose log probabilities and greedy tokens Hugging Face transformers computed \
         ([tests/reference](../tests/reference/README.md)).\n",
    );
    let models = reference_models();
    for family in Family::ALL {
        write!(
            text,
            "\n## {}\n\n| reference | what it has | type |\n|---|---|---|\n",
            family.architecture()
        )
        .unwrap();
        let mut count = 0;
        for (name, config) in models.iter().filter(|(_, config)| config.family == family) {
            let dtype = config.dtype.map_or_else(|| "as stored".into(), |d| d.to_string());
            writeln!(text, "| `{name}` | {} | {dtype} |", features(config).join("; ")).unwrap();
            count += 1;
        }
        assert!(count > 0, "{} has no reference model", family.architecture());
    }
    text
}

#[test]
fn the_page_matches_the_code() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/families.md");
    let text = page();
    if std::env::var_os("UPDATE_DOCS").is_some() {
        std::fs::write(path, &text).unwrap();
    }
    let written = std::fs::read_to_string(path).unwrap_or_default();
    assert!(
        written == text,
        "docs/families.md is stale: UPDATE_DOCS=1 cargo test -p saccade-model"
    );
}
