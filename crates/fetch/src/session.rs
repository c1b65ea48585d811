//! One life of the plane with one life of the device: the commands that are being carried out, and
//! their completions. Each command that is accepted has one [`Ticket`], and each ticket ends in
//! one completion, whatever happens to its holder.

use std::collections::{HashMap, VecDeque};
use std::mem::offset_of;
use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use bytemuck::Zeroable;
use saccade_ring::{Transport, TransportError};
use tokio::sync::Notify;

use crate::commands::Request;
use crate::counters::Counters;
use crate::layout::*;
use crate::region::Region;

/// How a command went.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Outcome {
    pub result: u32,
    pub detail: u32,
    pub num_chunks: u32,
    pub coded_bytes: u64,
}

impl Outcome {
    pub const LATE: Outcome = Outcome::of(SAC_FETCH_LATE, 0);
    pub const CANCELLED: Outcome = Outcome::of(SAC_FETCH_CANCELLED, 0);
    pub const DROPPED: Outcome = Outcome::of(SAC_FETCH_DROPPED, 0);
    pub const INTERNAL: Outcome = Outcome::of(SAC_FETCH_TROUBLE, SAC_FETCH_TROUBLE_INTERNAL);

    pub const fn of(result: u32, detail: u32) -> Outcome {
        Outcome { result, detail, num_chunks: 0, coded_bytes: 0 }
    }
}

const WANTED: u8 = 0;
const CANCELLED: u8 = 1;
/// The session is over: no one is left to answer.
const ORPHANED: u8 = 2;

/// A command that is being carried out, as all that work on it see it.
#[derive(Debug)]
pub(crate) struct Op {
    id: u64,
    op: u32,
    frame: Option<u32>,
    deadline: Instant,
    state: AtomicU8,
    changed: Notify,
}

impl Op {
    /// Why nothing more is to be done for it.
    pub fn refused(&self) -> Option<Outcome> {
        // SYNC: relaxed; a hint without data. The worker on the command sees it a step later.
        if self.state.load(Ordering::Relaxed) != WANTED {
            return Some(Outcome::CANCELLED);
        }
        (Instant::now() >= self.deadline).then_some(Outcome::LATE)
    }

    /// Returns when it is not wanted any more.
    pub async fn refusal(&self) -> Outcome {
        // A timer takes a while even where its time has passed.
        if let Some(refused) = self.refused() {
            return refused;
        }
        let late = tokio::time::sleep_until(self.deadline.into());
        tokio::select! {
            () = self.dismissal() => Outcome::CANCELLED,
            () = late => Outcome::LATE,
        }
    }

    async fn dismissal(&self) {
        loop {
            let changed = self.changed.notified();
            // SYNC: relaxed; `notified` was taken before, so a later change notifies.
            if self.state.load(Ordering::Relaxed) != WANTED {
                return;
            }
            changed.await;
        }
    }

    fn dismiss(&self, state: u8) {
        // SYNC: relaxed; ordered before the notification by `Notify`.
        self.state.store(state, Ordering::Relaxed);
        self.changed.notify_waiters();
    }
}

/// The duty to answer a command. Dropped without an answer, it says that the plane failed.
pub(crate) struct Ticket {
    session: Arc<Session>,
    op: Arc<Op>,
    answered: bool,
}

impl Ticket {
    pub fn op(&self) -> &Arc<Op> {
        &self.op
    }

    pub fn region(&self) -> &Region {
        &self.session.region
    }

    pub fn finish(mut self, outcome: Outcome) {
        self.answer(outcome);
    }

    fn answer(&mut self, outcome: Outcome) {
        if !std::mem::replace(&mut self.answered, true) {
            self.session.complete(&self.op, outcome);
        }
    }
}

impl Drop for Ticket {
    fn drop(&mut self) {
        self.answer(Outcome::INTERNAL);
    }
}

pub(crate) struct Session {
    region: Region,
    counters: Arc<Counters>,
    inner: Mutex<Inner>,
}

struct Inner {
    over: bool,
    ops: HashMap<u64, Arc<Op>>,
    lent: Vec<bool>,
    /// Completions for which the queue had no room. With `ops`, at most as many as the queue is
    /// long: no more commands are read meanwhile.
    unwritten: VecDeque<Completion>,
    written: u32,
}

impl Session {
    /// Both counts of the plane's line are 0.
    pub fn new(region: Region, counters: Arc<Counters>) -> Arc<Session> {
        let inner = Inner {
            over: false,
            ops: HashMap::new(),
            lent: vec![false; region.layout().num_frames() as usize],
            unwritten: VecDeque::new(),
            written: 0,
        };
        Arc::new(Session { region, counters, inner: Mutex::new(inner) })
    }

    pub fn region(&self) -> &Region {
        &self.region
    }

