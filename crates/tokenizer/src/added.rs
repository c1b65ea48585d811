//! Added tokens: found in the text before anything else, the leftmost and then the longest.

use std::ops::Range;

use aho_corasick::{AhoCorasick, BuildError, Input, Match, MatchKind};

use crate::load::AddedToken;
use crate::unicode::{self, SPACE, WORD, char_start, classes};

/// A part of a text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Part {
    /// Text to be encoded, `start..end`.
    Text(usize, usize),
    /// An added token, and its range with the white space that it takes.
    Token(u32, usize, usize),
}

/// A set of added tokens.
pub struct AddedTokens {
    automaton: Option<AhoCorasick>,
    tokens: Vec<AddedToken>,
}

impl AddedTokens {
    /// A set; may be empty.
    ///
    /// # Errors
    /// If the tokens are too many or too long for the automaton.
    pub fn new(tokens: Vec<AddedToken>) -> Result<Self, BuildError> {
        let automaton = if tokens.is_empty() {
            None
        } else {
            let mut builder = AhoCorasick::builder();
            builder.match_kind(MatchKind::LeftmostLongest);
            Some(builder.build(tokens.iter().map(|t| t.content.as_bytes()))?)
        };
        Ok(Self { automaton, tokens })
    }

    /// Whether the set is empty.
    pub fn is_empty(&self) -> bool {
        self.tokens.is_empty()
    }

    /// The parts of `text`, in order; empty texts are left out.
    #[inline]
    pub fn split(&self, text: &str, part: impl FnMut(Part)) {
        let found = self.automaton.iter().flat_map(|automaton| automaton.find_iter(text));
        self.split_at(text, found, part);
    }

    /// As [`split`](Self::split), but what has one of `breaks` (sorted offsets) inside is text.
    pub fn split_unless_broken(&self, text: &str, breaks: &[usize], part: impl FnMut(Part)) {
        let mut from = 0;
        let unbroken = std::iter::from_fn(|| {
            loop {
                let found =
                    self.automaton.as_ref()?.find(Input::new(text).span(from..text.len()))?;
                let next = breaks.partition_point(|at| *at <= found.start());
                if breaks.get(next).is_none_or(|at| *at >= found.end()) {
                    from = found.end();
                    return Some(found);
                }
                // Another one may begin inside.
                from = found.start() + 1;
            }
        });
        self.split_at(text, unbroken, part);
    }

    /// Where special tokens are written in `text`: the range of each.
    pub fn specials(&self, text: &str) -> impl Iterator<Item = Range<usize>> {
        let found = self.automaton.iter().flat_map(move |automaton| automaton.find_iter(text));
        let special = found.filter(|found| self.tokens[found.pattern().as_usize()].special);
        special.map(|found| found.range())
    }

    #[inline]
    fn split_at(&self, text: &str, all: impl Iterator<Item = Match>, mut part: impl FnMut(Part)) {
        let mut done = 0;
        for found in all {
            let token = &self.tokens[found.pattern().as_usize()];
            let (mut start, mut end) = (found.start(), found.end());
            let bytes = text.as_bytes();
            if token.single_word && (word_before(bytes, start) || word_after(bytes, end)) {
                continue;
            }
            if token.lstrip {
                start = blank_before(bytes, start, done);
            }
            if token.rstrip {
                end = blank_after(bytes, end);
            }
            if done < start {
                part(Part::Text(done, start));
            }
            part(Part::Token(token.id, start, end));
            done = end;
        }
        if done < text.len() {
            part(Part::Text(done, text.len()));
        }
    }
}

fn word_before(text: &[u8], end: usize) -> bool {
    end > 0 && classes().of(unicode::decode(text, char_start(text, end)).0) & WORD != 0
}

fn word_after(text: &[u8], start: usize) -> bool {
    start < text.len() && classes().of(unicode::decode(text, start).0) & WORD != 0
}

/// Start of the white space that ends at `end`, not before `floor`.
fn blank_before(text: &[u8], end: usize, floor: usize) -> usize {
    let mut start = end;
    while start > floor {
        let before = char_start(text, start);
        if classes().of(unicode::decode(text, before).0) & SPACE == 0 {
            break;
        }
        start = before;
    }
    start.max(floor)
}

fn blank_after(text: &[u8], start: usize) -> usize {
    let mut end = start;
    while end < text.len() {
        let (code, len) = unicode::decode(text, end);
        if classes().of(code) & SPACE == 0 {
            break;
        }
        end += len;
    }
    end
}
