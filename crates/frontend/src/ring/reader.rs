//! The token reader: one thread that moves tokens from the ring to the mailboxes, moves this
//! frontend's heartbeat, and sleeps when nothing runs.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use saccade_ring::{Finish, Reader, Record, Sink, Ticket, Transport};

use super::mailbox::{End, Mailbox};
use super::port::DevicePort;
use super::registry::{Entry, MAX_SLOTS, Registry};

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
            let delivery = Delivery::new(registry);
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
        delivery.begin();
        let summary = reader.poll(&mut delivery);
        delivery.ring();
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

/// The sink of all polls. It takes no lock that another thread may hold, and neither allocates nor
/// frees memory: the allocator has locks, too. Wake-ups wait until the poll is over: an HTTP thread
/// whose requests got several tokens is woken once.
struct Delivery {
    registry: Arc<Registry>,
    /// By slot.
    mailboxes: Box<[Entry]>,
    /// By HTTP thread: something was noted in this poll.
    rings: Box<[bool]>,
    now: Instant,
    stopping: bool,
}

impl Delivery {
    fn new(registry: Arc<Registry>) -> Self {
        Self {
            mailboxes: (0..MAX_SLOTS).map(|_| None).collect(),
            rings: vec![false; registry.threads()].into(),
            now: Instant::now(),
            stopping: false,
            registry,
        }
    }

    fn begin(&mut self) {
        self.now = Instant::now();
        if !self.stopping && self.registry.is_stopping() {
            self.stopping = true;
            for (ticket, mailbox) in self.mailboxes.iter().flatten() {
                mailbox.end(End::Stopping);
                self.registry.bell(mailbox.thread()).note(ticket.slot);
            }
            self.rings.fill(true);
        }
    }

    /// Wakes the HTTP threads that have news.
    fn ring(&mut self) {
        for (thread, ring) in self.rings.iter_mut().enumerate() {
            if std::mem::take(ring) {
                self.registry.bell(thread).ring();
            }
        }
    }

    fn mailbox(&self, ticket: Ticket) -> Option<&Mailbox> {
        let (of, mailbox) = self.mailboxes.get(ticket.slot as usize)?.as_ref()?;
        (*of == ticket).then_some(mailbox)
    }

    /// Notes the slot for the thread of its task.
    fn note(&mut self, ticket: Ticket) {
        let Some(thread) = self.mailbox(ticket).map(Mailbox::thread) else { return };
        self.registry.bell(thread).note(ticket.slot);
        self.rings[thread] = true;
    }

    fn end(&mut self, ticket: Ticket, end: End) {
        let Some(mailbox) = self.mailbox(ticket) else { return };
        mailbox.end(end);
        let thread = mailbox.thread();
        // Not the last hold, see `Registry`: this frees nothing.
        self.mailboxes[ticket.slot as usize] = None;
        self.registry.let_go(ticket);
        self.registry.bell(thread).note(ticket.slot);
        self.rings[thread] = true;
    }
}

impl Sink for Delivery {
    fn arrived(&mut self, ticket: Ticket) {
        let Some(mailbox) = self.registry.take_handed(ticket) else { return };
        if self.stopping {
            mailbox.end(End::Stopping);
        }
        if let Some(entry) = self.mailboxes.get_mut(ticket.slot as usize) {
            *entry = Some((ticket, mailbox));
        }
        if self.stopping {
            self.note(ticket);
        }
    }

    fn room(&mut self, ticket: Ticket) -> usize {
        // A ticket without a mailbox has no consumer: let the device's ring drain.
        self.mailbox(ticket).map_or(usize::MAX, Mailbox::room)
    }

    fn admitted(&mut self, ticket: Ticket) {
        if let Some(mailbox) = self.mailbox(ticket) {
            mailbox.admit(self.now);
            self.registry.uses.admit(ticket.slot);
        }
    }

    fn cached(&mut self, ticket: Ticket, tokens: u32) {
        if let Some(mailbox) = self.mailbox(ticket) {
            mailbox.cache(tokens);
        }
    }

    fn record(&mut self, ticket: Ticket, record: Record<'_>) {
        if let Some(mailbox) = self.mailbox(ticket) {
            mailbox.push(&record, self.now);
        }
        self.note(ticket);
    }

    fn embedding(&mut self, ticket: Ticket, values: &[f32]) {
        if let Some(mailbox) = self.mailbox(ticket) {
            mailbox.push_embedding(values, self.now);
        }
        self.note(ticket);
    }

    fn finished(&mut self, ticket: Ticket, finish: Finish, _count: u32) {
        self.end(ticket, End::Finished(finish));
    }

    fn lost(&mut self, ticket: Ticket) {
        self.end(ticket, End::Lost);
    }
}
