//! Token for token what HF `tokenizers` gives, on real vocabularies and on small ones.

#![allow(clippy::unwrap_used)] // in helpers of tests

mod common;

use std::num::NonZeroUsize;

use common::{Random, random_text, samples};
use saccade_tokenizer::{Level, Options, Pattern, PromptCache, Tokenizer};
use tokenizers::Tokenizer as Reference;

/// Random texts per vocabulary: as many as `SACCADE_TOKENIZER_TEXTS` says, else few in a debug
/// build.
fn num_texts() -> usize {
    let wanted = std::env::var("SACCADE_TOKENIZER_TEXTS").ok().map(|n| n.parse().unwrap());
    wanted.unwrap_or(if cfg!(debug_assertions) { 400 } else { 100_000 })
}

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

/// Each token lies where HF says.
fn offsets_agree(reference: &Reference, ours: &Tokenizer, text: &str, origin: &str) {
    for add_special in [false, true] {
        let expected = reference.encode(text, add_special).unwrap();
        let expected = expected.get_ids().iter().copied().zip(expected.get_offsets());
        let expected: Vec<_> = expected.map(|(id, &(start, end))| (id, start..end)).collect();
        assert_eq!(ours.encode_offsets(text, add_special), expected, "{origin}: {text:?}");
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
        offsets_agree(&reference, &ours[0], text, &format!("sample {index}"));
    }
    let mut random = Random::new(SEED);
    let best = &ours[ours.len() - 1..];
    for index in 0..num_texts() {
        let text = random_text(&mut random);
        // The slower instruction sets see every eighth text.
        let ours = if index % 8 == 0 { ours.as_slice() } else { best };
        let origin = format!("seed {SEED}, text {index}");
        agree(&reference, ours, &text, &origin);
        if index % 4 == 0 {
            offsets_agree(&reference, &best[0], &text, &origin);
        }
    }
}

/// A long text of everything, with added tokens in it.
fn long_text(random: &mut Random) -> String {
    let samples = samples();
    let mut text = String::new();
    while text.len() < 600_000 {
        text.push_str(&samples[random.below(22)]);
        text.push_str(&random_text(random));
        text.push_str(" and so on with words between letters ");
    }
    text
}

/// Encoding in parts and from the cache gives the same tokens as one thread without a cache.
fn ways_agree(tokenizer: &Tokenizer) {
    let mut random = Random::new(SEED);
    let cache = PromptCache::new(4 << 20);
    for round in 0..3 {
        let text = long_text(&mut random);
        let expected = tokenizer.encode(&text, true);
        for threads in [1, 2, 3, 8] {
            let threads = NonZeroUsize::new(threads).unwrap();
            let ids = tokenizer.encode_parallel(&text, true, threads);
            assert!(ids == expected, "round {round}, {threads} threads");
        }
        for (salt, threads) in [(0, 1), (1, 3), (0, 2)] {
            let threads = NonZeroUsize::new(threads).unwrap();
            let options = Options { add_special: true, threads, cache: Some((&cache, salt)) };
            let ids = tokenizer.encode_with(&text, options);
            assert!(ids == expected, "round {round}, salt {salt}");
        }
    }
    assert!(cache.counters().hits > 0 && cache.counters().misses > 0);
}

#[test]
fn all_ways_to_encode_agree() {
    ways_agree(&Tokenizer::from_file(common::bundled()).unwrap());
    for name in ["llama3", "qwen2", "mistral", "mistral_v3", "gpt2"] {
        if let Some(path) = common::fetched(name) {
            ways_agree(&Tokenizer::from_file(path).unwrap());
        }
    }
}

/// A text that goes on behind another one has exactly its own bytes.
#[test]
fn no_space_comes_before_a_text_that_goes_on() {
    const TEXTS: [&str; 6] = ["name", "birth_year\": ", " x", "}, {\"", "é\n", "\"a b\""];
    let bytes = |tokenizer: &Tokenizer, ids: &[u32]| -> Vec<u8> {
        ids.iter().flat_map(|&id| tokenizer.pieces().bytes(id)).copied().collect()
    };
    let fetched = ["llama3", "qwen2", "mistral", "mistral_v3", "gpt2"].map(common::fetched);
    for path in fetched.into_iter().flatten().chain([common::bundled()]) {
        let tokenizer = Tokenizer::from_file(&path).unwrap();
        for text in TEXTS {
            let ids = tokenizer.encode_continued(text);
            assert_eq!(bytes(&tokenizer, &ids), text.as_bytes(), "{}", path.display());
            let whole = tokenizer.encode(text, false);
            let has_space = bytes(&tokenizer, &whole) != text.as_bytes();
            assert!(has_space || ids == whole, "{}: {text:?}", path.display());
        }
    }
}

/// Every spelling of every expression, on the bundled vocabulary.
#[test]
fn every_expression() {
    let json = std::fs::read_to_string(common::bundled()).unwrap();
    for pattern in Pattern::ALL {
        for spelling in pattern.spellings() {
            let mut whole: serde_json::Value = serde_json::from_str(&json).unwrap();
            let regex = whole.pointer_mut("/pre_tokenizer/pretokenizers/0/pattern/Regex").unwrap();
            *regex = spelling.clone().into();
            let json = whole.to_string();
            let (reference, ours) = (common::reference(&json), levels(&json));
            let mut random = Random::new(SEED + 1);
            for index in 0..num_texts() / 20 {
                let text = random_text(&mut random);
                agree(&reference, &ours, &text, &format!("{spelling}, text {index}"));
            }
            // Every character after what may come before it; some of them where texts are few.
            let best = &ours[ours.len() - 1..];
            let step = if num_texts() < 5_000 { 601 } else { 1 };
            for start in ["'", "a", "A", " "] {
                let all = (0..0x2_0000u32).step_by(step).filter_map(char::from_u32);
                let texts: Vec<String> = all.map(|c| format!("{start}{c}b\n")).collect();
                for text in texts.chunks(4096) {
                    agree(&reference, best, &text.concat(), &format!("{spelling} after {start:?}"));
                }
            }
        }
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
