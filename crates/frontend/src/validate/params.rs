//! The table of scalar request parameters: name and bounds, the same for every endpoint.

pub use super::fields::{Float, Int, Text};

use crate::limits;

const fn float(name: &'static str, min: f64, max: f64) -> Float {
    Float { name, min, max, min_open: false }
}
const fn int(name: &'static str, min: i64, max: i64) -> Int {
    Int { name, min, max }
}

/// Any value from 0 (greedy), as in vLLM; the ring's descriptor bounds it at 100.
pub const TEMPERATURE: Float = float("temperature", 0.0, 100.0);
/// Nucleus mass; 0 would leave no token.
pub const TOP_P: Float = Float { name: "top_p", min: 0.0, max: 1.0, min_open: true };
/// -1 and 0 mean all tokens; above the vocabulary size means all as well.
pub const TOP_K: Int = int("top_k", -1, i32::MAX as i64);
/// Relative to the most likely token.
pub const MIN_P: Float = float("min_p", 0.0, 1.0);
/// 1 is none.
pub const REPETITION_PENALTY: Float =
    Float { name: "repetition_penalty", min: 0.0, max: 10.0, min_open: true };
/// Added once a token has appeared.
pub const PRESENCE_PENALTY: Float = float("presence_penalty", -2.0, 2.0);
/// Added per appearance.
pub const FREQUENCY_PENALTY: Float = float("frequency_penalty", -2.0, 2.0);
/// Choices per prompt.
pub const N: Int = int("n", 1, limits::MAX_N);
/// Any 64-bit integer; choice `i` of a prompt uses `seed + i`.
pub const SEED: Int = int("seed", i64::MIN, i64::MAX);
/// Tokens to produce; the model's length limit is checked once the prompt is known.
pub const MAX_TOKENS: Int = int("max_tokens", 1, u32::MAX as i64);
/// The same for `/v1/completions`, where 0 with `echo` scores the prompt.
pub const COMPLETION_MAX_TOKENS: Int = int("max_tokens", 0, u32::MAX as i64);
/// The name of `max_tokens` in the newer chat API; wins over it.
pub const MAX_COMPLETION_TOKENS: Int = int("max_completion_tokens", 1, u32::MAX as i64);
/// Nothing stops the text before this many tokens.
pub const MIN_TOKENS: Int = int("min_tokens", 0, u32::MAX as i64);
/// Alternatives per token in chat.
pub const TOP_LOGPROBS: Int = int("top_logprobs", 0, limits::MAX_TOP_LOGPROBS);
/// Alternatives per token in completions.
pub const LOGPROBS: Int = int("logprobs", 0, limits::MAX_TOP_LOGPROBS);
/// Alternatives per token of the prompt.
pub const PROMPT_LOGPROBS: Int = int("prompt_logprobs", 0, limits::MAX_TOP_LOGPROBS);
/// A class, lower is earlier. Few, because metrics count by class.
pub const PRIORITY: Int = int("priority", -limits::MAX_PRIORITY, limits::MAX_PRIORITY);
/// Values of an embedding, for models that were trained to have fewer.
pub const DIMENSIONS: Int = int("dimensions", 1, u32::MAX as i64);
/// Keep only the last N prompt tokens; -1 keeps as many as the model takes.
pub const TRUNCATE_PROMPT_TOKENS: Int = int("truncate_prompt_tokens", -1, u32::MAX as i64);
/// Target time to the first token, milliseconds; also the header `x-slo-ttft-ms`.
pub const SLO_TTFT_MS: Float = float("slo_ttft_ms", limits::MIN_SLO_MS, limits::MAX_SLO_MS);
/// Target time per produced token, milliseconds; also the header `x-slo-tpot-ms`.
pub const SLO_TPOT_MS: Float = float("slo_tpot_ms", limits::MIN_SLO_MS, limits::MAX_SLO_MS);
/// Bias of one token in `logit_bias`.
pub const LOGIT_BIAS: Float = float("logit_bias", -100.0, 100.0);
/// Separates the cached prefixes of tenants.
pub const CACHE_SALT: Text =
    Text { name: "cache_salt", min_chars: 1, max_chars: limits::MAX_CACHE_SALT_CHARS };
/// One of the served names, or an adapter's.
pub const MODEL: Text =
    Text { name: "model", min_chars: 0, max_chars: limits::MAX_MODEL_NAME_BYTES };
/// Becomes part of the response's id.
pub const REQUEST_ID: Text =
    Text { name: "request_id", min_chars: 1, max_chars: limits::MAX_REQUEST_ID_BYTES };
/// Passed to the chat template.
pub const REASONING_EFFORT: Text = Text { name: "reasoning_effort", min_chars: 1, max_chars: 32 };

/// Every floating-point parameter, for the tests of the bounds.
pub const FLOATS: &[Float] = &[
    TEMPERATURE,
    TOP_P,
    MIN_P,
    REPETITION_PENALTY,
    PRESENCE_PENALTY,
    FREQUENCY_PENALTY,
    SLO_TTFT_MS,
    SLO_TPOT_MS,
];
/// Every integer parameter that all generating endpoints share, for the tests of the bounds.
pub const INTS: &[Int] = &[TOP_K, N, SEED, MAX_TOKENS, MIN_TOKENS, PRIORITY, PROMPT_LOGPROBS];
