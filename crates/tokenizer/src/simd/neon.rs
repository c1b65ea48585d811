//! NEON.

use super::{Isa, MAX_KEYS, SLOTS, Scalar, Wide};
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

// SAFETY: portable code; there are no gathers to make it faster.
unsafe impl Wide for Neon {}

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

    #[inline(always)]
    unsafe fn min_key(keys: &[u32; MAX_KEYS], len: usize) -> u32 {
        // SAFETY: the trait's contract.
        unsafe { min_key_neon(keys, len) }
    }

    #[inline(always)]
    unsafe fn min_of_slots(keys: &[u32; SLOTS]) -> u32 {
        // SAFETY: as above; 8 times 16 bytes.
        unsafe {
            let [a, b, c, d] = [0, 8, 16, 24].map(|at| {
                vminq_u32(vld1q_u32(keys.as_ptr().add(at)), vld1q_u32(keys.as_ptr().add(at + 4)))
            });
            vminvq_u32(vminq_u32(vminq_u32(a, b), vminq_u32(c, d)))
        }
    }
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
