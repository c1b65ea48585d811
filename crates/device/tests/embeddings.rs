//! Embeddings of the CPU device against values that Hugging Face transformers computed
//! (`tests/reference`), through the real ring: among requests for tokens, in chunks, behind
//! prefixes that others computed, after preemption and rotation; the same to the bit each time.

#![allow(clippy::unwrap_used)] // clippy exempts only functions marked as tests

mod common;

use saccade_device::SchedulingPolicy;
use saccade_model::{Dtype, DtypeChoice};
use serde_json::Value;

use common::{Answer, Question, Setup, ask_on, expected, ids, load, open, reference};

const F32: DtypeChoice = DtypeChoice::Fixed(Dtype::F32);
/// Of the largest value of an embedding.
const TOLERANCE: f64 = 2e-5;

struct Case {
    name: String,
    prompts: Vec<Vec<u32>>,
    expected: Vec<Vec<f64>>,
}

fn cases() -> Vec<Case> {
    let mut files: Vec<_> =
        std::fs::read_dir(reference().join("embeddings")).unwrap().map(|e| e.unwrap()).collect();
    files.sort_by_key(|file| file.file_name());
    assert!(files.len() >= 27, "the reference embeddings are in the tree");
    files.iter().map(|file| case(&std::fs::read_to_string(file.path()).unwrap())).collect()
}

fn case(text: &str) -> Case {
    let file: Value = serde_json::from_str(text).unwrap();
    let name = file["model"].as_str().unwrap().to_owned();
    let results = expected(&name);
    let prompts = results["results"].as_array().unwrap().iter().map(|r| ids(&r["prompt"]));
    let vector = |list: &Value| {
        list.as_array().unwrap().iter().map(|value| value.as_f64().unwrap()).collect()
    };
    Case {
        prompts: prompts.collect(),
        expected: file["embeddings"].as_array().unwrap().iter().map(vector).collect(),
        name,
    }
}

/// How far an embedding is off, as a part of the largest value.
fn distance(expected: &[f64], got: &[f32]) -> f64 {
    assert_eq!(expected.len(), got.len());
    let largest = expected.iter().fold(0.0, |most: f64, value| most.max(value.abs()));
    let off = expected.iter().zip(got).map(|(e, g)| (e - f64::from(*g)).abs());
    off.fold(0.0, f64::max) / largest
}

fn bits(answers: &[Answer]) -> Vec<Vec<u32>> {
    let of_one = |answer: &Answer| answer.embedding.iter().map(|value| value.to_bits()).collect();
    answers.iter().filter(|answer| !answer.embedding.is_empty()).map(of_one).collect()
}

fn to_embed(prompts: &[Vec<u32>]) -> Vec<Question> {
    prompts.iter().cloned().map(Question::to_embed).collect()
}

/// Each embedding beside a request for tokens with the same prompt.
fn in_company(prompts: &[Vec<u32>]) -> Vec<Question> {
    let both = |prompt: &Vec<u32>| {
        let tokens =
            Question { prompt: prompt.clone(), max_tokens: 24, prompt_logprobs: false, adapter: 0 };
        [Question::to_embed(prompt.clone()), tokens]
    };
    prompts.iter().flat_map(both).collect()
}

fn ask(name: &str, setup: &Setup, groups: &[Vec<Question>]) -> (Vec<Answer>, usize) {
    ask_on(load(&open(&reference().join("models").join(name)), setup), groups)
}

#[test]
fn every_family_matches_transformers() {
    for case in cases() {
        let (answers, _) = ask(&case.name, &Setup::roomy(F32), &[to_embed(&case.prompts)]);
        let mut worst: f64 = 0.0;
        for (i, (expected, answer)) in case.expected.iter().zip(&answers).enumerate() {
            let off = distance(expected, &answer.embedding);
            assert!(off <= TOLERANCE, "{}, prompt {i}: off by {off:.2e}", case.name);
            worst = worst.max(off);
        }
        eprintln!("{}: off by at most {worst:.2e} of the largest value", case.name);
    }
}

#[test]
fn an_embedding_is_the_same_in_any_company() {
    let mut preemptions = 0;
    for case in cases() {
        let Case { name, prompts, .. } = &case;
        let what = |way: &str| format!("{name}: {way}");
        let roomy = Setup::roomy(F32);
        let one_by_one: Vec<Vec<Question>> = prompts.chunks(1).map(to_embed).collect();
        let alone = bits(&ask(name, &roomy, &one_by_one).0);
        let (together, _) = ask(name, &roomy, &[in_company(prompts)]);
        assert!(bits(&together) == alone, "{}", what("together"));

        let caching = Setup { prefix_caching: true, ..roomy };
        let (warm, _) = ask(name, &caching, &[in_company(prompts), to_embed(prompts)]);
        let again = &warm[2 * prompts.len()..];
        assert!(bits(again) == alone, "{}", what("behind its own prefix"));
        for (answer, prompt) in again.iter().zip(prompts) {
            assert_eq!(answer.cached as usize, (prompt.len() - 1) / 16 * 16, "{}", what("cached"));
        }

        let longest = prompts.iter().map(Vec::len).max().unwrap() as u32;
        let max_model_len = longest + 32;
        let num_blocks = max_model_len.div_ceil(16);
        let tight = Setup { max_model_len, num_blocks, ..roomy };
        let (squeezed, times) = ask(name, &tight, &[in_company(prompts)]);
        assert!(bits(&squeezed) == alone, "{}", what("where room is short"));
        preemptions += times;
        let turned = Setup {
            num_blocks: 2 * num_blocks,
            num_host_blocks: 64 * num_blocks,
            policy: SchedulingPolicy::Churn,
            ..tight
        };
        let (turned, _) = ask(name, &turned, &[in_company(prompts)]);
        assert!(bits(&turned) == alone, "{}", what("rotated at every step"));
    }
    assert!(preemptions > 0, "no request was preempted");
}
