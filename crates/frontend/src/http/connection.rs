//! How many connections are open.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Counts open connections up to a bound.
#[derive(Clone)]
pub struct Connections {
    open: Arc<AtomicUsize>,
    max: usize,
}

/// One open connection, until it is dropped.
pub struct OpenConnection(Arc<AtomicUsize>);

impl Connections {
    /// At most `max` at a time.
    pub fn new(max: usize) -> Self {
        Self { open: Arc::default(), max }
    }

    /// Open connections.
    pub fn open(&self) -> usize {
        self.open.load(Ordering::Relaxed)
    }

    /// Counts one in, if there is room.
    pub fn enter(&self) -> Option<OpenConnection> {
        let before = self.open.fetch_add(1, Ordering::Relaxed);
        let guard = OpenConnection(self.open.clone());
        (before < self.max).then_some(guard)
    }
}

impl Drop for OpenConnection {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}
