//! A store in this process: the default, and what others are compared with.

use std::collections::{BTreeMap, HashMap};
use std::ops::ControlFlow;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytes::Bytes;
use tokio::time::Instant;

use crate::url::Common;
use crate::{Entry, Filter, Found, Key, Listing, Put, Trouble};

/// What an entry costs beside its value: key, place in both maps.
const ENTRY_BYTES: u64 = 256;
/// Keys that a listing copies at a time.
const PAGE: usize = 1024;

#[derive(Clone)]
pub(crate) struct Memory {
    common: Common,
    max_bytes: u64,
    shelf: Arc<Mutex<Shelf>>,
}

impl std::fmt::Debug for Memory {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Memory").field("max_bytes", &self.max_bytes).finish_non_exhaustive()
    }
}

/// Values by key, and keys by when they were last used.
#[derive(Default)]
struct Shelf {
    values: HashMap<Key, Kept>,
    by_use: BTreeMap<u64, Key>,
    uses: u64,
    bytes: u64,
}

struct Kept {
    value: Bytes,
    since: Instant,
    used: u64,
}

impl Shelf {
    fn remove(&mut self, key: &Key) {
        if let Some(kept) = self.values.remove(key) {
            self.by_use.remove(&kept.used);
            self.bytes -= cost(&kept.value);
        }
    }

    fn touch(&mut self, key: &Key) -> Option<Bytes> {
        let kept = self.values.get_mut(key)?;
        self.uses += 1;
        self.by_use.remove(&kept.used);
        kept.used = self.uses;
        self.by_use.insert(self.uses, *key);
        Some(kept.value.clone())
    }

    fn insert(&mut self, key: Key, value: Bytes) {
        self.uses += 1;
        self.bytes += cost(&value);
        self.by_use.insert(self.uses, key);
        self.values.insert(key, Kept { value, since: Instant::now(), used: self.uses });
    }

    fn make_room(&mut self, bytes: u64, max_bytes: u64) {
        while self.bytes + bytes > max_bytes
            && let Some((_, oldest)) = self.by_use.first_key_value()
        {
            let oldest = *oldest;
            self.remove(&oldest);
        }
    }
}

fn cost(value: &Bytes) -> u64 {
    value.len() as u64 + ENTRY_BYTES
}

impl Memory {
    pub(crate) fn new(max_bytes: u64, common: Common) -> Self {
        Self { common, max_bytes, shelf: Arc::default() }
    }

    fn shelf(&self) -> MutexGuard<'_, Shelf> {
        self.shelf.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The value, unless it has expired: then it is removed.
    fn take(&self, key: &Key) -> Option<Bytes> {
        let mut shelf = self.shelf();
        let since = shelf.values.get(key)?.since;
        if self.common.ttl.is_some_and(|ttl| since.elapsed() >= ttl) {
            shelf.remove(key);
            return None;
        }
        shelf.touch(key)
    }

    pub(crate) async fn exist(&self, keys: &[Key]) -> Result<Vec<bool>, Trouble> {
        Ok(keys.iter().map(|key| self.take(key).is_some()).collect())
    }

    pub(crate) async fn get_many(
        &self,
        keys: &[Key],
        max_bytes: usize,
        mut tell: impl FnMut(usize, Found) -> ControlFlow<()>,
    ) -> Result<(), Trouble> {
        for (index, key) in keys.iter().enumerate() {
            let found = match self.take(key) {
                Some(value) if value.len() > max_bytes => Found::TooLarge,
                Some(value) => Found::Value(value),
                None => Found::Absent,
            };
            if tell(index, found).is_break() {
                break;
            }
        }
        Ok(())
    }

    pub(crate) async fn put(&self, key: &Key, value: Bytes) -> Result<Put, Trouble> {
        if cost(&value) > self.max_bytes {
            return Ok(Put::Full);
        }
        if self.take(key).is_some() {
            return Ok(Put::Already);
        }
        let mut shelf = self.shelf();
        // Another may have stored it between the two locks.
        shelf.remove(key);
        shelf.make_room(cost(&value), self.max_bytes);
        shelf.insert(*key, value);
        Ok(Put::Stored)
    }

    pub(crate) async fn remove(&self, keys: &[Key]) -> Result<(), Trouble> {
        let mut shelf = self.shelf();
        keys.iter().for_each(|key| shelf.remove(key));
        Ok(())
    }

    pub(crate) async fn list(
        &self,
        filter: &Filter,
        mut tell: impl FnMut(Entry) -> ControlFlow<()>,
    ) -> Result<Listing, Trouble> {
        let mut listing = Listing::default();
        let mut after = 0;
        loop {
            // By use, so that a page begins where the last one ended.
            let page: Vec<(u64, Entry)> = self.page(after);
            let Some((last, _)) = page.last() else { return Ok(listing) };
            after = *last;
            let wanted = |entry: &Entry| {
                let expired = self.common.ttl.zip(entry.age).is_some_and(|(ttl, age)| age >= ttl);
                filter.takes(&entry.key) && !expired
            };
            for (_, entry) in page.into_iter().filter(|(_, entry)| wanted(entry)) {
                if listing.tell(entry, &mut tell).is_break() {
                    return Ok(listing);
                }
            }
        }
    }

    fn page(&self, after: u64) -> Vec<(u64, Entry)> {
        let shelf = self.shelf();
        let entry = |(used, key): (&u64, &Key)| {
            let kept = shelf.values.get(key)?;
            let bytes = kept.value.len() as u64;
            Some((*used, Entry { key: *key, bytes, age: Some(kept.since.elapsed()) }))
        };
        shelf.by_use.range(after + 1..).filter_map(entry).take(PAGE).collect()
    }
}
