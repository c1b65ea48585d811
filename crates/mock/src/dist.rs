//! Distributions by name: `constant:20ms`, `uniform:10ms,30ms`, `lognormal:20ms,0.5` (median and
//! the sigma of the logarithm), `bimodal:10ms,200ms,0.05` (the share of the second value),
//! `list:10ms,20ms,30ms` (in turn, from the start again at the end).

use rand::{Rng, RngExt};
use rand_distr::{Distribution, LogNormal};
use serde::Deserialize;

/// A distribution of non-negative numbers.
#[derive(Debug, Clone, PartialEq)]
enum Dist {
    Constant(f64),
    Uniform { low: f64, high: f64 },
    LogNormal { median: f64, sigma: f64 },
    Bimodal { first: f64, second: f64, second_share: f64 },
    List(Vec<f64>),
}

impl Dist {
    /// A value; the `turn`-th, where values come in turn.
    fn draw(&self, turn: usize, rng: &mut impl Rng) -> f64 {
        match self {
            Self::Constant(value) => *value,
            Self::Uniform { low, high } => rng.random_range(*low..=*high),
            Self::LogNormal { median, sigma } => match LogNormal::new(median.ln(), *sigma) {
                Ok(distribution) => distribution.sample(rng),
                Err(_) => *median,
            },
            Self::Bimodal { first, second, second_share } => {
                if rng.random_bool(*second_share) {
                    *second
                } else {
                    *first
                }
            }
            Self::List(values) => values[turn % values.len()],
        }
    }

    fn parse(text: &str, number: fn(&str) -> Result<f64, String>) -> Result<Self, String> {
        let (name, rest) = text.split_once(':').unwrap_or(("constant", text));
        let parts: Vec<&str> = rest.split(',').map(str::trim).collect();
        match (name, parts.as_slice()) {
            ("constant", [value]) => Ok(Self::Constant(number(value)?)),
            ("uniform", [low, high]) => Self::uniform(number(low)?, number(high)?),
            ("lognormal", [median, sigma]) => Self::lognormal(number(median)?, plain(sigma)?),
            ("bimodal", [first, second, share]) => {
                Self::bimodal(number(first)?, number(second)?, plain(share)?)
            }
            ("list", values) => {
                Ok(Self::List(values.iter().map(|v| number(v)).collect::<Result<_, _>>()?))
            }
            _ => Err(format!(
                "{text:?} is none of constant:A, uniform:LOW,HIGH, lognormal:MEDIAN,SIGMA, \
                 bimodal:A,B,SHARE_OF_B, list:A,B,..."
            )),
        }
    }

    fn uniform(low: f64, high: f64) -> Result<Self, String> {
        if low > high {
            return Err(format!("uniform: low {low} is above high {high}"));
        }
        Ok(Self::Uniform { low, high })
    }

    fn lognormal(median: f64, sigma: f64) -> Result<Self, String> {
        if median <= 0.0 || sigma > 5.0 {
            return Err("lognormal: the median is above 0 and sigma is at most 5".to_owned());
        }
        Ok(Self::LogNormal { median, sigma })
    }

    fn bimodal(first: f64, second: f64, second_share: f64) -> Result<Self, String> {
        if second_share > 1.0 {
            return Err(format!("bimodal: the share {second_share} is above 1"));
        }
        Ok(Self::Bimodal { first, second, second_share })
    }
}

fn plain(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(value) if value.is_finite() && value >= 0.0 => Ok(value),
        _ => Err(format!("{text:?} is not a number of at least 0")),
    }
}

fn seconds(text: &str) -> Result<f64, String> {
    let units = [("us", 1e-6), ("ms", 1e-3), ("s", 1.0)];
    let Some((digits, scale)) =
        units.iter().find_map(|(unit, scale)| Some((text.strip_suffix(unit)?, scale)))
    else {
        return Err(format!("{text:?} has no unit: us, ms or s"));
    };
    Ok(plain(digits)? * scale)
}

/// A distribution of delays, written with units. Drawn in seconds, at most an hour.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(try_from = "String")]
pub struct Delay(Dist);

impl Delay {
    const MAX_S: f64 = 3600.0;

    /// A delay in seconds; the `turn`-th, where values come in turn.
    pub fn draw(&self, turn: usize, rng: &mut impl Rng) -> f64 {
        self.0.draw(turn, rng).min(Self::MAX_S)
    }

    /// Always the same.
    pub fn constant(seconds: f64) -> Self {
        Self(Dist::Constant(seconds))
    }
}

impl TryFrom<String> for Delay {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        text.parse()
    }
}

impl std::str::FromStr for Delay {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        Dist::parse(text, seconds).map(Self)
    }
}

/// A distribution of counts, written without unit. Drawn rounded, at least 1.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(try_from = "String")]
pub struct Count(Dist);

impl Count {
    /// A count; the `turn`-th, where values come in turn.
    pub fn draw(&self, turn: usize, rng: &mut impl Rng) -> usize {
        self.0.draw(turn, rng).round().max(1.0) as usize
    }

    /// Always the same.
    pub fn constant(count: usize) -> Self {
        Self(Dist::Constant(count as f64))
    }
}

impl TryFrom<String> for Count {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        text.parse()
    }
}

impl std::str::FromStr for Count {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        Dist::parse(text, plain).map(Self)
    }
}
