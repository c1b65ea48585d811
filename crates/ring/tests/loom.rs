//! Model checks: the same source files, compiled with loom's types instead of the standard ones,
//! run through every interleaving and every stale read that the memory model allows (with at most
//! two preemptions).
//!
//! The region is a [`Model`]: the few words that order things are loom atomics, the payload that
//! they order (descriptor, input, records) is cells in which loom reports every unordered pair of
//! accesses, and everything else is constant during a check.
//!
//! Each check also runs with one order weakened, and must then fail. So the table below lists the
//! orders that the protocol needs, and proves that the checks see them.
//!
//! | weakened | what then happens |
//! |---|---|
//! | doorbell store to relaxed | the device reads a descriptor that is being written |
//! | status store to relaxed | the reader reads a record that is being written |
//! | cursor store to relaxed | the device overwrites a record that is being read |
//! | the frontend's fences left out | the device sleeps on, its doorbell rung |
//! | the device's fences left out | the reader sleeps on, its tokens published |
//! | an arrival to relaxed | the reader reads the bounds of the slot's earlier request |
//! | a return to relaxed | the end of a request cancels the slot's next one |
//! | the hand-over after the ring | a cancel is overwritten by the ring that it follows |
//! | the hand-over to the canceller | likewise |
//! | the hand-over after a cancel | the cancel overwrites the doorbell of the slot's next request |
//! | the hand-over at the end | likewise |

// The modules are whole; a check uses a part of them.
#![allow(dead_code, unused_imports, missing_docs)]

#[path = "../src/arena.rs"]
mod arena;
#[path = "../src/bits.rs"]
mod bits;
#[path = "../src/device.rs"]
mod device;
#[path = "../src/edge.rs"]
mod edge;
#[path = "../src/gate.rs"]
mod gate;
#[path = "../src/join.rs"]
mod join;
#[path = "../src/layout.rs"]
mod layout;
#[path = "../src/reader.rs"]
mod reader;
#[path = "../src/records.rs"]
mod records;
#[path = "../src/region.rs"]
mod region;
#[path = "../src/request.rs"]
mod request;
#[path = "../src/shared.rs"]
mod shared;
#[path = "../src/submitter.rs"]
mod submitter;
#[path = "../src/testing.rs"]
mod testing;
#[path = "../src/tracker.rs"]
mod tracker;
#[path = "../src/transport.rs"]
mod transport;
#[path = "../src/wake.rs"]
mod wake;

#[path = "loom/model.rs"]
mod model;

/// Stands in for `src/sync.rs`, which says what the names mean.
mod sync {
    pub(crate) use loom::sync::atomic::AtomicU64;
    pub(crate) use loom::sync::{Arc, Mutex, MutexGuard};
    use std::cell::Cell;
    use std::sync::atomic::Ordering;

    pub(crate) const PUBLISH: Ordering = Ordering::Release;
    pub(crate) const OBSERVE: Ordering = Ordering::Acquire;
    pub(crate) const PAYLOAD: Ordering = Ordering::Relaxed;
    pub(crate) const STORE_CHECK: Ordering = Ordering::SeqCst;

    pub(crate) use crate::edge::Edge;

    thread_local! {
        /// The edge that this test weakens: loom runs all threads of a model on the test's own.
        pub(crate) static WEAK: Cell<Option<Edge>> = const { Cell::new(None) };
    }

    pub(crate) fn order(at: Edge) -> Ordering {
        if WEAK.get() == Some(at) { Ordering::Relaxed } else { crate::edge::order(at) }
    }

    pub(crate) fn lock<V>(mutex: &Mutex<V>) -> MutexGuard<'_, V> {
        mutex.lock().expect("a panic ends the model")
    }
}

// As in src/lib.rs: the modules name these through the crate.
pub use request::{Finish, Record, RequestParams, Submission, SubmitError, Ticket};
pub use transport::{Halves, Transport, TransportError};

use std::time::Duration;

use bits::SlotBits;
use edge::Edge;
use gate::{Cancel, End, Gate};
use join::{FrontendRing, JoinOptions};
use model::{Hot, Model, Weak};
use reader::{Reader, Sink};
use submitter::Submitter;
use sync::WEAK;
use testing::{FakeConfig, FakeDevice, scripted_token};

