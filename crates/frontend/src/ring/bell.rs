//! How the token reader wakes the tasks of an HTTP thread without waiting for that thread.
//!
//! Waking a task goes through its runtime's queues, which have locks; a thread that was descheduled
//! inside one would hold up the reader, and so every stream. So the reader never wakes a task. It
//! leaves a bit for the slot and writes to an eventfd, and a task of the HTTP thread's own runtime,
//! which waits on that, does the rest.

use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd, RawFd};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::task::Waker;

use rustix::event::{EventfdFlags, eventfd};
use saccade_ring::Ticket;
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

use super::registry::MAX_SLOTS;

type Entry = Option<(Ticket, Waker)>;

/// The bell of one HTTP thread.
pub struct Bell {
    /// One bit per slot: tokens or an end have come for it.
    news: Box<[AtomicU64]>,
    event: OwnedFd,
    /// By slot, for the HTTP thread only.
    wakers: Box<[Mutex<Entry>]>,
}

/// The eventfd without its owner, for the runtime to watch.
struct Watched<'a>(&'a OwnedFd);

impl AsRawFd for Watched<'_> {
    fn as_raw_fd(&self) -> RawFd {
        self.0.as_raw_fd()
    }
}

impl Bell {
    /// # Errors
    /// If the system has no file descriptor left.
    pub fn new() -> io::Result<Self> {
        Ok(Self {
            news: (0..MAX_SLOTS / 64).map(|_| AtomicU64::new(0)).collect(),
            event: eventfd(0, EventfdFlags::NONBLOCK | EventfdFlags::CLOEXEC)?,
            wakers: (0..MAX_SLOTS).map(|_| Mutex::new(None)).collect(),
        })
    }

    /// The reader has something for this slot's task. [`ring`](Self::ring) afterwards.
    pub fn note(&self, slot: u32) {
        if let Some(word) = self.news.get(slot as usize / 64) {
            // SYNC: release; pairs with the acquire in `answer`. What was put into the mailbox is
            // there when its task looks, and the reader has let an ended one go.
            word.fetch_or(1 << (slot % 64), Ordering::Release);
        }
    }

    /// Has the HTTP thread look at what was noted.
    pub fn ring(&self) {
        // It fails only when it has been rung 2^64 - 1 times without an answer.
        let _ = rustix::io::write(&self.event, &1u64.to_ne_bytes());
    }

    /// Wakes the task when its slot is noted. Look into the mailbox once more after this.
    pub fn expect(&self, ticket: Ticket, waker: &Waker) {
        let Some(mut entry) = self.entry(ticket.slot) else { return };
        match &mut *entry {
            Some((of, known)) if *of == ticket => known.clone_from(waker),
            other => {
                let before = other.replace((ticket, waker.clone()));
                drop(entry);
                // An earlier ticket of the slot, whose end may have been noted and not answered.
                if let Some((_, waker)) = before {
                    waker.wake();
                }
            }
        }
    }

    /// The ticket's task does not wait any more.
    pub fn forget(&self, ticket: Ticket) {
        let Some(mut entry) = self.entry(ticket.slot) else { return };
        if entry.as_ref().is_some_and(|(of, _)| *of == ticket) {
            *entry = None;
        }
    }

    /// Answers for ever, on the HTTP thread: wakes the tasks, and calls `noted` for each slot.
    ///
    /// # Errors
    /// If the runtime cannot watch the eventfd.
    pub async fn answer(&self, noted: impl Fn(u32)) -> io::Result<()> {
        let watched = Watched(&self.event);
        // SAFETY: `Watched` borrows the bell, which owns the descriptor and closes it when dropped:
        // it is open, and the same, for as long as `event` lives.
        let event = unsafe { AsyncFd::register_with_interest(watched, Interest::READABLE) }?;
        loop {
            let mut ready = event.readable().await?;
            // Read before the bits: what is noted after this rings again.
            let mut count = [0; 8];
            match rustix::io::read(event.get_ref().0.as_fd(), &mut count) {
                Ok(_) => {}
                Err(rustix::io::Errno::AGAIN) => ready.clear_ready(),
                Err(error) => return Err(error.into()),
            }
            for (word, base) in self.news.iter().zip((0u32..).step_by(64)) {
                if word.load(Ordering::Relaxed) == 0 {
                    continue;
                }
                // SYNC: acquire; pairs with the release of `note`.
                let mut bits = word.swap(0, Ordering::Acquire);
                while bits != 0 {
                    let slot = base + bits.trailing_zeros();
                    bits &= bits - 1;
                    noted(slot);
                    let woken = self.entry(slot).and_then(|mut entry| entry.take());
                    if let Some((_, waker)) = woken {
                        waker.wake();
                    }
                }
            }
        }
    }

    fn entry(&self, slot: u32) -> Option<MutexGuard<'_, Entry>> {
        // One store under the lock: the entry is consistent even if a holder died.
        self.wakers.get(slot as usize).map(|e| e.lock().unwrap_or_else(PoisonError::into_inner))
    }
}
