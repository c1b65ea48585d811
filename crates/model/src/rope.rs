//! The rotary part of config.json: `rope_theta` + `rope_scaling` (transformers v4) or
//! `rope_parameters` (v5), read by the rules of transformers v5.

use serde_json::{Map, Value};

use crate::error::Result;
use crate::family::Family;
use crate::json::{Fields, quoted};
use crate::limits::{MAX_HEAD_DIM, MAX_POSITIONS, MAX_ROPE_FACTOR, MAX_ROPE_THETA};

/// Smallest positive value of a factor; keeps quotients finite.
const MIN_POSITIVE: f64 = 1e-6;
/// Layer types that may have their own entry in a nested `rope_parameters`.
const LAYER_TYPES: [&str; 2] = ["full_attention", "sliding_attention"];
/// Keys that some supported rope type reads, or that change nothing. Any other is refused.
const KNOWN_KEYS: [&str; 17] = [
    "rope_type",
    "type",
    "rope_theta",
    "partial_rotary_factor",
    "factor",
    "original_max_position_embeddings",
    "attention_factor",
    "beta_fast",
    "beta_slow",
    "mscale",
    "mscale_all_dim",
    "truncate",
    "low_freq_factor",
    "high_freq_factor",
    "finetuned",
    "short_factor",
    "long_factor",
];

/// Rotary embedding of all layers.
#[derive(Clone, Debug, PartialEq)]
pub struct RopeConfig {
    /// Base of the frequencies.
    pub theta: f64,
    /// Elements of a head that rotate, the first ones; even.
    pub rotary_dim: u32,
    /// How frequencies are scaled for long contexts.
    pub scaling: RopeScaling,
}

/// The supported values of `rope_type`.
#[derive(Clone, Debug, PartialEq)]
pub enum RopeScaling {
    /// None.
    Default,
    /// All frequencies divided by `factor`.
    Linear {
        /// At least 1.
        factor: f64,
    },
    /// NTK: the base grows with the length beyond `max_positions`.
    Dynamic {
        /// At least 1.
        factor: f64,
        /// `max_position_embeddings`.
        max_positions: u32,
    },
    /// YaRN.
    Yarn(Yarn),
    /// All frequencies divided by `factor`; those beyond the first `pairs` are 0.
    Proportional {
        /// At least 1.
        factor: f64,
        /// Pairs of elements that rotate, at most half of the head.
        pairs: u32,
    },
    /// LongRoPE, of Phi and others ("su" in old files).
    LongRope(LongRope),
    /// Llama 3.1 and later.
    Llama3 {
        /// Divisor of low frequencies, at least 1.
        factor: f64,
        /// Positive.
        low_freq_factor: f64,
        /// Above `low_freq_factor`.
        high_freq_factor: f64,
        /// Positions of pre-training.
        original_max_positions: u32,
    },
}

/// YaRN with every optional parameter resolved.
#[derive(Clone, Debug, PartialEq)]
pub struct Yarn {
    /// Divisor of low frequencies, at least 1.
    pub factor: f64,
    /// Positions of pre-training.
    pub original_max_positions: u32,
    /// Rotations above which a dimension is extrapolated.
    pub beta_fast: f64,
    /// Rotations below which a dimension is interpolated.
    pub beta_slow: f64,
    /// Factor on cosine and sine.
    pub attention_factor: f64,
    /// Round the bounds of the ramp to whole dimensions.
    pub truncate: bool,
}

/// LongRoPE: each frequency has a divisor for short and one for long sequences.
#[derive(Clone, Debug, PartialEq)]
pub struct LongRope {
    /// `[rotary_dim / 2]`: divisors for sequences of at most `original_max_positions`.
    pub short_factor: Vec<f64>,
    /// `[rotary_dim / 2]`: divisors for longer ones.
    pub long_factor: Vec<f64>,
    /// Positions of pre-training.
    pub original_max_positions: u32,
    /// Factor on cosine and sine, at any length.
    pub attention_factor: f64,
}

