//! A bounded number of the entries of a listing, drawn at random.

use std::collections::{BTreeMap, btree_map};
use std::hash::{BuildHasher, RandomState};

use saccade_store::Entry;

/// Entries in the order of `rank`, the last of which leave where there are too many. An entry that
/// is told twice is kept once.
#[derive(Debug, Clone)]
pub(crate) struct Sample {
    max: usize,
    seed: u64,
    kept: BTreeMap<Rank, Entry>,
    left_out: bool,
}

/// Names are hashes: their distance from a random number is as good as a random number.
type Rank = (u64, [u8; 32], u64, [u8; 32]);

impl Sample {
    pub(crate) fn new(max: usize) -> Self {
        let seed = RandomState::new().hash_one(());
        Self { max, seed, kept: BTreeMap::new(), left_out: false }
    }

    pub(crate) fn add(&mut self, entry: Entry) {
        let key = &entry.key;
        let first = key.name.bytes().first_chunk().map_or(0, |bytes| u64::from_be_bytes(*bytes));
        let rank = (first ^ self.seed, *key.model.bytes(), key.salt, *key.name.bytes());
        match self.kept.entry(rank) {
            btree_map::Entry::Occupied(_) => return,
            btree_map::Entry::Vacant(place) => drop(place.insert(entry)),
        }
        if self.kept.len() > self.max {
            self.kept.pop_last();
            self.left_out = true;
        }
    }

    /// Whether there were more.
    pub(crate) fn left_out(&self) -> bool {
        self.left_out
    }

    pub(crate) fn into_entries(self) -> Vec<Entry> {
        self.kept.into_values().collect()
    }
}

#[cfg(test)]
mod tests {
    use saccade_chunk::{ModelId, Name};
    use saccade_store::Key;

    use super::*;

    fn entry(n: u8) -> Entry {
        let model = ModelId::from_bytes([1; 32]);
        let name = Name::root(&model, &[n]);
        Entry { key: Key { model, salt: 0, name }, bytes: u64::from(n), age: None }
    }

    #[test]
    fn it_keeps_as_many_as_it_may_of_all_and_each_once() {
        let mut seen = std::collections::HashSet::new();
        for _ in 0..200 {
            let mut sample = Sample::new(3);
            (0..10).chain(0..10).for_each(|n| sample.add(entry(n)));
            assert!(sample.left_out());
            let entries = sample.into_entries();
            assert_eq!(entries.len(), 3);
            seen.extend(entries.iter().map(|entry| entry.bytes));
        }
        assert_eq!(seen.len(), 10, "some are never drawn");
        let mut all = Sample::new(10);
        (0..10).chain(0..10).for_each(|n| all.add(entry(n)));
        assert!(!all.left_out());
        assert_eq!(all.into_entries().len(), 10);
    }
}
