//! Which thread may write a slot's doorbell, and which one gives the slot back.
//!
//! One word per slot holds its ticket and five flags. A submitter, at most one canceller and the
//! token reader meet there, and none of them waits for another: a thread that was stopped while it
//! writes a doorbell delays the reuse of that one slot, and nothing else.
//!
//! - The submitter opens the gate with the doorbell in hand and leaves it once the ticket is rung.
//! - The first cancel of a ticket takes the doorbell if it is free. If not, the submitter carries
//!   the cancel with its own write.
//! - The reader marks the end. If a canceller has the doorbell then, that thread gives the slot
//!   back when it leaves; otherwise the reader does, and no other thread can enter any more.

use crate::sync::{AtomicU64, Edge, PAYLOAD, order};

/// The ticket, in 24 of these bits.
const TICKET: u64 = 0xffff_ffff;
/// A thread has the doorbell.
const HELD: u64 = 1 << 32;
/// A cancel was asked for.
const CANCELLED: u64 = 1 << 33;
/// No ticket, or its end was seen.
const ENDED: u64 = 1 << 34;
/// It ended without the device: the slot is given back as draining.
const DRAINS: u64 = 1 << 35;

/// What a cancel has to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Cancel {
    /// The ticket has ended, or was cancelled before.
    Nothing,
    /// The submitter that is ringing the ticket writes it.
    Carried,
    /// The caller has the doorbell now: it writes it, then calls [`Gate::leave`].
    Write,
}

/// What the reader has to do when it ends a ticket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum End {
    /// It gives the slot back, and may write the doorbell before.
    Mine {
        /// The doorbell has said so.
        cancelled: bool,
    },
    /// The canceller that has the doorbell gives the slot back.
    Theirs,
}

/// The state of one slot between the threads of a frontend.
#[derive(Debug)]
pub(crate) struct Gate(AtomicU64);

impl Gate {
    pub(crate) fn new() -> Gate {
        Gate(AtomicU64::new(ENDED))
    }

    /// Begins a ticket in a slot that the caller has claimed; the caller has the doorbell.
    pub(crate) fn open(&self, ticket: u32) {
        // Relaxed: nothing is handed over yet. What an earlier ticket's threads did with the slot
        // came before the claim (see `Shared::give_back`).
        self.0.store(u64::from(ticket) | HELD, PAYLOAD);
    }

    /// True if a cancel was asked for. A hint for the reader; final for the thread that has the
    /// doorbell only with [`rung`](Self::rung).
    pub(crate) fn is_cancelled(&self) -> bool {
        self.0.load(PAYLOAD) & CANCELLED != 0
    }

    /// The submitter has rung the doorbell, with or without a cancel. False if a cancel has come
    /// meanwhile: it must ring again, with the cancel, and leave.
    pub(crate) fn rung(&self, ticket: u32, cancelled: bool) -> bool {
        let held = u64::from(ticket) | HELD | if cancelled { CANCELLED } else { 0 };
        // SYNC: release on success; pairs with the acquire of the cancel that takes the doorbell
        // next, so that its write comes after ours.
        self.0.compare_exchange(held, held & !HELD, order(Edge::Rung), PAYLOAD).is_ok()
    }

    /// The ticket's doorbell may not have been rung: the reader never hears of it.
    pub(crate) fn abandon(&self) {
        // Relaxed: only the thread that has the doorbell comes here, and no other acts on it after.
        self.0.fetch_or(ENDED, PAYLOAD);
    }

    /// Asks for a cancel of `ticket`.
    pub(crate) fn cancel(&self, ticket: u32) -> Cancel {
        let mut now = self.0.load(PAYLOAD);
        // Each failure is a step of the ticket by another thread, and it has no more than four:
        // open, rung, cancelled, ended.
        loop {
            if now & TICKET != u64::from(ticket) || now & (CANCELLED | ENDED) != 0 {
                return Cancel::Nothing;
            }
            // SYNC: acquire, if the doorbell is taken; pairs with `rung`.
            let wanted = now | CANCELLED | HELD;
            match self.0.compare_exchange(now, wanted, order(Edge::Cancel), PAYLOAD) {
                Ok(_) if now & HELD != 0 => return Cancel::Carried,
                Ok(_) => return Cancel::Write,
                Err(newer) => now = newer,
            }
        }
    }

    /// Gives the doorbell back after a write. `Some` if the ticket ended meanwhile: the caller
    /// gives the slot back, as draining if true.
    pub(crate) fn leave(&self) -> Option<bool> {
        // SYNC: release; our write of the doorbell comes before the next ticket's, by way of `end`
        // (which acquires) or, if that came first, of `Shared::give_back`. Acquire: what the reader
        // gave back before the end is given back before the slot.
        let before = self.0.fetch_and(!HELD, order(Edge::Leave));
        (before & ENDED != 0).then_some(before & DRAINS != 0)
    }

    /// The reader ends the ticket.
    pub(crate) fn end(&self, drains: bool) -> End {
        let flags = if drains { ENDED | DRAINS } else { ENDED };
        // SYNC: acquire and release; pairs with `leave`, see there.
        let before = self.0.fetch_or(flags, order(Edge::End));
        if before & HELD != 0 {
            return End::Theirs;
        }
        End::Mine { cancelled: before & CANCELLED != 0 }
    }
}
