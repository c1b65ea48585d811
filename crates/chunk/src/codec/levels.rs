//! Elements as f32, whatever the chunk's dtype: what quantising transforms share.

use half::{bf16, f16};

use crate::Dtype;

/// Reads elements.
pub(super) fn read(dtype: Dtype, kv: &[u8], out: &mut Vec<f32>) {
    out.clear();
    match dtype {
        Dtype::Bf16 => {
            out.extend(kv.as_chunks().0.iter().map(|w| bf16::from_le_bytes(*w).to_f32()));
        }
        Dtype::F16 => out.extend(kv.as_chunks().0.iter().map(|w| f16::from_le_bytes(*w).to_f32())),
        Dtype::F32 => out.extend(kv.as_chunks().0.iter().map(|w| f32::from_le_bytes(*w))),
    }
}

/// The largest magnitude; None if an element is not finite.
pub(super) fn largest(vector: &[f32]) -> Option<f32> {
    let most = vector.iter().fold(0f32, |most, x| most.max(x.abs()));
    vector.iter().all(|x| x.is_finite()).then_some(most)
}

/// An element that is written so can be told from an infinity.
pub(super) fn is_finite(dtype: Dtype, x: f32) -> bool {
    match dtype {
        Dtype::Bf16 => bf16::from_f32(x).is_finite(),
        Dtype::F16 => f16::from_f32(x).is_finite(),
        Dtype::F32 => x.is_finite(),
    }
}

/// Writes an element, rounded to nearest, into the front of `out`.
pub(super) fn write(dtype: Dtype, x: f32, out: &mut [u8; 4]) {
    match dtype {
        Dtype::Bf16 => out[..2].copy_from_slice(&bf16::from_f32(x).to_le_bytes()),
        Dtype::F16 => out[..2].copy_from_slice(&f16::from_f32(x).to_le_bytes()),
        Dtype::F32 => *out = x.to_le_bytes(),
    }
}
