//! What the plane needs of a store, and nothing else: the one seam to it.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

use bytes::Bytes;
use saccade_store::{BreakerState, Guarded, Key, Put, Trouble};

use crate::layout::*;

/// A call on its way. Dropped, it ends.
pub type Call<T> = Pin<Box<dyn Future<Output = Result<T, Trouble>> + Send>>;

/// A store. Every call ends by a deadline of the store's own, which is what tells it that the store
/// is ill: the plane lets go of calls whose command is late, and leaves them to their end.
pub trait Remote: Send + Sync + 'static {
    /// How many of the first of `keys`, at most [`saccade_store::MAX_KEYS`], are there.
    fn longest_prefix(self: Arc<Self>, keys: Vec<Key>) -> Call<usize>;
    /// Whether there is a value.
    fn exists(self: Arc<Self>, key: Key) -> Call<bool>;
    /// The value, of at most `max_bytes`.
    fn get(self: Arc<Self>, key: Key, max_bytes: usize) -> Call<Option<Bytes>>;
    /// Keeps a value; one that is there stays.
    fn put(self: Arc<Self>, key: Key, value: Bytes) -> Call<Put>;
    /// Removes a value.
    fn remove(self: Arc<Self>, key: Key) -> Call<()>;
    /// Whether calls reach the store.
    fn breaker(&self) -> BreakerState;
}

impl Remote for Guarded {
    fn longest_prefix(self: Arc<Self>, keys: Vec<Key>) -> Call<usize> {
        Box::pin(async move { Guarded::longest_prefix(&self, &keys).await })
    }
    fn exists(self: Arc<Self>, key: Key) -> Call<bool> {
        Box::pin(async move { Ok(self.exist(&[key]).await? == [true]) })
    }
    fn get(self: Arc<Self>, key: Key, max_bytes: usize) -> Call<Option<Bytes>> {
        Box::pin(async move { Guarded::get(&self, &key, max_bytes).await })
    }
    fn put(self: Arc<Self>, key: Key, value: Bytes) -> Call<Put> {
        Box::pin(async move { Guarded::put(&self, &key, value).await })
    }
    fn remove(self: Arc<Self>, key: Key) -> Call<()> {
        Box::pin(async move { Guarded::remove(&self, &[key]).await })
    }
    fn breaker(&self) -> BreakerState {
        Guarded::breaker(self)
    }
}

/// `SAC_FETCH_TROUBLE_*`.
pub(crate) fn detail(trouble: &Trouble) -> u32 {
    match trouble {
        Trouble::Connect(_) | Trouble::Io(_) => SAC_FETCH_TROUBLE_UNREACHABLE,
        Trouble::Timeout(_) => SAC_FETCH_TROUBLE_TIMEOUT,
        Trouble::Refused(_) => SAC_FETCH_TROUBLE_REFUSED,
        Trouble::Protocol(_) => SAC_FETCH_TROUBLE_PROTOCOL,
        Trouble::BreakerOpen { .. } => SAC_FETCH_TROUBLE_RESTING,
        Trouble::TooLarge { .. } => SAC_FETCH_TROUBLE_TOO_LARGE,
        Trouble::Busy { .. } => SAC_FETCH_TROUBLE_BUSY,
        // The plane stores no empty values.
        Trouble::Empty => SAC_FETCH_TROUBLE_INTERNAL,
    }
}

/// As the plane's line has it.
pub(crate) fn breaker_word(state: BreakerState) -> u32 {
    match state {
        BreakerState::Closed => 0,
        BreakerState::Open => 1,
        BreakerState::Probing => 2,
    }
}
