//! The tables that come with the binary: measured curves and prices.

use std::path::Path;

use anyhow::{Context, Result, ensure};
use serde::{Deserialize, Serialize};

const CURVES: &str = include_str!("curves.toml");
const PRICES: &str = include_str!("prices.toml");
/// Bytes of a user's price table.
const MAX_PRICES_BYTES: u64 = 1 << 20;

/// What was measured elsewhere where the same thing was wrong.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Curve {
    /// Findings that it belongs to.
    #[serde(skip_serializing)]
    pub finding: Vec<String>,
    /// GPUs below which it does not apply: it was measured on servers of several.
    #[serde(skip_serializing)]
    pub min_gpus: usize,
    /// In words.
    pub text: String,
    /// Least factor.
    pub low: Option<f64>,
    /// Largest factor.
    pub high: Option<f64>,
    /// Factor of what.
    pub of: String,
    /// Where it was measured, and on what.
    pub source: String,
}

#[derive(Deserialize)]
struct Curves {
    curve: Vec<Curve>,
}

/// What was measured for a finding on servers like one that drives this many GPUs, in the order of
/// the table.
///
/// # Errors
/// The table of this build is malformed (a test reads it).
pub fn curves(finding: &str, gpus: usize) -> Result<Vec<Curve>> {
    let table: Curves = toml::from_str(CURVES).context("curves.toml")?;
    let fits =
        |curve: &Curve| gpus >= curve.min_gpus && curve.finding.iter().any(|name| name == finding);
    Ok(table.curve.into_iter().filter(fits).collect())
}

/// A price table.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Prices {
    /// Of a core.
    pub core: CorePrice,
    /// Of GPUs, by name.
    #[serde(default)]
    pub gpu: Vec<GpuPrice>,
}

/// US dollars per hour of one core, from .. to.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CorePrice {
    /// From.
    pub low: f64,
    /// To.
    pub high: f64,
    /// Source.
    pub source: String,
    /// Its date.
    pub date: Option<String>,
}

/// US dollars per hour of one GPU.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct GpuPrice {
    /// Part of its name.
    pub model: String,
    /// US dollars per hour.
    pub price: f64,
    /// Source.
    pub source: String,
    /// Its date.
    pub date: Option<String>,
}

impl Prices {
    /// The user's table, or the one of this build, with the user's single prices put in.
    ///
    /// # Errors
    /// The file is unreadable, or a price is not a positive number.
    pub fn load(file: Option<&Path>, core: Option<f64>, gpu: Option<f64>) -> Result<Prices> {
        let mut prices: Prices = match file {
            None => toml::from_str(PRICES).context("prices.toml")?,
            Some(path) => read(path).with_context(|| format!("--prices {}", path.display()))?,
        };
        if let Some(price) = core {
            let source = "--price-core".to_owned();
            prices.core = CorePrice { low: price, high: price, source, date: None };
        }
        if let Some(price) = gpu {
            let source = "--price-gpu".to_owned();
            prices.gpu = vec![GpuPrice { model: String::new(), price, source, date: None }];
        }
        prices.check()?;
        Ok(prices)
    }

    /// The price of a GPU by its name.
    pub fn gpu(&self, model: &str) -> Option<&GpuPrice> {
        let model = model.to_lowercase();
        self.gpu.iter().find(|gpu| model.contains(&gpu.model.to_lowercase()))
    }

    fn check(&self) -> Result<()> {
        let positive = |name: &str, price: f64| {
            ensure!(price.is_finite() && price > 0.0, "{name} is {price}: not a price above zero");
            Ok(())
        };
        positive("core.low", self.core.low)?;
        positive("core.high", self.core.high)?;
        ensure!(self.core.low <= self.core.high, "core.low is above core.high");
        self.gpu
            .iter()
            .try_for_each(|gpu| positive(&format!("price of {:?}", gpu.model), gpu.price))
    }
}

fn read(path: &Path) -> Result<Prices> {
    let bytes = std::fs::metadata(path)?.len();
    ensure!(bytes <= MAX_PRICES_BYTES, "{bytes} bytes, more than {MAX_PRICES_BYTES}");
    Ok(toml::from_str(&std::fs::read_to_string(path)?)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_tables_of_this_build_are_well_formed() {
        assert!(!curves("throttled", 2).unwrap().is_empty());
        assert!(curves("throttled", 1).unwrap().is_empty(), "measured on ranks that wait");
        assert!(curves("no such finding", 8).unwrap().is_empty());
        let prices = Prices::load(None, None, None).unwrap();
        assert_eq!(prices.gpu("NVIDIA H100 80GB HBM3").unwrap().price, 6.88);
        assert!(prices.gpu("NVIDIA H200").is_none(), "no price is better than a guessed one");
    }

    #[test]
    fn users_prices_hold() {
        let prices = Prices::load(None, Some(0.1), Some(2.0)).unwrap();
        assert_eq!((prices.core.low, prices.core.high), (0.1, 0.1));
        assert_eq!(prices.gpu("NVIDIA H200").unwrap().price, 2.0);
        let error = Prices::load(None, Some(-1.0), None).unwrap_err().to_string();
        assert!(error.contains("core.low"), "{error}");
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("p.toml");
        std::fs::write(&path, "[core]\nlow=1\nhigh=2.0\nsource='x'\n[[gpu]]\nmodel='H200'\n")
            .unwrap();
        let error = format!("{:#}", Prices::load(Some(&path), None, None).unwrap_err());
        assert!(error.contains("price"), "{error}");
    }
}
