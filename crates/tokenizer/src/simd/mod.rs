//! Scans of ASCII runs and the search for the best merge, once per instruction set. `Scalar` is
//! the specification: tests run every other set against it.

mod wide;

pub use wide::{BLOCK, CharSet, PairFilter, Wide, decode, is_wide};

/// Ranks of the pairs of a short piece, packed with their place: see `bpe::short`.
pub const MAX_KEYS: usize = 256;

/// Slots of a lane: see `bpe::lanes`.
pub const SLOTS: usize = 32;

/// One instruction set.
///
/// # Safety
/// The methods may be called only on a machine that has the instruction set.
pub unsafe trait Isa: Wide {
    /// Runs `f` compiled for the instruction set, as far as its calls are inlined.
    ///
    /// # Safety
    /// See the trait.
    unsafe fn vectorize<R>(f: impl FnOnce() -> R) -> R;
    /// Prefetches the cache line of `address`, which need not be valid.
    ///
    /// # Safety
    /// See the trait.
    unsafe fn prefetch<T>(address: *const T);
    /// How many bytes from `pos` on are not spaces.
    ///
    /// # Safety
    /// See the trait.
    unsafe fn solid(text: &[u8], pos: usize) -> usize;
    /// How many bytes from `pos` on are ASCII letters.
    ///
    /// # Safety
    /// See the trait.
    unsafe fn letters(text: &[u8], pos: usize) -> usize;
    /// How many bytes from `pos` on are lower-case ASCII letters.
    ///
    /// # Safety
    /// See the trait.
    unsafe fn lower(text: &[u8], pos: usize) -> usize;
    /// How many bytes from `pos` on are ASCII and neither letter, digit nor white space.
    ///
    /// # Safety
    /// See the trait.
    unsafe fn marks(text: &[u8], pos: usize) -> usize;
    /// How many bytes from `pos` on are spaces.
    ///
    /// # Safety
    /// See the trait.
    unsafe fn spaces(text: &[u8], pos: usize) -> usize;
    /// The smallest of the first `len` keys; the keys from `len` to the next multiple of 16 are
    /// `u32::MAX`.
    ///
    /// # Safety
    /// See the trait.
    unsafe fn min_key(keys: &[u32; MAX_KEYS], len: usize) -> u32;
    /// The smallest key of a lane.
    ///
    /// # Safety
    /// See the trait.
    unsafe fn min_of_slots(keys: &[u32; SLOTS]) -> u32;
}

fn is_mark(byte: u8) -> bool {
    byte.is_ascii() && !byte.is_ascii_alphanumeric() && !matches!(byte, b' ' | 9..=13)
}

#[inline(always)]
fn run(text: &[u8], pos: usize, is_in: impl Fn(u8) -> bool) -> usize {
    let rest = text.get(pos..).unwrap_or_default();
    rest.iter().position(|&b| !is_in(b)).unwrap_or(rest.len())
}

/// Portable code; also what the vector sets use for the last bytes of a text.
#[derive(Clone, Copy)]
pub struct Scalar;

// SAFETY: needs no instruction beyond the compilation target's.
unsafe impl Wide for Scalar {}

// SAFETY: as above.
unsafe impl Isa for Scalar {
    #[inline(always)]
    unsafe fn vectorize<R>(f: impl FnOnce() -> R) -> R {
        f()
    }

    #[inline(always)]
    unsafe fn prefetch<T>(_address: *const T) {}

    #[inline(always)]
    unsafe fn solid(text: &[u8], pos: usize) -> usize {
        run(text, pos, |b| b != b' ')
    }

    #[inline(always)]
    unsafe fn letters(text: &[u8], pos: usize) -> usize {
        run(text, pos, |b| b.is_ascii_alphabetic())
    }

    #[inline(always)]
    unsafe fn lower(text: &[u8], pos: usize) -> usize {
        run(text, pos, |b| b.is_ascii_lowercase())
    }

    #[inline(always)]
    unsafe fn marks(text: &[u8], pos: usize) -> usize {
        run(text, pos, is_mark)
    }

    #[inline(always)]
    unsafe fn spaces(text: &[u8], pos: usize) -> usize {
        run(text, pos, |b| b == b' ')
    }

    #[inline(always)]
    unsafe fn min_key(keys: &[u32; MAX_KEYS], len: usize) -> u32 {
        keys[..len.min(MAX_KEYS)].iter().copied().min().unwrap_or(u32::MAX)
    }

