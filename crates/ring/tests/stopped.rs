//! Threads of a frontend that are stopped, for as long as it takes, at each of their accesses to
//! the region, with whatever they hold there. The token reader goes on for all other tickets.

mod common;

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, mpsc};
use std::time::Duration;

use common::{Ask, DEVICE, End, Ledger, PATIENT, SMALL};
use saccade_ring::testing::FakeDevice;
use saccade_ring::{
    Finish, FrontendRing, InProcTransport, Reader, Record, Sink, Submitter, Ticket, Transport,
};

/// Name of the thread that is stopped.
const HELD: &str = "held";
/// Far beyond what a loaded machine needs; only a reader that waits for the held thread takes so
/// long.
const STUCK: Duration = Duration::from_secs(20);

/// Stops the thread [`HELD`] at its access number `at`, until it is let go.
#[derive(Default)]
struct Hold {
    at: usize,
    seen: AtomicUsize,
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
enum State {
    #[default]
    Runs,
    Stopped,
    LetGo,
}

impl Hold {
    fn access(&self) {
        if std::thread::current().name() != Some(HELD)
            || self.seen.fetch_add(1, Ordering::Relaxed) != self.at
        {
            return;
        }
        let mut state = self.state.lock().expect("no panic under the lock");
        *state = State::Stopped;
        self.changed.notify_all();
        while *state != State::LetGo {
            state = self.changed.wait(state).expect("no panic under the lock");
        }
    }

    fn let_go(&self) {
        *self.state.lock().expect("no panic under the lock") = State::LetGo;
        self.changed.notify_all();
    }
}

/// A region whose every access may be the one at which a thread is stopped.
#[derive(Clone)]
struct Holdable {
    region: InProcTransport,
    hold: Arc<Hold>,
}

impl Transport for Holdable {
    fn region_bytes(&self) -> u64 {
        self.region.region_bytes()
    }
    fn loses_puts(&self) -> bool {
        true // so that `refresh` also looks for doorbells that were lost
    }
    saccade_ring::forward_transport!(accesses: self => {
        self.hold.access();
        &self.region
    });
}

type Device = FakeDevice<InProcTransport>;

struct Ring {
    device: Device,
    submitter: Submitter<Holdable>,
    reader: Reader<Holdable>,
    ledger: Ledger,
    hold: Arc<Hold>,
}

fn ring(at: usize) -> Ring {
    let region = InProcTransport::create(&SMALL).expect("in bounds");
    let mut device = FakeDevice::join(region.clone(), DEVICE).expect("our region");
    device.ready().expect("in process");
    let hold = Arc::new(Hold { at, ..Hold::default() });
    let side = Holdable { region, hold: Arc::clone(&hold) };
    let ring = FrontendRing::join_with(side, 0, PATIENT).expect("our region");
    device.tick().expect("in process");
    let (submitter, reader) = ring.split();
    Ring { device, submitter, reader, ledger: Ledger::default(), hold }
}

/// The ledger, for the tickets that it knows; the held thread's own submission is not looked at.
struct Known<'a>(&'a mut Ledger);

impl Known<'_> {
    fn of(&mut self, ticket: Ticket) -> Option<&mut Ledger> {
        self.0.lines.contains_key(&ticket).then_some(&mut *self.0)
    }
}

impl Sink for Known<'_> {
    fn room(&mut self, ticket: Ticket) -> usize {
        self.of(ticket).map_or(usize::MAX, |ledger| ledger.room(ticket))
    }
    fn record(&mut self, ticket: Ticket, record: Record<'_>) {
        self.of(ticket).into_iter().for_each(|ledger| ledger.record(ticket, record));
    }
    fn finished(&mut self, ticket: Ticket, finish: Finish, count: u32) {
        self.of(ticket).into_iter().for_each(|ledger| ledger.finished(ticket, finish, count));
    }
    fn lost(&mut self, ticket: Ticket) {
        self.of(ticket).into_iter().for_each(|ledger| ledger.lost(ticket));
    }
}

/// Ticks and reads, as the reader's thread does, until no known ticket but `except` is in flight
/// (and none at all without `except`).
fn read_all(
    mut device: Device,
    mut reader: Reader<Holdable>,
    mut ledger: Ledger,
    except: Option<Ticket>,
) -> (Device, Reader<Holdable>, Ledger) {
    let (done, finished) = mpsc::channel();
    std::thread::spawn(move || {
        let open = |ledger: &Ledger| {
            let others = |(&ticket, line): (&Ticket, &common::Line)| {
                Some(ticket) != except && line.end.is_none()
            };
            ledger.lines.iter().any(others)
        };
        // The last wait is one with slots to give back.
        while open(&ledger) || (except.is_none() && reader.in_flight() > 0) {
            device.tick().expect("in process");
            reader.poll(&mut Known(&mut ledger));
            reader.wait(Duration::from_millis(1));
        }
        // A reader that comes too late has no listener left.
        let _ = done.send((device, reader, ledger));
    });
    finished.recv_timeout(STUCK).expect("the reader waits for a stopped thread")
}

