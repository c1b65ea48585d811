//! Merging a piece of any length.
//!
//! A sequence of tokens is the encoding of its text if and only if every two neighbours are the
//! encoding of theirs: the first merge across the border of two tokens would also happen in the
//! encoding of these two alone. So the encodings of two overlapping windows join at any token that
//! they share: all neighbours left of it are neighbours in one window, all right of it in the
//! other. Windows are short pieces, which makes the whole linear. Several are encoded side by side;
//! all but the first start at places that may turn out not to be borders. Where windows do not
//! agree, because tokens are as long as windows or because a text is made for that, larger ones
//! follow, and finally one heap over the whole piece. A window that repeats the one before, as in a
//! million spaces, is not encoded again.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use super::lanes::{self, LANES, Lane};
use super::pairs::NO_RANK;
use super::short::{MAX_SYMBOLS, Short};
use super::{Bpe, Symbols};
use crate::simd::Isa;

/// Symbols of a window; the next size follows where windows do not agree.
const WINDOWS: [usize; 3] = [lanes::MAX_SYMBOLS, MAX_SYMBOLS, 4096];
/// Symbols between the starts of windows that are encoded together; the overlap is enough to find
/// a common token.
const STRIDE: usize = 22;
/// Tokens that are kept until more of the piece is encoded: more than a larger window takes back.
const KEPT: usize = 2 * WINDOWS[2];
/// Beyond this many tokens all but the last [`KEPT`] are given out.
const FULL: usize = 4 * KEPT;
/// Most tokens of a window that the next one repeats. A run of one character ends a window with a
/// token of each length there is, which the next window will not have: larger windows go back
/// beyond those.
const OVERLAP: [usize; WINDOWS.len()] = [4, 8, 16];

/// A token and its end, in bytes from the start of the piece.
type Token = (u32, usize);

/// Room for long pieces.
#[derive(Default)]
pub struct Long {
    /// The last tokens, at most [`FULL`] and those of a window.
    tokens: Vec<Token>,
    window: Window,
    lanes: [Lane; LANES],
    heap: Heap,
}

/// A part of a piece and its encoding; ends count from the start of the window.
#[derive(Default)]
struct Window {
    start: usize,
    tokens: Vec<Token>,
}

impl Long {
    /// Appends the tokens of `piece`.
    ///
    /// # Safety
    /// The machine must have `S`.
    pub unsafe fn encode<S: Isa>(
        &mut self,
        bpe: &Bpe,
        piece: &[u8],
        short: &mut Short,
        out: &mut Vec<u32>,
    ) {
        let first = out.len();
        // SAFETY: the caller's contract.
        if !unsafe { self.windows::<S>(bpe, piece, short, out) } {
            // A later part can change what came before it.
            out.truncate(first);
            self.heap.encode(bpe, Symbols::new(bpe, piece, 0), |id, _| out.push(id));
            self.heap.shrink_to(FULL);
        }
    }

    /// False where two windows of all sizes have no token in common.
    ///
    /// # Safety
    /// The machine must have `S`.
    unsafe fn windows<S: Isa>(
        &mut self,
        bpe: &Bpe,
        piece: &[u8],
        short: &mut Short,
        out: &mut Vec<u32>,
    ) -> bool {
        self.tokens.clear();
        self.window.tokens.clear();
        let (mut start, mut size) = (0, 0);
        // Each turn reaches further or takes a larger window, so this ends.
        while self.reached() < piece.len() {
            // SAFETY: the caller's contract.
            let joined = unsafe { self.turn::<S>(bpe, piece, start, size, short) };
            if let Some(last) = joined {
                let fresh = self.tokens.len() - index_of(&self.tokens, last);
                start = self.border_before(self.reached(), OVERLAP[size].min(fresh / 2));
                // Long tokens, such as runs of spaces, would leave nothing new in a small window.
                size = if self.reached() - start <= WINDOWS[0] / 2 { 0 } else { size };
            } else if size + 1 < WINDOWS.len() {
                // From the start of the last window on: what it began with is certain.
                size += 1;
                self.window.tokens.clear();
                start = self.border_before(start, OVERLAP[size]);
            } else {
                return false;
            }
            if self.tokens.len() > FULL {
                let settled = self.tokens.len() - KEPT;
                out.extend(self.tokens.drain(..settled).map(|(id, _)| id));
            }
        }
        out.extend(self.tokens.drain(..).map(|(id, _)| id));
        true
    }

    /// Encodes one or more windows from `start` on, and joins them to the tokens so far. Returns
    /// the start of the last one that joined.
    ///
    /// # Safety
    /// The machine must have `S`.
    unsafe fn turn<S: Isa>(
        &mut self,
        bpe: &Bpe,
        piece: &[u8],
        start: usize,
        size: usize,
        short: &mut Short,
    ) -> Option<usize> {
        if self.window.is_at(piece, start) {
            self.window.start = start;
        } else if size == 0 {
            // SAFETY: the caller's contract, here and below.
            return unsafe { self.side_by_side::<S>(bpe, piece, start) };
        } else {
            // SAFETY: as above.
            unsafe { self.encode_window::<S>(bpe, piece, start, size, short) };
        }
        join(&mut self.tokens, &self.window).then_some(start)
    }

