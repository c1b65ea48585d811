//! The stores that keep KV chunks: Redis and Valkey, one server or a cluster, S3, a folder, and
//! this process. They are told apart by a URL and used alike.
//!
//! A store is not trusted with anything but time and space: what it gives back is bytes, whose
//! reader finds out whether they are the chunk (`saccade_chunk::open`). Its trouble costs speed,
//! never an answer, so every operation can fail, and [`Guarded`] makes it fail in time.

mod batch;
mod folder;
mod guard;
mod key;
mod listing;
mod memory;
mod redis;
mod s3;
mod store;
#[cfg(feature = "testing")]
pub mod testing;
mod trouble;
mod url;

pub use guard::{BreakerState, Count, Guarded, Limits, Operation};
pub use key::Key;
pub use listing::{Entry, Filter, Listing};
pub use saccade_chunk::{ModelId, Name};
pub use store::{Found, MAX_KEYS, OpenError, Put, Store};
pub use trouble::Trouble;
pub use url::{StoreUrl, UrlError};
