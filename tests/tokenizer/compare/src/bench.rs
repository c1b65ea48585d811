//! The measurements and their tables.

use std::path::Path;

use saccade_tokenizer::Tokenizer;

use crate::llama::Llama;
use crate::perf::Counter;
use crate::texts;

const LENGTHS: [usize; 5] = [10, 128, 512, 2_048, 100_000];
const ROUNDS: usize = 9;

/// A tokenizer and how to ask it.
struct Subject {
    name: &'static str,
    encode: Box<dyn Fn(&str) -> Vec<u32>>,
}

/// The tokenizers, in the order of the tables.
const SUBJECTS: [&str; 5] = ["saccade", "hf", "tiktoken-rs", "bpe-openai", "llama.cpp"];

/// None for llama.cpp where it is not built.
fn subject(folder: &Path, name: &'static str) -> Option<Subject> {
    let json = || std::fs::read_to_string(folder.join("phi4.json")).expect("phi4.json");
    let encode: Box<dyn Fn(&str) -> Vec<u32>> = match name {
        "saccade" => {
            let ours = Tokenizer::from_json(&json()).expect("ours loads");
            Box::new(move |text| ours.encode(text, false))
        }
        "hf" => {
            let hf: tokenizers::Tokenizer = json().parse().expect("HF loads");
            Box::new(move |text| hf.encode_fast(text, false).expect("encodes").get_ids().to_vec())
        }
        "tiktoken-rs" => {
            let tiktoken = tiktoken_rs::cl100k_base().expect("tiktoken loads");
            Box::new(move |text| tiktoken.encode_ordinary(text))
        }
        "bpe-openai" => {
            let bpe = bpe_openai::cl100k_base();
            Box::new(move |text| bpe.encode(text))
        }
        _ => {
            let llama = Llama::open()?;
            Box::new(move |text| llama.encode(text))
        }
    };
    Some(Subject { name, encode })
}

