//! Which bytes of a text a token stands for, as HF counts them.
//!
//! The tokens are those of [`Tokenizer::encode`]; this module adds where they are. A token that is
//! part of a character lies where the whole character does, a space that the tokenizer
//! puts before a text lies on the first character, and tokens of a byte-level vocabulary leave out
//! the spaces around them where the file says so (`trim_offsets`).

use std::ops::Range;

use unicode_normalization_alignments::UnicodeNormalization;

use crate::added::Part;
use crate::encode::Place;
use crate::load::Cut;
use crate::normalize;
use crate::tokenizer::{Tokenizer, likely_tokens};

/// A token and the bytes of the text that it stands for.
pub type Placed = (u32, Range<usize>);

/// What the post-processor does with the spaces around a token.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Trim {
    /// The space before the first token stays.
    pub keeps_first: bool,
}

/// A text on its way to the encoder, and for each of its bytes the bytes of the input that it
/// comes from.
struct Aligned {
    text: String,
    origins: Vec<(usize, usize)>,
}

impl Aligned {
    /// `input[range]` as it is: each byte comes from its character.
    fn new(input: &str, range: Range<usize>) -> Self {
        let text = input[range.clone()].to_owned();
        let origin = |(at, char): (usize, char)| {
            let start = range.start + at;
            std::iter::repeat_n((start, start + char.len_utf8()), char.len_utf8())
        };
        let origins = text.char_indices().flat_map(origin).collect();
        Self { text, origins }
    }

    fn push(&mut self, char: char, origin: (usize, usize)) {
        self.text.push(char);
        self.origins.extend(std::iter::repeat_n(origin, char.len_utf8()));
    }

    fn like(&self) -> Self {
        let len = self.text.len() + 1;
        Self { text: String::with_capacity(len), origins: Vec::with_capacity(len) }
    }

    /// Normalization form C. A composed character comes from the first of its parts, and one that
    /// is added from what is before it.
    fn into_nfc(self) -> Self {
        let mut normal = self.like();
        let (mut old, mut at) = (self.text.chars(), 0usize);
        for (char, change) in self.text.nfc() {
            if change > 0 {
                let before = at.checked_sub(1).map_or((0, 0), |before| self.origins[before]);
                normal.push(char, before);
                continue;
            }
            normal.push(char, self.origins.get(at).copied().unwrap_or_default());
            let taken = 1 + change.unsigned_abs();
            at += old.by_ref().take(taken).map(char::len_utf8).sum::<usize>();
        }
        normal
    }

    /// With [`crate::load::Cut::Spaces`]'s marks as spaces.
    fn into_spaces(self) -> Self {
        let mut spaced = self.like();
        for (at, char) in self.text.char_indices() {
            spaced.push(if char == '\u{2581}' { ' ' } else { char }, self.origins[at]);
        }
        spaced
    }

    fn with_space(self) -> Self {
        let mut spaced = self.like();
        spaced.push(' ', self.origins.first().copied().unwrap_or_default());
        spaced.text.push_str(&self.text);
        spaced.origins.extend_from_slice(&self.origins);
        spaced
    }

    fn part(&self, range: Range<usize>) -> Self {
        Self { text: self.text[range.clone()].to_owned(), origins: self.origins[range].to_vec() }
    }

    /// Where `range` of the text comes from.
    fn origin(&self, range: Range<usize>) -> Range<usize> {
        match self.origins.get(range) {
            Some([first, .., last]) => first.0..last.1,
            Some([only]) => only.0..only.1,
            _ => 0..0,
        }
    }
}

