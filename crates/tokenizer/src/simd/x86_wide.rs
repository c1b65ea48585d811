//! Characters of three bytes by AVX2 and AVX-512: gathers from the tables of [`super::wide`].

use super::wide::{BITS, BLOCK, CharSet, IDEOGRAPHS, LEFT, PairFilter, RIGHT, Wide};
use super::x86::{Avx2, Avx512, load, load_512};
use std::arch::x86_64::*;

/// Places of `0, 1, 2` in the lanes of 16 bytes: four characters of three bytes each.
const THIRDS: [i32; 16] = [0, 1, 2, 2, 3, 4, 5, 5, 6, 7, 8, 8, 9, 10, 11, 11];
/// Bytes of a lane with four characters: each as a number, its first byte on top.
const NUMBERS: [i8; 16] = [2, 1, 0, -1, 5, 4, 3, -1, 8, 7, 6, -1, 11, 10, 9, -1];

/// The first 48 bytes as characters of three bytes: their code points, and which really are.
#[target_feature(enable = "avx512f,avx512bw")]
#[inline]
fn decode_512(bytes: __m512i) -> (__m512i, u16) {
    // SAFETY: the tables are as long as the vectors.
    let (thirds, numbers) = unsafe {
        (_mm512_loadu_si512(THIRDS.as_ptr().cast()), _mm_loadu_si128(NUMBERS.as_ptr().cast()))
    };
    let lanes = _mm512_permutexvar_epi32(thirds, bytes);
    let chars = _mm512_shuffle_epi8(lanes, _mm512_broadcast_i32x4(numbers));
    let tops = _mm512_and_si512(chars, _mm512_set1_epi32(0xf0_0000));
    let are_wide = _mm512_cmpeq_epi32_mask(tops, _mm512_set1_epi32(0xe0_0000));
    let low = _mm512_and_si512(chars, _mm512_set1_epi32(0x3f));
    let middle = _mm512_and_si512(_mm512_srli_epi32::<2>(chars), _mm512_set1_epi32(0xfc0));
    let high = _mm512_and_si512(_mm512_srli_epi32::<4>(chars), _mm512_set1_epi32(0xf000));
    (_mm512_or_si512(_mm512_or_si512(low, middle), high), are_wide)
}

#[target_feature(enable = "avx512f,avx512bw")]
#[inline]
fn wide_codes_512(text: &[u8], codes: &mut [u32; BLOCK]) -> usize {
    let (chars, are_wide) = decode_512(load_512(text, 0).0);
    // SAFETY: the codes are 64 bytes.
    unsafe { _mm512_storeu_si512(codes.as_mut_ptr().cast(), chars) };
    (are_wide.trailing_ones() as usize).min(text.len() / 3)
}

#[target_feature(enable = "avx512f,avx512bw")]
#[inline]
fn ideographs_512(text: &[u8], pos: usize) -> usize {
    let mut at = pos;
    loop {
        let (chars, are_wide) = decode_512(load_512(text, at).0);
        let from_first = _mm512_sub_epi32(chars, _mm512_set1_epi32(IDEOGRAPHS.0 as i32));
        let number = _mm512_set1_epi32(IDEOGRAPHS.1 as i32);
        let are_in = are_wide & _mm512_cmplt_epu32_mask(from_first, number);
        let count = (are_in.trailing_ones() as usize).min(text.len().saturating_sub(at) / 3);
        at += 3 * count;
        if count < BLOCK {
            return at - pos;
        }
    }
}

#[target_feature(enable = "avx512f")]
#[inline]
fn chars_in_512(set: &CharSet, codes: &[u32; BLOCK]) -> u16 {
    // SAFETY: the codes are 64 bytes.
    let codes = unsafe { _mm512_loadu_si512(codes.as_ptr().cast()) };
    let codes = _mm512_and_si512(codes, _mm512_set1_epi32(0xffff));
    // SAFETY: the set has a word for every 32 of 0x10000 codes.
    let words =
        unsafe { _mm512_i32gather_epi32::<4>(_mm512_srli_epi32::<5>(codes), set.words().cast()) };
    let places = _mm512_and_si512(codes, _mm512_set1_epi32(31));
    _mm512_test_epi32_mask(words, _mm512_sllv_epi32(_mm512_set1_epi32(1), places))
}

