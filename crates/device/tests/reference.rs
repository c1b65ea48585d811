//! The device plane against values that Hugging Face transformers computed (`tests/reference`),
//! through the real ring: prompts in chunks and decodes in one batch, logprobs within tolerance,
//! tokens equal.

#![allow(clippy::unwrap_used)] // clippy exempts only functions marked as tests

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

use saccade_device::{Device, DeviceConfig, DeviceKind, PrefillPolicy, Quantization, RegionMemory};
use saccade_model::{Dtype, DtypeChoice, ModelFolder, OpenOptions, Weights};
use saccade_ring::{
    Finish, FrontendRing, InProcTransport, Phase, Reader, Record, RegionLimits, RequestParams,
    Sink, Submission, Submitter, Ticket, Transport,
};
use serde_json::Value;

struct Memory(InProcTransport);

// SAFETY: the transport keeps the region alive, at one address, while a clone of it lives.
unsafe impl RegionMemory for Memory {
    fn base(&self) -> *mut u8 {
        self.0.base_ptr()
    }
    fn len(&self) -> usize {
        self.0.region_bytes() as usize
    }
}

/// Collects (token, logprob, alternatives) of each ticket.
#[derive(Default)]
struct Collected {
    records: HashMap<Ticket, Vec<(u32, f32, Vec<f32>)>>,
    ended: HashMap<Ticket, Finish>,
}

impl Sink for Collected {
    fn room(&mut self, _: Ticket) -> usize {
        7 // little, so that the output ring's backpressure is at work
    }
    fn record(&mut self, ticket: Ticket, record: Record<'_>) {
        let top = record.top.iter().map(|(_, logprob)| *logprob).collect();
        self.records.entry(ticket).or_default().push((record.token, record.logprob, top));
    }
    fn finished(&mut self, ticket: Ticket, finish: Finish, _: u32) {
        self.ended.insert(ticket, finish);
    }
    fn lost(&mut self, ticket: Ticket) {
        panic!("{ticket:?} was lost");
    }
}

fn reference() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/reference")
}

fn load(folder: &ModelFolder, choice: DtypeChoice) -> Device {
    let model = folder.config().unwrap();
    let weights = Weights::open(folder, &model).unwrap();
    let dtype = choice.resolve(model.dtype, weights.stored_dtype());
    let config = DeviceConfig {
        kind: DeviceKind::Cpu,
        serial: false,
        prefill_policy: PrefillPolicy::Chunked,
        max_num_seqs: 8,
        max_num_batched_tokens: 48, // prompts of up to 200 tokens come in chunks
        max_model_len: 512.min(model.max_model_len()),
        block_size: 16,
        num_blocks: 256,
        num_threads: 2,
        eos_ids: model.eos_ids.clone(),
        log_decisions: false,
        quantization: Quantization::None,
    };
    let mut device = Device::create(&config, Some((&model, dtype)), model.vocab_size).unwrap();
    device.load(&weights, |_| ()).unwrap();
    device.set_rope(&model.rope_tables(config.max_model_len)).unwrap();
    device.finish_load().unwrap();
    device
}

fn submit(submitter: &Submitter<InProcTransport>, result: &Value) -> Ticket {
    let prompt = ids(&result["prompt"]);
    let params = RequestParams {
        ignore_eos: true,
        logprobs: true,
        prompt_logprobs: true,
        num_top_logprobs: 5,
        max_tokens: result["greedy"].as_array().unwrap().len() as u32,
        temperature: 0.0,
        ..RequestParams::default()
    };
    let submission = Submission { prompt: &prompt, logit_bias: &[], stop_ids: &[], params };
    submitter.try_submit(&submission).unwrap()
}

fn ids(list: &Value) -> Vec<u32> {
    list.as_array().unwrap().iter().map(|v| v.as_u64().unwrap() as u32).collect()
}

fn run_all(
    submitter: &Submitter<InProcTransport>,
    reader: &mut Reader<InProcTransport>,
    results: &[Value],
) -> Vec<Vec<(u32, f32, Vec<f32>)>> {
    let mut sink = Collected::default();
    let tickets: Vec<Ticket> = results.iter().map(|r| submit(submitter, r)).collect();
    for _ in 0..100_000 {
        submitter.heartbeat();
        reader.poll(&mut sink);
        if sink.ended.len() == tickets.len() {
            break;
        }
        reader.wait(Duration::from_millis(1));
    }
    for ticket in &tickets {
        assert_eq!(sink.ended.get(ticket), Some(&Finish::Length), "{ticket:?}");
    }
    tickets.iter().map(|t| sink.records.remove(t).unwrap()).collect()
}

fn check(name: &str, tolerance: f64, results: &[Value], got: &[Vec<(u32, f32, Vec<f32>)>]) {
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
    let text = std::fs::read_to_string(reference().join(format!("expected/{name}.json"))).unwrap();
    let expected: Value = serde_json::from_str(&text).unwrap();
    let path = reference().join("models").join(name);
    let folder = ModelFolder::open(path.to_str().unwrap(), &OpenOptions::default()).unwrap();
    let limits =
        RegionLimits { num_slots: 32, num_frontends: 1, out_ring_words: 64, arena_bytes: 1 << 20 };
    let transport = InProcTransport::create(&limits).unwrap();
    let mut device = load(&folder, choice).attach(Memory(transport.clone())).unwrap();
    let stop = device.stop_handle();
    let plane = std::thread::spawn(move || device.run().map(|()| device.check()));
    let ring = FrontendRing::join(transport, 0).unwrap();
    let (submitter, mut reader) = ring.split();
    for _ in 0..1000 {
        if submitter.heartbeat().phase == Phase::Ready {
            break;
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    let results = expected["results"].as_array().unwrap();
    let got = run_all(&submitter, &mut reader, results);
    stop.stop();
    plane.join().unwrap().unwrap().unwrap();
    let tolerance = match choice {
        DtypeChoice::Fixed(Dtype::F32) => expected["tolerance"].as_f64().unwrap(),
        _ => TOLERANCE_16_BIT,
    };
    check(name, tolerance, results, &got);
}

#[test]
fn every_family_matches_transformers() {
    let mut names: Vec<String> = std::fs::read_dir(reference().join("models"))
        .unwrap()
        .filter_map(|e| e.unwrap().file_name().into_string().ok())
        .collect();
    names.sort();
    assert!(names.len() >= 12, "the reference models are in the tree");
    for name in names {
        eprintln!("{name}");
        against_transformers(&name, DtypeChoice::Fixed(Dtype::F32));
        if name.contains("f16") {
            against_transformers(&name, DtypeChoice::Auto);
        }
    }
}