    #[inline(always)]
    unsafe fn min_of_slots(keys: &[u32; SLOTS]) -> u32 {
        keys.iter().copied().fold(u32::MAX, u32::min)
    }
}

/// Scans `$width` bytes at a time with `$outside`, a function from a pointer to a mask of the
/// bytes that end the run, and the last bytes one by one.
macro_rules! scan {
    ($text:ident, $pos:ident, $width:expr, $scalar:path, $outside:expr) => {{
        let mut at = $pos;
        loop {
            if at + $width > $text.len() {
                // SAFETY: `Scalar` runs anywhere.
                break at - $pos + unsafe { $scalar($text, at) };
            }
            // SAFETY: `$width` bytes from `at` on lie within the text, and the caller vouches for
            // the instruction set.
            let outside = unsafe { $outside($text.as_ptr().add(at)) };
            if outside != 0 {
                break at - $pos + outside.trailing_zeros() as usize;
            }
            at += $width;
        }
    }};
}

#[cfg(target_arch = "x86_64")]
mod x86;
#[cfg(target_arch = "x86_64")]
mod x86_wide;
#[cfg(target_arch = "x86_64")]
pub use x86::{Avx2, Avx512};

#[cfg(target_arch = "aarch64")]
mod neon;
#[cfg(target_arch = "aarch64")]
pub use neon::Neon;

/// Which instruction set a tokenizer uses.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Level {
    /// Portable code.
    Scalar,
    /// 32-byte vectors.
    #[cfg(target_arch = "x86_64")]
    Avx2,
    /// 64-byte vectors with masks.
    #[cfg(target_arch = "x86_64")]
    Avx512,
    /// 16-byte vectors.
    #[cfg(target_arch = "aarch64")]
    Neon,
}

impl Level {
    /// All that this machine can run, the slowest first.
    pub fn available() -> Vec<Self> {
        let mut levels = vec![Self::Scalar];
        #[cfg(target_arch = "x86_64")]
        {
            let narrow = is_x86_feature_detected!("avx2")
                && is_x86_feature_detected!("bmi1")
                && is_x86_feature_detected!("bmi2")
                && is_x86_feature_detected!("lzcnt");
            if narrow {
                levels.push(Self::Avx2);
                let wide = is_x86_feature_detected!("avx512f")
                    && is_x86_feature_detected!("avx512bw")
                    && is_x86_feature_detected!("avx512vl");
                if wide {
                    levels.push(Self::Avx512);
                }
            }
        }
        #[cfg(target_arch = "aarch64")]
        if std::arch::is_aarch64_feature_detected!("neon") {
            levels.push(Self::Neon);
        }
        levels
    }

    /// The fastest that this machine can run.
    pub fn best() -> Self {
        Self::available().pop().unwrap_or(Self::Scalar)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Every scan of `S` from every place of texts of all bytes and lengths, against `Scalar`.
    fn agrees<S: Isa>() {
        let units: [&[u8]; 6] =
            [b"abcXYZ", b"    ", b"..!/-", b"\x80\xc3\xa9", b"09", b"\t\n\r@[`{\x7f\0"];
        let mut state = 1u64;
        for length in 0..300 {
            let mut text = Vec::new();
            while text.len() < length {
                state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                let unit = units[(state >> 33) as usize % units.len()];
                text.extend(unit.repeat((state >> 50) as usize % 20));
            }
            text.truncate(length);
            for pos in 0..=length {
                // SAFETY: the caller has checked that the machine has `S`.
                unsafe {
                    assert_eq!(S::letters(&text, pos), Scalar::letters(&text, pos));
                    assert_eq!(S::lower(&text, pos), Scalar::lower(&text, pos));
                    assert_eq!(S::marks(&text, pos), Scalar::marks(&text, pos));
                    assert_eq!(S::spaces(&text, pos), Scalar::spaces(&text, pos));
                    assert_eq!(S::solid(&text, pos), Scalar::solid(&text, pos));
                }
            }
        }
        for byte in 0..=255u8 {
            for text in [vec![byte; 100], [&[byte][..], &[b'a'; 70]].concat()] {
                // SAFETY: as above.
                unsafe {
                    assert_eq!(S::letters(&text, 0), Scalar::letters(&text, 0), "{byte}");
                    assert_eq!(S::lower(&text, 0), Scalar::lower(&text, 0), "{byte}");
                    assert_eq!(S::marks(&text, 0), Scalar::marks(&text, 0), "{byte}");
                }
            }
        }
        let mut keys = [u32::MAX; MAX_KEYS];
        for len in 1..=MAX_KEYS {
            keys[len - 1] = (len as u32).wrapping_mul(0x9e37_79b9) | 1;
            // SAFETY: as above.
            unsafe { assert_eq!(S::min_key(&keys, len), Scalar::min_key(&keys, len)) };
        }
        for at in 0..SLOTS {
            let mut keys: [u32; SLOTS] = std::array::from_fn(|i| 0xffff_ff00 + 3 * i as u32);
            keys[at] = 7;
            // SAFETY: as above.
            unsafe { assert_eq!(S::min_of_slots(&keys), 7, "{at}") };
        }
    }

    /// Runs of characters of three bytes among others, cut at any place.
    fn wide_texts() -> Vec<Vec<u8>> {
        let units = ["中", "\u{4e00}", "\u{9fff}", "\u{4dff}", "\u{a000}", "，", "é", "a", "🎈"];
        let mut state = 1u64;
        let mut random = |bound: usize| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            (state >> 33) as usize % bound
        };
        let mut texts = Vec::new();
        for length in 0..200 {
            let mut text = String::new();
            while text.len() < length {
                text += &units[random(units.len())].repeat(random(40));
            }
            texts.push(text.as_bytes()[..length.min(text.len())].to_vec());
        }
        texts
    }

