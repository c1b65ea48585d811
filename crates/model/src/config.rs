//! config.json, of transformers v4 and v5 style, for the families in [`Family`].

use serde_json::Value;

use crate::dtype::Dtype;
use crate::error::{ModelError, Result};
use crate::experts::Experts;
use crate::family::{self, Biases, DefaultKvHeads, Family};
use crate::fp8::{self, Fp8Scales};
use crate::json::{Fields, parse_object, quoted};
use crate::limits::{
    MAX_EOS_IDS, MAX_HEAD_DIM, MAX_HEADS, MAX_HIDDEN_SIZE, MAX_INTERMEDIATE_SIZE, MAX_LAYERS,
    MAX_POSITIONS, MAX_RMS_NORM_EPS, MAX_VOCAB_SIZE,
};
use crate::refused::refuse_unsupported;
use crate::rope::RopeConfig;
use crate::window::sliding_windows;

/// Name of the file, for error messages.
pub(crate) const CONFIG_FILE: &str = "config.json";

/// Shape and arithmetic of a decoder. Every number is within the bounds of [`crate::limits`],
/// and everything that would change the result is either here or refused.
#[derive(Clone, Debug, PartialEq)]
pub struct ModelConfig {
    /// Which family; decides names and presence of tensors.
    pub family: Family,
    /// Decoder layers.
    pub num_layers: u32,
    /// Width of the residual stream.
    pub hidden_size: u32,
    /// Width of the gated MLP in layers without experts.
    pub intermediate_size: u32,
    /// Query heads.
    pub num_heads: u32,
    /// Key/value heads; divides `num_heads`.
    pub num_kv_heads: u32,
    /// Elements of one head, even; not necessarily `hidden_size / num_heads`.
    pub head_dim: u32,
    /// Rows of the embedding.
    pub vocab_size: u32,
    /// Positions that the model was made for, before any rotary scaling by factor.
    pub max_position_embeddings: u32,
    /// Added to the mean square in every RMS norm.
    pub rms_norm_eps: f32,
    /// The embedding is the output projection as well.
    pub tie_word_embeddings: bool,
    /// Which projections have biases.
    pub biases: Biases,
    /// RMS norm of each query and key head before the rotary embedding.
    pub qk_norm: bool,
    /// `[num_layers]`: positions that a row may look back, itself included; 0 is all of them.
    pub sliding_window: Vec<u32>,
    /// Experts, in families that have them.
    pub experts: Option<Experts>,
    /// Rotary embedding.
    pub rope: RopeConfig,
    /// What config.json says about the element type, if it does.
    pub dtype: Option<Dtype>,
    /// How matrices in e4m3 are scaled, if there may be any.
    pub fp8: Option<Fp8Scales>,
    /// Beginning-of-sequence id, if there is one.
    pub bos_id: Option<u32>,
    /// End-of-sequence ids; empty if there is none. At most [`MAX_EOS_IDS`].
    pub eos_ids: Vec<u32>,
}

/// Parses the text of config.json.
///
/// # Errors
/// [`ModelError::File`] if it is not a JSON object; [`ModelError::Field`] for the first field that
/// is missing, out of bounds, or not supported.
pub fn parse_config(text: &str) -> Result<ModelConfig> {
    let map = parse_object(CONFIG_FILE, text)?;
    let fields = Fields::new(CONFIG_FILE, "", &map);
    let family = Family::from_config(&fields)?;
    refuse_unsupported(family, &fields)?;
    let shape = Shape::parse(family, &fields)?;
    let intermediate_size = required(&fields, "intermediate_size", MAX_INTERMEDIATE_SIZE)?;
    let vocab_size = required(&fields, "vocab_size", MAX_VOCAB_SIZE)?;
    let max_positions = fields.u32("max_position_embeddings", 1..=MAX_POSITIONS)?;
    let max_position_embeddings = max_positions.unwrap_or(family.default_max_positions());
    let eps = fields.f64("rms_norm_eps", 0.0..=MAX_RMS_NORM_EPS)?;
    Ok(ModelConfig {
        family,
        num_layers: shape.num_layers,
        hidden_size: shape.hidden_size,
        intermediate_size,
        num_heads: shape.num_heads,
        num_kv_heads: shape.num_kv_heads,
        head_dim: shape.head_dim,
        vocab_size,
        max_position_embeddings,
        rms_norm_eps: eps.unwrap_or(family.default_rms_norm_eps()) as f32,
        tie_word_embeddings: fields.bool("tie_word_embeddings")?.unwrap_or(false),
        biases: family::biases(family, &fields)?,
        qk_norm: family.qk_norm(),
        sliding_window: sliding_windows(family, &fields, shape.num_layers)?,
        experts: Experts::parse(family, &fields, shape.num_layers, intermediate_size)?,
        rope: RopeConfig::parse(family, &fields, shape.head_dim, max_position_embeddings)?,
        dtype: dtype(&fields)?,
        fp8: fp8::parse(&fields)?,
        bos_id: fields.u32("bos_token_id", 0..=vocab_size - 1)?,
        eos_ids: eos_ids(&fields, vocab_size)?.unwrap_or_default(),
    })
}

