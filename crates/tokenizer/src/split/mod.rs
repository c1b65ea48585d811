//! Cutting a text into pieces: the regular expressions of the known tokenizers, each written out
//! as a scanner that decides by the class of a character. A piece never spans two calls.

mod cased;
mod common;
mod gpt2;
mod words;

use crate::simd::Isa;
pub use cased::Cased;
pub use gpt2::Gpt2;
pub use words::Words;

/// A scanner for one regular expression.
pub trait Splitter: Copy {
    /// End of the piece that begins at `pos < text.len()`; beyond `pos`, at most `text.len()`.
    ///
    /// # Safety
    /// The machine must have the instruction set `S`; `text` must be UTF-8 and `pos` a boundary
    /// of its characters.
    unsafe fn piece_end<S: Isa>(self, text: &[u8], pos: usize) -> usize;
}

/// A regular expression that has a scanner.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Pattern {
    /// GPT-2, and `ByteLevel` with its own expression.
    Gpt2,
    /// cl100k, Llama 3 and Phi-4: numbers in groups of at most 3.
    Cl100k,
    /// cl100k as newer releases of tiktoken write it: white space at the end stays whole.
    Cl100kPossessive,
    /// Qwen 2 to 3: one digit at a time.
    Qwen2,
    /// o200k.
    O200k,
    /// Mistral's tekken.
    Tekken,
}

const CONTRACTIONS: &str = "(?i:'s|'t|'re|'ve|'m|'ll|'d)";

impl Pattern {
    /// The pattern that `regex` is, letter for letter.
    pub fn from_regex(regex: &str) -> Option<Self> {
        Self::ALL.iter().copied().find(|p| p.spellings().iter().any(|s| s == regex))
    }

    /// All patterns.
    pub const ALL: [Self; 6] =
        [Self::Gpt2, Self::Cl100k, Self::Cl100kPossessive, Self::Qwen2, Self::O200k, Self::Tekken];

    /// The regular expressions that mean this pattern; the first is the usual one.
    pub fn spellings(self) -> Vec<String> {
        let end = r"\s*[\r\n]+|\s+(?!\S)|\s+";
        let words = |number: &str| {
            format!(
                r"{CONTRACTIONS}|[^\r\n\p{{L}}\p{{N}}]?\p{{L}}+|{number}| ?[^\s\p{{L}}\p{{N}}]+[\r\n]*|{end}"
            )
        };
        let prefix = r"[^\r\n\p{L}\p{N}]?";
        let upper = r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]";
        let lower = r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]";
        let cased = |suffix: &str, number: &str| {
            format!(
                r"{prefix}{upper}*{lower}+{suffix}|{prefix}{upper}+{lower}*{suffix}|{number}| ?[^\s\p{{L}}\p{{N}}]+[\r\n/]*|{end}"
            )
        };
        match self {
            Self::Gpt2 => vec![
                r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+".into(),
                r"'(?:[sdmt]|ll|ve|re)| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+".into(),
            ],
            Self::Cl100k => vec![words(r"\p{N}{1,3}")],
            Self::Cl100kPossessive => vec![
                r"'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}++|\p{N}{1,3}+| ?[^\s\p{L}\p{N}]++[\r\n]*+|\s++$|\s*[\r\n]|\s+(?!\S)|\s".into(),
            ],
            Self::Qwen2 => vec![words(r"\p{N}")],
            Self::O200k => vec![cased(&format!("{CONTRACTIONS}?"), r"\p{N}{1,3}")],
            Self::Tekken => vec![cased("", r"\p{N}")],
        }
    }
}
