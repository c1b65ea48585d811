//! Hugging Face model folders: where the files are, what the configuration says, where the weights
//! lie. The only I/O is reading files and, with the feature `hub`, downloading them.
//!
//! ```no_run
//! # fn main() -> Result<(), saccade_model::ModelError> {
//! use saccade_model::{ModelFolder, OpenOptions, Weights};
//!
//! let folder = ModelFolder::open("Qwen/Qwen3-0.6B", &OpenOptions::default())?;
//! let config = folder.config()?;
//! let tables = config.rope_tables(config.max_model_len());
//! for tensor in Weights::open(&folder, &config)?.iter() {
//!     println!("{:?} of layer {}: {} x {}", tensor.role, tensor.layer, tensor.rows, tensor.cols);
//! }
//! # assert!(!tables.cos.is_empty());
//! # Ok(())
//! # }
//! ```
//!
//! The rule of this crate: what would change a model's results is implemented or refused, never
//! ignored; and every refusal names file, field and bound. Weights are safetensors, never pickles.

mod adapter;
mod byte_size;
mod config;
mod dtype;
mod embedding;
mod error;
mod experts;
mod family;
mod folder;
mod fp8;
mod generation;
mod header;
#[cfg(feature = "hub")]
mod hub;
mod json;
mod kv_scales;
pub mod limits;
mod refused;
mod rope;
mod rope_tables;
mod scales;
mod tensors;
mod tokenizer_config;
mod weights;
mod window;

pub use adapter::{Adapter, AdapterConfig, AdapterMatrix, AdapterPair};
pub use byte_size::byte_size;
pub use config::{ModelConfig, parse_config};
pub use dtype::{Dtype, DtypeChoice, TensorDtype};
pub use embedding::{Dimensions, EmbeddingConfig};
pub use error::{ModelError, Result};
pub use experts::Experts;
pub use family::{Biases, Family};
pub use folder::{ModelFolder, OpenOptions, ProgressFn};
pub use fp8::Fp8Scales;
pub use generation::{GenerationConfig, parse_generation_config};
pub use header::{HeaderTensor, parse_safetensors_header, parse_weight_index};
pub use rope::{LongRope, RopeConfig, RopeScaling, Yarn};
pub use rope_tables::{RopeTables, inverse_frequencies};
pub use scales::ScalesRef;
pub use tensors::{ExpectedTensor, TensorRole, expected_tensors};
pub use tokenizer_config::{ChatTemplate, TokenizerConfig};
pub use weights::{TensorRef, Weights};
