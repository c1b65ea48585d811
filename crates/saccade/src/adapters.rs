//! The adapters of --lora-modules, read for the device plane.

use anyhow::Context;
use saccade_device::{AdapterLimits, Device};
use saccade_events::Adapters as NamedAdapters;
use saccade_model::{Adapter, ModelConfig, OpenOptions};
use xxhash_rust::xxh3::{Xxh3, xxh3_64};

use crate::cli::ServeArgs;

/// Adapter i + 1 of the device is the i-th of the flags.
pub(crate) struct Adapters(Vec<(String, Adapter)>);

/// What the device makes room for.
pub(crate) fn limits(args: &ServeArgs) -> AdapterLimits {
    match args.lora.lora_modules.len() {
        0 => AdapterLimits::default(),
        // The device refuses more than it has numbers for.
        count => AdapterLimits { num_adapters: count as u32, max_rank: args.lora.max_lora_rank },
    }
}

impl Adapters {
    /// Reads all of them, and checks them against the model.
    pub fn open(args: &ServeArgs, model: &ModelConfig) -> anyhow::Result<Self> {
        let open = |path: &str| {
            let root = Adapter::locate(path, &OpenOptions::default())?;
            Adapter::open(&root, model, args.lora.max_lora_rank)
        };
        let modules = args.lora.lora_modules.iter();
        let adapters = modules
            .map(|m| {
                let adapter = open(&m.path);
                let adapter = adapter.with_context(|| format!("adapter {} at {}", m.name, m.path));
                Ok((m.name.clone(), adapter?))
            })
            .collect::<anyhow::Result<Vec<_>>>()?;
        Ok(Self(adapters))
    }

    /// Of any of their matrices; 0 without adapters, each of which has a matrix.
    pub fn max_rank(&self) -> u32 {
        let pairs = self.0.iter().flat_map(|(_, adapter)| adapter.iter());
        pairs.map(|pair| pair.rank).max().unwrap_or(0)
    }

    /// Gives them to a device, each with its key and its name.
    pub fn load(&self, device: &mut Device) -> anyhow::Result<()> {
        for ((name, adapter), number) in self.0.iter().zip(1..) {
            device.load_adapter(number, adapter)?;
            device.set_adapter(number, key_of(adapter), NamedAdapters::hash_of(name))?;
        }
        if !self.0.is_empty() {
            tracing::info!(count = self.0.len(), "adapters loaded");
        }
        Ok(())
    }
}

/// Tells the KV of an adapter from all other, on any host.
fn key_of(adapter: &Adapter) -> u64 {
    let mut hash = Xxh3::new();
    adapter.read_all(|bytes| hash.update(bytes));
    not_zero(hash.digest())
}

/// Keys and names for a device that computes nothing: what is at the paths is not read.
pub(crate) fn set_keys(args: &ServeArgs, device: &mut Device) -> anyhow::Result<()> {
    for (module, number) in args.lora.lora_modules.iter().zip(1..) {
        let key = not_zero(xxh3_64(module.path.as_bytes()));
        device.set_adapter(number, key, NamedAdapters::hash_of(&module.name))?;
    }
    Ok(())
}

/// 0 is no key.
fn not_zero(hash: u64) -> u64 {
    hash.max(1)
}
