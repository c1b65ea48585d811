//! Byte-pair encoding of one piece.

mod build;
mod cache;
mod long;
mod pairs;
mod pieces;
mod short;

use std::collections::HashMap;

pub use build::{BuildError, Merge, Symbolism, Vocabulary};
use cache::Cache;
use long::Long;
use pairs::PairTable;
use pieces::{INLINE, Key, PieceTable};
use short::Short;

use crate::simd::Isa;
use crate::unicode;

/// No token.
const NONE: u32 = u32::MAX;

/// Bytes of all tokens, one after another.
#[derive(Default)]
pub struct TokenBytes {
    /// `[num_ids + 1]`: token `i` is `bytes[offsets[i]..offsets[i + 1]]`.
    offsets: Vec<u32>,
    bytes: Vec<u8>,
}

impl TokenBytes {
    /// From the bytes of each id; empty for ids that are no token.
    pub fn new<'a>(tokens: impl Iterator<Item = &'a [u8]>) -> Self {
        let mut flat = Self { offsets: vec![0], bytes: Vec::new() };
        for token in tokens {
            flat.bytes.extend_from_slice(token);
            flat.offsets.push(flat.bytes.len() as u32);
        }
        flat
    }

    /// Bytes of `id`; empty if there is no such token.
    #[inline(always)]
    pub fn get(&self, id: u32) -> &[u8] {
        let at = id as usize;
        match (self.offsets.get(at), self.offsets.get(at + 1)) {
            (Some(&start), Some(&end)) => &self.bytes[start as usize..end as usize],
            _ => &[],
        }
    }

    /// Bytes of memory.
    pub fn memory(&self) -> usize {
        self.offsets.len() * 4 + self.bytes.len()
    }
}

/// A vocabulary with its merges, ready to encode. Immutable, shared between threads.
pub struct Bpe {
    pairs: PairTable,
    /// `[num_ranks]`: what a merge makes.
    merged: Vec<u32>,
    pieces: PieceTable,
    tokens: TokenBytes,
    symbolism: Symbolism,
    /// Ids of the 256 bytes; of single-byte tokens, or of the fallback.
    byte_ids: [u32; 256],
    /// `[0x10000]`: for bytes, the token of a character whose merges always come before any with
    /// its neighbours; for characters, the token of the character. [`NONE`] where there is none.
    chars: Vec<u32>,
    /// Characters beyond U+FFFF that are tokens, for characters.
    astral: HashMap<u32, u32>,
    /// The ids `low..low + 256` are the single bytes, and `low_ranks[l << 8 | r]` their ranks.
    low: u32,
    low_ranks: Vec<u32>,
}

/// What one thread needs to encode: no allocation once it is warm.
#[derive(Default)]
pub struct Scratch {
    short: Short,
    long: Long,
    cache: Cache,
}

impl Scratch {
    /// Bytes of memory of a fresh one.
    pub fn bytes(&self) -> usize {
        size_of::<Self>() + self.cache.bytes()
    }
}

impl Bpe {
    #[inline(always)]
    fn rank(&self, left: u32, right: u32) -> u32 {
        let (l, r) = (left.wrapping_sub(self.low), right.wrapping_sub(self.low));
        if l | r < 256 {
            return self.low_ranks[(l << 8 | r) as usize & 0xffff];
        }
        self.pairs.rank(left, right)
    }

    #[inline(always)]
    fn merged(&self, rank: u32) -> u32 {
        self.merged.get(rank as usize).copied().unwrap_or(NONE)
    }

    /// Bytes of memory of all tables.
    pub fn memory(&self) -> usize {
        self.pairs.bytes()
            + self.pieces.bytes()
            + self.tokens.memory()
            + (self.merged.len() + self.chars.len() + self.low_ranks.len()) * size_of::<u32>()
    }

    /// Appends the tokens of `text[start..end]` to `out`.
    ///
    /// # Safety
    /// The machine must have `S`; `start <= end <= text.len()`.
    #[inline(always)]
    pub unsafe fn encode<S: Isa>(
        &self,
        text: &[u8],
        start: usize,
        end: usize,
        scratch: &mut Scratch,
        out: &mut Vec<u32>,
    ) {
        let len = end - start;
        if len <= INLINE
            && let Some(id) = self.pieces.short(Key::load(text, start, len))
        {
            out.push(id);
            return;
        }
        // SAFETY: the caller's contract.
        unsafe { self.encode_other::<S>(&text[start..end], scratch, out) };
    }

