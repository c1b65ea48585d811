//! What is in front of a dynamic block's symbols: the lengths of its codes.

use super::code::{self, MAX_SYMBOLS};

/// The last block, and it has codes of its own.
pub(super) const LAST_DYNAMIC: u64 = 0b101;
/// Literals, and the end of the block behind them.
pub(super) const END: usize = 256;
const MAX_DISTANCES: usize = 32;

/// The lengths are coded too. That code's lengths come in this order, 3 bits each.
pub(super) const ORDER: [usize; 19] =
    [16, 17, 18, 0, 8, 7, 9, 6, 10, 5, 11, 4, 12, 3, 13, 2, 14, 1, 15];
pub(super) const MAX_ORDER_LENGTH: usize = 7;
/// Of the last length, and of zeros: 3 and more, in 2, 3 and 7 bits.
pub(super) const REPEAT: usize = 16;
pub(super) const FEW_ZEROS: usize = 17;
pub(super) const MANY_ZEROS: usize = 18;

pub(super) struct Header {
    /// Of literals, the end and matches.
    pub lengths: [u8; MAX_SYMBOLS],
    /// Of the header.
    pub bits: usize,
}

impl Header {
    /// Of a stream that is one block, with complete codes. None: it is something else, which may
    /// be no less right.
    pub fn read(stream: &[u8]) -> Option<Self> {
        let mut bits = Bits { bytes: stream, at: 0 };
        if bits.take(3) as u64 != LAST_DYNAMIC {
            return None;
        }
        let num_literals = END + 1 + bits.take(5);
        let all = num_literals + 1 + bits.take(5);
        let num_orders = 4 + bits.take(4);
        let mut orders = [0; ORDER.len()];
        for symbol in &ORDER[..num_orders] {
            orders[*symbol] = bits.take(3) as u8;
        }
        let mut table = [0; 1 << MAX_ORDER_LENGTH];
        code::fill(&mut table, &orders, |symbol, length| (symbol << 8 | length) as u16)?;
        let mut lengths = [0; MAX_SYMBOLS + MAX_DISTANCES];
        let mut at = 0;
        while at < all {
            let entry = usize::from(table[bits.peek() as usize % table.len()]);
            bits.at += entry & 0xff;
            let (length, times) = match entry >> 8 {
                REPEAT => (*lengths[..at].last()?, 3 + bits.take(2)),
                FEW_ZEROS => (0, 3 + bits.take(3)),
                MANY_ZEROS => (0, 11 + bits.take(7)),
                length => (length as u8, 1),
            };
            lengths[..all].get_mut(at..at + times)?.fill(length);
            at += times;
        }
        let (literals, distances) = lengths[..all].split_at(num_literals);
        if !code::is_valid(distances) || bits.at > 8 * stream.len() {
            return None;
        }
        let mut header = Self { lengths: [0; MAX_SYMBOLS], bits: bits.at };
        header.lengths[..num_literals].copy_from_slice(literals);
        Some(header)
    }
}

/// Reads bits, lowest first; behind the last byte there are zeros.
pub(super) struct Bits<'a> {
    pub bytes: &'a [u8],
    /// Bits that were taken.
    pub at: usize,
}

impl Bits<'_> {
    /// At least 57 bits, and any others.
    #[inline]
    pub fn peek(&self) -> u64 {
        let rest = self.bytes.get(self.at / 8..).unwrap_or_default();
        let word = rest.first_chunk().copied().unwrap_or_else(|| {
            let mut word = [0; 8];
            word[..rest.len()].copy_from_slice(rest);
            word
        });
        u64::from_le_bytes(word) >> (self.at % 8)
    }

    fn take(&mut self, count: usize) -> usize {
        let bits = self.peek() & ((1 << count) - 1);
        self.at += count;
        bits as usize
    }
}