    /// Every method of `S` for characters of three bytes, against `Scalar`.
    fn agrees_on_wide<S: Isa>() {
        let pairs: Vec<(u32, u32)> = (0..3000u32).map(|i| (0x4e00 + i * 7, 0x9fff - i)).collect();
        let filter = PairFilter::new(pairs.iter().copied());
        let mut set = CharSet::full();
        (0x4e00..0x9000).step_by(3).for_each(|code| set.remove(code));
        for text in wide_texts() {
            let (mut ours, mut plain) = ([0u32; BLOCK], [0u32; BLOCK]);
            for pos in (0..text.len()).filter(|&pos| text[pos] & 0xc0 != 0x80) {
                // SAFETY: the caller has checked that the machine has `S`.
                unsafe {
                    let count = S::wide_codes(&text[pos..], &mut ours);
                    assert_eq!(count, Scalar::wide_codes(&text[pos..], &mut plain));
                    assert_eq!(ours[..count], plain[..count]);
                    assert!(ours.iter().all(|&code| code < 0x1_0000));
                    assert_eq!(S::ideographs(&text, pos), Scalar::ideographs(&text, pos));
                }
            }
        }
        let mut found = 0;
        for pair in pairs.chunks_exact(9) {
            let codes: Vec<u32> = pair.iter().flat_map(|&(a, b)| [a, b]).collect();
            let Some(codes) = codes.first_chunk::<{ BLOCK + 1 }>() else { continue };
            let Some(block) = codes.first_chunk() else { continue };
            // SAFETY: as above.
            unsafe {
                let bits = S::pairs_in(&filter, codes);
                assert_eq!(bits, Scalar::pairs_in(&filter, codes));
                assert_eq!(bits & 0x5555, 0x5555, "what is in a filter is found");
                found += (bits & 0xaaaa).count_ones() as usize;
                assert_eq!(S::chars_in(&set, block), Scalar::chars_in(&set, block));
            }
        }
        // Of 8 other pairs in each of 333 blocks.
        assert!(found < 333, "a filter may rarely have others");
    }

    #[test]
    fn every_instruction_set_agrees_on_characters_of_three_bytes() {
        for level in Level::available() {
            match level {
                Level::Scalar => agrees_on_wide::<Scalar>(),
                #[cfg(target_arch = "x86_64")]
                Level::Avx2 => agrees_on_wide::<Avx2>(),
                #[cfg(target_arch = "x86_64")]
                Level::Avx512 => agrees_on_wide::<Avx512>(),
                #[cfg(target_arch = "aarch64")]
                Level::Neon => agrees_on_wide::<Neon>(),
            }
        }
    }

    #[test]
    fn every_instruction_set_agrees_with_portable_code() {
        for level in Level::available() {
            match level {
                Level::Scalar => agrees::<Scalar>(),
                #[cfg(target_arch = "x86_64")]
                Level::Avx2 => agrees::<Avx2>(),
                #[cfg(target_arch = "x86_64")]
                Level::Avx512 => agrees::<Avx512>(),
                #[cfg(target_arch = "aarch64")]
                Level::Neon => agrees::<Neon>(),
            }
        }
    }
}
