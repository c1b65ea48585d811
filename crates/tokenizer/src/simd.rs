//! Scans of ASCII runs and the search for the best merge, once per instruction set. `Scalar` is
//! the specification: tests run every other set against it.

/// Ranks of the pairs of a short piece, packed with their place: see `bpe::short`.
pub const MAX_KEYS: usize = 256;

/// One instruction set.
///
/// # Safety
/// The methods may be called only on a machine that has the instruction set.
pub unsafe trait Isa: Copy {
    /// Runs `f` compiled for the instruction set, as far as its calls are inlined.
    ///
    /// # Safety
    /// See the trait.
    unsafe fn vectorize<R>(f: impl FnOnce() -> R) -> R;
    /// Asks for the cache line of `address`, which need not be valid.
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
    /// Sixteen keys in registers.
    type Keys: Copy;
    /// Takes sixteen keys.
    ///
    /// # Safety
    /// See the trait.
    unsafe fn load_keys(keys: &[u32; 16]) -> Self::Keys;
    /// Replaces key `at`; nothing changes if `at` is 16 or more.
    ///
    /// # Safety
    /// See the trait.
    unsafe fn set_key(keys: Self::Keys, at: usize, key: u32) -> Self::Keys;
    /// The smaller of each two keys.
    ///
    /// # Safety
    /// See the trait.
    unsafe fn min_by_lane(a: Self::Keys, b: Self::Keys) -> Self::Keys;
    /// The smallest.
    ///
    /// # Safety
    /// See the trait.
    unsafe fn min_of_keys(keys: Self::Keys) -> u32;
    /// The smallest of the first `len` keys; the keys from `len` to the next multiple of 16 are
    /// `u32::MAX`.
    ///
    /// # Safety
    /// See the trait.
    unsafe fn min_key(keys: &[u32; MAX_KEYS], len: usize) -> u32;
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

    type Keys = [u32; 16];

    #[inline(always)]
    unsafe fn load_keys(keys: &[u32; 16]) -> Self::Keys {
        *keys
    }

    #[inline(always)]
    unsafe fn set_key(mut keys: Self::Keys, at: usize, key: u32) -> Self::Keys {
        if let Some(slot) = keys.get_mut(at) {
            *slot = key;
        }
        keys
    }

    #[inline(always)]
    unsafe fn min_by_lane(a: Self::Keys, b: Self::Keys) -> Self::Keys {
        std::array::from_fn(|i| a[i].min(b[i]))
    }

    #[inline(always)]
    unsafe fn min_of_keys(keys: Self::Keys) -> u32 {
        keys.into_iter().fold(u32::MAX, u32::min)
    }

