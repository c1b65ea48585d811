//! Between the token reader and one choice of one request: a bounded queue of tokens and one end.
//!
//! The reader puts, the choice's task takes, and neither can hold up the other: there is no lock,
//! and all memory is taken by the thread that submits. A token is some words of a ring: when it was
//! found, its id and logprob, and its alternatives. A request for an embedding has one entry
//! instead: when it was found, and its values in pairs.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use saccade_ring::{Finish, Record, Submission};

use super::sync::{AtomicBool, AtomicU32, AtomicU64, Edge, Ordering, order};
use crate::limits::MAILBOX_TOKENS;

/// Words of a token before its alternatives.
const TOKEN_WORDS: usize = 2;
/// Words of an embedding before its values.
const EMBEDDING_HEAD_WORDS: usize = 1;

/// One record of the device.
#[derive(Debug, Clone, PartialEq)]
pub struct Token {
    /// Token id.
    pub id: u32,
    /// Its logprob, if asked for.
    pub logprob: f32,
    /// Alternatives, best first.
    pub top: Box<[(u32, f32)]>,
    /// When the reader found it.
    pub at: Instant,
}

/// How a ticket ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum End {
    /// The device ended it.
    Finished(Finish),
    /// The device was lost, or broke the protocol.
    Lost,
    /// This frontend is stopping.
    Stopping,
}

/// Ends by their code, from 1; 0: none yet.
const ENDS: [End; 7] = [
    End::Finished(Finish::Stop),
    End::Finished(Finish::Length),
    End::Finished(Finish::Cancelled),
    End::Finished(Finish::Invalid),
    End::Finished(Finish::Error),
    End::Lost,
    End::Stopping,
];

/// Tokens of one ticket. One thread at a time puts (the reader's), and one takes. What does not fit
/// stays in the device's ring.
#[derive(Debug)]
pub struct Mailbox {
    /// What times count from, in nanoseconds.
    began: Instant,
    /// Which HTTP thread its task belongs to.
    thread: usize,
    /// Tokens that fit.
    capacity: usize,
    /// Words of one.
    stride: usize,
    /// Values of the embedding that was asked for; 0: tokens were.
    embedding_size: usize,
    words: Box<[AtomicU64]>,
    /// Tokens put and taken since the beginning.
    put: AtomicU64,
    taken: AtomicU64,
    /// Index in `ENDS`, plus 1.
    end: AtomicU32,
    /// The consumer has gone away.
    closed: AtomicBool,
    /// Since `began`, plus 1; 0: not yet.
    admitted_ns: AtomicU64,
    cached: AtomicU32,
}

impl Mailbox {
    /// For the tokens of `submission`, whose task runs on HTTP thread `thread`.
    pub fn new(submission: &Submission<'_>, thread: usize) -> Self {
        let capacity = MAILBOX_TOKENS.min(submission.max_records() as usize).max(1);
        let embedding_size = submission.params.embedding_size as usize;
        let stride = match embedding_size {
            0 => TOKEN_WORDS + submission.params.num_top_logprobs as usize,
            size => EMBEDDING_HEAD_WORDS + size.div_ceil(2),
        };
        Self {
            began: Instant::now(),
            thread,
            capacity,
            stride,
            embedding_size,
            words: (0..capacity * stride).map(|_| AtomicU64::new(0)).collect(),
            put: AtomicU64::new(0),
            taken: AtomicU64::new(0),
            end: AtomicU32::new(0),
            closed: AtomicBool::new(false),
            admitted_ns: AtomicU64::new(0),
            cached: AtomicU32::new(0),
        }
    }

    /// Which HTTP thread its task belongs to.
    pub fn thread(&self) -> usize {
        self.thread
    }

    /// Records that fit now. A consumer that went away takes (and discards) any number.
    pub fn room(&self) -> usize {
        if self.closed.load(Ordering::Relaxed) {
            return usize::MAX;
        }
        // SYNC: acquire; pairs with the release of `take`, after its reads of the words that
        // `put` is to write. Only the reader changes `put`.
        let taken = self.taken.load(order(Edge::Room));
        let held = self.put.load(Ordering::Relaxed) - taken;
        self.capacity - (held as usize).min(self.capacity)
    }

    /// Adds a token, if there is room; the reader asks for that before.
    pub fn push(&self, record: &Record<'_>, at: Instant) {
        self.put(|words| {
            words[0].store(self.ns(at), Ordering::Relaxed);
            words[1].store(pair(record.token, record.logprob), Ordering::Relaxed);
            for (word, &(id, logprob)) in words[TOKEN_WORDS..].iter().zip(record.top) {
                word.store(pair(id, logprob), Ordering::Relaxed);
            }
        });
    }