const VOCAB: u32 = 100;
const JOIN: JoinOptions =
    JoinOptions { device_lost_after: Duration::from_secs(3600), ack_timeout: Duration::ZERO };

/// Checks tokens as they come; counts ends.
#[derive(Default)]
struct Tokens {
    prompt: Vec<u32>,
    taken: u32,
    room: Option<usize>,
    ends: Vec<(Finish, u32)>,
}

impl Sink for Tokens {
    fn room(&mut self, _: Ticket) -> usize {
        self.room.unwrap_or(usize::MAX)
    }
    fn record(&mut self, _: Ticket, record: Record<'_>) {
        assert_eq!(record.token, scripted_token(&self.prompt, 0, self.taken, VOCAB));
        self.taken += 1;
    }
    fn finished(&mut self, _: Ticket, finish: Finish, count: u32) {
        self.ends.push((finish, count));
    }
    fn lost(&mut self, ticket: Ticket) {
        panic!("{ticket:?} is lost, and the device is well");
    }
}

struct Planes {
    device: FakeDevice<Model>,
    submitter: Submitter<Model>,
    reader: Reader<Model>,
}

/// Both planes over one model region in which only slot 0 can be used.
fn planes(weak: Weak, records_per_tick: u32) -> Planes {
    let model = Model::new(weak);
    let config = FakeConfig {
        vocab_size: VOCAB,
        max_model_len: 64,
        max_num_seqs: 1,
        records_per_tick,
        ..FakeConfig::default()
    };
    let mut device = FakeDevice::join(model.device_side(), config).expect("a fresh region");
    device.ready().expect("no access leaves the region");
    let ring = FrontendRing::join_with(model.frontend_side(), 0, JOIN).expect("a fresh region");
    device.tick().expect("acknowledges");
    model.close_slots_but_the_first();
    let (submitter, reader) = ring.split();
    assert_eq!(submitter.free_slots(), 1);
    Planes { device, submitter, reader }
}

fn submit(submitter: &Submitter<Model>, prompt: &[u32], params: RequestParams) -> Ticket {
    let submission = Submission { prompt, logit_bias: &[], stop_ids: &[], grammar: &[], params };
    submitter.try_submit(&submission).expect("the slot is free")
}

fn max_tokens(max_tokens: u32) -> RequestParams {
    RequestParams { max_tokens, ..RequestParams::default() }
}

/// Ticks until `requests` have come and ended.
fn serve(mut device: FakeDevice<Model>, requests: u64) {
    loop {
        device.tick().expect("no access leaves the region");
        if device.ended() == requests {
            return;
        }
        loom::thread::yield_now();
    }
}

fn read_to_end(reader: &mut Reader<Model>, tokens: &mut Tokens) {
    let ends = tokens.ends.len();
    loop {
        reader.poll(tokens);
        if tokens.ends.len() > ends {
            return;
        }
        loom::thread::yield_now();
    }
}

/// Panics of models, expected ones too, go to standard error past the test harness: its hook holds
/// a thread's locks while loom switches coroutines on it, and two checks that fail at the same time
/// then deadlock.
fn say_panics_plainly() {
    static ONCE: std::sync::Once = std::sync::Once::new();
    ONCE.call_once(|| {
        std::panic::set_hook(Box::new(|panic| {
            use std::io::Write as _;
            // A message that cannot be written changes no verdict.
            let _ = std::io::stderr().write_all(format!("{panic}\n").as_bytes());
        }));
    });
}

fn check(model: impl Fn() + Sync + Send + 'static) {
    say_panics_plainly();
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(2);
    builder.max_branches = 100_000;
    builder.check(model);
}

