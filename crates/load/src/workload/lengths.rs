//! Distributions of lengths in tokens.

use rand::{RngExt, SeedableRng};
use rand_distr::Distribution as _;
use rand_pcg::Pcg64;
use serde::{Deserialize, Serialize};

use crate::LoadError;

/// Longest prompt or output that can be asked for.
pub(crate) const MAX_TOKENS: u32 = 16 * 1024 * 1024;

/// How lengths are drawn.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(tag = "distribution", rename_all = "snake_case")]
pub enum Lengths {
    /// Always this.
    Fixed {
        /// Tokens.
        tokens: u32,
    },
    /// Evenly between two bounds, both included.
    Uniform {
        /// Least.
        min: u32,
        /// Greatest.
        max: u32,
    },
    /// Normal, rounded, drawn into the bounds.
    Normal {
        /// Mean in tokens.
        mean: f64,
        /// Standard deviation in tokens.
        std: f64,
        /// Least.
        min: u32,
        /// Greatest.
        max: u32,
    },
    /// Log-normal, as lengths of real conversations nearly are; mean and deviation are those of
    /// the tokens, not of their logarithm.
    LogNormal {
        /// Mean in tokens.
        mean: f64,
        /// Standard deviation in tokens.
        std: f64,
        /// Least.
        min: u32,
        /// Greatest.
        max: u32,
    },
}

impl Lengths {
    pub(crate) fn validate(&self, field: &'static str) -> Result<(), LoadError> {
        let (min, max) = self.bounds();
        if min == 0 || max > MAX_TOKENS || min > max {
            let problem = format!("{min} to {max} tokens must lie in 1..={MAX_TOKENS}, in order");
            return Err(LoadError::spec(field, problem));
        }
        match *self {
            Lengths::Normal { mean, std, .. } | Lengths::LogNormal { mean, std, .. } => {
                let fits = mean > 0.0 && mean <= f64::from(MAX_TOKENS);
                if fits && std >= 0.0 && std <= f64::from(MAX_TOKENS) {
                    return Ok(());
                }
                let bounds = format!("(0, {MAX_TOKENS}] tokens");
                Err(LoadError::spec(field, format!("mean and deviation must lie in {bounds}")))
            }
            _ => Ok(()),
        }
    }

    fn bounds(&self) -> (u32, u32) {
        match *self {
            Lengths::Fixed { tokens } => (tokens, tokens),
            Lengths::Uniform { min, max }
            | Lengths::Normal { min, max, .. }
            | Lengths::LogNormal { min, max, .. } => (min, max),
        }
    }

    /// `count` lengths, for planning without sending.
    ///
    /// # Errors
    /// If a parameter is out of bounds; `field` names the lengths.
    pub fn draw(
        &self,
        field: &'static str,
        count: usize,
        seed: u64,
    ) -> Result<Vec<u32>, LoadError> {
        self.validate(field)?;
        let mut rng = Pcg64::seed_from_u64(seed);
        Ok((0..count).map(|_| self.sample(&mut rng)).collect())
    }

    pub(crate) fn sample(&self, rng: &mut Pcg64) -> u32 {
        let (min, max) = self.bounds();
        let drawn = match *self {
            Lengths::Fixed { tokens } => return tokens,
            Lengths::Uniform { min, max } => return rng.random_range(min..=max),
            Lengths::Normal { mean, std, .. } => {
                rand_distr::Normal::new(mean, std).map(|d| d.sample(rng))
            }
            Lengths::LogNormal { mean, std, .. } => {
                let variance = (std / mean).powi(2).ln_1p();
                let mu = mean.ln() - variance / 2.0;
                rand_distr::Normal::new(mu, variance.sqrt()).map(|d| d.sample(rng).exp())
            }
        };
        // Validated parameters do not fail; a float-to-integer cast saturates.
        drawn.map_or(min, |tokens| (tokens.round() as u32).clamp(min, max))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn draws(lengths: Lengths, n: usize) -> Vec<f64> {
        let mut rng = Pcg64::seed_from_u64(11);
        (0..n).map(|_| f64::from(lengths.sample(&mut rng))).collect()
    }

    #[test]
    fn mean_and_deviation_are_those_of_the_tokens() {
        let (mean, std, min, max) = (400.0, 120.0, 1, 100_000);
        let both =
            [Lengths::Normal { mean, std, min, max }, Lengths::LogNormal { mean, std, min, max }];
        for lengths in both {
            let d = crate::Distribution::of(draws(lengths, 50_000));
            assert!((d.mean - mean).abs() < 4.0, "{lengths:?}: mean {}", d.mean);
            assert!((d.std - std).abs() < 4.0, "{lengths:?}: deviation {}", d.std);
        }
        let uniform = crate::Distribution::of(draws(Lengths::Uniform { min: 10, max: 20 }, 10_000));
        assert_eq!((uniform.min, uniform.max), (10.0, 20.0));
    }

    #[test]
    fn bounds_are_named() {
        let bad = [
            Lengths::Fixed { tokens: 0 },
            Lengths::Uniform { min: 5, max: 4 },
            Lengths::Normal { mean: f64::NAN, std: 1.0, min: 1, max: 2 },
            Lengths::LogNormal { mean: 0.0, std: 1.0, min: 1, max: 2 },
            Lengths::Fixed { tokens: MAX_TOKENS + 1 },
        ];
        for lengths in bad {
            let error = lengths.validate("input length").expect_err("out of bounds").to_string();
            assert!(error.starts_with("input length"), "{error}");
        }
    }

    proptest! {
        #[test]
        fn draws_stay_within_their_bounds(
            seed: u64, mean in 1.0f64..1e6, std in 0.0f64..1e6, min in 1u32..1000,
            more in 0u32..1000,
        ) {
            let max = min + more;
            let mut rng = Pcg64::seed_from_u64(seed);
            let both = [
                Lengths::Normal { mean, std, min, max },
                Lengths::LogNormal { mean, std, min, max },
            ];
            for lengths in both {
                prop_assert!(lengths.validate("x").is_ok());
                let n = lengths.sample(&mut rng);
                prop_assert!((min..=max).contains(&n));
            }
        }
    }
}
