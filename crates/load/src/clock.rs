//! Seconds since the start of a run, and a timer that fires to within tens of microseconds.

use std::time::{Duration, Instant};

/// The start of a run.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Epoch(Instant);

impl Epoch {
    pub(crate) fn now() -> Epoch {
        Epoch(Instant::now())
    }

    /// Seconds since the start.
    pub(crate) fn elapsed_s(self) -> f64 {
        self.0.elapsed().as_secs_f64()
    }

    /// The instant `seconds` after the start.
    pub(crate) fn at(self, seconds: f64) -> Instant {
        self.0 + Duration::from_secs_f64(seconds.max(0.0))
    }
}

/// Seconds of `CLOCK_MONOTONIC`, the clock behind [`Instant`].
pub(crate) fn monotonic_s() -> f64 {
    read_clock(libc::CLOCK_MONOTONIC)
}

/// CPU seconds that the calling thread has used.
pub(crate) fn thread_cpu_s() -> f64 {
    read_clock(libc::CLOCK_THREAD_CPUTIME_ID)
}

fn read_clock(clock: libc::clockid_t) -> f64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `time` is a valid timespec to write to; both clocks exist on every supported system.
    unsafe { libc::clock_gettime(clock, &raw mut time) };
    time.tv_sec as f64 + time.tv_nsec as f64 / 1e9
}

#[cfg(target_os = "linux")]
pub(crate) use fine::Timer;

/// A timerfd: the runtime's own timers have a granularity of 1 ms, as much as the first token of a
/// small model takes.
#[cfg(target_os = "linux")]
mod fine {
    use std::io;
    use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
    use std::time::Instant;

    use tokio::io::Interest;
    use tokio::io::unix::AsyncFd;

    #[derive(Debug)]
    pub(crate) struct Timer(AsyncFd<OwnedFd>);

    impl Timer {
        pub(crate) fn new() -> io::Result<Timer> {
            let flags = libc::TFD_NONBLOCK | libc::TFD_CLOEXEC;
            // SAFETY: no pointers are passed; a negative result is checked before it is used.
            let fd = unsafe { libc::timerfd_create(libc::CLOCK_MONOTONIC, flags) };
            if fd < 0 {
                return Err(io::Error::last_os_error());
            }
            // SAFETY: `fd` was just created, is valid, and nothing else owns it.
            let fd = unsafe { OwnedFd::from_raw_fd(fd) };
            // SAFETY: an `OwnedFd` names one open descriptor for as long as it lives.
            let fd = unsafe { AsyncFd::register_with_interest(fd, Interest::READABLE) };
            Ok(Timer(fd?))
        }

        /// Waits until `deadline`. May be dropped and called again.
        pub(crate) async fn until(&self, deadline: Instant) {
            let wait = deadline.saturating_duration_since(Instant::now());
            if wait.is_zero() {
                return;
            }
            if self.arm(wait).is_err() {
                return tokio::time::sleep(wait).await;
            }
            loop {
                let Ok(mut guard) = self.0.readable().await else { return };
                if guard.try_io(|fd| read_expirations(fd.as_raw_fd())).is_ok() {
                    return;
                }
            }
        }

        fn arm(&self, wait: std::time::Duration) -> io::Result<()> {
            let value = libc::timespec {
                tv_sec: wait.as_secs() as libc::time_t,
                tv_nsec: libc::c_long::from(wait.subsec_nanos() as i32),
            };
            let zero = libc::timespec { tv_sec: 0, tv_nsec: 0 };
            let spec = libc::itimerspec { it_interval: zero, it_value: value };
            let fd = self.0.as_raw_fd();
            // SAFETY: `spec` is valid for reading, a null old value is allowed, `fd` is a timerfd.
            let rc = unsafe { libc::timerfd_settime(fd, 0, &raw const spec, std::ptr::null_mut()) };
            if rc == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
        }
    }

    fn read_expirations(fd: libc::c_int) -> io::Result<()> {
        let mut count = 0u64;
        // SAFETY: `count` has the eight bytes that a timerfd writes; `fd` is open.
        let read = unsafe { libc::read(fd, (&raw mut count).cast(), size_of::<u64>()) };
        if read < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
    }
}

/// Where there is no timerfd: the runtime's timer, to within a millisecond.
#[cfg(not(target_os = "linux"))]
#[derive(Debug)]
pub(crate) struct Timer;

#[cfg(not(target_os = "linux"))]
impl Timer {
    pub(crate) fn new() -> std::io::Result<Timer> {
        Ok(Timer)
    }

    /// Waits until `deadline`. May be dropped and called again.
    pub(crate) async fn until(&self, deadline: Instant) {
        tokio::time::sleep_until(deadline.into()).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_timer_fires_after_its_time_and_can_be_dropped() {
        let timer = Timer::new().expect("a timer");
        for wait_ms in [5, 1, 0, 3] {
            let far = Instant::now() + Duration::from_secs(60);
            tokio::select! {
                biased;
                () = timer.until(far) => panic!("a minute has not passed"),
                () = tokio::task::yield_now() => {}
            }
            let begin = Instant::now();
            let wait = Duration::from_millis(wait_ms);
            timer.until(begin + wait).await;
            assert!(begin.elapsed() >= wait, "{:?}", begin.elapsed());
        }
    }
}
