//! Scales of KV in 8 bits, which some checkpoints bring for each layer.

use crate::error::{ModelError, Result};
use crate::weights::Weights;

/// Names of K's scale within a layer, as compressed-tensors, ModelOpt and older tools write it. Of
/// two the first counts. V's are the same with a v.
const K_NAMES: [&str; 3] =
    ["self_attn.k_scale", "self_attn.k_proj.k_scale", "self_attn.k_proj.output_scale"];
const V_NAMES: [&str; 3] =
    ["self_attn.v_scale", "self_attn.v_proj.v_scale", "self_attn.v_proj.output_scale"];

/// Whether a tensor of that name, in any layer, is such a scale.
pub(crate) fn is_kv_scale(name: &str) -> bool {
    let ends = |suffix: &str| name.strip_suffix(suffix).is_some_and(|rest| rest.ends_with('.'));
    [K_NAMES, V_NAMES].concat().into_iter().any(ends)
}

impl Weights {
    /// What K and V of each layer are divided by before they are kept in 8 bits, 1 where the
    /// checkpoint does not say; empty if it says nothing of any layer.
    ///
    /// # Errors
    /// A scale that is not one finite number above 0; names file and tensor.
    pub fn kv_scales(&self, num_layers: u32) -> Result<Vec<[f32; 2]>> {
        let mut found = false;
        let mut scale = |layer: u32, names: &[&str]| {
            for name in names {
                if let Some(scale) = self.kv_scale(&format!("model.layers.{layer}.{name}"))? {
                    found = true;
                    return Ok(scale);
                }
            }
            Ok(1.0)
        };
        let scales = (0..num_layers)
            .map(|layer| Ok([scale(layer, &K_NAMES)?, scale(layer, &V_NAMES)?]))
            .collect::<Result<Vec<_>>>()?;
        Ok(if found { scales } else { Vec::new() })
    }

    fn kv_scale(&self, name: &str) -> Result<Option<f32>> {
        let Some(number) = self.number(name)? else { return Ok(None) };
        if number.value.is_finite() && number.value > 0.0 {
            return Ok(Some(number.value));
        }
        let problem = format!("is {}, must be finite and above 0", number.value);
        Err(ModelError::tensor(number.file, name, problem))
    }
}
