#![doc = include_str!("../README.md")]

mod added;
mod bpe;
mod cache;
pub mod cli;
mod decode;
mod encode;
mod load;
mod normalize;
mod offsets;
mod parallel;
mod simd;
mod spaces;
mod split;
mod tokenizer;
mod unicode;
mod unicode_ranges;

pub use cache::{CacheCounters, PromptCache};
pub use decode::{Detokenizer, Pieces};
pub use load::{LoadError, Ranks, Scheme};
pub use offsets::Placed;
pub use simd::Level;
pub use split::Pattern;
pub use tokenizer::{Memory, Options, Tokenizer};
