//! `saccade tokenize`: text to ids and back on the command line.

use std::io::{self, Read, Write};

use crate::{LoadError, Tokenizer};

/// How to call it.
pub const USAGE: &str = "\
usage: saccade tokenize TOKENIZER.JSON [--decode | --count | --pieces] [--special]
  reads text from the standard input and writes its token ids, separated by spaces
  --decode   reads ids and writes their text
  --count    writes the number of tokens only
  --pieces   writes one line per token: id and text
  --special  with the tokens that the model puts around a text";

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
    /// A word of the input is no id.
    #[error("{0:?} is no token id")]
    Id(String),
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Mode {
    Ids,
    Decode,
    Count,
    Pieces,
}

/// Runs it with the arguments after the command's name.
///
/// # Errors
/// See [`CliError`].
pub fn run(
    arguments: impl Iterator<Item = String>,
    mut input: impl Read,
    mut output: impl Write,
) -> Result<(), CliError> {
    let (mut path, mut mode, mut special) = (None, Mode::Ids, false);
    for argument in arguments {
        match argument.as_str() {
            "--decode" => mode = Mode::Decode,
            "--count" => mode = Mode::Count,
            "--pieces" => mode = Mode::Pieces,
            "--special" => special = true,
            "--help" | "-h" => return Ok(writeln!(output, "{USAGE}")?),
            flag if flag.starts_with('-') => {
                return Err(CliError::Usage(format!("unknown flag {flag}")));
            }
            _ if path.is_some() => return Err(CliError::Usage("more than one file".into())),
            _ => path = Some(argument),
        }
    }
    let path = path.ok_or_else(|| CliError::Usage("no tokenizer.json".into()))?;
    let tokenizer = Tokenizer::from_file(path)?;
    let mut text = String::new();
    input.read_to_string(&mut text)?;
    if mode == Mode::Decode {
        let parse = |word: &str| word.parse::<u32>().map_err(|_| CliError::Id(word.to_owned()));
        let ids: Vec<u32> = text.split_whitespace().map(parse).collect::<Result<_, _>>()?;
        return Ok(output.write_all(tokenizer.decode(&ids, !special).as_bytes())?);
    }
    let ids = tokenizer.encode(&text, special);
    match mode {
        Mode::Count => writeln!(output, "{}", ids.len())?,
        Mode::Pieces => {
            for &id in &ids {
                let piece = String::from_utf8_lossy(tokenizer.pieces().bytes(id));
                writeln!(output, "{id}\t{piece:?}")?;
            }
        }
        Mode::Ids | Mode::Decode => {
            let words: Vec<String> = ids.iter().map(u32::to_string).collect();
            writeln!(output, "{}", words.join(" "))?;
        }
    }
    Ok(())
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
    fn mistakes_are_named() {
        assert!(matches!(call(&["--nothing"], ""), Err(CliError::Usage(_))));
        assert!(matches!(call(&["--decode"], "1 x"), Err(CliError::Id(word)) if word == "x"));
    }
}
