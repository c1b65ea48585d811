//! `POST /v1/chat/completions` and the messages that `/tokenize` shares with it.

use serde::Deserialize;
use serde::de::DeserializeSeed;
use serde_json::value::RawValue;
use serde_json::{Map, Value};

use super::fields::{Bounded, Fields, read_json, read_list};
use super::generate::{GenerateParams, SloHeaders};
use super::params::*;
use super::tools::{self, Tools};
use super::{Generating, ModelLimits, unsupported};
use crate::api_error::ApiError;
use crate::limits::*;

/// A validated chat completion request.
#[derive(Debug, Clone, PartialEq)]
pub struct ChatRequest {
    /// The model asked for; absent means the served one.
    pub model: Option<String>,
    /// The conversation and how to render it.
    pub chat: ChatInput,
    /// Sampling and stopping.
    pub params: GenerateParams,
    /// The answer starts with the last message's text.
    pub echo: bool,
    /// The answer tells what the model thought.
    pub include_reasoning: bool,
}

/// A conversation for the chat template.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct ChatInput {
    /// At least one.
    pub messages: Vec<Message>,
    /// What the model may call.
    pub tools: Tools,
    /// The template opens the assistant's turn.
    pub add_generation_prompt: bool,
    /// The last message is the beginning of the answer.
    pub continue_final_message: bool,
    /// Further variables of the template.
    pub template_kwargs: Map<String, Value>,
}

/// One message.
#[derive(Debug, Clone, PartialEq)]
pub struct Message {
    /// Template-defined: `system`, `user`, `assistant`, ...
    pub role: String,
    /// What was said.
    pub content: Content,
    /// Name of the participant.
    pub name: Option<String>,
    /// What an assistant thought before; some templates render it.
    pub reasoning_content: Option<String>,
    /// Calls of an assistant, as the template takes them: arguments that are an object are one.
    pub tool_calls: Vec<Value>,
    /// The call that this message answers.
    pub tool_call_id: Option<String>,
}

/// Content of a message.
#[derive(Debug, Clone, PartialEq)]
pub enum Content {
    /// `null` or absent.
    None,
    /// A string.
    Text(String),
    /// A list of text parts.
    Parts(Vec<String>),
}

impl Content {
    /// Bytes of the text.
    pub fn bytes(&self) -> usize {
        match self {
            Content::None => 0,
            Content::Text(text) => text.len(),
            Content::Parts(parts) => parts.iter().map(|p| p.len() + 1).sum(),
        }
    }

    /// The whole text; parts are joined by line feeds, as in vLLM.
    pub fn joined(&self) -> String {
        match self {
            Content::None => String::new(),
            Content::Text(text) => text.clone(),
            Content::Parts(parts) => parts.join("\n"),
        }
    }
}

impl Generating for ChatRequest {
    fn model(&self) -> Option<&str> {
        self.model.as_deref()
    }

    fn params_mut(&mut self) -> &mut GenerateParams {
        &mut self.params
    }
}

impl ChatRequest {
    /// Reads and checks a request.
    pub fn read(fields: &Fields, slo: SloHeaders, model: ModelLimits) -> Result<Self, ApiError> {
        unsupported::refuse_chat(fields)?;
        let mut params = GenerateParams::read(fields, slo, model, false)?;
        let older = fields.int(&MAX_TOKENS)?;
        let newer = fields.int(&MAX_COMPLETION_TOKENS)?;
        params.max_tokens = newer.or(older).map(|v| v as u32);
        params.logprobs = chat_logprobs(fields)?;
        let mut chat = ChatInput::read(fields)?;
        params.grammar = chat.tools.held_beside(params.grammar.take())?;
        Ok(Self {
            model: fields.text(&MODEL)?,
            chat,
            params: params.check()?,
            echo: fields.boolean("echo", false)?,
            include_reasoning: fields.boolean("include_reasoning", true)?,
        })
    }
}

