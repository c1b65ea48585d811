//! What every test of a store needs.

#![allow(dead_code, clippy::unwrap_used)] // each test file uses a part

use std::ops::ControlFlow;

use bytes::Bytes;
use saccade_store::testing::{Dice, S3Server};
use saccade_store::{Entry, Filter, Found, Key, ModelId, Name, Store, Trouble};

pub const MAX_BYTES: usize = 1 << 20;

pub fn open(url: &str) -> Store {
    let parsed = url.parse().unwrap_or_else(|error| panic!("{url}: {error}"));
    Store::open_with(&parsed, S3Server::variables()).unwrap_or_else(|e| panic!("{url}: {e}"))
}

/// Keys of one model and salt.
pub fn keys(seed: u64, count: usize) -> Vec<Key> {
    let mut dice = Dice::new(seed);
    let mut bytes = || std::array::from_fn(|_| dice.next() as u8);
    let model = ModelId::from_bytes(bytes());
    let name = |_| Key { model, salt: 7, name: Name::from_bytes(bytes()) };
    (0..count).map(name).collect()
}

pub fn value(seed: u64, count: usize) -> Bytes {
    Dice::new(seed).bytes(count).into()
}

pub async fn get_all(store: &Store, keys: &[Key], max_bytes: usize) -> Vec<Found> {
    let mut all = Vec::new();
    let told = store.get_many(keys, max_bytes, |index, found| {
        assert_eq!(index, all.len(), "in order");
        all.push(found);
        ControlFlow::Continue(())
    });
    told.await.unwrap();
    all
}

/// Entries in the order of their keys, and how many things were foreign.
pub async fn list(store: &Store, filter: &Filter) -> Result<(Vec<Entry>, u64), Trouble> {
    let mut entries = Vec::new();
    let listing = store.list(filter, |entry| {
        entries.push(entry);
        ControlFlow::Continue(())
    });
    let listing = listing.await?;
    assert_eq!(listing.told, entries.len() as u64);
    entries.sort_by_key(|entry| *entry.key.name.bytes());
    entries.dedup_by_key(|entry| entry.key);
    Ok((entries, listing.foreign))
}
