//! Tools, what a request says about their use, and calls in a conversation.

use std::sync::Arc;

use saccade_grammar::Source;
use saccade_parsers::Schemas;
use serde_json::value::RawValue;
use serde_json::{Map, Value, json};

use super::fields::{Fields, cut, read_json, read_list};
use super::grammar::AskedGrammar;
use crate::api_error::ApiError;
use crate::limits::*;

/// The tools of a request.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Tools {
    /// As the client wrote them: what the template gets.
    pub list: Vec<Value>,
    /// Bytes of their JSON.
    pub bytes: usize,
    /// Whether the model may call one.
    pub choice: ToolChoice,
    /// An answer may have several calls.
    pub parallel: bool,
    /// What they say about the types of their parameters.
    pub schemas: Arc<Schemas>,
    /// What holds calls that the model may leave out to their schemas, if one of them is strict.
    pub strict: Option<StrictCalls>,
    /// Calls that the model may leave out come as a JSON array, held by a grammar: what it says
    /// instead has a format.
    pub are_listed: bool,
}

/// Calls of functions of which one at least is strict.
#[derive(Debug, Clone, PartialEq)]
pub struct StrictCalls {
    /// The first strict function, by its index.
    pub first: usize,
    /// JSON Schema of a call: an object of `name` and `arguments`.
    pub schema: Arc<str>,
}

/// `tool_choice`
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum ToolChoice {
    /// Text only: what looks like a call stays text.
    #[default]
    None,
    /// The model decides.
    Auto,
    /// At least one call.
    Required,
    /// A call of this function.
    Named(String),
}

impl Tools {
    /// Reads `tools`, `tool_choice` and `parallel_tool_calls`.
    pub(super) fn read(fields: &Fields) -> Result<Self, ApiError> {
        let raw = fields.raw("tools");
        let list = raw.map(read_tools).transpose()?.unwrap_or_default();
        let mut tools = Self {
            bytes: raw.filter(|_| !list.is_empty()).map_or(0, str::len),
            choice: read_choice(fields, &list)?,
            parallel: fields.boolean("parallel_tool_calls", true)?,
            schemas: Arc::new(Schemas::of(list.iter().filter_map(function_of))),
            list,
            strict: None,
            are_listed: false,
        };
        // Here, where large bodies are read off the reactor.
        let first = tools.list.iter().position(is_strict);
        tools.strict = first.filter(|_| tools.choice == ToolChoice::Auto).map(|first| {
            let schema = tools.call_schema("arguments", "").to_string().into();
            StrictCalls { first, schema }
        });
        Ok(tools)
    }

    /// A schema of one call: an object of `name` and `arguments`, whatever it calls these.
    /// `at`: where the schema is within another one.
    fn call_schema(&self, arguments: &str, at: &str) -> Value {
        let call = |(index, tool): (usize, &Value)| {
            let (name, schema) = function_of(tool)?;
            // Where the model may leave a call out, it may fill one as well that is not strict.
            let held = self.choice != ToolChoice::Auto || is_strict(tool);
            let mut parameters = parameters(schema.filter(|_| held));
            move_references(
                &mut parameters,
                &format!("#{at}/anyOf/{index}/properties/{arguments}"),
            );
            // It says something only at a root.
            parameters.as_object_mut()?.remove("$schema");
            Some(json!({
                "type": "object",
                "properties": {"name": {"const": name}, arguments: parameters},
                "required": ["name", arguments],
                "additionalProperties": false,
            }))
        };
        let calls: Vec<Value> = self.list.iter().enumerate().filter_map(call).collect();
        json!({"anyOf": calls})
    }

    /// What an answer must be if it must call: a JSON array of calls, or the arguments of the one
    /// function.
    pub(super) fn grammar(&self) -> Option<AskedGrammar> {
        let schema = match &self.choice {
            ToolChoice::None | ToolChoice::Auto => return None,
            ToolChoice::Named(name) => {
                let mut functions = self.list.iter().filter_map(function_of);
                parameters(functions.find(|function| function.0 == name)?.1)
            }
            ToolChoice::Required => self.list_of_calls(""),
        };
        Some(AskedGrammar::of(Source::JsonSchema(schema.to_string()), "tools"))
    }

    /// A schema of an array of calls. `at`: where it is within another one.
    pub(super) fn list_of_calls(&self, at: &str) -> Value {
        let call = self.call_schema("parameters", &format!("{at}/items"));
        let mut list = json!({"type": "array", "minItems": 1, "items": call});
        if !self.parallel {
            list["maxItems"] = 1.into();
        }
        list
    }
}

