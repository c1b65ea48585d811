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

/// Of endpoints that answer with text, which an embedding leaves nothing to do for, and what is not
/// implemented of embeddings.
const EMBEDDINGS: &[Row] = &[
    ("messages", &[]),
    ("prompt", &[]),
    ("tools", &["[]"]),
    ("tool_choice", &[r#""none""#, r#""auto""#]),
    ("n", &["1"]),
    ("max_tokens", &[]),
    ("max_completion_tokens", &[]),
    ("min_tokens", &["0"]),
    ("temperature", &[]),
    ("top_p", &["1", "1.0"]),
    ("top_k", &["0", "-1"]),
    ("min_p", &["0", "0.0"]),
    ("repetition_penalty", &["1", "1.0"]),
    ("presence_penalty", &["0", "0.0"]),
    ("frequency_penalty", &["0", "0.0"]),
    ("seed", &[]),
    ("stop", &["[]"]),
    ("stop_token_ids", &["[]"]),
    ("include_stop_str_in_output", &["false"]),
    ("ignore_eos", &["false"]),
    ("skip_special_tokens", &["true"]),
    ("logit_bias", &["{}"]),
    ("logprobs", &["false"]),
    ("prompt_logprobs", &[]),
    ("top_logprobs", &["0"]),
    ("return_tokens_as_token_ids", &["false"]),
    ("return_token_ids", &["false"]),
    ("response_format", &[r#"{"type":"text"}"#]),
    ("structured_outputs", &[]),
    ("guided_json", &[]),
    ("guided_regex", &[]),
    ("guided_choice", &[]),
    ("guided_grammar", &[]),
    ("structural_tag", &[]),
    ("stream", &["false"]),
    ("stream_options", &[]),
    ("echo", &["false"]),
    ("suffix", &[r#""""#]),
    // Of vLLM's embeddings.
    ("embed_dtype", &[r#""float32""#]),
    ("endianness", &[r#""native""#, r#""little""#]),
    ("chat_template", &[]),
    ("chat_template_kwargs", &["{}"]),
    ("add_generation_prompt", &["false"]),
    ("continue_final_message", &["false"]),
    ("mm_processor_kwargs", &["{}"]),
    ("media_io_kwargs", &["{}"]),
    ("return_metrics", &["false"]),
];

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

/// Refuses what embeddings do not know, besides what no endpoint implements.
pub fn refuse_embeddings(fields: &Fields) -> Result<(), ApiError> {
    refuse(fields, EVERYWHERE)?;
    refuse(fields, EMBEDDINGS)
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
