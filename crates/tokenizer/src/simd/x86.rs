//! AVX2 and AVX-512.

use super::{Isa, MAX_KEYS, SLOTS, Scalar};
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
pub(super) unsafe fn load(from: *const u8) -> __m256i {
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

    #[inline(always)]
    unsafe fn min_key(keys: &[u32; MAX_KEYS], len: usize) -> u32 {
        // SAFETY: the trait's contract.
        unsafe { min_key_avx2(keys, len) }
    }

    #[inline(always)]
    unsafe fn min_of_slots(keys: &[u32; SLOTS]) -> u32 {
        // SAFETY: 4 times 32 bytes; the trait's contract.
        unsafe {
            let [a, b, c, d] = [0, 8, 16, 24].map(|at| load(keys.as_ptr().add(at).cast()));
            least_avx2(_mm256_min_epu32(_mm256_min_epu32(a, b), _mm256_min_epu32(c, d)))
        }
    }
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
pub(super) fn load_512(text: &[u8], pos: usize) -> (__m512i, u64) {
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

    #[inline(always)]
    unsafe fn min_key(keys: &[u32; MAX_KEYS], len: usize) -> u32 {
        // SAFETY: as above; every machine with AVX-512 has AVX2.
        unsafe { min_key_512(keys, len) }
    }

    #[inline(always)]
    unsafe fn min_of_slots(keys: &[u32; SLOTS]) -> u32 {
        // SAFETY: 2 times 64 bytes; as above.
        unsafe {
            let [a, b] = [0, 16].map(|at| _mm512_loadu_si512(keys.as_ptr().add(at).cast()));
            _mm512_reduce_min_epu32(_mm512_min_epu32(a, b))
        }
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
