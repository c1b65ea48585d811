//! The device plane against values that Hugging Face transformers computed (`tests/reference`),
//! through the real ring: prompts in chunks and decodes in one batch, logprobs within tolerance,
//! tokens equal.

#![allow(clippy::unwrap_used)] // clippy exempts only functions marked as tests

mod common;

use saccade_device::{Quantization, SchedulingPolicy};
use saccade_model::{Dtype, DtypeChoice};
use serde_json::Value;

use common::{Records, Setup, bits, create, expected, ids, open, reference, serve};

fn check(name: &str, tolerance: f64, results: &[Value], got: &[Records]) {
    let close = |e: &Value, g: f32| (e.as_f64().unwrap() - f64::from(g)).abs() <= tolerance;
    for (i, (result, records)) in results.iter().zip(got).enumerate() {
        let prompt = ids(&result["prompt"]);
        let tokens: Vec<u32> = records.iter().map(|r| r.0).collect();
        let all: Vec<u32> = prompt[1..].iter().copied().chain(ids(&result["greedy"])).collect();
        assert_eq!(tokens, all, "{name}, prompt {i}: tokens");
        let logprobs = result["logprobs"].as_array().unwrap()[1..].iter();
        let logprobs = logprobs.chain(result["greedy_logprobs"].as_array().unwrap());
        for (at, (e, record)) in logprobs.zip(records).enumerate() {
            assert!(close(e, record.1), "{name}, prompt {i}, record {at}: {e} and {}", record.1);
        }
        for (at, top) in result["top"].as_array().unwrap()[1..].iter().enumerate() {
            for (pair, g) in top.as_array().unwrap().iter().zip(&records[at].2) {
                assert!(close(&pair[1], *g), "{name}, prompt {i}, alternatives at {at}");
            }
        }
    }
}

/// KV in 16 bits is rounded where the reference, computed in f32, is not.
const TOLERANCE_16_BIT: f64 = 0.1;

/// One model: load, serve all its prompts at once, compare.
fn against_transformers(name: &str, choice: DtypeChoice) {
    let expected = expected(name);
    let results = expected["results"].as_array().unwrap();
    let (got, _) = serve(name, &Setup::roomy(choice), &[results]);
    let tolerance = match choice {
        DtypeChoice::Fixed(Dtype::F32) => expected["tolerance"].as_f64().unwrap(),
        _ => TOLERANCE_16_BIT,
    };
    check(name, tolerance, results, &got);
}

fn names() -> Vec<String> {
    let mut names: Vec<String> = std::fs::read_dir(reference().join("models"))
        .unwrap()
        .filter_map(|e| e.unwrap().file_name().into_string().ok())
        .collect();
    names.sort();
    assert!(names.len() >= 27, "the reference models are in the tree");
    names
}

#[test]
fn every_family_takes_random_weights() {
    for name in names() {
        let folder = open(&reference().join("models").join(&name));
        let choice = DtypeChoice::Fixed(Dtype::Bf16);
        let mut device = create(&folder.config().unwrap(), Dtype::Bf16, &Setup::roomy(choice));
        let missing = device.finish_load().unwrap_err().to_string();
        assert!(missing.contains("embed") || missing.contains("final_norm"), "{name}: {missing}");
        device.fill_dummy(1).unwrap();
        device.finish_load().unwrap_or_else(|error| panic!("{name}: {error}"));
    }
}

#[test]
fn every_family_matches_transformers() {
    for name in names() {
        eprintln!("{name}");
        against_transformers(&name, DtypeChoice::Fixed(Dtype::F32));
        if name.contains("f16") {
            against_transformers(&name, DtypeChoice::Auto);
        }
    }
}

/// Where rows meet in experts, and where angles follow from the prompt's length: a request's
/// records are equal to the bit alone, among others in chunks, computed again after it had to give
/// up its blocks, and with its KV fetched back from host memory.
#[test]
fn experts_and_longrope_give_a_request_the_same_in_any_company() {
    let bf16 = DtypeChoice::Fixed(Dtype::Bf16);
    let f32 = DtypeChoice::Fixed(Dtype::F32);
    for name in ["mixtral-v4", "qwen3moe-dense-layers-v5", "phi3-partial-longrope-v5"] {
        let expected = expected(name);
        let results = expected["results"].as_array().unwrap();
        for (choice, quantization) in
            [(f32, Quantization::None), (bf16, Quantization::None), (bf16, Quantization::Int8)]
        {
            let what = format!("{name} {choice:?} {quantization:?}");
            let roomy = Setup { quantization, ..Setup::roomy(choice) };
            let one_by_one: Vec<&[Value]> = results.chunks(1).collect();
            // Greedy tokens of 16 bits and fewer are the device's own; only equality counts.
            let (alone, _) = serve(name, &roomy, &one_by_one);
            let (together, _) = serve(name, &roomy, &[results]);
            assert!(bits(&alone) == bits(&together), "{what}: together");
            let longest = results.iter().map(|r| ids(&r["prompt"]).len()).max().unwrap() as u32;
            let max_model_len = longest + 72;
            let num_blocks = max_model_len.div_ceil(16);
            let tight = Setup { max_model_len, num_blocks, ..roomy };
            let (squeezed, preemptions) = serve(name, &tight, &[results]);
            assert!(preemptions > 0, "{what}: nobody was preempted");
            assert!(bits(&alone) == bits(&squeezed), "{what}: after preemption");
            let turned = Setup {
                num_blocks: 2 * num_blocks,
                num_host_blocks: 64 * num_blocks,
                policy: SchedulingPolicy::Churn,
                ..tight
            };
            let (turned, preemptions) = serve(name, &turned, &[results]);
            assert_eq!(preemptions, 0, "{what}: host memory had no room");
            assert!(bits(&alone) == bits(&turned), "{what}: rotated at every step");
        }
    }
}
