//! Cache of the tokens of repeated texts: system prompts, turns of a chat.
//!
//! Texts between added tokens are encoded independently, so the tokens of one are the same wherever
//! it occurs. That makes every border of an added token an exact place to cut.

use std::collections::HashMap;
use std::hash::{BuildHasher, RandomState};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

/// Shorter texts are encoded faster than they are found.
pub const MIN_TEXT_BYTES: usize = 256;

/// The scope of an entry; two texts share tokens only within one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct Scope {
    /// Which tokenizer of the process.
    pub tokenizer: u64,
    /// What the caller keeps apart, like the salt of a KV cache; 0 is shared.
    pub salt: u64,
    /// Whether the text begins the input.
    pub is_start: bool,
}

struct Entry {
    tokenizer: u64,
    salt: u64,
    is_start: bool,
    text: Box<str>,
    ids: Box<[u32]>,
}

impl Entry {
    fn is_of(&self, scope: Scope, text: &str) -> bool {
        self.tokenizer == scope.tokenizer
            && self.is_start == scope.is_start
            && self.salt == scope.salt
            && *self.text == *text
    }

    /// Bytes of memory, with room for the map's own.
    fn bytes(&self) -> usize {
        const MAP: usize = 56;
        size_of::<Self>() + MAP + self.text.len() + self.ids.len() * 4
    }
}

type Entries = HashMap<u64, Arc<Entry>>;

/// Entries evicted or replaced by a new one; dropped after the lock is released.
#[derive(Default)]
struct Gone {
    generation: Entries,
    same_hash: Option<Arc<Entry>>,
}

/// Two generations: unused entries of the old one are evicted when the young one is full.
#[derive(Default)]
struct Generations {
    young: Entries,
    old: Entries,
    young_bytes: usize,
    old_bytes: usize,
    evictions: u64,
}

/// A bounded cache of the tokens of long texts, shared by threads and tokenizers.
pub struct PromptCache {
    generations: Mutex<Generations>,
    hasher: RandomState,
    max_bytes: usize,
    hits: AtomicU64,
    misses: AtomicU64,
    hit_bytes: AtomicU64,
}

/// What a [`PromptCache`] has done so far. Only texts long enough for the cache count.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct CacheCounters {
    /// Texts found.
    pub hits: u64,
    /// Texts encoded.
    pub misses: u64,
    /// Bytes of the texts found.
    pub hit_bytes: u64,
    /// Texts evicted for others.
    pub evictions: u64,
    /// Bytes held now, at most what the cache was made with.
    pub held_bytes: usize,
}

impl PromptCache {
    /// A cache that never holds more than `max_bytes`.
    pub fn new(max_bytes: usize) -> Self {
        Self {
            generations: Mutex::default(),
            hasher: RandomState::new(),
            max_bytes,
            hits: AtomicU64::new(0),
            misses: AtomicU64::new(0),
            hit_bytes: AtomicU64::new(0),
        }
    }

    /// What it has done so far.
    pub fn counters(&self) -> CacheCounters {
        // SYNC: statistics; no other memory depends on them.
        let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let (hits, misses) = (read(&self.hits), read(&self.misses));
        let hit_bytes = read(&self.hit_bytes);
        self.lock(|generations| CacheCounters {
            hits,
            misses,
            hit_bytes,
            evictions: generations.evictions,
            held_bytes: generations.young_bytes + generations.old_bytes,
        })
    }

