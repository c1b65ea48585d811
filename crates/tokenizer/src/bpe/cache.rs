//! A thread's memory of pieces that needed merges: direct-mapped, of fixed size, one cache line
//! for the piece and its tokens.

use super::pieces::hash_long;

/// Number of slots; 64 bytes each.
const SLOTS: usize = 4096;
/// Longest piece and most tokens of a slot.
const MAX_BYTES: usize = 32;
const MAX_IDS: usize = 7;

#[derive(Clone, Copy)]
#[repr(C, align(64))]
struct Line {
    piece: [u8; MAX_BYTES],
    ids: [u32; MAX_IDS],
    len: u8,
    count: u8,
}

const EMPTY: Line = Line { piece: [0; MAX_BYTES], ids: [0; MAX_IDS], len: 0, count: 0 };

/// Where a piece would be.
pub struct Slot {
    piece: [u8; MAX_BYTES],
    len: u8,
    index: usize,
}

/// See the module. A thread has one per vocabulary.
pub struct Cache {
    lines: Box<[Line]>,
}

impl Default for Cache {
    fn default() -> Self {
        Self { lines: vec![EMPTY; SLOTS].into_boxed_slice() }
    }
}

impl Cache {
    /// The slot of a piece; None for pieces that are too long to be kept.
    #[inline(always)]
    pub fn slot(&self, piece: &[u8]) -> Option<Slot> {
        if piece.len() > MAX_BYTES {
            return None;
        }
        let mut bytes = [0; MAX_BYTES];
        bytes[..piece.len()].copy_from_slice(piece);
        let index = hash_long(piece) as usize & (SLOTS - 1);
        Some(Slot { piece: bytes, len: piece.len() as u8, index })
    }

    /// Where the tokens of a piece of this hash would be.
    #[inline(always)]
    pub fn place(&self, hash: u64) -> *const u8 {
        self.lines.as_ptr().wrapping_add(hash as usize & (SLOTS - 1)).cast()
    }

    /// Tokens of the piece, if it is there.
    #[inline(always)]
    pub fn get(&self, slot: &Slot) -> Option<&[u32]> {
        let line = &self.lines[slot.index & (SLOTS - 1)];
        (line.len == slot.len && line.piece == slot.piece && line.count > 0)
            .then(|| &line.ids[..usize::from(line.count).min(MAX_IDS)])
    }

    /// Keeps the tokens of a piece in place of whatever is there.
    #[inline(always)]
    pub fn put(&mut self, slot: &Slot, ids: &[u32]) {
        if ids.len() > MAX_IDS {
            return;
        }
        let line = &mut self.lines[slot.index & (SLOTS - 1)];
        line.piece = slot.piece;
        line.len = slot.len;
        line.count = ids.len() as u8;
        line.ids[..ids.len()].copy_from_slice(ids);
    }

    /// Bytes of memory.
    pub fn bytes(&self) -> usize {
        self.lines.len() * size_of::<Line>()
    }
}
