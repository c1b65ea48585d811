//! Parameters of the OpenAI and vLLM APIs that this server knows and does not implement. A value
//! that asks for nothing (`null`, an empty list, the default) is accepted; any other is refused by
//! name, because ignoring it would answer a different question than the one asked.

use super::fields::Fields;
use crate::api_error::ApiError;

/// Name, and the JSON texts that ask for nothing (besides `null`).
type Row = (&'static str, &'static [&'static str]);

const EVERYWHERE: &[Row] = &[
    // Of llama.cpp and SGLang.
    ("grammar", &[r#""""#]),
    ("json_schema", &["{}"]),
    ("regex", &[r#""""#]),
    ("ebnf", &[r#""""#]),
    ("thinking_token_budget", &[]),
    ("truncation_side", &[r#""left""#]),
    ("use_beam_search", &["false"]),
    ("length_penalty", &["1", "1.0"]),
    ("early_stopping", &["false"]),
    ("best_of", &["1"]),
    ("allowed_token_ids", &["[]"]),
    ("bad_words", &["[]"]),
    ("logits_processors", &["[]"]),
    ("spaces_between_special_tokens", &["true"]),
    ("kv_transfer_params", &[]),
    ("vllm_xargs", &["{}"]),
    ("logprob_token_ids", &["[]"]),
];

const CHAT: &[Row] = &[
    ("functions", &["[]"]),
    ("function_call", &[r#""none""#, r#""auto""#]),
    ("audio", &[]),
    ("modalities", &["[]", r#"["text"]"#]),
    ("prediction", &[]),
    ("web_search_options", &[]),
    ("documents", &["[]"]),
    ("chat_template", &[]),
    ("mm_processor_kwargs", &["{}"]),
    ("verbosity", &[r#""medium""#]),
    ("store", &["false"]),
    ("service_tier", &[r#""auto""#, r#""default""#]),
];

/// Besides those of chats. Hosted tools and stored answers are refused where they are read.
const RESPONSES: &[Row] = &[
    ("prompt", &[]),
    ("truncation", &[r#""disabled""#]),
    ("max_tool_calls", &[]),
    ("context_management", &["[]"]),
    ("moderation", &[]),
    ("prompt_cache_retention", &[r#""in_memory""#]),
    ("prompt_cache_options", &["{}"]),
    ("n", &["1"]),
    ("echo", &["false"]),
    ("prompt_logprobs", &[]),
    ("return_token_ids", &["false"]),
    ("return_tokens_as_token_ids", &["false"]),
    ("add_generation_prompt", &["true"]),
    ("continue_final_message", &["false"]),
];

const COMPLETIONS: &[Row] = &[("suffix", &[r#""""#]), ("prompt_embeds", &[])];

/// Fields that describe the caller and change nothing about an answer.
const METADATA: &[&str] =
    &["user", "metadata", "safety_identifier", "prompt_cache_key", "parallel_tool_calls"];

/// Refuses what only chat knows, besides what no endpoint implements.
pub fn refuse_chat(fields: &Fields) -> Result<(), ApiError> {
    refuse(fields, EVERYWHERE)?;
    refuse(fields, CHAT)
}

/// Refuses what only responses know, besides what is refused in chats.
pub fn refuse_responses(fields: &Fields) -> Result<(), ApiError> {
    refuse_chat(fields)?;
    refuse(fields, RESPONSES)
}

/// Refuses what only completions know, besides what no endpoint implements.
pub fn refuse_completions(fields: &Fields) -> Result<(), ApiError> {
    refuse(fields, EVERYWHERE)?;
    refuse(fields, COMPLETIONS)
}

fn refuse(fields: &Fields, rows: &[Row]) -> Result<(), ApiError> {
    for name in METADATA {
        fields.raw(name);
    }
    for (name, harmless) in rows {
        let Some(raw) = fields.raw(name) else { continue };
        if !harmless.iter().any(|h| same_json(h, raw)) {
            return Err(ApiError::unsupported(name));
        }
    }
    Ok(())
}

/// Equal but for white space outside of strings (the harmless texts have none inside).
fn same_json(harmless: &str, raw: &str) -> bool {
    raw.len() <= 64 && raw.bytes().filter(|b| !b.is_ascii_whitespace()).eq(harmless.bytes())
}
