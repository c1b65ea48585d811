//! The synchronisation types of this crate, in one place: the model checks compile the same modules
//! with loom's types instead (see `tests/loom.rs`).

pub(crate) use std::sync::atomic::AtomicU64;
pub(crate) use std::sync::{Arc, Mutex, MutexGuard};

use std::sync::atomic::Ordering;

pub(crate) use crate::edge::{Edge, order};

/// Publishes with a word: everything written before is visible to a reader that loads the word with
/// [`OBSERVE`].
pub(crate) const PUBLISH: Ordering = Ordering::Release;
/// Pairs with [`PUBLISH`].
pub(crate) const OBSERVE: Ordering = Ordering::Acquire;
/// Payload: ordered by the published word around it.
pub(crate) const PAYLOAD: Ordering = Ordering::Relaxed;
/// The fence between a store and a check that mirrors the other side's store and check.
pub(crate) const STORE_CHECK: Ordering = Ordering::SeqCst;
/// Locks; a panic in another holder leaves plain data that is still consistent enough to end
/// tickets, so poisoning is not passed on. Never on the token reader's thread: a holder may have
/// been descheduled.
pub(crate) fn lock<V>(mutex: &Mutex<V>) -> MutexGuard<'_, V> {
    mutex.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
}
