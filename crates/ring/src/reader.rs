//! The receiving half of a joined frontend: the token reader, on one thread.

use std::mem::offset_of;
use std::time::Duration;

use crate::gate::End;
use crate::layout::*;
use crate::records::{Outcome, RecordBuffer, judge};
use crate::request::{Finish, Record, Ticket};
use crate::shared::{Flight, Shared};
use crate::sync::Arc;
use crate::tracker::{Return, STATUS_WORDS};
use crate::transport::Transport;
use crate::wake;

/// Where the reader delivers. Each ticket arrives, gets any number of records, then exactly one of
/// [`finished`](Sink::finished) and [`lost`](Sink::lost).
///
/// All of it happens on the reader's thread, for all tickets: what waits here delays them all.
pub trait Sink {
    /// The reader has heard of the ticket; whatever [`Submitter::try_submit_with`] announced is
    /// visible. Once, before every other call for it.
    ///
    /// [`Submitter::try_submit_with`]: crate::Submitter::try_submit_with
    fn arrived(&mut self, _ticket: Ticket) {}
    /// How many records the ticket's consumer can take now. The rest stays in the ring, and when
    /// the ring is full the device holds this request, and only this one.
    fn room(&mut self, ticket: Ticket) -> usize;
    /// The device has taken the ticket from its queue (or ended it there). At most once, before its
    /// first record.
    fn admitted(&mut self, _ticket: Ticket) {}
    /// Of the ticket's prompt, `tokens` were not computed: their KV was in a cache. At most once,
    /// before its first record, and only if there are any.
    fn cached(&mut self, _ticket: Ticket, _tokens: u32) {}
    /// The next token of a ticket.
    fn record(&mut self, ticket: Ticket, record: Record<'_>);
    /// The answer of a ticket that asked for an embedding, its one record: as the device wrote it,
    /// so that any value may be no number.
    fn embedding(&mut self, _ticket: Ticket, _values: &[f32]) {}
    /// The ticket has ended; the device produced `count` records. All of them were delivered,
    /// unless the ticket was cancelled. Its slot gets its next ticket after this has returned, as
    /// after [`lost`](Sink::lost).
    fn finished(&mut self, ticket: Ticket, finish: Finish, count: u32);
    /// The ticket has ended without an answer: the device went away or broke the protocol.
    fn lost(&mut self, ticket: Ticket);
}

/// What one poll did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PollSummary {
    /// Records delivered.
    pub records: usize,
    /// Tickets that ended with [`Sink::finished`].
    pub finished: usize,
    /// Tickets that ended with [`Sink::lost`].
    pub lost: usize,
    /// Tickets still in flight.
    pub in_flight: usize,
    /// Of these, tickets with records that their consumer has no room for. Nothing wakes
    /// [`Reader::wait`] when room appears, so wait briefly while this is not 0.
    pub stalled: usize,
}

/// What the reader keeps for one slot.
#[derive(Clone, Copy, Debug)]
struct Reading {
    flight: Flight,
    /// Records delivered.
    cursor: u32,
    /// Records the device has shown.
    count: u32,
    /// Prompt tokens that were cached, as the device says; its last word is before the first
    /// record.
    cached: u32,
    /// The end that the device has shown: final, whatever the status says later.
    end: Option<Finish>,
    /// The ticket must end as lost once no thread is writing its doorbell.
    doomed: bool,
    input_returned: bool,
}

/// What one poll judges all tickets by.
#[derive(Clone, Copy, Debug)]
struct View {
    /// Life of the device that serves; `None` ends every ticket whose end it has not shown.
    epoch: Option<u32>,
    /// `statuses` was read in this poll.
    statuses_read: bool,
}

