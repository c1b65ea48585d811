//! Which adapter each ticket in flight asked for, and whether the device has taken it: for the
//! metrics, whose thread must hold no lock that a stream waits for.

use std::sync::atomic::{AtomicU32, Ordering};

/// Beside the adapter's number: the device has taken the ticket from its queue.
const RUNNING: u32 = 1 << 31;

/// A word per slot; 0 where no ticket with an adapter is in flight. All accesses are relaxed: a
/// word is all there is to read, and the ring orders the tickets of a slot.
pub struct AdapterUses(Box<[AtomicU32]>);

impl AdapterUses {
    /// None in use.
    pub(super) fn new(slots: usize) -> Self {
        Self((0..slots).map(|_| AtomicU32::new(0)).collect())
    }

    /// A ticket is about to be submitted.
    pub(super) fn begin(&self, slot: u32, adapter: u32) {
        if let Some(word) = self.0.get(slot as usize) {
            word.store(adapter, Ordering::Relaxed);
        }
    }

    /// The device has taken the slot's ticket from its queue.
    pub(super) fn admit(&self, slot: u32) {
        if let Some(word) = self.0.get(slot as usize) {
            word.fetch_or(RUNNING, Ordering::Relaxed);
        }
    }

    /// The slot's ticket is over.
    pub(super) fn end(&self, slot: u32) {
        self.begin(slot, 0);
    }

    /// Numbers of adapters whose tickets wait, and of those whose tickets run; each once, in order.
    pub fn now(&self) -> [Vec<u32>; 2] {
        let mut lists = [Vec::new(), Vec::new()];
        for word in &self.0 {
            let word = word.load(Ordering::Relaxed);
            let (adapter, is_running) = (word & !RUNNING, word & RUNNING != 0);
            if adapter != 0 {
                lists[usize::from(is_running)].push(adapter);
            }
        }
        for list in &mut lists {
            list.sort_unstable();
            list.dedup();
        }
        lists
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_adapter_waits_runs_and_is_gone() {
        const NONE: &[u32] = &[];
        let uses = AdapterUses::new(4);
        let now = || uses.now();
        assert_eq!(now(), [NONE, NONE]);
        for (slot, adapter) in [(0, 2), (1, 0), (2, 1), (3, 2)] {
            uses.begin(slot, adapter);
        }
        assert_eq!(now(), [&[1, 2], NONE]);
        uses.admit(0);
        uses.admit(1);
        assert_eq!(now(), [&[1, 2][..], &[2]], "one waits, one runs");
        uses.admit(3);
        assert_eq!(now(), [[1], [2]]);
        (0..5).for_each(|slot| uses.end(slot));
        assert_eq!(now(), [NONE, NONE]);
        uses.begin(0, 1);
        assert_eq!(now(), [&[1], NONE], "the next ticket of a slot waits");
    }
}
