//! The token reader: one thread that moves tokens from the ring to the mailboxes, moves this
//! frontend's heartbeat, and sleeps when nothing runs.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::task::Waker;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use saccade_ring::{Finish, Reader, Record, Sink, Ticket, Transport};

use super::mailbox::{End, Mailbox, Token};
use super::port::DevicePort;
use super::registry::Registry;

/// A quarter of `SAC_FRONTEND_HEARTBEAT_MS`, so that a late wake-up is still in time.
const HEARTBEAT_INTERVAL: Duration = Duration::from_millis(25);
/// Longest sleep; the heartbeat must move meanwhile.
const MAX_WAIT: Duration = Duration::from_millis(50);
/// Sleep while some consumer has no room: nothing wakes the reader when room appears.
const STALLED_WAIT: Duration = Duration::from_millis(1);

/// How the reader polls.
#[derive(Debug, Clone, Copy)]
pub struct ReaderSettings {
    /// Time to poll after the last token before sleeping.
    pub spin: Duration,
    /// Longest sleep while requests run. Shorter than the overall limit if the device does not wake
    /// the reader, as a GPU does not.
    pub poll: Duration,
}

impl Default for ReaderSettings {
    fn default() -> Self {
        Self { spin: Duration::ZERO, poll: MAX_WAIT }
    }
}

/// What the reader counts, for the metrics.
#[derive(Debug, Default)]
pub struct ReaderCounters {
    /// Tickets that ended because the device broke the protocol.
    pub violations: AtomicU64,
    /// Tickets in flight at the last poll.
    pub in_flight: AtomicUsize,
    /// Tickets whose consumer had no room at the last poll.
    pub stalled: AtomicUsize,
}

/// The running reader. Dropping it stops the thread and waits for it.
pub struct ReaderHandle {
    counters: Arc<ReaderCounters>,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl ReaderHandle {
    /// What it counts.
    pub fn counters(&self) -> Arc<ReaderCounters> {
        self.counters.clone()
    }
}

impl Drop for ReaderHandle {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            // Its panic has already ended the process.
            let _ = thread.join();
        }
    }
}

/// Starts the reader's thread.
///
/// # Errors
/// If the system refuses the thread.
pub fn spawn_reader<T: Transport + 'static>(
    reader: Reader<T>,
    port: Arc<dyn DevicePort>,
    registry: Arc<Registry>,
    settings: ReaderSettings,
) -> std::io::Result<ReaderHandle> {
    let counters = Arc::new(ReaderCounters::default());
    let stop = Arc::new(AtomicBool::new(false));
    let thread = std::thread::Builder::new().name("token-reader".into()).spawn({
        let (counters, stop) = (counters.clone(), stop.clone());
        move || {
            let _guard = AbortOnPanic;
            let delivery =
                Delivery { registry, current: None, wakers: Vec::new(), now: Instant::now() };
            run(reader, &*port, delivery, settings, &counters, &stop);
        }
    })?;
    Ok(ReaderHandle { counters, stop, thread: Some(thread) })
}

/// Without its reader a frontend moves no heartbeat and answers no request: it must end, so that
/// the supervisor starts another.
struct AbortOnPanic;

impl Drop for AbortOnPanic {
    fn drop(&mut self) {
        if std::thread::panicking() {
            std::process::abort();
        }
    }
}

fn run<T: Transport>(
    mut reader: Reader<T>,
    port: &dyn DevicePort,
    mut delivery: Delivery,
    settings: ReaderSettings,
    counters: &ReaderCounters,
    stop: &AtomicBool,
) {
    port.heartbeat();
    let mut last_beat = Instant::now();
    let mut last_news = last_beat;
    while !stop.load(Ordering::Relaxed) {
        delivery.now = Instant::now();
        let summary = reader.poll(&mut delivery);
        delivery.wake_all();
        counters.violations.store(reader.violations(), Ordering::Relaxed);
        counters.in_flight.store(summary.in_flight, Ordering::Relaxed);
        counters.stalled.store(summary.stalled, Ordering::Relaxed);
        let now = Instant::now();
        if now - last_beat >= HEARTBEAT_INTERVAL {
            port.heartbeat();
            last_beat = now;
        }
        if summary.records + summary.finished + summary.lost > 0 {
            last_news = now;
        }
        if summary.in_flight > 0 && now - last_news < settings.spin {
            std::hint::spin_loop();
            continue;
        }
        let longest = if summary.in_flight > 0 { settings.poll.min(MAX_WAIT) } else { MAX_WAIT };
        reader.wait(if summary.stalled > 0 { STALLED_WAIT.min(longest) } else { longest });
    }
}

/// The sink of one poll. Wake-ups wait until the poll is over: a request that got several tokens is
/// woken once, and the reader's sweep is not interleaved with the reactor's work.
struct Delivery {
    registry: Arc<Registry>,
    current: Option<(Ticket, Arc<Mailbox>)>,
    wakers: Vec<Waker>,
    now: Instant,
}

impl Delivery {
    fn mailbox(&mut self, ticket: Ticket) -> Option<&Arc<Mailbox>> {
        if self.current.as_ref().is_none_or(|(t, _)| *t != ticket) {
            self.current = self.registry.get(ticket).map(|mailbox| (ticket, mailbox));
        }
        self.current.as_ref().map(|(_, mailbox)| mailbox)
    }

    fn end(&mut self, ticket: Ticket, end: End) {
        let waker = self.mailbox(ticket).and_then(|m| m.end(end));
        self.wakers.extend(waker);
        self.current = None;
        self.registry.remove(ticket);
    }

    fn wake_all(&mut self) {
        self.current = None;
        for waker in self.wakers.drain(..) {
            waker.wake();
        }
    }
}

impl Sink for Delivery {
    fn room(&mut self, ticket: Ticket) -> usize {
        // A ticket without a mailbox has no consumer: let the device's ring drain.
        self.mailbox(ticket).map_or(usize::MAX, |m| m.room())
    }

    fn admitted(&mut self, ticket: Ticket) {
        let now = self.now;
        if let Some(mailbox) = self.mailbox(ticket) {
            mailbox.admit(now);
        }
    }

    fn cached(&mut self, ticket: Ticket, tokens: u32) {
        if let Some(mailbox) = self.mailbox(ticket) {
            mailbox.cache(tokens);
        }
    }

    fn record(&mut self, ticket: Ticket, record: Record<'_>) {
        let token = Token {
            id: record.token,
            logprob: record.logprob,
            top: record.top.into(),
            at: self.now,
        };
        let waker = self.mailbox(ticket).and_then(|m| m.push(token));
        self.wakers.extend(waker);
    }

    fn finished(&mut self, ticket: Ticket, finish: Finish, _count: u32) {
        self.end(ticket, End::Finished(finish));
    }

    fn lost(&mut self, ticket: Ticket) {
        self.end(ticket, End::Lost);
    }
}