#[target_feature(enable = "avx512f")]
#[inline]
fn pairs_in_512(filter: &PairFilter, codes: &[u32; BLOCK + 1]) -> u16 {
    // SAFETY: the codes are 68 bytes.
    let (left, right) = unsafe {
        let second = codes.as_ptr().add(1);
        (_mm512_loadu_si512(codes.as_ptr().cast()), _mm512_loadu_si512(second.cast()))
    };
    let hash = _mm512_add_epi32(
        _mm512_mullo_epi32(left, _mm512_set1_epi32(LEFT as i32)),
        _mm512_mullo_epi32(right, _mm512_set1_epi32(RIGHT as i32)),
    );
    let (words, shift) = filter.words();
    let index = _mm512_srl_epi32(hash, _mm_cvtsi32_si128(shift as i32));
    // SAFETY: a shifted hash is in bounds.
    let words = unsafe { _mm512_i32gather_epi32::<4>(index, words.cast()) };
    let place = |hash| _mm512_and_si512(hash, _mm512_set1_epi32(31));
    let one = _mm512_set1_epi32(1);
    let bits = _mm512_or_si512(
        _mm512_sllv_epi32(one, place(_mm512_srli_epi32::<{ BITS[0] }>(hash))),
        _mm512_sllv_epi32(one, place(_mm512_srli_epi32::<{ BITS[1] }>(hash))),
    );
    _mm512_cmpeq_epi32_mask(_mm512_and_si512(words, bits), bits)
}

// SAFETY: every method only runs AVX-512 F and BW instructions, which the trait's contract grants.
unsafe impl Wide for Avx512 {
    #[inline(always)]
    unsafe fn wide_codes(text: &[u8], codes: &mut [u32; BLOCK]) -> usize {
        // SAFETY: the trait's contract, here and below.
        unsafe { wide_codes_512(text, codes) }
    }

    #[inline(always)]
    unsafe fn ideographs(text: &[u8], pos: usize) -> usize {
        // SAFETY: as above.
        unsafe { ideographs_512(text, pos) }
    }

    #[inline(always)]
    unsafe fn chars_in(set: &CharSet, codes: &[u32; BLOCK]) -> u16 {
        // SAFETY: as above.
        unsafe { chars_in_512(set, codes) }
    }

    #[inline(always)]
    unsafe fn pairs_in(filter: &PairFilter, codes: &[u32; BLOCK + 1]) -> u16 {
        // SAFETY: as above.
        unsafe { pairs_in_512(filter, codes) }
    }
}

/// As [`decode_512`], eight characters of 24 bytes; the second is all ones where they are wide.
#[target_feature(enable = "avx2")]
#[inline]
fn decode_256(bytes: __m256i) -> (__m256i, __m256i) {
    // SAFETY: the tables are at least as long as the vectors.
    let (thirds, numbers) =
        unsafe { (load(THIRDS.as_ptr().cast()), _mm_loadu_si128(NUMBERS.as_ptr().cast())) };
    let lanes = _mm256_permutevar8x32_epi32(bytes, thirds);
    let chars = _mm256_shuffle_epi8(lanes, _mm256_broadcastsi128_si256(numbers));
    let tops = _mm256_and_si256(chars, _mm256_set1_epi32(0xf0_0000));
    let are_wide = _mm256_cmpeq_epi32(tops, _mm256_set1_epi32(0xe0_0000));
    let low = _mm256_and_si256(chars, _mm256_set1_epi32(0x3f));
    let middle = _mm256_and_si256(_mm256_srli_epi32::<2>(chars), _mm256_set1_epi32(0xfc0));
    let high = _mm256_and_si256(_mm256_srli_epi32::<4>(chars), _mm256_set1_epi32(0xf000));
    (_mm256_or_si256(_mm256_or_si256(low, middle), high), are_wide)
}

/// One bit for each lane of four bytes.
#[target_feature(enable = "avx2")]
#[inline]
fn mask_256(lanes: __m256i) -> u16 {
    _mm256_movemask_ps(_mm256_castsi256_ps(lanes)) as u16
}

/// Bytes from `pos` on, zero beyond the end of `text`.
#[target_feature(enable = "avx2")]
#[inline]
fn load_256(text: &[u8], pos: usize) -> __m256i {
    let rest = text.get(pos..).unwrap_or_default();
    if let Some(bytes) = rest.first_chunk::<32>() {
        // SAFETY: these are 32 bytes.
        return unsafe { load(bytes.as_ptr()) };
    }
    let mut bytes = [0u8; 32];
    bytes[..rest.len()].copy_from_slice(rest);
    // SAFETY: these are 32 bytes.
    unsafe { load(bytes.as_ptr()) }
}

/// Characters of a vector of AVX2.
const HALF: usize = BLOCK / 2;

#[target_feature(enable = "avx2")]
#[inline]
fn wide_codes_256(text: &[u8], codes: &mut [u32; BLOCK]) -> usize {
    let mut mask = 0;
    for half in 0..2 {
        let (chars, are_wide) = decode_256(load_256(text, 3 * HALF * half));
        // SAFETY: each half of the codes is 32 bytes.
        unsafe { _mm256_storeu_si256(codes[HALF * half..].as_mut_ptr().cast(), chars) };
        mask |= mask_256(are_wide) << (HALF * half);
    }
    (mask.trailing_ones() as usize).min(text.len() / 3)
}

