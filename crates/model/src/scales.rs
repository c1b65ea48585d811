//! The scales of matrices in e4m3, as weight files store them and as the device takes them.

use crate::fp8::{BLOCK, Fp8Scales};

/// A stored tensor of scales, borrowed from the mapped file, for a matrix that is all of the scaled
/// one or some of its rows.
#[derive(Clone, Copy, Debug)]
pub struct ScalesRef<'a> {
    /// All scales of the scaled tensor, row-major, little-endian, of any alignment.
    pub(crate) data: &'a [u8],
    pub(crate) dtype: ScaleDtype,
    /// Which weights share one.
    pub(crate) layout: Fp8Scales,
    /// Where the matrix begins in the scaled tensor.
    pub(crate) first_row: u64,
}

/// Element types of scales.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ScaleDtype {
    F32,
    Bf16,
}

impl ScaleDtype {
    pub(crate) fn from_safetensors(dtype: safetensors::Dtype) -> Option<Self> {
        match dtype {
            safetensors::Dtype::F32 => Some(Self::F32),
            safetensors::Dtype::BF16 => Some(Self::Bf16),
            _ => None,
        }
    }
}

impl ScalesRef<'_> {
    /// A scale for each row of a matrix and 128 columns: `[rows][ceil(cols / 128)]`.
    pub fn expand(&self, rows: u64, cols: u64) -> Vec<f32> {
        let groups = cols.div_ceil(BLOCK);
        let place = |row: u64, group: u64| match self.layout {
            Fp8Scales::Tensor => 0,
            Fp8Scales::Channel => row,
            Fp8Scales::Block => row / BLOCK * groups + group,
        };
        let rows = self.first_row..self.first_row + rows;
        rows.flat_map(|row| (0..groups).map(move |group| place(row, group)))
            .map(|index| self.read(index as usize))
            .collect()
    }

    fn read(&self, index: usize) -> f32 {
        let byte = |at: usize| self.data[at];
        match self.dtype {
            ScaleDtype::F32 => f32::from_le_bytes(std::array::from_fn(|i| byte(4 * index + i))),
            ScaleDtype::Bf16 => f32::from_le_bytes([0, 0, byte(2 * index), byte(2 * index + 1)]),
        }
    }
}

/// Shapes that the scales of a stored `[rows, cols]` may have.
pub(crate) fn shapes_of(layout: Fp8Scales, rows: u64, cols: u64) -> Vec<Vec<u64>> {
    match layout {
        Fp8Scales::Tensor => vec![vec![1], vec![], vec![1, 1]],
        Fp8Scales::Channel => vec![vec![rows, 1], vec![rows]],
        Fp8Scales::Block => vec![vec![rows.div_ceil(BLOCK), cols.div_ceil(BLOCK)]],
    }
}
