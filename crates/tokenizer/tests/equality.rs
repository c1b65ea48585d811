//! Token for token what HF `tokenizers` gives, on real vocabularies and on small ones.

#![allow(clippy::unwrap_used)] // in helpers of tests

mod common;

use common::{Random, random_text, samples};
use saccade_tokenizer::{Level, Tokenizer};
use tokenizers::Tokenizer as Reference;

/// Random texts per vocabulary and instruction set; fewer where HF is compiled without
/// optimization.
const TEXTS: usize = if cfg!(debug_assertions) { 1_500 } else { 100_000 };

const SEED: u64 = 20_240_718;

fn agree(reference: &Reference, ours: &[Tokenizer], text: &str, origin: &str) {
    for add_special in [false, true] {
        let expected = reference.encode_fast(text, add_special).unwrap();
        let expected = expected.get_ids();
        for tokenizer in ours {
            let ids = tokenizer.encode(text, add_special);
            assert_eq!(ids, expected, "{origin}: {text:?}");
        }
        if let Some(tokenizer) = ours.last() {
            for skip in [false, true] {
                let text = reference.decode(expected, skip).unwrap();
                assert_eq!(tokenizer.decode(expected, skip), text, "{origin}: {expected:?}");
            }
        }
    }
}

fn levels(json: &str) -> Vec<Tokenizer> {
    let levels = Level::available().into_iter();
    levels.map(|level| Tokenizer::from_json(json).unwrap().with_level(level)).collect()
}

fn all_agree(json: &str) {
    let reference = common::reference(json);
    let ours = levels(json);
    for (index, text) in samples().iter().enumerate() {
        agree(&reference, &ours, text, &format!("sample {index}"));
    }
    let mut random = Random::new(SEED);
    let best = &ours[ours.len() - 1..];
    for index in 0..TEXTS {
        let text = random_text(&mut random);
        // The slower instruction sets see every eighth text.
        let ours = if index % 8 == 0 { ours.as_slice() } else { best };
        agree(&reference, ours, &text, &format!("seed {SEED}, text {index}"));
    }
}

fn fetched_agrees(name: &str) {
    if let Some(path) = common::fetched(name) {
        all_agree(&std::fs::read_to_string(path).unwrap());
    }
}

#[test]
fn the_bundled_vocabulary() {
    all_agree(&std::fs::read_to_string(common::bundled()).unwrap());
}

#[test]
fn llama_3() {
    fetched_agrees("llama3");
}

#[test]
fn qwen_2() {
    fetched_agrees("qwen2");
}

#[test]
fn phi_4() {
    fetched_agrees("phi4");
}

#[test]
fn o200k() {
    fetched_agrees("o200k");
}

#[test]
fn gpt_2() {
    fetched_agrees("gpt2");
}

#[test]
fn tekken() {
    fetched_agrees("tekken");
}

#[test]
fn mistral() {
    fetched_agrees("mistral");
}

#[test]
fn mistral_v3() {
    fetched_agrees("mistral_v3");
}
