//! The mailboxes of the tickets in flight, from their submission to the token reader and back, and
//! the guard that cancels an abandoned ticket.
//!
//! A mailbox has three holders. The [`Flight`] and the registry's `owners` are on HTTP threads; the
//! reader gets its hold with the ticket's arrival and drops it at the end. It is never the last: an
//! HTTP thread frees the memory, after the reader has said that it let go.

use std::io;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};

use std::collections::VecDeque;

use saccade_ring::{Submission, SubmitError, Ticket};

use super::bell::Bell;
use super::mailbox::{End, Mailbox, Token};
use super::port::DevicePort;
use super::uses::AdapterUses;

/// Slots of a region (`SAC_MAX_SLOTS`).
pub(super) const MAX_SLOTS: usize = 4096;

/// What a holder has for a slot.
pub(super) type Entry = Option<(Ticket, Arc<Mailbox>)>;

/// The mailboxes of all tickets in flight, by slot: a slot has one ticket at a time.
pub struct Registry {
    /// From the submission to the arrival. The thread that submits is done with its entry before
    /// the ticket arrives, so the reader always finds it unlocked.
    handed: Box<[Mutex<Entry>]>,
    /// For HTTP threads only.
    owners: Box<[Mutex<Entry>]>,
    /// The last ticket of each slot that the reader has let go, as a number, plus 1.
    let_go: Box<[AtomicU64]>,
    bells: Box<[Bell]>,
    /// Adapters of the tickets in flight.
    pub uses: AdapterUses,
    stopping: AtomicBool,
}

impl Registry {
    /// For the tickets that `threads` HTTP threads submit.
    ///
    /// # Errors
    /// If the system has no file descriptor left.
    pub fn new(threads: usize) -> io::Result<Self> {
        let entries = || (0..MAX_SLOTS).map(|_| Mutex::new(None)).collect();
        Ok(Self {
            handed: entries(),
            owners: entries(),
            let_go: (0..MAX_SLOTS).map(|_| AtomicU64::new(0)).collect(),
            bells: (0..threads.max(1)).map(|_| Bell::new()).collect::<io::Result<_>>()?,
            uses: AdapterUses::new(MAX_SLOTS),
            stopping: AtomicBool::new(false),
        })
    }

    /// HTTP threads.
    pub fn threads(&self) -> usize {
        self.bells.len()
    }

    /// The bell of an HTTP thread.
    pub(super) fn bell(&self, thread: usize) -> &Bell {
        &self.bells[thread]
    }

    /// Wakes the tasks of HTTP thread `thread` as their tokens come; runs for ever on that thread.
    ///
    /// # Errors
    /// If the runtime cannot watch the thread's bell.
    pub async fn wake_tasks(&self, thread: usize) -> io::Result<()> {
        self.bell(thread).answer(|slot| self.sweep(slot)).await
    }

    /// Ends every ticket in flight, for a frontend that is stopping: the reader does, with its next
    /// look.
    pub fn stop(&self) {
        self.stopping.store(true, Ordering::Relaxed);
    }

    /// True once [`stop`](Self::stop) was called.
    pub(super) fn is_stopping(&self) -> bool {
        self.stopping.load(Ordering::Relaxed)
    }

    /// For the reader: the mailbox of a ticket that has arrived. Never waits.
    pub(super) fn take_handed(&self, ticket: Ticket) -> Option<Arc<Mailbox>> {
        // The submission was over with this entry before the arrival was published, and the next
        // one of the slot comes after the reader has ended this ticket: `try_lock` finds it free.
        let mut entry = self.handed.get(ticket.slot as usize)?.try_lock().ok()?;
        entry.take().filter(|(of, _)| *of == ticket).map(|(_, mailbox)| mailbox)
    }

    /// For the reader: it has dropped its hold of the ticket's mailbox.
    pub(super) fn let_go(&self, ticket: Ticket) {
        self.uses.end(ticket.slot);
        if let Some(word) = self.let_go.get(ticket.slot as usize) {
            // SYNC: release; pairs with the acquire of `sweep`, so that the drop there is the last.
            word.store(number(ticket), Ordering::Release);
        }
    }

    fn hand(&self, ticket: Ticket, mailbox: &Arc<Mailbox>) {
        for entries in [&self.owners, &self.handed] {
            if let Some(mut entry) = entry(entries, ticket.slot) {
                // What is replaced belongs to a ticket that the reader let go before the slot came
                // free.
                *entry = Some((ticket, mailbox.clone()));
            }
        }
    }

