//! Byte-pair encoding of one piece.

mod batch;
mod borders;
mod build;
mod cache;
mod divide;
mod lanes;
mod long;
mod pairs;
mod pieces;
mod short;

use std::collections::HashMap;

use batch::Batch;
use borders::Borders;
pub use build::{BuildError, Merge, Symbolism, Vocabulary};
use cache::Cache;
use divide::Run;
use lanes::Lane;
use long::Long;
use pairs::PairTable;
use pieces::{INLINE, PieceTable};
use short::Short;

use crate::simd::{Isa, is_wide};
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
    borders: Borders,
    /// Bytes of the longest token that begins wide after one mark.
    longest_after_mark: usize,
    /// The ids `low..low + 256` are the single bytes, and `low_ranks[l << 8 | r]` their ranks.
    low: u32,
    low_ranks: Vec<u32>,
}

/// What one thread needs to encode: no allocation once it is warm.
#[derive(Default)]
pub struct Scratch {
    batch: Batch,
    room: Room,
}

/// What a piece needs that is not a short token.
#[derive(Default)]
struct Room {
    run: Run,
    work: Work,
}

/// What merges need.
#[derive(Default)]
struct Work {
    lane: Lane,
    short: Short,
    long: Long,
    cache: Cache,
}

impl Scratch {
    /// Prepares it for a text.
    #[inline(always)]
    pub fn begin(&mut self) {
        self.batch.begin();
    }

    /// Bytes of memory of a fresh one.
    pub fn bytes(&self) -> usize {
        size_of::<Self>() + self.room.work.cache.bytes()
    }
}

/// A piece, or a part of one, with its hash: of its [`Key`] where it has one.
#[derive(Clone, Copy)]
struct Part<'a> {
    text: &'a [u8],
    start: usize,
    end: usize,
    hash: u64,
}

impl<'a> Part<'a> {
    #[inline(always)]
    fn bytes(self) -> &'a [u8] {
        &self.text[self.start..self.end]
    }
}

/// In place of a hash: the piece begins wide and is too long for a token.
const BEYOND: u64 = 0;

/// Whether a piece is of a script whose characters have three bytes, after one mark at most.
#[inline(always)]
fn begins_wide(piece: &[u8]) -> bool {
    is_wide(piece[0]) || piece.get(1).is_some_and(|&byte| is_wide(byte))
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

    /// Where [`Bpe::merged`] will look.
    #[inline(always)]
    fn place_of_merged(&self, rank: u32) -> *const u32 {
        self.merged.as_ptr().wrapping_add((rank as usize).min(self.merged.len()))
    }

    /// How many bytes of a text the token `id` stands for.
    pub fn len_of(&self, id: u32) -> usize {
        // The text of a fallback token is not the text that it stands for.
        let is_fallback = self.symbolism == Symbolism::Chars && self.byte_ids.contains(&id);
        if is_fallback { 1 } else { self.tokens.get(id).len() }
    }

    /// Bytes of memory of all tables.
    pub fn memory(&self) -> usize {
        self.pairs.bytes()
            + self.pieces.bytes()
            + self.tokens.memory()
            + self.borders.memory()
            + (self.merged.len() + self.chars.len() + self.low_ranks.len()) * size_of::<u32>()
    }

    /// The token of a piece that is longer than [`INLINE`].
    #[inline(always)]
    fn long(&self, part: Part<'_>) -> Option<u32> {
        let piece = part.bytes();
        let can_be = piece.len() > INLINE && part.hash != BEYOND;
        can_be.then(|| self.pieces.long(piece, part.hash, |id| self.tokens.get(id)))?
    }

    /// A piece that is not a short token.
    ///
    /// # Safety
    /// The machine must have `S`.
    #[inline(never)]
    unsafe fn encode_other<S: Isa>(&self, part: Part<'_>, room: &mut Room, out: &mut Vec<u32>) {
        let piece = part.bytes();
        if let Some(id) = self.long(part) {
            out.push(id);
            return;
        }
        // SAFETY: the caller's contract.
        unsafe {
            S::vectorize(
                #[inline(always)]
                || {
                    if begins_wide(piece) || piece.len() > short::MAX_SYMBOLS {
                        self.encode_divided::<S>(piece, room, out);
                    } else {
                        self.encode_merged::<S>(part, &mut room.work, out);
                    }
                },
            );
        }
    }

    /// By merges, or from the cache of this thread.
    ///
    /// # Safety
    /// The machine must have `S`.
    #[inline(always)]
    unsafe fn encode_merged<S: Isa>(&self, part: Part<'_>, work: &mut Work, out: &mut Vec<u32>) {
        let slot = work.cache.slot(part);
        if slot.as_ref().is_some_and(|slot| work.cache.push(slot, out)) {
            return;
        }
        let first = out.len();
        // SAFETY: the caller's contract.
        unsafe { self.merge::<S>(part.bytes(), work, out) };
        if let Some(slot) = slot {
            work.cache.put(&slot, &out[first..]);
        }
    }

    /// The encoding by merges alone.
    ///
    /// # Safety
    /// The machine must have `S`.
    unsafe fn merge<S: Isa>(&self, piece: &[u8], work: &mut Work, out: &mut Vec<u32>) {
        let symbols = || Symbols::new(self, piece, 0);
        let Work { lane, short, long, .. } = work;
        // SAFETY: the caller's contract.
        unsafe {
            if piece.len() <= 4 * lanes::MAX_SYMBOLS && lane.fill(symbols()) {
                lanes::merge::<S>(self, std::slice::from_mut(lane));
                out.extend(lane.tokens().map(|(id, _)| id));
            } else if short.fill(symbols()) {
                S::vectorize(|| short.merge::<S>(self));
                out.extend(short.tokens().map(|(id, _)| id));
            } else {
                long.encode::<S>(self, piece, short, out);
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
        // A window can begin inside a character that fell back to its bytes.
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
