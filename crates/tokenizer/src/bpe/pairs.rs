//! Ranks of the merges: a flat hash table of packed pairs.

/// Ids must fit in this many bits, so that a pair and its rank are one word.
pub const ID_BITS: u32 = 20;
/// Ranks must fit in this many bits.
pub const RANK_BITS: u32 = 23;
/// No merge. Larger than every rank.
pub const NO_RANK: u32 = u32::MAX;

const MULTIPLIER: u64 = 0x9e37_79b9_7f4a_7c15;
const KEY_SHIFT: u32 = RANK_BITS + 1;
/// In the first slot of a bucket: more of its pairs are in the next one.
const OVERFLOW: u64 = 1 << RANK_BITS;
/// A key that is no pair, because ids stay below the largest number of their bits.
const EMPTY: u64 = u64::MAX << KEY_SHIFT;
/// Slots of a bucket: half a cache line.
const SLOTS: usize = 4;

#[derive(Clone, Copy)]
#[repr(C, align(32))]
struct Bucket([u64; SLOTS]);

/// `left << 44 | right << 24 | rank` in buckets, half full on average. A look-up compares all
/// slots of a bucket and has nothing to decide but whether to go on, which is rare: most pairs
/// that are looked up have no merge, and neither that nor the opposite can be foreseen.
pub struct PairTable {
    buckets: Vec<Bucket>,
    homes: u64,
}

impl PairTable {
    /// A table of `(left, right, rank)`. Where a pair comes twice the later one stays, as in HF.
    pub fn new(pairs: &[(u32, u32, u32)]) -> Self {
        let homes = (pairs.len() * 2 / SLOTS).max(1);
        let empty = Bucket([EMPTY; SLOTS]);
        let mut table = Self { buckets: vec![empty; homes + 1], homes: homes as u64 };
        for &(left, right, rank) in pairs {
            table.put(u64::from(left) << ID_BITS | u64::from(right), u64::from(rank));
        }
        table
    }

    fn put(&mut self, key: u64, rank: u64) {
        let mut at = self.home(key);
        loop {
            let bucket = &mut self.buckets[at].0;
            let place = |slot: &u64| slot >> KEY_SHIFT == key || *slot & !OVERFLOW == EMPTY;
            if let Some(slot) = bucket.iter_mut().find(|slot| place(slot)) {
                *slot = key << KEY_SHIFT | *slot & OVERFLOW | rank;
                return;
            }
            bucket[0] |= OVERFLOW;
            at += 1;
            // The last bucket never overflows, so that a search ends without a test for the end.
            if at + 1 >= self.buckets.len() {
                self.buckets.push(Bucket([EMPTY; SLOTS]));
            }
        }
    }

    #[inline(always)]
    fn home(&self, key: u64) -> usize {
        (((key.wrapping_mul(MULTIPLIER) >> 32) * self.homes) >> 32) as usize
    }

    /// Rank of the merge of `left` and `right`, or [`NO_RANK`].
    #[inline(always)]
    pub fn rank(&self, left: u32, right: u32) -> u32 {
        let key = u64::from(left) << ID_BITS | u64::from(right);
        let mut at = self.home(key);
        loop {
            let bucket = &self.buckets[at].0;
            let mut rank = NO_RANK;
            for slot in bucket {
                let is_it = slot >> KEY_SHIFT == key;
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
