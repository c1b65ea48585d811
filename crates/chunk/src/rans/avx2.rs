//! 8 lanes in a register.

use std::arch::x86_64::*;

use super::encoder::{Encoder, SHIFT};
use super::tables::{Decode, Encode, PROB_BITS, TOTAL};
use super::{LANES, LOWER, Lanes};

const WIDTH: usize = 8;

/// By a mask of lanes: which of the next words each of them takes.
static TAKES: [[u32; WIDTH]; 256] = takes();

const fn takes() -> [[u32; WIDTH]; 256] {
    let mut all = [[0; WIDTH]; 256];
    let mut mask = 0;
    while mask < 256 {
        let (mut lane, mut next) = (0, 0);
        while lane < WIDTH {
            if mask >> lane & 1 == 1 {
                all[mask][lane] = next;
                next += 1;
            }
            lane += 1;
        }
        mask += 1;
    }
    all
}

/// Decodes whole rounds while enough words are left for any round; returns the symbols written.
#[target_feature(enable = "avx2,popcnt")]
pub(super) fn decode(table: &Decode, lanes: &mut Lanes<'_>, out: &mut [u8]) -> usize {
    let mut states = [_mm256_setzero_si256(); LANES / WIDTH];
    for (x, lanes) in states.iter_mut().zip(lanes.states.as_chunks::<WIDTH>().0) {
        // SAFETY: 8 states are 32 bytes.
        *x = unsafe { _mm256_loadu_si256(lanes.as_ptr().cast()) };
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
            states[4] = step(table, states[4], words, &mut at, &mut round[4]);
            states[5] = step(table, states[5], words, &mut at, &mut round[5]);
            states[6] = step(table, states[6], words, &mut at, &mut round[6]);
            states[7] = step(table, states[7], words, &mut at, &mut round[7]);
        }
        done += LANES;
    }
    lanes.at = at;
    for (lanes, x) in lanes.states.as_chunks_mut::<WIDTH>().0.iter_mut().zip(states) {
        // SAFETY: 8 states are 32 bytes.
        unsafe { _mm256_storeu_si256(lanes.as_mut_ptr().cast(), x) };
    }
    done
}

/// One symbol of each of 8 lanes; returns their states.
///
/// # Safety
/// 2 WIDTH bytes of `words` are left from `at` on.
#[target_feature(enable = "avx2,popcnt")]
#[inline]
unsafe fn step(
    table: &Decode,
    x: __m256i,
    words: &[u8],
    at: &mut usize,
    symbols: &mut [u8; WIDTH],
) -> __m256i {
    let low = _mm256_set1_epi32(TOTAL as i32 - 1);
    let (first, second) = halves(_mm256_and_si256(x, low));
    let indices = _mm_packus_epi32(first, second);
    let first = table.four(_mm_cvtsi128_si64(indices) as u64);
    let second = table.four(_mm_extract_epi64::<1>(indices) as u64);
    // The first byte of each 32-bit lane.
    let bytes = _mm_set_epi8(-1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, 12, 8, 4, 0);
    let bytes = _mm_unpacklo_epi32(_mm_shuffle_epi8(first, bytes), _mm_shuffle_epi8(second, bytes));
    // SAFETY: `symbols` has 8 bytes.
    unsafe { _mm_storel_epi64(symbols.as_mut_ptr().cast(), bytes) };
    let entry = _mm256_set_m128i(second, first);
    let frequency = _mm256_and_si256(_mm256_srli_epi32::<8>(entry), low);
    let next = _mm256_add_epi32(
        _mm256_mullo_epi32(frequency, _mm256_srli_epi32::<{ PROB_BITS as i32 }>(x)),
        _mm256_srli_epi32::<20>(entry),
    );
    // States are below LOWER << 16: positive as signed numbers.
    let short = _mm256_cmpgt_epi32(_mm256_set1_epi32(LOWER as i32), next);
    let mask = _mm256_movemask_ps(_mm256_castsi256_ps(short)) as usize;
    // SAFETY: 16 bytes are left, as the caller says.
    let words = unsafe { _mm_loadu_si128(words.as_ptr().add(*at).cast()) };
    // SAFETY: an entry has 32 bytes.
    let takes = unsafe { _mm256_loadu_si256(TAKES[mask].as_ptr().cast()) };
    let words = _mm256_permutevar8x32_epi32(_mm256_cvtepu16_epi32(words), takes);
    *at += 2 * mask.count_ones() as usize;
    let longer = _mm256_or_si256(_mm256_slli_epi32::<16>(next), words);
    _mm256_blendv_epi8(next, longer, short)
}

#[target_feature(enable = "avx2")]
#[inline]
fn halves(x: __m256i) -> (__m128i, __m128i) {
    (_mm256_castsi256_si128(x), _mm256_extracti128_si256::<1>(x))
}

/// By a mask of lanes: those lanes, in order, at the end.
static GIVES: [[u32; WIDTH]; 256] = gives();