fn is_strict(tool: &Value) -> bool {
    tool.pointer("/function/strict") == Some(&Value::Bool(true))
}

/// The schema of a function's arguments, which are an object.
fn parameters(schema: Option<&Value>) -> Value {
    let mut schema = schema.and_then(Value::as_object).cloned().unwrap_or_default();
    if !schema.contains_key("$ref") {
        schema.entry("type").or_insert_with(|| "object".into());
    }
    Value::Object(schema)
}

/// Keywords whose values are data, not schemas.
const DATA: &[&str] = &["const", "enum", "default", "examples"];
/// Keywords whose values are schemas by names of the client's.
const NAMED: &[&str] = &["properties", "patternProperties", "$defs", "definitions"];

/// Makes references to the root of a schema ones to `root`, where the schema is now.
pub(super) fn move_references(schema: &mut Value, root: &str) {
    match schema {
        Value::Array(schemas) => schemas.iter_mut().for_each(|one| move_references(one, root)),
        Value::Object(keywords) => {
            for (keyword, value) in keywords {
                match value {
                    Value::String(text) if keyword == "$ref" && text.starts_with('#') => {
                        text.replace_range(..1, root);
                    }
                    Value::Object(schemas) if NAMED.contains(&keyword.as_str()) => {
                        schemas.values_mut().for_each(|one| move_references(one, root));
                    }
                    value if !DATA.contains(&keyword.as_str()) => move_references(value, root),
                    _ => {}
                }
            }
        }
        _ => {}
    }
}

/// Name and schema of a tool.
fn function_of(tool: &Value) -> Option<(&str, Option<&Value>)> {
    let function = tool.get("function")?;
    Some((function.get("name")?.as_str()?, function.get("parameters")))
}

fn read_tools(raw: &str) -> Result<Vec<Value>, ApiError> {
    let name = "tools";
    if raw.len() > MAX_TOOLS_BYTES {
        return Err(ApiError::invalid(
            name,
            format!(
                "`{name}` must have at most {MAX_TOOLS_BYTES} bytes of JSON, got {}",
                raw.len()
            ),
        ));
    }
    let raws: Vec<&RawValue> = read_list(name, raw, MAX_TOOLS)?;
    let mut tools = Vec::with_capacity(raws.len());
    let mut names = std::collections::HashSet::new();
    for (index, raw) in raws.iter().enumerate() {
        let at = format!("{name}[{index}]");
        let tool: Value = read_json(&at, raw.get())?;
        let function = read_tool(&at, &tool)?;
        if !names.insert(function.to_owned()) {
            let param = format!("{at}.function.name");
            let message = format!("`{param}`: `{function}` is the name of a tool before it");
            return Err(ApiError::invalid(param, message));
        }
        tools.push(tool);
    }
    Ok(tools)
}

/// The name of a tool that is as it must be.
fn read_tool<'a>(at: &str, tool: &'a Value) -> Result<&'a str, ApiError> {
    let wrong = |field: &str, must: &str| {
        let param = format!("{at}{field}");
        ApiError::invalid(&param, format!("`{param}` must be {must}"))
    };
    let Value::Object(object) = tool else { return Err(wrong("", "an object")) };
    match object.get("type") {
        None => {}
        Some(Value::String(kind)) if kind == "function" => {}
        Some(_) => return Err(wrong(".type", "\"function\"")),
    }
    let Some(Value::Object(function)) = object.get("function") else {
        return Err(wrong(".function", "an object"));
    };
    let name = function_name(function).ok_or_else(|| wrong(".function.name", NAME_RULE))?;
    for (field, is_right, must) in [
        ("description", Value::is_string as fn(&Value) -> bool, "a string"),
        ("parameters", Value::is_object, "an object: a JSON Schema"),
        ("strict", Value::is_boolean, "a boolean"),
    ] {
        if function.get(field).is_some_and(|value| !value.is_null() && !is_right(value)) {
            return Err(wrong(&format!(".function.{field}"), must));
        }
    }
    Ok(name)
}

const NAME_RULE: &str = "1 to 128 ASCII letters, digits, `_`, `-`, `.`, `:` or `/`";

fn function_name(function: &Map<String, Value>) -> Option<&str> {
    let name = function.get("name")?.as_str()?;
    let is_part = |b: u8| b.is_ascii_alphanumeric() || b"_-.:/".contains(&b);
    let fits = !name.is_empty() && name.len() <= MAX_FUNCTION_NAME_BYTES;
    (fits && name.bytes().all(is_part)).then_some(name)
}

