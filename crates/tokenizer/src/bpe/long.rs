//! Merging a piece of any length.
//!
//! A sequence of tokens is the encoding of its text if and only if every two neighbours are the
//! encoding of theirs: the first merge across the border of two tokens would also happen in the
//! encoding of these two alone. So the encodings of two overlapping windows join wherever they
//! have one token in common: all neighbours left of it are neighbours in one window, all right of
//! it in the other. Windows are short pieces, which makes the whole linear; two at a time are
//! encoded side by side, the second from a place that need not turn out a border. Where two windows
//! do not agree, because tokens are as long as they are or because a text is made for that, larger
//! ones follow, and at last one heap over the whole piece. A window like the one before, as in
//! a million spaces, is not encoded again.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use super::pairs::NO_RANK;
use super::short::{MAX_SYMBOLS, MAX_TWO, Short};
use super::{Bpe, Symbols};
use crate::simd::Isa;

/// Symbols of a window; the next size follows where windows do not agree.
const WINDOWS: [usize; 3] = [32, MAX_SYMBOLS, 4096];
/// Symbols of a window before the one that is encoded with it; enough stay to find a common token.
const STRIDE: usize = 24;
/// How many tokens of a window the next one repeats at most. A run of one character ends a window
/// with a token of each length there is, which the next window will not have: larger ones go back
/// beyond those.
const OVERLAP: [usize; WINDOWS.len()] = [4, 8, 16];

/// A token and its end, in bytes from the start of the piece.
type Token = (u32, usize);

/// Room for long pieces; grows to the longest piece seen, and keeps some of it.
#[derive(Default)]
pub struct Long {
    tokens: Vec<Token>,
    window: Window,
    /// The window that was encoded together with `window`, and its room.
    ahead: Window,
    short: Short,
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
        // Each turn reaches further or takes a larger window, so this ends.
        while self.reached() < piece.len() {
            let is_first = size == 0 && !self.window.is_at(&piece[start..]);
            let ahead = if is_first {
                // SAFETY: the caller's contract, here and below.
                unsafe { self.encode_two::<S>(bpe, piece, start, short) }
            } else {
                None
            };
            if ahead.is_none() {
                // SAFETY: as above.
                unsafe { self.encode_window::<S>(bpe, piece, start, size, short) };
            }
            if self.join(start) {
                if let Some(ahead) = ahead {
                    std::mem::swap(&mut self.window, &mut self.ahead);
                    // Where the two do not agree, the next window begins at a border.
                    start = if self.join(ahead) { ahead } else { start };
                }
                let fresh = self.tokens.len() - self.index_of(start);
                start = self.border_before(self.reached(), OVERLAP[size].min(fresh / 2));
                // Long tokens, as of spaces, would leave nothing new in a small window.
                size = if self.reached() - start <= WINDOWS[0] / 2 { 0 } else { size };
            } else if size + 1 < WINDOWS.len() {
                // From the start of the last window on: what it began with is certain.
                size += 1;
                self.window.text.clear();
                start = self.border_before(start, OVERLAP[size]);
            } else {
                return false;
            }
        }
        true
    }

    /// Encodes two windows of the first size, the one at `start` and one further on, and says
    /// where that begins; None if the piece ends with the first.
    ///
    /// # Safety
    /// The machine must have `S`.
    unsafe fn encode_two<S: Isa>(
        &mut self,
        bpe: &Bpe,
        piece: &[u8],
        start: usize,
        short: &mut Short,
    ) -> Option<usize> {
        fill(short, bpe, piece, start);
        if start + short.end() == piece.len() {
            return None;
        }
        let ahead = start + short.end_of(STRIDE - 1)?;
        fill(&mut self.short, bpe, piece, ahead);
        // SAFETY: the caller's contract.
        unsafe { S::vectorize(|| Short::merge_two::<S>(short, &mut self.short, bpe)) };
        self.window.take(&piece[start..], short);
        self.ahead.take(&piece[ahead..], &self.short);
        Some(ahead)
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
        if window.is_at(&piece[start..]) {
            return;
        }
        let symbols = Symbols::new(bpe, piece, start).take(WINDOWS[size]);
        let symbols = symbols.map(|(id, end)| (id, end - start));
        if WINDOWS[size] <= MAX_SYMBOLS {
            short.clear();
            symbols.for_each(|(id, end)| _ = short.push(id, end));
            // SAFETY: the caller's contract.
            unsafe { S::vectorize(|| short.merge::<S>(bpe)) };
            return window.take(&piece[start..], short);
        }
        window.tokens.clear();
        self.heap.encode(bpe, symbols, |id, end| window.tokens.push((id, end)));
        window.keep(&piece[start..]);
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

    /// Replaces the tokens from the first one on that the window at `start` has as well; false, and
    /// nothing changed, if there is none or the window reaches no further.
    fn join(&mut self, start: usize) -> bool {
        let new = &self.window.tokens;
        if start + new.last().map_or(0, |&(_, end)| end) <= self.reached() {
            return false;
        }
        if self.tokens.is_empty() || start == 0 {
            self.tokens.clear();
            self.tokens.extend_from_slice(new);
            return true;
        }
        let mut old = self.index_of(start);
        let mut old_start = old.checked_sub(1).map_or(0, |last| self.tokens[last].1);
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

/// The symbols of a window of the first size at `start`.
fn fill(short: &mut Short, bpe: &Bpe, piece: &[u8], start: usize) {
    const { assert!(WINDOWS[0] <= MAX_TWO) };
    short.clear();
    let symbols = Symbols::new(bpe, piece, start).take(WINDOWS[0]);
    symbols.for_each(|(id, end)| _ = short.push(id, end - start));
}

impl Window {
    /// Whether `text` begins with this window.
    fn is_at(&self, text: &[u8]) -> bool {
        !self.text.is_empty() && text.starts_with(&self.text)
    }

    /// Becomes the window at the start of `text` that `short` holds merged.
    fn take(&mut self, text: &[u8], short: &Short) {
        self.tokens.clear();
        self.tokens.extend(short.tokens());
        self.keep(text);
    }

    /// Keeps as much of `text` as the tokens stand for.
    fn keep(&mut self, text: &[u8]) {
        let end = self.tokens.last().map_or(0, |&(_, end)| end);
        self.text.clear();
        self.text.extend_from_slice(&text[..end]);
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

/// None where windows of all sizes do not join.
#[cfg(test)]
pub fn by_windows(bpe: &Bpe, piece: &[u8]) -> Option<Vec<u32>> {
    let mut long = Long::default();
    // SAFETY: portable code.
    let joins = unsafe { long.windows::<crate::simd::Scalar>(bpe, piece, &mut Short::default()) };
    joins.then(|| long.tokens.iter().map(|&(id, _)| id).collect())
}

#[cfg(test)]
pub fn by_heap(bpe: &Bpe, piece: &[u8]) -> Vec<u32> {
    let mut ids = Vec::new();
    Heap::default().encode(bpe, Symbols::new(bpe, piece, 0), |id, _| ids.push(id));
    ids
}
