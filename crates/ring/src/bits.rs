//! One bit per slot, set by some threads and taken by one at a time, without a lock.

use std::sync::atomic::Ordering;

use crate::sync::{AtomicU64, OBSERVE, PAYLOAD};

/// A bounded queue of slots in no order: each is in it at most once.
#[derive(Debug)]
pub(crate) struct SlotBits(Box<[AtomicU64]>);

impl SlotBits {
    pub(crate) fn new(slots: usize) -> SlotBits {
        SlotBits((0..slots.div_ceil(64)).map(|_| AtomicU64::new(0)).collect())
    }

    /// Adds a slot; the order says what is published with it.
    pub(crate) fn set(&self, index: u32, order: Ordering) {
        self.0[index as usize / 64].fetch_or(1 << (index % 64), order);
    }

    /// Takes every slot out, and calls `each` with it.
    pub(crate) fn take(&self, mut each: impl FnMut(u32)) {
        for (word, base) in self.0.iter().zip((0u32..).step_by(64)) {
            // Most words are empty, and a look leaves their line with its writer.
            if word.load(PAYLOAD) == 0 {
                continue;
            }
            // SYNC: acquire; pairs with the release of whatever set the bits.
            let mut bits = word.swap(0, OBSERVE);
            while bits != 0 {
                each(base + bits.trailing_zeros());
                bits &= bits - 1;
            }
        }
    }

    /// True if there is one. A later [`take`](Self::take) on this thread finds it.
    pub(crate) fn any(&self) -> bool {
        self.0.iter().any(|word| word.load(PAYLOAD) != 0)
    }
}
