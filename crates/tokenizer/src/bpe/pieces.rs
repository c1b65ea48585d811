//! Whole pieces that are one token: the path of most words of a text.

const MULTIPLIER: u64 = 0x9e37_79b9_7f4a_7c15;
const OTHER: u64 = 0xd6e8_feb8_6659_fd93;
/// Longest piece that is stored in its slot.
pub const INLINE: usize = 12;

/// 16 bytes: four slots to a cache line.
#[derive(Clone, Copy, Default)]
#[repr(C, align(16))]
struct Slot {
    low: u64,
    high: u32,
    /// `id << 8 | whole << 7 | length`; 0 is empty, because no piece has length 0. `whole`: only a
    /// whole piece is this token, because the merges give something else.
    meta: u32,
}

/// A piece of at most [`INLINE`] bytes in registers.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Key {
    low: u64,
    high: u32,
    len: u32,
}

impl Key {
    /// Placeholder where there is no key.
    pub const EMPTY: Self = Self { low: 0, high: 0, len: 0 };

    /// The bytes `start..start + len` of `text`.
    ///
    /// `len` is at most [`INLINE`], and `start + len` at most `text.len()`.
    #[inline(always)]
    pub fn load(text: &[u8], start: usize, len: usize) -> Self {
        debug_assert!(len <= INLINE && start + len <= text.len());
        let bits = if start + 16 <= text.len() {
            // SAFETY: 16 bytes from `start` on lie within the text.
            u128::from_le(unsafe { text.as_ptr().add(start).cast::<u128>().read_unaligned() })
        } else {
            let mut bytes = [0u8; 16];
            bytes[..len].copy_from_slice(&text[start..start + len]);
            u128::from_le_bytes(bytes)
        };
        let low_bits = len.min(8) as u32 * 8;
        let high_bits = (len.max(8) - 8) as u32 * 8;
        let low = bits as u64 & u64::MAX.checked_shr(64 - low_bits).unwrap_or(0);
        let high = (bits >> 64) as u32 & u32::MAX.checked_shr(32 - high_bits).unwrap_or(0);
        Self { low, high, len: len as u32 }
    }

    /// Hash for [`PieceTable::short`].
    #[inline(always)]
    pub fn hash(self) -> u64 {
        let a = self.low ^ u64::from(self.len);
        let b = u64::from(self.high) ^ OTHER;
        let product =
            u128::from(a.wrapping_mul(MULTIPLIER) | 1) * u128::from(b ^ a.rotate_left(29));
        (product >> 64) as u64 ^ product as u64
    }
}

/// Bit of [`Slot::meta`].
const WHOLE: u32 = 1 << 7;

/// The table. Holds only pieces whose encoding is this one token.
pub struct PieceTable {
    slots: Vec<Slot>,
    homes: u64,
    /// Longer pieces: `(hash, id)`, id [`u32::MAX`] where empty; the bytes are the caller's.
    long: Vec<(u32, u32)>,
    longest: usize,
}

/// Hash of a piece of any length; never 0.
#[inline(always)]
pub fn hash_long(piece: &[u8]) -> u64 {
    let mut hash = piece.len() as u64 ^ OTHER;
    let (words, rest) = piece.as_chunks::<8>();
    for &word in words {
        hash = (hash ^ u64::from_le_bytes(word)).wrapping_mul(MULTIPLIER);
        hash ^= hash >> 29;
    }
    // The last 8 bytes overlap the words before, which is cheaper than a copy of the rest.
    let last = match piece.last_chunk::<8>() {
        Some(&word) => u64::from_le_bytes(word),
        None => rest.iter().fold(0, |all, &b| all << 8 | u64::from(b)),
    };
    hash = (hash ^ last).wrapping_mul(OTHER);
    (hash ^ hash >> 32) | 1 << 63
}

