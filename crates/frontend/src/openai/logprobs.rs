//! Logprobs in the formats of chat and of completions.

use std::sync::Arc;

use serde::ser::{Serialize, SerializeMap, Serializer};

use crate::serving::TokenLogprobs;
use crate::text::vocab::Vocab;

/// JSON has no minus infinity; vLLM's floor.
const MIN_LOGPROB: f32 = -9999.0;

fn finite(logprob: f32) -> f32 {
    if logprob.is_nan() { MIN_LOGPROB } else { logprob.max(MIN_LOGPROB) }
}

/// How tokens are named in logprobs: by their text, or as `token_id:N`, which distinguishes tokens
/// with the same text (`return_tokens_as_token_ids`).
pub struct TokenNames {
    vocab: Arc<Vocab>,
    as_ids: bool,
}

impl TokenNames {
    /// Names from `vocab`.
    pub fn new(vocab: Arc<Vocab>, as_ids: bool) -> Self {
        Self { vocab, as_ids }
    }

    fn name(&self, id: u32) -> String {
        if self.as_ids { format!("token_id:{id}") } else { self.vocab.piece_text(id) }
    }

    /// Length of the token's text in characters.
    fn chars(&self, id: u32) -> usize {
        self.vocab.piece_text(id).chars().count()
    }
}

/// `logprobs` of a chat choice.
#[derive(Debug, Default, serde::Serialize)]
pub struct ChatLogprobs {
    content: Vec<ChatToken>,
    refusal: Option<()>,
}

/// A token of an answer, and what could have been in its place.
#[derive(Debug, serde::Serialize)]
pub struct ChatToken {
    #[serde(flatten)]
    token: ChatAlternative,
    top_logprobs: Vec<ChatAlternative>,
}

#[derive(Debug, serde::Serialize)]
struct ChatAlternative {
    token: String,
    logprob: f32,
    bytes: Vec<u8>,
}

impl ChatToken {
    /// A token by its names, with its best `num_top` alternatives.
    pub fn of(names: &TokenNames, token: &TokenLogprobs, num_top: usize) -> Self {
        let alternative = |id: u32, logprob: f32| ChatAlternative {
            token: names.name(id),
            logprob: finite(logprob),
            bytes: names.vocab.piece(id).to_vec(),
        };
        Self {
            token: alternative(token.id, token.logprob.unwrap_or(MIN_LOGPROB)),
            top_logprobs: token.best(num_top).map(|(id, lp)| alternative(id, lp)).collect(),
        }
    }
}

impl ChatLogprobs {
    /// Adds tokens.
    pub fn extend(&mut self, names: &TokenNames, tokens: &[TokenLogprobs], num_top: usize) {
        self.content.extend(tokens.iter().map(|token| ChatToken::of(names, token, num_top)));
    }
}

/// `logprobs` of a completions choice.
#[derive(Debug, Default, serde::Serialize)]
pub struct CompletionLogprobs {
    text_offset: Vec<usize>,
    token_logprobs: Vec<Option<f32>>,
    tokens: Vec<String>,
    top_logprobs: Vec<Option<TopLogprobs>>,
}

impl CompletionLogprobs {
    /// Adds tokens with their best `num_top` alternatives; `offset` counts characters from the
    /// start of the choice's text, and moves on.
    pub fn extend(
        &mut self,
        names: &TokenNames,
        tokens: &[TokenLogprobs],
        num_top: usize,
        offset: &mut usize,
    ) {
        for token in tokens {
            self.text_offset.push(*offset);
            *offset += names.chars(token.id);
            self.token_logprobs.push(token.logprob.map(finite));
            let top = |own| TopLogprobs::of(names, token, num_top, own);
            self.top_logprobs.push(token.logprob.map(top));
            self.tokens.push(names.name(token.id));
        }
    }

    /// Adds what another delta said, offsets unchanged.
    pub fn append(&mut self, mut other: Self) {
        self.text_offset.append(&mut other.text_offset);
        self.token_logprobs.append(&mut other.token_logprobs);
        self.tokens.append(&mut other.tokens);
        self.top_logprobs.append(&mut other.top_logprobs);
    }
}

/// Alternatives by text, best first, and the token itself if it is none of them. Of several tokens
/// with the same text only the best is kept.
#[derive(Debug)]
struct TopLogprobs(Vec<(String, f32)>);

impl TopLogprobs {
    fn of(names: &TokenNames, token: &TokenLogprobs, num_top: usize, own: f32) -> Self {
        let mut all: Vec<(String, f32)> = Vec::with_capacity(token.top.len() + 1);
        for (id, logprob) in token.best(num_top).chain([(token.id, own)]) {
            let text = names.name(id);
            if !all.iter().any(|(known, _)| *known == text) {
                all.push((text, finite(logprob)));
            }
        }
        Self(all)
    }
}

impl Serialize for TopLogprobs {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(Some(self.0.len()))?;
        for (text, logprob) in &self.0 {
            map.serialize_entry(text, logprob)?;
        }
        map.end()
    }
}

/// `prompt_logprobs` of vLLM: of each token of the prompt itself and its alternatives, by id; of
/// the first, which nothing precedes, null. Kept as numbers: a prompt may be long.
pub struct PromptLogprobs {
    vocab: Arc<Vocab>,
    /// All but the first.
    tokens: Vec<TokenLogprobs>,
    num_top: usize,
}

/// The token of the prompt first, then its alternatives, best first.
struct ById<'a> {
    vocab: &'a Vocab,
    token: &'a TokenLogprobs,
    num_top: usize,
}

#[derive(serde::Serialize)]
struct IdLogprob {
    logprob: f32,
    /// From 1. Not known of a token of the prompt that is none of its alternatives.
    rank: Option<usize>,
    decoded_token: String,
}

impl PromptLogprobs {
    /// Of the tokens behind the first, with their best `num_top` alternatives.
    pub fn of(names: &TokenNames, tokens: Vec<TokenLogprobs>, num_top: usize) -> Self {
        Self { vocab: names.vocab.clone(), tokens, num_top }
    }
}

impl Serialize for PromptLogprobs {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let (vocab, num_top) = (&*self.vocab, self.num_top);
        let of_token = |token| Some(ById { vocab, token, num_top });
        serializer.collect_seq(std::iter::once(None).chain(self.tokens.iter().map(of_token)))
    }
}

impl Serialize for ById<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let token = self.token;
        let entry = |id, logprob, rank| {
            let decoded_token = self.vocab.piece_text(id);
            (id.to_string(), IdLogprob { logprob: finite(logprob), rank, decoded_token })
        };
        let rank = token.top.iter().position(|&(id, _)| id == token.id).map(|place| place + 1);
        let own = entry(token.id, token.logprob.unwrap_or(MIN_LOGPROB), rank);
        let ranked = token.best(self.num_top).zip(1..).filter(|((id, _), _)| *id != token.id);
        let others = ranked.map(|((id, logprob), rank)| entry(id, logprob, Some(rank)));
        serializer.collect_map(std::iter::once(own).chain(others))
    }
}
