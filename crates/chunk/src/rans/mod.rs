//! rANS (Duda, arXiv:1311.2540) over bytes: order 0, 12-bit frequencies, 32-bit states that are
//! renormalised by 16 bits. [`LANES`] states are interleaved, so that one vector instruction
//! advances many of them: symbol i belongs to lane i % LANES.
//!
//! ```text
//! symbols  bitmap of those present   32 bytes
//!          frequency of each         u16 LE, ascending
//! states   of the lanes              u32 LE each
//! words    u16 LE, in the order in which the decoder takes them
//! ```

#[cfg(target_arch = "x86_64")]
mod avx2;
#[cfg(target_arch = "x86_64")]
mod avx512;
mod encoder;
mod tables;

use tables::{Decode, Frequencies, PROB_BITS, TOTAL};

/// Interleaved states.
pub const LANES: usize = 64;

/// States are at least this between symbols, and below `LOWER << 16`.
const LOWER: u32 = 1 << 15;

/// The bytes are not a rANS stream of the length asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("not a rANS stream: {0}")]
pub struct Malformed(&'static str);

impl Malformed {
    /// What is wrong with it.
    pub const fn reason(self) -> &'static str {
        self.0
    }
}

/// Appends the code of `symbols`.
pub fn encode(symbols: &[u8], out: &mut Vec<u8>) {
    encode_with(Kernel::best(), symbols, out);
}

/// As [`encode`], with an instruction set that this processor has.
///
/// # Panics
/// The processor lacks the instruction set.
pub fn encode_with(kernel: Kernel, symbols: &[u8], out: &mut Vec<u8>) {
    assert!(kernel.is_available(), "{kernel:?} is not available");
    let frequencies = Frequencies::of(symbols);
    frequencies.write(out);
    encoder::encode(kernel, &frequencies.encode_table(), symbols, out);
}

/// Writes the symbols whose code `bytes` is, all of them, to `out`.
///
/// # Errors
/// The bytes are not such a code; `out` then holds anything.
pub fn decode(bytes: &[u8], out: &mut [u8]) -> Result<(), Malformed> {
    decode_with(Kernel::best(), bytes, out)
}

/// Instruction sets that encode and decode; each gives the same bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kernel {
    /// Any processor.
    Portable,
    /// 8 lanes at a time.
    #[cfg(target_arch = "x86_64")]
    Avx2,
    /// 16 lanes at a time.
    #[cfg(target_arch = "x86_64")]
    Avx512,
}

impl Kernel {
    const ALL: &[Self] = &[
        Self::Portable,
        #[cfg(target_arch = "x86_64")]
        Self::Avx2,
        #[cfg(target_arch = "x86_64")]
        Self::Avx512,
    ];

    /// All that this processor has, the best one last.
    pub fn available() -> Vec<Self> {
        Self::ALL.iter().copied().filter(|kernel| kernel.is_available()).collect()
    }

    fn is_available(self) -> bool {
        match self {
            Self::Portable => true,
            #[cfg(target_arch = "x86_64")]
            Self::Avx2 => is_x86_feature_detected!("avx2") && is_x86_feature_detected!("popcnt"),
            #[cfg(target_arch = "x86_64")]
            Self::Avx512 => {
                Self::Avx2.is_available()
                    && is_x86_feature_detected!("avx512f")
                    && is_x86_feature_detected!("avx512bw")
            }
        }
    }

    fn best() -> Self {
        let best = Self::ALL.iter().rfind(|kernel| kernel.is_available());
        best.copied().unwrap_or(Self::Portable)
    }
}

/// As [`decode`], with an instruction set that this processor has.
///
/// # Errors
/// As [`decode`].
///
/// # Panics
/// The processor lacks the instruction set.
pub fn decode_with(kernel: Kernel, bytes: &[u8], out: &mut [u8]) -> Result<(), Malformed> {
    assert!(kernel.is_available(), "{kernel:?} is not available");
    let (frequencies, rest) = Frequencies::read(bytes)?;
    let table = frequencies.decode_table();
    let (states, words) =
        rest.split_at_checked(4 * LANES).ok_or(Malformed("it ends within the states"))?;
    let mut lanes = Lanes { states: [0; LANES], words, at: 0 };
    for (x, bytes) in lanes.states.iter_mut().zip(states.as_chunks().0) {
        *x = u32::from_le_bytes(*bytes);
        // From there on they stay within their bounds, whatever the words are.
        if !(LOWER..LOWER << 16).contains(x) {
            return Err(Malformed("a state is out of bounds"));
        }
    }
    let done = match kernel {
        Kernel::Portable => 0,
        // SAFETY: the processor has the instructions: asserted above.
        #[cfg(target_arch = "x86_64")]
        Kernel::Avx2 => unsafe { avx2::decode(&table, &mut lanes, out) },
        // SAFETY: as above.
        #[cfg(target_arch = "x86_64")]
        Kernel::Avx512 => unsafe { avx512::decode(&table, &mut lanes, out) },
    };
    lanes.decode(&table, &mut out[done..])?;
    lanes.check_end()
}

/// Where decoding is.
struct Lanes<'a> {
    states: [u32; LANES],
    words: &'a [u8],
    /// Bytes of `words` that were taken.
    at: usize,
}

impl Lanes<'_> {
    /// Decodes from lane 0 on.
    fn decode(&mut self, table: &Decode, out: &mut [u8]) -> Result<(), Malformed> {
        for round in out.chunks_mut(LANES) {
            for (x, symbol) in self.states.iter_mut().zip(round) {
                let entry = table.0[(*x & (TOTAL - 1)) as usize];
                *symbol = entry as u8;
                *x = (entry >> 8 & 0xfff) * (*x >> PROB_BITS) + (entry >> 20);
                if *x < LOWER {
                    let word = self.words[self.at..].first_chunk();
                    let word = word.ok_or(Malformed("it ends within the words"))?;
                    *x = *x << 16 | u32::from(u16::from_le_bytes(*word));
                    self.at += 2;
                }
            }
        }
        Ok(())
    }

    /// Every word was taken, and all states are what the encoder began with.
    fn check_end(&self) -> Result<(), Malformed> {
        if self.at != self.words.len() {
            return Err(Malformed("words are left"));
        }
        if self.states != [LOWER; LANES] {
            return Err(Malformed("its states do not end as they began"));
        }
        Ok(())
    }
}
