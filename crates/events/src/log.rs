//! What was published last. Subscribers have no queues: each has a place in this log, so a slow one
//! costs no memory, and what it is too late for it misses.

use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard, PoisonError};

use bytes::Bytes;
use tokio::sync::watch;

/// Bytes of batches that are kept, however few those are; one batch always is.
const MAX_LOG_BYTES: usize = 64 << 20;

#[derive(Debug)]
pub(crate) struct Log {
    kept: Mutex<Kept>,
    /// Number of the next batch, for those who wait for one.
    next: watch::Sender<u64>,
    max_batches: usize,
}

#[derive(Debug)]
struct Kept {
    batches: VecDeque<Bytes>,
    bytes: usize,
    /// Number of the batch that is not there yet.
    next: u64,
}

impl Kept {
    fn first(&self) -> u64 {
        self.next - self.batches.len() as u64
    }
}

impl Log {
    /// Keeps at most this many batches; `first` is the number of the first.
    pub(crate) fn new(max_batches: usize, first: u64) -> Log {
        let kept = Kept { batches: VecDeque::new(), bytes: 0, next: first };
        Log { kept: Mutex::new(kept), next: watch::Sender::new(first), max_batches }
    }

    fn kept(&self) -> MutexGuard<'_, Kept> {
        // Nothing panics in the middle of a change.
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds a batch, and forgets the oldest ones beyond the bounds.
    pub(crate) fn append(&self, payload: Bytes) {
        let next = {
            let mut kept = self.kept();
            kept.bytes += payload.len();
            kept.batches.push_back(payload);
            kept.next += 1;
            while kept.batches.len() > 1
                && (kept.batches.len() > self.max_batches || kept.bytes > MAX_LOG_BYTES)
            {
                let oldest = kept.batches.pop_front().map_or(0, |batch| batch.len());
                kept.bytes -= oldest;
            }
            kept.next
        };
        self.next.send_replace(next);
    }

    /// The batch with this number, or the first one after it that is kept.
    pub(crate) fn at(&self, number: u64) -> Option<(u64, Bytes)> {
        let kept = self.kept();
        let number = number.max(kept.first());
        let index = usize::try_from(number - kept.first()).ok()?;
        kept.batches.get(index).map(|batch| (number, batch.clone()))
    }

    /// Number of the next batch.
    pub(crate) fn next(&self) -> u64 {
        self.kept().next
    }

    /// Tells when the number of the next batch changes.
    pub(crate) fn watch(&self) -> watch::Receiver<u64> {
        self.next.subscribe()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn batch(bytes: usize, fill: u8) -> Bytes {
        vec![fill; bytes].into()
    }

    #[test]
    fn the_last_batches_are_kept() {
        let log = Log::new(3, 0);
        assert_eq!(log.at(0), None);
        for i in 0..5 {
            log.append(batch(1, i));
        }
        assert_eq!(log.next(), 5);
        assert_eq!(log.at(0), Some((2, batch(1, 2))));
        assert_eq!(log.at(4), Some((4, batch(1, 4))));
        assert_eq!(log.at(5), None);
        assert_eq!(log.at(u64::MAX), None);
    }

    #[test]
    fn numbers_begin_anywhere() {
        let log = Log::new(3, 1000);
        assert_eq!((log.at(0), log.at(1000), log.next()), (None, None, 1000));
        log.append(batch(1, 7));
        assert_eq!(log.at(0), Some((1000, batch(1, 7))));
    }

    #[test]
    fn bytes_are_bounded_and_one_batch_is_always_kept() {
        let log = Log::new(1000, 0);
        for i in 0..5 {
            log.append(batch(MAX_LOG_BYTES / 2, i));
        }
        assert_eq!(log.at(0).map(|(number, _)| number), Some(3));
        log.append(batch(2 * MAX_LOG_BYTES, 9));
        assert_eq!(log.at(0).map(|(number, _)| number), Some(5));
        log.append(batch(1, 9));
        assert_eq!(log.at(0).map(|(number, _)| number), Some(6));
        assert_eq!(log.kept().bytes, 1);
    }
}
