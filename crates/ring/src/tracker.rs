//! The slot tracker: which slots of this frontend may be rung, and what input they still hold.
//!
//! A local cache, so that a submission need not read the region: slots come back from the token
//! reader as their tickets end, or, when the end was not seen from the device, from one bulk read
//! of the statuses.

use std::ops::Range;

use crate::arena::{Arena, Extent};
use crate::layout::{SAC_TICKET_MASK, is_idle, sac_doorbell_ticket};

/// Words of a status in a bulk read.
pub(crate) const STATUS_WORDS: usize = 2;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum SlotUse {
    /// May be rung.
    Free,
    /// Its ticket is in flight.
    Busy,
    /// Its ticket has ended here (or belongs to an earlier life of this frontend), but the device
    /// has not yet shown the slot idle with that ticket.
    Draining,
}

#[derive(Clone, Copy, Debug)]
struct SlotEntry {
    usage: SlotUse,
    /// Last ticket rung.
    ticket: u32,
    extent: Option<Extent>,
}

/// What a claim ran out of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Full {
    Slots,
    Arena,
}

/// A slot taken for one request.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Claim {
    /// Index within this frontend's range.
    pub(crate) index: usize,
    pub(crate) ticket: u32,
    pub(crate) extent: Extent,
    pub(crate) sequence: u64,
}

/// What the token reader gives back. `index` is within this frontend's range.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Return {
    /// The device has taken over the input.
    Input { index: u32 },
    /// The ticket ended and the device shows the slot idle.
    Slot { index: u32 },
    /// The ticket ended without the device: the slot stays reserved until the device shows it idle.
    Drain { index: u32 },
}

#[derive(Debug)]
pub(crate) struct Tracker {
    slots: Vec<SlotEntry>,
    /// One bit for each free slot.
    free: Vec<u64>,
    num_free: usize,
    num_draining: usize,
    /// Where the next search begins: after the last slot taken, so that a search is short and
    /// slots take turns.
    hint: usize,
    arena: Arena,
    sequence: u64,
}

impl Tracker {
    /// All slots start as draining with the ticket of their doorbell: they come free when the
    /// device shows that no earlier life of this frontend holds them.
    pub(crate) fn new(doorbells: &[u32], arena: Range<u64>) -> Tracker {
        let slots: Vec<SlotEntry> = doorbells
            .iter()
            .map(|&doorbell| SlotEntry {
                usage: SlotUse::Draining,
                ticket: sac_doorbell_ticket(doorbell),
                extent: None,
            })
            .collect();
        Tracker {
            free: vec![0; slots.len().div_ceil(64)],
            num_free: 0,
            num_draining: slots.len(),
            hint: 0,
            arena: Arena::new(arena, slots.len()),
            sequence: 0,
            slots,
        }
    }

    /// Takes a free slot and room for its input.
    pub(crate) fn claim(&mut self, input_bytes: u64) -> Result<Claim, Full> {
        let index = self.next_free().ok_or(Full::Slots)?;
        let extent = self.arena.allocate(input_bytes).ok_or(Full::Arena)?;
        self.free[index / 64] &= !(1 << (index % 64));
        self.num_free -= 1;
        self.hint = (index + 1) % self.slots.len();
        let entry = &mut self.slots[index];
        entry.usage = SlotUse::Busy;
        entry.ticket = (entry.ticket + 1) & SAC_TICKET_MASK;
        entry.extent = Some(extent);
        self.sequence += 1;
        Ok(Claim { index, ticket: entry.ticket, extent, sequence: self.sequence })
    }

    /// The first free slot at or after the hint, wrapping around.
    fn next_free(&self) -> Option<usize> {
        if self.num_free == 0 {
            return None;
        }
        let (word, bit) = (self.hint / 64, self.hint % 64);
        let behind = self.free[word] & (!0 << bit);
        if behind != 0 {
            return Some(word * 64 + behind.trailing_zeros() as usize);
        }
        let words = self.free.len();
        (1..=words)
            .map(|step| (word + step) % words)
            .find(|&word| self.free[word] != 0)
            .map(|word| word * 64 + self.free[word].trailing_zeros() as usize)
    }

