//! The reference models on the device plane, through the real ring.
#![allow(dead_code, missing_docs)] // each test binary uses its part
#![allow(clippy::unwrap_used)] // clippy exempts only functions marked as tests

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

use saccade_device::{
    AdapterLimits, Device, DeviceConfig, DeviceError, DeviceKind, KvDtype, PolicyConfig,
    PrefillPolicy, Quantization, RegionMemory, SchedulingPolicy,
};
use saccade_model::{Dtype, DtypeChoice, ModelConfig, ModelFolder, OpenOptions, Weights};
use saccade_ring::{
    Finish, FrontendRing, InProcTransport, Phase, Reader, Record, RegionLimits, RequestParams,
    Sink, Submission, Submitter, Ticket, Transport,
};
use serde_json::Value;

pub struct Memory(InProcTransport);

// SAFETY: the transport keeps the region alive, at one address, while a clone of it lives.
unsafe impl RegionMemory for Memory {
    fn base(&self) -> *mut u8 {
        self.0.base_ptr()
    }
    fn len(&self) -> usize {
        self.0.region_bytes() as usize
    }
}

/// Of one request: token, logprob, and the alternatives with theirs, best first.
pub type Records = Vec<(u32, f32, Vec<(u32, f32)>)>;

/// Collects (token, logprob, alternatives) of each ticket.
#[derive(Default)]
pub struct Collected {
    records: HashMap<Ticket, Records>,
    embeddings: HashMap<Ticket, Vec<f32>>,
    cached: HashMap<Ticket, u32>,
    ended: HashMap<Ticket, Finish>,
}

impl Sink for Collected {
    fn room(&mut self, _: Ticket) -> usize {
        7 // little, so that the output ring's backpressure is at work
    }
    fn cached(&mut self, ticket: Ticket, tokens: u32) {
        self.cached.insert(ticket, tokens);
    }
    fn record(&mut self, ticket: Ticket, record: Record<'_>) {
        let top = record.top.to_vec();
        self.records.entry(ticket).or_default().push((record.token, record.logprob, top));
    }
    fn embedding(&mut self, ticket: Ticket, values: &[f32]) {
        self.embeddings.insert(ticket, values.to_vec());
    }
    fn finished(&mut self, ticket: Ticket, finish: Finish, _: u32) {
        self.ended.insert(ticket, finish);
    }
    fn lost(&mut self, ticket: Ticket) {
        panic!("{ticket:?} was lost");
    }
}

pub fn reference() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/reference")
}

/// What differs between the devices of these tests.
#[derive(Clone, Copy)]
pub struct Setup {
    pub choice: DtypeChoice,
    pub quantization: Quantization,
    pub kv_dtype: KvDtype,
    pub max_model_len: u32,
    pub num_blocks: u32,
    pub num_host_blocks: u32,
    pub prefix_caching: bool,
    pub policy: SchedulingPolicy,
    pub adapters: AdapterLimits,
}

impl Setup {
    /// Room for all prompts at once.
    pub fn roomy(choice: DtypeChoice) -> Self {
        Self {
            choice,
            quantization: Quantization::None,
            kv_dtype: KvDtype::Auto,
            max_model_len: 512,
            num_blocks: 256,
            num_host_blocks: 0,
            prefix_caching: false,
            policy: SchedulingPolicy::Fcfs,
            adapters: AdapterLimits::default(),
        }
    }
}

pub fn create(
    model: &ModelConfig,
    weights: Option<&Weights>,
    dtype: Dtype,
    setup: &Setup,
) -> Device {
    create_scaled(model, weights, dtype, setup, &[]).unwrap()
}

/// As `create`, with scales of FP8 KV.
pub fn create_scaled(
    model: &ModelConfig,
    weights: Option<&Weights>,
    dtype: Dtype,
    setup: &Setup,
    kv_scales: &[[f32; 2]],
) -> Result<Device, DeviceError> {
    let mut config = DeviceConfig {
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
        fetch: None,
        grammar_words: 0,
        embedding_size: model.hidden_size,
        adapters: setup.adapters,
        prefix_caching: setup.prefix_caching.then_some(1),
        policy: PolicyConfig { policy: setup.policy, ..PolicyConfig::default() },
        num_threads: 2,
        eos_ids: model.eos_ids.clone(),
        log_decisions: true,
        quantization: setup.quantization,
        fp8_roles: Vec::new(),
        kv_dtype: setup.kv_dtype,
        kv_scales: kv_scales.to_vec(),
        cuda: Default::default(),
    };
    config.keep_fp8(model, weights);
    let mut device = Device::create(&config, Some((model, dtype)), model.vocab_size)?;
    device.set_rope(&model.rope_tables(config.max_model_len))?;
    Ok(device)
}

pub fn load(folder: &ModelFolder, setup: &Setup) -> Device {
    let model = folder.config().unwrap();
    let weights = Weights::open(folder, &model).unwrap();
    let dtype = setup.choice.resolve(model.dtype, weights.stored_dtype());
    let mut device = create(&model, Some(&weights), dtype, setup);
    device.load(&weights, |_| ()).unwrap();
    device.finish_load().unwrap();
    device
}

/// A greedy request, or one for an embedding.
pub struct Question {
    pub prompt: Vec<u32>,
    /// 0: its embedding is asked for.
    pub max_tokens: u32,
    pub prompt_logprobs: bool,
    /// 0: the model as it is.
    pub adapter: u32,
}

