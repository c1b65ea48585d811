//! Pieces of SentencePiece vocabularies: words with the spaces before them.

use crate::load::Ends;
use crate::simd::Isa;
use crate::split::Splitter;

/// Cuts a text in which [`crate::load::Cut::Spaces`] left spaces as they are.
#[derive(Clone, Copy)]
pub struct Words {
    /// Where pieces end.
    pub ends: Ends,
}

impl Splitter for Words {
    #[inline(always)]
    unsafe fn piece_end<S: Isa>(self, text: &[u8], pos: usize) -> usize {
        let spaces = match self.ends {
            Ends::Never => return text.len(),
            Ends::EverySpace => usize::from(text[pos] == b' '),
            // SAFETY: the caller's contract, here and below.
            Ends::Words => unsafe { S::spaces(text, pos) },
        };
        // SAFETY: as above.
        pos + spaces + unsafe { S::solid(text, pos + spaces) }
    }
}

/// Appends `text` to `out` with `▁` as a space.
pub fn push_spaces(text: &str, out: &mut String) {
    for (index, part) in text.split('\u{2581}').enumerate() {
        if index > 0 {
            out.push(' ');
        }
        out.push_str(part);
    }
}
