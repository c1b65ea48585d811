//! From a vocabulary and its merges to the tables.

use std::collections::HashMap;

use super::pairs::{ID_BITS, NO_RANK, PairTable, RANK_BITS};
use super::pieces::PieceTable;
use super::{Bpe, NONE, Scratch, TokenBytes};
use crate::simd::Scalar;

/// What the smallest unit of a text is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Symbolism {
    /// Bytes, each a token (GPT-2 and later).
    Bytes,
    /// Characters; one without a token stands as its bytes (SentencePiece with byte fallback).
    Chars,
}

/// A merge of two tokens; smaller ranks come first.
#[derive(Debug, Clone, Copy)]
pub struct Merge {
    /// Left token.
    pub left: u32,
    /// Right token.
    pub right: u32,
    /// What they become.
    pub merged: u32,
    /// Order.
    pub rank: u32,
}

/// All that a model file says about merging.
pub struct Vocabulary {
    /// What a symbol is.
    pub symbolism: Symbolism,
    /// Text of the tokens that a piece can become: id and bytes. Distinct, none empty.
    pub pieces: Vec<(u32, Vec<u8>)>,
    /// Ids of the 256 bytes.
    pub byte_ids: [u32; 256],
    /// The merges; where a pair comes twice the later one counts.
    pub merges: Vec<Merge>,
    /// Whether a piece that is a token is this token, whatever its merges give.
    pub ignore_merges: bool,
}

/// A vocabulary beyond the bounds of the tables.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum BuildError {
    /// An id does not fit.
    #[error("token id {0} is not below {max}", max = (1 << ID_BITS) - 1)]
    Id(u32),
    /// A rank does not fit.
    #[error("merge {0} is not below {max}", max = (1 << RANK_BITS) - 1)]
    Rank(u32),
    /// A token is too long for the tables.
    #[error("token {0} is longer than {MAX_TOKEN_BYTES} bytes")]
    Length(u32),
}

/// Longest token, in bytes.
const MAX_TOKEN_BYTES: usize = 1 << 16;

impl Vocabulary {
    fn check(&self) -> Result<(), BuildError> {
        let merges = self.merges.iter().flat_map(|m| [m.left, m.right, m.merged]);
        let ids = self.pieces.iter().map(|&(id, _)| id).chain(self.byte_ids).chain(merges);
        if let Some(id) = ids.into_iter().find(|&id| id >= (1 << ID_BITS) - 1) {
            return Err(BuildError::Id(id));
        }
        if let Some(m) = self.merges.iter().find(|m| m.rank >= (1 << RANK_BITS) - 1) {
            return Err(BuildError::Rank(m.rank));
        }
        match self.pieces.iter().find(|(_, piece)| piece.len() > MAX_TOKEN_BYTES) {
            Some(&(id, _)) => Err(BuildError::Length(id)),
            None => Ok(()),
        }
    }
}

impl Bpe {
    /// Builds the tables.
    ///
    /// # Errors
    /// If the vocabulary is beyond their bounds.
    pub fn new(vocabulary: &Vocabulary) -> Result<Self, BuildError> {
        vocabulary.check()?;
        let pairs: Vec<_> = vocabulary.merges.iter().map(|m| (m.left, m.right, m.rank)).collect();
        let ranks = vocabulary.merges.iter().map(|m| m.rank + 1).max().unwrap_or(0);
        let mut merged = vec![NONE; ranks as usize];
        for m in &vocabulary.merges {
            merged[m.rank as usize] = m.merged;
        }
        let mut bpe = Self {
            pairs: PairTable::new(&pairs),
            merged,
            pieces: PieceTable::new(std::iter::empty()),
            tokens: flat(&vocabulary.pieces),
            symbolism: vocabulary.symbolism,
            byte_ids: vocabulary.byte_ids,
            chars: vec![NONE; 0x1_0000],
            astral: HashMap::new(),
            low: u32::MAX,
            low_ranks: vec![NO_RANK; 0x1_0000],
        };
        bpe.build_low_ranks();
        bpe.build_chars(vocabulary);
        let found: Vec<bool> = bpe.reachable(vocabulary);
        let pieces = vocabulary.pieces.iter().zip(found).filter(|&(_, found)| found);
        bpe.pieces = PieceTable::new(pieces.map(|((id, piece), _)| (piece.as_slice(), *id)));
        Ok(bpe)
    }

