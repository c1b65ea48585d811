//! A frontend whose every delivery is checked at once against what the fake device is scripted to
//! produce.
#![allow(dead_code)] // each test binary uses a part of it

use std::collections::HashMap;
use std::time::Duration;

use saccade_ring::remote::{ListenerOptions, Peer, RemoteListener, RemoteTransport, Way};
use saccade_ring::testing::{FakeConfig, FakeDevice, scripted_token};
use saccade_ring::{
    Finish, FrontendRing, InProcTransport, JoinOptions, Record, RegionLimits, RequestParams, Sink,
    Submission, SubmitError, Submitter, Ticket, Transport, TransportError,
};

/// The smallest region: 32 slots, 64 words of output, and an arena that a few prompts fill.
pub const SMALL: RegionLimits =
    RegionLimits { num_slots: 32, num_frontends: 1, out_ring_words: 64, arena_bytes: 8192 };

pub const VOCAB: u32 = 1000;

/// A deterministic device with small numbers.
pub const DEVICE: FakeConfig = FakeConfig {
    vocab_size: VOCAB,
    max_model_len: 1024,
    max_num_seqs: 8,
    records_per_tick: 3,
    kv_block_bytes: 0,
    num_host_blocks: 0,
    process: (0, 0),
    grammars: (0, 0),
    embedding_size: 0,
    num_adapters: 0,
    measures_roof: false,
};

/// Joins without waiting, and declares the device lost only when told to.
pub const PATIENT: JoinOptions =
    JoinOptions { device_lost_after: Duration::from_secs(600), ack_timeout: Duration::ZERO };

/// A request of a test.
#[derive(Clone, Debug)]
pub struct Ask {
    pub prompt: Vec<u32>,
    pub stop_ids: Vec<u32>,
    pub params: RequestParams,
}

impl Ask {
    pub fn new(prompt: Vec<u32>, max_tokens: u32) -> Ask {
        let params = RequestParams { max_tokens, ..RequestParams::default() };
        Ask { prompt, stop_ids: Vec::new(), params }
    }

    pub fn submission(&self) -> Submission<'_> {
        Submission {
            prompt: &self.prompt,
            logit_bias: &[],
            stop_ids: &self.stop_ids,
            grammar: &[],
            params: self.params,
        }
    }

    /// The token of record `i`.
    fn token(&self, i: u32) -> u32 {
        let echoed = self.echoed();
        match i.checked_sub(echoed) {
            None => self.prompt[i as usize + 1],
            Some(i) => scripted_token(&self.prompt, self.params.seed, i, VOCAB),
        }
    }

    fn echoed(&self) -> u32 {
        if self.params.prompt_logprobs { self.prompt.len() as u32 - 1 } else { 0 }
    }

    /// Records and finish reason of a request that is not cancelled.
    fn end(&self) -> (u32, Finish) {
        let echoed = self.echoed();
        for i in 0..self.params.max_tokens {
            let stops = self.stop_ids.contains(&self.token(echoed + i));
            if stops && i + 1 > self.params.min_tokens {
                return (echoed + i + 1, Finish::Stop);
            }
        }
        (echoed + self.params.max_tokens, Finish::Length)
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    Finished(Finish, u32),
    Lost,
}

#[derive(Clone, Debug)]
pub struct Line {
    pub ask: Ask,
    pub delivered: u32,
    pub cancelled: bool,
    pub end: Option<End>,
    pub room: usize,
}

/// Checks each delivery as it comes: right token, right order, right ticket, one end.
#[derive(Debug, Default)]
pub struct Ledger {
    pub lines: HashMap<Ticket, Line>,
    pub order: Vec<Ticket>,
}

impl Ledger {
    pub fn announce(&mut self, ticket: Ticket, ask: Ask) {
        let room = usize::MAX;
        let line = Line { ask, delivered: 0, cancelled: false, end: None, room };
        assert!(self.lines.insert(ticket, line).is_none(), "{ticket:?} was given twice");
        self.order.push(ticket);
    }

    fn open(&mut self, ticket: Ticket) -> &mut Line {
        let line = self.lines.get_mut(&ticket).unwrap_or_else(|| panic!("unknown {ticket:?}"));
        assert_eq!(line.end, None, "{ticket:?} goes on after its end");
        line
    }

    pub fn in_flight(&self) -> usize {
        self.lines.values().filter(|line| line.end.is_none()).count()
    }
}

impl Sink for Ledger {
    fn room(&mut self, ticket: Ticket) -> usize {
        self.open(ticket).room
    }

    fn record(&mut self, ticket: Ticket, record: Record<'_>) {
        let line = self.open(ticket);
        let params = line.ask.params;
        let i = line.delivered;
        assert_eq!(record.token, line.ask.token(i), "record {i} of {ticket:?}");
        let with_logprobs = params.logprobs || params.prompt_logprobs;
        assert_eq!(record.logprob, if with_logprobs { -(i as f32) } else { 0.0 });
        assert_eq!(record.top.len(), params.num_top_logprobs as usize);
        for (rank, &(token, logprob)) in (1u32..).zip(record.top) {
            assert_eq!(token, (record.token + rank) % VOCAB);
            assert_eq!(logprob, -(i as f32) - rank as f32 / 32.0);
        }
        line.delivered += 1;
        line.room = line.room.saturating_sub(1);
    }

