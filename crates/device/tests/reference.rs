//! The device plane against values that Hugging Face transformers computed (`tests/reference`),
//! through the real ring: prompts in chunks and decodes in one batch, logprobs within tolerance,
//! tokens equal.

#![allow(clippy::unwrap_used)] // clippy exempts only functions marked as tests

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

use saccade_device::{
    Device, DeviceConfig, DeviceKind, PolicyConfig, PrefillPolicy, Quantization, RegionMemory,
    SchedulingPolicy,
};
use saccade_model::{Dtype, DtypeChoice, ModelConfig, ModelFolder, OpenOptions, Weights};
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

/// Of one request: token, logprob, logprobs of the alternatives.
type Records = Vec<(u32, f32, Vec<f32>)>;

/// Collects (token, logprob, alternatives) of each ticket.
#[derive(Default)]
struct Collected {
    records: HashMap<Ticket, Records>,
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

/// What differs between the devices of these tests.
#[derive(Clone, Copy)]
struct Setup {
    choice: DtypeChoice,
    quantization: Quantization,
    max_model_len: u32,
    num_blocks: u32,
    num_host_blocks: u32,
    policy: SchedulingPolicy,
}

impl Setup {
    /// Room for all prompts at once.
    fn roomy(choice: DtypeChoice) -> Self {
        Self {
            choice,
            quantization: Quantization::None,
            max_model_len: 512,
            num_blocks: 256,
            num_host_blocks: 0,
            policy: SchedulingPolicy::Fcfs,
        }
    }
}

fn create(model: &ModelConfig, dtype: Dtype, setup: &Setup) -> Device {
    let config = DeviceConfig {
        kind: DeviceKind::Cpu,
        serial: false,
        prefill_policy: PrefillPolicy::Chunked,
        max_num_seqs: 8,
        max_num_batched_tokens: 48, // prompts of up to 200 tokens come in chunks
        max_model_len: setup.max_model_len.min(model.max_model_len()),
        block_size: 16,
        num_blocks: setup.num_blocks,
        num_host_blocks: setup.num_host_blocks,
        eager_window: 4,
        policy: PolicyConfig { policy: setup.policy, ..PolicyConfig::default() },
        num_threads: 2,
        eos_ids: model.eos_ids.clone(),
        log_decisions: true,
        quantization: setup.quantization,
        cuda: Default::default(),
    };
    let mut device = Device::create(&config, Some((model, dtype)), model.vocab_size).unwrap();
    device.set_rope(&model.rope_tables(config.max_model_len)).unwrap();
    device
}

fn load(folder: &ModelFolder, setup: &Setup) -> Device {
    let model = folder.config().unwrap();
    let weights = Weights::open(folder, &model).unwrap();
    let dtype = setup.choice.resolve(model.dtype, weights.stored_dtype());
    let mut device = create(&model, dtype, setup);
    device.load(&weights, |_| ()).unwrap();
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
) -> Vec<Records> {
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

/// `kPreempt` of `device/sched/decision_log.hpp`.
const PREEMPT: u64 = 3;

/// Serves groups of prompts, those of a group at once; also tells how often a sequence was
/// preempted.
fn serve(name: &str, setup: &Setup, groups: &[&[Value]]) -> (Vec<Records>, usize) {
    let path = reference().join("models").join(name);
    let folder = ModelFolder::open(path.to_str().unwrap(), &OpenOptions::default()).unwrap();
    let limits =
        RegionLimits { num_slots: 32, num_frontends: 1, out_ring_words: 64, arena_bytes: 1 << 20 };
    let transport = InProcTransport::create(&limits).unwrap();
    let mut device = load(&folder, setup).attach(Memory(transport.clone())).unwrap();
    let stop = device.stop_handle();
    let plane = std::thread::spawn(move || {
        device.run().unwrap();
        device.check().unwrap();
        device.decisions().iter().step_by(2).filter(|word| *word & 0xff == PREEMPT).count()
    });
    let ring = FrontendRing::join(transport, 0).unwrap();
    let (submitter, mut reader) = ring.split();
    for _ in 0..1000 {
        // A device that is ready has not always acknowledged this frontend: slots say that.
        if submitter.heartbeat().phase == Phase::Ready && submitter.free_slots() > 0 {
            break;
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    let got = groups.iter().flat_map(|group| run_all(&submitter, &mut reader, group)).collect();
    stop.stop();
    (got, plane.join().unwrap())
}

fn expected(name: &str) -> Value {
    let text = std::fs::read_to_string(reference().join(format!("expected/{name}.json"))).unwrap();
    serde_json::from_str(&text).unwrap()
}

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
        let path = reference().join("models").join(&name);
        let folder = ModelFolder::open(path.to_str().unwrap(), &OpenOptions::default()).unwrap();
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

fn bits(records: &[Records]) -> Vec<Vec<(u32, u32, Vec<u32>)>> {
    let of_one = |records: &Records| {
        let top = |top: &[f32]| top.iter().map(|value| value.to_bits()).collect();
        records.iter().map(|(token, value, more)| (*token, value.to_bits(), top(more))).collect()
    };
    records.iter().map(of_one).collect()
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
