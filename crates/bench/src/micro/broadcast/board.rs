//! The board of one run: the step that may be decided, how far each process is, and when each had
//! what. Each part has one writer, and parts share no cache line.

use std::os::fd::RawFd;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::micro::os::now_ns;
use crate::micro::os::shared::{LINE_BYTES, Shareable, SharedMap};
use crate::micro::os::wait::{Bell, Wait, wait_for};

/// How far one process is.
#[repr(C, align(128))]
#[derive(Debug, Default)]
struct Line {
    /// 1: it has joined.
    ready: AtomicU32,
    /// Steps done.
    done: AtomicU32,
    /// Of the decision log.
    hash: AtomicU64,
    /// Words of the decision log.
    hashed_words: AtomicU64,
}

// SAFETY: atomics only, and zero is a fresh line.
unsafe impl Shareable for Line {}

/// Size of a board.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
pub(crate) struct BoardShape {
    /// Processes that report here.
    pub num_processes: usize,
    /// Steps of the run, warm-up included.
    pub num_steps: usize,
}

impl BoardShape {
    fn line_at(&self, process: usize) -> usize {
        (1 + process) * LINE_BYTES
    }
    fn times_at(&self, process: usize) -> usize {
        let words_bytes = (8 * self.num_steps).next_multiple_of(LINE_BYTES);
        self.line_at(self.num_processes) + process * words_bytes
    }
}

/// A mapped board.
#[derive(Debug)]
pub(crate) struct Board {
    shape: BoardShape,
    map: SharedMap,
}

impl Board {
    /// # Errors
    /// If the memory cannot be allocated.
    pub(crate) fn create(shape: BoardShape) -> anyhow::Result<Board> {
        Ok(Board { shape, map: SharedMap::create(shape.times_at(shape.num_processes))? })
    }

    /// Maps the parent's board.
    ///
    /// # Errors
    /// If `fd` is not a board.
    pub(crate) fn adopt(fd: RawFd, shape: BoardShape) -> anyhow::Result<Board> {
        Ok(Board { shape, map: SharedMap::adopt(fd, shape.times_at(shape.num_processes))? })
    }

    pub(crate) fn fd(&self) -> RawFd {
        self.map.fd()
    }

    pub(crate) fn num_steps(&self) -> usize {
        self.shape.num_steps
    }

    fn line(&self, process: usize) -> &Line {
        self.map.get(self.shape.line_at(process))
    }

    fn times(&self, process: usize) -> &[AtomicU64] {
        self.map.slice(self.shape.times_at(process), self.shape.num_steps)
    }

    fn go(&self) -> &Bell {
        self.map.get(0)
    }

    /// Driver: the requests of `step` (from 1) are visible and the step before has ended.
    pub(crate) fn show_step(&self, step: usize) {
        self.go().set(step as u32);
    }

    /// Waits until `step` (from 1) may be decided.
    ///
    /// # Errors
    /// If that takes longer than `limit`.
    pub(crate) fn wait_for_step(
        &self,
        who: &str,
        step: usize,
        how: Wait,
        limit: Duration,
    ) -> anyhow::Result<()> {
        let go = self.go();
        let poll = || (go.count() >= step as u32).then_some(());
        wait_for(how, limit, go, poll, || format!("{who}, for the driver to show step {step}"))
    }

    /// A process has joined.
    pub(crate) fn set_ready(&self, process: usize) {
        // SYNC: release; pairs with the acquire in `is_ready`: its region is joined.
        self.line(process).ready.store(1, Ordering::Release);
    }

    pub(crate) fn is_ready(&self, process: usize) -> bool {
        // SYNC: acquire; pairs with `set_ready`.
        self.line(process).ready.load(Ordering::Acquire) == 1
    }

    /// A process has its batch of `step` (from 1), now.
    pub(crate) fn record(&self, process: usize, step: usize) {
        self.times(process)[step - 1].store(now_ns(), Ordering::Relaxed);
        // SYNC: release; pairs with the acquire in `done`: the time is visible.
        self.line(process).done.store(step as u32, Ordering::Release);
    }

    /// Steps that a process has recorded.
    pub(crate) fn done(&self, process: usize) -> usize {
        // SYNC: acquire; pairs with the release in `record`.
        self.line(process).done.load(Ordering::Acquire) as usize
    }

    /// When a process recorded `step` (from 1); to be read after [`Board::done`] says so.
    pub(crate) fn time_ns(&self, process: usize, step: usize) -> u64 {
        self.times(process)[step - 1].load(Ordering::Relaxed)
    }

    /// Leaves the fingerprint of a decision log; read after the process has ended.
    pub(crate) fn set_decisions(&self, process: usize, log: &[u64]) {
        let line = self.line(process);
        line.hash.store(fingerprint(log), Ordering::Relaxed);
        line.hashed_words.store(log.len() as u64, Ordering::Relaxed);
    }

    /// Fingerprint and words of a process's decision log; `None` if it left none.
    pub(crate) fn decisions(&self, process: usize) -> Option<(u64, u64)> {
        let line = self.line(process);
        let words = line.hashed_words.load(Ordering::Relaxed);
        (words != 0).then(|| (line.hash.load(Ordering::Relaxed), words))
    }
}

/// FNV-1a over words: equal logs, equal fingerprints.
fn fingerprint(words: &[u64]) -> u64 {
    words.iter().fold(0xcbf2_9ce4_8422_2325, |hash, word| {
        (hash ^ word).wrapping_mul(0x0000_0100_0000_01b3).rotate_left(23)
    })
}