    fn finished(&mut self, ticket: Ticket, finish: Finish, count: u32) {
        let line = self.open(ticket);
        line.end = Some(End::Finished(finish, count));
        if finish == Finish::Cancelled {
            assert!(line.cancelled, "{ticket:?} ends as cancelled, and no one cancelled it");
        } else {
            assert_eq!((count, finish), line.ask.end(), "{ticket:?}");
        }
        if !line.cancelled {
            assert_eq!(line.delivered, count, "{ticket:?} lost records");
        }
    }

    fn lost(&mut self, ticket: Ticket) {
        self.open(ticket).end = Some(End::Lost);
    }
}

/// Submits and notes the ticket before the device can know it.
pub fn submit<T: Transport>(
    submitter: &Submitter<T>,
    ledger: &mut Ledger,
    ask: &Ask,
) -> Result<Ticket, SubmitError> {
    submitter.try_submit_with(&ask.submission(), |ticket| ledger.announce(ticket, ask.clone()))
}

/// A frontend's way to a region of this process.
pub type FrontendSide = std::sync::Arc<dyn Transport>;

/// Memory, or with SACCADE_TEST_RING=tcp or =ucx a connection to a listener on the same memory:
/// what these tests show holds for all.
pub fn frontend_side(region: &InProcTransport) -> FrontendSide {
    if asked_way().is_some() {
        return std::sync::Arc::new(Connected::to(region));
    }
    std::sync::Arc::new(region.clone())
}

/// Cases of a property; each connects again over a network, which takes some ten milliseconds.
pub fn cases(in_memory: u32) -> u32 {
    if asked_way().is_some() { in_memory / 10 } else { in_memory }
}

fn asked_way() -> Option<Way> {
    std::env::var("SACCADE_TEST_RING")
        .ok()
        .map(|ring| Way::of_scheme(&ring).expect("SACCADE_TEST_RING is tcp or ucx"))
}

/// The way to a region that is always remote.
pub fn way() -> Way {
    asked_way().unwrap_or(Way::Tcp)
}

/// A small region with a ready device and a joined frontend.
pub fn small_ring() -> (InProcTransport, FakeDevice<InProcTransport>, FrontendRing<FrontendSide>) {
    let transport = InProcTransport::create(&SMALL).expect("the limits are in bounds");
    let mut device = FakeDevice::join(transport.clone(), DEVICE).expect("a fresh region");
    device.ready().expect("in process");
    let side = frontend_side(&transport);
    let ring = FrontendRing::join_with(side, 0, PATIENT).expect("a fresh region");
    device.tick().expect("in process");
    (transport, device, ring)
}

/// A transport and the listener it talks to.
struct Connected {
    transport: RemoteTransport,
    _listener: RemoteListener,
}

impl Connected {
    fn to(region: &InProcTransport) -> Connected {
        let options = ListenerOptions::default();
        let listener =
            RemoteListener::start("127.0.0.1:0", region.clone(), options).expect("a free port");
        let peer = Peer::unproved(way(), listener.address().to_string());
        let transport = RemoteTransport::connect(&peer, |event| eprintln!("{event:?}"))
            .expect("our own listener");
        Connected { transport, _listener: listener }
    }
}

impl Transport for Connected {
    saccade_ring::forward_transport!(self => &self.transport);
}

/// A region that can be cut off: puts then vanish silently, as over a connection that is lost after
/// them, and everything else fails.
#[derive(Clone)]
pub struct Breakable {
    pub region: InProcTransport,
    pub cut: std::sync::Arc<std::sync::atomic::AtomicBool>,
}

impl Breakable {
    fn up(&self) -> bool {
        !self.cut.load(std::sync::atomic::Ordering::Relaxed)
    }
}

impl Transport for Breakable {
    fn region_bytes(&self) -> u64 {
        self.region.region_bytes()
    }
    fn loses_puts(&self) -> bool {
        true
    }
    fn put(&self, at: u64, bytes: &[u8]) -> Result<(), TransportError> {
        if self.up() { self.region.put(at, bytes) } else { Ok(()) }
    }
    fn put_u32(&self, at: u64, value: u32) -> Result<(), TransportError> {
        if self.up() { self.region.put_u32(at, value) } else { Ok(()) }
    }
    fn put_u64(&self, at: u64, value: u64) -> Result<(), TransportError> {
        if self.up() { self.region.put_u64(at, value) } else { Ok(()) }
    }
    fn get(&self, at: u64, out: &mut [u8]) -> Result<(), TransportError> {
        self.region.get(at, out)
    }
    fn get_u32(&self, at: u64) -> Result<u32, TransportError> {
        if self.up() { self.region.get_u32(at) } else { Err(TransportError::Down("cut".into())) }
    }
    fn get_u64(&self, at: u64) -> Result<u64, TransportError> {
        if self.up() { self.region.get_u64(at) } else { Err(TransportError::Down("cut".into())) }
    }
    fn get_words(&self, at: u64, out: &mut [u64]) -> Result<(), TransportError> {
        self.region.get_words(at, out)
    }
    fn fetch_add_u32(&self, at: u64, value: u32) -> Result<u32, TransportError> {
        if self.up() {
            self.region.fetch_add_u32(at, value)
        } else {
            Err(TransportError::Down("cut".into()))
        }
    }
    fn fence(&self) {
        self.region.fence();
    }
    fn wake_word(&self, at: u64) -> Result<(), TransportError> {
        self.region.wake_word(at)
    }
    fn wait_word(&self, at: u64, seen: u32, timeout: Duration) -> Result<(), TransportError> {
        self.region.wait_word(at, seen, timeout)
    }
}
