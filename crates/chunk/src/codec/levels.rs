//! Elements as f32, whatever the chunk's dtype: what quantising transforms share.

use half::{bf16, f16};

use crate::Dtype;

/// A dtype whose elements are `N` bytes.
pub(super) trait Element<const N: usize> {
    const DTYPE: Dtype;
    /// Bits of infinity; finite magnitudes are below, in order.
    const INFINITY: u32;
    /// Without the sign.
    fn magnitude(bytes: [u8; N]) -> u32;
    /// Of a finite element.
    fn read(bytes: [u8; N]) -> f32;
}

pub(super) struct Bf16;
pub(super) struct F16;
pub(super) struct F32;
pub(super) struct Fp8;

impl Element<2> for Bf16 {
    const DTYPE: Dtype = Dtype::Bf16;
    const INFINITY: u32 = 0x7f80;
    #[inline(always)]
    fn magnitude(bytes: [u8; 2]) -> u32 {
        u32::from(u16::from_le_bytes(bytes) & 0x7fff)
    }
    #[inline(always)]
    fn read(bytes: [u8; 2]) -> f32 {
        f32::from_bits(u32::from(u16::from_le_bytes(bytes)) << 16)
    }
}

impl Element<2> for F16 {
    const DTYPE: Dtype = Dtype::F16;
    const INFINITY: u32 = 0x7c00;
    #[inline(always)]
    fn magnitude(bytes: [u8; 2]) -> u32 {
        u32::from(u16::from_le_bytes(bytes) & 0x7fff)
    }
    #[inline(always)]
    fn read(bytes: [u8; 2]) -> f32 {
        /// By which the exponents' biases differ, 127 and 15.
        const BIAS: f32 = f32::from_bits((127 + 127 - 15) << 23);
        let bits = u32::from(u16::from_le_bytes(bytes));
        // Exact, of subnormal numbers too.
        let magnitude = f32::from_bits((bits & 0x7fff) << 13) * BIAS;
        f32::from_bits(magnitude.to_bits() | (bits & 0x8000) << 16)
    }
}

impl Element<4> for F32 {
    const DTYPE: Dtype = Dtype::F32;
    const INFINITY: u32 = 0x7f80_0000;
    #[inline(always)]
    fn magnitude(bytes: [u8; 4]) -> u32 {
        u32::from_le_bytes(bytes) & 0x7fff_ffff
    }
    #[inline(always)]
    fn read(bytes: [u8; 4]) -> f32 {
        f32::from_le_bytes(bytes)
    }
}

impl Element<1> for Fp8 {
    const DTYPE: Dtype = Dtype::Fp8;
    /// There is none; this is NaN.
    const INFINITY: u32 = 0x7f;
    #[inline(always)]
    fn magnitude(bytes: [u8; 1]) -> u32 {
        u32::from(bytes[0] & 0x7f)
    }
    #[inline(always)]
    fn read(bytes: [u8; 1]) -> f32 {
        /// By which the exponents' biases differ, 127 and 7.
        const BIAS: f32 = f32::from_bits((127 + 127 - 7) << 23);
        let bits = u32::from(bytes[0]);
        // Exact, of subnormal numbers too.
        let magnitude = f32::from_bits((bits & 0x7f) << 20) * BIAS;
        f32::from_bits(magnitude.to_bits() | (bits & 0x80) << 24)
    }
}

/// To nearest, ties to even, of a number that is at most 448 on either side of zero.
fn fp8_of(x: f32) -> u8 {
    /// In floats from here on, a unit in the last place is 2^-9.
    const SUBNORMAL: f32 = (1 << 14) as f32;
    let bits = x.to_bits();
    let magnitude = bits & 0x7fff_ffff;
    let rounded = if magnitude < (127 - 6) << 23 {
        (x.abs() + SUBNORMAL).to_bits() - SUBNORMAL.to_bits()
    } else {
        (magnitude - ((127 - 7) << 23) + 0x7_ffff + (magnitude >> 20 & 1)) >> 20
    };
    (rounded | bits >> 24 & 0x80) as u8
}

/// The largest magnitude; None if an element is not finite.
#[inline(always)]
pub(super) fn largest<E: Element<N>, const N: usize>(vector: &[[u8; N]]) -> Option<f32> {
    let most = vector.iter().fold(0, |most, element| E::magnitude(*element).max(most));
    let mut bytes = [0; N];
    bytes.copy_from_slice(&most.to_le_bytes()[..N]);
    (most < E::INFINITY).then(|| E::read(bytes))
}

/// To nearest, ties to even, of a number between -128 and 256: the low byte of the integer.
#[inline(always)]
pub(super) fn nearest(x: f32) -> u8 {
    // Here a unit in the last place is one.
    const UNITS: f32 = (3 << 22) as f32;
    (x + UNITS).to_bits() as u8
}

/// An element that is written so can be told from an infinity.
pub(super) fn is_finite(dtype: Dtype, x: f32) -> bool {
    match dtype {
        Dtype::Bf16 => bf16::from_f32(x).is_finite(),
        Dtype::F16 => f16::from_f32(x).is_finite(),
        Dtype::F32 => x.is_finite(),
        Dtype::Fp8 => x.abs() <= 448.0,
    }
}

/// Writes an element, rounded to nearest, into the front of `out`.
pub(super) fn write(dtype: Dtype, x: f32, out: &mut [u8; 4]) {
    match dtype {
        Dtype::Bf16 => out[..2].copy_from_slice(&bf16::from_f32(x).to_le_bytes()),
        Dtype::F16 => out[..2].copy_from_slice(&f16::from_f32(x).to_le_bytes()),
        Dtype::F32 => *out = x.to_le_bytes(),
        Dtype::Fp8 => out[0] = fp8_of(x),
    }
}
