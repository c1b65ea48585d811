//! The LoRA adapters that events name.

use std::collections::HashMap;
use std::sync::Arc;

use xxhash_rust::xxh3::xxh3_64;

/// An adapter as routers know it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Adapter {
    /// Its place among all, from 1.
    pub number: u32,
    /// What requests call it.
    pub name: String,
}

/// All adapters of a server, by what the device says in their place.
#[derive(Clone, Debug, Default)]
pub struct Adapters(HashMap<u64, Arc<Adapter>>);

impl Adapters {
    /// Adapters of these names, in the order of their numbers.
    pub fn of<'a>(names: impl IntoIterator<Item = &'a str>) -> Adapters {
        let adapter = |(name, number): (&'a str, u32)| {
            (Adapters::hash_of(name), Arc::new(Adapter { number, name: name.to_owned() }))
        };
        Adapters(names.into_iter().zip(1..).map(adapter).collect())
    }

    /// What the device is given for a name, and writes into events; not 0.
    pub fn hash_of(name: &str) -> u64 {
        xxh3_64(name.as_bytes()).max(1)
    }

    /// The adapter of an event. `Err`: none of these.
    pub(crate) fn find(&self, hash: u64) -> Result<Option<Arc<Adapter>>, UnknownAdapter> {
        match hash {
            0 => Ok(None),
            hash => self.0.get(&hash).cloned().map(Some).ok_or(UnknownAdapter),
        }
    }
}

/// The device has an adapter that this process was not told of.
#[derive(Debug)]
pub(crate) struct UnknownAdapter;