impl RopeConfig {
    /// Reads the rotary fields of the root object.
    ///
    /// Refused: unknown `rope_type` and keys, layer types with different parameters, and a file in
    /// which `rope_scaling` and `rope_parameters` are both given and differ.
    pub(crate) fn parse(
        family: Family,
        root: &Fields<'_>,
        head_dim: u32,
        max_positions: u32,
    ) -> Result<Self> {
        let context = Context { family, root, head_dim, max_positions };
        let old = root.object("rope_scaling")?.filter(|map| !map.is_empty());
        let new = root.object("rope_parameters")?.filter(|map| !map.is_empty());
        match (old, new) {
            (None, None) => context.one("", &Map::new()),
            (Some(map), None) => context.one("rope_scaling", map),
            (None, Some(map)) => context.maybe_nested(map),
            (Some(old), Some(new)) => {
                let old = context.one("rope_scaling", old)?;
                if old != context.maybe_nested(new)? {
                    let problem = "and rope_scaling are both given and differ";
                    return Err(root.error("rope_parameters", problem));
                }
                Ok(old)
            }
        }
    }

    /// Positions that this scaling makes of `max_position_embeddings`.
    pub(crate) fn max_positions(&self, max_position_embeddings: u32) -> u32 {
        let (original, factor) = match &self.scaling {
            // Llama 3.1 configurations give the scaled length in max_position_embeddings.
            // So do those with longrope.
            RopeScaling::Default | RopeScaling::Llama3 { .. } | RopeScaling::LongRope(_) => {
                (max_position_embeddings, 1.0)
            }
            RopeScaling::Linear { factor } | RopeScaling::Proportional { factor, .. } => {
                (max_position_embeddings, *factor)
            }
            RopeScaling::Dynamic { factor, max_positions } => (*max_positions, *factor),
            RopeScaling::Yarn(yarn) => (yarn.original_max_positions, yarn.factor),
        };
        // The cast saturates; the product is positive.
        ((f64::from(original) * factor) as u32).clamp(1, MAX_POSITIONS)
    }
}

/// What one set of rope parameters is read against.
struct Context<'a> {
    family: Family,
    root: &'a Fields<'a>,
    head_dim: u32,
    max_positions: u32,
}

