//! Judging what the device wrote: statuses and output records. Nothing here trusts the device.

use crate::layout::*;
use crate::request::{Finish, Record};
use crate::shared::Flight;

/// Logprobs are at most 0, give or take rounding; larger values and NaN are not logprobs.
const MAX_LOGPROB: f32 = 0.01;

/// What a status says about a ticket in flight.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// It continues.
    Goes,
    /// It has ended.
    Ended(Finish),
    /// The device no longer knows it: it was reclaimed or belongs to an earlier life.
    Gone,
    /// No conforming device writes this.
    Violation,
}

/// A judged status.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Verdict {
    pub(crate) outcome: Outcome,
    /// Records that may be read; on a violation, no more than were known before.
    pub(crate) count: u32,
    /// The device has copied the input.
    pub(crate) input_taken: bool,
}

/// Judges a status word, given how many records were delivered (`cursor`) and known (`count`).
pub(crate) fn judge(word: u64, flight: &Flight, cursor: u32, count: u32) -> Verdict {
    let before = Verdict { outcome: Outcome::Goes, count, input_taken: false };
    let violation = Verdict { outcome: Outcome::Violation, ..before };
    let ticket = flight.ticket.ticket;
    let last_ticket = ticket.wrapping_sub(1) & SAC_TICKET_MASK;
    let now = sac_status_count(word);
    if sac_status_ticket(word) == last_ticket {
        // Not seen yet. (It cannot become unseen again once it has a record.)
        return if count == 0 { before } else { violation };
    }
    if sac_status_ticket(word) == ticket && sac_status_state(word) == SAC_STATE_EMPTY {
        return Verdict { outcome: Outcome::Gone, input_taken: true, ..before };
    }
    let in_bounds = (count..=flight.max_records).contains(&now) && now - cursor <= flight.capacity;
    if sac_status_ticket(word) != ticket || !in_bounds {
        return violation;
    }
    let outcome = match sac_status_state(word) {
        SAC_STATE_DECODE_COMPLETED => finish_of(word),
        SAC_STATE_PREFILL_PENDING => return Verdict { count: now, ..before },
        SAC_STATE_PREFILL_PROCESSING
        | SAC_STATE_DECODE_PROCESSING
        | SAC_STATE_DECODE_PAUSED
        | SAC_STATE_FETCH_PENDING
        | SAC_STATE_FETCH_PROCESSING => Outcome::Goes,
        _ => return violation,
    };
    Verdict { outcome, count: now, input_taken: true }
}

fn finish_of(word: u64) -> Outcome {
    match sac_status_finish(word) {
        SAC_FINISH_STOP => Outcome::Ended(Finish::Stop),
        SAC_FINISH_LENGTH => Outcome::Ended(Finish::Length),
        SAC_FINISH_CANCELLED => Outcome::Ended(Finish::Cancelled),
        SAC_FINISH_INVALID => Outcome::Ended(Finish::Invalid),
        SAC_FINISH_STALE_EPOCH => Outcome::Gone,
        SAC_FINISH_ERROR => Outcome::Ended(Finish::Error),
        _ => Outcome::Violation,
    }
}

/// Words copied out of a slot's output ring, and one parsed record.
#[derive(Debug)]
pub(crate) struct RecordBuffer {
    /// As long as one output ring.
    pub(crate) words: Vec<u64>,
    top: [(u32, f32); SAC_MAX_TOP_LOGPROBS as usize],
}

impl RecordBuffer {
    pub(crate) fn new(out_ring_words: u32) -> RecordBuffer {
        RecordBuffer {
            words: vec![0; out_ring_words as usize],
            top: [(0, 0.0); SAC_MAX_TOP_LOGPROBS as usize],
        }
    }

    /// The embedding that was copied.
    pub(crate) fn embedding(&self, flight: &Flight) -> &[f32] {
        let values: &[f32] = bytemuck::cast_slice(&self.words);
        &values[..values.len().min(flight.embedding_size as usize)]
    }

