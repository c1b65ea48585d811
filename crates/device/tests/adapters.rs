//! Adapters against values that Hugging Face PEFT computed (`tests/reference/make_lora.py`),
//! through the real ring: all adapters of a model and the model itself in one batch.

#![allow(clippy::unwrap_used)] // clippy exempts only functions marked as tests

mod common;

use std::collections::BTreeMap;

use saccade_device::{AdapterLimits, Device, Quantization};
use saccade_model::{Adapter, Dtype, DtypeChoice, ModelFolder, Weights};
use serde_json::Value;

use common::{Question, Records, Setup, ask_on, bits, create, expected, ids, open, reference};

const F32: DtypeChoice = DtypeChoice::Fixed(Dtype::F32);
const MAX_RANK: u32 = 64;

/// The reference values of all adapters, by the model that they are for.
fn adapters() -> BTreeMap<String, Vec<Value>> {
    let folder = std::fs::read_dir(reference().join("lora")).unwrap();
    let mut files: Vec<_> = folder.map(|file| file.unwrap().path()).collect();
    files.retain(|file| file.extension().is_some());
    files.sort();
    assert!(files.len() >= 8, "the reference values are in the tree");
    let mut models: BTreeMap<String, Vec<Value>> = BTreeMap::new();
    for file in files {
        let of: Value = serde_json::from_str(&std::fs::read_to_string(file).unwrap()).unwrap();
        models.entry(of["model"].as_str().unwrap().to_owned()).or_default().push(of);
    }
    models
}

/// A device with these adapters, in their order.
fn load_with(folder: &ModelFolder, setup: &Setup, adapters: &[Value]) -> Device {
    let model = folder.config().unwrap();
    let weights = Weights::open(folder, &model).unwrap();
    let dtype = setup.choice.resolve(model.dtype, weights.stored_dtype());
    let adapters_of_device = AdapterLimits {
        num_adapters: adapters.len() as u32,
        max_rank: if adapters.is_empty() { 0 } else { MAX_RANK },
    };
    let setup = Setup { adapters: adapters_of_device, ..*setup };
    let mut device = create(&model, Some(&weights), dtype, &setup);
    device.load(&weights, |_| ()).unwrap();
    for (of, number) in adapters.iter().zip(1..) {
        let path = reference().join("lora").join(of["adapter"].as_str().unwrap());
        let adapter = Adapter::open(&path, &model, MAX_RANK).unwrap();
        device.load_adapter(number, &adapter).unwrap();
        device.set_adapter(number, u64::from(number) + 1000, number.into()).unwrap();
    }
    device.finish_load().unwrap();
    device
}

/// The prompts of a model, each without an adapter and with every one, mixed.
fn questions(base: &[Value], adapters: &[Value]) -> Vec<Question> {
    let with = |result, adapter| Question { adapter, ..Question::of(result) };
    let of_prompt = |result| (0..=adapters.len() as u32).map(move |number| with(result, number));
    base.iter().flat_map(of_prompt).collect()
}

fn serve(name: &str, setup: &Setup, adapters: &[Value], group: usize) -> Vec<Records> {
    let folder = open(&reference().join("models").join(name));
    let expected = expected(name);
    let base = expected["results"].as_array().unwrap();
    let mut groups: Vec<Vec<Question>> = Vec::new();
    for question in questions(base, adapters) {
        match groups.last_mut().filter(|last| last.len() < group) {
            Some(last) => last.push(question),
            None => groups.push(vec![question]),
        }
    }
    let (answers, _) = ask_on(load_with(&folder, setup, adapters), &groups);
    answers.into_iter().map(|answer| answer.records).collect()
}

/// Against what PEFT computed, for the prompt and for the greedy answer.
fn check(what: &str, prompt: &[u32], result: &Value, got: &Records, tolerance: f64) {
    let tokens: Vec<u32> = got.iter().map(|record| record.0).collect();
    let all: Vec<u32> = prompt[1..].iter().copied().chain(ids(&result["greedy"])).collect();
    assert_eq!(tokens, all, "{what}: tokens");
    let logprobs = result["logprobs"].as_array().unwrap()[1..].iter();
    let logprobs = logprobs.chain(result["greedy_logprobs"].as_array().unwrap());
    for (at, (want, record)) in logprobs.zip(got).enumerate() {
        let off = (want.as_f64().unwrap() - f64::from(record.1)).abs();
        assert!(off <= tolerance, "{what}, record {at}: {want} and {}", record.1);
    }
}

