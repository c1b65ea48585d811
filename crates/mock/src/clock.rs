//! The one clock of the mock, and sleeping on it to within tens of microseconds.
//!
//! Tokio's own timer rounds to a millisecond. A [`Pacer`] keeps the due times in order, arms one
//! timerfd (an hrtimer: it is not rounded, and no timer slack is added to it) for the earliest, a
//! little early, and spins for that little: the kernel's way from the timer's interrupt to the
//! woken thread takes tens of microseconds in a virtual machine. The spin is bounded by `spin`,
//! and between its looks at the clock everything else that is ready runs.

use std::collections::BTreeMap;
use std::future::poll_fn;
use std::io;
use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Poll, Waker};

use rustix::time::{
    ClockId, Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, clock_gettime,
    timerfd_create, timerfd_settime,
};
use tokio::io::unix::AsyncFd;

/// Nanoseconds on `CLOCK_MONOTONIC`.
pub type Nanos = u64;

const NANOS_PER_S: u64 = 1_000_000_000;

/// Now, on the clock that every record is written in.
pub fn now() -> Nanos {
    nanos(clock_gettime(ClockId::Monotonic))
}

/// Processor time that the calling thread has used.
pub fn thread_cpu() -> Nanos {
    nanos(clock_gettime(ClockId::ThreadCPUTime))
}

/// Uses `cpu` nanoseconds of processor time in the calling thread, however long that takes.
pub fn burn(cpu: Nanos) {
    let end = thread_cpu() + cpu;
    while thread_cpu() < end {
        std::hint::spin_loop();
    }
}

/// Seconds as nanoseconds; negative and NaN are 0.
pub fn from_seconds(seconds: f64) -> Nanos {
    (seconds * 1e9).round() as Nanos
}

/// Nanoseconds as seconds.
pub fn to_seconds(nanos: Nanos) -> f64 {
    nanos as f64 / 1e9
}

fn nanos(time: Timespec) -> Nanos {
    time.tv_sec as u64 * NANOS_PER_S + time.tv_nsec as u64
}

/// A due time and a number of its own.
type Key = (Nanos, u64);

#[derive(Default)]
struct Sleepers {
    /// One for each sleeping request; a request that gives up removes its own.
    wakers: BTreeMap<Key, Waker>,
    next_number: u64,
}

/// A place among the sleepers, given back when it is dropped.
struct Place<'a> {
    pacer: &'a Pacer,
    key: Key,
}

impl Drop for Place<'_> {
    fn drop(&mut self) {
        self.pacer.sleepers().wakers.remove(&self.key);
    }
}

/// Wakes tasks at due times. One task runs [`Pacer::run`]; all on one thread's runtime.
pub struct Pacer {
    sleepers: Mutex<Sleepers>,
    timer: AsyncFd<OwnedFd>,
    spin: Nanos,
}

impl Pacer {
    /// A pacer that spins for at most `spin` nanoseconds before each due time.
    ///
    /// # Errors
    /// No timerfd could be made, or there is no runtime.
    pub fn new(spin: Nanos) -> io::Result<Arc<Self>> {
        let timer = timerfd_create(TimerfdClockId::Monotonic, TimerfdFlags::NONBLOCK)?;
        // SAFETY: an `OwnedFd` gives the same descriptor as long as it lives, and it is not closed
        // or replaced before the `AsyncFd` that owns it.
        let timer = unsafe { AsyncFd::register(timer) }?;
        Ok(Arc::new(Self { sleepers: Mutex::default(), timer, spin }))
    }

    /// Returns at `at` or, if that is past, at once.
    pub async fn sleep_until(&self, at: Nanos) {
        if now() >= at {
            return;
        }
        let place = self.place(at);
        poll_fn(|context| {
            if now() >= at {
                return Poll::Ready(());
            }
            self.register(place.key, context.waker());
            Poll::Pending
        })
        .await;
    }

    fn place(&self, at: Nanos) -> Place<'_> {
        let mut sleepers = self.sleepers();
        sleepers.next_number += 1;
        Place { pacer: self, key: (at, sleepers.next_number) }
    }

    fn register(&self, key: Key, waker: &Waker) {
        let mut sleepers = self.sleepers();
        sleepers.wakers.insert(key, waker.clone());
        if sleepers.wakers.first_key_value().is_some_and(|(first, _)| *first == key) {
            self.arm(key.0);
        }
    }

    /// Sets the timer; a time in the past fires at once.
    fn arm(&self, at: Nanos) {
        let early = at.saturating_sub(self.spin).max(1);
        let value = Itimerspec {
            it_interval: Timespec { tv_sec: 0, tv_nsec: 0 },
            it_value: Timespec {
                tv_sec: (early / NANOS_PER_S) as i64,
                tv_nsec: (early % NANOS_PER_S) as _,
            },
        };
        // The descriptor is ours and the value well formed: nothing is left to fail.
        let _ = timerfd_settime(self.timer.get_ref(), TimerfdTimerFlags::ABSTIME, &value);
    }

    fn sleepers(&self) -> MutexGuard<'_, Sleepers> {
        self.sleepers.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Wakes what is due; says when the next one is.
    fn wake_due(&self) -> Option<Nanos> {
        let mut sleepers = self.sleepers();
        let now = now();
        while let Some(first) = sleepers.wakers.first_entry() {
            if first.key().0 > now {
                return Some(first.key().0);
            }
            first.remove().wake();
        }
        None
    }

    /// Wakes sleepers forever.
    ///
    /// # Errors
    /// The timer cannot be waited for.
    pub async fn run(&self) -> io::Result<()> {
        loop {
            match self.wake_due() {
                Some(next) if next <= now() + self.spin => tokio::task::yield_now().await,
                next => {
                    if let Some(at) = next {
                        self.arm(at);
                    }
                    let mut guard = self.timer.readable().await?;
                    let _ = guard
                        .try_io(|timer| Ok(rustix::io::read(timer.get_ref(), &mut [0_u8; 8])?));
                }
            }
        }
    }
}
