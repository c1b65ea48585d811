//! Whole pieces that are one token: the way that most words of a text take.

const MULTIPLIER: u64 = 0x9e37_79b9_7f4a_7c15;
const OTHER: u64 = 0xd6e8_feb8_6659_fd93;
/// Longest piece that a slot holds itself.
pub const INLINE: usize = 12;

/// 16 bytes: four slots to a cache line.
#[derive(Clone, Copy, Default)]
#[repr(C, align(16))]
struct Slot {
    low: u64,
    high: u32,
    /// `id << 8 | length`; 0 is empty, because no piece has length 0.
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

    #[inline(always)]
    fn hash(self) -> u64 {
        let a = self.low ^ u64::from(self.len);
        let b = u64::from(self.high) ^ OTHER;
        let product =
            u128::from(a.wrapping_mul(MULTIPLIER) | 1) * u128::from(b ^ a.rotate_left(29));
        (product >> 64) as u64 ^ product as u64
    }
}

/// The table. Holds only pieces whose encoding is this one token.
pub struct PieceTable {
    slots: Vec<Slot>,
    /// Longer pieces: `(hash, id)`, id [`u32::MAX`] where empty; the bytes are the caller's.
    long: Vec<(u32, u32)>,
    longest: usize,
}

/// Hash of a piece of any length.
#[inline]
pub fn hash_long(piece: &[u8]) -> u64 {
    let mut hash = piece.len() as u64 ^ OTHER;
    let mut words = piece.chunks_exact(8);
    for word in &mut words {
        let mut bytes = [0; 8];
        bytes.copy_from_slice(word);
        hash = (hash ^ u64::from_le_bytes(bytes)).wrapping_mul(MULTIPLIER);
        hash ^= hash >> 29;
    }
    let mut bytes = [0; 8];
    bytes[..words.remainder().len()].copy_from_slice(words.remainder());
    hash = (hash ^ u64::from_le_bytes(bytes)).wrapping_mul(OTHER);
    hash ^ hash >> 32
}

impl PieceTable {
    /// A table of `(piece, id)`; pieces are distinct and not empty.
    pub fn new<'a>(pieces: impl Iterator<Item = (&'a [u8], u32)> + Clone) -> Self {
        let count = |long: bool| {
            let pieces = pieces.clone().filter(|(p, _)| (p.len() > INLINE) == long);
            (pieces.count() * 2).next_power_of_two().max(16)
        };
        let mut table = Self {
            slots: vec![Slot::default(); count(false)],
            long: vec![(0, u32::MAX); count(true)],
            longest: pieces.clone().map(|(p, _)| p.len()).max().unwrap_or(0),
        };
        for (piece, id) in pieces {
            if piece.len() > INLINE {
                let hash = hash_long(piece);
                let mut at = hash as usize & (table.long.len() - 1);
                while table.long[at].1 != u32::MAX {
                    at = (at + 1) & (table.long.len() - 1);
                }
                table.long[at] = ((hash >> 32) as u32, id);
            } else {
                let key = Key::load(piece, 0, piece.len());
                let mut at = key.hash() as usize & (table.slots.len() - 1);
                while table.slots[at].meta != 0 {
                    at = (at + 1) & (table.slots.len() - 1);
                }
                let meta = id << 8 | key.len;
                table.slots[at] = Slot { low: key.low, high: key.high, meta };
            }
        }
        table
    }

    /// The token of a short piece.
    #[inline(always)]
    pub fn short(&self, key: Key) -> Option<u32> {
        let mut at = key.hash() as usize;
        loop {
            // The mask keeps the index inside: the number of slots is a power of two.
            let slot = &self.slots[at & (self.slots.len() - 1)];
            let same =
                slot.low == key.low && slot.high == key.high && slot.meta as u8 == key.len as u8;
            if same {
                return Some(slot.meta >> 8);
            }
            if slot.meta == 0 {
                return None;
            }
            at += 1;
        }
    }

    /// The token of a piece longer than [`INLINE`]; `bytes_of` gives the bytes of a token.
    #[inline]
    pub fn long<'a>(&self, piece: &[u8], bytes_of: impl Fn(u32) -> &'a [u8]) -> Option<u32> {
        if piece.len() > self.longest {
            return None;
        }
        let hash = hash_long(piece);
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
        let all = pieces.iter().enumerate().map(|(id, p)| (p.as_slice(), id as u32));
        let table = PieceTable::new(all);
        let bytes_of = |id: u32| pieces[id as usize].as_slice();
        let get = |piece: &[u8]| match piece.len() {
            ..=INLINE => table.short(Key::load(piece, 0, piece.len())),
            _ => table.long(piece, bytes_of),
        };
        for (id, piece) in pieces.iter().enumerate() {
            assert_eq!(get(piece), Some(id as u32));
            let around = [&[7u8][..], piece, &[9; 20]].concat();
            if piece.len() <= INLINE {
                assert_eq!(table.short(Key::load(&around, 1, piece.len())), Some(id as u32));
            }
            let longer = [piece.as_slice(), &[99]].concat();
            assert_eq!(get(&longer), None);
        }
    }
}