/// Encodes 10 prompts of 2,048 tokens of a text `passes` times, and nothing else: for a program
/// that counts instructions (instructions.py).
fn passes(folder: &Path, name: &str, text: &str, passes: usize) {
    let name = SUBJECTS.into_iter().find(|known| *known == name).expect("a tokenizer's name");
    let ours = Tokenizer::from_file(folder.join("phi4.json")).expect("ours loads");
    let text = std::fs::read_to_string(folder.join(format!("{text}.txt"))).expect("a text");
    let prompts = texts::prompts(&ours, &text, 2_048, 10);
    let subject = subject(folder, name).expect("the tokenizer is built");
    for _ in 0..passes {
        for prompt in &prompts {
            std::hint::black_box((subject.encode)(prompt));
        }
    }
    println!("{}", prompts.iter().map(String::len).sum::<usize>());
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

/// Medians of one pass over all prompts.
struct Result {
    /// Nanoseconds of a pass right after the other tokenizers', whose tables are in the caches.
    cold_ns: f64,
    /// Nanoseconds and instructions of the pass after that.
    ns: f64,
    instructions: f64,
}

/// Each subject in turn, twice, `rounds` times.
fn measure(
    counter: &Counter,
    subjects: &[Subject],
    prompts: &[String],
    rounds: usize,
) -> Vec<Result> {
    let mut samples = vec![<[Vec<f64>; 3]>::default(); subjects.len()];
    for round in 0..=rounds {
        for (subject, [cold, warm, counts]) in subjects.iter().zip(&mut samples) {
            let pass = || {
                for prompt in prompts {
                    std::hint::black_box((subject.encode)(prompt));
                }
            };
            let (cold_ns, _) = counter.measure(pass);
            let (ns, instructions) = counter.measure(pass);
            // The first round only fills allocators and caches of pieces.
            if round > 0 {
                cold.push(cold_ns);
                warm.push(ns);
                counts.push(instructions.unwrap_or(f64::NAN));
            }
        }
    }
    let result = |[cold, warm, counts]: [Vec<f64>; 3]| Result {
        cold_ns: median(cold),
        ns: median(warm),
        instructions: median(counts),
    };
    samples.into_iter().map(result).collect()
}

/// One line of the table: MB/s of the first, and how many times its time the others take. In
/// brackets: the same for passes right after other tokenizers'.
fn report(label: &str, prompts: &[String], results: &[Result]) {
    let bytes: usize = prompts.iter().map(String::len).sum();
    let speed = |ns: f64| bytes as f64 / ns * 1e3;
    let ours = &results[0];
    print!("| {label} | {:.2} | ", ours.ns / 1e3 / prompts.len() as f64);
    print!("{:.0} ({:.0})", speed(ours.ns), speed(ours.cold_ns));
    for other in &results[1..] {
        print!(" | {:.1} ({:.1})", other.ns / ours.ns, other.cold_ns / ours.cold_ns);
    }
    if ours.instructions.is_finite() {
        print!(" | {:.1} ins/B", ours.instructions / bytes as f64);
    }
    println!(" |");
}

fn agree(subjects: &[Subject], text: &str) {
    let expected = (subjects[0].encode)(text);
    for subject in &subjects[1..] {
        let ids = (subject.encode)(text);
        if ids != expected {
            eprintln!(
                "{} gives other tokens than saccade on a text of {} bytes",
                subject.name,
                text.len()
            );
        }
    }
}

pub fn main() {
    let arguments: Vec<String> = std::env::args().collect();
    let usage = "usage: FOLDER [text | worst | passes TOKENIZER TEXT COUNT]";
    let folder = Path::new(arguments.get(1).expect(usage));
    let only = arguments.get(2).map(String::as_str);
    if let Some("passes") = only {
        let [name, text, count] = &arguments[3..] else { panic!("{usage}") };
        return passes(folder, name, text, count.parse().expect(usage));
    }
    let counter = Counter::open();
    let subjects: Vec<Subject> = SUBJECTS.iter().filter_map(|name| subject(folder, name)).collect();
    let ours = Tokenizer::from_file(folder.join("phi4.json")).expect("ours loads");
    if only != Some("worst") {
        let others = subjects[1..].iter().map(|subject| subject.name).collect::<Vec<_>>();
        println!("| text, tokens | us | MB/s (after others) | {} |", others.join(" | "));
        println!("|---|---|---{}|", "|---".repeat(others.len()));
        for name in ["english", "code", "chinese"] {
            let text = std::fs::read_to_string(folder.join(format!("{name}.txt"))).expect(name);
            for tokens in LENGTHS {
                let count = (20_000 / tokens).clamp(1, 100);
                let prompts = texts::prompts(&ours, &text, tokens, count);
                prompts.iter().take(4).for_each(|prompt| agree(&subjects, prompt));
                let rounds = if tokens > 10_000 { 3 } else { ROUNDS };
                let results = measure(&counter, &subjects, &prompts, rounds);
                report(&format!("{name}, {tokens}"), &prompts, &results);
            }
        }
    }
    if only != Some("text") {
        worst(folder, &counter);
    }
}

/// Vocabularies of the worst cases, as fetch.py names them.
const VOCABULARIES: [&str; 8] =
    ["gpt2", "phi4", "llama3", "qwen2", "o200k", "tekken", "mistral", "mistral_v3"];

/// Our tokenizer on the worst cases, against plain text of the same length and vocabulary.
fn worst(folder: &Path, counter: &Counter) {
    let text = std::fs::read_to_string(folder.join("english.txt")).expect("english.txt");
    let plain = text.chars().take(1_000_000).collect::<String>();
    let cases = texts::worst_cases();
    let names: Vec<_> = cases.iter().map(|(name, _)| *name).collect();
    println!("\n| 1 MB, times plain text | plain text, ms | {} |", names.join(" | "));
    println!("|---|---{}|", "|---".repeat(names.len()));
    for name in VOCABULARIES {
        let path = folder.join(format!("{name}.json"));
        let ours = Tokenizer::from_file(&path).expect(name);
        let encode = Box::new(move |text: &str| ours.encode(text, false));
        let subject = [Subject { name, encode }];
        let time = |text: &str| measure(counter, &subject, &[text.to_owned()], 5)[0].ns;
        let base = time(&plain);
        print!("| {name} | {:.2}", base / 1e6);
        cases.iter().for_each(|(_, text)| print!(" | {:.1}", time(text) / base));
        println!(" |");
    }
}
