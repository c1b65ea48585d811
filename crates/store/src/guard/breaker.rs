//! Leaves a store alone that fails, and finds out when it is well again.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

use super::Limits;

/// What a breaker does with operations.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BreakerState {
    /// All get through.
    Closed,
    /// None does, for a while; then one.
    Open,
    /// One is on its way. If the store answers it, all get through.
    Probing,
}

#[derive(Debug)]
pub(super) struct Breaker {
    failures: u32,
    backoff: Duration,
    max_backoff: Duration,
    state: Mutex<State>,
}

#[derive(Debug, Clone, Copy)]
enum State {
    Closed { failures: u32 },
    Open { until: Instant, backoff: Duration },
    Probing { backoff: Duration },
}

/// For one operation. Dropped unsettled, it tells nothing about the store.
#[derive(Debug)]
pub(super) struct Pass<'a> {
    breaker: &'a Breaker,
    probe: bool,
    settled: bool,
}

impl Breaker {
    pub(super) fn new(limits: &Limits) -> Self {
        let Limits { failures, backoff, max_backoff, .. } = *limits;
        let state = Mutex::new(State::Closed { failures: 0 });
        Self { failures, backoff, max_backoff, state }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn state(&self) -> BreakerState {
        match *self.lock() {
            State::Closed { .. } => BreakerState::Closed,
            State::Open { .. } => BreakerState::Open,
            State::Probing { .. } => BreakerState::Probing,
        }
    }

    pub(super) fn pass(&self) -> Option<Pass<'_>> {
        let mut state = self.lock();
        let probe = match *state {
            State::Closed { .. } => false,
            State::Open { until, backoff } if until <= Instant::now() => {
                *state = State::Probing { backoff };
                true
            }
            State::Open { .. } | State::Probing { .. } => return None,
        };
        Some(Pass { breaker: self, probe, settled: false })
    }

    fn open(&self, backoff: Duration) -> State {
        let backoff = backoff.min(self.max_backoff);
        State::Open { until: Instant::now() + backoff, backoff }
    }
}

impl Pass<'_> {
    pub(super) fn succeeded(mut self) {
        self.settled = true;
        let mut state = self.breaker.lock();
        match *state {
            State::Closed { .. } => *state = State::Closed { failures: 0 },
            State::Probing { .. } if self.probe => *state = State::Closed { failures: 0 },
            // Let through before the breaker opened: only the probe closes it.
            State::Open { .. } | State::Probing { .. } => {}
        }
    }

    pub(super) fn failed(mut self) {
        self.settled = true;
        let mut state = self.breaker.lock();
        match *state {
            State::Closed { failures } if failures + 1 < self.breaker.failures => {
                *state = State::Closed { failures: failures + 1 };
            }
            State::Closed { .. } => *state = self.breaker.open(self.breaker.backoff),
            State::Probing { backoff } if self.probe => {
                *state = self.breaker.open(backoff.saturating_mul(2));
            }
            State::Open { .. } | State::Probing { .. } => {}
        }
    }
}

impl Drop for Pass<'_> {
    fn drop(&mut self) {
        if self.settled || !self.probe {
            return;
        }
        let mut state = self.breaker.lock();
        if let State::Probing { backoff } = *state {
            // Its caller has left. The next one may probe at once.
            *state = State::Open { until: Instant::now(), backoff };
        }
    }
}
