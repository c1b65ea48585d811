//! The flags.

use std::num::NonZeroUsize;
use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use saccade_chunk::ModelId;
use saccade_store::{Filter, Key, StoreUrl};

/// A hundred years.
const MAX_AGE_S: u64 = 100 * 366 * 86400;
const MAX_CONCURRENCY: usize = 1024;
const MAX_WAIT_S: u64 = 86400;

/// Looks into a prefix store and tends it
#[derive(Debug, Clone, clap::Subcommand)]
pub enum Command {
    /// List what is stored, by model and salt
    List(ListArgs),
    /// Read values and check that each is the chunk that its key names, and decodes
    Verify(VerifyArgs),
    /// Remove chunks, of a model, of a salt, of an age, or all
    Evict(EvictArgs),
    /// Send prompts to a running server, so that their KV is computed and stored
    Warm(Box<WarmArgs>),
}

/// The store.
#[derive(Debug, Clone, Args)]
pub struct StoreArgs {
    /// Store, as given to saccade serve: redis://HOST:PORT/DB, rediss://, s3://BUCKET/PREFIX or
    /// file:///FOLDER. A password is better given as the environment variable
    /// SACCADE_PREFIX_STORE
    #[arg(long, value_name = "URL", env = "SACCADE_PREFIX_STORE", hide_env_values = true)]
    pub prefix_store: StoreUrl,
}

/// Which chunks.
#[derive(Debug, Clone, Default, Args)]
pub struct ChoiceArgs {
    /// Only models whose identity begins with these hexadecimal digits
    #[arg(long, value_name = "PREFIX")]
    pub model: Option<ModelPrefix>,
    /// Only this salt, as `saccade kv list` shows it; 0 is that of requests without one
    #[arg(long, value_name = "HEX", value_parser = salt)]
    pub salt: Option<u64>,
}

/// Flags of `saccade kv list`.
#[derive(Debug, Clone, Args)]
pub struct ListArgs {
    #[command(flatten)]
    pub(crate) store: StoreArgs,
    #[command(flatten)]
    pub(crate) choice: ChoiceArgs,
    /// Read up to 8 values of each model and salt, and say how they are coded
    #[arg(long)]
    pub(crate) codecs: bool,
    /// Print one JSON object
    #[arg(long)]
    pub(crate) json: bool,
}

/// Flags of `saccade kv verify`.
#[derive(Debug, Clone, Args)]
pub struct VerifyArgs {
    #[command(flatten)]
    pub(crate) store: StoreArgs,
    #[command(flatten)]
    pub(crate) choice: ChoiceArgs,
    /// Read this many chunks, drawn at random [default: all]
    #[arg(long, value_name = "N")]
    pub(crate) sample: Option<NonZeroUsize>,
    /// Remove what is wrong
    #[arg(long)]
    pub(crate) remove: bool,
    /// Print one JSON object
    #[arg(long)]
    pub(crate) json: bool,
}

/// Flags of `saccade kv evict`.
#[derive(Debug, Clone, Args)]
#[command(group = clap::ArgGroup::new("what").required(true).multiple(true))]
pub struct EvictArgs {
    #[command(flatten)]
    pub(crate) store: StoreArgs,
    /// Only models whose identity begins with these hexadecimal digits
    #[arg(long, value_name = "PREFIX", group = "what")]
    pub(crate) model: Option<ModelPrefix>,
    /// Only this salt, as `saccade kv list` shows it; 0 is that of requests without one
    #[arg(long, value_name = "HEX", value_parser = salt, group = "what")]
    pub(crate) salt: Option<u64>,
    /// Only chunks stored so long ago: a number and s, m, h or d
    #[arg(long, value_name = "AGE", value_parser = age, group = "what")]
    pub(crate) older_than: Option<Duration>,
    /// All chunks of the namespace
    #[arg(long, group = "what", conflicts_with_all = ["model", "salt", "older_than"])]
    pub(crate) all: bool,
    /// Count what would go, and remove nothing
    #[arg(long)]
    pub(crate) dry_run: bool,
    /// Print one JSON object
    #[arg(long)]
    pub(crate) json: bool,
}

/// Flags of `saccade kv warm`.
#[derive(Debug, Clone, Args)]
pub struct WarmArgs {
    /// Server to warm, with or without /v1; it runs with --prefix-store
    #[arg(long, value_name = "URL", default_value = "http://127.0.0.1:8000")]
    pub(crate) url: String,
    /// File of prompts, one a line: text, a JSON string, or a JSON object with prompt or messages,
    /// whose other fields (cache_salt, for one) are sent too; - is the standard input
    #[arg(long, value_name = "FILE", default_value = "-")]
    pub(crate) prompts: PathBuf,
    /// Model name in the requests [default: the line's, else the first that the server lists]
    #[arg(long, value_name = "NAME")]
    pub(crate) model: Option<String>,
    /// API key, sent as a bearer token
    #[arg(long, value_name = "KEY", env = "SACCADE_API_KEY", hide_env_values = true)]
    pub(crate) api_key: Option<String>,
    /// Requests in flight
    #[arg(long, value_name = "N", default_value_t = 4, value_parser = concurrency)]
    pub(crate) concurrency: usize,
    /// Longest wait for the server's stores after the last answer, seconds
    #[arg(long, value_name = "SECONDS", default_value_t = 60, value_parser = wait)]
    pub(crate) wait_s: u64,
    /// Print one JSON object
    #[arg(long)]
    pub(crate) json: bool,
}

impl ChoiceArgs {
    /// What a store can filter by itself.
    pub(crate) fn filter(&self) -> Filter {
        let model = self.model.as_ref().and_then(ModelPrefix::whole);
        Filter { model, salt: self.salt }
    }

