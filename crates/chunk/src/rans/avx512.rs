//! 16 lanes in a register.

use std::arch::x86_64::*;

use super::tables::{Decode, PROB_BITS, TOTAL};
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
