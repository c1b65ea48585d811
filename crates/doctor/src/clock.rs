//! Time, so that scripted machines can pass theirs.

use std::time::Duration;

/// Tells and passes time.
pub trait Clock {
    /// Nanoseconds of a monotonic clock.
    fn now_ns(&mut self) -> u64;
    /// Lets time pass.
    fn wait(&mut self, time: Duration);
}

/// The machine's own.
#[derive(Debug, Default)]
pub struct MachineClock;

impl Clock for MachineClock {
    fn now_ns(&mut self) -> u64 {
        saccade_host::monotonic_ns()
    }

    fn wait(&mut self, time: Duration) {
        std::thread::sleep(time);
    }
}