impl ChatInput {
    /// Bytes of all contents, tools and calls.
    pub fn text_bytes(&self) -> usize {
        let calls = |m: &Message| m.tool_calls.iter().map(tools::text_bytes).sum::<usize>();
        let said = self.messages.iter().map(|m| m.content.bytes() + calls(m)).sum::<usize>();
        said + self.tools.bytes
    }

    /// Text of the last message.
    pub fn last_text(&self) -> String {
        self.messages.last().map(|m| m.content.joined()).unwrap_or_default()
    }

    /// The model that a request names, and its conversation.
    ///
    /// # Errors
    /// 400 that names the field.
    pub fn of_body(fields: &Fields) -> Result<(Option<String>, Self), ApiError> {
        Ok((fields.text(&MODEL)?, Self::read(fields)?))
    }

    /// Reads the conversation of a request.
    pub(super) fn read(fields: &Fields) -> Result<Self, ApiError> {
        let raw = fields
            .raw("messages")
            .ok_or_else(|| ApiError::invalid("messages", "`messages` is required"))?;
        let continue_final_message = fields.boolean("continue_final_message", false)?;
        let generation_default = fields.raw("add_generation_prompt").is_some();
        let add_generation_prompt = fields.boolean("add_generation_prompt", true)?;
        if continue_final_message && add_generation_prompt && generation_default {
            return Err(ApiError::invalid(
                "continue_final_message",
                "`continue_final_message` and `add_generation_prompt` cannot both be true",
            ));
        }
        let mut template_kwargs = template_kwargs(fields)?;
        if let Some(effort) = fields.text(&REASONING_EFFORT)? {
            template_kwargs.entry("reasoning_effort").or_insert(Value::String(effort));
        }
        if fields.raw("enable_thinking").is_some() {
            let enable = fields.boolean("enable_thinking", true)?;
            template_kwargs.entry("enable_thinking").or_insert(Value::Bool(enable));
        }
        Ok(Self {
            messages: read_messages(raw)?,
            tools: Tools::read(fields)?,
            add_generation_prompt: add_generation_prompt && !continue_final_message,
            continue_final_message,
            template_kwargs,
        })
    }
}

fn chat_logprobs(fields: &Fields) -> Result<Option<u32>, ApiError> {
    let wanted = fields.boolean("logprobs", false)?;
    let top = fields.int(&TOP_LOGPROBS)?;
    match (wanted, top) {
        (true, top) => Ok(Some(top.unwrap_or(0) as u32)),
        (false, None | Some(0)) => Ok(None),
        (false, Some(_)) => Err(ApiError::invalid(
            "top_logprobs",
            "when using `top_logprobs`, `logprobs` must be set to true",
        )),
    }
}

/// Keys that the template call itself owns, or that would change what is returned.
const RESERVED_KWARGS: &[&str] = &[
    "messages",
    "add_generation_prompt",
    "continue_final_message",
    "tools",
    "documents",
    "chat_template",
    "conversation",
    "tokenize",
    "padding",
    "truncation",
    "max_length",
    "return_tensors",
    "return_dict",
    "return_assistant_tokens_mask",
    "tokenizer_kwargs",
    "bos_token",
    "eos_token",
    "raise_exception",
    "strftime_now",
];

fn template_kwargs(fields: &Fields) -> Result<Map<String, Value>, ApiError> {
    let name = "chat_template_kwargs";
    let Some(raw) = fields.raw(name) else { return Ok(Map::new()) };
    if raw.len() > MAX_TEMPLATE_KWARGS_BYTES {
        return Err(ApiError::invalid(
            name,
            format!("`{name}` must have at most {MAX_TEMPLATE_KWARGS_BYTES} bytes of JSON"),
        ));
    }
    let kwargs: Map<String, Value> = read_json(name, raw)?;
    match kwargs.keys().find(|k| RESERVED_KWARGS.contains(&k.as_str())) {
        Some(key) => Err(ApiError::invalid(
            name,
            format!("`{name}`: `{key}` is set by the server and cannot be given"),
        )),
        None => Ok(kwargs),
    }
}

