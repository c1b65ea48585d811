//! One interface to every store.

use std::ops::ControlFlow;

use bytes::Bytes;

use crate::folder::Folder;
use crate::memory::Memory;
use crate::redis::Redis;
use crate::s3::S3;
use crate::url::Place;
use crate::{Entry, Filter, Key, Listing, StoreUrl, Trouble};

/// Keys of one call, at most.
pub const MAX_KEYS: usize = 16_384;

/// What `put` did.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Put {
    /// The value is in the store.
    Stored,
    /// A value was there, and stays.
    Already,
    /// The store has no room for it.
    Full,
}

/// What `get_many` found under a key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Found {
    /// The value. It is as the store has it: nothing here knows whether it is right.
    Value(Bytes),
    /// None.
    Absent,
    /// More bytes than the caller takes. They were not taken in.
    TooLarge,
}

/// Why a store cannot be made of a URL. That a store is down is no such reason.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// Certificates of `ca`.
    #[error("ca={path}: {why}")]
    Ca {
        /// Of the file.
        path: String,
        /// The reason.
        why: String,
    },
    /// A variable, or a value, that the client library does not take.
    #[error("the client of the store: {0}")]
    Client(String),
    /// The folder cannot be made.
    #[error("folder {path}: {source}")]
    Folder {
        /// Of the folder.
        path: String,
        /// The reason.
        source: std::io::Error,
    },
}

/// A store of values under keys. Clones share connections.
///
/// An operation takes as long as the store does: [`Guarded`](crate::Guarded) sets deadlines. One
/// that is dropped ends, and leaves no half value.
#[derive(Debug, Clone)]
pub struct Store(Backend);

#[derive(Debug, Clone)]
enum Backend {
    Redis(Redis),
    S3(S3),
    Folder(Folder),
    Memory(Memory),
}

/// The same call of whichever store it is.
macro_rules! each {
    ($self:ident, $store:ident => $call:expr) => {
        match &$self.0 {
            Backend::Redis($store) => $call,
            Backend::S3($store) => $call,
            Backend::Folder($store) => $call,
            Backend::Memory($store) => $call,
        }
    };
}

impl Store {
    /// Needs a Tokio runtime from its first operation on. Credentials of S3 are the `AWS_*`
    /// variables of this process.
    ///
    /// # Errors
    /// Certificates cannot be read, or a folder cannot be made. A store need not be up.
    pub fn open(url: &StoreUrl) -> Result<Self, OpenError> {
        let text = |(name, value): (std::ffi::OsString, std::ffi::OsString)| {
            Some((name.into_string().ok()?, value.into_string().ok()?))
        };
        Self::open_with(url, std::env::vars_os().filter_map(text))
    }

    /// Like `open`, with these variables.
    ///
    /// # Errors
    /// As of `open`.
    pub fn open_with(
        url: &StoreUrl,
        variables: impl IntoIterator<Item = (String, String)>,
    ) -> Result<Self, OpenError> {
        let common = url.common.clone();
        Ok(Self(match &url.place {
            Place::Redis(place) => Backend::Redis(Redis::open(place, common)?),
            Place::S3(place) => Backend::S3(S3::open(place, common, variables)?),
            Place::Folder(place) => Backend::Folder(Folder::open(place, common)?),
            Place::Memory { max_bytes } => Backend::Memory(Memory::new(*max_bytes, common)),
        }))
    }

    /// Whether there is a value under each of `keys`: in one round trip to Redis, by requests in
    /// parallel to S3.
    ///
    /// # Errors
    /// The store's trouble.
    ///
    /// # Panics
    /// More than `MAX_KEYS` keys.
    pub async fn exist(&self, keys: &[Key]) -> Result<Vec<bool>, Trouble> {
        assert!(keys.len() <= MAX_KEYS, "{} keys, more than {MAX_KEYS}", keys.len());
        each!(self, store => store.exist(keys).await)
    }

    /// How many of the first of `keys` are there. Exact, but for S3, which is asked about a few of
    /// them: there it is right if a chunk is never there without those before it.
    ///
    /// # Errors
    /// The store's trouble.
    ///
    /// # Panics
    /// More than `MAX_KEYS` keys.
    pub async fn longest_prefix(&self, keys: &[Key]) -> Result<usize, Trouble> {
        assert!(keys.len() <= MAX_KEYS, "{} keys, more than {MAX_KEYS}", keys.len());
        if let Backend::S3(store) = &self.0 {
            return store.longest_prefix(keys).await;
        }
        let exist = self.exist(keys).await?;
        Ok(exist.iter().take_while(|there| **there).count())
    }

    /// The value, of at most `max_bytes`.
    ///
    /// # Errors
    /// The store's trouble, and `TooLarge`.
    pub async fn get(&self, key: &Key, max_bytes: usize) -> Result<Option<Bytes>, Trouble> {
        let mut found = None;
        let one = std::slice::from_ref(key);
        self.get_many(one, max_bytes, |_, value| {
            found = Some(value);
            ControlFlow::Continue(())
        })
        .await?;
        match found {
            Some(Found::Value(value)) => Ok(Some(value)),
            Some(Found::TooLarge) => Err(Trouble::TooLarge { max_bytes }),
            Some(Found::Absent) | None => Ok(None),
        }
    }

    /// Values in the order of `keys`, each told with its index as soon as it and those before it
    /// are here. All are asked for at once, but for what would hold more than 64 MiB of answers.
    ///
    /// # Errors
    /// The store's trouble; what was told before it stays right.
    ///
    /// # Panics
    /// More than `MAX_KEYS` keys.
    pub async fn get_many(
        &self,
        keys: &[Key],
        max_bytes: usize,
        tell: impl FnMut(usize, Found) -> ControlFlow<()> + Send,
    ) -> Result<(), Trouble> {
        assert!(keys.len() <= MAX_KEYS, "{} keys, more than {MAX_KEYS}", keys.len());
        each!(self, store => store.get_many(keys, max_bytes, tell).await)
    }

    /// Stores a value that others see whole or not at all. An existing value stays: remove a
    /// damaged one first.
    ///
    /// # Errors
    /// The store's trouble, and `Empty`.
    pub async fn put(&self, key: &Key, value: Bytes) -> Result<Put, Trouble> {
        if value.is_empty() {
            return Err(Trouble::Empty);
        }
        each!(self, store => store.put(key, value).await)
    }

    /// Removes values; a key without one is no error.
    ///
    /// # Errors
    /// The store's trouble; some may be gone.
    ///
    /// # Panics
    /// More than `MAX_KEYS` keys.
    pub async fn remove(&self, keys: &[Key]) -> Result<(), Trouble> {
        assert!(keys.len() <= MAX_KEYS, "{} keys, more than {MAX_KEYS}", keys.len());
        each!(self, store => store.remove(keys).await)
    }

    /// Tells every value of this namespace, a page at a time. What is stored or removed meanwhile
    /// may be told or not; Redis may tell one twice.
    ///
    /// # Errors
    /// The store's trouble; what was told before it stays right.
    pub async fn list(
        &self,
        filter: &Filter,
        tell: impl FnMut(Entry) -> ControlFlow<()> + Send,
    ) -> Result<Listing, Trouble> {
        each!(self, store => store.list(filter, tell).await)
    }
}
