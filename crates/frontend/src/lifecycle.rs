//! Serving, draining, stopping: what new requests are told, and when the process may end.

use std::sync::Arc;
use std::sync::atomic::{AtomicU8, AtomicUsize, Ordering};

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
    /// Wakes the tasks that wait for a stage. It has a lock, which each poll of a waiting task
    /// takes: every HTTP thread has its own.
    news: Arc<watch::Sender<Stage>>,
    requests: Arc<Requests>,
}

#[derive(Default)]
struct Requests {
    /// A `Stage`.
    stage: AtomicU8,
    in_flight: AtomicUsize,
    ended: Notify,
}

/// One request in flight, until it is dropped.
pub struct InFlight(Arc<Requests>);

impl Default for Lifecycle {
    fn default() -> Self {
        Self { news: Arc::new(watch::channel(Stage::Serving).0), requests: Arc::default() }
    }
}

impl Lifecycle {
    /// The current stage.
    pub fn stage(&self) -> Stage {
        match self.requests.stage.load(Ordering::SeqCst) {
            0 => Stage::Serving,
            1 => Stage::Draining,
            _ => Stage::Stopping,
        }
    }

    /// Moves on to `stage`, unless already there or beyond.
    pub fn advance(&self, stage: Stage) {
        self.requests.stage.fetch_max(stage as u8, Ordering::SeqCst);
        self.tell(stage);
    }

    fn tell(&self, stage: Stage) {
        self.news.send_if_modified(|now| {
            let later = stage > *now;
            *now = (*now).max(stage);
            later
        });
    }

    /// The same life for one HTTP thread, whose tasks share no lock with those of other threads.
    /// They hear of a stage once [`relay`](Self::relay), a task of that thread, has.
    pub fn for_thread(&self) -> Self {
        Self { news: Arc::new(watch::channel(self.stage()).0), requests: self.requests.clone() }
    }

    /// Passes the stages on to the thread that has `own`, until the last one.
    pub async fn relay(self, own: Self) {
        for stage in [Stage::Draining, Stage::Stopping] {
            self.reached(stage).await;
            own.tell(stage);
        }
    }

    /// Returns once the stage is at least `stage`.
    pub async fn reached(&self, stage: Stage) {
        // The sender lives as long as `self`, so the wait cannot fail.
        let _ = self.news.subscribe().wait_for(|now| *now >= stage).await;
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
