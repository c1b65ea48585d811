//! Compiles schemas and says which texts they accept: for `bench/grammar/maskbench.py`.
//!
//! Standard input: a JSON object per line, `{"name", "schema", "texts"}`, the schema and the texts
//! as JSON text. Standard output, a line each: `{"name", "error", "compile_us", "words", "accepted"}`;
//! with `--automata` also the automaton's words, as `"automaton"`. `--steps=N` and `--kib=N` are
//! bounds other than the default. With a tokenizer.json as argument
//! also `"tokens"` of the accepted texts, how many of them were `"forced"`, and how many of those
//! are the `"same"` as the tokenizer's.
#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::io::{BufRead, BufWriter, Write};
use std::time::Instant;

use saccade_grammar::{
    Automaton, Limits, Source, TokenOrder, Vocabulary, Walk, Writer, compile_for,
};
use saccade_tokenizer::Tokenizer;
use serde_json::{Value, json};

fn accepts(automaton: &Automaton, text: &str) -> bool {
    let mut walk = Walk::start();
    walk.take_all(automaton, text.as_bytes()) && walk.may_end(automaton)
}

struct Tokens {
    tokenizer: Tokenizer,
    order: TokenOrder,
}

impl Tokens {
    fn of(path: &str) -> Tokens {
        let tokenizer = Tokenizer::from_file(path).expect("a tokenizer");
        let pieces = tokenizer.pieces();
        let mut vocabulary = Vocabulary::default();
        for id in 0..pieces.num_ids() as u32 {
            vocabulary.push(if pieces.is_special(id) { &[] } else { pieces.bytes(id) });
        }
        Tokens { order: TokenOrder::of(vocabulary), tokenizer }
    }

    /// Of a text's tokens behind the first: all, the forced ones, those that are the tokenizer's.
    fn count(&self, automaton: &Automaton, text: &str) -> [usize; 3] {
        let mut walk = Walk::start();
        let mut counts = [0; 3];
        for (i, id) in self.tokenizer.encode_continued(text).into_iter().enumerate() {
            let forced = walk.forced(automaton).filter(|_| i > 0);
            counts[0] += usize::from(i > 0);
            counts[1] += usize::from(forced.is_some());
            counts[2] += usize::from(forced == Some(id));
            walk.take_all(automaton, self.tokenizer.pieces().bytes(id));
        }
        counts
    }
}

fn judge(line: &Value, limits: &Limits, automata: bool, tokens: Option<&Tokens>) -> Value {
    let source = Source::JsonSchema(line["schema"].as_str().expect("a schema").to_owned());
    let encode = |text: &str| tokens.map_or(Vec::new(), |t| t.tokenizer.encode_continued(text));
    let writer = tokens.map(|tokens| Writer { tokens: &tokens.order, encode: &encode });
    let start = Instant::now();
    let compiled = compile_for(&source, limits, writer.as_ref());
    let compile_us = start.elapsed().as_micros() as u64;
    let mut row = json!({"name": line["name"], "compile_us": compile_us});
    match compiled {
        Err(error) => row["error"] = error.to_string().into(),
        Ok(automaton) => {
            let texts = line["texts"].as_array().expect("texts").iter();
            let texts = texts.map(|text| text.as_str().expect("a text"));
            let judged: Vec<bool> = texts.clone().map(|text| accepts(&automaton, text)).collect();
            if let Some(tokens) = tokens {
                let accepted = texts.zip(&judged).filter(|(_, accepted)| **accepted);
                let counts = accepted.fold([0; 3], |sum: [usize; 3], (text, _)| {
                    let of_text = tokens.count(&automaton, text);
                    std::array::from_fn(|i| sum[i] + of_text[i])
                });
                let [all, forced, same] = counts;
                row["tokens"] = all.into();
                row["forced"] = forced.into();
                row["same"] = same.into();
            }
            row["accepted"] = judged.into();
            row["words"] = automaton.words().len().into();
            if automata {
                row["automaton"] = automaton.words().to_vec().into();
            }
        }
    }
    row
}

fn main() {
    let automata = std::env::args().any(|arg| arg == "--automata");
    let number = |flag: &str| {
        let value = std::env::args().find_map(|arg| Some(arg.strip_prefix(flag)?.to_owned()))?;
        Some(value.parse::<u64>().expect("a number"))
    };
    let mut limits = Limits::default();
    limits.fuel = number("--steps=").unwrap_or(limits.fuel);
    limits.words = number("--kib=").map_or(limits.words, |kib| kib as usize * 256);
    let path = std::env::args().skip(1).find(|arg| !arg.starts_with("--"));
    let tokens = path.map(|path| Tokens::of(&path));
    let mut out = BufWriter::new(std::io::stdout().lock());
    for line in std::io::stdin().lock().lines() {
        let line: Value = serde_json::from_str(&line.unwrap()).expect("a line of JSON");
        writeln!(out, "{}", judge(&line, &limits, automata, tokens.as_ref())).unwrap();
    }
}
