//! `saccade tokenize`: its flags.

use std::path::PathBuf;

use clap::Args;
use saccade_tokenizer::cli::{Mode, Options};

/// Flags of `saccade tokenize`.
#[derive(Debug, Clone, Args)]
pub(crate) struct TokenizeArgs {
    /// tokenizer.json, or the folder of a model with one
    #[arg(value_name = "PATH")]
    pub path: PathBuf,
    /// Read ids and write their text
    #[arg(long, group = "mode")]
    pub decode: bool,
    /// Write only the number of tokens
    #[arg(long, group = "mode")]
    pub count: bool,
    /// Write one line for each token: id and text
    #[arg(long, group = "mode")]
    pub pieces: bool,
    /// Read nothing; write the bytes that the vocabulary's tables and each thread take
    #[arg(long, group = "mode")]
    pub memory: bool,
    /// Add the tokens that the model puts around a text; with --decode, keep them
    #[arg(long)]
    pub special: bool,
}

impl TokenizeArgs {
    /// As the tokenizer's own command line has them.
    pub fn options(&self) -> Options {
        let mode = match (self.decode, self.count, self.pieces, self.memory) {
            (true, ..) => Mode::Decode,
            (_, true, ..) => Mode::Count,
            (_, _, true, _) => Mode::Pieces,
            (.., true) => Mode::Memory,
            _ => Mode::Ids,
        };
        Options { path: self.path.clone(), mode, special: self.special }
    }
}
