//! Merging a piece of any length.
//!
//! A sequence of tokens is the encoding of its text if and only if every two neighbours are the
//! encoding of theirs: the first merge across the border of two tokens would also happen in the
//! encoding of these two alone. So the encodings of two overlapping windows join wherever they
//! have one token in common: all neighbours left of it are neighbours in one window, all right of
//! it in the other. Windows are short pieces, which makes the whole linear. Where two windows
//! never agree (a text made for that), one heap over the whole piece decides.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use super::pairs::NO_RANK;
use super::short::Short;
use super::{Bpe, Symbols};
use crate::simd::Isa;

/// Symbols of a window.
const WINDOW: usize = 128;
/// How many tokens of a window the next one repeats, and how many more if that was not enough.
const OVERLAP: usize = 8;
const MORE_OVERLAP: usize = 24;

/// A token and its end, in bytes from the start of the piece.
type Token = (u32, usize);

/// Room for long pieces; grows to the longest piece seen and stays.
#[derive(Default)]
pub struct Long {
    tokens: Vec<Token>,
    heap: Heap,
}

impl Long {
    /// Appends the tokens of `piece` to `out`.
    ///
    /// # Safety
    /// The machine must have `S`.
    pub unsafe fn encode<S: Isa>(
        &mut self,
        bpe: &Bpe,
        piece: &[u8],
        short: &mut Short,
        mut out: impl FnMut(u32, usize),
    ) {
        self.tokens.clear();
        // SAFETY: the caller's contract.
        if unsafe { self.windows::<S>(bpe, piece, short) } {
            self.tokens.iter().for_each(|&(id, end)| out(id, end));
        } else {
            self.heap.encode(bpe, piece, out);
        }
        const KEEP: usize = 1 << 16;
        self.tokens.shrink_to(KEEP);
        self.heap.shrink_to(KEEP);
    }

    /// False where two windows have no token in common.
    ///
    /// # Safety
    /// The machine must have `S`.
    unsafe fn windows<S: Isa>(&mut self, bpe: &Bpe, piece: &[u8], short: &mut Short) -> bool {
        let mut start = 0;
        loop {
            let before = self.reached();
            // SAFETY: the caller's contract.
            let joined = unsafe {
                window::<S>(bpe, piece, start, short);
                self.join(start, short) || {
                    start = self.border_before(start, MORE_OVERLAP);
                    window::<S>(bpe, piece, start, short);
                    self.join(start, short)
                }
            };
            if !joined || self.reached() <= before {
                return false;
            }
            if self.reached() >= piece.len() {
                return true;
            }
            let fresh = self.tokens.iter().rev().take_while(|&&(_, end)| end > start).count();
            start = self.border_before(self.reached(), OVERLAP.min(fresh / 2));
        }
    }

    /// Where the last token ends.
    fn reached(&self) -> usize {
        self.tokens.last().map_or(0, |&(_, end)| end)
    }

    /// The border that lies `tokens` tokens before the border `end`.
    fn border_before(&self, end: usize, tokens: usize) -> usize {
        let index = self.tokens.partition_point(|&(_, e)| e <= end);
        index.checked_sub(tokens + 1).map_or(0, |i| self.tokens[i].1)
    }

    /// Replaces the tokens from the first one on that the window at `start` has as well.
    fn join(&mut self, start: usize, short: &Short) -> bool {
        if self.tokens.is_empty() {
            self.tokens.extend(short.tokens());
            return true;
        }
        let first = self.tokens.partition_point(|&(_, end)| end <= start);
        let mut old = first;
        let mut old_start = start;
        let mut new_start = start;
        let mut common = None;
        for (skip, (id, end)) in short.tokens().enumerate() {
            let new_end = start + end;
            while old < self.tokens.len() && self.tokens[old].1 < new_end {
                old_start = self.tokens[old].1;
                old += 1;
            }
            if old == self.tokens.len() {
                return false;
            }
            if self.tokens[old] == (id, new_end) && old_start == new_start {
                common = Some(skip);
                break;
            }
            new_start = new_end;
        }
        let Some(skip) = common else { return false };
        self.tokens.truncate(old);
        self.tokens.extend(short.tokens().skip(skip).map(|(id, end)| (id, start + end)));
        true
    }
}