    pub(crate) fn takes(&self, key: &Key) -> bool {
        self.salt.is_none_or(|salt| salt == key.salt)
            && self.model.as_ref().is_none_or(|model| model.takes(&key.model))
    }
}

impl EvictArgs {
    pub(crate) fn choice(&self) -> ChoiceArgs {
        ChoiceArgs { model: self.model.clone(), salt: self.salt }
    }
}

/// Digits that the identity of a model begins with.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ModelPrefix(String);

impl ModelPrefix {
    fn takes(&self, model: &ModelId) -> bool {
        model.to_string().starts_with(&self.0)
    }

    /// The model, where all its digits are given.
    fn whole(&self) -> Option<ModelId> {
        let mut bytes = [0; 32];
        if self.0.len() != 2 * bytes.len() {
            return None;
        }
        for (i, byte) in bytes.iter_mut().enumerate() {
            *byte = u8::from_str_radix(self.0.get(2 * i..2 * i + 2)?, 16).ok()?;
        }
        Some(ModelId::from_bytes(bytes))
    }
}

impl std::str::FromStr for ModelPrefix {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match is_hex(text, 64) {
            true => Ok(Self(text.to_ascii_lowercase())),
            false => Err("must be 1 to 64 hexadecimal digits".into()),
        }
    }
}

fn is_hex(text: &str, max: usize) -> bool {
    (1..=max).contains(&text.len()) && text.bytes().all(|digit| digit.is_ascii_hexdigit())
}

fn salt(text: &str) -> Result<u64, String> {
    let salt = is_hex(text, 16).then(|| u64::from_str_radix(text, 16).ok()).flatten();
    salt.ok_or_else(|| "must be 1 to 16 hexadecimal digits".into())
}

fn age(text: &str) -> Result<Duration, String> {
    let wrong = || format!("must be a number and s, m, h or d, at most {}d", MAX_AGE_S / 86400);
    let unit = match text.chars().last().ok_or_else(wrong)? {
        's' => 1,
        'm' => 60,
        'h' => 3600,
        'd' => 86400,
        _ => return Err(wrong()),
    };
    let number: u64 = text[..text.len() - 1].parse().map_err(|_| wrong())?;
    let seconds = number.checked_mul(unit).filter(|seconds| *seconds <= MAX_AGE_S);
    seconds.map(Duration::from_secs).ok_or_else(wrong)
}

fn concurrency(text: &str) -> Result<usize, String> {
    match text.parse() {
        Ok(n) if (1..=MAX_CONCURRENCY).contains(&n) => Ok(n),
        _ => Err(format!("must be within 1 .. {MAX_CONCURRENCY}")),
    }
}

fn wait(text: &str) -> Result<u64, String> {
    match text.parse() {
        Ok(seconds) if seconds <= MAX_WAIT_S => Ok(seconds),
        _ => Err(format!("must be within 0 .. {MAX_WAIT_S}")),
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;
    use saccade_chunk::Name;

    use super::*;

    #[derive(Debug, Parser)]
    struct Cli {
        #[command(subcommand)]
        command: Command,
    }

    fn parse(line: &str) -> Result<Command, String> {
        let words = ["kv"].into_iter().chain(line.split(' '));
        Cli::try_parse_from(words).map(|cli| cli.command).map_err(|e| e.to_string())
    }

    #[test]
    fn what_is_out_of_bounds_is_refused_by_name() {
        let store = "--prefix-store file:///x";
        for (line, flag) in [
            ("list", "--prefix-store"),
            ("list --prefix-store ftp://x", "--prefix-store"),
            (&format!("list {store} --model xyz"), "--model"),
            (&format!("list {store} --salt 12345678901234567"), "--salt"),
            (&format!("verify {store} --sample 0"), "--sample"),
            (&format!("evict {store}"), "--all"),
            (&format!("evict {store} --dry-run"), "--older-than"),
            (&format!("evict {store} --all --salt 0"), "--all"),
            (&format!("evict {store} --older-than 7w"), "--older-than"),
            (&format!("evict {store} --older-than 99999999999d"), "--older-than"),
            (&format!("evict {store} --older-than é"), "--older-than"),
            ("warm --concurrency 0", "--concurrency"),
            ("warm --wait-s 100000", "--wait-s"),
        ] {
            let error = parse(line).expect_err(line);
            assert!(error.contains(flag), "{line}: {error}");
        }
        let Ok(Command::Evict(args)) = parse(&format!("evict {store} --older-than 7d")) else {
            panic!("not evict")
        };
        assert_eq!(args.older_than, Some(Duration::from_secs(7 * 86400)));
    }

    #[test]
    fn a_model_is_chosen_by_its_first_digits() {
        let model = ModelId::from_bytes(std::array::from_fn(|i| 0xa0 + i as u8));
        let key = Key { model, salt: 7, name: Name::from_bytes([0; 32]) };
        let takes = |model: Option<&str>, salt| {
            let choice = ChoiceArgs { model: model.map(|m| m.parse().unwrap()), salt };
            (choice.takes(&key), choice.filter().model.is_some())
        };
        assert_eq!(takes(None, None), (true, false));
        assert_eq!(takes(Some("A0a"), Some(7)), (true, false));
        assert_eq!(takes(Some("a1"), None), (false, false));
        assert_eq!(takes(None, Some(8)), (false, false));
        let whole = model.to_string();
        assert_eq!(takes(Some(&whole), None), (true, true));
        let filter = ChoiceArgs { model: Some(whole.parse().unwrap()), salt: None }.filter();
        assert_eq!(filter.model, Some(model));
    }
}
