//! Where a piece of Chinese, Japanese or Korean text falls apart: borders of characters that no
//! merge can cross, and what a character between two such borders becomes.
//!
//! A character is settled if all merges of its own bytes come before any with its neighbours. A
//! neighbour with which that is not so upsets it. Between two settled characters that nothing
//! upsets, only what they have become can merge: where no token holds both, and no merge takes one
//! of their outermost tokens with the other character, the texts on both sides are encoded as if
//! each were alone. Only characters of three bytes are looked at: in alphabets, every pair of
//! letters is in some token.

use std::collections::HashSet;

use super::NONE;

const MULTIPLIER: u64 = 0x9e37_79b9_7f4a_7c15;
const ID_BITS: u32 = super::pairs::ID_BITS;
const ID_MASK: u64 = (1 << ID_BITS) - 1;
/// Nothing is known about this character.
const UNSETTLED: u64 = 1 << 63;
const COUNT_SHIFT: u32 = 60;
/// First character of three bytes.
pub const FIRST: u32 = 0x800;

/// See the module.
pub struct Borders {
    /// `[0x10000]`: flag, number of tokens, and up to three tokens of [`ID_BITS`] each.
    chars: Vec<u64>,
    /// Pairs that may merge, and pairs of which one upsets the other.
    merging: Filter,
    upsetting: Filter,
}

/// A set of pairs of characters, one bit each by hash: may hold others as well.
struct Filter {
    bits: Vec<u64>,
    shift: u32,
}

impl Filter {
    fn new(pairs: &HashSet<(u32, u32)>) -> Self {
        const BITS_PER_PAIR: usize = 16;
        let words = (pairs.len() * BITS_PER_PAIR / 64).next_power_of_two().max(64);
        let mut filter = Self { bits: vec![0; words], shift: 64 - (words * 64).ilog2() };
        for &(left, right) in pairs {
            let (word, bit) = filter.place(left, right);
            filter.bits[word] |= bit;
        }
        filter
    }

    #[inline(always)]
    fn place(&self, left: u32, right: u32) -> (usize, u64) {
        let key = u64::from(left) << 21 | u64::from(right);
        let hash = key.wrapping_mul(MULTIPLIER) >> self.shift;
        ((hash / 64) as usize, 1 << (hash % 64))
    }

    #[inline(always)]
    fn may_hold(&self, left: Char, right: Char) -> bool {
        let (word, bit) = self.place(left.code, right.code);
        self.bits[word & (self.bits.len() - 1)] & bit != 0
    }
}

/// What is known about characters before [`Borders`] are made of it.
#[derive(Default)]
pub struct Findings {
    /// Settled characters and their tokens.
    pub settled: Vec<(u32, Vec<u32>)>,
    /// Pairs that may merge once both are settled.
    pub merging: HashSet<(u32, u32)>,
    /// Pairs of which one may merge with the other before it is settled.
    pub upsetting: HashSet<(u32, u32)>,
}

impl Borders {
    /// From what was found.
    pub fn new(mut findings: Findings) -> Self {
        let mut chars = vec![UNSETTLED; 0x1_0000];
        for (code, ids) in &findings.settled {
            if (1..=3).contains(&ids.len()) {
                let packed = ids.iter().enumerate();
                let packed = packed.map(|(i, &id)| u64::from(id) << (i as u32 * ID_BITS));
                chars[*code as usize & 0xffff] =
                    (ids.len() as u64) << COUNT_SHIFT | packed.fold(0, |all, id| all | id);
            }
        }
        findings.merging.extend(&findings.upsetting);
        let merging = Filter::new(&findings.merging);
        Self { chars, merging, upsetting: Filter::new(&findings.upsetting) }
    }

    /// What is known about a character below U+10000.
    #[inline(always)]
    pub fn char(&self, code: u32) -> Char {
        Char { code, bits: self.chars[code as usize & 0xffff] }
    }

    /// Whether no merge crosses the border of these two characters, if nothing else upsets them.
    #[inline(always)]
    pub fn divides(&self, left: Char, right: Char) -> bool {
        (left.bits | right.bits) & UNSETTLED == 0 && !self.merging.may_hold(left, right)
    }

    /// Whether one of the two may be upset by the other.
    #[inline(always)]
    pub fn upsets(&self, left: Char, right: Char) -> bool {
        self.upsetting.may_hold(left, right)
    }

    /// Bytes of memory.
    pub fn memory(&self) -> usize {
        let filters = self.merging.bits.len() + self.upsetting.bits.len();
        (self.chars.len() + filters) * size_of::<u64>()
    }
}

/// An entry of [`Borders`].
#[derive(Clone, Copy)]
pub struct Char {
    code: u32,
    bits: u64,
}

impl Char {
    /// Whether this is a character, and not [`NO_CHAR`].
    #[inline(always)]
    pub fn is_some(self) -> bool {
        self.code != NONE
    }

    /// Appends what the character becomes on its own; false if that is not known.
    #[inline(always)]
    pub fn push(self, out: &mut Vec<u32>) -> bool {
        let count = if self.bits & UNSETTLED == 0 { self.bits >> COUNT_SHIFT & 3 } else { 0 };
        (0..count).for_each(|i| out.push((self.bits >> (i as u32 * ID_BITS) & ID_MASK) as u32));
        count > 0
    }
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

/// Pairs of whole characters that stand next to each other in `token`.
pub fn neighbours(token: &[u8]) -> impl Iterator<Item = (u32, u32)> + '_ {
    (1..token.len()).filter_map(|at| match (Side::last(&token[..at]), Side::first(&token[at..])) {
        (Side::Whole(left), Side::Whole(right)) => Some((left, right)),
        _ => None,
    })
}

/// No entry: what stands before the first character of a piece.
pub const NO_CHAR: Char = Char { code: NONE, bits: UNSETTLED };
