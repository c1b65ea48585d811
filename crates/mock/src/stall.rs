//! Windows in which the server answers nothing.

use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::clock::{Nanos, from_seconds};
use crate::script::{Stall, StallMode};

struct Window {
    script: Stall,
    /// `None` until the request that starts it has come.
    start: Option<Nanos>,
}

/// When what was due in a stall may leave.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Release {
    /// The end of the stall, or the due time where there is none.
    pub at: Nanos,
    /// What the next due time counts from: later by as much as the server was frozen.
    pub base: Nanos,
}

/// The stalls of a script, on the clock.
pub struct Stalls {
    windows: Mutex<Vec<Window>>,
}

impl Stalls {
    /// The script's stalls, counted from `start`.
    pub fn new(script: &[Stall], start: Nanos) -> Self {
        let stalls = Self { windows: Mutex::new(Vec::new()) };
        stalls.restart(script, start);
        stalls
    }

    /// Counts again from `start`.
    pub fn restart(&self, script: &[Stall], start: Nanos) {
        let window = |stall: &Stall| Window {
            script: stall.clone(),
            start: stall.at_s.map(|at| start + from_seconds(at)),
        };
        *self.windows() = script.iter().map(window).collect();
    }

    /// Starts the stalls that wait for the `index`-th request (from 0), which has come `now`.
    pub fn request_came(&self, index: u64, now: Nanos) {
        for window in self.windows().iter_mut() {
            if window.start.is_none() && window.script.at_request == Some(index) {
                window.start = Some(now);
            }
        }
    }

    /// When something that is due at `due` may leave.
    pub fn release(&self, due: Nanos) -> Release {
        let mut release = Release { at: due, base: due };
        let windows = self.windows();
        // Each turn leaves one window behind, so there are no more turns than windows.
        while let Some((end, mode)) = windows.iter().find_map(|w| w.holds(release.at)) {
            if mode == StallMode::Freeze {
                release.base += end - release.at;
            }
            release.at = end;
        }
        release
    }

    fn windows(&self) -> MutexGuard<'_, Vec<Window>> {
        self.windows.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Window {
    /// The end of the window if `at` is in it.
    fn holds(&self, at: Nanos) -> Option<(Nanos, StallMode)> {
        let start = self.start?;
        let end = start + from_seconds(self.script.for_s);
        (start <= at && at < end).then_some((end, self.script.mode))
    }
}
