//! The device plane against values that Hugging Face transformers computed (`tests/reference`),
//! through the real ring: prompts in chunks and decodes in one batch, logprobs within tolerance,
//! tokens equal.

#![allow(clippy::unwrap_used)] // clippy exempts only functions marked as tests

mod common;

use saccade_device::{KvDtype, Quantization, SchedulingPolicy};
use saccade_model::{Dtype, DtypeChoice};
use serde_json::Value;

use common::{
    Answer, Question, Records, Setup, ask_on, bits, create, expected, ids, load, open, reference,
    serve,
};

fn check(name: &str, tolerance: f64, results: &[Value], got: &[Records]) {
    let mut worst: f64 = 0.0;
    for (i, (result, records)) in results.iter().zip(got).enumerate() {
        let prompt = ids(&result["prompt"]);
        let tokens: Vec<u32> = records.iter().map(|r| r.0).collect();
        let all: Vec<u32> = prompt[1..].iter().copied().chain(ids(&result["greedy"])).collect();
        assert_eq!(tokens, all, "{name}, prompt {i}: tokens");
        let logprobs = result["logprobs"].as_array().unwrap()[1..].iter();
        let logprobs = logprobs.chain(result["greedy_logprobs"].as_array().unwrap());
        for (at, (e, record)) in logprobs.zip(records).enumerate() {
            let off = (e.as_f64().unwrap() - f64::from(record.1)).abs();
            assert!(off <= tolerance, "{name}, prompt {i}, record {at}: {e} and {}", record.1);
            worst = worst.max(off);
        }
        for (at, top) in result["top"].as_array().unwrap()[1..].iter().enumerate() {
            let expected: Vec<(u32, f64)> =
                top.as_array().unwrap().iter().map(alternative).collect();
            if let Err(why) = same_alternatives(&expected, &records[at].2, tolerance) {
                panic!("{name}, prompt {i}, alternatives at {at}: {why}");
            }
        }
    }
    eprintln!("{name}: logprobs off by at most {worst:.2e}, {tolerance:.2e} allowed");
}

fn alternative(pair: &Value) -> (u32, f64) {
    (u32::try_from(pair[0].as_u64().unwrap()).unwrap(), pair[1].as_f64().unwrap())
}

/// Whether a record's best tokens are those of the reference, each with its value. A token may
/// rank elsewhere, or give way to one that the reference does not list, only where values are
/// within the tolerance of each other.
fn same_alternatives(
    expected: &[(u32, f64)],
    got: &[(u32, f32)],
    tolerance: f64,
) -> Result<(), String> {
    if expected.len() != got.len() {
        return Err(format!("{} alternatives, not {}", got.len(), expected.len()));
    }
    let close = |a: f64, b: f64| (a - b).abs() <= tolerance;
    let (last_expected, last_got) =
        (expected[expected.len() - 1].1, f64::from(got[got.len() - 1].1));
    for (rank, &(id, value)) in got.iter().enumerate() {
        let value = f64::from(value);
        if got[..rank].iter().any(|other| other.0 == id) {
            return Err(format!("token {id} twice"));
        }
        if !close(value, expected[rank].1) {
            return Err(format!("rank {rank}: {value}, not {}", expected[rank].1));
        }
        match expected.iter().find(|e| e.0 == id) {
            Some(&(_, own)) if !close(value, own) => {
                return Err(format!("token {id}: {value}, not {own}"));
            }
            // The reference has it below its last.
            None if value > last_expected + tolerance => {
                return Err(format!("token {id} with {value} is none of the reference's"));
            }
            _ => {}
        }
    }
    for &(id, own) in expected {
        if own > last_got + tolerance && got.iter().all(|other| other.0 != id) {
            return Err(format!("token {id} with {own} is missing"));
        }
    }
    Ok(())
}

#[test]
fn alternatives_are_compared_by_token() {
    let expected = [(7, -0.5), (8, -1.0), (9, -1.0005), (4, -3.0)];
    let same = |got: &[(u32, f32)]| same_alternatives(&expected, got, 1e-3);
    assert_eq!(same(&[(7, -0.5), (8, -1.0), (9, -1.0005), (4, -3.0)]), Ok(()));
    assert_eq!(same(&[(7, -0.5), (9, -1.0001), (8, -1.0002), (4, -3.0)]), Ok(()), "a near tie");
    assert_eq!(same(&[(7, -0.5), (8, -1.0), (9, -1.0005), (2, -3.0004)]), Ok(()), "a tie below");
    for (wrong, why) in [
        (&[(8, -0.5), (7, -1.0), (9, -1.0005), (4, -3.0)][..], "swapped, values in order"),
        (&[(7, -0.5), (8, -1.0), (9, -1.0005), (4, -2.9)], "a value"),
        (&[(7, -0.5), (2, -1.0), (9, -1.0005), (4, -3.0)], "a token of none"),
        (&[(7, -0.5), (8, -1.0), (8, -1.0005), (4, -3.0)], "one twice"),
        (&[(7, -0.5), (8, -1.0), (9, -1.0005)], "one less"),
    ] {
        assert!(same(wrong).is_err(), "{why}");
    }
}