    /// Appends the tokens of `text` to `ids`: cached, or from `encode`.
    pub(crate) fn encode(
        &self,
        scope: Scope,
        text: &str,
        ids: &mut Vec<u32>,
        encode: impl FnOnce(&mut Vec<u32>),
    ) {
        let hash = self.hasher.hash_one((scope, text));
        // Compared and copied outside the lock, which a low-priority thread may hold.
        if let Some(entry) = self.find(hash).filter(|entry| entry.is_of(scope, text)) {
            ids.extend_from_slice(&entry.ids);
            // SYNC: statistics, as above.
            self.hits.fetch_add(1, Ordering::Relaxed);
            self.hit_bytes.fetch_add(text.len() as u64, Ordering::Relaxed);
            return;
        }
        // SYNC: statistics, as above.
        self.misses.fetch_add(1, Ordering::Relaxed);
        let first = ids.len();
        encode(ids);
        let entry = Entry {
            tokenizer: scope.tokenizer,
            salt: scope.salt,
            is_start: scope.is_start,
            text: text.into(),
            ids: ids[first..].into(),
        };
        if entry.bytes() <= self.max_bytes / 2 {
            let entry = Arc::new(entry);
            drop(self.lock(|generations| self.put(generations, hash, entry)));
        }
    }

    fn lock<R>(&self, run: impl FnOnce(&mut Generations) -> R) -> R {
        run(&mut self.generations.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// The entry of this hash, which becomes young.
    fn find(&self, hash: u64) -> Option<Arc<Entry>> {
        let (entry, gone) = self.lock(|generations| {
            if let Some(entry) = generations.young.get(&hash) {
                return (Some(entry.clone()), Gone::default());
            }
            let Some(entry) = generations.old.remove(&hash) else {
                return (None, Gone::default());
            };
            generations.old_bytes -= entry.bytes();
            let gone = self.put(generations, hash, entry.clone());
            (Some(entry), gone)
        });
        drop(gone);
        entry
    }

    fn put(&self, generations: &mut Generations, hash: u64, entry: Arc<Entry>) -> Gone {
        let (bytes, mut gone) = (entry.bytes(), Gone::default());
        if generations.young_bytes + bytes > self.max_bytes / 2 {
            generations.evictions += generations.old.len() as u64;
            let young = std::mem::take(&mut generations.young);
            gone.generation = std::mem::replace(&mut generations.old, young);
            generations.old_bytes = std::mem::take(&mut generations.young_bytes);
        }
        generations.young_bytes += bytes;
        gone.same_hash = generations.young.insert(hash, entry);
        generations.young_bytes -= gone.same_hash.as_ref().map_or(0, |entry| entry.bytes());
        gone
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ask(cache: &PromptCache, salt: u64, text: &str) -> (Vec<u32>, bool) {
        let (mut ids, mut is_new) = (vec![7], false);
        let scope = Scope { tokenizer: 1, salt, is_start: false };
        cache.encode(scope, text, &mut ids, |ids| {
            is_new = true;
            ids.extend(text.bytes().map(u32::from));
        });
        (ids, is_new)
    }

    #[test]
    fn texts_are_found_again_within_their_salt_only() {
        let cache = PromptCache::new(1 << 20);
        let text = "x".repeat(300);
        let (ids, is_new) = ask(&cache, 1, &text);
        assert!(is_new && ids.len() == 301);
        assert_eq!(ask(&cache, 1, &text), (ids, false));
        assert!(ask(&cache, 2, &text).1);
        let counters = cache.counters();
        assert_eq!((counters.hits, counters.misses, counters.hit_bytes), (1, 2, 300));
        assert_eq!(counters.evictions, 0);
    }

    #[test]
    fn what_is_used_stays_and_the_rest_goes() {
        let cache = PromptCache::new(100_000);
        let text = |i: usize| format!("{i:0300}");
        ask(&cache, 0, &text(0));
        for i in 1..500 {
            ask(&cache, 0, &text(i));
            assert!(!ask(&cache, 0, &text(0)).1, "in use after {i} others");
            let held = cache.lock(|g| {
                g.young.values().chain(g.old.values()).map(|entry| entry.bytes()).sum::<usize>()
            });
            assert!(held <= 100_000, "{held} bytes");
            assert_eq!(cache.counters().held_bytes, held);
        }
        assert!(cache.counters().evictions > 100);
        assert!(ask(&cache, 0, &text(1)).1);
    }
}
