//! A request of the Responses API as a chat request.

use serde_json::{Map, Value, json};

use super::echo::Echo;
use super::items::{Conversation, unsupported};
use super::names::theirs_of;
use crate::api_error::ApiError;
use crate::limits::MAX_TOOLS;
use crate::validate::params::TOP_LOGPROBS;
use crate::validate::unsupported::refuse_responses;
use crate::validate::{
    ChatFields, ChatRequest, Fields, GenerateParams, Generating, ModelLimits, SloHeaders, cut,
    read_json, read_list,
};

/// Fields of chats that mean the same here, besides those of every API.
const SAME: &[&str] = &[
    "model",
    "temperature",
    "top_p",
    "top_k",
    "parallel_tool_calls",
    "presence_penalty",
    "frequency_penalty",
    "stop",
    "include_stop_str_in_output",
    "skip_special_tokens",
    "add_special_tokens",
    "truncate_prompt_tokens",
    "include_reasoning",
    "enable_thinking",
];

/// Fields of chats that have other names here.
const RENAMED: &[(&str, &str)] = &[
    ("messages", "input"),
    ("max_tokens", "max_output_tokens"),
    ("max_completion_tokens", "max_output_tokens"),
    ("response_format", "text.format"),
    ("verbosity", "text.verbosity"),
    ("reasoning_effort", "reasoning.effort"),
    ("logprobs", "include"),
];

/// Fields that would need answers to be kept, and what to do instead.
const STORED: &[(&str, &str)] = &[
    ("store", "must be false: this server keeps no answers"),
    ("background", "must be false: this server keeps no answers; use `stream`"),
    ("previous_response_id", "is not supported: this server keeps no answers; send all of `input`"),
    ("conversation", "is not supported: this server keeps no conversations; send all of `input`"),
];

/// Asks for the logprobs of what is said.
const LOGPROBS: &str = "message.output_text.logprobs";
/// Asks for what a client without a store sends back. Here that is the reasoning itself.
const ENCRYPTED: &str = "reasoning.encrypted_content";

/// A validated request.
#[derive(Debug)]
pub struct ResponsesRequest {
    /// What the model is asked.
    pub chat: ChatRequest,
    /// What the answer repeats.
    pub echo: Echo,
}

impl Generating for ResponsesRequest {
    fn model(&self) -> Option<&str> {
        self.chat.model.as_deref()
    }

    fn params_mut(&mut self) -> &mut GenerateParams {
        &mut self.chat.params
    }
}

/// Reads `POST /v1/responses`.
///
/// # Errors
/// 400 that names the field.
pub fn read_responses(
    fields: &Fields,
    slo: SloHeaders,
    model: ModelLimits,
) -> Result<ResponsesRequest, ApiError> {
    refuse_stored(fields)?;
    refuse_renamed(fields)?;
    refuse_responses(fields)?;
    let mut chat = ChatFields::default();
    chat.copy_same(fields, SAME)?;
    chat.copy_shared(fields)?;
    let mut echo = Echo::read(fields)?;
    if let Some(max) = echo.max_output_tokens {
        chat.set("max_tokens", max);
    }
    chat.set("stream", stream(fields)?);
    logprobs(fields, &mut chat, &mut echo)?;
    text(fields, &mut chat, &mut echo)?;
    reasoning(fields, &mut chat, &mut echo)?;
    tools(fields, &mut chat, &mut echo)?;
    tool_choice(fields, &mut chat, &mut echo)?;
    let instructions = fields.raw("instructions").map(|raw| read_json("instructions", raw));
    echo.instructions = instructions.transpose()?;
    let input =
        fields.raw("input").ok_or_else(|| ApiError::invalid("input", "`input` is required"))?;
    let Conversation { messages, origins, .. } =
        Conversation::read(echo.instructions.as_deref(), input)?;
    chat.set("messages", messages);
    let chat = chat.read(slo, model).map_err(|error| theirs_of(error, &origins))?;
    Ok(ResponsesRequest { chat, echo })
}

