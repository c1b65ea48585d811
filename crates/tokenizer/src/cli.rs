//! `saccade tokenize`: text to ids and back on the command line.

use std::io::{self, Read, Write};
use std::path::PathBuf;

use crate::{LoadError, Memory, Pieces, Tokenizer};

/// How to call it.
pub const USAGE: &str = "\
usage: saccade tokenize PATH [--decode | --count | --pieces | --memory] [--special]
  reads text from the standard input and writes its token ids, separated by spaces
  PATH       tokenizer.json, or the folder of a model with one
  --decode   reads ids and writes their text
  --count    writes only the number of tokens
  --pieces   writes one line per token: id and text
  --memory   reads nothing and writes the bytes that the vocabulary's tables and each thread take
  --special  adds the tokens that the model puts around a text; with --decode, keeps them";

/// Why it failed.
#[derive(Debug, thiserror::Error)]
pub enum CliError {
    /// Wrong arguments.
    #[error("{0}\n{USAGE}")]
    Usage(String),
    /// The tokenizer cannot be used.
    #[error(transparent)]
    Load(#[from] LoadError),
    /// Reading or writing failed, or the input is no UTF-8.
    #[error(transparent)]
    Io(#[from] io::Error),
    /// A word of the input is not a number.
    #[error("{0:?} is not a token id")]
    Id(String),
    /// The vocabulary has no such token.
    #[error(
        "there is no token {id}: the vocabulary has {tokens} tokens, with ids from 0 to {last}"
    )]
    UnknownId {
        /// As in the input.
        id: u64,
        /// Tokens of the vocabulary, added ones included.
        tokens: usize,
        /// The largest id; ids below it may be unused.
        last: usize,
    },
}

/// What to write.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mode {
    /// The ids of a text.
    Ids,
    /// The text of ids.
    Decode,
    /// The number of tokens of a text.
    Count,
    /// Id and text of each token.
    Pieces,
    /// What the vocabulary takes; reads nothing.
    Memory,
}

/// What is asked for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Options {
    /// tokenizer.json, or a folder with one.
    pub path: PathBuf,
    /// What to write.
    pub mode: Mode,
    /// With the tokens that the model puts around a text.
    pub special: bool,
}

/// Runs it with the arguments after the command's name.
///
/// # Errors
/// See [`CliError`].
pub fn run(
    arguments: impl Iterator<Item = String>,
    input: impl Read,
    mut output: impl Write,
) -> Result<(), CliError> {
    let (mut path, mut mode, mut special) = (None, Mode::Ids, false);
    for argument in arguments {
        match argument.as_str() {
            "--decode" => mode = Mode::Decode,
            "--count" => mode = Mode::Count,
            "--pieces" => mode = Mode::Pieces,
            "--memory" => mode = Mode::Memory,
            "--special" => special = true,
            "--help" | "-h" => return Ok(writeln!(output, "{USAGE}")?),
            flag if flag.starts_with('-') => {
                return Err(CliError::Usage(format!("unknown flag {flag}")));
            }
            _ if path.is_some() => return Err(CliError::Usage("more than one file".into())),
            _ => path = Some(argument.into()),
        }
    }
    let path = path.ok_or_else(|| CliError::Usage("no tokenizer.json".into()))?;
    Options { path, mode, special }.run(input, output)
}

impl Options {
    /// Reads all of `input` and writes what is asked for.
    ///
    /// # Errors
    /// See [`CliError`].
    pub fn run(&self, mut input: impl Read, mut output: impl Write) -> Result<(), CliError> {
        let is_folder = self.path.is_dir();
        let file = if is_folder { self.path.join("tokenizer.json") } else { self.path.clone() };
        let tokenizer = Tokenizer::from_file(file)?;
        let mut text = String::new();
        if self.mode != Mode::Memory {
            input.read_to_string(&mut text)?;
        }
        match self.mode {
            Mode::Memory => {
                let Memory { shared, per_thread } = tokenizer.memory();
                writeln!(output, "tables {shared} bytes, per thread {per_thread} bytes")?;
            }
            Mode::Decode => {
                let ids = ids(&text, tokenizer.pieces())?;
                output.write_all(tokenizer.decode(&ids, !self.special).as_bytes())?;
            }
            Mode::Count => writeln!(output, "{}", tokenizer.encode(&text, self.special).len())?,
            Mode::Pieces => {
                for id in tokenizer.encode(&text, self.special) {
                    let piece = String::from_utf8_lossy(tokenizer.pieces().bytes(id));
                    writeln!(output, "{id}\t{piece:?}")?;
                }
            }
            Mode::Ids => {
                let ids = tokenizer.encode(&text, self.special);
                let words: Vec<String> = ids.iter().map(u32::to_string).collect();
                writeln!(output, "{}", words.join(" "))?;
            }
        }
        Ok(output.flush()?)
    }
}

/// The ids of a text; each must be a token.
fn ids(text: &str, pieces: &Pieces) -> Result<Vec<u32>, CliError> {
    let parse = |word: &str| {
        let id: u64 = word.parse().map_err(|_| CliError::Id(word.to_owned()))?;
        let known = u32::try_from(id).ok().filter(|id| pieces.is_known(*id));
        known.ok_or_else(|| CliError::UnknownId {
            id,
            tokens: pieces.num_tokens(),
            last: pieces.num_ids().saturating_sub(1),
        })
    };
    text.split_whitespace().map(parse).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const BUNDLED: &str =
        concat!(env!("CARGO_MANIFEST_DIR"), "/../../models/saccade-tiny/tokenizer.json");

    fn call(arguments: &[&str], input: &str) -> Result<String, CliError> {
        let mut output = Vec::new();
        let arguments = [&[BUNDLED], arguments].concat();
        run(arguments.iter().map(|&a| a.to_owned()), input.as_bytes(), &mut output)?;
        Ok(String::from_utf8_lossy(&output).into_owned())
    }

    #[test]
    fn ids_come_back_as_text() {
        let ids = call(&[], "Hello, wörld\n").unwrap();
        assert_eq!(call(&["--decode"], &ids).unwrap(), "Hello, wörld\n");
        let count = ids.split_whitespace().count();
        assert_eq!(call(&["--count"], "Hello, wörld\n").unwrap(), format!("{count}\n"));
        assert_eq!(call(&["--pieces"], "Hello, wörld\n").unwrap().lines().count(), count);
    }

    #[test]
    fn memory_is_told_without_input() {
        let told = call(&["--memory"], "").unwrap();
        let numbers: Vec<usize> = told.split(' ').filter_map(|word| word.parse().ok()).collect();
        assert!(matches!(numbers[..], [tables, thread] if tables > 100_000 && thread > 100_000));
    }

    #[test]
    fn mistakes_are_named() {
        assert!(matches!(call(&["--nothing"], ""), Err(CliError::Usage(_))));
        assert!(matches!(call(&["--decode"], "1 x"), Err(CliError::Id(word)) if word == "x"));
    }

    #[test]
    fn ids_that_no_token_has_are_named_with_the_size_of_the_vocabulary() {
        let tokens = Tokenizer::from_file(BUNDLED).unwrap().pieces().num_ids();
        let last = tokens - 1;
        assert!(call(&["--decode"], &last.to_string()).is_ok());
        for id in [tokens as u64, u64::from(u32::MAX), 1 << 40] {
            let error = call(&["--decode"], &format!("1 {id}")).unwrap_err().to_string();
            let size = format!("the vocabulary has {tokens} tokens, with ids from 0 to {last}");
            assert!(error.contains(&format!("no token {id}: {size}")), "{error}");
        }
    }
}