    #[inline(always)]
    unsafe fn min_key(keys: &[u32; MAX_KEYS], len: usize) -> u32 {
        keys[..len.min(MAX_KEYS)].iter().copied().min().unwrap_or(u32::MAX)
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
mod x86 {
    use super::{Isa, MAX_KEYS, Scalar};
    use std::arch::x86_64::*;

    /// AVX2, BMI2 and LZCNT.
    #[derive(Clone, Copy)]
    pub struct Avx2;

    /// Bytes of `v` within `low..=high`, as all-ones bytes.
    #[target_feature(enable = "avx2")]
    #[inline]
    fn within(v: __m256i, low: u8, high: u8) -> __m256i {
        let from_low = _mm256_sub_epi8(v, _mm256_set1_epi8(low as i8));
        let clamped = _mm256_min_epu8(from_low, _mm256_set1_epi8((high - low) as i8));
        _mm256_cmpeq_epi8(clamped, from_low)
    }

    /// # Safety
    /// 32 bytes from `from` on must be readable.
    #[target_feature(enable = "avx2")]
    #[inline]
    unsafe fn load(from: *const u8) -> __m256i {
        // SAFETY: the caller's contract.
        unsafe { _mm256_loadu_si256(from.cast()) }
    }

    #[target_feature(enable = "avx2")]
    #[inline]
    fn outside(inside: __m256i) -> u32 {
        !_mm256_movemask_epi8(inside) as u32
    }

    #[target_feature(enable = "avx2")]
    #[inline]
    fn alphabetic(v: __m256i) -> __m256i {
        within(_mm256_or_si256(v, _mm256_set1_epi8(0x20)), b'a', b'z')
    }

    #[target_feature(enable = "avx2")]
    #[inline]
    fn mark(v: __m256i) -> __m256i {
        let spaces = _mm256_cmpeq_epi8(v, _mm256_set1_epi8(b' ' as i8));
        let word = _mm256_or_si256(alphabetic(v), within(v, b'0', b'9'));
        let blank = _mm256_or_si256(spaces, within(v, 9, 13));
        // The sign bit of a byte beyond ASCII makes it smaller than 0.
        let foreign = _mm256_cmpgt_epi8(_mm256_setzero_si256(), v);
        let other = _mm256_or_si256(_mm256_or_si256(word, blank), foreign);
        _mm256_xor_si256(other, _mm256_set1_epi8(-1))
    }

    // SAFETY: every method only runs AVX2 instructions, which the trait's contract grants.
    unsafe impl Isa for Avx2 {
        #[inline(always)]
        unsafe fn vectorize<R>(f: impl FnOnce() -> R) -> R {
            #[target_feature(enable = "avx2,bmi1,bmi2,lzcnt")]
            #[inline]
            fn with_features<R>(f: impl FnOnce() -> R) -> R {
                f()
            }
            // SAFETY: the trait's contract.
            unsafe { with_features(f) }
        }

        #[inline(always)]
        unsafe fn prefetch<T>(address: *const T) {
            // SAFETY: every x86-64 has this instruction, and it never faults.
            unsafe { _mm_prefetch::<_MM_HINT_T0>(address.cast()) }
        }

        #[inline(always)]
        unsafe fn solid(text: &[u8], pos: usize) -> usize {
            scan!(text, pos, 32, Scalar::solid, |p| !outside(within(load(p), b' ', b' ')))
        }

        #[inline(always)]
        unsafe fn letters(text: &[u8], pos: usize) -> usize {
            scan!(text, pos, 32, Scalar::letters, |p| outside(alphabetic(load(p))))
        }

        #[inline(always)]
        unsafe fn lower(text: &[u8], pos: usize) -> usize {
            scan!(text, pos, 32, Scalar::lower, |p| outside(within(load(p), b'a', b'z')))
        }

        #[inline(always)]
        unsafe fn marks(text: &[u8], pos: usize) -> usize {
            scan!(text, pos, 32, Scalar::marks, |p| outside(mark(load(p))))
        }

        #[inline(always)]
        unsafe fn spaces(text: &[u8], pos: usize) -> usize {
            scan!(text, pos, 32, Scalar::spaces, |p| outside(within(load(p), b' ', b' ')))
        }

        type Keys = [__m256i; 2];

        #[inline(always)]
        unsafe fn load_keys(keys: &[u32; 16]) -> Self::Keys {
            // SAFETY: the keys are 64 bytes; the trait's contract, here and below.
            unsafe { [load(keys.as_ptr().cast()), load(keys.as_ptr().add(8).cast())] }
        }

        #[inline(always)]
        unsafe fn set_key(keys: Self::Keys, at: usize, key: u32) -> Self::Keys {
            // SAFETY: as above.
            unsafe { [set_avx2(keys[0], at, 0, key), set_avx2(keys[1], at, 8, key)] }
        }

        #[inline(always)]
        unsafe fn min_by_lane(a: Self::Keys, b: Self::Keys) -> Self::Keys {
            // SAFETY: as above.
            unsafe { [_mm256_min_epu32(a[0], b[0]), _mm256_min_epu32(a[1], b[1])] }
        }

        #[inline(always)]
        unsafe fn min_of_keys(keys: Self::Keys) -> u32 {
            // SAFETY: as above.
            unsafe { least_avx2(_mm256_min_epu32(keys[0], keys[1])) }
        }

        #[inline(always)]
        unsafe fn min_key(keys: &[u32; MAX_KEYS], len: usize) -> u32 {
            // SAFETY: the trait's contract.
            unsafe { min_key_avx2(keys, len) }
        }
    }

    /// Replaces lane `at - first` of `keys`.
    #[target_feature(enable = "avx2")]
    #[inline]
    fn set_avx2(keys: __m256i, at: usize, first: i32, key: u32) -> __m256i {
        let lanes =
            _mm256_add_epi32(_mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7), _mm256_set1_epi32(first));
        let here = _mm256_cmpeq_epi32(lanes, _mm256_set1_epi32(at as i32));
        _mm256_blendv_epi8(keys, _mm256_set1_epi32(key as i32), here)
    }

    #[target_feature(enable = "avx2")]
    #[inline]
    fn least_avx2(best: __m256i) -> u32 {
        let half = _mm_min_epu32(_mm256_castsi256_si128(best), _mm256_extracti128_si256::<1>(best));
        let quarter = _mm_min_epu32(half, _mm_shuffle_epi32::<0b01_00_11_10>(half));
        let one = _mm_min_epu32(quarter, _mm_shuffle_epi32::<0b10_11_00_01>(quarter));
        _mm_cvtsi128_si32(one) as u32
    }

    #[target_feature(enable = "avx2")]
    #[inline]
    fn min_key_avx2(keys: &[u32; MAX_KEYS], len: usize) -> u32 {
        let mut best = _mm256_set1_epi32(-1);
        for lane in keys[..len.min(MAX_KEYS).next_multiple_of(8)].chunks_exact(8) {
            // SAFETY: a chunk of 8 keys is 32 bytes.
            best = _mm256_min_epu32(best, unsafe { load(lane.as_ptr().cast()) });
        }
        least_avx2(best)
    }

    /// AVX-512 with byte compares (BW, VL), on top of [`Avx2`].
    #[derive(Clone, Copy)]
    pub struct Avx512;

    /// The bytes from `pos` on that `text` has, 64 at most; zero beyond.
    #[target_feature(enable = "avx512f,avx512bw")]
    #[inline]
    fn load_512(text: &[u8], pos: usize) -> (__m512i, u64) {
        let left = text.len().saturating_sub(pos);
        let mask = if left >= 64 { u64::MAX } else { (1 << left) - 1 };
        // SAFETY: masked-out bytes are not read; the others lie within the text.
        (unsafe { _mm512_maskz_loadu_epi8(mask, text.as_ptr().wrapping_add(pos).cast()) }, mask)
    }

    #[target_feature(enable = "avx512f,avx512bw")]
    #[inline]
    fn within_512(v: __m512i, low: u8, high: u8) -> u64 {
        let from_low = _mm512_sub_epi8(v, _mm512_set1_epi8(low as i8));
        _mm512_cmple_epu8_mask(from_low, _mm512_set1_epi8((high - low) as i8))
    }

    #[target_feature(enable = "avx512f,avx512bw")]
    #[inline]
    fn alphabetic_512(v: __m512i) -> u64 {
        within_512(_mm512_or_si512(v, _mm512_set1_epi8(0x20)), b'a', b'z')
    }

    #[target_feature(enable = "avx512f,avx512bw")]
    #[inline]
    fn mark_512(v: __m512i) -> u64 {
        let word = alphabetic_512(v) | within_512(v, b'0', b'9');
        let blank = within_512(v, b' ', b' ') | within_512(v, 9, 13);
        within_512(v, 0, 0x7f) & !(word | blank)
    }

    #[target_feature(enable = "avx512f,avx512bw,bmi1")]
    #[inline]
    fn scan_512(text: &[u8], pos: usize, inside: impl Fn(__m512i) -> u64) -> usize {
        let mut at = pos;
        loop {
            let (bytes, mask) = load_512(text, at);
            let count = (inside(bytes) & mask).trailing_ones() as usize;
            at += count;
            if count < 64 {
                return at - pos;
            }
        }
    }

    // SAFETY: every method only runs AVX-512 F, BW and VL instructions, which the trait's contract
    // grants.
    unsafe impl Isa for Avx512 {
        #[inline(always)]
        unsafe fn vectorize<R>(f: impl FnOnce() -> R) -> R {
            #[target_feature(enable = "avx512f,avx512bw,avx512vl,avx2,bmi1,bmi2,lzcnt")]
            #[inline]
            fn with_features<R>(f: impl FnOnce() -> R) -> R {
                f()
            }
            // SAFETY: the trait's contract.
            unsafe { with_features(f) }
        }

        #[inline(always)]
        unsafe fn prefetch<T>(address: *const T) {
            // SAFETY: every x86-64 has this instruction, and it never faults.
            unsafe { _mm_prefetch::<_MM_HINT_T0>(address.cast()) }
        }

        #[inline(always)]
        unsafe fn solid(text: &[u8], pos: usize) -> usize {
            // SAFETY: the trait's contract.
            unsafe { scan_512(text, pos, |v| !within_512(v, b' ', b' ')) }
        }

        #[inline(always)]
        unsafe fn letters(text: &[u8], pos: usize) -> usize {
            // SAFETY: the trait's contract, here and below.
            unsafe { scan_512(text, pos, |v| alphabetic_512(v)) }
        }

        #[inline(always)]
        unsafe fn lower(text: &[u8], pos: usize) -> usize {
            // SAFETY: as above.
            unsafe { scan_512(text, pos, |v| within_512(v, b'a', b'z')) }
        }

        #[inline(always)]
        unsafe fn marks(text: &[u8], pos: usize) -> usize {
            // SAFETY: as above.
            unsafe { scan_512(text, pos, |v| mark_512(v)) }
        }

        #[inline(always)]
        unsafe fn spaces(text: &[u8], pos: usize) -> usize {
            // SAFETY: as above.
            unsafe { scan_512(text, pos, |v| within_512(v, b' ', b' ')) }
        }

        type Keys = __m512i;

        #[inline(always)]
        unsafe fn load_keys(keys: &[u32; 16]) -> Self::Keys {
            // SAFETY: the keys are 64 bytes; otherwise as above.
            unsafe { _mm512_loadu_si512(keys.as_ptr().cast()) }
        }

        #[inline(always)]
        unsafe fn set_key(keys: Self::Keys, at: usize, key: u32) -> Self::Keys {
            let lane = if at < 16 { 1 << at } else { 0 };
            // SAFETY: as above.
            unsafe { _mm512_mask_set1_epi32(keys, lane, key as i32) }
        }

        #[inline(always)]
        unsafe fn min_by_lane(a: Self::Keys, b: Self::Keys) -> Self::Keys {
            // SAFETY: as above.
            unsafe { _mm512_min_epu32(a, b) }
        }

        #[inline(always)]
        unsafe fn min_of_keys(keys: Self::Keys) -> u32 {
            // SAFETY: as above.
            unsafe { _mm512_reduce_min_epu32(keys) }
        }

        #[inline(always)]
        unsafe fn min_key(keys: &[u32; MAX_KEYS], len: usize) -> u32 {
            // SAFETY: as above; every machine with AVX-512 has AVX2.
            unsafe { min_key_512(keys, len) }
        }
    }

    #[target_feature(enable = "avx512f")]
    #[inline]
    fn min_key_512(keys: &[u32; MAX_KEYS], len: usize) -> u32 {
        let mut best = _mm512_set1_epi32(-1);
        for lane in keys[..len.min(MAX_KEYS).next_multiple_of(16)].chunks_exact(16) {
            // SAFETY: a chunk of 16 keys is 64 bytes.
            best = _mm512_min_epu32(best, unsafe { _mm512_loadu_si512(lane.as_ptr().cast()) });
        }
        _mm512_reduce_min_epu32(best)
    }
}
#[cfg(target_arch = "x86_64")]
pub use x86::{Avx2, Avx512};

#[cfg(target_arch = "aarch64")]
mod neon {
    use super::{Isa, MAX_KEYS, Scalar};
    use std::arch::aarch64::*;

