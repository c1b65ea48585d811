//! Ranges of characters as ranges of UTF-8's bytes.

use regex_syntax::utf8::Utf8Sequences;

/// Sequences of one to four byte ranges; a character of the range matches exactly one of them.
pub(crate) fn byte_sequences(low: char, high: char) -> impl Iterator<Item = Vec<(u8, u8)>> {
    Utf8Sequences::new(low, high)
        .map(|sequence| sequence.as_slice().iter().map(|r| (r.start, r.end)).collect())
}
