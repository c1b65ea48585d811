//! `POST /v1/embeddings`, as OpenAI and vLLM take it.

use super::completions::{Prompt, read_prompts};
use super::fields::{Fields, read_json};
use super::generate::{GenerateParams, SloHeaders};
use super::params::*;
use super::{Generating, ModelLimits, unsupported};
use crate::api_error::ApiError;
use crate::limits::MAX_EMBEDDING_INPUTS;

/// A validated embeddings request.
#[derive(Debug, Clone, PartialEq)]
pub struct EmbeddingsRequest {
    /// The model asked for; absent means the served one.
    pub model: Option<String>,
    /// At least one.
    pub inputs: Vec<Prompt>,
    /// Values as the base64 of little-endian f32, not as numbers.
    pub base64: bool,
    /// Values wanted; absent means all.
    pub dimensions: Option<u32>,
    /// Whether the Euclidean length is made 1; absent means what the model says.
    pub normalize: Option<bool>,
    /// Tokenizing, and who asks. Nothing is sampled.
    pub params: GenerateParams,
}

impl Generating for EmbeddingsRequest {
    fn model(&self) -> Option<&str> {
        self.model.as_deref()
    }

    fn params_mut(&mut self) -> &mut GenerateParams {
        &mut self.params
    }
}

impl EmbeddingsRequest {
    /// Reads and checks a request.
    pub fn read(fields: &Fields, slo: SloHeaders, model: ModelLimits) -> Result<Self, ApiError> {
        unsupported::refuse_embeddings(fields)?;
        let mut params = GenerateParams::read(fields, slo, model, true)?;
        params.max_tokens = Some(0);
        let inputs = read_prompts(fields, model, "input", MAX_EMBEDDING_INPUTS)?;
        if inputs.is_empty() {
            return Err(ApiError::invalid("input", "`input` must not be an empty array"));
        }
        Ok(Self {
            model: fields.text(&MODEL)?,
            inputs,
            base64: encoding(fields)?,
            dimensions: fields.int(&DIMENSIONS)?.map(|n| n as u32),
            normalize: normalization(fields)?,
            params,
        })
    }
}

/// Whether `encoding_format` is base64.
fn encoding(fields: &Fields) -> Result<bool, ApiError> {
    let name = "encoding_format";
    let Some(raw) = fields.raw(name) else { return Ok(false) };
    let format: String = read_json(name, raw)?;
    match format.as_str() {
        "float" => Ok(false),
        "base64" => Ok(true),
        other => Err(ApiError::invalid(
            name,
            format!("`{name}` must be \"float\" or \"base64\", got {}", super::cut(other)),
        )),
    }
}

/// vLLM's names for it, the older and the newer one.
fn normalization(fields: &Fields) -> Result<Option<bool>, ApiError> {
    let read = |name| match fields.raw(name) {
        None => Ok(None),
        Some(_) => fields.boolean(name, true).map(Some),
    };
    let (older, newer) = (read("normalize")?, read("use_activation")?);
    match (older, newer) {
        (Some(a), Some(b)) if a != b => Err(ApiError::invalid(
            "normalize",
            format!("`normalize` is {a} and `use_activation` {b}: they mean the same"),
        )),
        _ => Ok(newer.or(older)),
    }
}