    /// Advanced SIMD, which every aarch64 Linux machine has.
    #[derive(Clone, Copy)]
    pub struct Neon;

    /// Four bits per byte, set where the byte is not inside the run; counted in bytes.
    struct Outside(u64);

    impl Outside {
        fn trailing_zeros(&self) -> u32 {
            self.0.trailing_zeros() / 4
        }
    }

    impl PartialEq<u64> for Outside {
        fn eq(&self, other: &u64) -> bool {
            self.0 == *other
        }
    }

    #[target_feature(enable = "neon")]
    #[inline]
    fn outside(inside: uint8x16_t) -> Outside {
        let narrow = vshrn_n_u16::<4>(vreinterpretq_u16_u8(vmvnq_u8(inside)));
        Outside(vget_lane_u64::<0>(vreinterpret_u64_u8(narrow)))
    }

    #[target_feature(enable = "neon")]
    #[inline]
    fn within(v: uint8x16_t, low: u8, high: u8) -> uint8x16_t {
        vcleq_u8(vsubq_u8(v, vdupq_n_u8(low)), vdupq_n_u8(high - low))
    }

    #[target_feature(enable = "neon")]
    #[inline]
    fn alphabetic(v: uint8x16_t) -> uint8x16_t {
        within(vorrq_u8(v, vdupq_n_u8(0x20)), b'a', b'z')
    }