/// Reads tokens for all requests of one frontend.
#[derive(Debug)]
pub struct Reader<T: Transport> {
    shared: Arc<Shared<T>>,
    /// By index within the frontend's slots.
    readings: Vec<Option<Reading>>,
    /// Indices of tickets that have not shown a record yet, oldest first: looked at first.
    urgent: Vec<u32>,
    /// Indices of all other tickets in flight.
    steady: Vec<u32>,
    /// Words of one bulk read.
    statuses: Vec<u64>,
    buffer: RecordBuffer,
    /// publish_count before the last look at the statuses.
    seen: u32,
    /// A doorbell or a cursor moved, and the device may be waiting for it.
    kick: bool,
    violations: u64,
}

impl<T: Transport> Reader<T> {
    pub(crate) fn new(shared: Arc<Shared<T>>) -> Reader<T> {
        let slots = shared.slots.len();
        Reader {
            readings: vec![None; slots],
            urgent: Vec::with_capacity(slots),
            steady: Vec::with_capacity(slots),
            statuses: vec![0; slots * STATUS_WORDS],
            buffer: RecordBuffer::new(shared.layout.out_ring_words()),
            seen: 0,
            kick: false,
            violations: 0,
            shared,
        }
    }

    /// Delivers what the device has published since the last poll. Never blocks, never allocates,
    /// takes no lock that another thread of this frontend may hold, and reads at most one output
    /// ring for each ticket in flight.
    pub fn poll(&mut self, sink: &mut impl Sink) -> PollSummary {
        let mut summary = PollSummary::default();
        self.collect_arrivals(sink);
        if !self.urgent.is_empty() || !self.steady.is_empty() {
            // The device line is read before the statuses. They then show everything that a dead
            // device had published, and nothing but idle slots of the next one.
            let epoch = self.serving_epoch();
            let statuses_read = self.look();
            let view = View { epoch: epoch.filter(|_| statuses_read), statuses_read };
            self.visit_all(view, sink, &mut summary);
        }
        if std::mem::take(&mut self.kick) {
            // An unreachable region ends all tickets at the next poll.
            let _ = self.shared.kick_device();
        }
        summary.in_flight = self.urgent.len() + self.steady.len();
        summary
    }

    /// Sleeps until the device publishes, a request is submitted, or `timeout` has passed; may
    /// return spuriously.
    pub fn wait(&mut self, timeout: Duration) {
        if self.in_flight() == 0 {
            // What was published so far was for others, and `look` has not seen it. Read before the
            // arrivals: what is published for one of those changes the word afterwards.
            self.note_published();
        }
        if self.shared.has_arrivals() {
            return;
        }
        let shared = &self.shared;
        let slept = wake::wait_publish(
            &shared.transport,
            &shared.layout,
            shared.frontend,
            self.seen,
            timeout,
        );
        if slept.is_err() {
            // The region cannot be reached: do not turn the caller's loop into a spin.
            std::thread::sleep(timeout);
        }
    }

    /// Tickets in flight.
    #[must_use]
    pub fn in_flight(&self) -> usize {
        self.urgent.len() + self.steady.len()
    }

    /// Tickets that ended because the device broke the protocol.
    #[must_use]
    pub fn violations(&self) -> u64 {
        self.violations
    }

    /// Collects what was submitted since the last poll.
    fn collect_arrivals(&mut self, sink: &mut impl Sink) {
        let Reader { shared, readings, urgent, .. } = self;
        shared.collect_arrivals(|index, flight| {
            readings[index as usize] = Some(Reading {
                flight,
                cursor: 0,
                count: 0,
                cached: 0,
                end: None,
                doomed: false,
                input_returned: false,
            });
            urgent.push(index);
            sink.arrived(flight.ticket);
        });
    }

    /// Epoch of the serving device, if there is one and this frontend still owns its index.
    fn serving_epoch(&self) -> Option<u32> {
        let device = self.shared.device();
        (device.ready() && self.shared.owns_frontend()).then_some(device.epoch)
    }