    /// Which tokens their own text becomes.
    fn reachable(&self, vocabulary: &Vocabulary) -> Vec<bool> {
        let mut scratch = Scratch::default();
        let mut reaches = |&(id, ref piece): &(u32, Vec<u8>)| {
            if vocabulary.ignore_merges {
                return true;
            }
            let (mut count, mut last) = (0, NONE);
            let out = |token, _| {
                count += 1;
                last = token;
            };
            // SAFETY: portable code runs anywhere.
            unsafe { self.merge::<Scalar>(piece, &mut scratch, out) };
            count == 1 && last == id
        };
        vocabulary.pieces.iter().map(&mut reaches).collect()
    }

    fn build_low_ranks(&mut self) {
        let low = self.byte_ids.iter().copied().min().unwrap_or(0);
        let together = self.byte_ids.iter().all(|&id| id - low < 256);
        if self.symbolism == Symbolism::Bytes && together {
            self.low = low;
            for pair in 0..0x1_0000u32 {
                self.low_ranks[pair as usize] =
                    self.pairs.rank(low + (pair >> 8), low + (pair & 255));
            }
        }
    }

    fn build_chars(&mut self, vocabulary: &Vocabulary) {
        let bounds = match self.symbolism {
            Symbolism::Bytes => Some(Bounds::of(vocabulary, &self.tokens)),
            Symbolism::Chars => None,
        };
        for (id, piece) in &vocabulary.pieces {
            let Ok(text) = std::str::from_utf8(piece) else { continue };
            let mut chars = text.chars();
            let (Some(char), None) = (chars.next(), chars.next()) else { continue };
            let code = char as usize;
            if code >= self.chars.len() {
                if self.symbolism == Symbolism::Chars {
                    self.astral.insert(code as u32, *id);
                }
                continue;
            }
            let whole = match &bounds {
                Some(bounds) => code >= 0x80 && self.closes(piece, *id, bounds),
                None => true,
            };
            if whole {
                self.chars[code] = *id;
            }
        }
    }

    /// Whether the bytes of a character become `id` before any merge with a neighbour can happen:
    /// at every step the rank of the next merge inside is below that of every merge that the
    /// outermost symbols have with other characters beyond ASCII.
    fn closes(&self, piece: &[u8], id: u32, bounds: &Bounds) -> bool {
        let mut ids: Vec<u32> = piece.iter().map(|&b| self.byte_ids[b as usize]).collect();
        while ids.len() > 1 {
            let ranks = ids.windows(2).map(|p| self.pairs.rank(p[0], p[1]));
            let Some((at, rank)) = ranks.enumerate().min_by_key(|&(at, rank)| (rank, at)) else {
                return false;
            };
            let (first, last) = (ids[0], ids[ids.len() - 1]);
            if rank == NO_RANK || rank >= bounds.left(first) || rank >= bounds.right(last) {
                return false;
            }
            ids[at] = self.merged(rank);
            ids.remove(at + 1);
        }
        ids == [id]
    }
}

/// Lowest ranks of the merges of a token with a character beyond ASCII on its other side.
struct Bounds {
    /// Merges `(x, token)` where x ends beyond ASCII.
    left: HashMap<u32, u32>,
    /// Merges `(token, x)` where x begins with a leading byte.
    right: HashMap<u32, u32>,
}

impl Bounds {
    fn of(vocabulary: &Vocabulary, tokens: &TokenBytes) -> Self {
        let mut bounds = Self { left: HashMap::new(), right: HashMap::new() };
        let lower = |map: &mut HashMap<u32, u32>, id: u32, rank: u32| {
            let bound = map.entry(id).or_insert(NO_RANK);
            *bound = rank.min(*bound);
        };
        for m in &vocabulary.merges {
            if tokens.get(m.left).last().is_none_or(|&b| b >= 0x80) {
                lower(&mut bounds.left, m.right, m.rank);
            }
            if tokens.get(m.right).first().is_none_or(|&b| b >= 0xc0) {
                lower(&mut bounds.right, m.left, m.rank);
            }
        }
        bounds
    }

    fn left(&self, id: u32) -> u32 {
        self.left.get(&id).copied().unwrap_or(NO_RANK)
    }

    fn right(&self, id: u32) -> u32 {
        self.right.get(&id).copied().unwrap_or(NO_RANK)
    }
}

fn flat(pieces: &[(u32, Vec<u8>)]) -> TokenBytes {
    let ids = pieces.iter().map(|&(id, _)| id as usize + 1).max().unwrap_or(0);
    let mut by_id: Vec<&[u8]> = vec![&[]; ids];
    for (id, piece) in pieces {
        by_id[*id as usize] = piece;
    }
    TokenBytes::new(by_id.into_iter())
}
