//! The synchronisation types of this crate, in one place: the model checks compile the same modules
//! with loom's types instead (see `tests/loom.rs`).

pub(crate) use std::sync::atomic::{AtomicBool, AtomicU64};
pub(crate) use std::sync::{Arc, Mutex, MutexGuard};

use std::sync::atomic::Ordering;

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
/// tickets, so poisoning is not passed on.
pub(crate) fn lock<V>(mutex: &Mutex<V>) -> MutexGuard<'_, V> {
    mutex.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
}

/// Locks if the lock is free: the token reader never waits for a descheduled thread.
pub(crate) fn try_lock<V>(mutex: &Mutex<V>) -> Option<MutexGuard<'_, V>> {
    match mutex.try_lock() {
        Ok(guard) => Some(guard),
        Err(std::sync::TryLockError::Poisoned(poisoned)) => Some(poisoned.into_inner()),
        Err(std::sync::TryLockError::WouldBlock) => None,
    }
}
