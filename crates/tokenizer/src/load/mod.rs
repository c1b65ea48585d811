//! Model files, read and checked: everything that they say is understood, or refused by name.

mod alphabet;
mod json;
mod pipeline;
mod ranks;

pub use alphabet::{byte_to_char, char_to_byte};
pub use json::from_json;
pub use ranks::{Ranks, from_ranks};

use crate::bpe::{BuildError, Vocabulary};
use crate::offsets::Trim;
use crate::split::Pattern;

/// Why a tokenizer cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum LoadError {
    /// The file cannot be read.
    #[error("{path}: {source}")]
    Io {
        /// The file.
        path: String,
        /// What the system said.
        source: std::io::Error,
    },
    /// The file is broken.
    #[error("{field}: {reason}")]
    Broken {
        /// Where in the file.
        field: String,
        /// What is wrong there.
        reason: String,
    },
    /// The file is fine, but asks for something that this crate does not do. Use another
    /// tokenizer: nothing here is approximated.
    #[error("{field}: {what} is not supported")]
    Unsupported {
        /// Where in the file.
        field: &'static str,
        /// What it asks for.
        what: String,
    },
    /// The vocabulary is beyond the bounds of the tables.
    #[error("vocabulary: {0}")]
    Bounds(#[from] BuildError),
}

pub(crate) fn unsupported(field: &'static str, what: impl Into<String>) -> LoadError {
    const SHOWN: usize = 200;
    LoadError::Unsupported { field, what: what.into().chars().take(SHOWN).collect() }
}

pub(crate) fn broken(field: impl Into<String>, reason: impl std::fmt::Display) -> LoadError {
    LoadError::Broken { field: field.into(), reason: reason.to_string() }
}

/// When a space is put before a text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Prepend {
    /// Never.
    Never,
    /// Before every text between added tokens.
    Always,
    /// Before every text between added tokens that does not begin with one.
    IfMissing,
    /// The same, but only where the input begins.
    IfMissingAtStart,
}

/// How a text between added tokens becomes pieces.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Cut {
    /// By a known regular expression.
    Pattern {
        /// Which.
        pattern: Pattern,
        /// Space before the text.
        prepend: Prepend,
    },
    /// SentencePiece: spaces are `▁`, and part of the word that follows.
    Spaces {
        /// Space before the text.
        prepend: Prepend,
        /// Where pieces end.
        ends: Ends,
    },
}

/// Where the pieces of [`Cut::Spaces`] end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ends {
    /// Before every space.
    EverySpace,
    /// Before the first space of a run: no token of the vocabulary continues there, so that this
    /// is the same as not cutting at all.
    Words,
    /// Nowhere.
    Never,
}

/// How tokens become text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Scheme {
    /// Tokens are bytes, the text is their lossy UTF-8.
    Bytes,
    /// Tokens are text; a run of single bytes is one UTF-8 text, or one U+FFFD per byte if it is
    /// none. `strip` spaces are dropped where a text begins.
    Fallback {
        /// How many.
        strip: usize,
    },
}

/// An added token and how it takes the text around it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AddedToken {
    /// Its id.
    pub id: u32,
    /// Its text.
    pub content: String,
    /// Only where no `\w` is next to it.
    pub single_word: bool,
    /// Takes the white space before it.
    pub lstrip: bool,
    /// Takes the white space after it.
    pub rstrip: bool,
    /// Found in the normalized text, after the others.
    pub normalized: bool,
    /// Leaves no text under `skip_special`.
    pub special: bool,
}

/// A model file, understood.
pub struct Spec {
    /// Tokens and merges.
    pub vocabulary: Vocabulary,
    /// Normalization form C first.
    pub nfc: bool,
    /// Text to pieces.
    pub cut: Cut,
    /// Added tokens.
    pub added: Vec<AddedToken>,
    /// Ids before the text where special tokens are added.
    pub prefix: Vec<u32>,
    /// Ids after it.
    pub suffix: Vec<u32>,
    /// Spaces around tokens are no part of their offsets.
    pub trim: Option<Trim>,
    /// Tokens to text.
    pub scheme: Scheme,
    /// The model's own strings.
    pub strings: Vec<(u32, String)>,
}