/// Encodes the window of `piece` that begins at `start`; ends count from there.
///
/// # Safety
/// The machine must have `S`.
unsafe fn window<S: Isa>(bpe: &Bpe, piece: &[u8], start: usize, short: &mut Short) {
    short.clear();
    let mut symbols = Symbols::new(bpe, piece, start);
    while short.len() < WINDOW
        && let Some((id, symbol_end)) = symbols.next()
    {
        short.push(id, symbol_end - start);
    }
    // SAFETY: the caller's contract.
    unsafe { S::vectorize(|| short.merge::<S>(bpe)) };
}

const NONE: u32 = u32::MAX;

#[derive(Clone, Copy)]
struct Symbol {
    id: u32,
    end: u32,
    prev: u32,
    next: u32,
    gone: bool,
}

/// The textbook algorithm, n log n: a heap of `rank << 32 | place`.
#[derive(Default)]
struct Heap {
    symbols: Vec<Symbol>,
    pairs: BinaryHeap<Reverse<(u64, u32)>>,
}

impl Heap {
    fn encode(&mut self, bpe: &Bpe, piece: &[u8], mut out: impl FnMut(u32, usize)) {
        self.symbols.clear();
        self.pairs.clear();
        for (id, end) in Symbols::new(bpe, piece, 0) {
            let at = self.symbols.len() as u32;
            let prev = at.checked_sub(1).unwrap_or(NONE);
            self.symbols.push(Symbol { id, end: end as u32, prev, next: at + 1, gone: false });
        }
        if let Some(last) = self.symbols.last_mut() {
            last.next = NONE;
        }
        for at in 0..self.symbols.len() {
            self.offer(bpe, at as u32);
        }
        while let Some(Reverse((key, right))) = self.pairs.pop() {
            self.join(bpe, (key >> 32) as u32, key as u32, right);
        }
        let mut at = if self.symbols.is_empty() { NONE } else { 0 };
        while at != NONE {
            let symbol = self.symbols[at as usize];
            out(symbol.id, symbol.end as usize);
            at = symbol.next;
        }
    }

    /// Puts the pair that begins at `at` into the heap.
    fn offer(&mut self, bpe: &Bpe, at: u32) {
        let left = self.symbols[at as usize];
        let Some(right) = self.symbols.get(left.next as usize) else { return };
        let rank = bpe.pairs.rank(left.id, right.id);
        if rank != NO_RANK {
            self.pairs.push(Reverse((u64::from(rank) << 32 | u64::from(at), right.id)));
        }
    }

    fn join(&mut self, bpe: &Bpe, rank: u32, at: u32, right_id: u32) {
        let left = self.symbols[at as usize];
        if left.gone || left.next == NONE {
            return;
        }
        let right = self.symbols[left.next as usize];
        // The pair may have changed since it was offered.
        if right.id != right_id || bpe.pairs.rank(left.id, right.id) != rank {
            return;
        }
        self.symbols[left.next as usize].gone = true;
        let merged = Symbol { id: bpe.merged(rank), end: right.end, next: right.next, ..left };
        self.symbols[at as usize] = merged;
        if let Some(after) = self.symbols.get_mut(right.next as usize) {
            after.prev = at;
        }
        self.offer(bpe, at);
        if left.prev != NONE {
            self.offer(bpe, left.prev);
        }
    }

    fn shrink_to(&mut self, len: usize) {
        self.symbols.clear();
        self.pairs.clear();
        self.symbols.shrink_to(len);
        self.pairs.shrink_to(len);
    }
}

#[cfg(test)]
pub fn by_heap(bpe: &Bpe, piece: &[u8]) -> Vec<u32> {
    let mut ids = Vec::new();
    Heap::default().encode(bpe, piece, |id, _| ids.push(id));
    ids
}
