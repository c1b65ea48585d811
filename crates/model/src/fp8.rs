//! `quantization_config`: matrices in e4m3, in the forms that published checkpoints have.
//!
//! Read is what says where their scales are and what they mean. Which matrices are in e4m3 follows
//! from the element types in the weight files: lists of modules that are not are not read. Neither
//! is what concerns activations, which keep their type here.

use crate::error::Result;
use crate::json::{Fields, quoted};

/// Rows and columns of a block that shares a scale, and columns of a device's group.
pub(crate) const BLOCK: u64 = 128;
/// Names of the object; the second is older.
const NAMES: [&str; 2] = ["quantization_config", "compression_config"];
/// Groups of modules in one configuration.
const MAX_GROUPS: usize = 64;
/// Longest list that may stand for a block's shape.
const MAX_SHAPE: usize = 8;

/// Which weights of a matrix in e4m3 share a scale. A weight is its element times its scale.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fp8Scales {
    /// All of them.
    Tensor,
    /// Those of an output.
    Channel,
    /// Blocks of 128 outputs and 128 inputs.
    Block,
}

/// The quantization that config.json states, if it does.
pub(crate) fn parse(root: &Fields<'_>) -> Result<Option<Fp8Scales>> {
    let [newer, older] = NAMES;
    match (root.get(newer), root.get(older)) {
        (Some(_), Some(_)) => Err(root.error(older, format!("must be absent beside {newer}"))),
        (Some(_), None) => parse_named(root, newer),
        _ => parse_named(root, older),
    }
}

fn parse_named(root: &Fields<'_>, name: &str) -> Result<Option<Fp8Scales>> {
    let Some(map) = root.object(name)? else { return Ok(None) };
    let fields = root.nested(name, map);
    let methods = ["fp8", "fbgemm_fp8", "compressed-tensors"];
    let method = one_of(&fields, "quant_method", &methods)?;
    match fields.require("quant_method", method)? {
        "fp8" => fp8(&fields),
        "fbgemm_fp8" => Ok(Fp8Scales::Channel),
        _ => compressed(&fields),
    }
    .map(Some)
}

/// As DeepSeek-V3 has it, in blocks, and as AutoFP8 wrote it, without.
fn fp8(fields: &Fields<'_>) -> Result<Fp8Scales> {
    one_of(fields, "fmt", &["e4m3"])?;
    one_of(fields, "activation_scheme", &["dynamic", "static"])?;
    one_of(fields, "expert_dtype", &["fp8"])?;
    let block = is_block(fields, "weight_block_size")?;
    Ok(if block { Fp8Scales::Block } else { Fp8Scales::Tensor })
}

/// As llm-compressor writes it.
fn compressed(fields: &Fields<'_>) -> Result<Fp8Scales> {
    let formats = ["float-quantized"];
    let format = one_of(fields, "format", &formats)?;
    fields.require("format", format)?;
    one_of(fields, "quantization_status", &["compressed"])?;
    check_other_stages(fields)?;
    let groups = fields.require("config_groups", fields.object("config_groups")?)?;
    if groups.is_empty() || groups.len() > MAX_GROUPS {
        let problem = format!("has {} groups, must be 1..={MAX_GROUPS}", groups.len());
        return Err(fields.error("config_groups", problem));
    }
    let base = fields.path_of("config_groups");
    let list = fields.nested(&base, groups);
    let mut common = None;
    for name in list.keys() {
        let path = list.path_of(name);
        let group = list.nested(&path, list.require(name, list.object(name)?)?);
        one_of(&group, "format", &formats)?;
        let scales = of_group(&group)?;
        if common.is_some_and(|common| common != scales) {
            let problem = "has another strategy than the group before it, must be the same";
            return Err(group.error("weights.strategy", problem));
        }
        common = Some(scales);
    }
    list.require("group_0", common)
}

/// Weights that are sparse, or transformed before they were quantized.
fn check_other_stages(fields: &Fields<'_>) -> Result<()> {
    if let Some(map) = fields.object("sparsity_config")? {
        let path = fields.path_of("sparsity_config");
        one_of(&fields.nested(&path, map), "format", &["dense"])?;
    }
    match fields.object("transform_config")? {
        Some(map) if !map.is_empty() => {
            Err(fields.error("transform_config", "is not empty, must be absent or {}"))
        }
        _ => Ok(()),
    }
}

/// The weights of one group of modules.
fn of_group(group: &Fields<'_>) -> Result<Fp8Scales> {
    let map = group.require("weights", group.object("weights")?)?;
    let path = group.path_of("weights");
    let weights = group.nested(&path, map);
    weights.require("num_bits", weights.u32("num_bits", 8..=8)?)?;
    weights.require("type", one_of(&weights, "type", &["float"])?)?;
    if weights.bool("symmetric")? == Some(false) {
        return Err(weights.error("symmetric", "is false, must be true or absent"));
    }
    let strategies = ["tensor", "channel", "block"];
    match weights.require("strategy", one_of(&weights, "strategy", &strategies)?)? {
        "tensor" => Ok(Fp8Scales::Tensor),
        "channel" => Ok(Fp8Scales::Channel),
        _ if is_block(&weights, "block_structure")? => Ok(Fp8Scales::Block),
        _ => Err(weights.error("block_structure", "is missing")),
    }
}

/// Whether a field says that scales are of blocks; an error if they are of other blocks than ours.
fn is_block(fields: &Fields<'_>, name: &str) -> Result<bool> {
    let Some(shape) = fields.numbers(name, 1.0..=f64::from(u32::MAX), MAX_SHAPE)? else {
        return Ok(false);
    };
    if shape != [BLOCK as f64; 2] {
        let found = fields.get(name).map(quoted).unwrap_or_default();
        let problem = format!("is {found}, must be [{BLOCK}, {BLOCK}] or absent");
        return Err(fields.error(name, problem));
    }
    Ok(true)
}

/// A string that is absent or one of a list.
fn one_of<'a>(fields: &Fields<'a>, name: &str, allowed: &[&str]) -> Result<Option<&'a str>> {
    let value = fields.str(name)?;
    match value {
        Some(value) if !allowed.contains(&value) => {
            let quoted: Vec<String> = allowed.iter().map(|name| format!("{name:?}")).collect();
            let problem = format!("is {value:?}, must be {}", quoted.join(" or "));
            Err(fields.error(name, problem))
        }
        value => Ok(value),
    }
}
