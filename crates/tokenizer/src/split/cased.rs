//! The expressions that end a word where its case changes: o200k and tekken.
//!
//! With `P = [^\r\n\p{L}\p{N}]`, `U = [\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]`,
//! `L = [\p{Ll}\p{Lm}\p{Lo}\p{M}]` and C for an optional contraction:
//! `P?U*L+C|P?U+L*C|\p{N}{1,n}| ?[^\s\p{L}\p{N}]+[\r\n/]*` and white space.

use super::Splitter;
use super::common::{
    Blanks, blanks_end, class_at, contraction_end, marks_end, numbers_end, run_end,
};
use crate::simd::{Isa, is_wide};
use crate::unicode::{Classes, LETTER, LOWER, NUMBER, SPACE, UPPER, char_start};

/// The scanner. `DIGITS`: most digits of a piece; `CONTRACTIONS`: whether words keep theirs.
#[derive(Clone, Copy)]
pub struct Cased<const DIGITS: usize, const CONTRACTIONS: bool> {
    /// The table of [`crate::unicode::classes`].
    pub classes: &'static Classes,
}

impl<const DIGITS: usize, const CONTRACTIONS: bool> Splitter for Cased<DIGITS, CONTRACTIONS> {
    #[inline(always)]
    unsafe fn piece_end<S: Isa>(self, text: &[u8], pos: usize) -> usize {
        let (class, len) = class_at(self.classes, text, pos);
        let next = (pos + len).min(text.len());
        let first = text[pos];
        // SAFETY: the caller's contract, here and below.
        unsafe {
            if class & NUMBER != 0 {
                return numbers_end(self.classes, text, pos, DIGITS);
            }
            let is_prefix = class & LETTER == 0 && !matches!(first, b'\r' | b'\n');
            let after =
                if next < text.len() { class_at(self.classes, text, next).0 } else { SPACE };
            let is_word = class & (UPPER | LOWER) != 0;
            if (is_prefix && after & (UPPER | LOWER) != 0) || is_word {
                let word = self.word_end::<S>(text, pos, next, is_prefix);
                if let Some(end) = word {
                    let contraction =
                        if CONTRACTIONS { contraction_end(text, end, true) } else { None };
                    return contraction.unwrap_or(end);
                }
            }
            let marks = if class & SPACE == 0 {
                next
            } else if first == b' ' && after & (SPACE | NUMBER | LETTER) == 0 {
                pos + 1
            } else {
                return blanks_end::<S>(self.classes, text, pos, Blanks::Lines);
            };
            let mut end = marks_end::<S>(self.classes, text, marks);
            while matches!(text.get(end), Some(b'\r' | b'\n' | b'/')) {
                end += 1;
            }
            end
        }
    }
}

impl<const DIGITS: usize, const CONTRACTIONS: bool> Cased<DIGITS, CONTRACTIONS> {
    /// The two alternatives of words in the order in which a regex engine tries them: each with
    /// the prefix before without it.
    ///
    /// # Safety
    /// The machine must have `S`.
    #[inline(always)]
    unsafe fn word_end<S: Isa>(
        self,
        text: &[u8],
        pos: usize,
        next: usize,
        is_prefix: bool,
    ) -> Option<usize> {
        let start = if is_prefix { next } else { pos };
        // SAFETY: the caller's contract.
        let (upper, end) = unsafe { self.lowering::<S>(text, start) };
        if end.is_some() {
            return end;
        }
        if is_prefix {
            // Only a mark (`\p{M}`) can be prefix and part of a word.
            // SAFETY: the caller's contract.
            let (alone, end) = unsafe { self.lowering::<S>(text, pos) };
            if end.is_some() {
                return end;
            }
            return [upper, alone]
                .into_iter()
                .zip([start, pos])
                .find(|(u, s)| u > s)
                .map(|(u, _)| u);
        }
        (upper > start).then_some(upper)
    }

    /// End of `U*` at `pos`, and end of `U*L+` if that matches.
    ///
    /// # Safety
    /// The machine must have `S`.
    #[inline(always)]
    unsafe fn lowering<S: Isa>(self, text: &[u8], pos: usize) -> (usize, Option<usize>) {
        let mut upper = pos;
        while text.get(upper).is_some_and(u8::is_ascii_uppercase) {
            upper += 1;
        }
        if text.get(upper).is_some_and(|&b| b >= 0x80) {
            if is_wide(text[upper]) {
                // SAFETY: the caller's contract; all unified ideographs are both `U` and `L`.
                upper += unsafe { S::ideographs(text, upper) };
            }
            upper = run_end(self.classes, text, upper, UPPER);
        }
        // SAFETY: the caller's contract.
        let lower = unsafe { self.lower_end::<S>(text, upper) };
        if lower > upper {
            return (upper, Some(lower));
        }
        // `U*` gives characters back until the last one can be an `L`.
        let mut end = upper;
        while end > pos {
            let start = char_start(text, end);
            if class_at(self.classes, text, start).0 & LOWER != 0 {
                return (upper, Some(end));
            }
            end = start;
        }
        (upper, None)
    }

    /// End of `L*`.
    ///
    /// # Safety
    /// The machine must have `S`.
    #[inline(always)]
    unsafe fn lower_end<S: Isa>(self, text: &[u8], mut pos: usize) -> usize {
        loop {
            // SAFETY: the caller's contract.
            pos += unsafe { S::lower(text, pos) };
            if text.get(pos).is_none_or(|&b| b < 0x80) {
                return pos.min(text.len());
            }
            let (class, len) = class_at(self.classes, text, pos);
            if class & LOWER == 0 {
                return pos;
            }
            pos += len;
        }
    }
}
