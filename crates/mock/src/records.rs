//! What the server did: one record for each request, in a bounded ring.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use serde::Serialize;

use crate::clock::{Nanos, now, to_seconds};

/// An event that carried tokens. Seconds on `CLOCK_MONOTONIC`.
#[derive(Debug, Clone, Serialize)]
pub struct Event {
    /// When the script wanted it to leave.
    pub intended_s: f64,
    /// When its last byte was given to the connection, which writes it in the same turn.
    pub written_s: f64,
    /// How many tokens it carried.
    pub tokens: usize,
}

/// How a request ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Outcome {
    /// Answered to the end.
    Ok,
    /// Refused with 429: all places taken.
    Rejected,
    /// Scripted status 500.
    Http500,
    /// Scripted end of the connection.
    Cut,
    /// Scripted error event.
    ErrorEvent,
    /// The client closed the connection first.
    ClientGone,
}

/// One request. Times are seconds on `CLOCK_MONOTONIC`.
#[derive(Debug, Clone, Serialize)]
pub struct Record {
    /// Counted from 0 since the start or the last reset; `id` of the answer ends with it.
    pub index: u64,
    /// The request's `x-request-id`, where it had one.
    pub request_id: Option<String>,
    /// Whether it came by `/v1/chat/completions`.
    pub chat: bool,
    /// When the head had been read.
    pub head_s: f64,
    /// When the body had been read.
    pub received_s: f64,
    /// When it got its seat.
    pub seated_s: Option<f64>,
    /// Its last byte was given to the connection, or the connection was gone.
    pub ended_s: f64,
    /// Length of the prompt.
    pub prompt_tokens: usize,
    /// Length that the script gave the answer.
    pub scripted_tokens: usize,
    /// Tokens that were written.
    pub output_tokens: usize,
    /// How it ended.
    pub outcome: Outcome,
    /// What was written.
    pub events: Vec<Event>,
}

impl Record {
    /// What it counts against the ring's bound.
    fn entries(&self) -> usize {
        1 + self.events.len()
    }
}

/// Sums since the start or the last reset.
#[derive(Debug, Clone, Copy, Default)]
pub struct Totals {
    /// Tokens of prompts that were accepted.
    pub prompt_tokens: u64,
    /// Tokens written.
    pub output_tokens: u64,
    /// Requests answered to the end.
    pub answered: u64,
}

#[derive(Default)]
struct Inner {
    epoch: u64,
    next_index: u64,
    entries: usize,
    dropped: u64,
    totals: Totals,
    records: VecDeque<Record>,
}

/// The ring.
pub struct Records {
    inner: Mutex<Inner>,
    max_entries: usize,
}

#[derive(Serialize)]
struct Listing<'a> {
    clock: &'static str,
    now_s: f64,
    dropped: u64,
    records: &'a VecDeque<Record>,
}

impl Records {
    /// A ring for `max_entries` requests and events together.
    pub fn new(max_entries: usize) -> Arc<Self> {
        Arc::new(Self { inner: Mutex::new(Inner::default()), max_entries })
    }

    /// Begins the record of a request whose head was read at `head` and its body at `received`.
    pub fn begin(self: &Arc<Self>, head: Nanos, received: Nanos) -> Recorder {
        let mut inner = self.inner();
        let index = inner.next_index;
        inner.next_index += 1;
        let record = Record {
            index,
            request_id: None,
            chat: false,
            head_s: to_seconds(head),
            received_s: to_seconds(received),
            seated_s: None,
            ended_s: 0.0,
            prompt_tokens: 0,
            scripted_tokens: 0,
            output_tokens: 0,
            outcome: Outcome::ClientGone,
            events: Vec::new(),
        };
        Recorder { records: Arc::clone(self), epoch: inner.epoch, record }
    }

    /// Forgets everything, requests under way included, and counts from 0 again.
    pub fn reset(&self) {
        let mut inner = self.inner();
        *inner = Inner { epoch: inner.epoch + 1, ..Inner::default() };
    }

    /// Sums since the last reset.
    pub fn totals(&self) -> Totals {
        self.inner().totals
    }

    /// All records as JSON, in the order in which requests ended.
    pub fn to_json(&self) -> Vec<u8> {
        let inner = self.inner();
        let listing = Listing {
            clock: "CLOCK_MONOTONIC",
            now_s: to_seconds(now()),
            dropped: inner.dropped,
            records: &inner.records,
        };
        // Plain numbers and strings: nothing here can fail to be written.
        serde_json::to_vec(&listing).unwrap_or_default()
    }

    fn push(&self, epoch: u64, record: Record) {
        let mut inner = self.inner();
        if inner.epoch != epoch {
            return;
        }
        inner.totals.prompt_tokens += record.prompt_tokens as u64;
        inner.totals.output_tokens += record.output_tokens as u64;
        inner.totals.answered += u64::from(record.outcome == Outcome::Ok);
        inner.entries += record.entries();
        inner.records.push_back(record);
        while inner.entries > self.max_entries {
            let Some(oldest) = inner.records.pop_front() else { break };
            inner.entries -= oldest.entries();
            inner.dropped += 1;
        }
    }

    fn inner(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The record of a request in flight; it is kept when this is dropped. The code that ends the
/// request says how; if none did, the client went first.
pub struct Recorder {
    records: Arc<Records>,
    epoch: u64,
    record: Record,
}

impl Recorder {
    /// The request's index.
    pub fn index(&self) -> u64 {
        self.record.index
    }

    /// For facts that are known once.
    pub fn record(&mut self) -> &mut Record {
        &mut self.record
    }

    /// An event with `tokens` tokens, due at `intended`, is being written now.
    pub fn written(&mut self, intended: Nanos, tokens: usize) {
        self.record.output_tokens += tokens;
        self.record.events.push(Event {
            intended_s: to_seconds(intended),
            written_s: to_seconds(now()),
            tokens,
        });
    }

    /// How the request ended.
    pub fn end(&mut self, outcome: Outcome) {
        self.record.outcome = outcome;
        self.record.ended_s = to_seconds(now());
    }
}

impl Drop for Recorder {
    fn drop(&mut self) {
        if self.record.outcome == Outcome::ClientGone {
            self.record.ended_s = to_seconds(now());
        }
        let empty = Record { request_id: None, events: Vec::new(), ..self.record };
        let record = std::mem::replace(&mut self.record, empty);
        self.records.push(self.epoch, record);
    }
}