fn refuse_stored(fields: &Fields) -> Result<(), ApiError> {
    for (name, why) in STORED {
        if fields.raw(name).is_some_and(|raw| raw != "false") {
            let message = format!("`{name}` {why}");
            return Err(ApiError { message, ..ApiError::unsupported(name) });
        }
    }
    Ok(())
}

/// A field of a chat that was left out silently would answer another request.
fn refuse_renamed(fields: &Fields) -> Result<(), ApiError> {
    let Some((name, here)) = RENAMED.iter().find(|(name, _)| fields.raw(name).is_some()) else {
        return Ok(());
    };
    let message = format!("`{name}` is a field of /v1/chat/completions; here it is `{here}`");
    Err(ApiError { message, ..ApiError::unsupported(name) })
}

fn object<'a>(name: &str, raw: &'a str) -> Result<Fields<'a>, ApiError> {
    Fields::parse(raw.as_bytes()).map_err(|_| ApiError::must_be(name, "an object"))
}

/// Refuses what no reader asked for: fields of an object do not change what is answered silently.
fn refuse_others(name: &str, object: &Fields) -> Result<(), ApiError> {
    let other = object.unknown().find(|field| object.raw(field).is_some());
    other.map_or(Ok(()), |field| Err(ApiError::unsupported(&format!("{name}.{}", cut(field)))))
}

fn stream(fields: &Fields) -> Result<bool, ApiError> {
    let stream = fields.boolean("stream", false)?;
    if let Some(raw) = fields.raw("stream_options") {
        let options = object("stream_options", raw)?;
        if options.boolean("include_obfuscation", false)? {
            return Err(ApiError::unsupported("stream_options.include_obfuscation"));
        }
        refuse_others("stream_options", &options)?;
    }
    Ok(stream)
}

fn logprobs(fields: &Fields, chat: &mut ChatFields, echo: &mut Echo) -> Result<(), ApiError> {
    let include: Vec<String> = fields.list("include", 16)?.unwrap_or_default();
    let is_known = |name: &str| [LOGPROBS, ENCRYPTED].contains(&name);
    if let Some((index, name)) = include.iter().enumerate().find(|(_, name)| !is_known(name)) {
        let known = format!("{LOGPROBS} and {ENCRYPTED}");
        return Err(unsupported(&format!("include[{index}]"), &known, name));
    }
    let wanted = include.iter().any(|name| name == LOGPROBS);
    echo.top_logprobs = fields.int(&TOP_LOGPROBS)?.unwrap_or(0);
    if echo.top_logprobs > 0 && !wanted {
        let message = format!("when using `top_logprobs`, `include` must have \"{LOGPROBS}\"");
        return Err(ApiError::invalid(TOP_LOGPROBS.name, message));
    }
    if wanted {
        chat.set("logprobs", true);
        chat.set(TOP_LOGPROBS.name, echo.top_logprobs);
    }
    Ok(())
}

fn text(fields: &Fields, chat: &mut ChatFields, echo: &mut Echo) -> Result<(), ApiError> {
    let Some(raw) = fields.raw("text") else { return Ok(()) };
    let text = object("text", raw)?;
    chat.copy(&text, "verbosity", "verbosity")?;
    if let Some(raw) = text.raw("format") {
        let format: Value = read_json("text.format", raw)?;
        chat.set("response_format", response_format(&format)?);
        echo.text["format"] = format;
    }
    refuse_others("text", &text)
}

/// The same as the chat has it: what a schema is called is one level further down there.
fn response_format(format: &Value) -> Result<Value, ApiError> {
    if !format.is_object() {
        return Err(ApiError::must_be("text.format", "an object"));
    }
    if format["type"] != "json_schema" {
        return Ok(format.clone());
    }
    Ok(json!({"type": "json_schema", "json_schema": format}))
}

