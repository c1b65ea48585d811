//! Planted weaknesses: what a good server does not let one client do to others.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};

use serde::Deserialize;

use crate::clock::Nanos;

/// A stream that nothing has been taken from for so long is stalled by its reader.
const STALLED_NANOS: Nanos = 200_000_000;

/// Which weaknesses the server has; none by default.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Weaknesses {
    /// While one stream is not read, no other gets a token.
    pub stalled_reader_stalls_all: bool,
    /// A seat stays taken when its client leaves before the end of the answer.
    pub aborted_keeps_seat: bool,
    /// Share of streamed answers, from 0 to 1, in which one token is said twice.
    pub doubled_token: f64,
}

/// Which streams wait for their reader, and since when.
#[derive(Debug, Default)]
pub struct Readers(Mutex<HashMap<u64, Nanos>>);

impl Readers {
    /// A piece was given to the connection of this request; more is not taken before it is asked
    /// for.
    pub fn gave(&self, index: u64, now: Nanos) {
        self.map().insert(index, now);
    }

    /// The connection asks for more, or is gone.
    pub fn asks(&self, index: u64) {
        self.map().remove(&index);
    }

    /// Whether a stream is stalled.
    pub fn has_stalled(&self, now: Nanos) -> bool {
        self.map().values().any(|&since| now.saturating_sub(since) > STALLED_NANOS)
    }

    fn map(&self) -> std::sync::MutexGuard<'_, HashMap<u64, Nanos>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