/// For a server that computes in the stored 16-bit type, as tests/reference/README.md says.
fn low_precision_tolerance(expected: &Value) -> f64 {
    expected["low_precision_error"].as_f64().unwrap().min(MOST_LOW_PRECISION_ERROR)
}

/// No matter how far transformers is off.
const MOST_LOW_PRECISION_ERROR: f64 = 0.1;

/// One model: load, serve all its prompts at once, compare.
fn against_transformers(name: &str, choice: DtypeChoice) {
    let expected = expected(name);
    let results = expected["results"].as_array().unwrap();
    let (got, _) = serve(name, &Setup::roomy(choice), &[results]);
    check(name, tolerance(&expected, choice), results, &got);
}

fn tolerance(expected: &Value, choice: DtypeChoice) -> f64 {
    match choice {
        DtypeChoice::Fixed(Dtype::F32) => expected["tolerance"].as_f64().unwrap(),
        _ => low_precision_tolerance(expected),
    }
}

/// What follows the first `from` tokens of the reference's answer.
fn check_answer(what: &str, tolerance: f64, result: &Value, from: usize, got: &Answer) {
    let tokens: Vec<u32> = got.records.iter().map(|r| r.0).collect();
    assert_eq!(tokens, ids(&result["greedy"])[from..], "{what}: tokens");
    let logprobs = &result["greedy_logprobs"].as_array().unwrap()[from..];
    for (at, (e, record)) in logprobs.iter().zip(&got.records).enumerate() {
        let off = (e.as_f64().unwrap() - f64::from(record.1)).abs();
        assert!(off <= tolerance, "{what}, token {at}: {e} and {}", record.1);
    }
}

/// One model, prefixes shared: after the beginnings of its prompts all prompts, all of them again,
/// and next turns, whose prompts go on with the first half of each answer.
fn warm_against_transformers(name: &str, choice: DtypeChoice) {
    const BEGIN: usize = 33;
    let expected = expected(name);
    let results = expected["results"].as_array().unwrap();
    let half = results[0]["greedy"].as_array().unwrap().len() / 2;
    let prompts: Vec<Vec<u32>> = results.iter().map(|r| ids(&r["prompt"])).collect();
    let ask = |prompt: &[u32], max_tokens: usize| Question {
        prompt: prompt.to_vec(),
        max_tokens: max_tokens as u32,
        prompt_logprobs: false,
        adapter: 0,
    };
    let beginnings = prompts.iter().map(|p| ask(&p[..p.len().min(BEGIN)], 1)).collect();
    let whole = || prompts.iter().map(|p| ask(p, 2 * half)).collect();
    let turns = || {
        let turn =
            |(p, r): (&Vec<u32>, &Value)| ask(&[&p[..], &ids(&r["greedy"])[..half]].concat(), half);
        prompts.iter().zip(results).map(turn).collect()
    };
    let mut groups: Vec<Vec<Question>> = vec![beginnings, whole(), whole()];
    // With longrope the length of a prompt decides its angles: the reference's answer is that to
    // the shorter one.
    if !name.contains("longrope") {
        groups.push(turns());
    }
    let setup = Setup { prefix_caching: true, ..Setup::roomy(choice) };
    let (got, _) = ask_on(load(&open(&reference().join("models").join(name)), &setup), &groups);
    let got: Vec<&[Answer]> = got.chunks(results.len()).collect();
    let shareable = |tokens: usize| ((tokens - 1) / 16 * 16) as u32;
    for (i, (result, prompt)) in results.iter().zip(&prompts).enumerate() {
        let check = |way: &str, from: usize, answer: &Answer| {
            let what = format!("{name}, prompt {i}, {way}");
            check_answer(&what, tolerance(&expected, choice), result, from, answer);
        };
        check("after its beginning", 0, &got[1][i]);
        check("again", 0, &got[2][i]);
        assert_eq!(got[2][i].cached, shareable(prompt.len()), "{name}, prompt {i}, again");
        if let Some(turns) = got.get(3) {
            check("next turn", half, &turns[i]);
            assert_eq!(turns[i].cached, shareable(prompt.len() + half), "{name}, turn {i}");
        }
    }
}

