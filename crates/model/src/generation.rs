//! generation_config.json: default sampling parameters of a model.

use crate::error::Result;
use crate::json::{Fields, parse_object, quoted};
use crate::limits::{MAX_POSITIONS, MAX_VOCAB_SIZE};

/// Name of the file, for error messages.
pub(crate) const GENERATION_FILE: &str = "generation_config.json";
/// Largest temperature and repetition penalty.
const MAX_SCALE: f64 = 100.0;
/// Smallest value of what must be positive.
const MIN_POSITIVE: f64 = 1e-6;

/// Parameters that change what is generated and that are not implemented, with the value at which
/// they do nothing.
const NOT_IMPLEMENTED: [(&str, f64); 12] = [
    ("no_repeat_ngram_size", 0.0),
    ("encoder_no_repeat_ngram_size", 0.0),
    ("typical_p", 1.0),
    ("epsilon_cutoff", 0.0),
    ("eta_cutoff", 0.0),
    ("num_beams", 1.0),
    ("penalty_alpha", 0.0),
    ("guidance_scale", 1.0),
    ("bad_words_ids", f64::NAN),
    ("sequence_bias", f64::NAN),
    ("suppress_tokens", f64::NAN),
    ("begin_suppress_tokens", f64::NAN),
];

/// Defaults for parameters that a request leaves out. `None`: the file does not say.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct GenerationConfig {
    /// 0 is greedy; at most 100.
    pub temperature: Option<f32>,
    /// In (0, 1].
    pub top_p: Option<f32>,
    /// 0 is off.
    pub top_k: Option<u32>,
    /// In 0..=1.
    pub min_p: Option<f32>,
    /// 1 is off; in (0, 100].
    pub repetition_penalty: Option<f32>,
    /// Tokens.
    pub max_new_tokens: Option<u32>,
    /// End-of-sequence ids; [`crate::ModelConfig::eos_ids`] has them merged with config.json's.
    pub eos_ids: Option<Vec<u32>>,
    /// Fields that would change what HF generates and are ignored here. Worth a warning.
    pub ignored: Vec<String>,
}

/// Parses the text of generation_config.json.
///
/// # Errors
/// [`crate::ModelError::Field`] for a parameter out of its bounds.
pub fn parse_generation_config(text: &str) -> Result<GenerationConfig> {
    let map = parse_object(GENERATION_FILE, text)?;
    let fields = Fields::new(GENERATION_FILE, "", &map);
    let number = |name, min, max| -> Result<Option<f32>> {
        Ok(fields.f64(name, min..=max)?.map(|n| n as f32))
    };
    let max_id = MAX_VOCAB_SIZE - 1;
    Ok(GenerationConfig {
        temperature: number("temperature", 0.0, MAX_SCALE)?,
        top_p: number("top_p", MIN_POSITIVE, 1.0)?,
        top_k: fields.u32("top_k", 0..=MAX_VOCAB_SIZE)?,
        min_p: number("min_p", 0.0, 1.0)?,
        repetition_penalty: number("repetition_penalty", MIN_POSITIVE, MAX_SCALE)?,
        max_new_tokens: fields.u32("max_new_tokens", 1..=MAX_POSITIONS)?,
        eos_ids: fields.token_ids("eos_token_id", 0..=max_id, crate::limits::MAX_EOS_IDS)?,
        ignored: ignored(&fields),
    })
}

fn ignored(fields: &Fields<'_>) -> Vec<String> {
    let has_effect = |(name, neutral): &(&str, f64)| {
        fields.get(name).filter(|value| value.as_f64() != Some(*neutral))
    };
    let describe = |entry: &(&str, f64)| {
        has_effect(entry).map(|value| format!("{}={}", entry.0, quoted(value)))
    };
    NOT_IMPLEMENTED.iter().filter_map(describe).collect()
}