    /// Encodes as many windows of the first size as there are lanes, the first at `start`. Returns
    /// the start of the last one that joined; those after a disagreement do not join.
    ///
    /// # Safety
    /// The machine must have `S`.
    unsafe fn side_by_side<S: Isa>(
        &mut self,
        bpe: &Bpe,
        piece: &[u8],
        start: usize,
    ) -> Option<usize> {
        let mut starts = [start; LANES];
        let mut count = 0;
        let mut next = Some(start);
        while let Some(start) = next.filter(|_| count < LANES) {
            let lane = &mut self.lanes[count];
            lane.fill(Symbols::new(bpe, piece, start).map(|(id, end)| (id, end - start)));
            starts[count] = start;
            count += 1;
            let is_last = start + lane.end() == piece.len();
            next = lane.end_of(STRIDE - 1).filter(|_| !is_last).map(|end| start + end);
        }
        // SAFETY: the caller's contract.
        unsafe { lanes::merge::<S>(bpe, &mut self.lanes[..count]) };
        let mut joined = None;
        for (lane, &start) in self.lanes[..count].iter().zip(&starts) {
            self.window.take(start, lane.tokens());
            if !join(&mut self.tokens, &self.window) {
                break;
            }
            joined = Some(start);
        }
        joined
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
        let symbols = Symbols::new(bpe, piece, start).take(WINDOWS[size]);
        let symbols = symbols.map(|(id, end)| (id, end - start));
        if WINDOWS[size] <= MAX_SYMBOLS {
            short.fill(symbols);
            // SAFETY: the caller's contract.
            unsafe { S::vectorize(|| short.merge::<S>(bpe)) };
            self.window.take(start, short.tokens());
        } else {
            self.window.take(start, std::iter::empty());
            self.heap.encode(bpe, symbols, |id, end| self.window.tokens.push((id, end)));
        }
    }

    /// Where the last token ends.
    fn reached(&self) -> usize {
        reached(&self.tokens)
    }

    /// The border that lies `tokens` tokens before the border `end`.
    fn border_before(&self, end: usize, tokens: usize) -> usize {
        index_of(&self.tokens, end).checked_sub(tokens + 1).map_or(0, |i| self.tokens[i].1)
    }
}

/// Where the last token ends.
fn reached(tokens: &[Token]) -> usize {
    tokens.last().map_or(0, |&(_, end)| end)
}

/// How many tokens end at or before `border`, which lies among the last ones.
fn index_of(tokens: &[Token], border: usize) -> usize {
    let before = tokens.iter().rposition(|&(_, end)| end <= border);
    before.map_or(0, |last| last + 1)
}

/// Replaces the tokens from the first one that `window` shares; false, with nothing changed, if
/// none is shared or the window reaches no further.
fn join(tokens: &mut Vec<Token>, window: &Window) -> bool {
    let Window { start, tokens: new } = window;
    let start = *start;
    if start + reached(new) <= reached(tokens) {
        return false;
    }
    if tokens.is_empty() || start == 0 {
        tokens.clear();
        tokens.extend_from_slice(new);
        return true;
    }
    let mut old = index_of(tokens, start);
    let mut old_start = old.checked_sub(1).map_or(0, |last| tokens[last].1);
    let mut new_start = start;
    let mut common = None;
    for (skip, &(id, end)) in new.iter().enumerate() {
        let new_end = start + end;
        while old < tokens.len() && tokens[old].1 < new_end {
            old_start = tokens[old].1;
            old += 1;
        }
        if old == tokens.len() {
            return false;
        }
        if tokens[old] == (id, new_end) && old_start == new_start {
            common = Some(skip);
            break;
        }
        new_start = new_end;
    }
    let Some(skip) = common else { return false };
    tokens.truncate(old);
    tokens.extend(new[skip..].iter().map(|&(id, end)| (id, start + end)));
    true
}

impl Window {
    /// Whether `piece` repeats the text of this window at `start`.
    fn is_at(&self, piece: &[u8], start: usize) -> bool {
        let len = reached(&self.tokens);
        len > 0 && piece[start..].starts_with(&piece[self.start..self.start + len])
    }

    /// Becomes the window at `start` of these tokens.
    fn take(&mut self, start: usize, tokens: impl Iterator<Item = Token>) {
        self.start = start;
        self.tokens.clear();
        self.tokens.extend(tokens);
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
    let (mut long, mut short, mut ids) = (Long::default(), Short::default(), Vec::new());
    // SAFETY: portable code.
    let joins = unsafe { long.windows::<crate::simd::Scalar>(bpe, piece, &mut short, &mut ids) };
    joins.then_some(ids)
}

#[cfg(test)]
pub fn by_heap(bpe: &Bpe, piece: &[u8]) -> Vec<u32> {
    let mut ids = Vec::new();
    Heap::default().encode(bpe, Symbols::new(bpe, piece, 0), |id, _| ids.push(id));
    ids
}
