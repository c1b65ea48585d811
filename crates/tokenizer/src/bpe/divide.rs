//! Pieces with characters of three bytes: the parts between borders are encoded separately (see
//! `borders`).
//!
//! Runs of such characters are looked at sixteen at a time: vector code decides all borders,
//! without a branch, before anything is encoded. Most parts are single characters, whose tokens
//! are known.

use super::pieces::{INLINE, Key, hash_long};
use super::{Bpe, Part, Room, Work};
use crate::simd::{BLOCK, Isa, is_wide};

/// Most characters of a run: a bit of a word each, and one more.
const RUN: usize = 48;

/// Characters of three bytes, one after another.
pub struct Run {
    /// Character `i` is `codes[i + 1]`; slots before the first and after the last hold anything.
    codes: [u32; RUN + 1],
    len: usize,
}

impl Default for Run {
    fn default() -> Self {
        Self { codes: [0; RUN + 1], len: 0 }
    }
}

/// Bit `i` stands for character `i`, or for the border before it.
#[derive(Clone, Copy, Default)]
struct Marks {
    /// Borders where the run splits, never the first.
    cuts: u64,
    /// Borders where one side upsets the other.
    upsets: u64,
    /// Characters whose tokens on their own are not known.
    unsettled: u64,
}

/// The lowest `len` bits, at most [`RUN`].
#[inline(always)]
fn ones(len: usize) -> u64 {
    (1 << len.min(RUN)) - 1
}

impl Run {
    /// The characters at the start of `text`, at most [`RUN`].
    ///
    /// # Safety
    /// The machine must have `S`.
    #[inline(always)]
    unsafe fn load<S: Isa>(&mut self, text: &[u8]) {
        self.len = 0;
        let (blocks, _) = self.codes[1..].as_chunks_mut::<BLOCK>();
        for block in blocks {
            // SAFETY: the caller's contract.
            let count = unsafe { S::wide_codes(&text[3 * self.len..], block) };
            self.len += count;
            if count < BLOCK {
                return;
            }
        }
    }

    /// The characters.
    #[inline(always)]
    fn codes(&self) -> &[u32] {
        &self.codes[1..=self.len.min(RUN)]
    }

    /// One bit for each character from one word for each block.
    #[inline(always)]
    fn all(&self, of_block: impl Fn(&[u32; BLOCK + 1]) -> u16) -> u64 {
        let mut bits = 0;
        for at in (0..self.len.min(RUN)).step_by(BLOCK) {
            if let Some(block) = self.codes[at..].first_chunk() {
                bits |= u64::from(of_block(block)) << at;
            }
        }
        bits
    }

    /// Where the run splits. `is_calm`: nothing upsets the first character from its left;
    /// `is_end`: the piece ends with the last one, which is a border too.
    ///
    /// # Safety
    /// The machine must have `S`.
    #[inline(always)]
    unsafe fn marks<S: Isa>(&self, bpe: &Bpe, is_calm: bool, is_end: bool) -> Marks {
        let borders = &bpe.borders;
        // SAFETY: the caller's contract, here and below.
        let unsettled = self.all(|block| unsafe { borders.unsettled::<S>(after(block)) });
        // SAFETY: as above.
        let merging = self.all(|block| unsafe { borders.merge::<S>(block) });
        let inside = ones(self.len) & !1;
        let divides = inside & !(merging | unsettled | unsettled << 1);
        let mut upsets = 0;
        if divides != inside {
            // SAFETY: as above.
            upsets = self.all(|block| unsafe { borders.upset::<S>(block) }) & inside & !divides;
        }
        let end = 1 << self.len.min(RUN);
        let (beyond, last) = if is_end { (0, end) } else { (end, 0) };
        let from_left = (upsets | u64::from(!is_calm)) << 1;
        let from_right = (upsets | beyond) >> 1;
        Marks { cuts: divides & !from_left & !from_right | last, upsets, unsettled }
    }
}

/// The characters of a block without the one before.
#[inline(always)]
fn after(block: &[u32; BLOCK + 1]) -> &[u32; BLOCK] {
    let [_, rest @ ..] = block;
    rest
}

impl Bpe {
    /// Appends the tokens of `piece`.
    ///
    /// # Safety
    /// The machine must have `S`.
    #[inline(always)]
    pub(super) unsafe fn encode_divided<S: Isa>(
        &self,
        piece: &[u8],
        room: &mut Room,
        out: &mut Vec<u32>,
    ) {
        let (mut start, mut pos, mut is_calm) = (0, 0, true);
        while pos < piece.len() {
            if !is_wide(piece[pos]) {
                is_calm = false;
                pos += 1;
                continue;
            }
            // SAFETY: the caller's contract, here and below.
            unsafe { room.run.load::<S>(&piece[pos..]) };
            let len = room.run.len;
            if len == 0 {
                // No text has a truncated character.
                break;
            }
            let end = pos + 3 * len;
            let goes_on = piece.get(end).is_some_and(|&byte| is_wide(byte));
            // SAFETY: as above.
            unsafe {
                let marks = room.run.marks::<S>(self, is_calm, end == piece.len());
                start = self.encode_run::<S>(piece, start, pos, marks, room, out);
                if !goes_on || len < 3 {
                    pos = end;
                    is_calm = false;
                } else {
                    // The last border waits for the character after the run.
                    is_calm = marks.upsets >> (len - 2) & 1 == 0;
                    pos = end - 6;
                }
            }
        }
        if start < piece.len() {
            // SAFETY: as above.
            unsafe { self.encode_part::<S>(piece, start, piece.len(), &mut room.work, out) };
        }
    }

    /// Appends the parts of `piece` from `start` to the last cut of the run, which begins at `pos`.
    /// Returns the place of that cut, or `start` if there is none.
    ///
    /// # Safety
    /// The machine must have `S`.
    #[inline(always)]
    unsafe fn encode_run<S: Isa>(
        &self,
        piece: &[u8],
        mut start: usize,
        pos: usize,
        marks: Marks,
        room: &mut Room,
        out: &mut Vec<u32>,
    ) -> usize {
        let starts = marks.cuts | u64::from(start == pos);
        let singles = starts & marks.cuts >> 1 & !marks.unsettled;
        let mut at = 0;
        loop {
            let count = (singles >> at).trailing_ones() as usize;
            if count > 0 {
                self.borders.push(room.run.codes().get(at..at + count).unwrap_or_default(), out);
                at += count;
                start = pos + 3 * at;
            }
            let rest = marks.cuts & u64::MAX << (at + 1);
            if rest == 0 {
                return start;
            }
            at = rest.trailing_zeros() as usize;
            let end = pos + 3 * at;
            // SAFETY: the caller's contract.
            unsafe { self.encode_part::<S>(piece, start, end, &mut room.work, out) };
            start = end;
        }
    }

    /// A part that is not a single character, or not a settled one.
    ///
    /// # Safety
    /// The machine must have `S`.
    #[inline(never)]
    unsafe fn encode_part<S: Isa>(
        &self,
        piece: &[u8],
        start: usize,
        end: usize,
        work: &mut Work,
        out: &mut Vec<u32>,
    ) {
        let mut part = Part { text: piece, start, end, hash: 0 };
        if end - start <= INLINE {
            let key = Key::load(piece, start, end - start);
            part.hash = key.hash();
            if let Some(id) = self.pieces.merged(key, part.hash) {
                out.push(id);
                return;
            }
        } else {
            part.hash = hash_long(part.bytes());
        }
        // SAFETY: the caller's contract.
        unsafe { self.encode_merged::<S>(part, work, out) };
    }
}