impl PieceTable {
    /// A table of `(piece, id, merges)`; pieces are distinct and not empty, and the first ones are
    /// the fastest to find. `merges`: the merges of the piece give this token.
    pub fn new<'a>(pieces: impl Iterator<Item = (&'a [u8], u32, bool)> + Clone) -> Self {
        let num_long = pieces.clone().filter(|(p, ..)| p.len() > INLINE).count();
        let num_short = pieces.clone().count() - num_long;
        let homes = (num_short + num_short / 2).max(16);
        let mut table = Self {
            slots: vec![Slot::default(); homes + 1],
            homes: homes as u64,
            long: vec![(0, u32::MAX); (num_long * 2).next_power_of_two().max(16)],
            longest: pieces.clone().map(|(p, ..)| p.len()).max().unwrap_or(0),
        };
        for (piece, id, merges) in pieces {
            if piece.len() > INLINE {
                let hash = hash_long(piece);
                let mut at = hash as usize & (table.long.len() - 1);
                while table.long[at].1 != u32::MAX {
                    at = (at + 1) & (table.long.len() - 1);
                }
                table.long[at] = ((hash >> 32) as u32, id);
            } else {
                let key = Key::load(piece, 0, piece.len());
                let mut at = table.home(key.hash());
                while table.slots[at].meta != 0 {
                    at += 1;
                }
                let whole = if merges { 0 } else { WHOLE };
                let meta = id << 8 | whole | key.len;
                table.slots[at] = Slot { low: key.low, high: key.high, meta };
                // The last slot stays empty, so that a search ends without a test for the end.
                if at + 1 == table.slots.len() {
                    table.slots.push(Slot::default());
                }
            }
        }
        table
    }

    /// The token that a short piece becomes; `hash` is that of `key`.
    #[inline(always)]
    pub fn short(&self, key: Key, hash: u64) -> Option<u32> {
        self.find(key, hash).map(|meta| meta >> 8)
    }

    /// The token that the merges of a short piece become.
    #[inline(always)]
    pub fn merged(&self, key: Key, hash: u64) -> Option<u32> {
        self.find(key, hash).filter(|meta| meta & WHOLE == 0).map(|meta| meta >> 8)
    }

    #[inline(always)]
    fn find(&self, key: Key, hash: u64) -> Option<u32> {
        let mut at = self.home(hash);
        loop {
            let slot = &self.slots[at];
            let same_len = slot.meta & (WHOLE - 1) == key.len;
            if slot.low == key.low && slot.high == key.high && same_len {
                return Some(slot.meta);
            }
            if slot.meta == 0 {
                return None;
            }
            at += 1;
        }
    }

    /// Where [`PieceTable::short`] will look first.
    #[inline(always)]
    pub fn place(&self, hash: u64) -> *const u8 {
        self.slots.as_ptr().wrapping_add(self.home(hash)).cast()
    }

    #[inline(always)]
    fn home(&self, hash: u64) -> usize {
        (((hash >> 32) * self.homes) >> 32) as usize
    }

    /// The token of a piece longer than [`INLINE`], whose hash is `hash`; `bytes_of` gives the
    /// bytes of a token.
    #[inline]
    pub fn long<'a>(
        &self,
        piece: &[u8],
        hash: u64,
        bytes_of: impl Fn(u32) -> &'a [u8],
    ) -> Option<u32> {
        if piece.len() > self.longest {
            return None;
        }
        let mut at = hash as usize;
        loop {
            let (tag, id) = self.long[at & (self.long.len() - 1)];
            if id == u32::MAX {
                return None;
            }
            if tag == (hash >> 32) as u32 && bytes_of(id) == piece {
                return Some(id);
            }
            at += 1;
        }
    }

    /// Bytes of memory.
    pub fn bytes(&self) -> usize {
        self.slots.len() * size_of::<Slot>() + self.long.len() * 8
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn finds_pieces_of_all_lengths_wherever_they_lie() {
        let pieces: Vec<Vec<u8>> = (1..60usize)
            .flat_map(|len| (0..40u8).map(move |i| vec![i; len]))
            .chain([vec![0, 0], vec![1, 0, 0, 0, 0, 0, 0, 0, 0]])
            .collect();
        let mut pieces = pieces;
        pieces.sort();
        pieces.dedup();
        let all = pieces.iter().enumerate().map(|(id, p)| (p.as_slice(), id as u32, id % 3 > 0));
        let table = PieceTable::new(all);
        let bytes_of = |id: u32| pieces[id as usize].as_slice();
        let get = |piece: &[u8]| match piece.len() {
            ..=INLINE => {
                let key = Key::load(piece, 0, piece.len());
                let found = table.short(key, key.hash());
                assert_eq!(table.merged(key, key.hash()), found.filter(|id| id % 3 > 0));
                found
            }
            _ => table.long(piece, hash_long(piece), bytes_of),
        };
        for (id, piece) in pieces.iter().enumerate() {
            assert_eq!(get(piece), Some(id as u32));
            let around = [&[7u8][..], piece, &[9; 20]].concat();
            if piece.len() <= INLINE {
                assert_eq!(get(&around[1..=piece.len()]), Some(id as u32));
            }
            let longer = [piece.as_slice(), &[99]].concat();
            assert_eq!(get(&longer), None);
        }
    }
}
