//! CacheGen's quantisation (arXiv:2310.07240; the schedule of its code for models of 32 layers).
//! The elements of one token and layer have one scale and few levels, more of them in the first
//! layers, whose loss costs most.
//!
//! ```text
//! aside   [token] largest magnitude, f32 LE, or NaN; then the tokens that are kept as they are
//! ```

use super::levels::{Bf16, Element, F16, F32, Fp8};
use super::vectorized::vectorized;
use super::{Transform, levels};
use crate::{Dtype, Geometry};

/// Of 32 layers, the first ones whose K, or V, has [`FINE`] levels.
const FINE_K: usize = 10;
const FINE_V: usize = 2;
const OF_LAYERS: usize = 32;
const FINE: u32 = 32;
const COARSE: u32 = 16;

/// Largest multiple of the step on either side of zero.
fn most_of(g: &Geometry, plane: usize) -> f32 {
    let (layer, is_v) = (plane / 2, plane % 2 == 1);
    let fine = (if is_v { FINE_V } else { FINE_K } * g.num_layers).div_ceil(OF_LAYERS);
    let bins = if layer < fine { FINE } else { COARSE };
    (bins / 2 - 1) as f32
}

pub(super) struct Cachegen;

impl Transform for Cachegen {
    fn forward(
        &self,
        g: &Geometry,
        plane: usize,
        kv: &[u8],
        symbols: &mut Vec<u8>,
        aside: &mut Vec<u8>,
    ) {
        aside.resize(4 * g.num_tokens, 0);
        symbols.resize(g.plane_elements(), 0);
        let (most, channels) = (most_of(g, plane), g.channels());
        match g.dtype {
            Dtype::Bf16 => quantise_bf16(kv, channels, most, symbols, aside),
            Dtype::F16 => quantise_f16(kv, channels, most, symbols, aside),
            Dtype::F32 => quantise_f32(kv, channels, most, symbols, aside),
            Dtype::Fp8 => quantise_fp8(kv, channels, most, symbols, aside),
        }
        for (token, kv) in kv.chunks_exact(channels * g.dtype.bytes()).enumerate() {
            if aside[4 * token..][..4] == f32::NAN.to_le_bytes() {
                aside.extend(kv);
            }
        }
    }

    fn inverse(
        &self,
        g: &Geometry,
        plane: usize,
        symbols: &[u8],
        aside: &[u8],
        kv: &mut [u8],
    ) -> bool {
        let most = most_of(g, plane);
        let bytes = g.channels() * g.dtype.bytes();
        let Some((scales, mut kept)) = aside.split_at_checked(4 * g.num_tokens) else {
            return false;
        };
        let tokens = symbols.chunks_exact(g.channels()).zip(scales.as_chunks().0);
        for ((symbols, largest), kv) in tokens.zip(kv.chunks_exact_mut(bytes)) {
            let largest = f32::from_le_bytes(*largest);
            if largest.is_nan() {
                let Some((token, after)) = kept.split_at_checked(bytes) else { return false };
                kv.copy_from_slice(token);
                kept = after;
            } else {
                write_levels(g.dtype, symbols, most, largest, kv);
            }
        }
        kept.is_empty()
    }
}

#[inline(always)]
fn quantise<E: Element<N>, const N: usize>(
    kv: &[u8],
    channels: usize,
    most: f32,
    symbols: &mut [u8],
    scales: &mut [u8],
) {
    let tokens = kv.chunks_exact(N * channels).zip(symbols.chunks_exact_mut(channels));
    for ((kv, symbols), at) in tokens.zip(scales.as_chunks_mut().0) {
        let token = kv.as_chunks().0;
        let largest = levels::largest::<E, N>(token);
        let largest = largest.filter(|l| *l == 0.0 || (most / l).is_finite());
        *at = largest.unwrap_or(f32::NAN).to_le_bytes();
        let Some(largest) = largest else {
            symbols.fill(most as u8);
            continue;
        };
        let per_unit = if largest == 0.0 { 0.0 } else { most / largest };
        for (symbol, element) in symbols.iter_mut().zip(token) {
            *symbol = levels::nearest(E::read(*element) * per_unit + most);
        }
    }
}

vectorized! {
    fn quantise_bf16(
        kv: &[u8], channels: usize, most: f32, symbols: &mut [u8], scales: &mut [u8],
    ) {
        quantise::<Bf16, 2>(kv, channels, most, symbols, scales);
    }
}

vectorized! {
    fn quantise_f16(
        kv: &[u8], channels: usize, most: f32, symbols: &mut [u8], scales: &mut [u8],
    ) {
        quantise::<F16, 2>(kv, channels, most, symbols, scales);
    }
}

vectorized! {
    fn quantise_f32(
        kv: &[u8], channels: usize, most: f32, symbols: &mut [u8], scales: &mut [u8],
    ) {
        quantise::<F32, 4>(kv, channels, most, symbols, scales);
    }
}

vectorized! {
    fn quantise_fp8(
        kv: &[u8], channels: usize, most: f32, symbols: &mut [u8], scales: &mut [u8],
    ) {
        quantise::<Fp8, 1>(kv, channels, most, symbols, scales);
    }
}

fn write_levels(dtype: Dtype, symbols: &[u8], most: f32, largest: f32, kv: &mut [u8]) {
    // There are few levels: each is computed once.
    let mut values = [[0u8; 4]; 256];
    for (symbol, value) in values.iter_mut().enumerate().take(2 * most as usize + 1) {
        levels::write(dtype, (symbol as f32 - most) / most * largest, value);
    }
    match dtype {
        Dtype::Bf16 | Dtype::F16 => {
            place(symbols, &values.map(|[a, b, ..]| [a, b]), kv.as_chunks_mut().0);
        }
        Dtype::F32 => place(symbols, &values, kv.as_chunks_mut().0),
        Dtype::Fp8 => place(symbols, &values.map(|[a, ..]| [a]), kv.as_chunks_mut().0),
    }
}

fn place<const N: usize>(symbols: &[u8], values: &[[u8; N]; 256], elements: &mut [[u8; N]]) {
    for (symbol, element) in symbols.iter().zip(elements) {
        *element = values[usize::from(*symbol)];
    }
}
