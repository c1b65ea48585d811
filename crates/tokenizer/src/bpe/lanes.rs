//! Merging up to [`LANES`] pieces of at most [`MAX_SYMBOLS`] symbols side by side.
//!
//! A merge waits for tables that are larger than the caches near the core. Merges of different
//! pieces are independent, so a core with several pieces at hand does one merge while others wait.
//! No branch in a merge depends on the text: the ends of a piece are symbols that merge with
//! nothing, and a pair without a rank has the largest one.

use super::Bpe;
use super::pairs::{NO_RANK, NOTHING, PairKey};
use crate::simd::{Isa, SLOTS};

/// Most symbols of a piece: one slot before and one after it are kept free.
pub const MAX_SYMBOLS: usize = SLOTS - 2;

/// Pieces that are merged side by side.
pub const LANES: usize = 4;

/// Keys at or above this are of pairs that do not merge.
const NO_KEY: u32 = NO_RANK << KEY_BITS;
/// Bits of a key below the rank.
const KEY_BITS: u32 = 8;
const LAST: usize = SLOTS - 1;

/// One piece. Symbol `i` has slot `i + 1`.
#[repr(C, align(64))]
pub struct Lane {
    /// `rank << 8 | slot` of the pair that begins at a slot: the smallest is the merge that comes
    /// next, leftmost first.
    keys: [u32; SLOTS],
    ids: [u32; SLOTS],
    /// End of each symbol before any merge, in bytes from the start of the piece.
    ends: [u32; SLOTS],
    /// Bit `slot`: a token begins there, or it is the slot before the first or after the last.
    alive: u32,
    len: usize,
}

impl Default for Lane {
    fn default() -> Self {
        Self { keys: [u32::MAX; SLOTS], ids: [NOTHING; SLOTS], ends: [0; SLOTS], alive: 0, len: 0 }
    }
}

/// A merge whose new pairs have no keys yet.
#[derive(Clone, Copy)]
struct Joined {
    slot: usize,
    /// The slot of the token before.
    before: usize,
    left: PairKey,
    right: PairKey,
}

impl Joined {
    /// No merge: nothing before the first symbol merges.
    const NONE: Self = Self { slot: 0, before: 0, left: PairKey::NOTHING, right: PairKey::NOTHING };
}

/// Key of a pair; prefetches what its merge will need.
///
/// # Safety
/// The machine must have `S`.
#[inline(always)]
unsafe fn key<S: Isa>(bpe: &Bpe, rank: u32, slot: usize) -> u32 {
    // SAFETY: the caller's contract.
    unsafe { S::prefetch(bpe.place_of_merged(rank)) };
    rank << KEY_BITS | slot as u32
}

impl Lane {
    /// Takes the first symbols, [`MAX_SYMBOLS`] at most; false if there are more.
    #[inline(always)]
    pub fn fill(&mut self, symbols: impl Iterator<Item = (u32, usize)>) -> bool {
        self.len = 0;
        for (id, end) in symbols {
            if self.len == MAX_SYMBOLS {
                return false;
            }
            self.len += 1;
            self.ids[self.len & LAST] = id;
            self.ends[self.len & LAST] = end as u32;
        }
        true
    }

    /// Where symbol `at` ends, before any merge.
    pub fn end_of(&self, at: usize) -> Option<usize> {
        self.ends[1..=self.len].get(at).map(|&end| end as usize)
    }

    /// Where the last symbol ends.
    pub fn end(&self) -> usize {
        if self.len == 0 { 0 } else { self.ends[self.len & LAST] as usize }
    }

    /// Keys of all pairs.
    ///
    /// # Safety
    /// The machine must have `S`.
    #[inline(always)]
    unsafe fn rank_all<S: Isa>(&mut self, bpe: &Bpe) {
        let len = self.len.min(MAX_SYMBOLS);
        self.keys = [u32::MAX; SLOTS];
        self.ids[(len + 1) & LAST] = NOTHING;
        self.alive = u32::MAX >> (LAST - len - 1);
        let mut left = self.ids[1];
        for slot in 1..len {
            let right = self.ids[(slot + 1) & LAST];
            // SAFETY: the caller's contract.
            self.keys[slot & LAST] = unsafe { key::<S>(bpe, bpe.rank(left, right), slot) };
            left = right;
        }
    }