impl Context<'_> {
    /// `rope_parameters` is flat, or has one entry per layer type; those must be equal.
    fn maybe_nested(&self, map: &Map<String, Value>) -> Result<RopeConfig> {
        const NAME: &str = "rope_parameters";
        let is_nested = LAYER_TYPES.iter().any(|layer_type| map.contains_key(*layer_type));
        if !is_nested {
            return self.one(NAME, map);
        }
        let mut found: Option<RopeConfig> = None;
        for (layer_type, value) in map {
            let path = format!("{NAME}.{layer_type}");
            let Some(map) = value.as_object().filter(|_| LAYER_TYPES.contains(&&layer_type[..]))
            else {
                let problem = format!("is {}, must be one object for each of ", quoted(value));
                return Err(self.root.error(&path, problem + &LAYER_TYPES.join(", ")));
            };
            let rope = self.one(&path, map)?;
            if found.as_ref().is_some_and(|first| *first != rope) {
                let problem = "differs between layer types, must be the same for all layers";
                return Err(self.root.error(NAME, problem));
            }
            found = Some(rope);
        }
        self.root.require(NAME, found)
    }

    fn one(&self, path: &str, map: &Map<String, Value>) -> Result<RopeConfig> {
        let fields = self.root.nested(path, map);
        if let Some(key) = fields.keys().find(|key| !KNOWN_KEYS.contains(key)) {
            return Err(fields.error(key, "is not a rope parameter that is supported"));
        }
        let part = self.rotating_part(&fields)?;
        let name = self.type_name(&fields)?;
        let rotary_dim = match name {
            "proportional" => self.head_dim,
            _ => self.rotary_dim(&fields, part)?,
        };
        let scaling = self.scaling(&fields, name, part, rotary_dim)?;
        Ok(RopeConfig { theta: self.theta(&fields)?, rotary_dim, scaling })
    }

    /// `partial_rotary_factor`: the value inside of the dictionary wins.
    fn rotating_part(&self, fields: &Fields<'_>) -> Result<f64> {
        const NAME: &str = "partial_rotary_factor";
        let outer = self.root.f64(NAME, 0.0..=1.0)?;
        Ok(fields.f64(NAME, 0.0..=1.0)?.or(outer).unwrap_or(1.0))
    }

    /// How many elements of a head rotate. Only the classes of Phi leave some as they are.
    fn rotary_dim(&self, fields: &Fields<'_>, part: f64) -> Result<u32> {
        const NAME: &str = "partial_rotary_factor";
        if self.family != Family::Phi3 && part != 1.0 {
            let problem = format!("is {part}, must be 1 for {}", self.family.architecture());
            return Err(self.owner(fields, NAME).error(NAME, problem));
        }
        let dim = (f64::from(self.head_dim) * part) as u32;
        if dim == 0 || !dim.is_multiple_of(2) {
            let problem = format!(
                "is {part}, which of head_dim = {} leaves {dim} elements that rotate, must be an \
                 even number above 0",
                self.head_dim
            );
            return Err(self.owner(fields, NAME).error(NAME, problem));
        }
        Ok(dim)
    }

    /// The object whose value of a field counts: the dictionary, else the root.
    fn owner<'b>(&'b self, fields: &'b Fields<'b>, name: &str) -> &'b Fields<'b> {
        if fields.get(name).is_some() { fields } else { self.root }
    }

    /// The value inside the dictionary wins over the one next to it.
    fn theta(&self, fields: &Fields<'_>) -> Result<f64> {
        const NAME: &str = "rope_theta";
        let bound = 1.0 + MIN_POSITIVE..=MAX_ROPE_THETA;
        let outer = self.root.f64(NAME, bound.clone())?;
        Ok(fields.f64(NAME, bound)?.or(outer).unwrap_or(self.family.default_theta()))
    }

    /// The rope type, by the name that the newest files have for it.
    fn type_name<'b>(&self, fields: &Fields<'b>) -> Result<&'b str> {
        let key = type_key(fields);
        let name = fields.str(key)?.unwrap_or("default");
        match (self.family, name) {
            // Names of the first Phi-3 files.
            (Family::Phi3, "su" | "yarn") => Ok("longrope"),
            (Family::Phi3, "default" | "longrope") => Ok(name),
            (Family::Phi3, _) => {
                let problem = format!("is {name:?}, must be default or longrope for ");
                Err(fields.error(key, problem + self.family.architecture()))
            }
            _ => Ok(name),
        }
    }

    fn scaling(
        &self,
        fields: &Fields<'_>,
        name: &str,
        part: f64,
        rotary_dim: u32,
    ) -> Result<RopeScaling> {
        match name {
            "default" => Ok(RopeScaling::Default),
            "proportional" => Ok(RopeScaling::Proportional {
                factor: factor(fields)?.unwrap_or(1.0),
                pairs: (part * f64::from(self.head_dim) / 2.0) as u32,
            }),
            "longrope" => self.long_rope(fields, rotary_dim).map(RopeScaling::LongRope),
            "linear" => Ok(RopeScaling::Linear { factor: required_factor(fields)? }),
            "dynamic" => self.dynamic(fields),
            "yarn" => self.yarn(fields).map(RopeScaling::Yarn),
            "llama3" => self.llama3(fields),
            other => Err(fields.error(
                type_key(fields),
                format!(
                    "is {other:?}, must be one of default, linear, dynamic, yarn, longrope, \
                     llama3, proportional"
                ),
            )),
        }
    }

    fn dynamic(&self, fields: &Fields<'_>) -> Result<RopeScaling> {
        if self.head_dim <= 2 {
            let problem = "is \"dynamic\", which needs a head_dim of at least 4";
            return Err(fields.error("rope_type", problem));
        }
        let factor = required_factor(fields)?;
        Ok(RopeScaling::Dynamic { factor, max_positions: self.max_positions })
    }

    fn llama3(&self, fields: &Fields<'_>) -> Result<RopeScaling> {
        let bound = MIN_POSITIVE..=MAX_ROPE_FACTOR;
        let low = fields.f64("low_freq_factor", bound.clone())?;
        let low = fields.require("low_freq_factor", low)?;
        let high = fields.require("high_freq_factor", fields.f64("high_freq_factor", bound)?)?;
        if high <= low {
            let problem = format!("is {high}, must be above low_freq_factor = {low}");
            return Err(fields.error("high_freq_factor", problem));
        }
        Ok(RopeScaling::Llama3 {
            factor: required_factor(fields)?,
            low_freq_factor: low,
            high_freq_factor: high,
            original_max_positions: self.original_positions(fields)?,
        })
    }

    fn long_rope(&self, fields: &Fields<'_>, rotary_dim: u32) -> Result<LongRope> {
        let original = self.original_positions(fields)?;
        let ratio = f64::from(self.max_positions) / f64::from(original);
        let factor = factor(fields)?.unwrap_or(ratio);
        let given = fields.f64("attention_factor", 0.0..=MAX_ROPE_FACTOR)?;
        let computed = || match factor <= 1.0 {
            true => Ok(1.0),
            // The logarithm of 1 would be divided by.
            false if original == 1 => {
                Err(fields.error("original_max_position_embeddings", "is 1, must be above 1"))
            }
            false => Ok((1.0 + factor.ln() / f64::from(original).ln()).sqrt()),
        };
        let list = |name| {
            let list =
                fields.numbers(name, MIN_POSITIVE..=MAX_ROPE_FACTOR, MAX_HEAD_DIM as usize)?;
            let list = fields.require(name, list)?;
            match list.len() == rotary_dim as usize / 2 {
                true => Ok(list),
                false => Err(fields.error(
                    name,
                    format!(
                        "has {} entries, must be {}, one for two elements that rotate",
                        list.len(),
                        rotary_dim / 2
                    ),
                )),
            }
        };
        Ok(LongRope {
            short_factor: list("short_factor")?,
            long_factor: list("long_factor")?,
            original_max_positions: original,
            attention_factor: given.map_or_else(computed, Ok)?,
        })
    }

    fn yarn(&self, fields: &Fields<'_>) -> Result<Yarn> {
        let original = self.original_positions(fields)?;
        let ratio = f64::from(self.max_positions) / f64::from(original);
        // A null factor means the ratio of the lengths; an absent one is an error, as in HF.
        let factor = match fields.has("factor") {
            true => factor(fields)?.unwrap_or(ratio),
            false => required_factor(fields)?,
        };
        // HF writes `x or default`: zero reads as absent.
        let beta = |name, default| -> Result<f64> {
            let value = fields.f64(name, 0.0..=MAX_ROPE_FACTOR)?;
            Ok(value.filter(|n| *n != 0.0).unwrap_or(default))
        };
        Ok(Yarn {
            factor,
            original_max_positions: original,
            beta_fast: beta("beta_fast", 32.0)?,
            beta_slow: beta("beta_slow", 1.0)?,
            attention_factor: yarn_attention_factor(fields, factor)?,
            truncate: fields.bool("truncate")?.unwrap_or(true),
        })
    }

    /// `original_max_position_embeddings` of the dictionary or of the root; both must agree.
    fn original_positions(&self, fields: &Fields<'_>) -> Result<u32> {
        const NAME: &str = "original_max_position_embeddings";
        let outer = self.root.u32(NAME, 1..=MAX_POSITIONS)?;
        let outer = outer.or(self.family.default_original_positions());
        let inner = fields.u32(NAME, 1..=MAX_POSITIONS)?;
        match (outer, inner) {
            (Some(outer), Some(inner)) if outer != inner => {
                let problem = format!("is {inner}, must be {outer} as at the top of the file");
                Err(fields.error(NAME, problem))
            }
            _ => Ok(outer.or(inner).unwrap_or(self.max_positions)),
        }
    }
}

