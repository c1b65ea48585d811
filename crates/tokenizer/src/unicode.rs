//! Character classes of all code points, as the regex engines of HF `tokenizers` and tiktoken see
//! them. The ranges in `unicode_ranges.rs` are written by this module's test, which also checks
//! them against these engines.

use std::sync::LazyLock;

use crate::unicode_ranges::RANGES;

/// `\p{L}`.
pub const LETTER: u8 = 0x01;
/// `\p{N}`.
pub const NUMBER: u8 = 0x02;
/// `\s`.
pub const SPACE: u8 = 0x04;
/// `[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]`.
pub const UPPER: u8 = 0x10;
/// `[\p{Ll}\p{Lm}\p{Lo}\p{M}]`.
pub const LOWER: u8 = 0x20;
/// Normalization form C may change a text that holds this character: it has a combining class,
/// can be the second of a composed pair, or is not itself in form C.
pub const NOT_NFC: u8 = 0x40;
/// `\w`.
pub const WORD: u8 = 0x80;

const BLOCK: usize = 256;

/// Two-stage table: most scripts share a handful of blocks, which stay in the first-level cache.
pub struct Classes {
    block_of: [u8; 0x11_0000 / BLOCK],
    blocks: Vec<[u8; BLOCK]>,
}

/// The table; built once.
pub fn classes() -> &'static Classes {
    static CLASSES: LazyLock<Classes> = LazyLock::new(Classes::build);
    &CLASSES
}

impl Classes {
    fn build() -> Self {
        let mut table = Self { block_of: [0; 0x11_0000 / BLOCK], blocks: Vec::new() };
        let mut flat = vec![0u8; 0x11_0000];
        for (i, &range) in RANGES.iter().enumerate() {
            let end = RANGES.get(i + 1).map_or(flat.len(), |&next| (next >> 8) as usize);
            flat[(range >> 8) as usize..end].fill(range as u8);
        }
        for (index, block) in flat.chunks_exact(BLOCK).enumerate() {
            let known = table.blocks.iter().position(|b| b == block);
            let at = known.unwrap_or_else(|| {
                let mut copy = [0; BLOCK];
                copy.copy_from_slice(block);
                table.blocks.push(copy);
                table.blocks.len() - 1
            });
            table.block_of[index] = u8::try_from(at).unwrap_or_default();
        }
        table
    }

    /// Class bits of a code point; 0 beyond U+10FFFF.
    #[inline(always)]
    pub fn of(&self, code: u32) -> u8 {
        match self.block_of.get(code as usize / BLOCK) {
            Some(&block) => self.blocks[block as usize][code as usize % BLOCK],
            None => 0,
        }
    }
}

/// The character that begins at `pos` and its length in bytes. `text` is UTF-8 and `pos` is a
/// character boundary before its end; anything else gives some character, never a panic.
#[inline(always)]
pub fn decode(text: &[u8], pos: usize) -> (u32, usize) {
    let at = |i: usize| u32::from(text.get(pos + i).copied().unwrap_or(0));
    let low = |i: usize| at(i) & 0x3f;
    let first = at(0);
    match first {
        0..0x80 => (first, 1),
        0x80..0xe0 => ((first & 0x1f) << 6 | low(1), 2),
        0xe0..0xf0 => ((first & 0x0f) << 12 | low(1) << 6 | low(2), 3),
        _ => ((first & 0x07) << 18 | low(1) << 12 | low(2) << 6 | low(3), 4),
    }
}

