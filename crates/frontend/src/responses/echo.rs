//! What an answer repeats of its request.

use serde::Serialize;
use serde_json::{Map, Value, json};

use crate::api_error::ApiError;
use crate::validate::params::{Int, Text};
use crate::validate::{Fields, read_json};

/// Pairs of `metadata`, and characters of its keys and values, as in OpenAI's API.
const MAX_METADATA: (usize, usize, usize) = (16, 64, 512);

const NAMES_OF_CLIENTS: [Text; 3] = [
    name_of_client("user"),
    name_of_client("safety_identifier"),
    name_of_client("prompt_cache_key"),
];

const fn name_of_client(name: &'static str) -> Text {
    Text { name, min_chars: 0, max_chars: 1024 }
}

/// The parameters of a request, as its answer has them.
#[derive(Debug, Clone, Serialize)]
pub struct Echo {
    pub instructions: Option<String>,
    pub max_output_tokens: Option<i64>,
    pub metadata: Map<String, Value>,
    pub parallel_tool_calls: bool,
    pub prompt_cache_key: Option<String>,
    pub reasoning: Value,
    pub safety_identifier: Option<String>,
    pub text: Value,
    pub tool_choice: Value,
    pub tools: Vec<Value>,
    pub top_logprobs: i64,
    pub user: Option<String>,
    /// Bytes of JSON that it holds.
    #[serde(skip)]
    pub bytes: usize,
}

impl Echo {
    /// Reads what only an answer repeats. The rest is as in an answer to a request without it.
    ///
    /// # Errors
    /// 400 that names the field.
    pub fn read(fields: &Fields) -> Result<Self, ApiError> {
        let [user, safety_identifier, prompt_cache_key] = &NAMES_OF_CLIENTS;
        let held = ["instructions", "metadata", "text", "tools", "tool_choice"];
        Ok(Self {
            instructions: None,
            max_output_tokens: fields.int(&MAX_OUTPUT_TOKENS)?,
            metadata: metadata(fields)?,
            parallel_tool_calls: fields.boolean("parallel_tool_calls", true)?,
            prompt_cache_key: fields.text(prompt_cache_key)?,
            reasoning: json!({"effort": null, "summary": null}),
            safety_identifier: fields.text(safety_identifier)?,
            text: json!({"format": {"type": "text"}, "verbosity": "medium"}),
            tool_choice: "auto".into(),
            tools: Vec::new(),
            top_logprobs: 0,
            user: fields.text(user)?,
            bytes: held.iter().filter_map(|name| fields.raw(name)).map(str::len).sum(),
        })
    }
}

/// `max_tokens` of the chat.
const MAX_OUTPUT_TOKENS: Int = Int { name: "max_output_tokens", min: 1, max: u32::MAX as i64 };

fn metadata(fields: &Fields) -> Result<Map<String, Value>, ApiError> {
    let Some(raw) = fields.raw("metadata") else { return Ok(Map::new()) };
    let metadata: Map<String, Value> = read_json("metadata", raw)?;
    let (pairs, key_chars, value_chars) = MAX_METADATA;
    let fits = |(key, value): (&String, &Value)| {
        let value = value.as_str().is_some_and(|value| value.chars().count() <= value_chars);
        value && key.chars().count() <= key_chars
    };
    if metadata.len() <= pairs && metadata.iter().all(fits) {
        return Ok(metadata);
    }
    let what = format!(
        "an object of at most {pairs} strings of at most {value_chars} characters, with names of \
         at most {key_chars}"
    );
    Err(ApiError::must_be("metadata", &what))
}
