//! From a vocabulary and its merges to the tables.

use std::collections::{HashMap, HashSet};

use super::borders::{self, Borders, Findings, Side};
use super::pairs::{ID_BITS, NO_RANK, PairTable, RANK_BITS};
use super::pieces::PieceTable;
use super::{Bpe, NONE, Symbols, TokenBytes, Work, begins_wide};
use crate::simd::{Scalar, is_wide};

/// What the smallest unit of a text is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Symbolism {
    /// Bytes, each a token (GPT-2 and later).
    Bytes,
    /// Characters; one without a token falls back to its bytes (SentencePiece with byte fallback).
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
    /// The merges; if a pair occurs twice, the later one counts.
    pub merges: Vec<Merge>,
    /// Whether a piece that equals a token becomes that token, whatever its merges give.
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
    fn longest_after_mark(&self) -> usize {
        let wide = self.pieces.iter().filter(|(_, p)| begins_wide(p) && !is_wide(p[0]));
        wide.map(|(_, piece)| piece.len()).max().unwrap_or(0)
    }

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
            borders: Borders::new(Findings::default(), texts(vocabulary)),
            longest_after_mark: vocabulary.longest_after_mark(),
            low: u32::MAX,
            low_ranks: vec![NO_RANK; 0x1_0000],
        };
        bpe.build_low_ranks();
        if vocabulary.symbolism == Symbolism::Chars {
            bpe.build_chars(vocabulary, None);
        }
        let last = bpe.last_merges(vocabulary);
        let mut pieces: Vec<_> = vocabulary.pieces.iter().zip(&last).collect();
        pieces.retain(|&(_, last)| last.is_some() || vocabulary.ignore_merges);
        // Frequent tokens have small ids, and should be found first.
        pieces.sort_unstable_by_key(|((id, _), _)| *id);
        let pieces = pieces.iter().map(|((id, p), last)| (p.as_slice(), *id, last.is_some()));
        bpe.pieces = PieceTable::new(pieces);
        let Some(mut pairs) = bpe.happening(vocabulary, &last) else { return Ok(bpe) };
        bpe.use_only(&mut pairs);
        let bounds = Bounds::of(&pairs, &bpe.tokens);
        if vocabulary.symbolism == Symbolism::Bytes {
            bpe.build_chars(vocabulary, Some(&bounds));
        }
        bpe.build_borders(vocabulary, &bounds);
        Ok(bpe)
    }

    /// For each token that results from merging its own text: the pair merged last, and the number
    /// of symbols before the first merge. None for the others.
    fn last_merges(&self, vocabulary: &Vocabulary) -> Vec<Option<Last>> {
        let (mut work, mut ids) = (Work::default(), Vec::new());
        let one = |&(id, ref piece): &(u32, Vec<u8>)| {
            ids.clear();
            let is_whole = work.short.fill(Symbols::new(self, piece, 0));
            // SAFETY: portable code runs anywhere.
            unsafe {
                if is_whole {
                    work.short.merge::<Scalar>(self);
                    ids.extend(work.short.tokens().map(|(id, _)| id));
                } else {
                    self.merge::<Scalar>(piece, &mut work, &mut ids);
                }
            }
            let (symbols, pair) = (work.short.len(), work.short.last());
            (ids == [id]).then_some(Last { symbols, pair, is_whole })
        };
        vocabulary.pieces.iter().map(one).collect()
    }

    /// The merges that can happen. Until two tokens merge, the text of each merges as it would
    /// alone. So of all pairs that could make a token, only the one that makes it from the token's
    /// own text is ever adjacent. None if that cannot be told.
    fn happening(&self, vocabulary: &Vocabulary, last: &[Option<Last>]) -> Option<Pairs> {
        // A fallback byte's text is not that of its token: nothing follows from it.
        let bytes: HashSet<u32> = match vocabulary.symbolism {
            Symbolism::Bytes => HashSet::new(),
            Symbolism::Chars => vocabulary.byte_ids.into_iter().collect(),
        };
        let of_bytes = |m: &Merge| [m.left, m.right, m.merged].iter().any(|id| bytes.contains(id));
        if vocabulary.merges.iter().any(of_bytes) || last.iter().flatten().any(|l| !l.is_whole) {
            return None;
        }
        let happens = last.iter().flatten().filter(|l| l.symbols > 1);
        let pairs = happens.map(|l| (l.pair.0, l.pair.1, self.pairs.rank(l.pair.0, l.pair.1)));
        let mut pairs: Pairs = pairs.filter(|&(.., rank)| rank != NO_RANK).collect();
        pairs.sort_unstable_by_key(|&(.., rank)| rank);
        Some(pairs)
    }

    /// Keeps only these merges, sorted by rank, and numbers them without gaps if each rank belongs
    /// to one merge.
    fn use_only(&mut self, pairs: &mut Pairs) {
        if pairs.windows(2).all(|p| p[0].2 != p[1].2) {
            self.merged = pairs.iter().map(|&(.., rank)| self.merged(rank)).collect();
            (0..).zip(pairs.iter_mut()).for_each(|(rank, pair)| pair.2 = rank);
        }
        self.pairs = PairTable::new(pairs);
        self.build_low_ranks();
    }

    fn build_borders(&mut self, vocabulary: &Vocabulary, bounds: &Bounds) {
        let mut findings = Findings::default();
        let merged: HashSet<u32> = vocabulary.merges.iter().map(|m| m.merged).collect();
        for (id, piece) in &vocabulary.pieces {
            if merged.contains(id) {
                findings.merging.extend(borders::neighbours(piece));
            }
        }
        for code in borders::FIRST..0x1_0000 {
            self.settle(code, bounds, &mut findings);
        }
        self.borders = Borders::new(findings, texts(vocabulary));
    }

    /// Merges the bytes of a character and notes which neighbours could merge with it meanwhile,
    /// and which afterwards.
    fn settle(&self, code: u32, bounds: &Bounds, findings: &mut Findings) {
        let Some(char) = char::from_u32(code) else { return };
        let mut ids = self.symbols_alone(char.to_string().as_bytes());
        let mut rivals = Rivals::default();
        loop {
            let next = self.next_merge(&ids);
            let (first, last) = (ids[0], ids[ids.len() - 1]);
            let until = next.map_or(NO_RANK, |(_, rank)| rank);
            let befores = bounds.befores(first).filter(|&&(rank, _)| rank <= until);
            let afters = bounds.afters(last).filter(|&&(rank, _)| rank <= until);
            let is_over = next.is_none();
            befores.for_each(|(_, side)| rivals.add(*side, is_over, |other| (other, code)));
            afters.for_each(|(_, side)| rivals.add(*side, is_over, |other| (code, other)));
            let Some((at, rank)) = next else { break };
            ids[at] = self.merged(rank);
            ids.remove(at + 1);
        }
        if !rivals.has_parts {
            findings.merging.extend(rivals.merging);
            findings.upsetting.extend(rivals.upsetting);
            findings.settled.push((code, ids));
        }
    }

    /// The pair of the lowest rank, the leftmost first: its place and rank.
    fn next_merge(&self, ids: &[u32]) -> Option<(usize, u32)> {
        let ranks = ids.windows(2).map(|p| self.pairs.rank(p[0], p[1]));
        let best = ranks.enumerate().min_by_key(|&(at, rank)| (rank, at));
        best.filter(|&(_, rank)| rank != NO_RANK)
    }

    /// The smallest symbols of a text.
    fn symbols_alone(&self, text: &[u8]) -> Vec<u32> {
        match self.symbolism {
            Symbolism::Bytes => text.iter().map(|&b| self.byte_ids[b as usize]).collect(),
            Symbolism::Chars => Symbols::new(self, text, 0).map(|(id, _)| id).collect(),
        }
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

    /// `bounds` are those of bytes.
    fn build_chars(&mut self, vocabulary: &Vocabulary, bounds: Option<&Bounds>) {
        for (id, piece) in &vocabulary.pieces {
            let Ok(text) = std::str::from_utf8(piece) else { continue };
            let mut chars = text.chars();
            let (Some(char), None) = (chars.next(), chars.next()) else { continue };
            let code = char as usize;
            if code >= self.chars.len() {
                if bounds.is_none() {
                    self.astral.insert(code as u32, *id);
                }
                continue;
            }
            let is_one = |ids: Vec<u32>| ids == [*id];
            let closes = |bounds| code >= 0x80 && self.settled(piece, bounds).is_some_and(is_one);
            if bounds.is_none_or(closes) {
                self.chars[code] = *id;
            }
        }
    }

    /// What a character becomes before any merge with a neighbour beyond ASCII can happen: at
    /// every step the rank of the next merge inside is below that of every merge that the
    /// outermost symbols have with such neighbours. None otherwise.
    fn settled(&self, piece: &[u8], bounds: &Bounds) -> Option<Vec<u32>> {
        let mut ids = self.symbols_alone(piece);
        while let Some((at, rank)) = self.next_merge(&ids) {
            let (first, last) = (ids[0], ids[ids.len() - 1]);
            let comes_first = |&(other, _): &(u32, Side)| other <= rank;
            if bounds.befores(first).any(comes_first) || bounds.afters(last).any(comes_first) {
                return None;
            }
            ids[at] = self.merged(rank);
            ids.remove(at + 1);
        }
        Some(ids)
    }
}

