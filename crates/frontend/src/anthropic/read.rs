//! A request of the Messages API as a chat request: one validator reads both.

use serde_json::{Map, Value, json};

use crate::api_error::ApiError;
use crate::validate::chat::ChatRequest;
use crate::validate::{ChatFields, ChatInput, Fields, ModelLimits, SloHeaders, read_json};

/// Reads `POST /v1/messages`.
///
/// # Errors
/// 400 that names the field.
pub fn read_messages(
    fields: &Fields,
    slo: SloHeaders,
    model: ModelLimits,
) -> Result<ChatRequest, ApiError> {
    let mut chat = conversation(fields)?;
    let max_tokens = fields
        .raw("max_tokens")
        .ok_or_else(|| ApiError::invalid("max_tokens", "`max_tokens` is required"))?;
    chat.set("max_tokens", read_json::<Value>("max_tokens", max_tokens)?);
    for (theirs, ours) in [
        ("temperature", "temperature"),
        ("top_p", "top_p"),
        ("top_k", "top_k"),
        ("stop_sequences", "stop"),
    ] {
        chat.copy(fields, theirs, ours)?;
    }
    if fields.boolean("stream", false)? {
        chat.set("stream", true);
        let options = json!({"include_usage": true, "continuous_usage_stats": true});
        chat.set("stream_options", options);
    }
    chat.copy_shared(fields)?;
    // Of their service: they change nothing here.
    for ignored in ["metadata", "service_tier"] {
        fields.raw(ignored);
    }
    chat.read(slo, model)
}

/// Reads `POST /v1/messages/count_tokens`: the model, and what it would see.
///
/// # Errors
/// 400 that names the field.
pub fn read_count(fields: &Fields) -> Result<(Option<String>, ChatInput), ApiError> {
    let chat = conversation(fields)?.text();
    ChatInput::of_body(&Fields::parse(chat.as_bytes())?)
}

/// What the prompt is made of, as fields of a chat request.
fn conversation(fields: &Fields) -> Result<ChatFields, ApiError> {
    let mut chat = ChatFields::default();
    chat.copy(fields, "model", "model")?;
    let mut messages = Vec::new();
    if let Some(raw) = fields.raw("system") {
        let content = text_of("system", &read_json("system", raw)?)?;
        messages.push(json!({"role": "system", "content": content}));
    }
    let raw = fields
        .raw("messages")
        .ok_or_else(|| ApiError::invalid("messages", "`messages` is required"))?;
    let Value::Array(theirs) = read_json("messages", raw)? else {
        return Err(ApiError::invalid("messages", "`messages` must be a list"));
    };
    if theirs.is_empty() {
        return Err(ApiError::invalid("messages", "`messages` must not be empty"));
    }
    for (index, message) in theirs.iter().enumerate() {
        read_message(&format!("messages[{index}]"), message, &mut messages)?;
    }
    // A last message of the assistant's is the beginning of the answer.
    if theirs.last().is_some_and(|message| message["role"] == "assistant") {
        chat.set("continue_final_message", true);
        chat.set("add_generation_prompt", false);
    }
    chat.set("messages", messages);
    if let Some(raw) = fields.raw("tools") {
        chat.set("tools", tools(&read_json("tools", raw)?)?);
    }
    if let Some(raw) = fields.raw("tool_choice") {
        tool_choice(&read_json("tool_choice", raw)?, &mut chat)?;
    }
    if let Some(raw) = fields.raw("thinking") {
        let thinking: Value = read_json("thinking", raw)?;
        let enabled = match thinking["type"].as_str() {
            Some("enabled" | "adaptive") => true,
            Some("disabled") => false,
            _ => {
                return Err(ApiError::must_be(
                    "thinking.type",
                    "\"enabled\", \"adaptive\" or \"disabled\"",
                ));
            }
        };
        chat.set("enable_thinking", enabled);
        chat.set("include_reasoning", enabled);
    }
    Ok(chat)
}

/// A string, or a list of text blocks, as one text.
fn text_of(name: &str, content: &Value) -> Result<String, ApiError> {
    match content {
        Value::Null => Ok(String::new()),
        Value::String(text) => Ok(text.clone()),
        Value::Array(blocks) => {
            let text =
                |(index, block): (usize, &Value)| match (block["type"].as_str(), &block["text"]) {
                    (Some("text"), Value::String(text)) => Ok(text.clone()),
                    _ => Err(ApiError {
                        message: format!(
                            "`{name}[{index}]` must be a text block: no other is supported here"
                        ),
                        ..ApiError::unsupported(&format!("{name}[{index}]"))
                    }),
                };
            let texts: Result<Vec<String>, ApiError> =
                blocks.iter().enumerate().map(text).collect();
            Ok(texts?.join("\n"))
        }
        _ => Err(ApiError::must_be(name, "a string or a list of blocks")),
    }
}