/// Where the character that ends at `end` begins.
#[inline(always)]
pub fn char_start(text: &[u8], end: usize) -> usize {
    let mut start = end.saturating_sub(1);
    while start > 0 && text[start] & 0xc0 == 0x80 {
        start -= 1;
    }
    start
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;
    use std::fmt::Write;
    use unicode_normalization_alignments::{UnicodeNormalization, char as forms};

    const PATTERNS: [(u8, &str); 5] = [
        (LETTER, r"\p{L}"),
        (NUMBER, r"\p{N}"),
        (SPACE, r"\s"),
        (UPPER, r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]"),
        (LOWER, r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]"),
    ];

    fn all_chars() -> impl Iterator<Item = char> {
        (0..=0x10_ffff).filter_map(char::from_u32)
    }

    /// Characters that can be the second of a composed pair.
    fn composing() -> HashSet<char> {
        let mut seconds: HashSet<char> = ('\u{1161}'..='\u{1175}').collect();
        seconds.extend('\u{11a7}'..='\u{11c2}');
        for c in all_chars() {
            let mut first = true;
            forms::decompose_canonical(c, |part| {
                if !first {
                    seconds.insert(part);
                }
                first = false;
            });
        }
        seconds
    }

    fn expected() -> Vec<u8> {
        let mut classes = vec![0u8; 0x11_0000];
        for (bit, pattern) in PATTERNS {
            let regex = onig::Regex::new(pattern).unwrap();
            let other = regex::Regex::new(pattern).unwrap();
            for c in all_chars() {
                let text = c.to_string();
                let found = regex.find(&text).is_some();
                assert_eq!(found, other.is_match(&text), "{pattern} at U+{:04X}", c as u32);
                classes[c as usize] |= if found { bit } else { 0 };
            }
        }
        let word = regex::Regex::new(r"\w").unwrap();
        let seconds = composing();
        for c in all_chars() {
            let text = c.to_string();
            let stable = text.nfc().map(|(c, _)| c).eq([c])
                && forms::canonical_combining_class(c) == 0
                && !seconds.contains(&c);
            classes[c as usize] |= if stable { 0 } else { NOT_NFC };
            classes[c as usize] |= if word.is_match(&text) { WORD } else { 0 };
        }
        classes
    }

    fn written(classes: &[u8]) -> String {
        let mut text = String::from(
            "//! Generated by the test of unicode.rs (SACCADE_WRITE_TABLES=1); do not edit.\n\n\
             /// First code point of a range, shifted left by 8, and the class bits of the range.\n\
             #[rustfmt::skip]\npub const RANGES: &[u32] = &[",
        );
        let starts = (0..classes.len()).filter(|&c| c == 0 || classes[c] != classes[c - 1]);
        for (i, start) in starts.enumerate() {
            text += if i % 8 == 0 { "\n    " } else { " " };
            write!(text, "{:#x},", (start as u32) << 8 | u32::from(classes[start])).unwrap();
        }
        text + "\n];\n"
    }

    #[test]
    fn the_classes_are_those_of_both_regex_engines() {
        let expected = expected();
        if std::env::var_os("SACCADE_WRITE_TABLES").is_some() {
            let path = concat!(env!("CARGO_MANIFEST_DIR"), "/src/unicode_ranges.rs");
            std::fs::write(path, written(&expected)).unwrap();
            return;
        }
        for (code, &class) in expected.iter().enumerate() {
            assert_eq!(classes().of(code as u32), class, "U+{code:04X}");
        }
        assert!(classes().blocks.len() < 256);
    }

    #[test]
    fn unified_ideographs_are_letters_of_both_cases() {
        for code in 0x4e00..=0x9fff {
            let class = classes().of(code);
            assert_eq!(class & (LETTER | UPPER | LOWER), LETTER | UPPER | LOWER, "U+{code:04X}");
        }
    }

    #[test]
    fn decoding_agrees_with_the_standard_library() {
        let text: String =
            ['a', '\u{7f}', '\u{80}', 'ß', '\u{7ff}', 'ठ', '\u{ffff}', '🎈'].iter().collect();
        for (pos, c) in text.char_indices() {
            assert_eq!(decode(text.as_bytes(), pos), (c as u32, c.len_utf8()));
            assert_eq!(char_start(text.as_bytes(), pos + c.len_utf8()), pos);
        }
    }
}
