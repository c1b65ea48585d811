//! A chunk on its way from a value into a frame.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};

use bytes::Bytes;
use saccade_chunk::codec::{Coded, Scratch};
use saccade_chunk::{Rejection, Value, open};
use tokio::sync::OwnedSemaphorePermit;

use crate::errands::Discard;
use crate::frame::Frame;
use crate::layout::*;
use crate::session::{Op, Outcome, Ticket};

/// Planes of it are worked on by many threads, each of which holds a part (an `Arc`). The last part
/// to go answers the command: then no thread touches the frame any more, and what all of them wrote
/// is ordered before the answer (releasing an `Arc` is a release, its end an acquire).
pub(crate) struct ChunkJob {
    ticket: Option<Ticket>,
    frame: Frame,
    expected: Value,
    value: Bytes,
    coded: OnceLock<Coded<Bytes>>,
    rejection: OnceLock<Rejection>,
    discard: Option<Discard>,
    placed: AtomicUsize,
    /// With `NoPipeline`: planes that wait until all are decoded, and how many passed the coder.
    held: Mutex<Held>,
    /// Room for the value, and the right to be in the pipeline.
    _permits: Vec<OwnedSemaphorePermit>,
}

#[derive(Default)]
struct Held {
    planes: Vec<(usize, Box<Scratch>)>,
    passed: usize,
}

impl ChunkJob {
    pub fn new(
        ticket: Ticket,
        frame: Frame,
        expected: Value,
        value: Bytes,
        discard: Discard,
        permits: Vec<OwnedSemaphorePermit>,
    ) -> ChunkJob {
        ChunkJob {
            ticket: Some(ticket),
            frame,
            expected,
            value,
            coded: OnceLock::new(),
            rejection: OnceLock::new(),
            discard: Some(discard),
            placed: AtomicUsize::new(0),
            held: Mutex::default(),
            _permits: permits,
        }
    }

    pub fn num_planes(&self) -> usize {
        self.expected.geometry.num_planes()
    }

    pub fn frame(&self) -> &Frame {
        &self.frame
    }

    /// Checks the value. False: it is not that chunk.
    pub fn open(&self) -> bool {
        match open(&self.expected, self.value.clone()) {
            Ok(coded) => self.coded.set(coded).is_ok(),
            Err(rejection) => {
                self.reject(rejection);
                false
            }
        }
    }

    /// The checked value; none before [`Self::open`] has said so.
    pub fn coded(&self) -> Option<&Coded<Bytes>> {
        self.coded.get()
    }

    /// Whether the rest of it can be skipped.
    pub fn is_over(&self) -> bool {
        self.rejection.get().is_some() || self.op().is_none_or(|op| op.refused().is_some())
    }

    /// Of several reasons the first counts.
    pub fn reject(&self, rejection: Rejection) {
        self.rejection.set(rejection).ok();
    }

    /// A plane is in the frame.
    pub fn plane_placed(&self) {
        // SYNC: relaxed; the end of the last part orders it before the answer.
        self.placed.fetch_add(1, Ordering::Relaxed);
    }

    /// Keeps a decoded plane back (none: it was skipped). When it is the last one, all of them.
    pub fn hold(&self, plane: Option<(usize, Box<Scratch>)>) -> Vec<(usize, Box<Scratch>)> {
        let mut held: MutexGuard<'_, Held> =
            self.held.lock().unwrap_or_else(PoisonError::into_inner);
        held.planes.extend(plane);
        held.passed += 1;
        if held.passed < self.num_planes() { Vec::new() } else { std::mem::take(&mut held.planes) }
    }

    fn op(&self) -> Option<&Op> {
        self.ticket.as_ref().map(|ticket| &**ticket.op())
    }

    fn outcome(&mut self) -> Outcome {
        let outcome = if let Some(rejection) = self.rejection.get() {
            Outcome::of(SAC_FETCH_REJECTED, detail(rejection))
        } else if *self.placed.get_mut() == self.num_planes() {
            Outcome::of(SAC_FETCH_DONE, 0)
        } else {
            self.op().and_then(Op::refused).unwrap_or(Outcome::INTERNAL)
        };
        Outcome { coded_bytes: self.value.len() as u64, ..outcome }
    }
}

impl Drop for ChunkJob {
    fn drop(&mut self) {
        let outcome = self.outcome();
        if self.rejection.get().is_some_and(is_damage)
            && let Some(discard) = self.discard.take()
        {
            discard.run();
        }
        if let Some(ticket) = self.ticket.take() {
            ticket.finish(outcome);
        }
    }
}

/// Whether the value is of no use to any reader. Another version of this program may read its own.
fn is_damage(rejection: &Rejection) -> bool {
    !matches!(rejection, Rejection::Version(_) | Rejection::Codec(_))
}

/// `SAC_FETCH_REJECT_*`.
fn detail(rejection: &Rejection) -> u32 {
    match rejection {
        Rejection::Length => SAC_FETCH_REJECT_LENGTH,
        Rejection::Magic => SAC_FETCH_REJECT_MAGIC,
        Rejection::Version(_) => SAC_FETCH_REJECT_VERSION,
        Rejection::Checksum => SAC_FETCH_REJECT_CHECKSUM,
        Rejection::Name => SAC_FETCH_REJECT_NAME,
        Rejection::Model => SAC_FETCH_REJECT_MODEL,
        Rejection::Span => SAC_FETCH_REJECT_SPAN,
        Rejection::Codec(_) => SAC_FETCH_REJECT_CODEC,
        Rejection::Payload(_) => SAC_FETCH_REJECT_PAYLOAD,
    }
}
