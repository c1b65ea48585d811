//! Streams of one block of literals.

use super::code;
use super::decoder::TABLE_BITS;
use super::header::{END, FEW_ZEROS, LAST_DYNAMIC, MANY_ZEROS, MAX_ORDER_LENGTH, ORDER, REPEAT};

/// Literals whose words fit behind the 7 bits that a flush leaves.
const ROUND: usize = 5;
const _: () = assert!(ROUND * TABLE_BITS + 7 < 64);

/// Two words of one bit that no block uses: some decoders refuse an empty code.
const DISTANCES: [u8; 2] = [1, 1];

/// Lengths in a header, of literals, the end, and distances.
const NUM_LENGTHS: usize = END + 1 + DISTANCES.len();

/// A plane counts as repetitive if more than one in this many words repeats.
const FEW: usize = 16;

/// Many words of 8 bytes are among those before them. Not all are found.
pub(super) fn has_repetitions(bytes: &[u8]) -> bool {
    const SLOT_BITS: u32 = 9;
    let mut slots = [0; 1 << SLOT_BITS];
    let words = bytes.as_chunks().0;
    let mut found = 0;
    for word in words {
        let word = u64::from_le_bytes(*word);
        let hash = word.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> (u64::BITS - SLOT_BITS);
        let slot = &mut slots[hash as usize];
        found += usize::from(*slot == word);
        *slot = word;
    }
    found * FEW > words.len()
}

/// A code for literals and the end of a block.
pub(super) struct LiteralCode {
    /// A word, and its length above [`LENGTH_SHIFT`].
    words: [u32; END + 1],
    /// What is in front of the block, and how many bits of it.
    header: [u8; MAX_HEADER_BYTES],
    header_bits: usize,
}

const LENGTH_SHIFT: u32 = 16;
/// Each length takes as many bits as the longest of their words at most: a repetition has more, in
/// place of three at least. In front of them are numbers of 17 bits, and lengths of lengths; behind
/// them, what a flush writes.
const MAX_HEADER_BYTES: usize =
    (17 + 3 * ORDER.len() + MAX_ORDER_LENGTH * NUM_LENGTHS).div_ceil(8) + 8;

impl LiteralCode {
    /// That is best for `bytes`, or nearly so. There are some.
    pub fn of(bytes: &[u8]) -> Self {
        let mut lengths = [0; NUM_LENGTHS];
        code::lengths_of(&frequencies(bytes), TABLE_BITS, &mut lengths[..=END]);
        lengths[END + 1..].copy_from_slice(&DISTANCES);
        let mut header = [0; MAX_HEADER_BYTES];
        let header_bits = write_header(&lengths, &mut header);
        Self { words: words_of(&lengths[..=END]), header, header_bits }
    }

    /// Appends the stream of `literals`.
    pub fn encode(&self, literals: &[u8], out: &mut Vec<u8>) {
        let from = out.len();
        let bits = self.header_bits + (literals.len() + 1) * TABLE_BITS;
        // The last flush writes a whole word.
        out.resize(from + bits.div_ceil(8) + 8, 0);
        let mut writer = Writer::new(&mut out[from..]);
        let (whole, rest) = self.header.split_at(self.header_bits / 8);
        writer.out[..whole.len()].copy_from_slice(whole);
        writer.at = whole.len();
        let rest_bits = self.header_bits % 8;
        writer.put(u64::from(rest[0]) & ((1 << rest_bits) - 1), rest_bits as u32);
        let (rounds, rest) = literals.as_chunks::<ROUND>();
        for round in rounds {
            for literal in round {
                writer.put_word(self.words[usize::from(*literal)]);
            }
            writer.flush();
        }
        for literal in rest {
            writer.put_word(self.words[usize::from(*literal)]);
        }
        writer.flush();
        writer.put_word(self.words[END]);
        let bits = writer.bits();
        out.truncate(from + bits.div_ceil(8));
    }
}