/// v4 wrote "type" first and "rope_type" later; files can have both.
fn type_key(fields: &Fields<'_>) -> &'static str {
    if fields.get("rope_type").is_some() { "rope_type" } else { "type" }
}

fn factor(fields: &Fields<'_>) -> Result<Option<f64>> {
    fields.f64("factor", 1.0..=MAX_ROPE_FACTOR)
}

fn required_factor(fields: &Fields<'_>) -> Result<f64> {
    fields.require("factor", factor(fields)?)
}

/// Factor on cosine and sine: given, or from `mscale` and `mscale_all_dim`, or from `factor`.
fn yarn_attention_factor(fields: &Fields<'_>, factor: f64) -> Result<f64> {
    let bound = 0.0..=MAX_ROPE_FACTOR;
    let given = fields.f64("attention_factor", bound.clone())?;
    let mscale = fields.f64("mscale", bound.clone())?.filter(|n| *n != 0.0);
    let all_dim = fields.f64("mscale_all_dim", bound)?.filter(|n| *n != 0.0);
    let scale = |mscale: f64| if factor <= 1.0 { 1.0 } else { 0.1 * mscale * factor.ln() + 1.0 };
    Ok(match (given, mscale, all_dim) {
        (Some(given), _, _) => given,
        (None, Some(mscale), Some(all_dim)) => scale(mscale) / scale(all_dim),
        _ => scale(1.0),
    })
}
