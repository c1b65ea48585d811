//! adapter_config.json, as PEFT writes it.

use serde_json::Value;

use super::pattern::Pattern;
use crate::error::Result;
use crate::json::{Fields, parse_object, quoted};
use crate::limits::MAX_ADAPTER_RANK;

/// Name of the file, for error messages.
pub(crate) const ADAPTER_CONFIG_FILE: &str = "adapter_config.json";
/// Keys of a pattern, and names of `target_modules`.
const MAX_NAMES: usize = 1 << 16;
/// Largest `lora_alpha`, either way.
const MAX_ALPHA: f64 = 1e6;

/// Read here.
const READ: [&str; 8] = [
    "peft_type",
    "task_type",
    "r",
    "lora_alpha",
    "use_rslora",
    "rank_pattern",
    "alpha_pattern",
    "init_lora_weights",
];
/// Without effect on what a saved adapter computes: where it comes from, how it was trained, and
/// which matrices it was given, which its tensors tell.
const WITHOUT_EFFECT: [&str; 20] = [
    "auto_mapping",
    "base_model_name_or_path",
    "corda_config",
    "ensure_weight_tying",
    "eva_config",
    "exclude_modules",
    "inference_mode",
    "layers_pattern",
    "layers_to_transform",
    "loftq_config",
    "lora_dropout",
    "lora_ga_config",
    "megatron_core",
    "peft_version",
    "qalora_group_size",
    "revision",
    "runtime_config",
    "target_modules",
    "_custom_modules",
    "ephemeral_gpu_offload",
];
/// Fields that change the result and are not implemented, and what they are. Absent, null, false
/// or empty they change nothing.
const REFUSED: [(&str, &str); 18] = [
    ("use_dora", "weight-decomposed adapters (DoRA)"),
    ("modules_to_save", "whole modules of the adapter's own"),
    ("trainable_token_indices", "embeddings of the adapter's own"),
    ("lora_bias", "biases of the adapter's own"),
    ("fan_in_fan_out", "transposed weights"),
    ("megatron_config", "parallel layers of Megatron"),
    ("layer_replication", "layers that are used several times"),
    ("alora_invocation_tokens", "adapters that begin at a token (aLoRA)"),
    ("target_parameters", "parameters that are no linear layer"),
    ("use_qalora", "grouped inputs (QALoRA)"),
    ("use_bdlora", "block-diagonal adapters"),
    ("arrow_config", "routing between adapters"),
    ("kasa_config", "singular values of the base model"),
    ("monteclora_config", "sampled adapters"),
    ("use_mora", "square matrices (MoRA)"),
    ("layer_sharing", "matrices that layers share"),
    ("velora_config", "compressed activations (VeLoRA)"),
    ("use_gks", "routing between adapters"),
];
/// Ways to begin a training that leave the base model as it is. All others train against changed
/// weights, which an adapter does not carry.
const PLAIN_INITS: [&str; 3] = ["gaussian", "eva", "orthogonal"];

/// What an adapter's matrices are multiplied by.
#[derive(Clone, Debug, PartialEq)]
pub struct AdapterConfig {
    rank: u32,
    alpha: f64,
    rslora: bool,
    ranks: Vec<(Pattern, u32)>,
    alphas: Vec<(Pattern, f64)>,
    /// None: an expression, or all linear layers.
    targets: Option<Vec<String>>,
}

impl AdapterConfig {
    /// Reads the file's text.
    ///
    /// # Errors
    /// Names the field whose value is out of bounds, or is not implemented and not without effect.
    pub fn parse(text: &str) -> Result<Self> {
        let map = parse_object(ADAPTER_CONFIG_FILE, text)?;
        let fields = Fields::new(ADAPTER_CONFIG_FILE, "", &map);
        refuse_unsupported(&fields)?;
        refuse_changed_base(&fields)?;
        let rank = fields.u32("r", 1..=MAX_ADAPTER_RANK)?;
        let alpha = fields.f64("lora_alpha", -MAX_ALPHA..=MAX_ALPHA)?;
        Ok(Self {
            rank: fields.require("r", rank)?,
            alpha: fields.require("lora_alpha", alpha)?,
            rslora: fields.bool("use_rslora")?.unwrap_or(false),
            ranks: patterns(&fields, "rank_pattern", |values, key| {
                values.u32(key, 1..=MAX_ADAPTER_RANK)
            })?,
            alphas: patterns(&fields, "alpha_pattern", |values, key| {
                values.f64(key, -MAX_ALPHA..=MAX_ALPHA)
            })?,
            targets: targets(&fields)?,
        })
    }