const fn gives() -> [[u32; WIDTH]; 256] {
    let mut all = [[0; WIDTH]; 256];
    let mut mask: usize = 0;
    while mask < 256 {
        let (mut lane, mut next) = (0, WIDTH - mask.count_ones() as usize);
        while lane < WIDTH {
            if mask >> lane & 1 == 1 {
                all[mask][next] = lane as u32;
                next += 1;
            }
            lane += 1;
        }
        mask += 1;
    }
    all
}

/// Encodes whole rounds, from the last to the first.
#[target_feature(enable = "avx2,popcnt")]
pub(super) fn encode(table: &Encode, encoder: &mut Encoder<'_>, rounds: &[[u8; LANES]]) {
    let mut states = [_mm256_setzero_si256(); LANES / WIDTH];
    for (x, lanes) in states.iter_mut().zip(encoder.states.as_chunks::<WIDTH>().0) {
        // SAFETY: 8 states are 32 bytes.
        *x = unsafe { _mm256_loadu_si256(lanes.as_ptr().cast()) };
    }
    let mut at = encoder.at;
    for round in rounds.iter().rev() {
        // A round writes at most one word per lane; a step, 2 WIDTH bytes in front of `at`.
        assert!(at >= 2 * LANES && at <= encoder.words.len());
        for (x, symbols) in states.iter_mut().zip(round.as_chunks::<WIDTH>().0).rev() {
            // SAFETY: no step takes more than 2 WIDTH of the 2 LANES bytes that were in front.
            *x = unsafe { put(table, *x, symbols, encoder.words, &mut at) };
        }
    }
    encoder.at = at;
    for (lanes, x) in encoder.states.as_chunks_mut::<WIDTH>().0.iter_mut().zip(states) {
        // SAFETY: 8 states are 32 bytes.
        unsafe { _mm256_storeu_si256(lanes.as_mut_ptr().cast(), x) };
    }
}

/// One symbol for each of 8 lanes; returns their states.
///
/// # Safety
/// 2 WIDTH bytes of `words` are in front of `at`.
#[target_feature(enable = "avx2,popcnt")]
#[inline]
unsafe fn put(
    table: &Encode,
    x: __m256i,
    symbols: &[u8; WIDTH],
    words: &mut [u8],
    at: &mut usize,
) -> __m256i {
    let entry = |i: usize| table.0[usize::from(symbols[i])] as i64;
    let even = _mm256_set_epi64x(entry(6), entry(4), entry(2), entry(0));
    let odd = _mm256_set_epi64x(entry(7), entry(5), entry(3), entry(1));
    let frequencies = _mm256_blend_epi32::<0xaa>(_mm256_srli_epi64::<32>(even), odd);
    let frequencies = _mm256_and_si256(frequencies, _mm256_set1_epi32(0xfff));
    // States, and bounds less one, are below 2^31: positive as signed numbers.
    let bound = _mm256_slli_epi32::<{ SHIFT as i32 }>(frequencies);
    let full = _mm256_cmpgt_epi32(x, _mm256_sub_epi32(bound, _mm256_set1_epi32(1)));
    let mask = _mm256_movemask_ps(_mm256_castsi256_ps(full)) as usize;
    // SAFETY: an entry has 32 bytes.
    let gives = unsafe { _mm256_loadu_si256(GIVES[mask].as_ptr().cast()) };
    let given = _mm256_and_si256(x, _mm256_set1_epi32(0xffff));
    let (first, second) = halves(_mm256_permutevar8x32_epi32(given, gives));
    // The words end where those of later symbols begin: what is in front of them is written over.
    let end = words.as_mut_ptr().wrapping_add(*at).wrapping_sub(2 * WIDTH);
    // SAFETY: there are 16 bytes in front of `at`, as the caller says.
    unsafe { _mm_storeu_si128(end.cast(), _mm_packus_epi32(first, second)) };
    *at -= 2 * mask.count_ones() as usize;
    let x = _mm256_blendv_epi8(x, _mm256_srli_epi32::<16>(x), full);
    let low = _mm256_set1_epi64x(0xffff_ffff);
    let even = advance(even, _mm256_and_si256(x, low));
    let odd = advance(odd, _mm256_srli_epi64::<32>(x));
    _mm256_or_si256(even, _mm256_slli_epi64::<32>(odd))
}

/// States, in 64 bits each, after a symbol whose words they have given off.
#[target_feature(enable = "avx2")]
#[inline]
fn advance(entry: __m256i, x: __m256i) -> __m256i {
    let twelve = _mm256_set1_epi64x(0xfff);
    let quotient = _mm256_srlv_epi64(_mm256_mul_epu32(x, entry), _mm256_srli_epi64::<56>(entry));
    let frequency = _mm256_and_si256(_mm256_srli_epi64::<32>(entry), twelve);
    let start = _mm256_and_si256(_mm256_srli_epi64::<44>(entry), twelve);
    let others = _mm256_sub_epi64(_mm256_set1_epi64x(i64::from(TOTAL)), frequency);
    _mm256_add_epi64(_mm256_add_epi64(x, start), _mm256_mul_epu32(quotient, others))
}
