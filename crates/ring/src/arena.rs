//! First-fit allocator over one frontend's share of the input arena.

use std::ops::Range;

use crate::layout::SAC_ARENA_ALIGN_BYTES;

/// A range of the arena that a waiting request's input occupies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Extent {
    /// Offset in the arena.
    pub(crate) at: u64,
    /// Bytes, rounded up to the alignment.
    pub(crate) bytes: u64,
}

/// Free extents, sorted by offset and never adjacent: at most one more than the extents handed out.
/// With one extent per slot the list is bounded and never grows after start.
#[derive(Debug)]
pub(crate) struct Arena {
    free: Vec<Extent>,
    free_bytes: u64,
    bytes: u64,
}

impl Arena {
    /// An arena over `share` that hands out at most `max_extents` at a time.
    pub(crate) fn new(share: Range<u64>, max_extents: usize) -> Arena {
        let mut free = Vec::with_capacity(max_extents + 1);
        let align = u64::from(SAC_ARENA_ALIGN_BYTES);
        let at = share.start.next_multiple_of(align);
        let bytes = share.end.saturating_sub(at) / align * align;
        if bytes > 0 {
            free.push(Extent { at, bytes });
        }
        Arena { free, free_bytes: bytes, bytes }
    }

    /// Takes the first free extent that fits, from its start.
    pub(crate) fn allocate(&mut self, bytes: u64) -> Option<Extent> {
        let bytes = bytes.max(1).checked_next_multiple_of(SAC_ARENA_ALIGN_BYTES.into())?;
        let i = self.free.iter().position(|extent| extent.bytes >= bytes)?;
        let taken = Extent { at: self.free[i].at, bytes };
        if self.free[i].bytes == bytes {
            self.free.remove(i);
        } else {
            self.free[i].at += bytes;
            self.free[i].bytes -= bytes;
        }
        self.free_bytes -= bytes;
        Some(taken)
    }

    /// Gives back an extent and joins it with free neighbours.
    pub(crate) fn free(&mut self, extent: Extent) {
        self.free_bytes += extent.bytes;
        let i = self.free.partition_point(|other| other.at < extent.at);
        let joins_next = self.free.get(i).is_some_and(|next| extent.at + extent.bytes == next.at);
        let joins_last = i > 0 && {
            let last = self.free[i - 1];
            last.at + last.bytes == extent.at
        };
        match (joins_last, joins_next) {
            (true, true) => {
                self.free[i - 1].bytes += extent.bytes + self.free[i].bytes;
                self.free.remove(i);
            }
            (true, false) => self.free[i - 1].bytes += extent.bytes,
            (false, true) => {
                self.free[i].at = extent.at;
                self.free[i].bytes += extent.bytes;
            }
            (false, false) => self.free.insert(i, extent),
        }
    }

    /// Bytes when nothing is handed out.
    pub(crate) fn bytes(&self) -> u64 {
        self.bytes
    }

    pub(crate) fn free_bytes(&self) -> u64 {
        self.free_bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rounds_splits_and_joins() {
        let mut arena = Arena::new(128..128 + 640, 8);
        let a = arena.allocate(1).expect("fits");
        let b = arena.allocate(65).expect("fits");
        let c = arena.allocate(448).expect("fits exactly");
        assert_eq!((a.at, a.bytes, b.at, b.bytes, c.at), (128, 64, 192, 128, 320));
        assert_eq!(arena.allocate(1), None);
        arena.free(a);
        arena.free(c);
        assert_eq!(arena.free.len(), 2);
        arena.free(b);
        assert_eq!(arena.free, [Extent { at: 128, bytes: 640 }]);
        assert_eq!(arena.free_bytes(), 640);
        assert_eq!(arena.allocate(u64::MAX), None);
    }

    proptest::proptest! {
        #[test]
        fn extents_never_overlap_and_all_bytes_return(
            sizes in proptest::collection::vec((1u64..4000, 0usize..8), 1..200)
        ) {
            let mut arena = Arena::new(0..16384, 200);
            let mut held: Vec<Extent> = Vec::new();
            for (bytes, drop_at) in sizes {
                if let Some(extent) = arena.allocate(bytes) {
                    let end = extent.at + extent.bytes;
                    proptest::prop_assert!(end <= 16384 && extent.bytes >= bytes);
                    let apart = |o: &Extent| end <= o.at || o.at + o.bytes <= extent.at;
                    proptest::prop_assert!(held.iter().all(apart));
                    held.push(extent);
                }
                if drop_at < held.len() {
                    arena.free(held.swap_remove(drop_at));
                }
            }
            held.drain(..).for_each(|extent| arena.free(extent));
            proptest::prop_assert_eq!(arena.allocate(16384), Some(Extent { at: 0, bytes: 16384 }));
        }
    }
}