    /// Whether another command can be accepted: its completion has a place.
    pub fn has_room(&self) -> bool {
        let inner = self.lock();
        inner.ops.len() + inner.unwritten.len() < self.region.layout().queue_len() as usize
    }

    /// Takes a command on. None: an id or a frame is in use, and that was answered.
    pub fn accept(
        self: &Arc<Session>,
        command: &Command,
        request: &Request,
        budget: Duration,
    ) -> Option<Ticket> {
        let op = Arc::new(Op {
            id: command.id,
            op: command.op,
            frame: request.frame(),
            deadline: Instant::now() + budget,
            state: AtomicU8::new(WANTED),
            changed: Notify::new(),
        });
        let mut inner = self.lock();
        let lent = op.frame.is_some_and(|frame| inner.lent[frame as usize]);
        if lent || inner.ops.contains_key(&op.id) {
            drop(inner);
            self.refuse(command);
            return None;
        }
        if let Some(frame) = op.frame {
            inner.lent[frame as usize] = true;
        }
        inner.ops.insert(op.id, op.clone());
        self.counters.in_flight.set(inner.ops.len());
        drop(inner);
        Some(Ticket { session: self.clone(), op, answered: false })
    }

    /// Answers a command that breaks a bound.
    pub fn refuse(&self, command: &Command) {
        let invalid = Outcome::of(SAC_FETCH_INVALID, 0);
        self.push(self.lock(), completion(command.id, command.op, invalid));
    }

    /// The answer to a command is not wanted any more. It may have been given.
    pub fn cancel(&self, target: u64) {
        let op = self.lock().ops.get(&target).cloned();
        if let Some(op) = op {
            op.dismiss(CANCELLED);
        }
    }

    /// Writes completions for which there was no room. False: some are left.
    pub fn flush(&self) -> bool {
        let mut inner = self.lock();
        self.write(&mut inner);
        inner.unwritten.is_empty()
    }

    /// Nothing is written for this session any more. What is being done for it ends soon: when no
    /// ticket is left, only the caller has the session.
    pub fn end(&self) {
        let mut inner = self.lock();
        inner.over = true;
        inner.unwritten.clear();
        let ops = std::mem::take(&mut inner.ops);
        drop(inner);
        ops.values().for_each(|op| op.dismiss(ORPHANED));
        self.counters.in_flight.set(0);
    }

    fn complete(&self, op: &Op, outcome: Outcome) {
        let mut inner = self.lock();
        if inner.over {
            return;
        }
        inner.ops.remove(&op.id);
        self.counters.in_flight.set(inner.ops.len());
        if let Some(frame) = op.frame {
            inner.lent[frame as usize] = false;
        }
        self.push(inner, completion(op.id, op.op, outcome));
    }

    fn push(&self, mut inner: MutexGuard<'_, Inner>, completion: Completion) {
        if inner.over {
            return;
        }
        self.counters.completed(&completion);
        inner.unwritten.push_back(completion);
        self.write(&mut inner);
    }

    fn write(&self, inner: &mut Inner) {
        if inner.over {
            return;
        }
        match self.try_write(inner) {
            // The control thread finds that out, and ends the session: no one waits for answers.
            Ok(()) | Err(TransportError::Down(_)) => {}
            // A checked layout rules it out; the device would miss answers, so it must be told.
            Err(error) => tracing::error!(%error, "completions cannot be written"),
        }
    }

    fn try_write(&self, inner: &mut Inner) -> Result<(), TransportError> {
        let (layout, transport) = (self.region.layout(), self.region.transport());
        let before = inner.written;
        while let Some(completion) = inner.unwritten.front() {
            // SYNC: acquire; pairs with the device's release of completions_read: it has copied
            // what it counts.
            let read =
                transport.get_u32(layout.device_at(offset_of!(DeviceLine, completions_read)))?;
            if inner.written.wrapping_sub(read) >= layout.queue_len() {
                break;
            }
            let at = layout.completion_at(inner.written);
            transport.put(at, bytemuck::bytes_of(completion))?;
            inner.written = inner.written.wrapping_add(1);
            inner.unwritten.pop_front();
        }
        if inner.written != before {
            // SYNC: release; pairs with the device's acquire of completions_written: it sees the
            // completions that are counted, and the frames that they tell of. Writers of frames are
            // ordered before this by their part of the job (see `engine::job`) and by the lock.
            let at = layout.plane_at(offset_of!(PlaneLine, completions_written));
            transport.put_u32(at, inner.written)?;
            // Before the lock goes: the next count is another thread's, and must not come first.
            transport.settle();
        }
        Ok(())
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        // A panic in another holder leaves plain data that is consistent enough.
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn completion(id: u64, op: u32, outcome: Outcome) -> Completion {
    Completion {
        id,
        op,
        result: outcome.result,
        detail: outcome.detail,
        num_chunks: outcome.num_chunks,
        coded_bytes: outcome.coded_bytes,
        ..Completion::zeroed()
    }
}