    /// Reads the statuses of all slots between the first and the last one in flight, in one
    /// transfer. False when the region cannot be reached.
    fn look(&mut self) -> bool {
        // Before the statuses: whatever they miss ends the next wait at once.
        if !self.note_published() {
            return false;
        }
        let shared = &self.shared;
        let indices = || self.urgent.iter().chain(&self.steady);
        let (Some(&first), Some(&last)) = (indices().min(), indices().max()) else { return true };
        let words =
            &mut self.statuses[first as usize * STATUS_WORDS..(last as usize + 1) * STATUS_WORDS];
        // SYNC: acquire; pairs with the device's release of each status word after the records that
        // it counts.
        shared
            .transport
            .get_fields(shared.layout.status_at(shared.slots.start + first), words, STATUS_HALVES)
            .is_ok()
    }

    /// Reads what the next wait compares with. False when the region cannot be reached.
    fn note_published(&mut self) -> bool {
        let at = self.shared.layout.device_at(offset_of!(DeviceLine, publish_count));
        // SYNC: acquire; what is published after this load changes the word.
        let read = self.shared.transport.get_u32(at);
        if let Ok(seen) = read {
            self.seen = seen;
        }
        read.is_ok()
    }

    fn visit_all(&mut self, view: View, sink: &mut impl Sink, summary: &mut PollSummary) {
        let steady = self.steady.len();
        let mut kept = 0;
        for i in 0..self.urgent.len() {
            let index = self.urgent[i];
            if !self.visit(index as usize, view, sink, summary) {
                continue;
            }
            if self.readings[index as usize].is_some_and(|reading| reading.cursor > 0) {
                self.steady.push(index);
            } else {
                self.urgent[kept] = index;
                kept += 1;
            }
        }
        self.urgent.truncate(kept);
        kept = 0;
        for i in 0..self.steady.len() {
            let index = self.steady[i];
            // Entries past `steady` were just visited as urgent ones.
            if i >= steady || self.visit(index as usize, view, sink, summary) {
                self.steady[kept] = index;
                kept += 1;
            }
        }
        self.steady.truncate(kept);
    }

    /// Advances one ticket as far as its status and its consumer allow. False when it has ended.
    fn visit(
        &mut self,
        index: usize,
        view: View,
        sink: &mut impl Sink,
        summary: &mut PollSummary,
    ) -> bool {
        let Some(mut reading) = self.readings[index] else { return false };
        if reading.end.is_none() && !reading.doomed {
            if view.statuses_read {
                let waited = !reading.input_returned;
                self.look_at(index, &mut reading);
                if waited && reading.input_returned {
                    sink.admitted(reading.flight.ticket);
                }
            }
            let served = view.epoch == Some(reading.flight.ticket.device_epoch);
            reading.doomed |= reading.end.is_none() && !served;
        }
        let cancelled = self.shared.locals[index].gate.is_cancelled();
        if !reading.doomed && !cancelled {
            self.deliver(&mut reading, sink, summary);
        }
        let delivered = cancelled || reading.cursor == reading.count;
        let over = reading.doomed || (reading.end.is_some() && delivered);
        if over {
            self.end(index, &reading, sink, summary);
        }
        self.readings[index] = if over { None } else { Some(reading) };
        !over
    }

    /// Judges the status of a ticket whose end has not been seen.
    fn look_at(&mut self, index: usize, reading: &mut Reading) {
        let word = self.statuses[index * STATUS_WORDS];
        // Two halves, computed and cached; see `Status`.
        reading.cached = (self.statuses[index * STATUS_WORDS + 1] >> 32) as u32;
        let verdict = judge(word, &reading.flight, reading.cursor, reading.count);
        if verdict.input_taken && !reading.input_returned {
            reading.input_returned = true;
            self.shared.give_back(Return::Input { index: index as u32 });
        }
        reading.count = verdict.count;
        match verdict.outcome {
            Outcome::Goes => {}
            Outcome::Ended(finish) => reading.end = Some(finish),
            Outcome::Gone => reading.doomed = true,
            Outcome::Violation => self.condemn(reading),
        }
    }