    /// Takes back what was handed and never arrived.
    fn withdraw(&self, ticket: Ticket) {
        self.uses.end(ticket.slot);
        for entries in [&self.handed, &self.owners] {
            if let Some(mut entry) = entry(entries, ticket.slot) {
                entry.take_if(|(of, _)| *of == ticket);
            }
        }
    }

    /// Frees the mailbox of a slot if the reader has let it go.
    fn sweep(&self, slot: u32) {
        let Some(word) = self.let_go.get(slot as usize) else { return };
        // SYNC: acquire; pairs with the release of `let_go`.
        let gone = word.load(Ordering::Acquire);
        if let Some(mut entry) = entry(&self.owners, slot) {
            entry.take_if(|(of, _)| number(*of) == gone);
        }
    }
}

/// Names a ticket among those of its slot.
fn number(ticket: Ticket) -> u64 {
    (u64::from(ticket.device_epoch) << 32 | u64::from(ticket.ticket)).wrapping_add(1)
}

fn entry(entries: &[Mutex<Entry>], slot: u32) -> Option<MutexGuard<'_, Entry>> {
    // One store under the lock: the entry is consistent even if a holder died.
    entries.get(slot as usize).map(|e| e.lock().unwrap_or_else(PoisonError::into_inner))
}

/// A submitted request. Dropped before its end, it is cancelled on the device at once.
pub struct Flight {
    ticket: Ticket,
    mailbox: Arc<Mailbox>,
    port: Arc<dyn DevicePort>,
    registry: Arc<Registry>,
    /// Times that the device had given this frontend up when it was submitted.
    given_up_before: u32,
    ended: bool,
}

impl Flight {
    /// Submits a request from HTTP thread `thread`, with a mailbox that arrives with it.
    ///
    /// # Errors
    /// Those of the ring; nothing is left behind.
    pub fn submit(
        port: &Arc<dyn DevicePort>,
        registry: &Arc<Registry>,
        thread: usize,
        submission: &Submission<'_>,
    ) -> Result<Self, SubmitError> {
        let mailbox = Arc::new(Mailbox::new(submission, thread));
        let given_up_before = port.times_given_up();
        let mut announced = None;
        let submitted = port.submit(submission, &mut |ticket| {
            registry.hand(ticket, &mailbox);
            registry.uses.begin(ticket.slot, submission.params.adapter);
            announced = Some(ticket);
        });
        match submitted {
            Ok(ticket) => {
                let (port, registry) = (port.clone(), registry.clone());
                Ok(Self { ticket, mailbox, port, registry, given_up_before, ended: false })
            }
            Err(error) => {
                announced.into_iter().for_each(|ticket| registry.withdraw(ticket));
                Err(error)
            }
        }
    }

    /// Where its tokens arrive.
    pub fn mailbox(&self) -> &Mailbox {
        &self.mailbox
    }

    /// Moves all tokens that have come into `tokens`; the end comes with the last of them.
    pub fn poll_drain(
        &self,
        tokens: &mut VecDeque<Token>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<End>> {
        self.poll_take(|mailbox| mailbox.drain(tokens), cx)
    }

    /// As [`poll_drain`](Self::poll_drain), for the embedding that was asked for.
    pub fn poll_embedding(&self, values: &mut Vec<f32>, cx: &mut Context<'_>) -> Poll<Option<End>> {
        self.poll_take(|mailbox| mailbox.drain_embedding(values), cx)
    }

    fn poll_take(
        &self,
        mut take: impl FnMut(&Mailbox) -> Option<Option<End>>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<End>> {
        if let Some(end) = take(&self.mailbox) {
            return Poll::Ready(end);
        }
        self.bell().expect(self.ticket, cx.waker());
        // What was noted before the waker was there was answered without it, under the same lock,
        // and so is seen now; what is noted from now on finds the waker.
        take(&self.mailbox).map_or(Poll::Pending, Poll::Ready)
    }

    /// Whether the device has given this frontend's requests up since it was submitted: then it
    /// ended because this frontend stood still, and not by a fault of the device.
    pub fn was_given_up(&self) -> bool {
        self.port.times_given_up() != self.given_up_before
    }

    /// The end has been seen: there is nothing left to cancel.
    pub fn ended(&mut self) {
        self.ended = true;
    }

    fn bell(&self) -> &Bell {
        self.registry.bell(self.mailbox.thread())
    }
}

impl Drop for Flight {
    fn drop(&mut self) {
        self.mailbox.close();
        self.bell().forget(self.ticket);
        if !self.ended {
            self.port.cancel(self.ticket);
        }
    }
}