/// Merges as `(left, right, rank)`.
type Pairs = Vec<(u32, u32, u32)>;

/// How the text of a token becomes that token.
struct Last {
    symbols: usize,
    pair: (u32, u32),
    /// Whether the text is short enough that `pair` is known.
    is_whole: bool,
}

/// The merges of each token with others beyond ASCII.
#[derive(Default)]
struct Bounds {
    /// Of merges `(x, token)` where x ends beyond ASCII: rank, and what x ends with.
    befores: HashMap<u32, Vec<(u32, Side)>>,
    /// Of merges `(token, x)` where x begins with a leading byte: rank, and what x begins with.
    afters: HashMap<u32, Vec<(u32, Side)>>,
}

impl Bounds {
    fn of(pairs: &[(u32, u32, u32)], tokens: &TokenBytes) -> Self {
        let mut bounds = Self::default();
        for &(left, right, rank) in pairs {
            let (x, y) = (tokens.get(left), tokens.get(right));
            if x.last().is_none_or(|&b| b >= 0x80) {
                bounds.befores.entry(right).or_default().push((rank, Side::last(x)));
            }
            if y.first().is_none_or(|&b| b >= 0xc0) {
                bounds.afters.entry(left).or_default().push((rank, Side::first(y)));
            }
        }
        bounds
    }