/// `eos_token_id` of config.json or generation_config.json.
pub(crate) fn eos_ids(fields: &Fields<'_>, vocab_size: u32) -> Result<Option<Vec<u32>>> {
    fields.token_ids("eos_token_id", 0..=vocab_size - 1, MAX_EOS_IDS)
}

fn required(fields: &Fields<'_>, name: &str, max: u32) -> Result<u32> {
    fields.require(name, fields.u32(name, 1..=max)?)
}

/// The sizes that constrain each other.
struct Shape {
    num_layers: u32,
    hidden_size: u32,
    num_heads: u32,
    num_kv_heads: u32,
    head_dim: u32,
}

impl Shape {
    fn parse(family: Family, fields: &Fields<'_>) -> Result<Self> {
        let hidden_size = required(fields, "hidden_size", MAX_HIDDEN_SIZE)?;
        let num_heads = required(fields, "num_attention_heads", MAX_HEADS)?;
        Ok(Self {
            num_layers: required(fields, "num_hidden_layers", MAX_LAYERS)?,
            hidden_size,
            num_heads,
            num_kv_heads: kv_heads(family, fields, num_heads)?,
            head_dim: head_dim(family, fields, hidden_size, num_heads)?,
        })
    }
}

/// Null means as many as query heads; an absent field means the class default.
fn kv_heads(family: Family, fields: &Fields<'_>, num_heads: u32) -> Result<u32> {
    const NAME: &str = "num_key_value_heads";
    let default = match family.default_kv_heads() {
        DefaultKvHeads::Fixed(n) if !fields.has(NAME) => n,
        _ => num_heads,
    };
    let kv_heads = fields.u32(NAME, 1..=MAX_HEADS)?.unwrap_or(default);
    if !num_heads.is_multiple_of(kv_heads) {
        let problem = format!("is {kv_heads}, must divide num_attention_heads = {num_heads}");
        return Err(fields.error(NAME, problem));
    }
    Ok(kv_heads)
}

fn head_dim(family: Family, fields: &Fields<'_>, hidden_size: u32, num_heads: u32) -> Result<u32> {
    const NAME: &str = "head_dim";
    let default = family.default_head_dim().filter(|_| !fields.has(NAME));
    let head_dim = match fields.u32(NAME, 1..=MAX_HEAD_DIM)?.or(default) {
        Some(head_dim) => head_dim,
        None if hidden_size.is_multiple_of(num_heads) => hidden_size / num_heads,
        None => {
            let problem = format!(
                "is {hidden_size}, must be divisible by num_attention_heads = {num_heads} when \
                 head_dim is not given"
            );
            return Err(fields.error("hidden_size", problem));
        }
    };
    if !head_dim.is_multiple_of(2) || head_dim > MAX_HEAD_DIM {
        let problem = format!("is {head_dim}, must be even and at most {MAX_HEAD_DIM}");
        return Err(fields.error(NAME, problem));
    }
    Ok(head_dim)
}

/// `dtype` (v5) or `torch_dtype` (v4); the newer name wins, as in HF.
fn dtype(fields: &Fields<'_>) -> Result<Option<Dtype>> {
    let name = if fields.get("dtype").is_some() { "dtype" } else { "torch_dtype" };
    let Some(value) = fields.get(name) else { return Ok(None) };
    match value.as_str().and_then(Dtype::from_config) {
        Some(dtype) => Ok(Some(dtype)),
        None => Err(unknown_dtype(fields, name, value)),
    }
}

fn unknown_dtype(fields: &Fields<'_>, name: &str, value: &Value) -> ModelError {
    let problem = format!("is {}, must be float32, bfloat16 or float16", quoted(value));
    fields.error(name, problem)
}

impl ModelConfig {
    /// The context length that the position encoding is made for, in tokens: what
    /// `--max-model-len` defaults to and may not exceed.
    pub fn max_model_len(&self) -> u32 {
        self.rope.max_positions(self.max_position_embeddings)
    }
}