fn read_choice(fields: &Fields, tools: &[Value]) -> Result<ToolChoice, ApiError> {
    let name = "tool_choice";
    let default = if tools.is_empty() { ToolChoice::None } else { ToolChoice::Auto };
    let Some(raw) = fields.raw(name) else { return Ok(default) };
    let wrong = || {
        let must = "\"auto\", \"none\", \"required\", or {\"type\": \"function\", \"function\": \
                    {\"name\": …}}";
        ApiError::invalid(name, format!("`{name}` must be {must}, got {}", cut(raw)))
    };
    let choice = match read_json::<Value>(name, raw)? {
        Value::String(word) => match word.as_str() {
            "none" => return Ok(ToolChoice::None),
            "auto" => return Ok(default),
            "required" => ToolChoice::Required,
            _ => return Err(wrong()),
        },
        Value::Object(choice) => {
            let function = choice.get("function").and_then(Value::as_object);
            ToolChoice::Named(function.and_then(function_name).ok_or_else(wrong)?.to_owned())
        }
        _ => return Err(wrong()),
    };
    if tools.is_empty() {
        return Err(ApiError::invalid(name, format!("`{name}` needs `tools` to choose from")));
    }
    if let ToolChoice::Named(function) = &choice {
        let is_named = |tool: &Value| function_of(tool).is_some_and(|(name, _)| name == function);
        if !tools.iter().any(is_named) {
            let message = format!("`{name}`: `{function}` is none of `tools`");
            return Err(ApiError::invalid(name, message));
        }
    }
    Ok(choice)
}

/// `tool_calls` of a message.
pub(super) fn read_calls(at: &str, raw: Option<&str>) -> Result<Vec<Value>, ApiError> {
    let Some(raw) = raw else { return Ok(Vec::new()) };
    let name = format!("{at}.tool_calls");
    let raws: Vec<&RawValue> = read_list(&name, raw, MAX_MESSAGE_TOOL_CALLS)?;
    let one = |(index, raw): (usize, &&RawValue)| read_call(&format!("{name}[{index}]"), raw.get());
    raws.iter().enumerate().map(one).collect()
}

/// A call as the template takes it. Templates write arguments as JSON themselves, so a JSON text
/// becomes its object here, as in HF.
fn read_call(at: &str, raw: &str) -> Result<Value, ApiError> {
    take_call(at, read_json(at, raw)?)
}

/// The same for a call that has been read already.
///
/// # Errors
/// 400 that names the field, which is below `at`.
pub(crate) fn take_call(at: &str, mut call: Value) -> Result<Value, ApiError> {
    let wrong = |field: &str, must: &str| {
        let param = format!("{at}{field}");
        ApiError::invalid(&param, format!("`{param}` must be {must}"))
    };
    if call.get("type").is_some_and(|kind| kind != "function") {
        return Err(wrong(".type", "\"function\""));
    }
    let is_id = |id: &Value| id.as_str().is_some_and(|id| id.len() <= MAX_TOOL_CALL_ID_BYTES);
    if call.get("id").is_some_and(|id| !id.is_null() && !is_id(id)) {
        let must = format!("a string of at most {MAX_TOOL_CALL_ID_BYTES} bytes");
        return Err(wrong(".id", &must));
    }
    let Some(function) = call.get_mut("function").and_then(Value::as_object_mut) else {
        return Err(wrong(".function", "an object"));
    };
    if function_name(function).is_none() {
        return Err(wrong(".function.name", NAME_RULE));
    }
    match function.get_mut("arguments") {
        Some(arguments @ Value::String(_)) => {
            // What a model wrote may be no JSON: the template gets the text then.
            let text = arguments.as_str().unwrap_or_default();
            let read =
                if text.trim().is_empty() { Ok(Map::new()) } else { serde_json::from_str(text) };
            if let Ok(object) = read {
                *arguments = Value::Object(object);
            }
        }
        Some(Value::Object(_)) => {}
        Some(Value::Null) | None => {
            function.insert("arguments".into(), Value::Object(Map::new()));
        }
        Some(_) => return Err(wrong(".function.arguments", "a JSON text or an object")),
    }
    Ok(call)
}

/// Bytes of the strings in a value, keys included.
pub(super) fn text_bytes(value: &Value) -> usize {
    match value {
        Value::String(text) => text.len(),
        Value::Array(values) => values.iter().map(text_bytes).sum(),
        Value::Object(map) => map.iter().map(|(key, value)| key.len() + text_bytes(value)).sum(),
        Value::Null | Value::Bool(_) | Value::Number(_) => 4,
    }
}
