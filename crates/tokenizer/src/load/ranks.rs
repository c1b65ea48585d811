//! Vocabularies in tiktoken's form: the bytes of each token and its rank, no merges. Two tokens
//! merge if their bytes together are a token, the lowest rank first.

use std::collections::HashMap;

use super::{AddedToken, Cut, LoadError, Prepend, Scheme, Spec, broken};
use crate::bpe::{Merge, Symbolism, Vocabulary};
use crate::split::Pattern;

/// A vocabulary in tiktoken's form.
pub struct Ranks {
    /// Bytes and rank of each token; all 256 single bytes must be there.
    pub tokens: Vec<(Vec<u8>, u32)>,
    /// Added to the rank of a token to give its id.
    pub first_id: u32,
    /// How the text is cut.
    pub pattern: Pattern,
    /// Special tokens and their ids.
    pub special: Vec<(String, u32)>,
    /// Whether a piece that is a token is this token, as in tiktoken.
    pub whole_pieces: bool,
}

/// Reads it.
///
/// # Errors
/// If a single byte has no token.
pub fn from_ranks(ranks: Ranks) -> Result<Spec, LoadError> {
    let by_bytes: HashMap<&[u8], u32> =
        ranks.tokens.iter().map(|(bytes, rank)| (bytes.as_slice(), *rank)).collect();
    let mut byte_ids = [0; 256];
    for byte in 0..=255u8 {
        let rank = by_bytes.get([byte].as_slice());
        let missing = || broken(format!("token of byte {byte:#04x}"), "missing");
        byte_ids[usize::from(byte)] = ranks.first_id + rank.ok_or_else(missing)?;
    }
    let mut merges = Vec::new();
    for (bytes, rank) in &ranks.tokens {
        for at in 1..bytes.len() {
            let (left, right) = bytes.split_at(at);
            if let (Some(left), Some(right)) = (by_bytes.get(left), by_bytes.get(right)) {
                let id = |rank: u32| ranks.first_id + rank;
                let (left, right, merged) = (id(*left), id(*right), id(*rank));
                merges.push(Merge { left, right, merged, rank: *rank });
            }
        }
    }
    let strings = ranks.tokens.iter().map(|(bytes, rank)| {
        let string = bytes.iter().map(|&b| super::byte_to_char(b)).collect();
        (ranks.first_id + rank, string)
    });
    let special = |(content, id)| AddedToken {
        id,
        content,
        single_word: false,
        lstrip: false,
        rstrip: false,
        normalized: false,
        special: true,
    };
    Ok(Spec {
        strings: strings.collect(),
        nfc: false,
        cut: Cut::Pattern { pattern: ranks.pattern, prepend: Prepend::Never },
        added: ranks.special.into_iter().map(special).collect(),
        prefix: Vec::new(),
        suffix: Vec::new(),
        trim: None,
        scheme: Scheme::Bytes,
        vocabulary: Vocabulary {
            symbolism: Symbolism::Bytes,
            byte_ids,
            merges,
            ignore_merges: ranks.whole_pieces,
            pieces: ranks.tokens.into_iter().map(|(b, rank)| (ranks.first_id + rank, b)).collect(),
        },
    })
}
