//! Mixtures of experts: which layers have them, how many, and how the router weighs them.

use crate::error::Result;
use crate::family::Family;
use crate::json::{Fields, quoted};
use crate::limits::{MAX_EXPERTS, MAX_INTERMEDIATE_SIZE, MAX_LAYERS};

/// Experts in place of the gated MLP. The router takes the softmax over all experts, picks the
/// largest, and scales what the picked experts give by their probabilities.
#[derive(Clone, Debug, PartialEq)]
pub struct Experts {
    /// Experts of a layer.
    pub num_experts: u32,
    /// Experts that a token goes through; at most `num_experts`.
    pub experts_per_token: u32,
    /// Width of one expert's gated MLP.
    pub intermediate_size: u32,
    /// The probabilities of the picked experts are divided by their sum.
    pub norm_topk_prob: bool,
    /// `[num_layers]`: 1 where a layer has experts, 0 where it has the plain MLP.
    pub sparse_layers: Vec<u32>,
}

impl Experts {
    /// `None` for families without experts and for files that turn them off in all layers.
    pub(crate) fn parse(
        family: Family,
        fields: &Fields<'_>,
        num_layers: u32,
        intermediate_size: u32,
    ) -> Result<Option<Self>> {
        let experts = match family {
            Family::Mixtral => Self::mixtral(fields, num_layers, intermediate_size)?,
            Family::Qwen3Moe => Self::qwen3(fields, num_layers)?,
            _ => return Ok(None),
        };
        Ok(Some(experts).filter(|experts| experts.sparse_layers.contains(&1)))
    }

    fn mixtral(fields: &Fields<'_>, num_layers: u32, intermediate_size: u32) -> Result<Self> {
        let num_experts = fields.u32("num_local_experts", 1..=MAX_EXPERTS)?.unwrap_or(8);
        Ok(Self {
            num_experts,
            experts_per_token: per_token(fields, num_experts, 2)?,
            intermediate_size,
            norm_topk_prob: true,
            sparse_layers: vec![1; num_layers as usize],
        })
    }

    fn qwen3(fields: &Fields<'_>, num_layers: u32) -> Result<Self> {
        let num_experts = num_experts(fields)?.unwrap_or(128);
        let width = fields.u32("moe_intermediate_size", 1..=MAX_INTERMEDIATE_SIZE)?;
        let step = fields.u32("decoder_sparse_step", 1..=MAX_LAYERS)?.unwrap_or(1);
        let dense = dense_layers(fields)?;
        let is_sparse = |layer: u32| {
            num_experts > 0 && !dense.contains(&layer) && (layer + 1).is_multiple_of(step)
        };
        Ok(Self {
            num_experts,
            experts_per_token: match num_experts {
                0 => 0,
                _ => per_token(fields, num_experts, 8)?,
            },
            intermediate_size: width.unwrap_or(768),
            norm_topk_prob: fields.bool("norm_topk_prob")?.unwrap_or(false),
            sparse_layers: (0..num_layers).map(|layer| u32::from(is_sparse(layer))).collect(),
        })
    }
}

/// One number under two names, of the old and the new configuration classes; zero turns experts
/// off.
fn num_experts(fields: &Fields<'_>) -> Result<Option<u32>> {
    let old = fields.u32("num_experts", 0..=MAX_EXPERTS)?;
    let new = fields.u32("num_local_experts", 0..=MAX_EXPERTS)?;
    match (old, new) {
        (Some(old), Some(new)) if old != new => {
            let problem = format!("is {new}, must be {old} as num_experts");
            Err(fields.error("num_local_experts", problem))
        }
        _ => Ok(old.or(new)),
    }
}

fn per_token(fields: &Fields<'_>, num_experts: u32, default: u32) -> Result<u32> {
    const NAME: &str = "num_experts_per_tok";
    let count = fields.u32(NAME, 1..=MAX_EXPERTS)?.unwrap_or(default);
    if count > num_experts {
        let problem = format!("is {count}, must be at most the number of experts, {num_experts}");
        return Err(fields.error(NAME, problem));
    }
    Ok(count)
}

/// `mlp_only_layers`: layers with the plain MLP. Numbers beyond the last layer change nothing.
fn dense_layers(fields: &Fields<'_>) -> Result<Vec<u32>> {
    const NAME: &str = "mlp_only_layers";
    let Some(value) = fields.get(NAME) else { return Ok(Vec::new()) };
    let list = value.as_array().filter(|list| list.len() <= MAX_LAYERS as usize);
    let layer = |value: &serde_json::Value| value.as_u64().and_then(|n| u32::try_from(n).ok());
    list.and_then(|list| list.iter().map(layer).collect()).ok_or_else(|| {
        let problem = format!("is {}, must be a list of layer numbers", quoted(value));
        fields.error(NAME, problem)
    })
}
