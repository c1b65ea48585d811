//! Cosine and sine tables, in the arithmetic of the Hugging Face implementation: frequencies,
//! angles and table entries are f32 and combined in f32. Powers, cosine and sine are computed in
//! f64 and rounded once, so a table does not depend on the machine's f32 functions and stays within
//! a unit in the last place of torch's.

use std::f64::consts::PI;

use crate::config::ModelConfig;
use crate::rope::{RopeConfig, RopeScaling, Yarn};

/// Rotary tables. Row p holds the `rotary_dim / 2` angles of position p, with the attention scaling
/// multiplied in. With the `longrope` type, `switch_len` rows follow: those of positions
/// `0..switch_len` in sequences whose prompt is longer than that.
#[derive(Clone, Debug, PartialEq)]
pub struct RopeTables {
    /// Columns: `rotary_dim / 2`.
    pub half_dim: usize,
    /// Positions whose angles depend on whether the prompt is longer than `switch_len`; 0 for all
    /// types but `longrope`, and never above `max_model_len`.
    pub switch_len: u32,
    /// `[max_model_len + switch_len][half_dim]`.
    pub cos: Vec<f32>,
    /// `[max_model_len + switch_len][half_dim]`.
    pub sin: Vec<f32>,
}

impl ModelConfig {
    /// Makes the tables for positions `0..max_model_len`.
    ///
    /// With the `dynamic` rope type, Hugging Face recomputes the base from the length of the
    /// sequence so far. These tables are a function of the position only: row p uses the base of a
    /// sequence of p + 1 tokens, which is what Hugging Face uses when it decodes token by token
    /// with a cache. (Its prefill of a prompt longer than `max_position_embeddings` gives every row
    /// the base of the whole prompt instead, so there the result depends on how the prompt was cut;
    /// here it does not.)
    ///
    /// With the `longrope` type, Hugging Face takes the long divisors in every call of the model
    /// in which a position is beyond the original length. A prompt longer than that is rotated by
    /// the long ones from its first token on; one that grows beyond it while it is decoded keeps
    /// what is in its cache, and takes the long ones for the rest. So the angles of a position
    /// depend on the prompt's length and on nothing else: there are two rows for each position
    /// below the original length.
    pub fn rope_tables(&self, max_model_len: u32) -> RopeTables {
        let half_dim = self.rope.rotary_dim as usize / 2;
        let switch_len = self.rope_switch_len(max_model_len);
        let entries = (max_model_len + switch_len) as usize * half_dim;
        let mut tables = RopeTables {
            half_dim,
            switch_len,
            cos: Vec::with_capacity(entries),
            sin: Vec::with_capacity(entries),
        };
        let mut frequencies = inverse_frequencies(&self.rope);
        let scale = attention_scaling(&self.rope);
        for position in 0..max_model_len {
            if let Some(base) = dynamic_base(&self.rope, position) {
                frequencies = plain_frequencies(base, self.rope.rotary_dim);
            }
            if position == switch_len && switch_len > 0 {
                frequencies = long_frequencies(&self.rope);
            }
            tables.push_row(position, &frequencies, scale);
        }
        let long = long_frequencies(&self.rope);
        for position in 0..switch_len {
            tables.push_row(position, &long, scale);
        }
        tables
    }

    /// [`RopeTables::switch_len`] of tables for `max_model_len` positions.
    pub fn rope_switch_len(&self, max_model_len: u32) -> u32 {
        match &self.rope.scaling {
            RopeScaling::LongRope(rope) if rope.original_max_positions < max_model_len => {
                rope.original_max_positions
            }
            _ => 0,
        }
    }
}

impl RopeTables {
    fn push_row(&mut self, position: u32, frequencies: &[f32], scale: f32) {
        for frequency in frequencies {
            // Positions stay below 2^24 (limits.rs), so the cast is exact.
            let angle = position as f32 * frequency;
            self.cos.push(f64::from(angle).cos() as f32 * scale);
            self.sin.push(f64::from(angle).sin() as f32 * scale);
        }
    }
}

/// `[rotary_dim / 2]` inverse frequencies of positions within the original length, in f32.
pub fn inverse_frequencies(rope: &RopeConfig) -> Vec<f32> {
    let dim = rope.rotary_dim;
    let plain = plain_frequencies(rope.theta as f32, dim);
    match &rope.scaling {
        RopeScaling::Default | RopeScaling::Dynamic { .. } => plain,
        RopeScaling::Linear { factor } => plain.iter().map(|f| f / *factor as f32).collect(),
        RopeScaling::Proportional { factor, pairs } => {
            let rotating = plain.iter().take(*pairs as usize).map(|f| f / *factor as f32);
            rotating.chain(std::iter::repeat(0.0)).take(plain.len()).collect()
        }
        RopeScaling::LongRope(long) => divided_frequencies(rope, &long.short_factor),
        RopeScaling::Yarn(yarn) => yarn_frequencies(rope.theta, dim, yarn),
        RopeScaling::Llama3 {
            factor,
            low_freq_factor,
            high_freq_factor,
            original_max_positions,
        } => {
            let bands = Llama3Bands {
                factor: *factor as f32,
                low: *low_freq_factor,
                high: *high_freq_factor,
                positions: f64::from(*original_max_positions),
            };
            plain.iter().map(|f| bands.scale(*f)).collect()
        }
    }
}