fn read_messages(raw: &str) -> Result<Vec<Message>, ApiError> {
    let raws: Vec<&RawValue> = read_list("messages", raw, MAX_MESSAGES)?;
    if raws.is_empty() {
        return Err(ApiError::invalid("messages", "`messages` must not be empty"));
    }
    raws.iter().enumerate().map(|(i, raw)| read_message(i, raw.get())).collect()
}

#[derive(Deserialize)]
struct RawMessage<'a> {
    role: String,
    #[serde(borrow)]
    content: Option<&'a RawValue>,
    name: Option<String>,
    reasoning_content: Option<String>,
    /// vLLM's newer name of `reasoning_content`.
    reasoning: Option<String>,
    #[serde(borrow)]
    tool_calls: Option<&'a RawValue>,
    tool_call_id: Option<String>,
    #[serde(borrow)]
    function_call: Option<&'a RawValue>,
    #[serde(borrow)]
    audio: Option<&'a RawValue>,
}

fn read_message(index: usize, raw: &str) -> Result<Message, ApiError> {
    let at = format!("messages[{index}]");
    let message: RawMessage = read_json(&at, raw)?;
    let asks = |raw: Option<&RawValue>| raw.is_some_and(|r| !matches!(r.get(), "null" | "[]"));
    for (field, value) in [("function_call", message.function_call), ("audio", message.audio)] {
        if asks(value) {
            return Err(ApiError::unsupported(&format!("{at}.{field}")));
        }
    }
    for (field, text) in [("role", Some(&message.role)), ("name", message.name.as_ref())] {
        if text.is_some_and(|t| t.is_empty() || t.len() > MAX_ROLE_BYTES) {
            let param = format!("{at}.{field}");
            let bound = format!("`{param}` must have 1 to {MAX_ROLE_BYTES} bytes");
            return Err(ApiError::invalid(param, bound));
        }
    }
    if message.tool_call_id.as_ref().is_some_and(|id| id.len() > MAX_TOOL_CALL_ID_BYTES) {
        let param = format!("{at}.tool_call_id");
        let bound = format!("`{param}` must have at most {MAX_TOOL_CALL_ID_BYTES} bytes");
        return Err(ApiError::invalid(param, bound));
    }
    Ok(Message {
        content: read_content(&at, message.content)?,
        tool_calls: tools::read_calls(&at, message.tool_calls.map(RawValue::get))?,
        role: message.role,
        name: message.name,
        reasoning_content: message.reasoning_content.or(message.reasoning),
        tool_call_id: message.tool_call_id,
    })
}

#[derive(Deserialize)]
struct RawPart {
    #[serde(rename = "type")]
    kind: Option<String>,
    text: Option<String>,
}

fn read_content(at: &str, raw: Option<&RawValue>) -> Result<Content, ApiError> {
    let param = format!("{at}.content");
    let raw = match raw.map(RawValue::get) {
        None | Some("null") => return Ok(Content::None),
        Some(raw) => raw,
    };
    if raw.starts_with('"') {
        return Ok(Content::Text(read_json(&param, raw)?));
    }
    let mut json = serde_json::Deserializer::from_str(raw);
    let parts: Vec<RawPart> = Bounded::new(MAX_CONTENT_PARTS)
        .deserialize(&mut json)
        .map_err(|e| ApiError::invalid(&param, format!("`{param}`: {e}")))?;
    let mut texts = Vec::with_capacity(parts.len());
    for (i, part) in parts.into_iter().enumerate() {
        let at = format!("{param}[{i}]");
        match (part.kind.as_deref().unwrap_or("text"), part.text) {
            ("text", Some(text)) => texts.push(text),
            ("text", None) => {
                return Err(ApiError::invalid(&at, format!("`{at}.text` is required")));
            }
            (kind, _) => {
                let message = format!(
                    "`{at}.type`: this model takes text only, got `{}`",
                    super::fields::cut(kind)
                );
                return Err(ApiError::invalid(format!("{at}.type"), message));
            }
        }
    }
    Ok(Content::Parts(texts))
}
