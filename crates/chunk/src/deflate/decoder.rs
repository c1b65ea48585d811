//! Streams of literals in turns: while the look-up of one stream's symbol is under way, those of
//! the other streams are too.

use super::STREAMS;
use super::code;
use super::header::{Bits, END, Header};

/// Bits of the longest literal that is decoded here.
pub(super) const TABLE_BITS: usize = 11;

/// Of the longest literals, those that fit into a word of which up to 7 bits were taken before, and
/// whose highest bit is taken too.
const ROUND: usize = 5;
const _: () = assert!(ROUND * TABLE_BITS + 7 < 64);

/// By the next bits: the length of a literal's code, and above it the literal. What is no literal
/// has length 0, so that the next look-up finds it again.
pub(super) struct Table([u16; 1 << TABLE_BITS]);

/// An entry: the block ends.
const ENDS: u16 = 1 << 8;
/// An entry: a match, or nothing.
const OTHER: u16 = 0;

impl Default for Table {
    fn default() -> Self {
        Self([OTHER; 1 << TABLE_BITS])
    }
}

impl Table {
    fn fill(&mut self, lengths: &[u8]) -> Option<()> {
        code::fill(&mut self.0, lengths, |symbol, length| match symbol {
            0..END => (symbol << 8 | length) as u16,
            END => ENDS,
            _ => OTHER,
        })
    }

    #[inline(always)]
    fn entry(&self, bits: u64) -> u16 {
        self.0[bits as usize % self.0.len()]
    }
}

/// Of an entry. One instruction less than a byte: a shift looks at as many bits.
#[inline(always)]
fn length(entry: u16) -> u32 {
    u32::from(entry) % u64::BITS
}

/// Fills all pieces. None: the streams are not blocks of literals, one each, with the same code.
pub(super) fn decode(
    streams: [&[u8]; STREAMS],
    table: &mut Table,
    mut pieces: [&mut [u8]; STREAMS],
) -> Option<()> {
    let header = Header::read(streams[0])?;
    if !streams[1..].iter().all(|stream| begin_alike(streams[0], stream, header.bits)) {
        return None;
    }
    table.fill(&header.lengths)?;
    let mut lanes = streams.map(|bytes| Bits { bytes, at: header.bits });
    let done = turns(table, &mut lanes, &mut pieces)?;
    for (lane, piece) in lanes.iter_mut().zip(pieces) {
        finish(table, lane, &mut piece[done..], usize::from(header.lengths[END]))?;
    }
    Some(())
}

/// `bits` are no more than `stream` has.
fn begin_alike(stream: &[u8], other: &[u8], bits: usize) -> bool {
    let (whole, rest) = (bits / 8, bits % 8);
    other.len() * 8 >= bits
        && stream[..whole] == other[..whole]
        && (rest == 0 || (stream[whole] ^ other[whole]) << (8 - rest) == 0)
}

/// What is left of a piece, and the end of its block.
fn finish(table: &Table, lane: &mut Bits<'_>, piece: &mut [u8], end_length: usize) -> Option<()> {
    for literal in piece {
        let entry = table.entry(lane.peek());
        if entry == ENDS || entry == OTHER {
            return None;
        }
        *literal = (entry >> 8) as u8;
        lane.at += length(entry) as usize;
    }
    let ends = table.entry(lane.peek()) == ENDS;
    (ends && lane.at + end_length <= 8 * lane.bytes.len()).then_some(())
}

/// Decodes as many literals of each piece while there are whole rounds of them, and whole words of
/// their streams; returns how many. None: there was something else.
fn turns(
    table: &Table,
    lanes: &mut [Bits<'_>; STREAMS],
    pieces: &mut [&mut [u8]; STREAMS],
) -> Option<usize> {
    #[cfg(target_arch = "x86_64")]
    {
        #[target_feature(enable = "bmi1,bmi2,lzcnt")]
        fn with_bmi2(
            table: &Table,
            lanes: &mut [Bits<'_>; STREAMS],
            pieces: &mut [&mut [u8]; STREAMS],
        ) -> Option<usize> {
            turns_here(table, lanes, pieces)
        }
        if is_x86_feature_detected!("bmi1")
            && is_x86_feature_detected!("bmi2")
            && is_x86_feature_detected!("lzcnt")
        {
            // SAFETY: the processor has these instructions.
            return unsafe { with_bmi2(table, lanes, pieces) };
        }
    }
    turns_here(table, lanes, pieces)
}

#[inline(always)]
fn turns_here(
    table: &Table,
    lanes: &mut [Bits<'_>; STREAMS],
    pieces: &mut [&mut [u8]; STREAMS],
) -> Option<usize> {
    let streams = lanes.each_ref().map(|lane| lane.bytes);
    let mut at = lanes.each_ref().map(|lane| lane.at);
    let mut done = 0;
    let [a, b, c, d] = pieces.each_mut().map(|piece| piece.as_chunks_mut::<ROUND>().0);
    for (((a, b), c), d) in a.iter_mut().zip(b).zip(c).zip(d) {
        let Some(mut words) = next_words(&streams, &at) else { break };
        let mut round = [a, b, c, d];
        let mut last = [OTHER; STREAMS];
        for i in 0..ROUND {
            for ((word, literals), last) in words.iter_mut().zip(&mut round).zip(&mut last) {
                *last = table.entry(*word);
                literals[i] = (*last >> 8) as u8;
                *word >>= length(*last);
            }
        }
        if last.iter().any(|entry| length(*entry) == 0) {
            return None;
        }
        for (at, word) in at.iter_mut().zip(words) {
            *at += word.leading_zeros() as usize;
        }
        done += ROUND;
    }
    for (lane, at) in lanes.iter_mut().zip(at) {
        lane.at = at;
    }
    Some(done)
}

/// Of each stream its next bits, and above them one that tells how far they were shifted. None: a
/// stream has no whole word left.
#[inline(always)]
fn next_words(streams: &[&[u8]; STREAMS], at: &[usize; STREAMS]) -> Option<[u64; STREAMS]> {
    let mut words = [0; STREAMS];
    for ((word, stream), at) in words.iter_mut().zip(streams).zip(at) {
        let bytes = stream.get(at / 8..)?.first_chunk()?;
        *word = u64::from_le_bytes(*bytes) >> (at % 8) | 1 << 63;
    }
    Some(words)
}