    /// Takes back what the reader returns.
    pub(crate) fn take_back(&mut self, returned: Return) {
        match returned {
            Return::Input { index } => self.free_input(index as usize),
            Return::Slot { index } => self.set_free(index as usize),
            Return::Drain { index } => {
                self.slots[index as usize].usage = SlotUse::Draining;
                self.num_draining += 1;
            }
        }
    }

    /// Frees the draining slots that `statuses` (the words of one bulk read) shows idle. The read
    /// may be stale: a slot that was idle with its last ticket stays so until it is rung.
    pub(crate) fn refresh(&mut self, statuses: &[u64]) {
        for index in 0..self.slots.len() {
            let entry = self.slots[index];
            let idle =
                statuses.get(index * STATUS_WORDS).is_some_and(|&word| is_idle(word, entry.ticket));
            if entry.usage == SlotUse::Draining && idle {
                self.num_draining -= 1;
                self.set_free(index);
            }
        }
    }

    fn set_free(&mut self, index: usize) {
        self.free_input(index);
        self.slots[index].usage = SlotUse::Free;
        self.free[index / 64] |= 1 << (index % 64);
        self.num_free += 1;
    }

    fn free_input(&mut self, index: usize) {
        if let Some(extent) = self.slots[index].extent.take() {
            self.arena.free(extent);
        }
    }

    pub(crate) fn num_free(&self) -> usize {
        self.num_free
    }

    /// The ticket that a draining slot waits for.
    pub(crate) fn draining_ticket(&self, index: usize) -> Option<u32> {
        let entry = self.slots.get(index)?;
        (entry.usage == SlotUse::Draining).then_some(entry.ticket)
    }

    pub(crate) fn num_draining(&self) -> usize {
        self.num_draining
    }

    pub(crate) fn arena_bytes(&self) -> u64 {
        self.arena.bytes()
    }

    pub(crate) fn free_arena_bytes(&self) -> u64 {
        self.arena.free_bytes()
    }

    /// Last tickets rung, by index.
    pub(crate) fn tickets(&self) -> impl Iterator<Item = u32> + '_ {
        self.slots.iter().map(|entry| entry.ticket)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::layout::{SAC_STATE_DECODE_COMPLETED, SAC_STATE_EMPTY, sac_status_word};

    fn idle_tracker(slots: usize) -> Tracker {
        let mut tracker = Tracker::new(&vec![0; slots], 0..1 << 20);
        tracker.refresh(&vec![sac_status_word(0, SAC_STATE_EMPTY, 0, 0); slots * STATUS_WORDS]);
        tracker
    }

    #[test]
    fn slots_take_turns_and_wrap() {
        let mut tracker = idle_tracker(96);
        let order: Vec<usize> =
            (0..96).map(|_| tracker.claim(1).expect("a free slot").index).collect();
        assert_eq!(order, (0..96).collect::<Vec<_>>());
        assert_eq!(tracker.claim(1).err(), Some(Full::Slots));
        tracker.take_back(Return::Slot { index: 70 });
        tracker.take_back(Return::Slot { index: 3 });
        assert_eq!(tracker.claim(1).map(|c| (c.index, c.ticket)), Ok((3, 2)));
        assert_eq!(tracker.claim(1).map(|c| (c.index, c.ticket)), Ok((70, 2)));
    }

    #[test]
    fn a_draining_slot_waits_for_its_own_ticket() {
        let mut tracker = idle_tracker(32);
        let claim = tracker.claim(100).expect("a free slot");
        tracker.take_back(Return::Drain { index: claim.index as u32 });
        let mut statuses = vec![sac_status_word(0, SAC_STATE_EMPTY, 0, 0); 64];
        tracker.refresh(&statuses);
        assert_eq!((tracker.num_free(), tracker.num_draining()), (31, 1));
        statuses[claim.index * 2] = sac_status_word(1, SAC_STATE_DECODE_COMPLETED, 3, 0);
        tracker.refresh(&statuses);
        assert_eq!((tracker.num_free(), tracker.num_draining()), (32, 0));
        assert_eq!(tracker.free_arena_bytes(), 1 << 20);
    }

    #[test]
    fn a_full_arena_leaves_the_slot_free() {
        let mut tracker = idle_tracker(32);
        assert_eq!(tracker.claim(1 << 21).err(), Some(Full::Arena));
        assert_eq!(tracker.num_free(), 32);
    }
}
