//! A store with deadlines, a bound on what is on its way, a circuit breaker, and counters.

mod breaker;
mod counts;

use std::future::Future;
use std::ops::ControlFlow;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use tokio::sync::Semaphore;
use tokio::time::{Instant, timeout_at};

use crate::{Entry, Filter, Found, Key, Listing, Put, Store, Trouble};
pub use breaker::BreakerState;
use breaker::{Breaker, Pass};
use counts::Counters;
pub use counts::{Count, Operation};

/// Bounds of a guarded store.
#[derive(Debug, Clone, Copy)]
pub struct Limits {
    /// Of every operation, a batch included, and of the wait before it.
    pub deadline: Duration,
    /// Operations that run at a time; at least 1.
    pub max_in_flight: usize,
    /// In a row, after which the breaker opens; at least 1.
    pub failures: u32,
    /// That the breaker first stays open; each failed probe doubles it.
    pub backoff: Duration,
    /// That it stays open at most.
    pub max_backoff: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            deadline: Duration::from_secs(2),
            max_in_flight: 64,
            failures: 5,
            backoff: Duration::from_millis(500),
            max_backoff: Duration::from_secs(30),
        }
    }
}

/// A store that answers in time, or not at all. Clones share everything.
#[derive(Debug, Clone)]
pub struct Guarded(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    store: Store,
    limits: Limits,
    breaker: Breaker,
    in_flight: Semaphore,
    counters: Counters,
}

impl Guarded {
    /// Guards `store`.
    ///
    /// # Panics
    /// `max_in_flight` or `failures` is 0.
    pub fn new(store: Store, limits: Limits) -> Self {
        assert!(limits.max_in_flight > 0, "max_in_flight: 0, not at least 1");
        assert!(limits.failures > 0, "failures: 0, not at least 1");
        let breaker = Breaker::new(&limits);
        let in_flight = Semaphore::new(limits.max_in_flight);
        let counters = Counters::default();
        Self(Arc::new(Inner { store, limits, breaker, in_flight, counters }))
    }

    /// What it is held to.
    pub fn limits(&self) -> &Limits {
        &self.0.limits
    }

    /// Whether operations get through.
    pub fn breaker(&self) -> BreakerState {
        self.0.breaker.state()
    }

    /// How operations ended since the start, those that occurred.
    pub fn counts(&self) -> Vec<Count> {
        self.0.counters.snapshot()
    }

    /// See [`Store::exist`].
    ///
    /// # Errors
    /// The store's trouble, `Timeout`, `Busy` or `BreakerOpen`.
    pub async fn exist(&self, keys: &[Key]) -> Result<Vec<bool>, Trouble> {
        self.run(Operation::Exist, self.0.store.exist(keys), |_| "ok").await
    }

    /// See [`Store::longest_prefix`].
    ///
    /// # Errors
    /// The store's trouble, `Timeout`, `Busy` or `BreakerOpen`.
    pub async fn longest_prefix(&self, keys: &[Key]) -> Result<usize, Trouble> {
        let work = self.0.store.longest_prefix(keys);
        self.run(Operation::LongestPrefix, work, |_| "ok").await
    }

    /// See [`Store::get`].
    ///
    /// # Errors
    /// The store's trouble, `Timeout`, `Busy` or `BreakerOpen`.
    pub async fn get(&self, key: &Key, max_bytes: usize) -> Result<Option<Bytes>, Trouble> {
        let outcome = |value: &Option<Bytes>| if value.is_some() { "ok" } else { "absent" };
        self.run(Operation::Get, self.0.store.get(key, max_bytes), outcome).await
    }

    /// See [`Store::get_many`]. The deadline is of all of them.
    ///
    /// # Errors
    /// The store's trouble, `Timeout`, `Busy` or `BreakerOpen`.
    pub async fn get_many(
        &self,
        keys: &[Key],
        max_bytes: usize,
        tell: impl FnMut(usize, Found) -> ControlFlow<()> + Send,
    ) -> Result<(), Trouble> {
        let work = self.0.store.get_many(keys, max_bytes, tell);
        self.run(Operation::GetMany, work, |()| "ok").await
    }

    /// See [`Store::put`].
    ///
    /// # Errors
    /// The store's trouble, `Timeout`, `Busy` or `BreakerOpen`.
    pub async fn put(&self, key: &Key, value: Bytes) -> Result<Put, Trouble> {
        let outcome = |put: &Put| match put {
            Put::Stored => "ok",
            Put::Already => "already",
            Put::Full => "full",
        };
        self.run(Operation::Put, self.0.store.put(key, value), outcome).await
    }

    /// See [`Store::remove`].
    ///
    /// # Errors
    /// The store's trouble, `Timeout`, `Busy` or `BreakerOpen`.
    pub async fn remove(&self, keys: &[Key]) -> Result<(), Trouble> {
        self.run(Operation::Remove, self.0.store.remove(keys), |()| "ok").await
    }

    /// See [`Store::list`]. It goes through all of a store, so it has a deadline of its own.
    ///
    /// # Errors
    /// The store's trouble, `Timeout`, `Busy` or `BreakerOpen`.
    pub async fn list(
        &self,
        filter: &Filter,
        deadline: Duration,
        tell: impl FnMut(Entry) -> ControlFlow<()> + Send,
    ) -> Result<Listing, Trouble> {
        let work = self.0.store.list(filter, tell);
        self.run_within(Operation::List, deadline, work, |_| "ok").await
    }

    async fn run<T>(
        &self,
        operation: Operation,
        work: impl Future<Output = Result<T, Trouble>>,
        outcome: impl FnOnce(&T) -> &'static str,
    ) -> Result<T, Trouble> {
        self.run_within(operation, self.0.limits.deadline, work, outcome).await
    }

    async fn run_within<T>(
        &self,
        operation: Operation,
        deadline: Duration,
        work: impl Future<Output = Result<T, Trouble>>,
        outcome: impl FnOnce(&T) -> &'static str,
    ) -> Result<T, Trouble> {
        let result = self.guard(deadline, work).await;
        let outcome = result.as_ref().map_or_else(Trouble::kind, outcome);
        self.0.counters.count(operation, outcome);
        result
    }

    async fn guard<T>(
        &self,
        deadline: Duration,
        work: impl Future<Output = Result<T, Trouble>>,
    ) -> Result<T, Trouble> {
        let Inner { limits, breaker, in_flight, .. } = &*self.0;
        let until = Instant::now() + deadline;
        let busy = Trouble::Busy { max_in_flight: limits.max_in_flight };
        let Ok(Ok(_running)) = timeout_at(until, in_flight.acquire()).await else {
            return Err(busy);
        };
        // After the wait: what the breaker says now counts.
        let Some(pass) = breaker.pass() else {
            return Err(Trouble::BreakerOpen { failures: limits.failures });
        };
        let result = timeout_at(until, work).await.unwrap_or(Err(Trouble::Timeout(deadline)));
        settle(pass, result.as_ref().err());
        result
    }
}

fn settle(pass: Pass<'_>, trouble: Option<&Trouble>) {
    match trouble {
        Some(trouble) if trouble.is_failure() => pass.failed(),
        _ => pass.succeeded(),
    }
}