#[target_feature(enable = "avx2")]
#[inline]
fn ideographs_256(text: &[u8], pos: usize) -> usize {
    let mut at = pos;
    loop {
        let (chars, are_wide) = decode_256(load_256(text, at));
        let from_first = _mm256_sub_epi32(chars, _mm256_set1_epi32(IDEOGRAPHS.0 as i32));
        let last = _mm256_set1_epi32(IDEOGRAPHS.1 as i32 - 1);
        let up_to_last = _mm256_cmpeq_epi32(_mm256_min_epu32(from_first, last), from_first);
        let are_in = mask_256(_mm256_and_si256(are_wide, up_to_last));
        let count = (are_in.trailing_ones() as usize).min(text.len().saturating_sub(at) / 3);
        at += 3 * count;
        if count < HALF {
            return at - pos;
        }
    }
}

#[target_feature(enable = "avx2")]
#[inline]
fn chars_in_256(set: &CharSet, codes: &[u32; BLOCK]) -> u16 {
    let mut mask = 0;
    for half in 0..2 {
        // SAFETY: each half of the codes is 32 bytes.
        let codes = unsafe { load(codes[HALF * half..].as_ptr().cast()) };
        let codes = _mm256_and_si256(codes, _mm256_set1_epi32(0xffff));
        // SAFETY: the set has a word for every 32 of 0x10000 codes.
        let words = unsafe {
            _mm256_i32gather_epi32::<4>(set.words().cast(), _mm256_srli_epi32::<5>(codes))
        };
        let places = _mm256_and_si256(codes, _mm256_set1_epi32(31));
        let bits = _mm256_sllv_epi32(_mm256_set1_epi32(1), places);
        let are_in = _mm256_cmpeq_epi32(_mm256_and_si256(words, bits), bits);
        mask |= mask_256(are_in) << (HALF * half);
    }
    mask
}

#[target_feature(enable = "avx2")]
#[inline]
fn pairs_in_256(filter: &PairFilter, codes: &[u32; BLOCK + 1]) -> u16 {
    let mut mask = 0;
    for half in 0..2 {
        // SAFETY: the codes are 32 bytes from the start of each half on, and one more.
        let (left, right) = unsafe {
            let first = codes.as_ptr().add(HALF * half);
            (load(first.cast()), load(first.add(1).cast()))
        };
        let hash = _mm256_add_epi32(
            _mm256_mullo_epi32(left, _mm256_set1_epi32(LEFT as i32)),
            _mm256_mullo_epi32(right, _mm256_set1_epi32(RIGHT as i32)),
        );
        let (words, shift) = filter.words();
        let index = _mm256_srl_epi32(hash, _mm_cvtsi32_si128(shift as i32));
        // SAFETY: a shifted hash is in bounds.
        let words = unsafe { _mm256_i32gather_epi32::<4>(words.cast(), index) };
        let place = |hash| _mm256_and_si256(hash, _mm256_set1_epi32(31));
        let one = _mm256_set1_epi32(1);
        let bits = _mm256_or_si256(
            _mm256_sllv_epi32(one, place(_mm256_srli_epi32::<{ BITS[0] as i32 }>(hash))),
            _mm256_sllv_epi32(one, place(_mm256_srli_epi32::<{ BITS[1] as i32 }>(hash))),
        );
        let are_in = _mm256_cmpeq_epi32(_mm256_and_si256(words, bits), bits);
        mask |= mask_256(are_in) << (HALF * half);
    }
    mask
}

// SAFETY: every method only runs AVX2 instructions, which the trait's contract grants.
unsafe impl Wide for Avx2 {
    #[inline(always)]
    unsafe fn wide_codes(text: &[u8], codes: &mut [u32; BLOCK]) -> usize {
        // SAFETY: the trait's contract, here and below.
        unsafe { wide_codes_256(text, codes) }
    }

    #[inline(always)]
    unsafe fn ideographs(text: &[u8], pos: usize) -> usize {
        // SAFETY: as above.
        unsafe { ideographs_256(text, pos) }
    }

    #[inline(always)]
    unsafe fn chars_in(set: &CharSet, codes: &[u32; BLOCK]) -> u16 {
        // SAFETY: as above.
        unsafe { chars_in_256(set, codes) }
    }

    #[inline(always)]
    unsafe fn pairs_in(filter: &PairFilter, codes: &[u32; BLOCK + 1]) -> u16 {
        // SAFETY: as above.
        unsafe { pairs_in_256(filter, codes) }
    }
}
