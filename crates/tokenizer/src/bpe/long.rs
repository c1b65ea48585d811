//! Merging a piece of any length.
//!
//! A sequence of tokens is the encoding of its text if and only if every two neighbours are the
//! encoding of theirs: the first merge across the border of two tokens would also happen in the
//! encoding of these two alone. So the encodings of two overlapping windows join wherever they
//! have one token in common: all neighbours left of it are neighbours in one window, all right of
//! it in the other. Windows are short pieces, which makes the whole linear. Where two windows do
//! not agree, because tokens are as long as they are or because a text is made for that, larger
//! ones follow, and at last one heap over the whole piece. A window like the one before, as in
//! a million spaces, is not encoded again.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use super::pairs::NO_RANK;
use super::short::{MAX_SYMBOLS, Short};
use super::{Bpe, Symbols};
use crate::simd::Isa;

/// Symbols of a window; the next size follows where windows do not agree.
const WINDOWS: [usize; 3] = [64, MAX_SYMBOLS, 4096];
/// How many tokens of a window the next one repeats at most.
const OVERLAP: usize = 4;

/// A token and its end, in bytes from the start of the piece.
type Token = (u32, usize);

/// Room for long pieces; grows to the longest piece seen, and keeps some of it.
#[derive(Default)]
pub struct Long {
    tokens: Vec<Token>,
    window: Window,
    heap: Heap,
}

/// A part of a piece and its encoding; ends count from the start of the window.
#[derive(Default)]
struct Window {
    text: Vec<u8>,
    tokens: Vec<Token>,
}

impl Long {
    /// Encodes `piece`: `out` gets each token and its end.
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
        self.window.text.clear();
        // SAFETY: the caller's contract.
        if unsafe { self.windows::<S>(bpe, piece, short) } {
            self.tokens.iter().for_each(|&(id, end)| out(id, end));
        } else {
            self.heap.encode(bpe, Symbols::new(bpe, piece, 0), out);
        }
        const KEEP: usize = 1 << 16;
        self.tokens.clear();
        self.tokens.shrink_to(KEEP);
        self.heap.shrink_to(KEEP);
    }

    /// False where two windows of all sizes have no token in common.
    ///
    /// # Safety
    /// The machine must have `S`.
    unsafe fn windows<S: Isa>(&mut self, bpe: &Bpe, piece: &[u8], short: &mut Short) -> bool {
        let (mut start, mut size) = (0, 0);
        while self.reached() < piece.len() {
            let before = self.reached();
            // SAFETY: the caller's contract.
            unsafe { self.encode_window::<S>(bpe, piece, start, size, short) };
            if self.join(start) && self.reached() > before {
                let fresh = self.tokens.len() - self.index_of(start);
                start = self.border_before(self.reached(), OVERLAP.min(fresh / 2));
            } else if size + 1 < WINDOWS.len() {
                // From the start of the last window on: what it began with is certain.
                size += 1;
                self.window.text.clear();
                start = self.border_before(start, OVERLAP);
            } else {
                return false;
            }
        }
        true
    }

    /// Encodes the window of `piece` that begins at `start`.
    ///
    /// # Safety
    /// The machine must have `S`.
    unsafe fn encode_window<S: Isa>(
        &mut self,
        bpe: &Bpe,
        piece: &[u8],
        start: usize,
        size: usize,
        short: &mut Short,
    ) {
        let window = &mut self.window;
        if !window.text.is_empty() && piece[start..].starts_with(&window.text) {
            return;
        }
        let symbols = Symbols::new(bpe, piece, start).take(WINDOWS[size]);
        let symbols = symbols.map(|(id, end)| (id, end - start));
        window.tokens.clear();
        let end = if WINDOWS[size] <= MAX_SYMBOLS {
            short.clear();
            symbols.for_each(|(id, end)| _ = short.push(id, end));
            // SAFETY: the caller's contract.
            unsafe { S::vectorize(|| short.merge::<S>(bpe)) };
            window.tokens.extend(short.tokens());
            short.end()
        } else {
            self.heap.encode(bpe, symbols, |id, end| window.tokens.push((id, end)));
            window.tokens.last().map_or(0, |&(_, end)| end)
        };
        window.text.clear();
        window.text.extend_from_slice(&piece[start..start + end]);
    }

    /// Where the last token ends.
    fn reached(&self) -> usize {
        self.tokens.last().map_or(0, |&(_, end)| end)
    }

    /// The border that lies `tokens` tokens before the border `end`.
    fn border_before(&self, end: usize, tokens: usize) -> usize {
        self.index_of(end).checked_sub(tokens + 1).map_or(0, |i| self.tokens[i].1)
    }

    /// How many tokens end at or before `border`, which lies among the last ones.
    fn index_of(&self, border: usize) -> usize {
        let before = self.tokens.iter().rposition(|&(_, end)| end <= border);
        before.map_or(0, |last| last + 1)
    }

    /// Replaces the tokens from the first one on that the window at `start` has as well.
    fn join(&mut self, start: usize) -> bool {
        let new = &self.window.tokens;
        if self.tokens.is_empty() || start == 0 {
            self.tokens.clear();
            self.tokens.extend_from_slice(new);
            return true;
        }
        let first = self.index_of(start);
        let mut old = first;
        let mut old_start = start;
        let mut new_start = start;
        let mut common = None;
        for (skip, &(id, end)) in new.iter().enumerate() {
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
        self.tokens.extend(new[skip..].iter().map(|&(id, end)| (id, start + end)));
        true
    }
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
    fn encode(
        &mut self,
        bpe: &Bpe,
        symbols: impl Iterator<Item = Token>,
        mut out: impl FnMut(u32, usize),
    ) {
        self.symbols.clear();
        self.pairs.clear();
        for (id, end) in symbols {
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
    Heap::default().encode(bpe, Symbols::new(bpe, piece, 0), |id, _| ids.push(id));
    ids
}