/// A request goes out and its tokens come back; twice in the same slot and the same input extent.
fn publish(weak: Weak, requests: u32) {
    check(move || {
        let Planes { device, submitter, mut reader } = planes(weak, 1);
        let device = loom::thread::spawn(move || serve(device, requests.into()));
        for request in 0..requests {
            let mut tokens = Tokens { prompt: vec![1 + request], ..Tokens::default() };
            submit(&submitter, &tokens.prompt, max_tokens(1));
            read_to_end(&mut reader, &mut tokens);
            assert_eq!((tokens.taken, &tokens.ends[..]), (1, &[(Finish::Length, 1)][..]));
        }
        assert_eq!((submitter.free_slots(), reader.violations()), (1, 0));
        device.join().expect("the device ends");
    });
}

#[test]
fn records_and_requests_are_whole_when_they_are_seen() {
    publish(Weak::Nothing, 2);
}

#[test]
#[should_panic(expected = "Causality violation")]
fn a_doorbell_must_be_released() {
    publish(Weak::Store(Hot::Doorbell), 1);
}

#[test]
#[should_panic(expected = "Causality violation")]
fn a_status_must_be_released() {
    publish(Weak::Store(Hot::Status), 1);
}

/// A ring of three records carries four: the device may only overwrite what has been read.
fn backpressure(weak: Weak) {
    check(move || {
        let Planes { device, submitter, mut reader } = planes(weak, 2);
        let device = loom::thread::spawn(move || serve(device, 1));
        let mut tokens = Tokens { prompt: vec![5], ..Tokens::default() };
        let params = RequestParams { logprobs: true, num_top_logprobs: 20, ..max_tokens(4) };
        submit(&submitter, &tokens.prompt, params);
        read_to_end(&mut reader, &mut tokens);
        assert_eq!((tokens.taken, &tokens.ends[..]), (4, &[(Finish::Length, 4)][..]));
        assert_eq!(reader.violations(), 0);
        device.join().expect("the device ends");
    });
}

#[test]
fn a_record_is_overwritten_only_after_it_was_read() {
    backpressure(Weak::Nothing);
}

#[test]
#[should_panic(expected = "Causality violation")]
fn a_cursor_must_be_released() {
    backpressure(Weak::Store(Hot::Cursor));
}

/// A cancel races with the device, which claims, runs and ends the request: it ends once, one way
/// or the other, and its slot comes back.
#[test]
fn a_cancel_meets_the_claim() {
    check(|| {
        let Planes { device, submitter, mut reader } = planes(Weak::Nothing, 1);
        let device = loom::thread::spawn(move || serve(device, 1));
        let mut tokens = Tokens { prompt: vec![3], ..Tokens::default() };
        let ticket = submit(&submitter, &tokens.prompt, max_tokens(2));
        submitter.cancel(ticket);
        read_to_end(&mut reader, &mut tokens);
        let [end] = tokens.ends[..] else { panic!("{:?}", tokens.ends) };
        assert!(matches!(end, (Finish::Length, 2) | (Finish::Cancelled, 0..=2)), "{end:?}");
        assert_eq!((submitter.free_slots(), reader.violations()), (1, 0));
        device.join().expect("the device ends");
    });
}

/// A cancel races with the reader, which ends the ticket, and with the slot's next ticket: that one
/// must not be cancelled, nor its doorbell overwritten.
fn late_cancel(weak: Option<Edge>) {
    check(move || {
        WEAK.set(weak);
        let Planes { mut device, submitter, mut reader } = planes(Weak::Nothing, 1);
        let mut tokens = Tokens { prompt: vec![3], ..Tokens::default() };
        let ticket = submit(&submitter, &tokens.prompt, max_tokens(1));
        device.tick().expect("no access leaves the region");
        device.tick().expect("no access leaves the region");
        let other = submitter.clone();
        let canceller = loom::thread::spawn(move || other.cancel(ticket));
        read_to_end(&mut reader, &mut tokens);
        let mut next = Tokens { prompt: vec![4], ..Tokens::default() };
        // The slot is the canceller's until it leaves.
        while submitter.free_slots() == 0 {
            loom::thread::yield_now();
        }
        submit(&submitter, &next.prompt, max_tokens(1));
        canceller.join().expect("the canceller ends");
        serve(device, 2);
        read_to_end(&mut reader, &mut next);
        assert_eq!((next.taken, &next.ends[..]), (1, &[(Finish::Length, 1)][..]));
    });
}

