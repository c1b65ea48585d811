//! The shape of a chunk.

/// Elements of KV.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Dtype {
    /// bfloat16.
    Bf16,
    /// IEEE half precision.
    F16,
    /// IEEE single precision.
    F32,
    /// e4m3, without infinities.
    Fp8,
}

impl Dtype {
    /// Bytes of an element.
    pub const fn bytes(self) -> usize {
        match self {
            Self::Bf16 | Self::F16 => 2,
            Self::F32 => 4,
            Self::Fp8 => 1,
        }
    }
}

/// A chunk's KV: `[layer][k, v][token][kv_head][head_dim]`, little-endian. A plane is K or V of one
/// layer; a vector is one head of one token.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Geometry {
    /// Layers of the model.
    pub num_layers: usize,
    /// Heads of K, and of V.
    pub kv_heads: usize,
    /// Elements of a head.
    pub head_dim: usize,
    /// Tokens of the chunk.
    pub num_tokens: usize,
    /// Of each element.
    pub dtype: Dtype,
}

impl Geometry {
    /// K and V of each layer.
    pub const fn num_planes(&self) -> usize {
        2 * self.num_layers
    }
    /// Vectors of a plane.
    pub const fn plane_vectors(&self) -> usize {
        self.num_tokens * self.kv_heads
    }
    /// Elements of a plane.
    pub const fn plane_elements(&self) -> usize {
        self.plane_vectors() * self.head_dim
    }
    /// Bytes of a plane.
    pub const fn plane_bytes(&self) -> usize {
        self.plane_elements() * self.dtype.bytes()
    }
    /// Bytes of the chunk.
    pub const fn bytes(&self) -> usize {
        self.num_planes() * self.plane_bytes()
    }
    /// Elements of K, or of V, of one token and layer.
    pub const fn channels(&self) -> usize {
        self.kv_heads * self.head_dim
    }
}
