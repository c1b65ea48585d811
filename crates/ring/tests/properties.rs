//! Whatever is submitted, cancelled, read slowly or restarted, in whatever order: every ticket ends
//! exactly once, no token is lost, repeated or crossed, and every slot and arena byte returns.

mod common;

use common::{
    Ask, DEVICE, End, FrontendSide, Ledger, PATIENT, VOCAB, cases, frontend_side, small_ring,
    submit,
};
use proptest::prelude::*;
use saccade_ring::testing::FakeDevice;
use saccade_ring::{FrontendRing, InProcTransport, Reader, RequestParams, SubmitError, Submitter};

#[derive(Clone, Debug)]
enum Op {
    Submit(Ask),
    /// Cancels the n-th ticket (modulo the number of tickets), ended or not.
    Cancel(usize),
    /// Gives the n-th ticket this much room from now on.
    Room(usize, usize),
    Tick(usize),
    Poll,
    RestartDevice,
    /// The device dies; nothing runs until the next restart.
    KillDevice,
    RestartFrontend,
}

fn ask() -> impl Strategy<Value = Ask> {
    let prompt = prop::collection::vec(0..VOCAB, 1..40);
    let stop_ids = prop::collection::vec(0..VOCAB, 0..40);
    (prompt, stop_ids, 1u32..90, 0u32..4, any::<[bool; 2]>(), 0u32..=20, any::<u64>()).prop_map(
        |(prompt, stop_ids, max_tokens, min_tokens, [logprobs, prompt_logprobs], top, seed)| {
            let num_top_logprobs = if logprobs || prompt_logprobs { top } else { 0 };
            let params = RequestParams {
                max_tokens,
                min_tokens: min_tokens.min(max_tokens),
                logprobs,
                prompt_logprobs,
                num_top_logprobs,
                seed,
                ..RequestParams::default()
            };
            Ask { prompt, stop_ids, params }
        },
    )
}

fn op() -> impl Strategy<Value = Op> {
    prop_oneof![
        12 => ask().prop_map(Op::Submit),
        6 => any::<usize>().prop_map(Op::Cancel),
        6 => (any::<usize>(), prop_oneof![Just(0), 1usize..9, Just(usize::MAX)])
            .prop_map(|(n, room)| Op::Room(n, room)),
        12 => (1usize..6).prop_map(Op::Tick),
        10 => Just(Op::Poll),
        1 => Just(Op::RestartDevice),
        1 => Just(Op::KillDevice),
        1 => Just(Op::RestartFrontend),
    ]
}

/// One frontend and one device, driven step by step.
struct World {
    transport: InProcTransport,
    device: Option<FakeDevice<InProcTransport>>,
    submitter: Submitter<FrontendSide>,
    reader: Reader<FrontendSide>,
    ledger: Ledger,
    arena_bytes: u64,
}

impl World {
    fn new() -> World {
        let (transport, device, ring) = small_ring();
        let (submitter, reader) = ring.split();
        assert_eq!(submitter.free_slots(), 32);
        let arena_bytes = submitter.free_arena_bytes();
        let device = Some(device);
        World { transport, device, submitter, reader, ledger: Ledger::default(), arena_bytes }
    }

    fn apply(&mut self, op: &Op) {
        match op {
            Op::Submit(ask) => self.submit(ask),
            Op::Cancel(n) => {
                if let Some(&ticket) = pick(&self.ledger.order, *n) {
                    self.submitter.cancel(ticket);
                    self.ledger.lines.entry(ticket).and_modify(|line| line.cancelled = true);
                }
            }
            Op::Room(n, room) => {
                if let Some(&ticket) = pick(&self.ledger.order, *n) {
                    self.ledger.lines.entry(ticket).and_modify(|line| line.room = *room);
                }
            }
            Op::Tick(ticks) => {
                let device = self.device.iter_mut();
                device.for_each(|d| (0..*ticks).for_each(|_| d.tick().expect("in process")));
            }
            Op::Poll => self.poll(),
            Op::RestartDevice => self.restart_device(),
            Op::KillDevice => {
                if let Some(mut device) = self.device.take() {
                    device.put_phase(0).expect("in process");
                }
            }
            Op::RestartFrontend => self.restart_frontend(),
        }
    }

    fn submit(&mut self, ask: &Ask) {
        let ready = self.device.is_some();
        match submit(&self.submitter, &mut self.ledger, ask) {
            Ok(_) => assert!(ready, "submitted to no device"),
            Err(SubmitError::Invalid(why)) => panic!("{why}"),
            // Also right after a join, before the device has acknowledged it.
            Err(SubmitError::DeviceNotReady) => {}
            Err(SubmitError::SlotsFull | SubmitError::ArenaFull) => assert!(ready),
        }
    }

