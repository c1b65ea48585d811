//! `'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+`

use super::Splitter;
use super::common::{
    Blanks, blanks_end, class_at, contraction_end, letters_end, marks_end, numbers_end,
};
use crate::simd::Isa;
use crate::unicode::{Classes, LETTER, NUMBER, SPACE};

/// The scanner of GPT-2's expression.
#[derive(Clone, Copy)]
pub struct Gpt2 {
    /// The table of [`crate::unicode::classes`].
    pub classes: &'static Classes,
}

impl Splitter for Gpt2 {
    #[inline(always)]
    unsafe fn piece_end<S: Isa>(self, text: &[u8], pos: usize) -> usize {
        if let Some(end) = contraction_end(text, pos, false) {
            return end;
        }
        let word = if text[pos] == b' ' { pos + 1 } else { pos };
        if word >= text.len() {
            return text.len();
        }
        let (class, len) = class_at(self.classes, text, word);
        let next = (word + len).min(text.len());
        // SAFETY: the caller's contract, here and below.
        unsafe {
            if class & LETTER != 0 {
                letters_end::<S>(self.classes, text, next)
            } else if class & NUMBER != 0 {
                numbers_end(self.classes, text, next, usize::MAX)
            } else if class & SPACE == 0 {
                marks_end::<S>(self.classes, text, next)
            } else {
                blanks_end::<S>(self.classes, text, pos, Blanks::Plain)
            }
        }
    }
}
