//! What the expressions share: runs of one class, contractions and white space.

use crate::simd::{Isa, is_wide};
use crate::unicode::{self, Classes, LETTER, NUMBER, SPACE};

/// Class of the character at `pos`, and its length.
#[inline(always)]
pub fn class_at(classes: &Classes, text: &[u8], pos: usize) -> (u8, usize) {
    let (code, len) = unicode::decode(text, pos);
    (classes.of(code), len)
}

/// End of the run of characters with one of the bits of `mask`, from `pos` on.
#[inline(always)]
pub fn run_end(classes: &Classes, text: &[u8], mut pos: usize, mask: u8) -> usize {
    while pos < text.len() {
        let (class, len) = class_at(classes, text, pos);
        if class & mask == 0 {
            break;
        }
        pos += len;
    }
    pos.min(text.len())
}

/// End of `\p{L}*`.
///
/// # Safety
/// The machine must have `S`.
#[inline(always)]
pub unsafe fn letters_end<S: Isa>(classes: &Classes, text: &[u8], mut pos: usize) -> usize {
    loop {
        if text.get(pos).is_some_and(u8::is_ascii) {
            // SAFETY: the caller's contract.
            pos += unsafe { S::letters(text, pos) };
        }
        if text.get(pos).is_some_and(|&byte| is_wide(byte)) {
            // SAFETY: as above; all unified ideographs are letters.
            pos += unsafe { S::ideographs(text, pos) };
        }
        let Some(&byte) = text.get(pos) else { return text.len() };
        if byte.is_ascii_alphabetic() {
            continue; // after an ideograph
        }
        if byte < 0x80 {
            return pos;
        }
        let end = foreign_end(classes, text, pos, |class| class & LETTER != 0);
        if end == pos {
            return pos;
        }
        pos = end;
    }
}

/// End of `[^\s\p{L}\p{N}]*`.
///
/// # Safety
/// The machine must have `S`.
#[inline(always)]
pub unsafe fn marks_end<S: Isa>(classes: &Classes, text: &[u8], mut pos: usize) -> usize {
    loop {
        // SAFETY: the caller's contract.
        pos += unsafe { S::marks(text, pos) };
        let Some(&byte) = text.get(pos) else { return text.len() };
        if byte < 0x80 {
            return pos;
        }
        let end = foreign_end(classes, text, pos, |class| class & (SPACE | LETTER | NUMBER) == 0);
        if end == pos {
            return pos;
        }
        pos = end;
    }
}

/// End of the run of characters beyond ASCII that `is_in` accepts.
#[inline(always)]
pub fn foreign_end(
    classes: &Classes,
    text: &[u8],
    mut pos: usize,
    is_in: impl Fn(u8) -> bool,
) -> usize {
    while pos < text.len() && text[pos] >= 0x80 {
        let (class, len) = class_at(classes, text, pos);
        if !is_in(class) {
            return pos;
        }
        pos += len;
    }
    pos.min(text.len())
}

/// End of `\p{N}{1,max}`, whose first character begins at `pos`.
#[inline(always)]
pub fn numbers_end(classes: &Classes, text: &[u8], mut pos: usize, max: usize) -> usize {
    for _ in 0..max {
        let Some(&byte) = text.get(pos) else { break };
        if byte < 0x80 {
            if !byte.is_ascii_digit() {
                break;
            }
            pos += 1;
        } else {
            let (class, len) = class_at(classes, text, pos);
            if class & NUMBER == 0 {
                break;
            }
            pos += len;
        }
    }
    pos.min(text.len())
}

/// End of `'s|'t|'re|'ve|'m|'ll|'d` at `pos`, where the apostrophe is; None without a match.
/// Without case, U+017F stands for s as well.
#[inline(always)]
pub fn contraction_end(text: &[u8], pos: usize, ignore_case: bool) -> Option<usize> {
    if *text.get(pos)? != b'\'' {
        return None;
    }
    let fold = |b: u8| if ignore_case { b.to_ascii_lowercase() } else { b };
    let first = *text.get(pos + 1)?;
    match fold(first) {
        b's' | b't' | b'm' | b'd' => Some(pos + 2),
        0xc5 if ignore_case && text.get(pos + 2) == Some(&0xbf) => Some(pos + 3),
        first @ (b'r' | b'v' | b'l') => {
            let wanted = if first == b'l' { b'l' } else { b'e' };
            (fold(*text.get(pos + 2)?) == wanted).then_some(pos + 3)
        }
        _ => None,
    }
}

/// How the white space at the end of a text, or before a line end, is cut.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Blanks {
    /// `\s+(?!\S)|\s+`
    Plain,
    /// `\s*[\r\n]+|\s+(?!\S)|\s+`
    Lines,
    /// `\s++$|\s*[\r\n]|\s+(?!\S)|\s`
    LinesAndEnd,
}

/// End of the piece of white space at `pos`.
///
/// # Safety
/// The machine must have `S`.
#[inline(always)]
pub unsafe fn blanks_end<S: Isa>(
    classes: &Classes,
    text: &[u8],
    pos: usize,
    blanks: Blanks,
) -> usize {
    // SAFETY: the caller's contract.
    let spaces = pos + unsafe { S::spaces(text, pos) };
    let mut end = spaces;
    // Where the last line end of the run ends; where its last character begins.
    let (mut line_end, mut last) = (None, spaces.saturating_sub(1));
    while end < text.len() {
        let (class, len) = class_at(classes, text, end);
        if class & SPACE == 0 {
            break;
        }
        last = end;
        end += len;
        if matches!(text[last], b'\r' | b'\n') {
            line_end = Some(end);
        }
    }
    if blanks == Blanks::LinesAndEnd && end >= text.len() {
        return text.len();
    }
    if blanks != Blanks::Plain
        && let Some(line_end) = line_end
    {
        return line_end;
    }
    // A word follows: the last blank is its own piece, or part of the word's.
    if end < text.len() && last > pos { last } else { end.min(text.len()) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::simd::Scalar;
    use crate::unicode::classes;

    #[test]
    fn runs_of_letters_go_through_every_script() {
        let units = [
            "a",
            "Zq",
            "\u{4e2d}",
            "\u{6463}\u{9a19}",
            "\u{e9}",
            "\u{20bb7}",
            "\u{3042}",
            "1",
            "-",
        ];
        for seed in 0..units.len().pow(4) {
            let text: String =
                (0..4).map(|i| units[seed / units.len().pow(i) % units.len()]).collect();
            let text = text.as_bytes();
            let expected = run_end(classes(), text, 0, LETTER);
            // SAFETY: portable code, or what the machine was asked for.
            unsafe {
                assert_eq!(letters_end::<Scalar>(classes(), text, 0), expected);
                #[cfg(target_arch = "x86_64")]
                if is_x86_feature_detected!("avx2") {
                    use crate::simd::Avx2;
                    assert_eq!(letters_end::<Avx2>(classes(), text, 0), expected);
                }
            }
        }
    }
}
