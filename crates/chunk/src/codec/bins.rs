//! 8 bits per element: each vector (a head of a token) has a scale, its elements are multiples of
//! it from -127 to 127. A vector that this cannot describe (elements that are not finite or nearly
//! so, or all of them tiny) is kept as it is, and its scale says so. Not for fp8, which has 8 bits.
//!
//! ```text
//! aside   [vector] scale, bf16 LE; then the vectors that are kept as they are
//! ```

use half::{bf16, f16};

use super::levels::{Bf16, Element, F16, F32};
use super::vectorized::vectorized;
use super::{Transform, levels};
use crate::{Dtype, Geometry};

const MOST: f32 = 127.0;
/// In place of a scale: the vector is kept as it is.
const KEPT: u16 = 0xffff;

pub(super) struct Bins;

impl Transform for Bins {
    fn forward(
        &self,
        g: &Geometry,
        _: usize,
        kv: &[u8],
        symbols: &mut Vec<u8>,
        aside: &mut Vec<u8>,
    ) {
        aside.resize(2 * g.plane_vectors(), 0);
        symbols.resize(g.plane_elements(), 0);
        match g.dtype {
            Dtype::Bf16 => quantise_bf16(kv, g.head_dim, symbols, aside),
            Dtype::F16 => quantise_f16(kv, g.head_dim, symbols, aside),
            Dtype::F32 => quantise_f32(kv, g.head_dim, symbols, aside),
            Dtype::Fp8 => unreachable!("Codec::transform has another one for fp8"),
        }
        let bytes = g.head_dim * g.dtype.bytes();
        for (vector, kv) in kv.chunks_exact(bytes).enumerate() {
            if aside[2 * vector..][..2] == KEPT.to_le_bytes() {
                aside.extend(kv);
            }
        }
    }

    fn inverse(&self, g: &Geometry, _: usize, symbols: &[u8], aside: &[u8], kv: &mut [u8]) -> bool {
        let bytes = g.head_dim * g.dtype.bytes();
        let Some((scales, mut kept)) = aside.split_at_checked(2 * g.plane_vectors()) else {
            return false;
        };
        match g.dtype {
            Dtype::Bf16 => scale_bf16(symbols, scales, g.head_dim, kv),
            Dtype::F16 => scale_f16(symbols, scales, g.head_dim, kv),
            Dtype::F32 => scale_f32(symbols, scales, g.head_dim, kv),
            Dtype::Fp8 => unreachable!("Codec::transform has another one for fp8"),
        }
        for (scale, kv) in scales.as_chunks::<2>().0.iter().zip(kv.chunks_exact_mut(bytes)) {
            if u16::from_le_bytes(*scale) == KEPT {
                let Some((vector, after)) = kept.split_at_checked(bytes) else { return false };
                kv.copy_from_slice(vector);
                kept = after;
            }
        }
        kept.is_empty()
    }
}

/// A 127th of the largest element, to nearest: that element is less than 127.5 times as large,
/// which rounds to 127. None: what it describes would not be finite, or it has lost precision.
fn scale_of(dtype: Dtype, largest: Option<f32>) -> Option<bf16> {
    let largest = largest?;
    let scale = bf16::from_f32(largest / MOST);
    let describes = scale.is_normal() && levels::is_finite(dtype, MOST * scale.to_f32());
    (describes || largest == 0.0).then_some(scale)
}

/// Symbols stay as they are where the vector is kept.
#[inline(always)]
fn quantise<E: Element<N>, const N: usize>(
    kv: &[u8],
    head_dim: usize,
    symbols: &mut [u8],
    scales: &mut [u8],
) {
    let vectors = kv.chunks_exact(N * head_dim).zip(symbols.chunks_exact_mut(head_dim));
    for ((kv, symbols), at) in vectors.zip(scales.as_chunks_mut().0) {
        let vector = kv.as_chunks().0;
        let Some(scale) = scale_of(E::DTYPE, levels::largest::<E, N>(vector)) else {
            *at = KEPT.to_le_bytes();
            continue;
        };
        *at = scale.to_le_bytes();
        let scale = scale.to_f32();
        let per_unit = if scale == 0.0 { 0.0 } else { 1.0 / scale };
        for (symbol, element) in symbols.iter_mut().zip(vector) {
            *symbol = levels::nearest(E::read(*element) * per_unit);
        }
    }
}

vectorized! {
    fn quantise_bf16(kv: &[u8], head_dim: usize, symbols: &mut [u8], scales: &mut [u8]) {
        quantise::<Bf16, 2>(kv, head_dim, symbols, scales);
    }
}

vectorized! {
    fn quantise_f16(kv: &[u8], head_dim: usize, symbols: &mut [u8], scales: &mut [u8]) {
        quantise::<F16, 2>(kv, head_dim, symbols, scales);
    }
}

vectorized! {
    fn quantise_f32(kv: &[u8], head_dim: usize, symbols: &mut [u8], scales: &mut [u8]) {
        quantise::<F32, 4>(kv, head_dim, symbols, scales);
    }
}

fn scale_f32_of(scale: [u8; 2]) -> f32 {
    f32::from_bits(u32::from(u16::from_le_bytes(scale)) << 16)
}

vectorized! {
    fn scale_bf16(symbols: &[u8], scales: &[u8], head_dim: usize, kv: &mut [u8]) {
        let vectors = symbols.chunks_exact(head_dim).zip(scales.as_chunks().0);
        for ((symbols, scale), kv) in vectors.zip(kv.chunks_exact_mut(2 * head_dim)) {
            let scale = scale_f32_of(*scale);
            for (symbol, word) in symbols.iter().zip(kv.as_chunks_mut().0) {
                // To nearest, ties to even; a product of finite numbers is no NaN.
                let bits = (f32::from(*symbol as i8) * scale).to_bits();
                let rounded = bits.wrapping_add(0x7fff + (bits >> 16 & 1)) >> 16;
                *word = (rounded as u16).to_le_bytes();
            }
        }
    }
}

vectorized! {
    fn scale_f16(symbols: &[u8], scales: &[u8], head_dim: usize, kv: &mut [u8]) {
        let vectors = symbols.chunks_exact(head_dim).zip(scales.as_chunks().0);
        for ((symbols, scale), kv) in vectors.zip(kv.chunks_exact_mut(2 * head_dim)) {
            let scale = scale_f32_of(*scale);
            for (symbol, word) in symbols.iter().zip(kv.as_chunks_mut().0) {
                *word = f16::from_f32(f32::from(*symbol as i8) * scale).to_le_bytes();
            }
        }
    }
}

vectorized! {
    fn scale_f32(symbols: &[u8], scales: &[u8], head_dim: usize, kv: &mut [u8]) {
        let vectors = symbols.chunks_exact(head_dim).zip(scales.as_chunks().0);
        for ((symbols, scale), kv) in vectors.zip(kv.chunks_exact_mut(4 * head_dim)) {
            let scale = scale_f32_of(*scale);
            for (symbol, word) in symbols.iter().zip(kv.as_chunks_mut().0) {
                *word = (f32::from(*symbol as i8) * scale).to_le_bytes();
            }
        }
    }
}
