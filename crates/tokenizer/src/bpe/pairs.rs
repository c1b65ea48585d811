//! Ranks of the merges: a flat hash table of packed pairs.

/// Ids must fit in this many bits, so that a pair and its rank are one word.
pub const ID_BITS: u32 = 20;
/// Ranks must fit in this many bits.
pub const RANK_BITS: u32 = 23;
/// No merge. Larger than every rank.
pub const NO_RANK: u32 = u32::MAX;

/// An id that merges with nothing.
pub const NOTHING: u32 = (1 << ID_BITS) - 1;

const MULTIPLIER: u64 = 0x9e37_79b9_7f4a_7c15;
const KEY_SHIFT: u32 = RANK_BITS + 1;
/// In the first slot of a bucket: more of its pairs are in the next one.
const OVERFLOW: u64 = 1 << RANK_BITS;
/// A key that is not a pair, because ids stay below the largest number of their bits.
const EMPTY: u64 = u64::MAX << KEY_SHIFT;
/// Slots of a bucket: half a cache line.
const SLOTS: usize = 4;

/// A pair and its bucket.
#[derive(Clone, Copy)]
pub struct PairKey {
    pair: u64,
    home: usize,
}

impl PairKey {
    /// A pair that does not merge.
    pub const NOTHING: Self = Self { pair: (NOTHING as u64) << ID_BITS, home: 0 };
}

#[derive(Clone, Copy)]
#[repr(C, align(32))]
struct Bucket([u64; SLOTS]);

/// `left << 44 | right << 24 | rank` in buckets, half full on average. A look-up compares all
/// slots of a bucket and branches only on whether to continue, which is rare: most pairs that are
/// looked up have no merge, and which ones do cannot be predicted.
pub struct PairTable {
    buckets: Vec<Bucket>,
    homes: u64,
}

impl PairTable {
    /// A table of `(left, right, rank)`. If a pair occurs twice, the later one stays, as in HF.
    pub fn new(pairs: &[(u32, u32, u32)]) -> Self {
        let homes = (pairs.len() * 2 / SLOTS).max(1);
        let mut buckets = vec![Bucket([EMPTY; SLOTS]); homes + 1];
        for &(left, right, rank) in pairs {
            let pair = u64::from(left) << ID_BITS | u64::from(right);
            put(&mut buckets, home(pair, homes as u64), pair, u64::from(rank));
        }
        Self { buckets, homes: homes as u64 }
    }

    /// Where the rank of `left` and `right` is.
    #[inline(always)]
    pub fn key(&self, (left, right): (u32, u32)) -> PairKey {
        let pair = u64::from(left) << ID_BITS | u64::from(right);
        PairKey { pair, home: home(pair, self.homes) }
    }

    /// Where [`PairTable::find`] will look.
    #[inline(always)]
    pub fn place(&self, key: PairKey) -> *const u8 {
        self.buckets.as_ptr().wrapping_add(key.home).cast()
    }

    /// Rank of the merge of `left` and `right`, or [`NO_RANK`].
    #[inline(always)]
    pub fn rank(&self, left: u32, right: u32) -> u32 {
        self.find(self.key((left, right)))
    }

    /// Rank of the merge of a pair, or [`NO_RANK`].
    #[inline(always)]
    pub fn find(&self, key: PairKey) -> u32 {
        let mut at = key.home;
        loop {
            let bucket = &self.buckets[at].0;
            let mut rank = NO_RANK;
            for slot in bucket {
                let is_it = slot >> KEY_SHIFT == key.pair;
                rank = if is_it { *slot as u32 & (OVERFLOW as u32 - 1) } else { rank };
            }
            if rank != NO_RANK || bucket[0] & OVERFLOW == 0 {
                return rank;
            }
            at += 1;
        }
    }

    /// Bytes of memory.
    pub fn bytes(&self) -> usize {
        self.buckets.len() * size_of::<Bucket>()
    }
}

/// The first bucket, of `homes`, where a pair may be.
#[inline(always)]
fn home(pair: u64, homes: u64) -> usize {
    (((pair.wrapping_mul(MULTIPLIER) >> 32) * homes) >> 32) as usize
}

/// Puts a pair into the first bucket with room from `at` on.
fn put(buckets: &mut Vec<Bucket>, mut at: usize, pair: u64, rank: u64) {
    loop {
        let bucket = &mut buckets[at].0;
        let place = |slot: &u64| slot >> KEY_SHIFT == pair || *slot & !OVERFLOW == EMPTY;
        if let Some(slot) = bucket.iter_mut().find(|slot| place(slot)) {
            *slot = pair << KEY_SHIFT | *slot & OVERFLOW | rank;
            return;
        }
        bucket[0] |= OVERFLOW;
        at += 1;
        // The last bucket never overflows, so that a search ends without a test for the end.
        if at + 1 >= buckets.len() {
            buckets.push(Bucket([EMPTY; SLOTS]));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn finds_what_was_put_in_and_nothing_else() {
        let pairs: Vec<_> = (0..5000u32).map(|i| (i * 7 % 1_000_003, i * 13 % 65_537, i)).collect();
        let table = PairTable::new(&pairs);
        for &(left, right, rank) in &pairs {
            assert_eq!(table.rank(left, right), rank);
            assert_eq!(table.rank(right + 70_000, left), NO_RANK);
        }
        let twice = PairTable::new(&[(1, 2, 3), (1, 2, 9)]);
        assert_eq!(twice.rank(1, 2), 9);
    }
}
