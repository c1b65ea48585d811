//! `(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,n}| ?[^\s\p{L}\p{N}]+[\r\n]*`
//! and white space: cl100k, Llama 3, Qwen.

use super::Splitter;
use super::common::{
    Blanks, blanks_end, class_at, contraction_end, letters_end, marks_end, numbers_end,
};
use crate::simd::Isa;
use crate::unicode::{Classes, LETTER, NUMBER, SPACE};

/// The scanner of the expressions without upper and lower case. `DIGITS`: most digits of a piece;
/// `WHOLE_END`: white space at the end of the text is one piece.
#[derive(Clone, Copy)]
pub struct Words<const DIGITS: usize, const WHOLE_END: bool> {
    /// The table of [`crate::unicode::classes`].
    pub classes: &'static Classes,
}

impl<const DIGITS: usize, const WHOLE_END: bool> Splitter for Words<DIGITS, WHOLE_END> {
    #[inline(always)]
    unsafe fn piece_end<S: Isa>(self, text: &[u8], pos: usize) -> usize {
        let (class, len) = class_at(self.classes, text, pos);
        let next = (pos + len).min(text.len());
        // SAFETY: the caller's contract, here and below.
        unsafe {
            if class & LETTER != 0 {
                return letters_end::<S>(self.classes, text, next);
            }
            if class & NUMBER != 0 {
                return numbers_end(self.classes, text, pos, DIGITS);
            }
            let first = text[pos];
            if let Some(end) = contraction_end(text, pos, true) {
                return end;
            }
            let after =
                if next < text.len() { class_at(self.classes, text, next).0 } else { SPACE };
            if after & LETTER != 0 && !matches!(first, b'\r' | b'\n') {
                return letters_end::<S>(self.classes, text, next);
            }
            let marks = if class & SPACE == 0 {
                next
            } else if first == b' ' && after & (SPACE | NUMBER | LETTER) == 0 {
                pos + 1
            } else {
                let blanks = if WHOLE_END { Blanks::LinesAndEnd } else { Blanks::Lines };
                return blanks_end::<S>(self.classes, text, pos, blanks);
            };
            let mut end = marks_end::<S>(self.classes, text, marks);
            while matches!(text.get(end), Some(b'\r' | b'\n')) {
                end += 1;
            }
            end
        }
    }
}