    /// Rank of a module; of several patterns that match the first counts, as in PEFT.
    pub fn rank_of(&self, module: &str) -> u32 {
        first_match(&self.ranks, module).unwrap_or(self.rank)
    }

    /// What the product of a module's matrices is multiplied by.
    pub fn scaling_of(&self, module: &str) -> f32 {
        let alpha = first_match(&self.alphas, module).unwrap_or(self.alpha);
        let rank = f64::from(self.rank_of(module));
        (alpha / if self.rslora { rank.sqrt() } else { rank }) as f32
    }

    /// Whether PEFT would give the module an adapter, as far as lists say it.
    pub(super) fn has_target(&self, module: &str) -> bool {
        let ends_with = |target: &String| {
            module.strip_suffix(target.as_str()).is_some_and(|r| r.is_empty() || r.ends_with('.'))
        };
        self.targets.as_ref().is_none_or(|targets| targets.iter().any(ends_with))
    }
}

fn first_match<T: Copy>(patterns: &[(Pattern, T)], module: &str) -> Option<T> {
    patterns.iter().find(|(pattern, _)| pattern.matches(module)).map(|(_, value)| *value)
}

fn patterns<T>(
    fields: &Fields<'_>,
    name: &str,
    value: impl Fn(&Fields<'_>, &str) -> Result<Option<T>>,
) -> Result<Vec<(Pattern, T)>> {
    let Some(map) = fields.object(name)? else { return Ok(Vec::new()) };
    if map.len() > MAX_NAMES {
        let problem = format!("has {} keys, must be at most {MAX_NAMES}", map.len());
        return Err(fields.error(name, problem));
    }
    let values = fields.nested(name, map);
    let read = |key: &str| {
        let pattern = Pattern::parse(key).ok_or_else(|| {
            let must = "is no key that is read: letters, digits, _, -, ., \\., .* and a leading ^";
            values.error(key, must)
        })?;
        Ok((pattern, values.require(key, value(&values, key)?)?))
    };
    values.keys().map(read).collect()
}

fn targets(fields: &Fields<'_>) -> Result<Option<Vec<String>>> {
    if fields.get("target_modules").is_none_or(Value::is_string) {
        return Ok(None);
    }
    let list = fields.strings("target_modules", MAX_NAMES)?;
    Ok(list.map(|list| list.into_iter().map(str::to_owned).collect()))
}

fn has_no_effect(value: &Value) -> bool {
    match value {
        Value::Null | Value::Bool(false) => true,
        Value::Array(list) => list.is_empty(),
        Value::Object(map) => map.is_empty(),
        _ => false,
    }
}

fn refuse_unsupported(fields: &Fields<'_>) -> Result<()> {
    let kind = fields.str("peft_type")?;
    if !fields.require("peft_type", kind)?.eq_ignore_ascii_case("LORA") {
        let problem = format!("is {:?}, must be \"LORA\"", kind.unwrap_or(""));
        return Err(fields.error("peft_type", problem));
    }
    if let Some(task) = fields.str("task_type")?
        && !["CAUSAL_LM", "FEATURE_EXTRACTION"].contains(&task)
    {
        let problem = format!("is {task:?}, must be \"CAUSAL_LM\" or \"FEATURE_EXTRACTION\"");
        return Err(fields.error("task_type", problem));
    }
    if let Some(bias) = fields.str("bias")?.filter(|bias| *bias != "none") {
        return Err(fields.error("bias", format!("is {bias:?}, must be \"none\"")));
    }
    for name in fields.keys() {
        if name == "bias" || READ.contains(&name) || WITHOUT_EFFECT.contains(&name) {
            continue;
        }
        let Some(value) = fields.get(name).filter(|value| !has_no_effect(value)) else { continue };
        let what = REFUSED.iter().find(|(refused, _)| *refused == name);
        let what = what.map_or("a field that is not known", |(_, what)| what);
        let problem = format!("is {}: {what} not supported", quoted(value));
        return Err(fields.error(name, problem));
    }
    Ok(())
}

fn refuse_changed_base(fields: &Fields<'_>) -> Result<()> {
    match fields.get("init_lora_weights") {
        None | Some(Value::Bool(_)) => Ok(()),
        Some(Value::String(init)) if PLAIN_INITS.contains(&init.as_str()) => Ok(()),
        Some(value) => {
            let problem = format!(
                "is {}: such a training changes the base model's weights; save the adapter with \
                 path_initial_model_for_weight_conversion",
                quoted(value)
            );
            Err(fields.error("init_lora_weights", problem))
        }
    }
}