    fn befores(&self, id: u32) -> impl Iterator<Item = &(u32, Side)> {
        self.befores.get(&id).into_iter().flatten()
    }

    fn afters(&self, id: u32) -> impl Iterator<Item = &(u32, Side)> {
        self.afters.get(&id).into_iter().flatten()
    }
}

/// Neighbours that can merge with a character or with a part of it.
#[derive(Default)]
struct Rivals {
    merging: Vec<(u32, u32)>,
    upsetting: Vec<(u32, u32)>,
    /// Whether the neighbour can be a part of a character, which may be any.
    has_parts: bool,
}

impl Rivals {
    fn add(&mut self, side: Side, is_over: bool, pair: impl FnOnce(u32) -> (u32, u32)) {
        match side {
            Side::Whole(other) if is_over => self.merging.push(pair(other)),
            Side::Whole(other) => self.upsetting.push(pair(other)),
            Side::Part => self.has_parts = true,
            Side::Other => {}
        }
    }
}

fn texts(vocabulary: &Vocabulary) -> impl Iterator<Item = &[u8]> {
    vocabulary.pieces.iter().map(|(_, piece)| piece.as_slice())
}

fn flat(pieces: &[(u32, Vec<u8>)]) -> TokenBytes {
    let ids = pieces.iter().map(|&(id, _)| id as usize + 1).max().unwrap_or(0);
    let mut by_id: Vec<&[u8]> = vec![&[]; ids];
    for (id, piece) in pieces {
        by_id[*id as usize] = piece;
    }
    TokenBytes::new(by_id.into_iter())
}