#[test]
fn a_late_cancel_spares_the_next_ticket() {
    late_cancel(None);
}

#[test]
#[should_panic(expected = "Causality violation")]
fn a_canceller_must_hand_the_doorbell_on() {
    late_cancel(Some(Edge::Leave));
}

/// A slot goes from a canceller and the reader to its next submitter, with nothing around that
/// orders their writes of the doorbell by chance: the region's fences do.
fn relay(weak: Option<Edge>) {
    use loom::cell::UnsafeCell;
    use loom::sync::Arc;

    /// SAFETY: loom runs one thread at a time, and reports accesses that are not ordered.
    struct Slot {
        gate: Gate,
        returned: SlotBits,
        doorbell: UnsafeCell<()>,
    }
    // SAFETY: see `Slot`.
    unsafe impl Send for Slot {}
    // SAFETY: see `Slot`.
    unsafe impl Sync for Slot {}

    check(move || {
        WEAK.set(weak);
        let gate = Gate::new();
        let slot = Slot { gate, returned: SlotBits::new(1), doorbell: UnsafeCell::new(()) };
        let slot = Arc::new(slot);
        slot.gate.open(7);
        slot.doorbell.with_mut(|_| ());
        assert!(slot.gate.rung(7, false));
        let give_back = |slot: &Slot| slot.returned.set(0, sync::order(Edge::Return));
        let canceller = loom::thread::spawn({
            let slot = Arc::clone(&slot);
            move || {
                if slot.gate.cancel(7) == Cancel::Write {
                    slot.doorbell.with_mut(|_| ());
                    if slot.gate.leave().is_some() {
                        give_back(&slot);
                    }
                }
            }
        });
        let reader = loom::thread::spawn({
            let slot = Arc::clone(&slot);
            move || {
                if let End::Mine { .. } = slot.gate.end(false) {
                    give_back(&slot);
                }
            }
        });
        let mut returned = 0;
        while returned == 0 {
            slot.returned.take(|_| returned += 1);
            loom::thread::yield_now();
        }
        slot.doorbell.with_mut(|_| ());
        canceller.join().expect("the canceller ends");
        reader.join().expect("the reader ends");
        slot.returned.take(|_| returned += 1);
        assert_eq!(returned, 1, "given back twice");
    });
}

#[test]
fn a_slot_goes_from_hand_to_hand() {
    relay(None);
}

#[test]
#[should_panic(expected = "Causality violation")]
fn a_slot_must_be_given_back_with_what_was_done_to_it() {
    relay(Some(Edge::Return));
}

#[test]
#[should_panic(expected = "Causality violation")]
fn the_end_must_take_the_doorbell_over() {
    relay(Some(Edge::End));
}

/// A cancel races with the ring of its own ticket: it is carried, or it comes after.
fn early_cancel(weak: Option<Edge>) {
    check(move || {
        WEAK.set(weak);
        let Planes { mut device, submitter, mut reader } = planes(Weak::Nothing, 1);
        let other = submitter.clone();
        let (device_epoch, ticket) = (device.epoch(), 1);
        let canceller = loom::thread::spawn(move || {
            other.cancel(Ticket { slot: 0, ticket, device_epoch });
        });
        let mut tokens = Tokens { prompt: vec![3], ..Tokens::default() };
        let submitted = submit(&submitter, &tokens.prompt, max_tokens(1));
        assert_eq!(submitted, Ticket { slot: 0, ticket, device_epoch });
        canceller.join().expect("the canceller ends");
        device.tick().expect("no access leaves the region");
        device.tick().expect("no access leaves the region");
        read_to_end(&mut reader, &mut tokens);
        // A cancel of a ticket that does not exist yet is none.
        assert!(matches!(tokens.ends[..], [(Finish::Length, 1) | (Finish::Cancelled, 0)]));
        assert_eq!(submitter.free_slots(), 1);
    });
}

#[test]
fn an_early_cancel_is_not_lost() {
    early_cancel(None);
}

#[test]
#[should_panic(expected = "Causality violation")]
fn the_ring_must_hand_the_doorbell_on() {
    early_cancel(Some(Edge::Rung));
}

