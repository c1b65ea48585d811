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

fn subjects(folder: &Path) -> Vec<Subject> {
    let json = std::fs::read_to_string(folder.join("phi4.json")).expect("phi4.json");
    let ours = Tokenizer::from_json(&json).expect("ours loads");
    let reference: tokenizers::Tokenizer = json.parse().expect("HF loads");
    let tiktoken = tiktoken_rs::cl100k_base().expect("tiktoken loads");
    let bpe = bpe_openai::cl100k_base();
    let subject = |name, encode| Subject { name, encode };
    let mut subjects: Vec<Subject> = vec![
        subject("saccade", Box::new(move |text| ours.encode(text, false))),
        subject(
            "hf",
            Box::new(move |text| {
                reference.encode_fast(text, false).expect("encodes").get_ids().to_vec()
            }),
        ),
        subject("tiktoken-rs", Box::new(move |text| tiktoken.encode_ordinary(text))),
        subject("bpe-openai", Box::new(move |text| bpe.encode(text))),
    ];
    if let Some(llama) = Llama::open() {
        subjects.push(subject("llama.cpp", Box::new(move |text| llama.encode(text))));
    }
    subjects
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

/// Median nanoseconds and instructions of each subject for one pass over `prompts`.
fn measure(
    counter: &Counter,
    subjects: &[Subject],
    prompts: &[String],
    rounds: usize,
) -> Vec<(f64, f64)> {
    let mut samples = vec![(Vec::new(), Vec::new()); subjects.len()];
    for round in 0..=rounds {
        for (subject, (times, counts)) in subjects.iter().zip(&mut samples) {
            let (ns, instructions) = counter.measure(|| {
                for prompt in prompts {
                    std::hint::black_box((subject.encode)(prompt));
                }
            });
            // The first round only warms up.
            if round > 0 {
                times.push(ns);
                counts.push(instructions.unwrap_or(f64::NAN));
            }
        }
    }
    samples.into_iter().map(|(times, counts)| (median(times), median(counts))).collect()
}

fn report(label: &str, subjects: &[Subject], prompts: &[String], results: &[(f64, f64)]) {
    let bytes: usize = prompts.iter().map(String::len).sum();
    let (base_ns, base_count) = results[0];
    print!("{label:<26}");
    for (subject, (ns, count)) in subjects.iter().zip(results) {
        print!(
            " | {} {:.2} us {:.0} MB/s {:.1}x",
            subject.name,
            ns / 1e3 / prompts.len() as f64,
            bytes as f64 / ns * 1e3,
            ns / base_ns
        );
        if count.is_finite() {
            print!(" ({:.1} ins/B, {:.1}x)", count / bytes as f64, count / base_count);
        }
    }
    println!();
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
    let folder = Path::new(arguments.get(1).expect("usage: FOLDER [worst]"));
    let only = arguments.get(2).map(String::as_str);
    let counter = Counter::open();
    let subjects = subjects(folder);
    let ours = Tokenizer::from_file(folder.join("phi4.json")).expect("ours loads");
    if only != Some("worst") {
        for name in ["english", "code", "chinese"] {
            let text = std::fs::read_to_string(folder.join(format!("{name}.txt"))).expect(name);
            for tokens in LENGTHS {
                let count = (20_000 / tokens).clamp(1, 100);
                let prompts = texts::prompts(&ours, &text, tokens, count);
                prompts.iter().take(4).for_each(|prompt| agree(&subjects, prompt));
                let rounds = if tokens > 10_000 { 3 } else { ROUNDS };
                let results = measure(&counter, &subjects, &prompts, rounds);
                report(&format!("{name}, {tokens} tokens"), &subjects, &prompts, &results);
            }
        }
    }
    if only != Some("text") {
        worst(folder, &counter, &subjects[..1]);
    }
}

/// Our tokenizer on the worst cases, against plain text of the same length.
fn worst(folder: &Path, counter: &Counter, ours: &[Subject]) {
    let text = std::fs::read_to_string(folder.join("english.txt")).expect("english.txt");
    let plain = vec![text.chars().take(1_000_000).collect::<String>()];
    let base = measure(counter, ours, &plain, 5)[0];
    println!("plain text, 1 MB: {:.2} ms", base.0 / 1e6);
    for (name, text) in texts::worst_cases() {
        let result = measure(counter, ours, &[text], 5)[0];
        println!("{name}, 1 MB: {:.2} ms, {:.1}x plain text", result.0 / 1e6, result.0 / base.0);
    }
}