#[test]
fn every_adapter_matches_peft_beside_others_and_the_model_alone() {
    for (name, adapters) in adapters() {
        let expected = expected(&name);
        let base = expected["results"].as_array().unwrap();
        let got = serve(&name, &Setup::roomy(F32), &adapters, usize::MAX);
        for (i, of_prompt) in got.chunks(adapters.len() + 1).enumerate() {
            let prompt = ids(&base[i]["prompt"]);
            check(&format!("{name}, prompt {i}"), &prompt, &base[i], &of_prompt[0], 1e-3);
            for (of, records) in adapters.iter().zip(&of_prompt[1..]) {
                let what = format!("{}, prompt {i}", of["adapter"]);
                check(&what, &prompt, &of["results"][i], records, 1e-3);
            }
        }
    }
}

/// The mean of |difference| over the prompt's log probabilities.
fn distance(results: &Value, got: &[&Records]) -> f64 {
    let (mut sum, mut count) = (0.0, 0);
    for (result, records) in results.as_array().unwrap().iter().zip(got) {
        let logprobs = result["logprobs"].as_array().unwrap()[1..].iter();
        for (want, record) in logprobs.zip(*records) {
            sum += (want.as_f64().unwrap() - f64::from(record.1)).abs();
            count += 1;
        }
    }
    sum / f64::from(count)
}

#[test]
fn in_other_types_adapters_come_near_peft_and_the_model_without_does_not() {
    for (name, adapters) in adapters() {
        for (choice, quantization, most) in [
            (DtypeChoice::Fixed(Dtype::Bf16), Quantization::None, 0.1),
            (F32, Quantization::Int8, 0.5),
        ] {
            let setup = Setup { quantization, ..Setup::roomy(choice) };
            let got = serve(&name, &setup, &adapters, usize::MAX);
            let column = |i: usize| -> Vec<&Records> {
                got.iter().skip(i).step_by(adapters.len() + 1).collect()
            };
            for (of, i) in adapters.iter().zip(1..) {
                let (with, without) =
                    (distance(&of["results"], &column(i)), distance(&of["results"], &column(0)));
                let what = format!("{} {choice:?} {quantization:?}", of["adapter"]);
                eprintln!("{what}: {with:.4} from PEFT, {without:.4} without");
                assert!(with < most && with < without / 4.0, "{what}: {with}, {without} without");
            }
        }
    }
}

#[test]
fn a_request_with_an_adapter_is_the_same_in_any_company() {
    for (name, adapters) in adapters() {
        for (choice, quantization) in [
            (F32, Quantization::None),
            (DtypeChoice::Fixed(Dtype::Bf16), Quantization::None),
            (DtypeChoice::Fixed(Dtype::Bf16), Quantization::Int8),
        ] {
            let setup = Setup { quantization, ..Setup::roomy(choice) };
            let alone = bits(&serve(&name, &setup, &adapters, 1));
            let together = bits(&serve(&name, &setup, &adapters, usize::MAX));
            assert!(alone == together, "{name} {choice:?} {quantization:?}: together");
            let shared = Setup { prefix_caching: true, ..setup };
            let shared = bits(&serve(&name, &shared, &adapters, 3));
            assert!(alone == shared, "{name} {choice:?} {quantization:?}: prefixes shared");
            let base = bits(&serve(&name, &setup, &[], 1));
            let of_base: Vec<_> = alone.iter().step_by(adapters.len() + 1).collect();
            assert!(of_base == base.iter().collect::<Vec<_>>(), "{name}: without adapters");
        }
    }
}

#[test]
fn a_device_refuses_what_does_not_fit_it() {
    let folder = open(&reference().join("models/llama-plain-v4"));
    let model = folder.config().unwrap();
    let adapter = Adapter::open(&reference().join("lora/llama-all"), &model, MAX_RANK).unwrap();
    let limits = AdapterLimits { num_adapters: 1, max_rank: 4 };
    let setup = Setup { adapters: limits, ..Setup::roomy(F32) };
    let mut device = create(&model, None, Dtype::F32, &setup);
    let said = device.load_adapter(1, &adapter).unwrap_err().to_string();
    assert!(said.contains("rank is 6, outside 1 .. 4"), "{said}");
    let said = device.set_adapter(2, 1, 1).unwrap_err().to_string();
    assert!(said.contains("adapter is 2, outside 1 .. 1"), "{said}");
    let said = device.set_adapter(1, 0, 1).unwrap_err().to_string();
    assert!(said.contains("the key of adapter 1 is 0"), "{said}");
    let said = device.set_adapter(1, 1, 0).unwrap_err().to_string();
    assert!(said.contains("the name of adapter 1 is 0"), "{said}");
}
