//! What differs between the supported families. The defaults are those of the Hugging Face
//! configuration classes: a field that config.json leaves out means the class default, not zero.

use serde_json::Value;

use crate::error::Result;
use crate::json::{Fields, quoted};

/// A family of decoders.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Family {
    /// Llama 2, 3.x and everything shaped like it.
    Llama,
    /// Mistral 7B and its kin.
    Mistral,
    /// Qwen2 and Qwen2.5.
    Qwen2,
    /// Qwen3, dense.
    Qwen3,
    /// Phi-3, Phi-3.5 and Phi-4: fused projections, part of a head may rotate.
    Phi3,
    /// Mixtral: experts in every layer.
    Mixtral,
    /// Qwen3 with experts in some or all layers.
    Qwen3Moe,
}

/// Number of key/value heads when config.json does not say.
pub(crate) enum DefaultKvHeads {
    /// As many as query heads.
    Heads,
    /// A number of the class.
    Fixed(u32),
}

impl Family {
    /// Every supported family.
    pub const ALL: [Self; 7] = [
        Self::Llama,
        Self::Mistral,
        Self::Qwen2,
        Self::Qwen3,
        Self::Phi3,
        Self::Mixtral,
        Self::Qwen3Moe,
    ];

    /// The entry of `architectures`.
    pub fn architecture(self) -> &'static str {
        match self {
            Self::Llama => "LlamaForCausalLM",
            Self::Mistral => "MistralForCausalLM",
            Self::Qwen2 => "Qwen2ForCausalLM",
            Self::Qwen3 => "Qwen3ForCausalLM",
            Self::Phi3 => "Phi3ForCausalLM",
            Self::Mixtral => "MixtralForCausalLM",
            Self::Qwen3Moe => "Qwen3MoeForCausalLM",
        }
    }

    /// The value of `model_type`.
    pub fn model_type(self) -> &'static str {
        match self {
            Self::Llama => "llama",
            Self::Mistral => "mistral",
            Self::Qwen2 => "qwen2",
            Self::Qwen3 => "qwen3",
            Self::Phi3 => "phi3",
            Self::Mixtral => "mixtral",
            Self::Qwen3Moe => "qwen3_moe",
        }
    }

    /// Reads `architectures` and `model_type`, which must agree.
    pub(crate) fn from_config(fields: &Fields<'_>) -> Result<Self> {
        let model_type = fields.str("model_type")?;
        let family = match fields.get("architectures") {
            Some(names) => Self::from_architectures(names).ok_or_else(|| {
                fields.error("architectures", format!("is {}{}", quoted(names), supported()))
            })?,
            None => Self::ALL
                .into_iter()
                .find(|family| model_type == Some(family.model_type()))
                .ok_or_else(|| {
                    fields.error("architectures", format!("is missing{}", supported()))
                })?,
        };
        match model_type {
            Some(name) if name != family.model_type() => Err(fields.error(
                "model_type",
                format!(
                    "is {name:?}, must be {:?} for {}",
                    family.model_type(),
                    family.architecture()
                ),
            )),
            _ => Ok(family),
        }
    }

    fn from_architectures(names: &Value) -> Option<Self> {
        let names = names.as_array()?;
        let is = |family: &Self| names.iter().any(|name| name == family.architecture());
        Self::ALL.into_iter().find(is)
    }

    pub(crate) fn default_kv_heads(self) -> DefaultKvHeads {
        match self {
            Self::Llama | Self::Phi3 => DefaultKvHeads::Heads,
            Self::Mistral | Self::Mixtral => DefaultKvHeads::Fixed(8),
            Self::Qwen3Moe => DefaultKvHeads::Fixed(4),
            Self::Qwen2 | Self::Qwen3 => DefaultKvHeads::Fixed(32),
        }
    }

    /// `head_dim` when config.json leaves it out; `None` is `hidden_size / num_attention_heads`.
    pub(crate) fn default_head_dim(self) -> Option<u32> {
        (self == Self::Qwen3).then_some(128)
    }

    pub(crate) fn default_max_positions(self) -> u32 {
        match self {
            Self::Llama => 2048,
            Self::Phi3 => 4096,
            Self::Mistral | Self::Mixtral => 131_072,
            Self::Qwen2 | Self::Qwen3 | Self::Qwen3Moe => 32_768,
        }
    }

    pub(crate) fn default_rms_norm_eps(self) -> f64 {
        match self {
            Self::Phi3 | Self::Mixtral => 1e-5,
            _ => 1e-6,
        }
    }

    /// Base of the rotary frequencies when config.json leaves it out.
    pub(crate) fn default_theta(self) -> f64 {
        if self == Self::Mixtral { 1e6 } else { 1e4 }
    }

    /// Positions of pre-training when config.json leaves them out, in classes that have a field
    /// for them next to the rotary parameters.
    pub(crate) fn default_original_positions(self) -> Option<u32> {
        (self == Self::Phi3).then_some(4096)
    }

    pub(crate) fn qk_norm(self) -> bool {
        matches!(self, Self::Qwen3 | Self::Qwen3Moe)
    }
}

/// Which linear layers have a bias.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Biases {
    /// On the query, key and value projections.
    pub qkv: bool,
    /// On the attention output projection.
    pub o: bool,
    /// On gate, up and down.
    pub mlp: bool,
}

/// Reads `attention_bias` and `mlp_bias` as far as the family has them. Qwen2 always has biases on
/// q, k and v and only there, whatever `attention_bias` says.
pub(crate) fn biases(family: Family, fields: &Fields<'_>) -> Result<Biases> {
    let attention = fields.bool("attention_bias")?.unwrap_or(false);
    let mlp = fields.bool("mlp_bias")?.unwrap_or(false);
    if attention && matches!(family, Family::Mistral | Family::Mixtral | Family::Phi3) {
        return Err(unsupported_bias(family, fields, "attention_bias"));
    }
    if mlp && family != Family::Llama {
        return Err(unsupported_bias(family, fields, "mlp_bias"));
    }
    Ok(match family {
        Family::Qwen2 => Biases { qkv: true, o: false, mlp: false },
        _ => Biases { qkv: attention, o: attention, mlp },
    })
}

fn unsupported_bias(family: Family, fields: &Fields<'_>, name: &str) -> crate::ModelError {
    let problem = format!("is true, must be false or absent for {}", family.architecture());
    fields.error(name, problem)
}

fn supported() -> String {
    let names = Family::ALL.map(Family::architecture);
    format!(", supported are {}", names.join(", "))
}
