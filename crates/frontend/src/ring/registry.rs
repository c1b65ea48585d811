//! The mailbox of each ticket in flight, and the guard that cancels an abandoned ticket.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use saccade_ring::{Submission, SubmitError, Ticket};

use super::mailbox::{End, Mailbox};
use super::port::DevicePort;

/// Slots of a region (`SAC_MAX_SLOTS`).
const MAX_SLOTS: usize = 4096;

type Entry = Option<(Ticket, Arc<Mailbox>)>;

/// The mailboxes of all tickets in flight, by slot: a slot has one ticket at a time.
pub struct Registry {
    entries: Box<[Mutex<Entry>]>,
}

impl Default for Registry {
    fn default() -> Self {
        Self { entries: (0..MAX_SLOTS).map(|_| Mutex::new(None)).collect() }
    }
}

impl Registry {
    /// The mailbox of a ticket in flight.
    pub fn get(&self, ticket: Ticket) -> Option<Arc<Mailbox>> {
        let entry = self.lock(ticket)?;
        entry.as_ref().filter(|(t, _)| *t == ticket).map(|(_, mailbox)| mailbox.clone())
    }

    /// Forgets an ended ticket.
    pub fn remove(&self, ticket: Ticket) {
        if let Some(mut entry) = self.lock(ticket)
            && entry.as_ref().is_some_and(|(t, _)| *t == ticket)
        {
            *entry = None;
        }
    }

    /// Ends every ticket in flight, for a frontend that is stopping.
    pub fn end_all(&self, end: End) {
        for entry in &self.entries {
            let mailbox = unpoisoned(entry).as_ref().map(|(_, mailbox)| mailbox.clone());
            if let Some(waker) = mailbox.and_then(|m| m.end(end)) {
                waker.wake();
            }
        }
    }

    fn insert(&self, ticket: Ticket, mailbox: Arc<Mailbox>) {
        if let Some(mut entry) = self.lock(ticket) {
            *entry = Some((ticket, mailbox));
        }
    }

    fn lock(&self, ticket: Ticket) -> Option<MutexGuard<'_, Entry>> {
        self.entries.get(ticket.slot as usize).map(unpoisoned)
    }
}

fn unpoisoned(entry: &Mutex<Entry>) -> MutexGuard<'_, Entry> {
    // One store under the lock: the entry is consistent even if a holder died.
    entry.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A submitted request. Dropped before its end, it is cancelled on the device at once.
pub struct Flight {
    ticket: Ticket,
    mailbox: Arc<Mailbox>,
    port: Arc<dyn DevicePort>,
    /// Times that the device had given this frontend up when it was submitted.
    given_up_before: u32,
    ended: bool,
}

impl Flight {
    /// Submits a request with a mailbox that is known before the first token can come.
    ///
    /// # Errors
    /// Those of the ring; nothing is left behind.
    pub fn submit(
        port: &Arc<dyn DevicePort>,
        registry: &Registry,
        submission: &Submission<'_>,
    ) -> Result<Self, SubmitError> {
        let mailbox = Arc::new(Mailbox::default());
        let given_up_before = port.times_given_up();
        let mut announced = None;
        let submitted = port.submit(submission, &mut |ticket| {
            registry.insert(ticket, mailbox.clone());
            announced = Some(ticket);
        });
        match submitted {
            Ok(ticket) => {
                let port = port.clone();
                Ok(Self { ticket, mailbox, port, given_up_before, ended: false })
            }
            Err(error) => {
                if let Some(ticket) = announced {
                    registry.remove(ticket);
                }
                Err(error)
            }
        }
    }

    /// Where its tokens arrive.
    pub fn mailbox(&self) -> &Mailbox {
        &self.mailbox
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
}

impl Drop for Flight {
    fn drop(&mut self) {
        self.mailbox.close();
        if !self.ended {
            self.port.cancel(self.ticket);
        }
    }
}
