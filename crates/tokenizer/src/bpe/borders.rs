//! Where a piece of Chinese, Japanese or Korean text splits: borders of characters that no merge
//! can cross, and the tokens of a character between two such borders.
//!
//! A character is settled if all merges of its own bytes come before any with its neighbours. A
//! neighbour that breaks this rule upsets it. Between two settled characters that nothing upsets,
//! only their tokens can merge: if no token holds both characters, and no merge takes one of their
//! outermost tokens with the other character, the texts on both sides are encoded as if each were
//! alone. Only characters of three bytes are considered: in alphabets, every pair of letters is in
//! some token.

use std::collections::HashSet;

use crate::simd::{self, BLOCK, CharSet, Isa, PairFilter};

/// First character of three bytes.
pub const FIRST: u32 = 0x800;
/// Most tokens of a character whose tokens are known.
const MAX_IDS: usize = 3;
const COUNT: u32 = 3;
const LENGTH_SHIFT: u32 = 8;

/// What a character becomes: 16 bytes, read and written as one.
#[derive(Clone, Copy, Default)]
#[repr(C, align(16))]
struct Entry {
    ids: [u32; MAX_IDS],
    /// `longest << 8 | count`: number of tokens, 0 if they are not known; bytes of the longest
    /// token that begins with the character, 0 if there is none.
    meta: u32,
}

/// See the module.
pub struct Borders {
    /// `[0x10000]`.
    chars: Vec<Entry>,
    unsettled: CharSet,
    /// Pairs that may merge, and pairs where one upsets the other.
    merging: PairFilter,
    upsetting: PairFilter,
}

/// What is known about characters before [`Borders`] is built from it.
#[derive(Default)]
pub struct Findings {
    /// Settled characters and their tokens.
    pub settled: Vec<(u32, Vec<u32>)>,
    /// Pairs that may merge once both are settled.
    pub merging: HashSet<(u32, u32)>,
    /// Pairs where one may merge with the other before it is settled.
    pub upsetting: HashSet<(u32, u32)>,
}

impl Borders {
    /// From what was found; `tokens` are all texts that a piece can become.
    pub fn new<'a>(mut findings: Findings, tokens: impl Iterator<Item = &'a [u8]>) -> Self {
        let mut chars = vec![Entry::default(); 0x1_0000];
        let mut unsettled = CharSet::full();
        for (code, ids) in &findings.settled {
            if (1..=MAX_IDS).contains(&ids.len()) {
                let entry = &mut chars[*code as usize & 0xffff];
                entry.ids[..ids.len()].copy_from_slice(ids);
                entry.meta = ids.len() as u32;
                unsettled.remove(*code);
            }
        }
        for token in tokens {
            if let Some(code) = first_wide(token) {
                let meta = &mut chars[code as usize & 0xffff].meta;
                let longest = (*meta >> LENGTH_SHIFT).max(token.len() as u32);
                *meta = longest << LENGTH_SHIFT | *meta & COUNT;
            }
        }
        findings.merging.extend(&findings.upsetting);
        let filter = |pairs: &HashSet<_>| PairFilter::new(pairs.iter().copied());
        let (merging, upsetting) = (filter(&findings.merging), filter(&findings.upsetting));
        Self { chars, unsettled, merging, upsetting }
    }

    /// Bit `i`: nothing is known about `codes[i]`.
    ///
    /// # Safety
    /// The machine must have `S`.
    #[inline(always)]
    pub unsafe fn unsettled<S: Isa>(&self, codes: &[u32; BLOCK]) -> u16 {
        // SAFETY: the caller's contract.
        unsafe { S::chars_in(&self.unsettled, codes) }
    }

    /// Bit `i`: a merge may cross the border of `codes[i]` and `codes[i + 1]` although both are
    /// settled.
    ///
    /// # Safety
    /// The machine must have `S`.
    #[inline(always)]
    pub unsafe fn merge<S: Isa>(&self, codes: &[u32; BLOCK + 1]) -> u16 {
        // SAFETY: the caller's contract.
        unsafe { S::pairs_in(&self.merging, codes) }
    }

    /// Bit `i`: one of `codes[i]` and `codes[i + 1]` may be upset by the other.
    ///
    /// # Safety
    /// The machine must have `S`.
    #[inline(always)]
    pub unsafe fn upset<S: Isa>(&self, codes: &[u32; BLOCK + 1]) -> u16 {
        // SAFETY: the caller's contract.
        unsafe { S::pairs_in(&self.upsetting, codes) }
    }

    /// Appends the tokens of each of `codes` on its own; all are settled.
    #[inline(always)]
    pub fn push(&self, codes: &[u32], out: &mut Vec<u32>) {
        out.reserve(codes.len() * MAX_IDS + 1);
        let (mut len, tokens) = (out.len(), out.as_mut_ptr());
        for &code in codes {
            let entry = self.chars[code as usize & 0xffff];
            // SAFETY: at most three words are added per code, and there is room for one more: the
            // meta word, which the next tokens overwrite, or which is cut off.
            unsafe { tokens.add(len).cast::<Entry>().write_unaligned(entry) };
            len += (entry.meta & COUNT) as usize;
        }
        // SAFETY: all up to here has been written.
        unsafe { out.set_len(len) };
    }

    /// Bytes of the longest token that begins with the character `code`; 0 if there is none.
    #[inline(always)]
    pub fn longest(&self, code: u32) -> usize {
        (self.chars[code as usize & 0xffff].meta >> LENGTH_SHIFT) as usize
    }

    /// Bytes of memory.
    pub fn memory(&self) -> usize {
        self.chars.len() * size_of::<Entry>()
            + self.unsettled.memory()
            + self.merging.memory()
            + self.upsetting.memory()
    }
}

/// The character of three bytes that `token` begins with.
fn first_wide(token: &[u8]) -> Option<u32> {
    token.first_chunk::<3>().filter(|char| simd::is_wide(char[0])).map(|&char| simd::decode(char))
}

/// A side of a border.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Side {
    /// A whole character of three bytes.
    Whole(u32),
    /// A part of one, or of another.
    Part,
    /// Anything else.
    Other,
}

impl Side {
    /// The character that `bytes` end with.
    pub fn last(bytes: &[u8]) -> Self {
        match bytes.iter().rev().take(4).position(|&b| b & 0xc0 != 0x80) {
            Some(0) if bytes.last().is_some_and(|&b| b >= 0xc0) => Self::Part,
            Some(back) => Self::first(&bytes[bytes.len() - 1 - back..]).whole(),
            None => Self::Part,
        }
    }

    /// The character that `bytes` begin with.
    pub fn first(bytes: &[u8]) -> Self {
        let Some(0xc0..) = bytes.first() else { return Self::Other };
        let chunk = bytes.utf8_chunks().next();
        match chunk.and_then(|chunk| chunk.valid().chars().next()) {
            Some(char) if char.len_utf8() == 3 => Self::Whole(u32::from(char)),
            Some(_) => Self::Other,
            None => Self::Part,
        }
    }

    /// What is no whole character here is in no text.
    fn whole(self) -> Self {
        if self == Self::Part { Self::Other } else { self }
    }
}

/// Pairs of adjacent whole characters in `token`.
pub fn neighbours(token: &[u8]) -> impl Iterator<Item = (u32, u32)> + '_ {
    (1..token.len()).filter_map(|at| match (Side::last(&token[..at]), Side::first(&token[at..])) {
        (Side::Whole(left), Side::Whole(right)) => Some((left, right)),
        _ => None,
    })
}