    /// Adds the embedding that was asked for, if there is room.
    pub fn push_embedding(&self, values: &[f32], at: Instant) {
        self.put(|words| {
            words[0].store(self.ns(at), Ordering::Relaxed);
            for (word, both) in words[EMBEDDING_HEAD_WORDS..].iter().zip(values.chunks(2)) {
                let high = both.get(1).copied().unwrap_or_default();
                word.store(pair(both[0].to_bits(), high), Ordering::Relaxed);
            }
        });
    }

    /// Adds what `write` makes of the next entry's words, if there is room.
    fn put(&self, write: impl FnOnce(&[AtomicU64])) {
        if self.closed.load(Ordering::Relaxed) || self.room() == 0 {
            return;
        }
        let put = self.put.load(Ordering::Relaxed);
        let first = (put % self.capacity as u64) as usize * self.stride;
        write(&self.words[first..first + self.stride]);
        // SYNC: release; pairs with the acquire of `take`, which reads the words then.
        self.put.store(put + 1, order(Edge::Put));
    }

    /// The device took the ticket from its queue.
    pub fn admit(&self, at: Instant) {
        // Relaxed, as `cached`: published by the first token or the end.
        self.admitted_ns.store(self.ns(at) + 1, Ordering::Relaxed);
    }

    /// When the device took the ticket from its queue, if that was seen.
    pub fn admitted(&self) -> Option<Instant> {
        let ns = self.admitted_ns.load(Ordering::Relaxed).checked_sub(1)?;
        Some(self.began + Duration::from_nanos(ns))
    }

    /// Notes how many prompt tokens were not computed.
    pub fn cache(&self, tokens: u32) {
        self.cached.store(tokens, Ordering::Relaxed);
    }

    /// Prompt tokens that were not computed; known with the first token.
    pub fn cached(&self) -> u32 {
        self.cached.load(Ordering::Relaxed)
    }

    /// Adds the end; the first one counts.
    pub fn end(&self, end: End) {
        let code = ENDS.iter().position(|&known| known == end).map_or(0, |i| i as u32 + 1);
        // SYNC: release; pairs with the acquire of `take`, which takes all tokens before it then.
        // A later end changes nothing.
        let _ = self.end.compare_exchange(0, code, order(Edge::End), Ordering::Relaxed);
    }

    /// The consumer goes away.
    pub fn close(&self) {
        // Relaxed: the reader may deliver a few tokens more, to no one.
        self.closed.store(true, Ordering::Relaxed);
    }

    /// Moves all tokens to the back of `tokens`; the end comes with the last of them. `None` if
    /// there is neither.
    pub fn drain(&self, tokens: &mut VecDeque<Token>) -> Option<Option<End>> {
        self.take(|words| tokens.push_back(self.token(words)))
    }

    /// As [`drain`](Self::drain) for an embedding: adds its values, once they have come.
    pub fn drain_embedding(&self, values: &mut Vec<f32>) -> Option<Option<End>> {
        self.take(|words| {
            let pairs = words[EMBEDDING_HEAD_WORDS..].iter();
            let both = pairs.map(|word| unpair(word.load(Ordering::Relaxed)));
            let all = both.flat_map(|(low, high)| [f32::from_bits(low), high]);
            values.extend(all.take(self.embedding_size));
        })
    }

    /// Gives all entries to `keep`; the end comes with the last of them.
    fn take(&self, mut keep: impl FnMut(&[AtomicU64])) -> Option<Option<End>> {
        // SYNC: acquire; pairs with the release of `end`. Read before `put`: all tokens that came
        // before the end are seen below.
        let end = self.end.load(order(Edge::LookForEnd));
        let end = (end as usize).checked_sub(1).and_then(|i| ENDS.get(i)).copied();
        // SYNC: acquire; pairs with the release of `put`.
        let put = self.put.load(order(Edge::Look));
        let taken = self.taken.load(Ordering::Relaxed);
        for i in taken..put {
            let first = (i % self.capacity as u64) as usize * self.stride;
            keep(&self.words[first..first + self.stride]);
        }
        // SYNC: release; pairs with the acquire of `room`.
        self.taken.store(put, order(Edge::Taken));
        (put > taken || end.is_some()).then_some(end)
    }

    fn token(&self, words: &[AtomicU64]) -> Token {
        let word = |i: usize| words[i].load(Ordering::Relaxed);
        let (id, logprob) = unpair(word(1));
        let top = (TOKEN_WORDS..words.len()).map(|i| unpair(word(i))).collect();
        Token { id, logprob, top, at: self.began + Duration::from_nanos(word(0)) }
    }

    fn ns(&self, at: Instant) -> u64 {
        at.saturating_duration_since(self.began).as_nanos() as u64
    }
}

fn pair(id: u32, logprob: f32) -> u64 {
    u64::from(logprob.to_bits()) << 32 | u64::from(id)
}

fn unpair(word: u64) -> (u32, f32) {
    (word as u32, f32::from_bits((word >> 32) as u32))
}