impl Tokenizer {
    /// The ids of `text` as [`Tokenizer::encode`] gives them, each with the bytes of `text` that it
    /// stands for; `0..0` for what the post-processor adds. Slower than `encode`.
    pub fn encode_offsets(&self, text: &str, add_special: bool) -> Vec<Placed> {
        let mut placed = Vec::with_capacity(likely_tokens(text.len()));
        self.raw.split(text, |part| match part {
            Part::Token(id, start, end) => {
                placed.push((id, self.trimmed_added(start..end, text, placed.is_empty())));
            }
            Part::Text(start, end) => {
                let part = Aligned::new(text, start..end);
                self.place_text(part, Place::Start.at(start), &mut placed);
            }
        });
        let (mut prefix, mut suffix) = (Vec::new(), Vec::new());
        self.push_prefix(add_special, &mut prefix);
        self.push_suffix(add_special, &mut suffix);
        let around = |ids: Vec<u32>| ids.into_iter().map(|id| (id, 0..0));
        around(prefix).chain(placed).chain(around(suffix)).collect()
    }

    /// A text between the added tokens of the first kind.
    fn place_text(&self, part: Aligned, place: Place, out: &mut Vec<Placed>) {
        let is_normal = !self.nfc || normalize::is_nfc(&part.text);
        let normal = if is_normal { part } else { part.into_nfc() };
        self.normalized.split(&normal.text, |part| match part {
            Part::Token(id, start, end) => {
                let origin = normal.origin(start..end);
                out.push((id, self.trimmed(origin, &normal.text[start..end], out.is_empty())));
            }
            Part::Text(start, end) => {
                self.place_pieces(normal.part(start..end), place.at(start), out);
            }
        });
    }

    /// A text between added tokens.
    fn place_pieces(&self, text: Aligned, place: Place, out: &mut Vec<Placed>) {
        let has_marks = matches!(self.encoder.cut, Cut::Spaces { .. });
        let mut text = if has_marks { text.into_spaces() } else { text };
        if self.encoder.wants_space(&text.text, place) {
            text = text.with_space();
        }
        let mut ids = Vec::with_capacity(likely_tokens(text.text.len()));
        self.with_scratch(|scratch| self.encoder.encode(&text.text, scratch, &mut ids));
        let mut start = 0;
        for id in ids {
            let end = start + self.encoder.bpe.len_of(id);
            let bytes = text.text.as_bytes().get(start..end).unwrap_or_default();
            let origin = self.trim(text.origin(start..end), spaces_around(bytes), out.is_empty());
            out.push((id, origin));
            start = end;
        }
    }

    fn trimmed_added(&self, range: Range<usize>, text: &str, is_first: bool) -> Range<usize> {
        self.trimmed(range.clone(), &text[range], is_first)
    }

    fn trimmed(&self, range: Range<usize>, token: &str, is_first: bool) -> Range<usize> {
        // HF looks for the byte-level alphabet's space as well as for white space.
        let is_space = |c: &char| c.is_whitespace() || *c == '\u{120}';
        let before = token.chars().take_while(is_space).count();
        let after = token.chars().rev().take_while(is_space).count();
        self.trim(range, (before, after), is_first)
    }

    /// `range` without this many spaces at its start and its end.
    fn trim(
        &self,
        range: Range<usize>,
        (mut before, after): (usize, usize),
        is_first: bool,
    ) -> Range<usize> {
        let Some(trim) = self.trim else { return range };
        let Range { mut start, mut end } = range;
        if trim.keeps_first && before == 1 && (is_first || start == 0) {
            before = 0;
        }
        start = (start + before).min(end);
        if after > 0 && end >= after {
            end = (end - after).max(start);
        }
        start..end
    }
}

/// How many spaces a token begins and ends with.
fn spaces_around(token: &[u8]) -> (usize, usize) {
    let is_space = |byte: &&u8| **byte == b' ';
    (token.iter().take_while(is_space).count(), token.iter().rev().take_while(is_space).count())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn composed_characters_come_from_their_first_part() {
        let text = "xe\u{301}y";
        let normal = Aligned::new(text, 0..text.len()).into_nfc();
        assert_eq!(normal.text, "xéy");
        assert_eq!(normal.origin(1..3), 1..2);
        assert_eq!(normal.origin(3..4), 4..5);
    }
}
