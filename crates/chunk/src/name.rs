//! Names of chunks: equal where the KV would be equal.

use std::fmt;

use sha2::{Digest, Sha256};

use crate::Geometry;

/// What KV depends on beside the tokens: the weights and how they are run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct ModelId([u8; 32]);

impl ModelId {
    /// `weights` tells models apart, `settings` all else that changes KV (rope scaling, for one).
    pub fn new(weights: &[u8], settings: &[u8], geometry: &Geometry) -> Self {
        let shape = [geometry.num_layers, geometry.kv_heads, geometry.head_dim];
        let mut hash = Sha256::new();
        for part in [weights, settings] {
            hash.update((part.len() as u64).to_le_bytes());
            hash.update(part);
        }
        hash.update([geometry.dtype as u8]);
        shape.iter().for_each(|n| hash.update((*n as u64).to_le_bytes()));
        Self(hash.finalize().into())
    }

    /// Of an identity that was written down.
    pub const fn from_bytes(bytes: [u8; 32]) -> Self {
        Self(bytes)
    }

    /// As it is written in a value.
    pub const fn bytes(&self) -> &[u8; 32] {
        &self.0
    }
}

/// Hexadecimal, as in the keys of a store.
impl fmt::Display for ModelId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

/// A chunk's name: the hash of its tokens and of the name of the chunk before it; in front of the
/// first one are model and salt. SHA-256, because clients choose prompts and must not find two
/// chunks of one name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Name([u8; 32]);

impl Name {
    /// In front of the first chunk. Names under different salts are different.
    pub fn root(model: &ModelId, salt: &[u8]) -> Self {
        Self::hash(model.bytes(), salt)
    }

    /// Of the chunk that continues this one.
    pub fn next(&self, tokens: &[u32]) -> Self {
        let mut hash = Sha256::new();
        hash.update(self.0);
        tokens.iter().for_each(|token| hash.update(token.to_le_bytes()));
        Self(hash.finalize().into())
    }

    /// Of a name that was written down.
    pub const fn from_bytes(bytes: [u8; 32]) -> Self {
        Self(bytes)
    }

    /// As it is written in a value.
    pub const fn bytes(&self) -> &[u8; 32] {
        &self.0
    }

    fn hash(before: &[u8; 32], what: &[u8]) -> Self {
        Self(Sha256::new().chain_update(before).chain_update(what).finalize().into())
    }
}

/// Hexadecimal, as in the keys of a store.
impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}
