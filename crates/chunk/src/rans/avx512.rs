//! 16 lanes in a register.

use std::arch::x86_64::*;

use super::encoder::{Encoder, SHIFT};
use super::tables::{Decode, Encode, PROB_BITS, TOTAL};
use super::{LANES, LOWER, Lanes};

const WIDTH: usize = 16;

/// Decodes whole rounds while enough words are left for any round; returns the symbols written.
#[target_feature(enable = "avx512f,avx512bw,popcnt")]
pub(super) fn decode(table: &Decode, lanes: &mut Lanes<'_>, out: &mut [u8]) -> usize {
    let mut states = [_mm512_setzero_si512(); LANES / WIDTH];
    for (x, lanes) in states.iter_mut().zip(lanes.states.as_chunks::<WIDTH>().0) {
        // SAFETY: 16 states are 64 bytes.
        *x = unsafe { _mm512_loadu_si512(lanes.as_ptr().cast()) };
    }
    let (words, mut at, mut done) = (lanes.words, lanes.at, 0);
    for round in out.as_chunks_mut::<LANES>().0 {
        // A round takes at most one word per lane.
        if words.len() - at < 2 * LANES {
            break;
        }
        let round = round.as_chunks_mut::<WIDTH>().0;
        // No loop: the states stay in registers.
        // SAFETY: no step takes more than 2 WIDTH of the 2 LANES bytes that were left.
        unsafe {
            states[0] = step(table, states[0], words, &mut at, &mut round[0]);
            states[1] = step(table, states[1], words, &mut at, &mut round[1]);
            states[2] = step(table, states[2], words, &mut at, &mut round[2]);
            states[3] = step(table, states[3], words, &mut at, &mut round[3]);
        }
        done += LANES;
    }
    lanes.at = at;
    for (lanes, x) in lanes.states.as_chunks_mut::<WIDTH>().0.iter_mut().zip(states) {
        // SAFETY: 16 states are 64 bytes.
        unsafe { _mm512_storeu_si512(lanes.as_mut_ptr().cast(), x) };
    }
    done
}

/// One symbol of each of 16 lanes; returns their states.
///
/// # Safety
/// 2 WIDTH bytes of `words` are left from `at` on.
#[target_feature(enable = "avx512f,avx512bw,popcnt")]
#[inline]
unsafe fn step(
    table: &Decode,
    x: __m512i,
    words: &[u8],
    at: &mut usize,
    symbols: &mut [u8; WIDTH],
) -> __m512i {
    let low = _mm512_set1_epi32(TOTAL as i32 - 1);
    let entry = look_up(table, _mm512_cvtepi32_epi16(_mm512_and_si512(x, low)));
    // SAFETY: `symbols` has 16 bytes.
    unsafe { _mm_storeu_si128(symbols.as_mut_ptr().cast(), _mm512_cvtepi32_epi8(entry)) };
    let frequency = _mm512_and_si512(_mm512_srli_epi32::<8>(entry), low);
    let next = _mm512_add_epi32(
        _mm512_mullo_epi32(frequency, _mm512_srli_epi32::<PROB_BITS>(x)),
        _mm512_srli_epi32::<20>(entry),
    );
    let short = _mm512_cmplt_epu32_mask(next, _mm512_set1_epi32(LOWER as i32));
    // SAFETY: 32 bytes are left, as the caller says.
    let words = unsafe { _mm256_loadu_si256(words.as_ptr().add(*at).cast()) };
    let words = _mm512_maskz_expand_epi32(short, _mm512_cvtepu16_epi32(words));
    *at += 2 * short.count_ones() as usize;
    _mm512_mask_or_epi32(next, short, _mm512_slli_epi32::<16>(next), words)
}

/// The entries of 16 indices. Not a gather, which takes a fifth longer on Zen 4.
#[target_feature(enable = "avx512f,avx512bw")]
#[inline]
fn look_up(table: &Decode, indices: __m256i) -> __m512i {
    let (low, high) = (_mm256_castsi256_si128(indices), _mm256_extracti128_si256::<1>(indices));
    let a = table.four(_mm_cvtsi128_si64(low) as u64);
    let b = table.four(_mm_extract_epi64::<1>(low) as u64);
    let c = table.four(_mm_cvtsi128_si64(high) as u64);
    let d = table.four(_mm_extract_epi64::<1>(high) as u64);
    let (low, high) = (_mm256_set_m128i(b, a), _mm256_set_m128i(d, c));
    _mm512_inserti64x4::<1>(_mm512_castsi256_si512(low), high)
}

