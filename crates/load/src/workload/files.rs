//! Prompts from files.

use std::fmt;
use std::io::{BufRead, BufReader};
use std::path::Path;

use rand::SeedableRng;
use rand::seq::SliceRandom;
use rand_pcg::Pcg64;
use serde::Deserialize;
use serde::de::{Deserializer, SeqAccess, Visitor};

use crate::LoadError;
use crate::workload::{Message, Prompt};

/// A prompt of a file, with the output length where the file has one.
#[derive(Debug, Clone)]
pub(crate) struct FilePrompt {
    pub prompt: Prompt,
    pub output_tokens: Option<u32>,
}

/// Rule of thumb for English with the usual vocabularies.
const BYTES_PER_TOKEN: usize = 4;
/// Below these a turn of ShareGPT is an accident of the recording, not a prompt (as in vLLM).
const MIN_TOKENS: u32 = 4;
/// Above these, unless a bound is given, ShareGPT's conversations are left out (as in vLLM).
const SHARE_GPT_MAX_PROMPT: u32 = 1024;
const SHARE_GPT_MAX_TOTAL: u32 = 2048;

/// Tokens of a text, by its bytes: no tokenizer is at hand.
fn estimate(text: &str) -> u32 {
    u32::try_from(text.len().div_ceil(BYTES_PER_TOKEN)).unwrap_or(u32::MAX)
}

/// Reads a ShareGPT file, conversation by conversation: of a large file only what is used stays.
pub(crate) fn share_gpt(
    path: &Path,
    max_prompt_tokens: Option<u32>,
    any_output: bool,
    seed: u64,
) -> Result<Vec<FilePrompt>, LoadError> {
    let file = std::fs::File::open(path).map_err(|e| LoadError::file(path, e))?;
    let mut reader = serde_json::Deserializer::from_reader(BufReader::new(file));
    let longest = max_prompt_tokens.unwrap_or(SHARE_GPT_MAX_PROMPT);
    let total = SHARE_GPT_MAX_TOTAL.max(longest.saturating_mul(2));
    let usable = |c: Conversation| {
        let mut turns = c.conversations.into_iter().map(|turn| turn.value);
        let (prompt, answer) = (turns.next()?, turns.next()?);
        let (input, output) = (estimate(&prompt), estimate(&answer));
        let fits = input >= MIN_TOKENS && input <= longest;
        let answered = any_output || (output >= MIN_TOKENS && input + output <= total);
        let output_tokens = (!any_output).then_some(output);
        (fits && answered).then_some(FilePrompt { prompt: Prompt::Text(prompt), output_tokens })
    };
    let prompts =
        reader.deserialize_seq(Filter { usable }).map_err(|e| LoadError::file(path, e))?;
    shuffled(path, prompts, seed)
}

/// Prompt and output lengths of a ShareGPT file, estimated from bytes, in an order that the seed
/// draws: what a load run of the file would ask, for planning without sending.
///
/// # Errors
/// [`LoadError::File`] if the file cannot be read, or has no usable conversation.
pub fn share_gpt_lengths(path: &Path, seed: u64) -> Result<Vec<(u32, u32)>, LoadError> {
    let prompts = share_gpt(path, None, false, seed)?;
    let lengths = |p: &FilePrompt| Some((prompt_tokens(&p.prompt), p.output_tokens?));
    Ok(prompts.iter().filter_map(lengths).collect())
}

#[derive(Deserialize)]
struct Conversation {
    #[serde(default)]
    conversations: Vec<Turn>,
}

#[derive(Deserialize)]
struct Turn {
    value: String,
}

struct Filter<F> {
    usable: F,
}

impl<'de, F: Fn(Conversation) -> Option<FilePrompt>> Visitor<'de> for Filter<F> {
    type Value = Vec<FilePrompt>;

    fn expecting(&self, f: &mut fmt::Formatter) -> fmt::Result {
        f.write_str("an array of conversations")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Self::Value, A::Error> {
        let mut prompts = Vec::new();
        while let Some(conversation) = seq.next_element()? {
            prompts.extend((self.usable)(conversation));
        }
        Ok(prompts)
    }
}

#[derive(Deserialize)]
struct Line {
    prompt: Option<String>,
    messages: Option<Vec<Message>>,
    context: Option<String>,
    input: Option<String>,
    output_tokens: Option<u32>,
}

impl Line {
    fn prompt(&mut self) -> Option<Prompt> {
        if let Some(messages) = self.messages.take() {
            return Some(Prompt::Messages(messages));
        }
        let context = self.context.take().filter(|text| !text.is_empty());
        let input = self.input.take().filter(|text| !text.is_empty());
        let text = self.prompt.take().or(match (context, input) {
            (Some(context), Some(input)) => Some(format!("{context}\n\n{input}")),
            (one, other) => one.or(other),
        })?;
        Some(Prompt::Text(text))
    }
}

/// Reads JSON lines: `prompt`, or `messages`, or `context` and `input` as in LongBench.
pub(crate) fn json_lines(
    path: &Path,
    max_prompt_tokens: Option<u32>,
    seed: u64,
) -> Result<Vec<FilePrompt>, LoadError> {
    let file = std::fs::File::open(path).map_err(|e| LoadError::file(path, e))?;
    let mut prompts = Vec::new();
    for (number, line) in BufReader::new(file).lines().enumerate() {
        let line = line.map_err(|e| LoadError::file(path, e))?;
        if line.trim().is_empty() {
            continue;
        }
        let at = |problem: String| LoadError::file(path, format!("line {}: {problem}", number + 1));
        let mut line: Line = serde_json::from_str(&line).map_err(|e| at(e.to_string()))?;
        let prompt = line.prompt().ok_or_else(|| {
            at("neither 'prompt' nor 'messages' nor 'context' and 'input'".into())
        })?;
        if line.output_tokens == Some(0) {
            return Err(at("output_tokens must be at least 1".into()));
        }
        let fits = max_prompt_tokens.is_none_or(|bound| prompt_tokens(&prompt) <= bound);
        prompts.extend(fits.then_some(FilePrompt { prompt, output_tokens: line.output_tokens }));
    }
    shuffled(path, prompts, seed)
}

fn prompt_tokens(prompt: &Prompt) -> u32 {
    match prompt {
        Prompt::Text(text) => estimate(text),
        Prompt::Ids(ids) => ids.len() as u32,
        Prompt::Messages(messages) => {
            messages.iter().map(|m| estimate(&m.content)).fold(0, u32::saturating_add)
        }
    }
}

fn shuffled(
    path: &Path,
    mut prompts: Vec<FilePrompt>,
    seed: u64,
) -> Result<Vec<FilePrompt>, LoadError> {
    if prompts.is_empty() {
        return Err(LoadError::file(path, "no usable prompt in it"));
    }
    prompts.shuffle(&mut Pcg64::seed_from_u64(seed));
    Ok(prompts)
}