/// Stops `work` at each of its accesses in turn, while eight streams go on to their ends.
fn stop_everywhere(work: impl Fn(&Submitter<Holdable>, Ticket) + Clone + Send + 'static) -> usize {
    for at in 0.. {
        let Ring { mut device, submitter, mut reader, mut ledger, hold } = ring(at);
        let of_the_held = Ask::new(vec![1, 2, 3], 400);
        let ticket = common::submit(&submitter, &mut ledger, &of_the_held).expect("ready");
        for i in 0..7 {
            common::submit(&submitter, &mut ledger, &Ask::new(vec![9, i], 5 + 20 * i))
                .expect("ready");
        }
        device.tick().expect("in process");
        reader.poll(&mut ledger);
        // Its owner may cancel it.
        ledger.lines.entry(ticket).and_modify(|line| line.cancelled = true);
        let held = std::thread::Builder::new().name(HELD.into());
        let (work, other) = (work.clone(), submitter.clone());
        let held = held.spawn({
            let hold = Arc::clone(&hold);
            move || {
                work(&other, ticket);
                let mut state = hold.state.lock().expect("no panic under the lock");
                let stopped = *state == State::LetGo;
                *state = State::LetGo;
                hold.changed.notify_all();
                stopped
            }
        });
        let held = held.expect("a thread");
        {
            let state = hold.state.lock().expect("no panic under the lock");
            let runs = |state: &mut State| *state == State::Runs;
            drop(hold.changed.wait_while(state, runs).expect("no panic under the lock"));
        }
        let (device, reader, ledger) = read_all(device, reader, ledger, Some(ticket));
        hold.let_go();
        let stopped = held.join().expect("no panic");
        let mut reader = reader;
        let mut ledger = ledger;
        reader.poll(&mut Known(&mut ledger)); // hears of what the held thread submitted
        let (mut device, reader, ledger) = read_all(device, reader, ledger, None);
        device.tick().expect("in process");
        assert_eq!((submitter.free_slots(), reader.violations()), (32, 0), "access {at}");
        assert_eq!(ledger.in_flight(), 0);
        if hold.seen.load(Ordering::Relaxed) <= at {
            return at;
        }
        assert!(stopped, "access {at} stopped nothing");
    }
    unreachable!("no work has endless accesses")
}

#[test]
fn a_stopped_canceller_delays_nobody() {
    let accesses = stop_everywhere(|submitter, ticket| submitter.cancel(ticket));
    assert!(accesses >= 3, "owner, doorbell and kick, but {accesses}");
}

#[test]
fn a_thread_stopped_with_the_tracker_delays_nobody() {
    let accesses = stop_everywhere(|submitter, _| {
        submitter.reset_prefixes().expect("ours");
        let _ = (submitter.free_slots(), submitter.slot_states(), submitter.free_arena_bytes());
    });
    assert!(accesses >= 6, "{accesses}");
}

#[test]
fn a_stopped_submitter_delays_nobody() {
    let accesses = stop_everywhere(|submitter, _| {
        let ask = Ask::new(vec![4, 5], 3);
        submitter.try_submit(&ask.submission()).expect("ready");
    });
    assert!(accesses >= 10, "{accesses}");
}

#[test]
fn a_thread_stopped_at_its_look_at_the_device_delays_nobody() {
    let accesses = stop_everywhere(|submitter, _| {
        let _ = (submitter.heartbeat(), submitter.device(), submitter.stats());
    });
    assert!(accesses >= 6, "{accesses}");
}

/// A canceller is stopped with the doorbell in hand, and its ticket ends: the end is told at once,
/// and the slot waits for the thread.
#[test]
fn a_cancelled_ticket_ends_without_its_canceller() {
    // The canceller's first access asks whether the frontend is still ours, the second rings.
    let Ring { device, submitter, reader, mut ledger, hold } = ring(1);
    let ticket = common::submit(&submitter, &mut ledger, &Ask::new(vec![1, 2], 6)).expect("ready");
    ledger.lines.entry(ticket).and_modify(|line| line.cancelled = true);
    let other = submitter.clone();
    let held = std::thread::Builder::new().name(HELD.into());
    let held = held.spawn(move || other.cancel(ticket)).expect("a thread");
    {
        let state = hold.state.lock().expect("no panic under the lock");
        let runs = |state: &mut State| *state == State::Runs;
        drop(hold.changed.wait_while(state, runs).expect("no panic under the lock"));
    }
    let (mut device, reader, ledger) = read_all(device, reader, ledger, None);
    assert_eq!(ledger.lines[&ticket].end, Some(End::Finished(Finish::Length, 6)));
    assert_eq!(submitter.free_slots(), 31, "the held thread may still write its doorbell");
    hold.let_go();
    held.join().expect("no panic");
    device.tick().expect("in process");
    assert_eq!((submitter.free_slots(), reader.in_flight()), (32, 0));
}
