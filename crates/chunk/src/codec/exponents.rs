//! Every bit returns. An element, rotated left by one bit, has its exponent in its top byte (half
//! precision: exponent and three bits of mantissa; fp8: all of it) and its sign at the end. Top
//! bytes of one channel are alike over tokens: what is coded is how far each is below the channel's
//! largest. The other bytes are nearly random, and are kept as they are.
//!
//! ```text
//! aside   [channel] largest top byte; then [byte, from the second on][element]
//! ```

use super::Transform;
use super::vectorized::vectorized;
use crate::{Dtype, Geometry};

pub(super) struct Exponents;

impl Transform for Exponents {
    fn forward(
        &self,
        g: &Geometry,
        _: usize,
        kv: &[u8],
        symbols: &mut Vec<u8>,
        aside: &mut Vec<u8>,
    ) {
        let n = g.plane_elements();
        symbols.resize(n, 0);
        aside.resize(g.channels() + n * (g.dtype.bytes() - 1), 0);
        let (largest, rest) = aside.split_at_mut(g.channels());
        match g.dtype {
            Dtype::Fp8 => rotate_8(kv, symbols),
            Dtype::Bf16 | Dtype::F16 => split_16(kv, symbols, rest),
            Dtype::F32 => {
                let (high, low) = rest.split_at_mut(n);
                let (middle, low) = low.split_at_mut(n);
                split_32(kv, symbols, high, middle, low);
            }
        }
        below_largest(symbols, largest);
    }

    fn inverse(&self, g: &Geometry, _: usize, symbols: &[u8], aside: &[u8], kv: &mut [u8]) -> bool {
        let n = g.plane_elements();
        let Some((largest, rest)) = aside.split_at_checked(g.channels()) else { return false };
        if rest.len() != n * (g.dtype.bytes() - 1) {
            return false;
        }
        match g.dtype {
            Dtype::Fp8 => rotate_back_8(symbols, largest, kv),
            Dtype::Bf16 | Dtype::F16 => join_16(symbols, largest, rest, kv),
            Dtype::F32 => {
                let (high, low) = rest.split_at(n);
                let (middle, low) = low.split_at(n);
                join_32(symbols, largest, high, middle, low, kv);
            }
        }
        true
    }
}

vectorized! {
    /// Top bytes become distances to the largest of their channel.
    fn below_largest(tops: &mut [u8], largest: &mut [u8]) {
        let channels = largest.len();
        for row in tops.chunks_exact(channels) {
            for (most, top) in largest.iter_mut().zip(row) {
                *most = (*most).max(*top);
            }
        }
        for row in tops.chunks_exact_mut(channels) {
            for (top, most) in row.iter_mut().zip(&*largest) {
                *top = most - *top;
            }
        }
    }
}

vectorized! {
    fn rotate_8(kv: &[u8], tops: &mut [u8]) {
        for (element, top) in kv.iter().zip(tops) {
            *top = element.rotate_left(1);
        }
    }
}

vectorized! {
    fn rotate_back_8(symbols: &[u8], largest: &[u8], kv: &mut [u8]) {
        let rows = symbols.chunks_exact(largest.len()).zip(kv.chunks_exact_mut(largest.len()));
        for (symbols, kv) in rows {
            for ((symbol, most), element) in symbols.iter().zip(largest).zip(kv) {
                *element = most.wrapping_sub(*symbol).rotate_right(1);
            }
        }
    }
}

vectorized! {
    fn split_16(kv: &[u8], tops: &mut [u8], rest: &mut [u8]) {
        for ((word, top), low) in kv.as_chunks().0.iter().zip(tops).zip(rest) {
            let word = u16::from_le_bytes(*word).rotate_left(1);
            (*top, *low) = ((word >> 8) as u8, word as u8);
        }
    }
}

vectorized! {
    fn split_32(kv: &[u8], tops: &mut [u8], high: &mut [u8], middle: &mut [u8], low: &mut [u8]) {
        let rest = high.iter_mut().zip(middle).zip(low);
        for ((word, top), ((high, middle), low)) in kv.as_chunks().0.iter().zip(tops).zip(rest) {
            [*top, *high, *middle, *low] = u32::from_le_bytes(*word).rotate_left(1).to_be_bytes();
        }
    }
}

vectorized! {
    fn join_16(symbols: &[u8], largest: &[u8], rest: &[u8], kv: &mut [u8]) {
        let channels = largest.len();
        let rows = symbols.chunks_exact(channels).zip(rest.chunks_exact(channels));
        for ((symbols, rest), kv) in rows.zip(kv.chunks_exact_mut(2 * channels)) {
            let elements = symbols.iter().zip(largest).zip(rest);
            for (((symbol, most), low), word) in elements.zip(kv.as_chunks_mut().0) {
                let top = u16::from(most.wrapping_sub(*symbol));
                *word = (top << 8 | u16::from(*low)).rotate_right(1).to_le_bytes();
            }
        }
    }
}

vectorized! {
    fn join_32(
        symbols: &[u8], largest: &[u8], high: &[u8], middle: &[u8], low: &[u8], kv: &mut [u8],
    ) {
        let channels = largest.len();
        for (i, word) in kv.as_chunks_mut().0.iter_mut().enumerate() {
            let top = largest[i % channels].wrapping_sub(symbols[i]);
            let element = u32::from_be_bytes([top, high[i], middle[i], low[i]]);
            *word = element.rotate_right(1).to_le_bytes();
        }
    }
}
