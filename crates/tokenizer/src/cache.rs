//! Tokens of texts that come again and again: system prompts, turns of a chat.
//!
//! Texts between added tokens are encoded without looking at each other, so the tokens of one are
//! the same wherever it stands. That makes every border of an added token an exact place to cut.

use std::collections::HashMap;
use std::hash::{BuildHasher, RandomState};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

/// Shorter texts are encoded faster than they are found.
pub const MIN_TEXT_BYTES: usize = 256;

/// Where an entry belongs to; two texts share tokens only within one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct Scope<'a> {
    /// Which tokenizer of the process.
    pub tokenizer: u64,
    /// What the caller keeps apart, as the salt of a KV cache does.
    pub salt: &'a str,
    /// Whether the text begins the input.
    pub is_start: bool,
}

struct Entry {
    tokenizer: u64,
    salt: Box<str>,
    is_start: bool,
    text: Box<str>,
    ids: Box<[u32]>,
}

impl Entry {
    fn is_of(&self, scope: Scope<'_>, text: &str) -> bool {
        self.tokenizer == scope.tokenizer
            && self.is_start == scope.is_start
            && *self.salt == *scope.salt
            && *self.text == *text
    }

    /// Bytes of memory, with room for the map's own.
    fn bytes(&self) -> usize {
        const MAP: usize = 32;
        size_of::<Self>() + MAP + self.salt.len() + self.text.len() + self.ids.len() * 4
    }
}

/// Two generations: what the old one holds and nobody asks for goes when the young one is full.
#[derive(Default)]
struct Generations {
    young: HashMap<u64, Entry>,
    old: HashMap<u64, Entry>,
    young_bytes: usize,
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
        CacheCounters { hits, misses, hit_bytes: read(&self.hit_bytes) }
    }

    /// Appends the tokens of `text` to `ids`: found, or from `encode`.
    pub(crate) fn encode(
        &self,
        scope: Scope<'_>,
        text: &str,
        ids: &mut Vec<u32>,
        encode: impl FnOnce(&mut Vec<u32>),
    ) {
        let hash = self.hasher.hash_one((scope, text));
        if self.find(hash, scope, text, ids) {
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
            salt: scope.salt.into(),
            is_start: scope.is_start,
            text: text.into(),
            ids: ids[first..].into(),
        };
        if entry.bytes() <= self.max_bytes / 2 {
            self.lock(|generations| self.put(generations, hash, entry));
        }
    }

    fn lock<R>(&self, run: impl FnOnce(&mut Generations) -> R) -> R {
        run(&mut self.generations.lock().unwrap_or_else(PoisonError::into_inner))
    }

    fn find(&self, hash: u64, scope: Scope<'_>, text: &str, ids: &mut Vec<u32>) -> bool {
        self.lock(|generations| {
            if let Some(entry) = generations.young.get(&hash) {
                let found = entry.is_of(scope, text);
                ids.extend_from_slice(if found { &entry.ids } else { &[] });
                return found;
            }
            let Some(entry) = generations.old.remove(&hash) else { return false };
            let found = entry.is_of(scope, text);
            ids.extend_from_slice(if found { &entry.ids } else { &[] });
            self.put(generations, hash, entry);
            found
        })
    }

    fn put(&self, generations: &mut Generations, hash: u64, entry: Entry) {
        let bytes = entry.bytes();
        if generations.young_bytes + bytes > self.max_bytes / 2 {
            generations.old = std::mem::take(&mut generations.young);
            generations.young_bytes = 0;
        }
        generations.young_bytes += bytes;
        if let Some(gone) = generations.young.insert(hash, entry) {
            generations.young_bytes -= gone.bytes();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ask(cache: &PromptCache, salt: &str, text: &str) -> (Vec<u32>, bool) {
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
        let (ids, is_new) = ask(&cache, "a", &text);
        assert!(is_new && ids.len() == 301);
        assert_eq!(ask(&cache, "a", &text), (ids, false));
        assert!(ask(&cache, "b", &text).1);
        assert_eq!(cache.counters(), CacheCounters { hits: 1, misses: 2, hit_bytes: 300 });
    }

    #[test]
    fn what_is_used_stays_and_the_rest_goes() {
        let cache = PromptCache::new(100_000);
        let text = |i: usize| format!("{i:0300}");
        ask(&cache, "", &text(0));
        for i in 1..500 {
            ask(&cache, "", &text(i));
            assert!(!ask(&cache, "", &text(0)).1, "in use after {i} others");
            let held = cache
                .lock(|g| g.young.values().chain(g.old.values()).map(Entry::bytes).sum::<usize>());
            assert!(held <= 100_000, "{held} bytes");
        }
        assert!(ask(&cache, "", &text(1)).1);
    }
}
