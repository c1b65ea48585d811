//! Pieces are looked up in batches: tables are larger than the caches near the core, so what the
//! next pieces need is prefetched while earlier ones are processed.

use super::pieces::{INLINE, Key, hash_long};
use super::{BEYOND, Bpe, NONE, Part, Scratch};
use crate::simd::{self, Isa, is_wide};

/// Pieces that are looked up together; a power of two.
const BATCH: usize = 32;

/// Pieces on their way through [`Bpe::add`] and [`Bpe::encode`].
pub struct Batch {
    /// Piece `i` is `borders[i]..borders[i + 1]`.
    borders: [usize; BATCH + 1],
    keys: [Key; BATCH],
    hashes: [u64; BATCH],
    ids: [u32; BATCH],
    len: usize,
}

impl Default for Batch {
    fn default() -> Self {
        Self {
            borders: [0; BATCH + 1],
            keys: [Key::EMPTY; BATCH],
            hashes: [0; BATCH],
            ids: [NONE; BATCH],
            len: 0,
        }
    }
}

impl Batch {
    /// Prepares it for a text.
    #[inline(always)]
    pub fn begin(&mut self) {
        self.len = 0;
        self.borders[0] = 0;
    }

    /// Piece `at` of `text`.
    #[inline(always)]
    fn part<'a>(&self, text: &'a [u8], at: usize) -> Part<'a> {
        Part { text, start: self.borders[at], end: self.borders[at + 1], hash: self.hashes[at] }
    }
}

impl Bpe {
    /// Appends the tokens of the pieces that were added to `out`.
    ///
    /// # Safety
    /// The machine must have `S`.
    #[inline(always)]
    pub unsafe fn encode<S: Isa>(&self, text: &[u8], scratch: &mut Scratch, out: &mut Vec<u32>) {
        let Scratch { batch, room } = scratch;
        let count = batch.len.min(BATCH);
        for at in 0..count {
            let (start, end) = (batch.borders[at], batch.borders[at + 1]);
            batch.ids[at] = match end - start {
                ..=INLINE => self.pieces.short(batch.keys[at], batch.hashes[at]).unwrap_or(NONE),
                _ => NONE,
            };
            if batch.ids[at] == NONE {
                // SAFETY: the caller's contract.
                unsafe { S::prefetch(room.work.cache.place(batch.hashes[at])) };
            }
        }
        out.reserve(BATCH);
        for at in 0..count {
            if batch.ids[at] != NONE {
                out.push(batch.ids[at]);
            } else {
                // SAFETY: the caller's contract.
                unsafe { self.encode_other::<S>(batch.part(text, at), room, out) };
            }
        }
        batch.borders[0] = batch.borders[count];
        batch.len = 0;
    }

    /// Adds the piece of `text` that ends at `end`; false when the batch is full.
    ///
    /// # Safety
    /// The machine must have `S`.
    #[inline(always)]
    pub unsafe fn add<S: Isa>(&self, text: &[u8], scratch: &mut Scratch, end: usize) -> bool {
        let batch = &mut scratch.batch;
        let at = batch.len & (BATCH - 1);
        let start = batch.borders[at];
        batch.borders[at + 1] = end;
        if end - start <= INLINE {
            let key = Key::load(text, start, end - start);
            let hash = key.hash();
            // SAFETY: the caller's contract.
            unsafe { S::prefetch(self.pieces.place(hash)) };
            batch.keys[at] = key;
            batch.hashes[at] = hash;
        } else {
            let piece = &text[start..end];
            batch.hashes[at] = if self.is_beyond(piece) { BEYOND } else { hash_long(piece) };
        }
        batch.len = at + 1;
        batch.len < BATCH
    }

    /// Whether `piece`, longer than [`INLINE`], begins wide and is longer than every token that
    /// begins as it does.
    #[inline(always)]
    fn is_beyond(&self, piece: &[u8]) -> bool {
        let Some(&char) = piece.first_chunk::<3>() else { return false };
        let longest = match char {
            [first, ..] if is_wide(first) => self.borders.longest(simd::decode(char)),
            [_, second, _] if is_wide(second) => self.longest_after_mark,
            _ => return false,
        };
        piece.len() > longest
    }
}
