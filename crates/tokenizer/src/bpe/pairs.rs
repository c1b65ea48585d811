//! Ranks of the merges: a flat hash table of packed pairs.

/// Ids must fit in this many bits, so that a pair and its rank are one word.
pub const ID_BITS: u32 = 20;
/// Ranks must fit in this many bits.
pub const RANK_BITS: u32 = 24;
/// No merge. Larger than every rank.
pub const NO_RANK: u32 = u32::MAX;

const EMPTY: u64 = u64::MAX;
const MULTIPLIER: u64 = 0x9e37_79b9_7f4a_7c15;

/// `left << 44 | right << 24 | rank` by open addressing, at most half full: a look-up reads one
/// cache line almost always.
pub struct PairTable {
    slots: Vec<u64>,
    shift: u32,
}

impl PairTable {
    /// A table of `(left, right, rank)`. Where a pair comes twice the later one stays, as in HF.
    pub fn new(pairs: &[(u32, u32, u32)]) -> Self {
        let slots = (pairs.len() * 2).next_power_of_two().max(16);
        let mut table = Self { slots: vec![EMPTY; slots], shift: 64 - slots.ilog2() };
        for &(left, right, rank) in pairs {
            let key = u64::from(left) << ID_BITS | u64::from(right);
            let mut at = table.home(key);
            while table.slots[at] != EMPTY && table.slots[at] >> RANK_BITS != key {
                at = (at + 1) & (slots - 1);
            }
            table.slots[at] = key << RANK_BITS | u64::from(rank);
        }
        table
    }

    #[inline(always)]
    fn home(&self, key: u64) -> usize {
        (key.wrapping_mul(MULTIPLIER) >> self.shift) as usize
    }

    /// Rank of the merge of `left` and `right`, or [`NO_RANK`].
    #[inline(always)]
    pub fn rank(&self, left: u32, right: u32) -> u32 {
        let key = u64::from(left) << ID_BITS | u64::from(right);
        let mut at = self.home(key);
        loop {
            // The mask keeps the index inside: the number of slots is a power of two.
            let slot = self.slots[at & (self.slots.len() - 1)];
            if slot >> RANK_BITS == key {
                return slot as u32 & ((1 << RANK_BITS) - 1);
            }
            if slot == EMPTY {
                return NO_RANK;
            }
            at += 1;
        }
    }

    /// Bytes of memory.
    pub fn bytes(&self) -> usize {
        self.slots.len() * 8
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