/// The frequencies of long sequences; those of short ones where there is no difference.
fn long_frequencies(rope: &RopeConfig) -> Vec<f32> {
    match &rope.scaling {
        RopeScaling::LongRope(long) => divided_frequencies(rope, &long.long_factor),
        _ => inverse_frequencies(rope),
    }
}

fn divided_frequencies(rope: &RopeConfig, divisors: &[f64]) -> Vec<f32> {
    let powers = powers(rope.theta as f32, rope.rotary_dim);
    powers.zip(divisors).map(|(power, divisor)| 1.0 / (*divisor as f32 * power)).collect()
}

/// The factor on every entry of the tables.
fn attention_scaling(rope: &RopeConfig) -> f32 {
    match &rope.scaling {
        RopeScaling::Yarn(yarn) => yarn.attention_factor as f32,
        RopeScaling::LongRope(long) => long.attention_factor as f32,
        _ => 1.0,
    }
}

/// base ^ (2i / dim) for each pair, rounded to f32 once.
fn powers(base: f32, dim: u32) -> impl Iterator<Item = f32> {
    let exponent = move |i: u32| (2 * i) as f32 / dim as f32;
    (0..dim / 2).map(move |i| f64::from(base).powf(f64::from(exponent(i))) as f32)
}

fn plain_frequencies(base: f32, dim: u32) -> Vec<f32> {
    powers(base, dim).map(|power| 1.0 / power).collect()
}

/// The base for a sequence that ends at `position`, if that is beyond the original length. HF
/// computes it from a tensor, hence in f32.
fn dynamic_base(rope: &RopeConfig, position: u32) -> Option<f32> {
    let RopeScaling::Dynamic { factor, max_positions } = rope.scaling else { return None };
    let seq_len = position + 1;
    if seq_len <= max_positions {
        return None;
    }
    let stretch = factor as f32 * seq_len as f32 / max_positions as f32 - (factor - 1.0) as f32;
    let dim = f64::from(rope.rotary_dim);
    let exponent = (dim / (dim - 2.0)) as f32;
    let growth = f64::from(stretch).powf(f64::from(exponent)) as f32;
    Some(rope.theta as f32 * growth)
}

/// The three bands of the llama3 rope type: high frequencies stay, low ones are divided by
/// `factor`, those between are blended.
struct Llama3Bands {
    factor: f32,
    low: f64,
    high: f64,
    positions: f64,
}

impl Llama3Bands {
    fn scale(&self, frequency: f32) -> f32 {
        let wavelength = (2.0 * PI) as f32 / frequency;
        if wavelength > (self.positions / self.low) as f32 {
            return frequency / self.factor;
        }
        if wavelength < (self.positions / self.high) as f32 {
            return frequency;
        }
        let rotations = self.positions as f32 / wavelength;
        let smooth = (rotations - self.low as f32) / (self.high - self.low) as f32;
        (1.0 - smooth) * frequency / self.factor + smooth * frequency
    }
}

/// Interpolated frequencies below, extrapolated ones above, with a linear ramp over the dimensions
/// between `beta_slow` and `beta_fast` rotations.
fn yarn_frequencies(theta: f64, dim: u32, yarn: &Yarn) -> Vec<f32> {
    let (low, high) = yarn_ramp(theta, dim, yarn);
    let blend = |(i, power): (usize, f32)| {
        let ramp = ((i as f32 - low as f32) / (high - low) as f32).clamp(0.0, 1.0);
        let extrapolated = 1.0 - ramp;
        1.0 / (yarn.factor as f32 * power) * (1.0 - extrapolated) + 1.0 / power * extrapolated
    };
    powers(theta as f32, dim).enumerate().map(blend).collect()
}

/// First and last dimension of the ramp; never equal.
fn yarn_ramp(theta: f64, dim: u32, yarn: &Yarn) -> (f64, f64) {
    let positions = f64::from(yarn.original_max_positions);
    let dim = f64::from(dim);
    let dimension =
        |rotations: f64| dim * (positions / (rotations * 2.0 * PI)).ln() / (2.0 * theta.ln());
    let (mut low, mut high) = (dimension(yarn.beta_fast), dimension(yarn.beta_slow));
    if yarn.truncate {
        (low, high) = (low.floor(), high.ceil());
    }
    (low, high) = (low.max(0.0), high.min(dim - 1.0));
    // As in HF: keeps the quotient finite.
    if low == high { (low, high + 0.001) } else { (low, high) }
}
