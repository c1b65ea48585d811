//! Encoding goes from the last symbol to the first, so words are written backwards.

use super::tables::{Encode, PROB_BITS, TOTAL};
use super::{Kernel, LANES, LOWER};

/// Where encoding is.
pub(super) struct Encoder<'a> {
    pub states: [u32; LANES],
    /// Two bytes for each symbol: none gives off more than one word.
    pub words: &'a mut [u8],
    /// The words are behind this byte.
    pub at: usize,
}

/// Appends states and words.
pub(super) fn encode(kernel: Kernel, table: &Encode, symbols: &[u8], out: &mut Vec<u8>) {
    let from = out.len();
    let words_from = from + 4 * LANES;
    out.resize(words_from + 2 * symbols.len(), 0);
    let words = &mut out[words_from..];
    let at = words.len();
    let mut encoder = Encoder { states: [LOWER; LANES], words, at };
    let (rounds, rest) = symbols.as_chunks::<LANES>();
    encoder.encode(table, rest);
    match kernel {
        Kernel::Portable => rounds.iter().rev().for_each(|round| encoder.encode(table, round)),
        // SAFETY: the processor has the instructions, as the caller has asserted.
        #[cfg(target_arch = "x86_64")]
        Kernel::Avx2 => unsafe { super::avx2::encode(table, &mut encoder, rounds) },
        // SAFETY: as above.
        #[cfg(target_arch = "x86_64")]
        Kernel::Avx512 => unsafe { super::avx512::encode(table, &mut encoder, rounds) },
    }
    let Encoder { states, at, .. } = encoder;
    for (bytes, x) in out[from..].as_chunks_mut().0.iter_mut().zip(states) {
        *bytes = x.to_le_bytes();
    }
    out.copy_within(words_from + at.., words_from);
    out.truncate(out.len() - at);
}

impl Encoder<'_> {
    /// One round or less.
    fn encode(&mut self, table: &Encode, round: &[u8]) {
        for (x, symbol) in self.states.iter_mut().zip(round).rev() {
            let entry = table.0[usize::from(*symbol)];
            let (frequency, start) = (entry >> 32 & 0xfff, entry >> 44 & 0xfff);
            // The state after this symbol must stay below LOWER << 16.
            if u64::from(*x) >= frequency << SHIFT {
                self.at -= 2;
                self.words[self.at..][..2].copy_from_slice(&(*x as u16).to_le_bytes());
                *x >>= 16;
            }
            let quotient = (u64::from(*x) * (entry & 0xffff_ffff)) >> (entry >> 56);
            // As (quotient << PROB_BITS) + x % frequency + start.
            *x += (quotient * (u64::from(TOTAL) - frequency) + start) as u32;
        }
    }
}

/// A state of a frequency, shifted by this, or above it gives off a word.
pub(super) const SHIFT: u32 = LOWER.trailing_zeros() - PROB_BITS + 16;
