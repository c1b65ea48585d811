//! Any text: the same tokens as HF `tokenizers`, on the bundled vocabulary with each expression,
//! and the same text back.
#![no_main]

use std::sync::LazyLock;

use libfuzzer_sys::fuzz_target;
use saccade_tokenizer::{Pattern, Tokenizer};
use tokenizers::Tokenizer as Reference;

static BOTH: LazyLock<Vec<(Tokenizer, Reference)>> = LazyLock::new(|| {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../models/saccade-tiny/tokenizer.json");
    let json = std::fs::read_to_string(path).expect("the bundled tokenizer is there");
    let mut whole: serde_json::Value = serde_json::from_str(&json).expect("it is JSON");
    let spellings = Pattern::ALL.iter().map(|pattern| pattern.spellings().swap_remove(0));
    let both = spellings.map(|spelling| {
        let regex = whole.pointer_mut("/pre_tokenizer/pretokenizers/0/pattern/Regex");
        *regex.expect("it has an expression") = spelling.into();
        let json = whole.to_string();
        (Tokenizer::from_json(&json).expect("ours reads it"), json.parse().expect("HF reads it"))
    });
    both.collect()
});

fuzz_target!(|data: &[u8]| {
    let Some((&choice, text)) = data.split_first() else { return };
    let text = String::from_utf8_lossy(text);
    let (ours, reference) = &BOTH[usize::from(choice) % BOTH.len()];
    let expected = reference.encode_fast(text.as_ref(), false).expect("HF encodes any text");
    let ids = ours.encode(&text, false);
    assert_eq!(ids, expected.get_ids());
    assert_eq!(ours.decode(&ids, false), text);
});