fn names() -> Vec<String> {
    let mut names: Vec<String> = std::fs::read_dir(reference().join("models"))
        .unwrap()
        .filter_map(|e| e.unwrap().file_name().into_string().ok())
        .collect();
    names.sort();
    assert!(names.len() >= 32, "the reference models are in the tree");
    names
}

#[test]
fn every_family_takes_random_weights() {
    for name in names() {
        let folder = open(&reference().join("models").join(&name));
        let choice = DtypeChoice::Fixed(Dtype::Bf16);
        let model = folder.config().unwrap();
        let mut device = create(&model, None, Dtype::Bf16, &Setup::roomy(choice));
        let missing = device.finish_load().unwrap_err().to_string();
        assert!(missing.contains("embed") || missing.contains("final_norm"), "{name}: {missing}");
        device.fill_dummy(1).unwrap();
        device.finish_load().unwrap_or_else(|error| panic!("{name}: {error}"));
    }
}

#[test]
fn every_family_matches_transformers() {
    for name in names() {
        against_transformers(&name, DtypeChoice::Fixed(Dtype::F32));
        if name.contains("f16") {
            against_transformers(&name, DtypeChoice::Auto);
        }
    }
}

#[test]
fn every_family_matches_transformers_beside_a_warm_cache() {
    for name in names() {
        warm_against_transformers(&name, DtypeChoice::Fixed(Dtype::F32));
        if name.contains("f16") {
            warm_against_transformers(&name, DtypeChoice::Auto);
        }
    }
}

/// Files in e4m3 need not be kept in it: what is in 8-bit integers or in the model's own type
/// comes near the same values, and what is quantized as it is loaded near its source's.
#[test]
fn other_types_in_memory_come_near_the_values_of_the_files() {
    let f32 = DtypeChoice::Fixed(Dtype::F32);
    for (name, quantization, tolerance) in [
        ("qwen3-fp8-bf16-v5", Quantization::Int8, 0.5),
        ("llama-fp8-bf16-v4", Quantization::Int8, 0.5),
        ("qwen3moe-fp8-bf16-v5", Quantization::Int8, 0.5),
        ("qwen3-bf16-v4", Quantization::Fp8, 1.0),
    ] {
        let expected = expected(name);
        let results = expected["results"].as_array().unwrap();
        let setup = Setup { quantization, ..Setup::roomy(f32) };
        let (got, _) = serve(name, &setup, &[results]);
        let (exact, _) = serve(name, &Setup::roomy(f32), &[results]);
        let far = results.iter().zip(&got).map(|(result, records)| {
            let logprobs = result["logprobs"].as_array().unwrap()[1..].iter();
            let off =
                |(e, r): (&Value, &(u32, f32, _))| (e.as_f64().unwrap() - f64::from(r.1)).abs();
            logprobs.zip(records).map(off).fold(0.0, f64::max)
        });
        let far = far.fold(0.0, f64::max);
        eprintln!("{name} {quantization:?}: logprobs off by at most {far:.2e}");
        assert!(far < tolerance, "{name} {quantization:?}: logprobs off by {far}");
        assert!(bits(&got) != bits(&exact), "{name} {quantization:?}: the same as without");
    }
}

/// For models whose rows meet in experts, or whose angles depend on the prompt's length: a
/// request's records are bit-identical alone, among others in chunks, recomputed after it had to
/// give up its blocks, and with its KV fetched back from host memory.
#[test]
fn experts_and_longrope_give_a_request_the_same_in_any_company() {
    let bf16 = DtypeChoice::Fixed(Dtype::Bf16);
    let f32 = DtypeChoice::Fixed(Dtype::F32);
    for name in [
        "mixtral-v4",
        "qwen3moe-dense-layers-v5",
        "qwen3moe-fp8-bf16-v5",
        "phi3-partial-longrope-v5",
    ] {
        let expected = expected(name);
        let results = expected["results"].as_array().unwrap();
        let (none, int8, fp8) = (Quantization::None, Quantization::Int8, Quantization::Fp8);
        for (choice, quantization, kv_dtype) in [
            (f32, none, KvDtype::Auto),
            (bf16, none, KvDtype::Auto),
            (bf16, int8, KvDtype::Auto),
            (bf16, fp8, KvDtype::Auto),
            (f32, none, KvDtype::Fp8),
            (bf16, none, KvDtype::Fp8),
            (bf16, fp8, KvDtype::Fp8),
        ] {
            let what = format!("{name} {choice:?} {quantization:?} {kv_dtype:?}");
            let roomy = Setup { quantization, kv_dtype, ..Setup::roomy(choice) };
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
            assert!(preemptions > 0, "{what}: no request was preempted");
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