/// Encodes whole rounds, from the last to the first.
#[target_feature(enable = "avx512f,avx512bw,popcnt")]
pub(super) fn encode(table: &Encode, encoder: &mut Encoder<'_>, rounds: &[[u8; LANES]]) {
    // A register has every second of 16 states, in 64 bits.
    let mut even = [_mm512_setzero_si512(); LANES / WIDTH];
    let mut odd = even;
    let low = _mm512_set1_epi64(0xffff_ffff);
    for (i, lanes) in encoder.states.as_chunks::<WIDTH>().0.iter().enumerate() {
        // SAFETY: 16 states are 64 bytes.
        let x = unsafe { _mm512_loadu_si512(lanes.as_ptr().cast()) };
        (even[i], odd[i]) = (_mm512_and_si512(x, low), _mm512_srli_epi64::<32>(x));
    }
    let mut at = encoder.at;
    for round in rounds.iter().rev() {
        // A round writes at most one word per lane; a step, 2 WIDTH bytes in front of `at`.
        assert!(at >= 2 * LANES && at <= encoder.words.len());
        let round = round.as_chunks::<WIDTH>().0;
        // No loop: the states stay in registers.
        // SAFETY: no step takes more than 2 WIDTH of the 2 LANES bytes that were in front.
        unsafe {
            put(table, &mut even[3], &mut odd[3], &round[3], encoder.words, &mut at);
            put(table, &mut even[2], &mut odd[2], &round[2], encoder.words, &mut at);
            put(table, &mut even[1], &mut odd[1], &round[1], encoder.words, &mut at);
            put(table, &mut even[0], &mut odd[0], &round[0], encoder.words, &mut at);
        }
    }
    encoder.at = at;
    for (i, lanes) in encoder.states.as_chunks_mut::<WIDTH>().0.iter_mut().enumerate() {
        let x = _mm512_or_si512(even[i], _mm512_slli_epi64::<32>(odd[i]));
        // SAFETY: 16 states are 64 bytes.
        unsafe { _mm512_storeu_si512(lanes.as_mut_ptr().cast(), x) };
    }
}

/// One symbol for each of 16 lanes.
///
/// # Safety
/// 2 WIDTH bytes of `words` are in front of `at`.
#[target_feature(enable = "avx512f,avx512bw,popcnt")]
#[inline]
unsafe fn put(
    table: &Encode,
    even: &mut __m512i,
    odd: &mut __m512i,
    symbols: &[u8; WIDTH],
    words: &mut [u8],
    at: &mut usize,
) {
    let entry = |i: usize| table.0[usize::from(symbols[i])] as i64;
    let e = |i: usize| {
        let low = _mm256_set_epi64x(entry(i + 6), entry(i + 4), entry(i + 2), entry(i));
        let high = _mm256_set_epi64x(entry(i + 14), entry(i + 12), entry(i + 10), entry(i + 8));
        _mm512_inserti64x4::<1>(_mm512_castsi256_si512(low), high)
    };
    let (evens, odds) = (e(0), e(1));
    let both = _mm512_or_si512(*even, _mm512_slli_epi64::<32>(*odd));
    // A frequency is 12 bits, and states are compared with it, shifted.
    let frequencies = _mm512_mask_blend_epi32(0xaaaa, _mm512_srli_epi64::<32>(evens), odds);
    let bound = _mm512_slli_epi32::<SHIFT>(_mm512_and_si512(frequencies, _mm512_set1_epi32(0xfff)));
    let full = _mm512_cmpge_epu32_mask(both, bound);
    let count = full.count_ones() as usize;
    // The words end where those of later symbols begin: what is in front of them is written over.
    let first = _mm512_maskz_compress_epi32(full, both);
    let last = _mm512_maskz_expand_epi32(!(0xffff_u32 >> count) as u16, first);
    let end = words.as_mut_ptr().wrapping_add(*at).wrapping_sub(2 * WIDTH);
    // SAFETY: there are 32 bytes in front of `at`, as the caller says.
    unsafe { _mm256_storeu_si256(end.cast(), _mm512_cvtepi32_epi16(last)) };
    *at -= 2 * count;
    let both = _mm512_mask_srli_epi32::<16>(both, full, both);
    let low = _mm512_set1_epi64(0xffff_ffff);
    *even = advance(evens, _mm512_and_si512(both, low));
    *odd = advance(odds, _mm512_srli_epi64::<32>(both));
}

/// States after a symbol whose words they have given off.
#[target_feature(enable = "avx512f")]
#[inline]
fn advance(entry: __m512i, x: __m512i) -> __m512i {
    let twelve = _mm512_set1_epi64(0xfff);
    let quotient = _mm512_srlv_epi64(_mm512_mul_epu32(x, entry), _mm512_srli_epi64::<56>(entry));
    let frequency = _mm512_and_si512(_mm512_srli_epi64::<32>(entry), twelve);
    let start = _mm512_and_si512(_mm512_srli_epi64::<44>(entry), twelve);
    let others = _mm512_sub_epi64(_mm512_set1_epi64(i64::from(TOTAL)), frequency);
    _mm512_add_epi64(_mm512_add_epi64(x, start), _mm512_mul_epu32(quotient, others))
}
