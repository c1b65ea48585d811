//! Ranks of the merges: a flat hash table of packed pairs.

/// Ids must fit in this many bits, so that a pair and its rank are one word.
pub const ID_BITS: u32 = 20;
/// Ranks must fit in this many bits.
pub const RANK_BITS: u32 = 24;
/// No merge. Larger than every rank.
pub const NO_RANK: u32 = u32::MAX;

const EMPTY: u64 = u64::MAX;
const MULTIPLIER: u64 = 0x9e37_79b9_7f4a_7c15;

/// `left << 44 | right << 24 | rank` by open addressing, three quarters full: a look-up reads one
/// cache line almost always.
pub struct PairTable {
    slots: Vec<u64>,
    homes: u64,
}

impl PairTable {
    /// A table of `(left, right, rank)`. Where a pair comes twice the later one stays, as in HF.
    pub fn new(pairs: &[(u32, u32, u32)]) -> Self {
        let homes = (pairs.len() + pairs.len() / 3).max(16);
        let mut table = Self { slots: vec![EMPTY; homes + 1], homes: homes as u64 };
        for &(left, right, rank) in pairs {
            let key = u64::from(left) << ID_BITS | u64::from(right);
            let mut at = table.home(key);
            while table.slots[at] != EMPTY && table.slots[at] >> RANK_BITS != key {
                at += 1;
            }
            table.slots[at] = key << RANK_BITS | u64::from(rank);
            // The last slot stays empty, so that a search ends without a test for the end.
            if at + 1 == table.slots.len() {
                table.slots.push(EMPTY);
            }
        }
        table
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
            let slot = self.slots[at];
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