/// Of literals, and one end.
fn frequencies(bytes: &[u8]) -> [u32; END + 1] {
    // A counter is not found again before it was written.
    let mut counters = [[0_u32; 256]; 4];
    let (rounds, rest) = bytes.as_chunks::<4>();
    for round in rounds {
        for (counters, byte) in counters.iter_mut().zip(round) {
            counters[usize::from(*byte)] += 1;
        }
    }
    rest.iter().for_each(|byte| counters[0][usize::from(*byte)] += 1);
    std::array::from_fn(|symbol| match symbol {
        END => 1,
        _ => counters.iter().map(|counters| counters[symbol]).sum(),
    })
}

fn words_of<const N: usize>(lengths: &[u8]) -> [u32; N] {
    let mut words = [0; N];
    let complete = code::words(lengths, TABLE_BITS, |symbol, word, length| {
        words[symbol] = word as u32 | (length as u32) << LENGTH_SHIFT;
    });
    debug_assert!(complete.is_some(), "Huffman codes are complete");
    words
}

/// Returns its bits.
fn write_header(lengths: &[u8; NUM_LENGTHS], header: &mut [u8]) -> usize {
    let (mut runs, mut num_runs) = ([Run::default(); NUM_LENGTHS], 0);
    let mut frequencies = [0; ORDER.len()];
    for equal in lengths.chunk_by(|a, b| a == b) {
        let mut left = equal.len();
        while left > 0 {
            let (run, length) = Run::of(equal[0], left, left == equal.len());
            frequencies[run.symbol] += 1;
            runs[num_runs] = run;
            num_runs += 1;
            left -= length;
        }
    }
    let mut orders = [0; ORDER.len()];
    code::lengths_of(&frequencies, MAX_ORDER_LENGTH, &mut orders);
    let words: [u32; ORDER.len()] = words_of(&orders);
    let mut writer = Writer::new(header);
    writer.put(LAST_DYNAMIC, 3);
    writer.put(0, 5); // no matches
    writer.put(DISTANCES.len() as u64 - 1, 5);
    writer.put(ORDER.len() as u64 - 4, 4);
    for symbol in ORDER {
        writer.put(u64::from(orders[symbol]), 3);
        writer.flush();
    }
    for run in &runs[..num_runs] {
        writer.put_word(words[run.symbol]);
        writer.put(run.extra as u64, run.extra_bits);
        writer.flush();
    }
    writer.bits()
}

/// Equal lengths, or one.
#[derive(Clone, Copy, Default)]
struct Run {
    symbol: usize,
    extra: usize,
    extra_bits: u32,
}

impl Run {
    /// The longest of at most `most` times this length, and how many those are. Zeros repeat
    /// themselves; others what was before them, if that is not `first`.
    fn of(length: u8, most: usize, first: bool) -> (Self, usize) {
        let new = |symbol, least, extra_bits, longest: usize| {
            let run = most.min(longest);
            (Self { symbol, extra: run - least, extra_bits }, run)
        };
        match (length, most) {
            (0, 11..) => new(MANY_ZEROS, 11, 7, 138),
            (0, 3..) => new(FEW_ZEROS, 3, 3, 10),
            (1.., 3..) if !first => new(REPEAT, 3, 2, 6),
            _ => (Self { symbol: usize::from(length), ..Self::default() }, 1),
        }
    }
}

/// Writes bits, lowest first.
struct Writer<'a> {
    out: &'a mut [u8],
    at: usize,
    word: u64,
    count: u32,
}

impl<'a> Writer<'a> {
    fn new(out: &'a mut [u8]) -> Self {
        Self { out, at: 0, word: 0, count: 0 }
    }

    /// No more than 57 bits before a flush.
    #[inline(always)]
    fn put(&mut self, bits: u64, count: u32) {
        self.word |= bits << self.count;
        self.count += count;
    }

    #[inline(always)]
    fn put_word(&mut self, word: u32) {
        self.put(u64::from(word & ((1 << LENGTH_SHIFT) - 1)), word >> LENGTH_SHIFT);
    }

    /// Leaves up to 7 bits. There is room for a whole word.
    #[inline(always)]
    fn flush(&mut self) {
        self.out[self.at..][..8].copy_from_slice(&self.word.to_le_bytes());
        self.at += (self.count / 8) as usize;
        self.word >>= self.count / 8 * 8;
        self.count %= 8;
    }

    /// All that were written.
    fn bits(&mut self) -> usize {
        self.flush();
        8 * self.at + self.count as usize
    }
}