#[test]
#[should_panic(expected = "Causality violation")]
fn a_cancel_must_take_the_doorbell_over() {
    early_cancel(Some(Edge::Cancel));
}

/// The reader and the submitter are two threads, and the slot goes from one to the other and back.
fn turns(weak: Option<Edge>) {
    check(move || {
        WEAK.set(weak);
        let Planes { mut device, submitter, mut reader } = planes(Weak::Nothing, 1);
        let reading = loom::thread::spawn(move || {
            let mut tokens = Tokens { prompt: vec![1], ..Tokens::default() };
            read_to_end(&mut reader, &mut tokens);
            assert_eq!((tokens.taken, &tokens.ends[..]), (1, &[(Finish::Length, 1)][..]));
            reader
        });
        submit(&submitter, &[1], max_tokens(1));
        device.tick().expect("no access leaves the region");
        while submitter.free_slots() == 0 {
            loom::thread::yield_now();
        }
        submit(&submitter, &[2], max_tokens(1));
        device.tick().expect("no access leaves the region");
        let mut reader = reading.join().expect("the reader ends");
        let mut tokens = Tokens { prompt: vec![2], ..Tokens::default() };
        read_to_end(&mut reader, &mut tokens);
        assert_eq!((tokens.taken, &tokens.ends[..]), (1, &[(Finish::Length, 1)][..]));
    });
}

#[test]
fn a_slot_goes_round() {
    turns(None);
}

#[test]
#[should_panic]
fn an_arrival_must_be_released() {
    turns(Some(Edge::Arrive));
}

#[test]
#[should_panic(expected = "Cancelled")]
fn a_return_must_be_released() {
    turns(Some(Edge::Return));
}

/// What each of the three threads at a gate is told, in the orders that matter.
#[test]
fn the_last_thread_at_a_gate_gives_the_slot_back() {
    check(|| {
        let gate = Gate::new();
        assert_eq!(gate.cancel(0), Cancel::Nothing, "no ticket yet");
        gate.open(7);
        assert_eq!(gate.cancel(6), Cancel::Nothing);
        assert_eq!(gate.cancel(7), Cancel::Carried);
        assert_eq!(gate.cancel(7), Cancel::Nothing, "once");
        assert!(!gate.rung(7, false), "must ring again");
        assert_eq!(gate.leave(), None);
        assert_eq!(gate.end(false), End::Mine { cancelled: true });
        for drains in [false, true] {
            gate.open(8);
            assert!(gate.rung(8, false));
            assert_eq!(gate.cancel(8), Cancel::Write);
            assert_eq!(gate.end(drains), End::Theirs);
            assert_eq!(gate.cancel(8), Cancel::Nothing);
            assert_eq!(gate.leave(), Some(drains));
        }
        gate.open(9);
        gate.abandon();
        assert_eq!(gate.cancel(9), Cancel::Nothing);
    });
}

/// Both sides sleep without a timeout when they find nothing to do: a lost wake-up is a deadlock.
fn sleep_and_wake(weak: Weak) {
    check(move || {
        let Planes { mut device, submitter, mut reader } = planes(weak, 1);
        let device = loom::thread::spawn(move || {
            while device.ended() == 0 {
                device.tick().expect("no access leaves the region");
                if device.in_flight() == 0 && device.ended() == 0 {
                    device.sleep(Duration::MAX).expect("no access leaves the region");
                }
            }
        });
        let mut tokens = Tokens { prompt: vec![7], ..Tokens::default() };
        submit(&submitter, &tokens.prompt, max_tokens(1));
        while tokens.ends.is_empty() {
            reader.poll(&mut tokens);
            if tokens.ends.is_empty() {
                reader.wait(Duration::MAX);
            }
        }
        device.join().expect("the device ends");
    });
}

#[test]
fn no_wake_up_is_lost() {
    sleep_and_wake(Weak::Nothing);
}

#[test]
#[should_panic(expected = "deadlock")]
fn the_frontend_must_fence() {
    sleep_and_wake(Weak::FrontendFence);
}

#[test]
#[should_panic(expected = "deadlock")]
fn the_device_must_fence() {
    sleep_and_wake(Weak::DeviceFence);
}