/// Adds what a message is in a chat: a result of a tool is a message of its own.
fn read_message(at: &str, message: &Value, to: &mut Vec<Value>) -> Result<(), ApiError> {
    let content = &message["content"];
    match message["role"].as_str() {
        Some("user") => read_user(&format!("{at}.content"), content, to),
        Some("assistant") => {
            to.push(read_assistant(&format!("{at}.content"), content)?);
            Ok(())
        }
        _ => Err(ApiError::must_be(&format!("{at}.role"), "\"user\" or \"assistant\"")),
    }
}

fn read_user(at: &str, content: &Value, to: &mut Vec<Value>) -> Result<(), ApiError> {
    let Value::Array(blocks) = content else {
        let Value::String(text) = content else {
            return Err(ApiError::must_be(at, "a string or a list of blocks"));
        };
        to.push(json!({"role": "user", "content": text}));
        return Ok(());
    };
    let is_result = |block: &&Value| block["type"] == "tool_result";
    for (index, block) in blocks.iter().enumerate().filter(|(_, block)| is_result(block)) {
        let at = format!("{at}[{index}]");
        let id = block["tool_use_id"]
            .as_str()
            .ok_or_else(|| ApiError::must_be(&format!("{at}.tool_use_id"), "a string"))?;
        let content = text_of(&format!("{at}.content"), &block["content"])?;
        to.push(json!({"role": "tool", "tool_call_id": id, "content": content}));
    }
    let rest: Vec<Value> = blocks.iter().filter(|block| !is_result(block)).cloned().collect();
    if !rest.is_empty() || blocks.is_empty() {
        to.push(json!({"role": "user", "content": text_of(at, &Value::Array(rest))?}));
    }
    Ok(())
}

fn read_assistant(at: &str, content: &Value) -> Result<Value, ApiError> {
    let Value::Array(blocks) = content else {
        let Value::String(text) = content else {
            return Err(ApiError::must_be(at, "a string or a list of blocks"));
        };
        return Ok(json!({"role": "assistant", "content": text}));
    };
    let (mut text, mut thought, mut calls) = (String::new(), String::new(), Vec::new());
    for (index, block) in blocks.iter().enumerate() {
        let at = format!("{at}[{index}]");
        let string = |field: &str| {
            block[field]
                .as_str()
                .ok_or_else(|| ApiError::must_be(&format!("{at}.{field}"), "a string"))
        };
        match block["type"].as_str() {
            Some("text") => text.push_str(string("text")?),
            Some("thinking") => thought.push_str(string("thinking")?),
            Some("tool_use") => calls.push(json!({
                "id": string("id")?,
                "type": "function",
                "function": {"name": string("name")?, "arguments": block["input"]},
            })),
            _ => return Err(ApiError::unsupported(&at)),
        }
    }
    let mut message = json!({"role": "assistant", "content": text});
    if !thought.is_empty() {
        message["reasoning_content"] = thought.into();
    }
    if !calls.is_empty() {
        message["tool_calls"] = calls.into();
    }
    Ok(message)
}

fn tools(theirs: &Value) -> Result<Value, ApiError> {
    let Value::Array(list) = theirs else { return Err(ApiError::must_be("tools", "a list")) };
    let tool = |(index, tool): (usize, &Value)| {
        // Tools that their service runs have a type, and no schema.
        if tool.get("type").is_some_and(|kind| kind != "custom") {
            return Err(ApiError::unsupported(&format!("tools[{index}].type")));
        }
        let mut function = Map::new();
        for (theirs, ours) in [
            ("name", "name"),
            ("description", "description"),
            ("input_schema", "parameters"),
            ("strict", "strict"),
        ] {
            if let Some(value) = tool.get(theirs) {
                function.insert(ours.into(), value.clone());
            }
        }
        Ok(json!({"type": "function", "function": function}))
    };
    list.iter().enumerate().map(tool).collect()
}

fn tool_choice(theirs: &Value, chat: &mut ChatFields) -> Result<(), ApiError> {
    let choice = match theirs["type"].as_str() {
        Some("auto") => json!("auto"),
        Some("any") => json!("required"),
        Some("none") => json!("none"),
        Some("tool") => json!({"type": "function", "function": {"name": theirs["name"]}}),
        _ => {
            return Err(ApiError::must_be(
                "tool_choice.type",
                "\"auto\", \"any\", \"tool\" or \"none\"",
            ));
        }
    };
    chat.set("tool_choice", choice);
    if let Some(disabled) = theirs.get("disable_parallel_tool_use") {
        let disabled = disabled.as_bool().ok_or_else(|| {
            ApiError::must_be("tool_choice.disable_parallel_tool_use", "a boolean")
        })?;
        chat.set("parallel_tool_calls", !disabled);
    }
    Ok(())
}
