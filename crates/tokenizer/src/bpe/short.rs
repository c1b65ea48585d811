//! Merging a piece of at most [`MAX_SYMBOLS`] symbols: the best pair by one vector search over
//! all ranks, again and again. Quadratic, but with a constant so small that nothing beats it here.

use super::Bpe;
use super::pairs::NO_RANK;
use crate::simd::{Isa, MAX_KEYS};

/// Most symbols of a short piece: a place fits in the low byte of a key.
pub const MAX_SYMBOLS: usize = MAX_KEYS;

/// Room for one piece. `keys[i]` is `rank << 8 | i` of the pair that begins at symbol `i`: the
/// smallest key is the merge that comes next, leftmost first.
pub struct Short {
    ids: [u32; MAX_SYMBOLS],
    keys: [u32; MAX_SYMBOLS],
    /// End of each symbol in bytes from the start of the piece.
    ends: [u32; MAX_SYMBOLS],
    next: [u16; MAX_SYMBOLS],
    prev: [u16; MAX_SYMBOLS],
    len: usize,
    /// The tokens that were joined last.
    last: (u32, u32),
}

impl Default for Short {
    fn default() -> Self {
        Self {
            ids: [0; MAX_SYMBOLS],
            keys: [u32::MAX; MAX_SYMBOLS],
            ends: [0; MAX_SYMBOLS],
            next: [0; MAX_SYMBOLS],
            prev: [0; MAX_SYMBOLS],
            len: 0,
            last: (0, 0),
        }
    }
}

/// Key of a pair; prefetches what its merge will need.
///
/// # Safety
/// The machine must have `S`.
#[inline(always)]
unsafe fn key<S: Isa>(bpe: &Bpe, rank: u32, at: usize) -> u32 {
    if rank == NO_RANK {
        return u32::MAX;
    }
    // SAFETY: the caller's contract.
    unsafe { S::prefetch(bpe.place_of_merged(rank)) };
    rank << 8 | at as u32
}

impl Short {
    /// Takes the symbols; false if there are more than [`MAX_SYMBOLS`]: the rest is left.
    #[inline(always)]
    pub fn fill(&mut self, symbols: impl Iterator<Item = (u32, usize)>) -> bool {
        self.len = 0;
        for (id, end) in symbols {
            if self.len == MAX_SYMBOLS {
                return false;
            }
            self.ids[self.len] = id;
            self.ends[self.len] = end as u32;
            self.len += 1;
        }
        true
    }

    /// Number of symbols before merging.
    pub fn len(&self) -> usize {
        self.len
    }

    /// The pair that became a token last, if there was any.
    pub fn last(&self) -> (u32, u32) {
        self.last
    }

    /// Merges until no pair has a rank.
    ///
    /// # Safety
    /// The machine must have `S`.
    #[inline(always)]
    pub unsafe fn merge<S: Isa>(&mut self, bpe: &Bpe) {
        let len = self.len.min(MAX_SYMBOLS);
        if len == 0 {
            return;
        }
        // SAFETY: the caller's contract, here and below.
        unsafe { self.rank_all::<S>(bpe, len) };
        loop {
            // SAFETY: as above.
            let best = unsafe { S::min_key(&self.keys, len) };
            if best == u32::MAX {
                return;
            }
            // SAFETY: as above.
            let changed = unsafe { self.join::<S>(bpe, (best & 0xff) as usize, best >> 8, len) };
            for (at, key) in changed {
                if at < len {
                    self.keys[at] = key;
                }
            }
        }
    }

    /// Keys of all pairs of the first `len` symbols, at least one.
    ///
    /// # Safety
    /// The machine must have `S`.
    #[inline(always)]
    unsafe fn rank_all<S: Isa>(&mut self, bpe: &Bpe, len: usize) {
        let mut left = self.ids[0];
        for at in 1..len {
            let right = self.ids[at];
            // SAFETY: the caller's contract, here and below.
            self.keys[at - 1] = unsafe { key::<S>(bpe, bpe.rank(left, right), at - 1) };
            left = right;
        }
        for at in 0..len {
            self.next[at] = at as u16 + 1;
            self.prev[at] = (at as u16).wrapping_sub(1);
        }
        self.keys[len - 1..len.next_multiple_of(16)].fill(u32::MAX);
    }

    /// Joins the symbol at `at` with the next one. Returns the three keys that change; a place
    /// beyond `len` means none.
    ///
    /// # Safety
    /// The machine must have `S`.
    #[inline(always)]
    unsafe fn join<S: Isa>(
        &mut self,
        bpe: &Bpe,
        at: usize,
        rank: u32,
        len: usize,
    ) -> [(usize, u32); 3] {
        let id = bpe.merged(rank);
        let gone = usize::from(self.next[at]) & (MAX_SYMBOLS - 1);
        let after = usize::from(self.next[gone]);
        let before = usize::from(self.prev[at]);
        self.last = (self.ids[at], self.ids[gone]);
        self.ids[at] = id;
        self.ends[at] = self.ends[gone];
        self.next[at] = after as u16;
        let (mut right, mut left) = (u32::MAX, u32::MAX);
        if after < len {
            self.prev[after] = at as u16;
            // SAFETY: the caller's contract, here and below.
            right = unsafe { key::<S>(bpe, bpe.pairs.rank(id, self.ids[after]), at) };
        }
        if before < len {
            // SAFETY: as above.
            left = unsafe { key::<S>(bpe, bpe.pairs.rank(self.ids[before], id), before) };
        }
        [(gone, u32::MAX), (at, right), (before, left)]
    }

    /// The tokens: id, and end in bytes from the start of the piece.
    #[inline(always)]
    pub fn tokens(&self) -> impl Iterator<Item = (u32, usize)> + '_ {
        let mut at = if self.len == 0 { usize::MAX } else { 0 };
        std::iter::from_fn(move || {
            if at >= self.len.min(MAX_SYMBOLS) {
                return None;
            }
            let token = (self.ids[at], self.ends[at] as usize);
            at = usize::from(self.next[at]);
            Some(token)
        })
    }
}