    /// Record `i` of those copied, or `None` if a token id or a logprob breaks its bound.
    pub(crate) fn parse(&mut self, i: usize, flight: &Flight) -> Option<Record<'_>> {
        let stride = flight.stride as usize;
        let words = self.words.get(i * stride..(i + 1) * stride)?;
        let (token, logprob) = parse_word(words[0], flight)?;
        for (slot, &word) in self.top.iter_mut().zip(&words[1..]) {
            *slot = parse_word(word, flight)?;
        }
        Some(Record { token, logprob, top: &self.top[..stride - 1] })
    }
}

fn parse_word(word: u64, flight: &Flight) -> Option<(u32, f32)> {
    let token = word as u32;
    let logprob = if flight.logprobs { f32::from_bits((word >> 32) as u32) } else { 0.0 };
    (token < flight.vocab_size && logprob <= MAX_LOGPROB).then_some((token, logprob))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::request::Ticket;

    fn flight() -> Flight {
        Flight {
            ticket: Ticket { slot: 0, ticket: 0, device_epoch: 1 },
            stride: 3,
            capacity: 21,
            max_records: 30,
            vocab_size: 100,
            logprobs: true,
            embedding_size: 0,
        }
    }

    #[test]
    fn the_ticket_before_the_first_is_the_last_of_the_count() {
        let unseen = sac_status_word(SAC_TICKET_MASK, SAC_STATE_DECODE_COMPLETED, 2, 9);
        let verdict = judge(unseen, &flight(), 0, 0);
        assert_eq!((verdict.outcome, verdict.count), (Outcome::Goes, 0));
        assert_eq!(judge(unseen, &flight(), 0, 1).outcome, Outcome::Violation);
    }

    #[test]
    fn every_bound_of_a_status_is_held() {
        let at = |state, finish, count| sac_status_word(0, state, finish, count);
        let judged = |word, cursor, count| judge(word, &flight(), cursor, count).outcome;
        let running = SAC_STATE_DECODE_PROCESSING;
        assert_eq!(judged(at(running, 0, 21), 0, 0), Outcome::Goes);
        assert_eq!(judged(at(running, 0, 22), 0, 0), Outcome::Violation, "more than the ring");
        assert_eq!(judged(at(running, 0, 30), 9, 9), Outcome::Goes);
        assert_eq!(judged(at(running, 0, 31), 20, 20), Outcome::Violation, "more than asked for");
        assert_eq!(judged(at(running, 0, 4), 0, 5), Outcome::Violation, "fewer than before");
        assert_eq!(judged(at(8, 0, 0), 0, 0), Outcome::Violation, "no such state");
        let done = SAC_STATE_DECODE_COMPLETED;
        assert_eq!(judged(at(done, 0, 0), 0, 0), Outcome::Violation, "ended for no reason");
        assert_eq!(judged(at(done, 7, 0), 0, 0), Outcome::Violation, "no such reason");
        assert_eq!(judged(at(done, SAC_FINISH_STALE_EPOCH, 0), 0, 0), Outcome::Gone);
        assert_eq!(judged(at(SAC_STATE_EMPTY, 0, 0), 0, 0), Outcome::Gone);
        assert_eq!(judged(at(SAC_STATE_EMPTY, 0, 0), 3, 5), Outcome::Gone, "taken back half way");
        let other = sac_status_word(7, running, 0, 0);
        assert_eq!(judged(other, 0, 0), Outcome::Violation, "another ticket");
    }

    #[test]
    fn every_bound_of_a_record_is_held() {
        let mut buffer = RecordBuffer::new(64);
        let word = |token: u32, logprob: f32| u64::from(logprob.to_bits()) << 32 | u64::from(token);
        buffer.words[..3].copy_from_slice(&[word(99, -0.5), word(1, -0.5), word(2, -1.0)]);
        let record = buffer.parse(0, &flight()).expect("in bounds");
        assert_eq!((record.token, record.logprob), (99, -0.5));
        assert_eq!(record.top, [(1, -0.5), (2, -1.0)]);
        for bad in [word(100, -0.5), word(1, f32::NAN), word(1, 0.5), word(1, f32::INFINITY)] {
            for i in 0..3 {
                let mut buffer = RecordBuffer::new(64);
                buffer.words[i] = bad;
                assert!(buffer.parse(0, &flight()).is_none(), "{bad:#x} as word {i}");
            }
        }
        assert!(buffer.parse(21, &flight()).is_none(), "behind the ring");
    }
}