    /// A piece that is no short token.
    ///
    /// # Safety
    /// The machine must have `S`.
    #[inline(never)]
    unsafe fn encode_other<S: Isa>(&self, piece: &[u8], scratch: &mut Scratch, out: &mut Vec<u32>) {
        if piece.len() > INLINE
            && let Some(id) = self.pieces.long(piece, |id| self.tokens.get(id))
        {
            out.push(id);
            return;
        }
        let slot = scratch.cache.slot(piece);
        if let Some(ids) = slot.as_ref().and_then(|slot| scratch.cache.get(slot)) {
            out.extend_from_slice(ids);
            return;
        }
        let first = out.len();
        // SAFETY: the caller's contract.
        unsafe { self.merge::<S>(piece, scratch, |id, _| out.push(id)) };
        if let Some(slot) = slot {
            scratch.cache.put(&slot, &out[first..]);
        }
    }

    /// The encoding by merges alone: `out` gets each token and its end in the piece.
    ///
    /// # Safety
    /// The machine must have `S`.
    unsafe fn merge<S: Isa>(
        &self,
        piece: &[u8],
        scratch: &mut Scratch,
        mut out: impl FnMut(u32, usize),
    ) {
        let short = &mut scratch.short;
        short.clear();
        let fits = Symbols::new(self, piece, 0).all(|(id, end)| short.push(id, end));
        // SAFETY: the caller's contract.
        unsafe {
            if fits {
                S::vectorize(|| short.merge::<S>(self));
                short.tokens().for_each(|(id, end)| out(id, end));
            } else {
                scratch.long.encode::<S>(self, piece, short, out);
            }
        }
    }
}

/// The symbols of a piece before any merge: id, and end in bytes from the start of the piece.
struct Symbols<'a> {
    bpe: &'a Bpe,
    piece: &'a [u8],
    start: usize,
    pos: usize,
    /// Bytes up to here are symbols of their own.
    bytes_until: usize,
}

impl<'a> Symbols<'a> {
    #[inline(always)]
    fn new(bpe: &'a Bpe, piece: &'a [u8], start: usize) -> Self {
        Self { bpe, piece, start, pos: start, bytes_until: start }
    }

    /// The token of the character at `pos` whose merges come before those with its neighbours.
    #[inline(always)]
    fn closed_char(&self) -> Option<(u32, usize)> {
        let (code, len) = unicode::decode(self.piece, self.pos);
        let end = self.pos + len;
        let left = self.pos == self.start || self.piece[self.pos - 1] >= 0x80;
        let right = end == self.piece.len() || self.piece.get(end).is_some_and(|&b| b >= 0xc0);
        let id = self.bpe.chars.get(code as usize).copied().filter(|&id| id != NONE)?;
        (left && right).then_some((id, end))
    }

    #[inline(always)]
    fn byte(&mut self, byte: u8) -> (u32, usize) {
        self.pos += 1;
        (self.bpe.byte_ids[byte as usize], self.pos)
    }
}

impl Iterator for Symbols<'_> {
    type Item = (u32, usize);

    #[inline(always)]
    fn next(&mut self) -> Option<(u32, usize)> {
        let &byte = self.piece.get(self.pos)?;
        // A window can begin within a character that stands as its bytes.
        if self.pos < self.bytes_until || byte & 0xc0 == 0x80 {
            return Some(self.byte(byte));
        }
        if self.bpe.symbolism == Symbolism::Bytes {
            if (0xc0..0xf0).contains(&byte)
                && let Some((id, end)) = self.closed_char()
            {
                self.pos = end;
                return Some((id, end));
            }
            return Some(self.byte(byte));
        }
        let (code, len) = unicode::decode(self.piece, self.pos);
        let end = (self.pos + len).min(self.piece.len());
        let astral = || self.bpe.astral.get(&code).copied().unwrap_or(NONE);
        let id = self.bpe.chars.get(code as usize).copied().unwrap_or_else(astral);
        if id == NONE {
            self.bytes_until = end;
            return Some(self.byte(byte));
        }
        self.pos = end;
        Some((id, end))
    }
}

#[cfg(test)]
mod tests;
