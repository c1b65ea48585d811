//! Normalization form C, for the few texts that are not in it already.

use unicode_normalization_alignments::UnicodeNormalization;

use crate::unicode::{self, NOT_NFC, classes};

/// Whether `text` holds only characters that no normalization touches.
pub fn is_nfc(text: &str) -> bool {
    const CHUNK: usize = 64;
    // Below U+0300 and from U+4000 to U+9FFF nothing ever changes.
    let is_settled = |b: u8| b < 0xcc || (0xe4..=0xe9).contains(&b);
    let bytes = text.as_bytes();
    let mut start = 0;
    while start < bytes.len() {
        let end = (start + CHUNK).min(bytes.len());
        let settled = bytes[start..end].iter().fold(true, |all, &b| all & is_settled(b));
        if !settled && !chunk_is_nfc(bytes, start, end) {
            return false;
        }
        start = end;
    }
    true
}

/// Looks at the characters that begin within `start..end`.
fn chunk_is_nfc(text: &[u8], start: usize, end: usize) -> bool {
    (start..end).filter(|&at| text[at] >= 0xcc).all(|at| {
        let (code, _) = unicode::decode(text, at);
        classes().of(code) & NOT_NFC == 0
    })
}

/// Appends the form C of `text` to `out`.
pub fn push_nfc(text: &str, out: &mut String) {
    out.extend(text.nfc().map(|(c, _)| c));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_texts_that_change_are_found() {
        for text in ["", "plain", "é", "中文，日本語", "한국어", &"x".repeat(1000), "😀"]
        {
            assert!(is_nfc(text), "{text}");
        }
        let long = format!("{}e\u{301}", "y".repeat(63));
        for text in ["e\u{301}", "\u{212b}", "\u{1112}\u{1161}\u{11ab}", &long, "\u{304b}\u{3099}"]
        {
            assert!(!is_nfc(text), "{text}");
            let mut out = String::new();
            push_nfc(text, &mut out);
            assert_ne!(out, text);
        }
    }
}
