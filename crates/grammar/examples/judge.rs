//! Compiles schemas and says which texts they accept: for `bench/grammar/maskbench.py`.
//!
//! Standard input: a JSON object per line, `{"name", "schema", "texts"}`, the schema and the texts
//! as JSON text. Standard output, a line each: `{"name", "error", "compile_us", "words", "accepted"}`;
//! with `--automata` also the automaton's words, as `"automaton"`.
#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::io::{BufRead, BufWriter, Write};
use std::time::Instant;

use saccade_grammar::{Automaton, Limits, Source, Walk, compile};
use serde_json::{Value, json};

fn accepts(automaton: &Automaton, text: &str) -> bool {
    let mut walk = Walk::start();
    walk.take_all(automaton, text.as_bytes()) && walk.may_end(automaton)
}

fn judge(line: &Value, automata: bool) -> Value {
    let source = Source::JsonSchema(line["schema"].as_str().expect("a schema").to_owned());
    let start = Instant::now();
    let compiled = compile(&source, &Limits::default());
    let compile_us = start.elapsed().as_micros() as u64;
    let mut row = json!({"name": line["name"], "compile_us": compile_us});
    match compiled {
        Err(error) => row["error"] = error.to_string().into(),
        Ok(automaton) => {
            let texts = line["texts"].as_array().expect("texts").iter();
            let judged = texts.map(|text| accepts(&automaton, text.as_str().expect("a text")));
            row["accepted"] = judged.collect();
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
    let mut out = BufWriter::new(std::io::stdout().lock());
    for line in std::io::stdin().lock().lines() {
        let line: Value = serde_json::from_str(&line.unwrap()).expect("a line of JSON");
        writeln!(out, "{}", judge(&line, automata)).unwrap();
    }
}