    /// Does the merge of the key `best`, and prefetches the ranks of the two new pairs.
    ///
    /// # Safety
    /// The machine must have `S`.
    #[inline(always)]
    unsafe fn join<S: Isa>(&mut self, bpe: &Bpe, best: u32) -> Joined {
        let slot = best as usize & LAST;
        let id = bpe.merged(best >> KEY_BITS);
        let right = self.alive & (u32::MAX - 1) << slot;
        let gone = right.trailing_zeros() as usize & LAST;
        let after = (right & right.wrapping_sub(1)).trailing_zeros() as usize & LAST;
        let left = self.alive & !(u32::MAX << slot);
        let before = (31 - left.leading_zeros()) as usize & LAST;
        self.ids[slot] = id;
        self.alive &= !(1 << gone);
        self.keys[gone] = u32::MAX;
        let [left, right] =
            [(self.ids[before], id), (id, self.ids[after])].map(|p| bpe.pairs.key(p));
        // SAFETY: the caller's contract.
        unsafe {
            S::prefetch(bpe.pairs.place(left));
            S::prefetch(bpe.pairs.place(right));
        }
        Joined { slot, before, left, right }
    }

    /// Sets the keys of the two pairs that a merge made.
    ///
    /// # Safety
    /// The machine must have `S`.
    #[inline(always)]
    unsafe fn rank<S: Isa>(&mut self, bpe: &Bpe, joined: &Joined) {
        let &Joined { slot, before, left, right } = joined;
        // SAFETY: the caller's contract, here and below.
        self.keys[slot & LAST] = unsafe { key::<S>(bpe, bpe.pairs.find(right), slot) };
        // SAFETY: as above.
        self.keys[before & LAST] = unsafe { key::<S>(bpe, bpe.pairs.find(left), before) };
    }

    /// The tokens: id, and end in bytes from the start of the piece.
    #[inline(always)]
    pub fn tokens(&self) -> impl Iterator<Item = (u32, usize)> + '_ {
        let mut rest = self.alive & !1;
        std::iter::from_fn(move || {
            let slot = rest.trailing_zeros() as usize & LAST;
            rest &= rest.wrapping_sub(1);
            // The slot after the last symbol is not a token.
            let next = (rest != 0).then(|| rest.trailing_zeros() as usize)?;
            Some((self.ids[slot], self.ends[(next - 1) & LAST] as usize))
        })
    }
}

/// Merges all pieces, [`LANES`] at most, until no pair has a rank.
///
/// # Safety
/// The machine must have `S`.
#[inline(never)]
pub unsafe fn merge<S: Isa>(bpe: &Bpe, lanes: &mut [Lane]) {
    // SAFETY: the caller's contract, here and below.
    unsafe {
        S::vectorize(
            #[inline(always)]
            || {
                lanes.iter_mut().for_each(|lane| lane.rank_all::<S>(bpe));
                while merge_once::<S>(bpe, lanes) {}
            },
        );
    }
}

/// One merge in each piece that has one; false if none has.
///
/// # Safety
/// The machine must have `S`.
#[inline(always)]
unsafe fn merge_once<S: Isa>(bpe: &Bpe, lanes: &mut [Lane]) -> bool {
    let mut joined = [Joined::NONE; LANES];
    let mut goes_on = false;
    for (lane, joined) in lanes.iter_mut().zip(&mut joined) {
        // SAFETY: the caller's contract, here and below.
        let best = unsafe { S::min_of_slots(&lane.keys) };
        if best < NO_KEY {
            // SAFETY: as above.
            *joined = unsafe { lane.join::<S>(bpe, best) };
            goes_on = true;
        }
    }
    if goes_on {
        for (lane, joined) in lanes.iter_mut().zip(&joined) {
            // SAFETY: as above.
            unsafe { lane.rank::<S>(bpe, joined) };
        }
    }
    goes_on
}
