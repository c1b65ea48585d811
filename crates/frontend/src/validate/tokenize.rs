//! `POST /tokenize` and `POST /detokenize`, in vLLM's shapes.

use super::ModelLimits;
use super::chat::ChatInput;
use super::fields::Fields;
use super::generate::out_of_vocab;
use super::params::MODEL;
use crate::api_error::ApiError;
use crate::limits::MAX_PROMPT_IDS;

/// A validated `/tokenize` request.
#[derive(Debug, Clone, PartialEq)]
pub struct TokenizeRequest {
    /// The model asked for; absent means the served one.
    pub model: Option<String>,
    /// What to tokenize.
    pub input: TokenizeInput,
    /// Whether the tokenizer adds its special tokens.
    pub add_special_tokens: bool,
    /// Answer with the tokens' own strings too.
    pub return_token_strs: bool,
}

/// Text, or a conversation to be rendered first.
#[derive(Debug, Clone, PartialEq)]
pub enum TokenizeInput {
    /// `prompt`
    Text(String),
    /// `messages`
    Chat(ChatInput),
}

/// A validated `/detokenize` request.
#[derive(Debug, Clone, PartialEq)]
pub struct DetokenizeRequest {
    /// The model asked for; absent means the served one.
    pub model: Option<String>,
    /// Ids below the vocabulary size.
    pub tokens: Vec<u32>,
}

impl TokenizeRequest {
    /// Reads and checks a request.
    pub fn read(fields: &Fields) -> Result<Self, ApiError> {
        let is_chat = fields.raw("messages").is_some();
        let input = match fields.raw("prompt") {
            Some(_) if is_chat => {
                return Err(ApiError::invalid(
                    "prompt",
                    "`prompt` and `messages` cannot both be given",
                ));
            }
            Some(raw) => TokenizeInput::Text(super::fields::read_json("prompt", raw)?),
            None if is_chat => TokenizeInput::Chat(ChatInput::read(fields)?),
            None => return Err(ApiError::invalid("prompt", "`prompt` or `messages` is required")),
        };
        if fields.raw("chat_template").is_some() {
            return Err(ApiError::unsupported("chat_template"));
        }
        Ok(Self {
            model: fields.text(&MODEL)?,
            input,
            add_special_tokens: fields.boolean("add_special_tokens", !is_chat)?,
            return_token_strs: fields.boolean("return_token_strs", false)?,
        })
    }
}

impl DetokenizeRequest {
    /// Reads and checks a request.
    pub fn read(fields: &Fields, model: ModelLimits) -> Result<Self, ApiError> {
        let tokens: Vec<u32> = fields
            .list("tokens", MAX_PROMPT_IDS)?
            .ok_or_else(|| ApiError::invalid("tokens", "`tokens` is required"))?;
        match tokens.iter().find(|&&id| id >= model.vocab_size) {
            Some(id) => Err(out_of_vocab("tokens", *id, model)),
            None => Ok(Self { model: fields.text(&MODEL)?, tokens }),
        }
    }
}