impl Question {
    /// For the embedding of a prompt.
    pub fn to_embed(prompt: Vec<u32>) -> Self {
        Self { prompt, max_tokens: 0, prompt_logprobs: false, adapter: 0 }
    }

    /// What a result of the reference answers.
    pub fn of(result: &Value) -> Self {
        Self {
            prompt: ids(&result["prompt"]),
            max_tokens: result["greedy"].as_array().unwrap().len() as u32,
            prompt_logprobs: true,
            adapter: 0,
        }
    }
}

/// What a request yielded.
pub struct Answer {
    pub records: Records,
    pub embedding: Vec<f32>,
    /// Tokens of the prompt that were not computed.
    pub cached: u32,
}

pub fn submit(submitter: &Submitter<InProcTransport>, question: &Question) -> Ticket {
    let params = match question.max_tokens {
        0 => RequestParams::embedding(submitter.device().embedding_size),
        max_tokens => RequestParams {
            ignore_eos: true,
            logprobs: true,
            prompt_logprobs: question.prompt_logprobs,
            num_top_logprobs: 5,
            adapter: question.adapter,
            max_tokens,
            temperature: 0.0,
            ..RequestParams::default()
        },
    };
    let submission = Submission {
        prompt: &question.prompt,
        logit_bias: &[],
        stop_ids: &[],
        grammar: &[],
        params,
    };
    submitter.try_submit(&submission).unwrap()
}

pub fn ids(list: &Value) -> Vec<u32> {
    list.as_array().unwrap().iter().map(|v| v.as_u64().unwrap() as u32).collect()
}

pub fn run_all(
    submitter: &Submitter<InProcTransport>,
    reader: &mut Reader<InProcTransport>,
    questions: &[Question],
) -> Vec<Answer> {
    let mut sink = Collected::default();
    let tickets: Vec<Ticket> = questions.iter().map(|q| submit(submitter, q)).collect();
    for _ in 0..100_000 {
        submitter.heartbeat();
        reader.poll(&mut sink);
        if sink.ended.len() == tickets.len() {
            break;
        }
        reader.wait(Duration::from_millis(1));
    }
    for (ticket, question) in tickets.iter().zip(questions) {
        let finish = if question.max_tokens == 0 { Finish::Stop } else { Finish::Length };
        assert_eq!(sink.ended.get(ticket), Some(&finish), "{ticket:?}");
    }
    let answer = |t| Answer {
        records: sink.records.remove(t).unwrap_or_default(),
        embedding: sink.embeddings.remove(t).unwrap_or_default(),
        cached: sink.cached.get(t).copied().unwrap_or_default(),
    };
    tickets.iter().map(answer).collect()
}

/// `kPreempt` of `device/sched/decision_log.hpp`.
pub const PREEMPT: u64 = 3;

/// Serves groups of prompts, those of a group at once; also tells how often a sequence was
/// preempted.
pub fn serve(name: &str, setup: &Setup, groups: &[&[Value]]) -> (Vec<Records>, usize) {
    serve_on(load(&open(&reference().join("models").join(name)), setup), groups)
}

pub fn open(path: &Path) -> ModelFolder {
    ModelFolder::open(path.to_str().unwrap(), &OpenOptions::default()).unwrap()
}

/// As `serve`, on a device that is loaded.
pub fn serve_on(device: Device, groups: &[&[Value]]) -> (Vec<Records>, usize) {
    let groups: Vec<Vec<Question>> =
        groups.iter().map(|group| group.iter().map(Question::of).collect()).collect();
    let (answers, preemptions) = ask_on(device, &groups);
    (answers.into_iter().map(|answer| answer.records).collect(), preemptions)
}

/// As `serve_on`, for any questions.
pub fn ask_on(device: Device, groups: &[Vec<Question>]) -> (Vec<Answer>, usize) {
    let limits =
        RegionLimits { num_slots: 32, num_frontends: 1, out_ring_words: 256, arena_bytes: 1 << 20 };
    let transport = InProcTransport::create(&limits).unwrap();
    let mut device = device.attach(Memory(transport.clone())).unwrap();
    let stop = device.stop_handle();
    let plane = std::thread::spawn(move || {
        device.run().unwrap();
        device.check().unwrap();
        device.decisions().iter().step_by(2).filter(|word| *word & 0xff == PREEMPT).count()
    });
    let ring = FrontendRing::join(transport, 0).unwrap();
    let (submitter, mut reader) = ring.split();
    for _ in 0..1000 {
        // A ready device may not have acknowledged this frontend yet: the slots tell.
        if submitter.heartbeat().phase == Phase::Ready && submitter.free_slots() > 0 {
            break;
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    let got = groups.iter().flat_map(|group| run_all(&submitter, &mut reader, group)).collect();
    stop.stop();
    (got, plane.join().unwrap())
}

pub fn expected(name: &str) -> Value {
    let text = std::fs::read_to_string(reference().join(format!("expected/{name}.json"))).unwrap();
    serde_json::from_str(&text).unwrap()
}

/// Token, logprob and alternatives of each record, to the bit.
type Bits = Vec<(u32, u32, Vec<(u32, u32)>)>;

pub fn bits(records: &[Records]) -> Vec<Bits> {
    let of_one = |records: &Records| {
        let top =
            |top: &[(u32, f32)]| top.iter().map(|(id, value)| (*id, value.to_bits())).collect();
        records.iter().map(|(token, value, more)| (*token, value.to_bits(), top(more))).collect()
    };
    records.iter().map(of_one).collect()
}