    #[target_feature(enable = "neon")]
    #[inline]
    fn mark(v: uint8x16_t) -> uint8x16_t {
        let word = vorrq_u8(alphabetic(v), within(v, b'0', b'9'));
        let blank = vorrq_u8(within(v, b' ', b' '), within(v, 9, 13));
        vbicq_u8(within(v, 0, 0x7f), vorrq_u8(word, blank))
    }

    // SAFETY: every method only runs Advanced SIMD instructions, which the trait's contract grants.
    unsafe impl Isa for Neon {
        #[inline(always)]
        unsafe fn vectorize<R>(f: impl FnOnce() -> R) -> R {
            #[target_feature(enable = "neon")]
            #[inline]
            fn with_features<R>(f: impl FnOnce() -> R) -> R {
                f()
            }
            // SAFETY: the trait's contract.
            unsafe { with_features(f) }
        }

        #[inline(always)]
        unsafe fn prefetch<T>(address: *const T) {
            // SAFETY: every aarch64 has this instruction, and it never faults.
            unsafe {
                std::arch::asm!(
                    "prfm pldl1keep, [{0}]", in(reg) address,
                    options(nostack, preserves_flags, readonly)
                );
            }
        }

        #[inline(always)]
        unsafe fn solid(text: &[u8], pos: usize) -> usize {
            scan!(text, pos, 16, Scalar::solid, |p| {
                outside(vmvnq_u8(within(vld1q_u8(p), b' ', b' ')))
            })
        }

