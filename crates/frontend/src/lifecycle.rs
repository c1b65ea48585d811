//! Serving, draining, stopping: what new requests are told, and when the process may end.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use tokio::sync::{Notify, watch};

use crate::api_error::ApiError;

/// Where the frontend is in its life; it only moves forward.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Stage {
    /// Requests are taken.
    Serving,
    /// No new requests; those in flight may end.
    Draining,
    /// Requests in flight are cancelled.
    Stopping,
}

/// The stage, and a count of the requests in flight.
#[derive(Clone)]
pub struct Lifecycle {
    stage: Arc<watch::Sender<Stage>>,
    requests: Arc<Requests>,
}

#[derive(Default)]
struct Requests {
    in_flight: AtomicUsize,
    ended: Notify,
}

/// One request in flight, until it is dropped.
pub struct InFlight(Arc<Requests>);

impl Default for Lifecycle {
    fn default() -> Self {
        Self { stage: Arc::new(watch::channel(Stage::Serving).0), requests: Arc::default() }
    }
}

impl Lifecycle {
    /// The current stage.
    pub fn stage(&self) -> Stage {
        *self.stage.borrow()
    }

    /// Moves on to `stage`, unless already there or beyond.
    pub fn advance(&self, stage: Stage) {
        self.stage.send_if_modified(|now| {
            let later = stage > *now;
            *now = (*now).max(stage);
            later
        });
    }

    /// Returns once the stage is at least `stage`.
    pub async fn reached(&self, stage: Stage) {
        // The sender lives as long as `self`, so the wait cannot fail.
        let _ = self.stage.subscribe().wait_for(|now| *now >= stage).await;
    }

    /// Counts a request in.
    ///
    /// # Errors
    /// 503 once draining has begun.
    pub fn enter(&self) -> Result<InFlight, ApiError> {
        // Counted before the check, so that a drain that has begun is either seen or waits for it.
        self.requests.in_flight.fetch_add(1, Ordering::SeqCst);
        let guard = InFlight(self.requests.clone());
        if self.stage() == Stage::Serving { Ok(guard) } else { Err(ApiError::shutting_down()) }
    }

    /// Requests in flight.
    pub fn in_flight(&self) -> usize {
        self.requests.in_flight.load(Ordering::SeqCst)
    }

    /// Returns once no request is in flight.
    pub async fn idle(&self) {
        loop {
            let ended = self.requests.ended.notified();
            if self.in_flight() == 0 {
                return;
            }
            ended.await;
        }
    }
}

impl Drop for InFlight {
    fn drop(&mut self) {
        if self.0.in_flight.fetch_sub(1, Ordering::SeqCst) == 1 {
            self.0.ended.notify_waiters();
        }
    }
}
