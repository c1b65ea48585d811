//! Fields that would change the result and are not implemented: refused unless they have the value
//! that changes nothing.

use serde_json::Value;

use crate::error::Result;
use crate::family::Family;
use crate::json::{Fields, quoted};

/// The value at which a field has no effect.
enum Neutral {
    /// Only absent or null.
    Absent,
    /// Absent, or the number 1.
    One,
    /// Absent, false, 0 or an empty list.
    Off,
}

use Neutral::{Absent, Off, One};

/// Field, the value without effect, what the field is.
const REFUSED: &[(&str, Neutral, &str)] = &[
    ("attention_chunk_size", Absent, "chunked attention"),
    ("dual_chunk_attention_config", Absent, "dual chunk attention"),
    ("rotary_pct", One, "partial rotary embedding"),
    ("logits_scaling", One, "scaled logits"),
    ("logit_scale", One, "scaled logits"),
    ("embedding_multiplier", One, "scaled embeddings"),
    ("residual_multiplier", One, "scaled residuals"),
    ("attention_multiplier", Absent, "scaled attention"),
    ("query_pre_attn_scalar", Absent, "scaled attention"),
    ("attn_logit_softcapping", Absent, "capped logits"),
    ("final_logit_softcapping", Absent, "capped logits"),
    ("clip_qkv", Absent, "clipped projections"),
    ("use_qk_norm", Off, "query and key norms in this family"),
    ("num_experts", Off, "mixture of experts"),
    ("num_local_experts", Off, "mixture of experts"),
    ("n_routed_experts", Off, "mixture of experts"),
    ("kv_lora_rank", Absent, "latent attention"),
    ("v_head_dim", Absent, "value heads of another size"),
    ("no_rope_layers", Off, "layers without rotary embedding"),
    ("no_rope_layer_interval", Off, "layers without rotary embedding"),
    ("alibi", Off, "linear attention biases"),
    ("use_mrope", Off, "multimodal rotary embedding"),
    ("text_config", Absent, "multimodal models"),
    ("vision_config", Absent, "multimodal models"),
    ("audio_config", Absent, "multimodal models"),
    ("is_encoder_decoder", Off, "encoder-decoder models"),
];

/// Read by the families that have experts.
const EXPERT_FIELDS: [&str; 2] = ["num_experts", "num_local_experts"];

impl Neutral {
    fn accepts(&self, value: &Value) -> bool {
        match self {
            Absent => false,
            One => value.as_f64() == Some(1.0),
            Off => {
                value == &Value::Bool(false)
                    || value.as_f64() == Some(0.0)
                    || value.as_array().is_some_and(Vec::is_empty)
            }
        }
    }

    fn must(&self) -> &'static str {
        match self {
            Absent => "absent or null",
            One => "absent or 1",
            Off => "absent, false or 0",
        }
    }
}

/// Fails at the first field of the root object that is not implemented.
pub(crate) fn refuse_unsupported(family: Family, fields: &Fields<'_>) -> Result<()> {
    let known = |name: &str| match family {
        Family::Mixtral | Family::Qwen3Moe => EXPERT_FIELDS.contains(&name),
        _ => false,
    };
    for (name, neutral, what) in REFUSED.iter().filter(|(name, ..)| !known(name)) {
        if let Some(value) = fields.get(name).filter(|value| !neutral.accepts(value)) {
            let problem =
                format!("is {}, must be {} ({what} not supported)", quoted(value), neutral.must());
            return Err(fields.error(name, problem));
        }
    }
    if fields.bool("is_causal")? == Some(false) {
        return Err(fields.error("is_causal", "is false, must be true or absent"));
    }
    check_activation(fields)
}

fn check_activation(fields: &Fields<'_>) -> Result<()> {
    match fields.str("hidden_act")? {
        // "swish" is another name of the same function.
        None | Some("silu" | "swish") => Ok(()),
        Some(name) => Err(fields.error("hidden_act", format!("is {name:?}, must be \"silu\""))),
    }
}