        #[inline(always)]
        unsafe fn letters(text: &[u8], pos: usize) -> usize {
            scan!(text, pos, 16, Scalar::letters, |p| outside(alphabetic(vld1q_u8(p))))
        }

        #[inline(always)]
        unsafe fn lower(text: &[u8], pos: usize) -> usize {
            scan!(text, pos, 16, Scalar::lower, |p| outside(within(vld1q_u8(p), b'a', b'z')))
        }

        #[inline(always)]
        unsafe fn marks(text: &[u8], pos: usize) -> usize {
            scan!(text, pos, 16, Scalar::marks, |p| outside(mark(vld1q_u8(p))))
        }

        #[inline(always)]
        unsafe fn spaces(text: &[u8], pos: usize) -> usize {
            scan!(text, pos, 16, Scalar::spaces, |p| outside(within(vld1q_u8(p), b' ', b' ')))
        }

        type Keys = [uint32x4_t; 4];

        #[inline(always)]
        unsafe fn load_keys(keys: &[u32; 16]) -> Self::Keys {
            // SAFETY: each chunk is 16 bytes; the trait's contract, here and below.
            unsafe { [0, 4, 8, 12].map(|at| vld1q_u32(keys.as_ptr().add(at))) }
        }

        #[inline(always)]
        unsafe fn set_key(keys: Self::Keys, at: usize, key: u32) -> Self::Keys {
            // SAFETY: as above.
            unsafe {
                [
                    set_neon(keys[0], at, 0, key),
                    set_neon(keys[1], at, 4, key),
                    set_neon(keys[2], at, 8, key),
                    set_neon(keys[3], at, 12, key),
                ]
            }
        }

