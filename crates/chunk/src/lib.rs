//! KV chunks at a distance: a chunk is the KV of 256 tokens, named by what it holds, coded for the
//! way to a store and back, and kept there in a value that describes itself. A reader believes a
//! value only if all of it is what was asked for.

pub mod codec;
pub mod deflate;
mod geometry;
mod name;
pub mod rans;
mod value;

pub use codec::Codec;
pub use geometry::{Dtype, Geometry};
pub use name::{ModelId, Name};
pub use value::{Rejection, Value, describe, open, raw_value_bytes, seal};

/// Tokens of a chunk.
pub const CHUNK_TOKENS: usize = 256;