    fn condemn(&mut self, reading: &mut Reading) {
        self.violations += 1;
        reading.doomed = true;
    }

    /// Delivers as many records as the consumer has room for.
    fn deliver(&mut self, reading: &mut Reading, sink: &mut impl Sink, summary: &mut PollSummary) {
        let available = reading.count - reading.cursor;
        if available == 0 {
            return;
        }
        if reading.cursor == 0 && reading.cached != 0 {
            sink.cached(reading.flight.ticket, std::mem::take(&mut reading.cached));
        }
        let room = sink.room(reading.flight.ticket);
        let taken = room.min(available as usize) as u32;
        summary.stalled += usize::from(taken < available);
        let mut left = taken;
        while left > 0 && !reading.doomed {
            left -= self.deliver_run(reading, left, sink, summary);
        }
        if taken > 0 && !reading.doomed {
            self.advance(reading, available);
        }
    }

    /// Delivers up to `most` records that are contiguous in the ring; returns how many, or `most`
    /// when the ticket is doomed.
    fn deliver_run(
        &mut self,
        reading: &mut Reading,
        most: u32,
        sink: &mut impl Sink,
        summary: &mut PollSummary,
    ) -> u32 {
        let flight = reading.flight;
        let position = reading.cursor % flight.capacity;
        let run = most.min(flight.capacity - position);
        let words = &mut self.buffer.words[..(run * flight.stride) as usize];
        let at = self.shared.layout.out_ring_at(flight.ticket.slot, position * flight.stride);
        if self.shared.transport.get_words(at, words).is_err() {
            reading.doomed = true;
            return most;
        }
        if flight.embedding_size != 0 {
            sink.embedding(flight.ticket, self.buffer.embedding(&flight));
            reading.cursor += 1;
            summary.records += 1;
            return 1;
        }
        for i in 0..run {
            let Some(record) = self.buffer.parse(i as usize, &flight) else {
                self.condemn(reading);
                return most;
            };
            sink.record(flight.ticket, record);
            reading.cursor += 1;
            summary.records += 1;
        }
        run
    }

    /// Tells the device how far the ring was read.
    fn advance(&mut self, reading: &mut Reading, available: u32) {
        let flight = &reading.flight;
        // SYNC: release, after our reads of the records; pairs with the device's acquire of the
        // cursor before it overwrites them.
        let at = self.shared.layout.cursor_at(flight.ticket.slot);
        if self.shared.transport.put_u32(at, reading.cursor).is_err() {
            reading.doomed = true;
        }
        // The device only waits for a reader that is behind; half a ring is far from normal.
        self.kick |= available >= flight.capacity.div_ceil(2);
    }

    /// Ends a ticket: tells the sink, and then lets its slot go. If a canceller is about to write
    /// the doorbell, that thread gives the slot back.
    fn end(
        &mut self,
        index: usize,
        reading: &Reading,
        sink: &mut impl Sink,
        summary: &mut PollSummary,
    ) {
        let ticket = reading.flight.ticket;
        let finish = reading.end.filter(|_| !reading.doomed);
        match finish {
            Some(finish) => {
                summary.finished += 1;
                sink.finished(ticket, finish, reading.count);
            }
            None => {
                summary.lost += 1;
                sink.lost(ticket);
            }
        }
        let End::Mine { cancelled } = self.shared.locals[index].gate.end(finish.is_none()) else {
            return;
        };
        if reading.doomed && !cancelled && self.shared.owns_frontend() {
            // A device that was merely slow must not keep computing for a lost ticket. Best effort:
            // no device computes for an unreachable region.
            let _ = self.shared.ring(ticket, true);
            self.kick = true;
        }
        let index = index as u32;
        let drain = Return::Drain { index };
        self.shared.give_back(finish.map_or(drain, |_| Return::Slot { index }));
    }
}