        #[inline(always)]
        unsafe fn min_by_lane(a: Self::Keys, b: Self::Keys) -> Self::Keys {
            // SAFETY: as above.
            std::array::from_fn(|i| unsafe { vminq_u32(a[i], b[i]) })
        }

        #[inline(always)]
        unsafe fn min_of_keys(keys: Self::Keys) -> u32 {
            // SAFETY: as above.
            unsafe {
                let low = vminq_u32(keys[0], keys[1]);
                vminvq_u32(vminq_u32(low, vminq_u32(keys[2], keys[3])))
            }
        }

        #[inline(always)]
        unsafe fn min_key(keys: &[u32; MAX_KEYS], len: usize) -> u32 {
            // SAFETY: the trait's contract.
            unsafe { min_key_neon(keys, len) }
        }
    }

    /// Replaces lane `at - first` of `keys`.
    #[target_feature(enable = "neon")]
    #[inline]
    fn set_neon(keys: uint32x4_t, at: usize, first: u32, key: u32) -> uint32x4_t {
        const LANES: [u32; 4] = [0, 1, 2, 3];
        // SAFETY: the lanes are 16 bytes.
        let lanes = unsafe { vaddq_u32(vld1q_u32(LANES.as_ptr()), vdupq_n_u32(first)) };
        vbslq_u32(vceqq_u32(lanes, vdupq_n_u32(at as u32)), vdupq_n_u32(key), keys)
    }

    #[target_feature(enable = "neon")]
    #[inline]
    fn min_key_neon(keys: &[u32; MAX_KEYS], len: usize) -> u32 {
        let mut best = vdupq_n_u32(u32::MAX);
        for lane in keys[..len.min(MAX_KEYS).next_multiple_of(4)].chunks_exact(4) {
            // SAFETY: a chunk of 4 keys is 16 bytes.
            best = vminq_u32(best, unsafe { vld1q_u32(lane.as_ptr()) });
        }
        vminvq_u32(best)
    }
}
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
        let sixteen: [u32; 16] = std::array::from_fn(|i| 1000 - 7 * i as u32);
        for at in 0..20 {
            // SAFETY: as above.
            unsafe {
                let (ours, plain) = (S::load_keys(&sixteen), Scalar::load_keys(&sixteen));
                let (ours, plain) = (S::set_key(ours, 15, 999), Scalar::set_key(plain, 15, 999));
                assert_eq!(S::min_of_keys(ours), Scalar::min_of_keys(plain));
                let (ours, plain) = (S::set_key(ours, at, 5), Scalar::set_key(plain, at, 5));
                assert_eq!(S::min_of_keys(ours), Scalar::min_of_keys(plain), "{at}");
                let both = S::min_by_lane(ours, S::load_keys(&[7; 16]));
                assert_eq!(S::min_of_keys(both), if at < 16 { 5 } else { 7 });
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
