//! What the plane needs of a store, and nothing else: the one seam to it.

use std::future::Future;
use std::pin::Pin;

use bytes::Bytes;
use saccade_chunk::{ModelId, Name};

use crate::layout::*;

/// Keys of one look-up, at most.
pub const MAX_KEYS: usize = 16_384;

/// A chunk in a store.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Key {
    /// That computed it.
    pub model: ModelId,
    /// Who may share it.
    pub salt: u64,
    /// Of the chunk.
    pub name: Name,
}

/// What a put did.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Put {
    /// The value is in the store.
    Stored,
    /// One was there, and stays.
    Already,
    /// The store has no room for it.
    Full,
}

/// How a store failed, as completions say it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Trouble {
    /// No connection, or it was lost.
    Unreachable,
    /// Not within the store's own deadline.
    Timeout,
    /// It may not be used so.
    Refused,
    /// Its answer is none.
    Protocol,
    /// It failed often and is left alone for a while.
    Resting,
    /// The value exceeds a bound.
    TooLarge,
}

impl Trouble {
    /// `SAC_FETCH_TROUBLE_*`; none for what is late.
    pub(crate) const fn detail(self) -> Option<u32> {
        match self {
            Trouble::Timeout => None,
            Trouble::Unreachable => Some(SAC_FETCH_TROUBLE_UNREACHABLE),
            Trouble::Refused => Some(SAC_FETCH_TROUBLE_REFUSED),
            Trouble::Protocol => Some(SAC_FETCH_TROUBLE_PROTOCOL),
            Trouble::Resting => Some(SAC_FETCH_TROUBLE_RESTING),
            Trouble::TooLarge => Some(SAC_FETCH_TROUBLE_TOO_LARGE),
        }
    }
}

/// Whether the store is used.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Breaker {
    /// It is.
    Closed = 0,
    /// It failed and rests.
    Open = 1,
    /// It is being tried.
    HalfOpen = 2,
}

/// A call on its way. Dropped, it ends.
pub type Call<'a, T> = Pin<Box<dyn Future<Output = Result<T, Trouble>> + Send + 'a>>;

/// A store. Calls may take for ever: the plane ends those whose command is late.
pub trait Remote: Send + Sync + 'static {
    /// How many of the first of `keys`, at most [`MAX_KEYS`], are there.
    fn longest_prefix<'a>(&'a self, keys: &'a [Key]) -> Call<'a, usize>;
    /// Whether there is a value.
    fn exists(&self, key: Key) -> Call<'_, bool>;
    /// The value, of at most `max_bytes`.
    fn get(&self, key: Key, max_bytes: usize) -> Call<'_, Option<Bytes>>;
    /// Keeps a value; one that is there stays.
    fn put(&self, key: Key, value: Bytes) -> Call<'_, Put>;
    /// Whether calls reach the store.
    fn breaker(&self) -> Breaker;
}
