//! Long texts in several threads, with the same tokens as in one.

use std::num::NonZeroUsize;

use crate::tokenizer::{Tokenizer, likely_tokens};

/// Texts are not cut into parts smaller than this: starting a thread costs as much as 10 kB.
const MIN_PART_BYTES: usize = 64 << 10;

/// How far a cut may be from its ideal place.
const MAX_SEARCH_BYTES: usize = 16 << 10;

/// Places where `text` can be cut into at most `parts` parts of about the same length: before a
/// space between two ASCII letters, where every known expression ends a piece. Fewer where there
/// is none nearby.
pub fn cuts(text: &str, parts: usize) -> Vec<usize> {
    let parts = parts.min(text.len() / MIN_PART_BYTES).max(1);
    let mut cuts: Vec<usize> = Vec::with_capacity(parts - 1);
    for part in 1..parts {
        let wanted = text.len() / parts * part;
        let window = &text.as_bytes()[wanted..(wanted + MAX_SEARCH_BYTES).min(text.len())];
        let is_cut =
            |w: &[u8]| w[0].is_ascii_lowercase() && w[1] == b' ' && w[2].is_ascii_alphabetic();
        if let Some(at) = window.windows(3).position(is_cut)
            && cuts.last().is_none_or(|&last| last < wanted + at + 1)
        {
            cuts.push(wanted + at + 1);
        }
    }
    cuts
}

impl Tokenizer {
    /// As [`Tokenizer::encode`], in at most `threads` threads; the calling one is among them, and
    /// the others have its CPU affinity. Texts below 128 KiB, and vocabularies whose added tokens
    /// could lie across a cut, take one.
    pub fn encode_parallel(
        &self,
        text: &str,
        add_special: bool,
        threads: NonZeroUsize,
    ) -> Vec<u32> {
        let mut ids = Vec::with_capacity(likely_tokens(text.len()));
        self.push_prefix(add_special, &mut ids);
        self.in_threads(text, threads, &mut ids, |start, end, ids| {
            self.encode_part_of(text, start, end, ids);
        });
        self.push_suffix(add_special, &mut ids);
        ids
    }

    /// Appends what `encode` gives for the parts `start..end` of `text`, in their order.
    pub(crate) fn in_threads(
        &self,
        text: &str,
        threads: NonZeroUsize,
        ids: &mut Vec<u32>,
        encode: impl Fn(usize, usize, &mut Vec<u32>) + Sync,
    ) {
        let cuts = if self.can_be_cut() { cuts(text, threads.get()) } else { Vec::new() };
        let Some(&first_end) = cuts.first() else { return encode(0, text.len(), ids) };
        let ends = cuts.iter().skip(1).copied().chain([text.len()]);
        let rest: Vec<(usize, usize)> = cuts.iter().copied().zip(ends).collect();
        let alone = |start: usize, end: usize| {
            let mut ids = Vec::with_capacity(likely_tokens(end - start));
            encode(start, end, &mut ids);
            ids
        };
        std::thread::scope(|scope| {
            let alone = &alone;
            let helpers: Vec<_> = rest
                .iter()
                .map(|&(start, end)| {
                    std::thread::Builder::new().spawn_scoped(scope, move || alone(start, end))
                })
                .collect();
            encode(0, first_end, ids);
            for (helper, &(start, end)) in helpers.into_iter().zip(&rest) {
                // If the system refuses a thread, this one does the work.
                match helper.ok().and_then(|helper| helper.join().ok()) {
                    Some(part) => ids.extend_from_slice(&part),
                    None => encode(start, end, ids),
                }
            }
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cuts_are_before_spaces_between_letters() {
        let text = "some words, and more of them. ".repeat(20_000);
        let cuts = cuts(&text, 4);
        assert_eq!(cuts.len(), 3);
        for cut in cuts {
            assert!(text[cut..].starts_with(' ') && text[..cut].ends_with(char::is_alphabetic));
        }
        assert!(super::cuts(&"x".repeat(1 << 20), 4).is_empty());
        assert!(super::cuts(&text[..1000], 4).is_empty());
    }
}
