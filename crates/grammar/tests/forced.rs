//! Forced tokens: what is named is the only way on, and what a longer token could begin is not
//! named.
#![allow(clippy::unwrap_used, clippy::expect_used)]

use saccade_grammar::{
    Automaton, Limits, Source, TokenOrder, Vocabulary, Walk, Writer, compile, compile_for,
};
use serde_json::Value;

/// All bytes, then these texts.
struct Tokens {
    texts: Vec<Vec<u8>>,
    order: TokenOrder,
}

impl Tokens {
    fn with(words: &[&str]) -> Tokens {
        let bytes = (0..=255).map(|byte| vec![byte]);
        let texts: Vec<Vec<u8>> =
            bytes.chain(words.iter().map(|word| word.as_bytes().to_vec())).collect();
        let mut vocabulary = Vocabulary::default();
        texts.iter().for_each(|text| vocabulary.push(text));
        Tokens { texts, order: TokenOrder::of(vocabulary) }
    }
    /// The longest token first.
    fn encode(&self, text: &str) -> Vec<u32> {
        let mut left = text.as_bytes();
        let mut ids = Vec::new();
        while !left.is_empty() {
            let fits = |id: &usize| left.starts_with(&self.texts[*id]);
            let longest = (0..self.texts.len()).filter(fits).max_by_key(|&id| self.texts[id].len());
            ids.push(longest.unwrap() as u32);
            left = &left[self.texts[ids[ids.len() - 1] as usize].len()..];
        }
        ids
    }
    fn compile(&self, source: &Source, limits: &Limits) -> Option<Automaton> {
        let encode = |text: &str| self.encode(text);
        compile_for(source, limits, Some(&Writer { tokens: &self.order, encode: &encode })).ok()
    }
    /// The tokens that follow a text without a draw.
    fn behind(&self, automaton: &Automaton, text: &str) -> Vec<String> {
        let mut walk = Walk::start();
        assert!(walk.take_all(automaton, text.as_bytes()), "{text}");
        let mut all = Vec::new();
        while let Some(token) = walk.forced(automaton) {
            let bytes = &self.texts[token as usize];
            assert!(walk.take_all(automaton, bytes));
            all.push(String::from_utf8(bytes.clone()).unwrap());
        }
        all
    }
}

fn person() -> Source {
    Source::JsonSchema(
        r#"{"type": "object", "required": ["name", "birth_year"], "additionalProperties": false,
            "properties": {"name": {"type": "string"}, "birth_year": {"type": "integer"}}}"#
            .into(),
    )
}

#[test]
fn names_of_members_are_not_drawn() {
    let tokens = Tokens::with(&["name", "birth", "_year", "\":", "na"]);
    let automaton = tokens.compile(&person(), &Limits::default()).unwrap();
    assert_eq!(tokens.behind(&automaton, "{\""), ["name", "\":"]);
    assert_eq!(tokens.behind(&automaton, "{\"name"), ["\":"]);
    assert_eq!(tokens.behind(&automaton, "{\"name\": \"a\", \""), ["birth", "_year", "\":"]);
    assert!(tokens.behind(&automaton, "{\"name\": \"a").is_empty());
    assert!(tokens.behind(&automaton, "{\"name\"").is_empty(), "inside of a token");
}

#[test]
fn what_a_longer_token_may_hold_is_drawn() {
    // Behind the colon: a space, or a line break and an indent, or the number.
    for (longer, named) in [("\": ", false), ("\":1", false), ("\":,", true)] {
        let tokens = Tokens::with(&["birth", "_year", "\":", longer]);
        let automaton = tokens.compile(&person(), &Limits::default()).unwrap();
        let found = tokens.behind(&automaton, "{\"name\": \"a\", \"");
        let expected: &[&str] =
            if named { &["birth", "_year", "\":"] } else { &["birth", "_year"] };
        assert_eq!(found, expected, "{longer:?}");
    }
}

#[test]
fn a_tokenizer_that_writes_another_text_names_nothing() {
    let tokens = Tokens::with(&["name", "\":"]);
    let encode = |text: &str| tokens.encode(&format!(" {text}"));
    let writer = Writer { tokens: &tokens.order, encode: &encode };
    let automaton = compile_for(&person(), &Limits::default(), Some(&writer)).unwrap();
    assert!(automaton.forced().is_empty());
}

#[test]
fn what_has_no_room_is_left_out() {
    let tokens = Tokens::with(&["name", "birth", "_year", "\":"]);
    let whole = tokens.compile(&person(), &Limits::default()).unwrap();
    let bare = compile(&person(), &Limits::default()).unwrap();
    let (size, named) = (bare.words().len(), whole.forced().len());
    assert!(named > 4);
    assert_eq!(whole.words()[..size], bare.words()[..]);
    for words in size..size + 6 {
        let some = tokens.compile(&person(), &Limits { words, ..Limits::default() }).unwrap();
        assert_eq!(some.forced(), &whole.forced()[..(words - size) / 2]);
    }
}

/// Random bytes by a seed (splitmix64).
struct Random(u64);
impl Random {
    fn pick<T: Copy>(&mut self, from: &[T]) -> T {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let x = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        from[(x ^ (x >> 31)) as usize % from.len()]
    }
}

/// Walks at random; each token that is named must be the only way on, byte by byte.
fn walk(automaton: &Automaton, tokens: &Tokens, random: &mut Random, name: &str) -> usize {
    let mut walk = Walk::start();
    let mut named = 0;
    for _ in 0..60 {
        if let Some(token) = walk.forced(automaton) {
            named += 1;
            for &byte in &tokens.texts[token as usize] {
                assert!(!walk.may_end(automaton), "{name}");
                assert_eq!(walk.next_bytes(automaton), [byte], "{name}");
                walk.take(automaton, byte);
            }
            continue;
        }
        let next = walk.next_bytes(automaton);
        if next.is_empty() {
            break;
        }
        walk.take(automaton, random.pick(&next));
    }
    named
}

#[test]
fn what_is_named_is_the_only_way_on() {
    let tokens = Tokens::with(&[
        "name", "type", "the", "er", "in", "on", "\":", "\": ", ", \"", "{\"", "},", "id", "re",
        "val", "ue", "is", "de", "con", "at", "or", "true", "null", "http", "://", "st", "en",
    ]);
    let mut random = Random(7);
    let mut named = 0;
    for line in include_str!("maskbench.jsonl").lines() {
        let case: Value = serde_json::from_str(line).unwrap();
        let source = Source::JsonSchema(case["schema"].to_string());
        let Some(automaton) = tokens.compile(&source, &Limits::default()) else { continue };
        for _ in 0..3 {
            named += walk(&automaton, &tokens, &mut random, &case["name"].to_string());
        }
    }
    assert!(named > 1000, "{named}");
}