    fn poll(&mut self) {
        let before = self.ledger.in_flight();
        let summary = self.reader.poll(&mut self.ledger);
        assert_eq!(summary.in_flight, self.ledger.in_flight());
        assert_eq!(summary.finished + summary.lost, before - self.ledger.in_flight());
    }

    fn restart_device(&mut self) {
        let mut device = FakeDevice::join(self.transport.clone(), DEVICE).expect("our region");
        device.ready().expect("in process");
        self.device = Some(device);
    }

    /// The old frontend dies with its tickets; its tickets count as lost.
    fn restart_frontend(&mut self) {
        let ring = FrontendRing::join_with(frontend_side(&self.transport), 0, PATIENT)
            .expect("our region");
        let open = self.ledger.lines.values_mut().filter(|line| line.end.is_none());
        open.for_each(|line| line.end = Some(End::Lost));
        (self.submitter, self.reader) = ring.split();
    }

    /// Lets everything end, then looks for what did not come back.
    fn settle(&mut self) {
        if self.device.is_none() {
            self.restart_device();
        }
        // At most 32 requests of at most 130 records, 3 to a tick, 8 at a time.
        for _ in 0..1000 {
            let idle = self.device.as_ref().is_some_and(|device| device.in_flight() == 0);
            if idle && self.ledger.in_flight() == 0 && self.submitter.free_slots() == 32 {
                break;
            }
            self.ledger.lines.values_mut().for_each(|line| line.room = usize::MAX);
            self.apply(&Op::Tick(1));
            self.poll();
        }
        assert_eq!(self.ledger.in_flight(), 0, "{:?}", self.ledger.lines);
        assert_eq!(self.submitter.free_slots(), 32);
        assert_eq!(self.submitter.free_arena_bytes(), self.arena_bytes);
        assert_eq!(self.reader.violations(), 0);
        assert_eq!(self.device.as_ref().map(FakeDevice::in_flight), Some(0));
    }
}

fn pick<V>(items: &[V], n: usize) -> Option<&V> {
    if items.is_empty() { None } else { items.get(n % items.len()) }
}

proptest! {
    // A failing case prints its operations and writes its seed next to this file.
    #![proptest_config(ProptestConfig::with_cases(cases(150)))]

    #[test]
    fn every_ticket_ends_once_and_everything_returns(ops in prop::collection::vec(op(), 1..150)) {
        let mut world = World::new();
        ops.iter().for_each(|op| world.apply(op));
        world.settle();
    }
}

#[test]
fn a_slow_reader_stalls_only_its_own_request() {
    let mut world = World::new();
    let slow = submit(&world.submitter, &mut world.ledger, &Ask::new(vec![1], 500)).expect("room");
    let fast = submit(&world.submitter, &mut world.ledger, &Ask::new(vec![2], 500)).expect("room");
    world.ledger.lines.entry(slow).and_modify(|line| line.room = 0);
    let mut stalled = 0;
    for _ in 0..300 {
        world.apply(&Op::Tick(1));
        stalled += world.reader.poll(&mut world.ledger).stalled;
    }
    assert_eq!(world.ledger.lines[&fast].delivered, 500);
    assert_eq!(world.ledger.lines[&slow].delivered, 0);
    assert!(stalled >= 299, "{stalled}");
    world.settle();
    assert_eq!(world.ledger.lines[&slow].delivered, 500);
}

#[test]
fn slots_and_arena_are_bounded_and_say_which_is_full() {
    let mut world = World::new();
    let small = Ask::new(vec![1], 4);
    for _ in 0..32 {
        submit(&world.submitter, &mut world.ledger, &small).expect("a free slot");
    }
    let full = submit(&world.submitter, &mut world.ledger, &small);
    assert_eq!(full, Err(SubmitError::SlotsFull));
    world.settle();
    let large = Ask::new(vec![1; 1000], 4);
    submit(&world.submitter, &mut world.ledger, &large).expect("fits");
    submit(&world.submitter, &mut world.ledger, &large).expect("fits");
    let full = submit(&world.submitter, &mut world.ledger, &large);
    assert_eq!(full, Err(SubmitError::ArenaFull));
    // Once the device has taken over the input, its room is free before the request has ended.
    world.apply(&Op::Tick(1));
    world.poll();
    submit(&world.submitter, &mut world.ledger, &large).expect("room again");
    world.settle();
}