fn reasoning(fields: &Fields, chat: &mut ChatFields, echo: &mut Echo) -> Result<(), ApiError> {
    let Some(raw) = fields.raw("reasoning") else { return Ok(()) };
    let reasoning = object("reasoning", raw)?;
    chat.copy(&reasoning, "effort", "reasoning_effort")?;
    echo.reasoning["effort"] = reasoning
        .raw("effort")
        .map_or(Ok(Value::Null), |raw| read_json("reasoning.effort", raw))?;
    for name in ["summary", "generate_summary"] {
        // "auto" takes what a model has, and none is what it has here.
        if reasoning.raw(name).is_some_and(|raw| raw != "\"auto\"") {
            let param = format!("reasoning.{name}");
            let message = format!(
                "`{param}` must be \"auto\": this server writes no summaries, and answers with the \
                 reasoning itself"
            );
            return Err(ApiError { message, ..ApiError::unsupported(&param) });
        }
    }
    refuse_others("reasoning", &reasoning)
}

fn tools(fields: &Fields, chat: &mut ChatFields, echo: &mut Echo) -> Result<(), ApiError> {
    let Some(raw) = fields.raw("tools") else { return Ok(()) };
    let list: Vec<Value> = read_list("tools", raw, MAX_TOOLS)?;
    let function = |(index, tool)| function(&format!("tools[{index}]"), tool);
    let functions: Result<Vec<Value>, ApiError> = list.iter().enumerate().map(function).collect();
    chat.set("tools", functions?);
    echo.tools = list.into_iter().map(with_defaults).collect();
    Ok(())
}

const OF_FUNCTION: [&str; 4] = ["name", "description", "parameters", "strict"];

/// A tool as the chat has it.
fn function(at: &str, tool: &Value) -> Result<Value, ApiError> {
    let Value::Object(tool) = tool else { return Err(ApiError::must_be(at, "an object")) };
    let param = format!("{at}.type");
    match tool.get("type") {
        Some(Value::String(kind)) if kind == "function" => {}
        Some(Value::String(kind)) => return Err(unsupported(&param, "function", kind)),
        _ => return Err(ApiError::must_be(&param, "\"function\"")),
    }
    let mut function = Map::new();
    for (name, value) in tool.iter().filter(|(name, _)| *name != "type") {
        if OF_FUNCTION.contains(&name.as_str()) {
            function.insert(name.clone(), value.clone());
        } else if name == "function" {
            let param = format!("{at}.function");
            let message = format!("`{param}`: what it has are fields of the tool itself here");
            return Err(ApiError { message, ..ApiError::unsupported(&param) });
        } else if !value.is_null() && *value != false {
            return Err(ApiError::unsupported(&format!("{at}.{}", cut(name))));
        }
    }
    Ok(json!({"type": "function", "function": function}))
}

/// A tool as an answer has it.
fn with_defaults(mut tool: Value) -> Value {
    if let Value::Object(tool) = &mut tool {
        tool.entry("strict").or_insert(false.into());
        tool.entry("parameters").or_insert(Value::Null);
    }
    tool
}

fn tool_choice(fields: &Fields, chat: &mut ChatFields, echo: &mut Echo) -> Result<(), ApiError> {
    let Some(raw) = fields.raw("tool_choice") else { return Ok(()) };
    let choice: Value = read_json("tool_choice", raw)?;
    let ours = match &choice {
        Value::String(word) if ["auto", "none", "required"].contains(&word.as_str()) => {
            choice.clone()
        }
        Value::Object(object) => match object.get("type").and_then(Value::as_str) {
            Some("function") => {
                let name = object.get("name").and_then(Value::as_str);
                let name = name.ok_or_else(|| ApiError::must_be("tool_choice.name", "a string"))?;
                json!({"type": "function", "function": {"name": name}})
            }
            Some(kind) => return Err(unsupported("tool_choice.type", "function", kind)),
            None => return Err(ApiError::must_be("tool_choice.type", "\"function\"")),
        },
        _ => {
            let what = "\"auto\", \"none\", \"required\", or {\"type\": \"function\", \"name\": …}";
            return Err(ApiError::must_be("tool_choice", what));
        }
    };
    chat.set("tool_choice", ours);
    echo.tool_choice = choice;
    Ok(())
}
