//! What requests ask: lengths and prompts, generated or from files.

mod files;
mod generate;
mod lengths;
mod trace;
mod words;

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use crate::LoadError;
pub use files::share_gpt_lengths;
pub(crate) use generate::Requests;
pub use lengths::Lengths;
pub use trace::{Trace, TraceEntry};

/// One request, as a workload yields it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Request {
    /// What is asked.
    pub prompt: Prompt,
    /// Most output tokens.
    pub max_tokens: u32,
    /// Exactly `max_tokens` (`ignore_eos` and `min_tokens`, where the server knows them).
    pub exact: bool,
}

/// A prompt in one of the forms of the two APIs.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Prompt {
    /// Text. Over the chat API: one message of the user.
    Text(String),
    /// Token ids; completions API only.
    Ids(Vec<u32>),
    /// Messages; over the completions API their contents, one below the other.
    Messages(Vec<Message>),
}

/// One message of a chat.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Message {
    /// `system`, `user` or `assistant`.
    pub role: String,
    /// Its text.
    pub content: String,
}

/// The form of prompts that are generated.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum PromptForm {
    /// Common English words, about one token each with the usual vocabularies. What they really
    /// came to is in [`RequestRecord::prompt_tokens`](crate::RequestRecord::prompt_tokens).
    Text,
    /// Token ids in `0..vocab`: exact lengths, no tokenizer.
    Ids {
        /// Ids are drawn below this.
        vocab: u32,
    },
}

/// Tokens that several prompts begin with.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct SharedPrefix {
    /// Length of the prefix, before the tokens of the prompt itself.
    pub tokens: u32,
    /// Share of the requests that have it, 0 to 1.
    pub share: f64,
    /// Different prefixes, taken evenly at random.
    pub groups: u32,
}

/// Where requests come from.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "source", rename_all = "snake_case")]
pub enum Source {
    /// Prompts and lengths drawn at random.
    Generated {
        /// Prompt tokens.
        input: Lengths,
        /// Output tokens.
        output: Lengths,
        /// Tokens in common.
        prefix: Option<SharedPrefix>,
    },
    /// A ShareGPT file: a JSON array of conversations. The first turn is the prompt; the second
    /// gives the output length, unless `output` does.
    ShareGpt {
        /// The file.
        path: PathBuf,
        /// Output tokens in place of the recorded ones.
        output: Option<Lengths>,
    },
    /// JSON lines with `prompt`, or with `context` and `input` as in LongBench; the output length
    /// is `output_tokens` of the line, else from `output`.
    JsonLines {
        /// The file.
        path: PathBuf,
        /// Output tokens where a line does not say.
        output: Lengths,
    },
    /// Lengths and shared blocks of a recorded trace, with generated prompts.
    Trace {
        /// One entry per request, in order.
        entries: Vec<TraceEntry>,
    },
    /// These, in order, again and again.
    List {
        /// At least one.
        requests: Vec<Request>,
    },
}

/// What requests ask.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Workload {
    /// Where they come from.
    #[serde(flatten)]
    pub source: Source,
    /// The form of generated prompts.
    pub form: PromptForm,
    /// Ask for exactly the output length.
    pub exact: bool,
    /// Prompts of files longer than this many tokens are left out, at four bytes a token.
    pub max_prompt_tokens: Option<u32>,
}

impl Workload {
    /// Generated text prompts of these lengths, exact outputs.
    pub fn generated(input: Lengths, output: Lengths) -> Workload {
        Workload::of(Source::Generated { input, output, prefix: None })
    }

    /// All requests alike in length: `input_tokens` in, exactly `output_tokens` out.
    pub fn fixed(input_tokens: u32, output_tokens: u32) -> Workload {
        Workload::generated(
            Lengths::Fixed { tokens: input_tokens },
            Lengths::Fixed { tokens: output_tokens },
        )
    }

    /// From this source: text prompts, exact outputs.
    pub fn of(source: Source) -> Workload {
        Workload { source, form: PromptForm::Text, exact: true, max_prompt_tokens: None }
    }

    /// With generated prompts as token ids below `vocab`.
    pub fn with_ids(mut self, vocab: u32) -> Workload {
        self.form = PromptForm::Ids { vocab };
        self
    }

    /// Opens the source: reads a file, once.
    ///
    /// # Errors
    /// [`LoadError::File`] when it cannot be read or holds no usable prompt.
    pub(crate) fn open(&self, seed: u64) -> Result<Requests, LoadError> {
        Requests::open(self, seed)
    }

    pub(crate) fn validate(&self) -> Result<(), LoadError> {
        if let PromptForm::Ids { vocab: 0 } = self.form {
            return Err(LoadError::spec("vocab", "must be at least 1"));
        }
        match &self.source {
            Source::Generated { input, output, prefix } => {
                input.validate("input length")?;
                output.validate("output length")?;
                prefix.as_ref().map_or(Ok(()), SharedPrefix::validate)
            }
            Source::ShareGpt { output, .. } => {
                output.as_ref().map_or(Ok(()), |o| o.validate("output length"))
            }
            Source::JsonLines { output, .. } => output.validate("output length"),
            Source::Trace { entries } if entries.is_empty() => {
                Err(LoadError::spec("trace", "must not be empty"))
            }
            Source::List { requests } if requests.is_empty() => {
                Err(LoadError::spec("requests", "the list must not be empty"))
            }
            Source::Trace { .. } | Source::List { .. } => Ok(()),
        }
    }
}

impl SharedPrefix {
    fn validate(&self) -> Result<(), LoadError> {
        if !(0.0..=1.0).contains(&self.share) {
            return Err(LoadError::spec("prefix share", "must lie in 0..=1"));
        }
        if self.tokens == 0 || self.tokens > lengths::MAX_TOKENS {
            let bound = lengths::MAX_TOKENS;
            return Err(LoadError::spec("prefix length", format!("must lie in 1..={bound}")));
        }
        if self.groups == 0 {
            return Err(LoadError::spec("prefix groups", "must be at least 1"));
        }
        Ok(())
    }
}
