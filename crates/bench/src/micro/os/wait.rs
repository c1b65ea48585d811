//! Waits: each has a way of waiting, a limit, and a message naming the process and what it awaits.

use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use super::shared::Shareable;

/// How a process waits for another.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Wait {
    /// Spins, as a kernel of a collective does on a GPU.
    Spin,
    /// Polls and yields the core between polls; after `busy` sleeps `sleep` between polls, as
    /// engines' workers do while they wait for a broadcast.
    Yield {
        /// How long it yields before it begins to sleep.
        busy: Duration,
        /// How long one sleep is.
        sleep: Duration,
    },
    /// Spins for `spin`, then sleeps in the kernel until woken, as the device plane does on a
    /// CPU.
    Futex {
        /// How long it spins first.
        spin: Duration,
    },
}

impl Wait {
    /// As the device plane waits for a doorbell (`device/host/host_env.hpp`, `IdleWait`).
    pub(crate) const DEVICE_PLANE: Wait = Wait::Futex { spin: Duration::from_micros(20) };
}

/// Longest sleep in the kernel: a wake-up that was lost costs this much, never a hang.
const FUTEX_SLEEP: Duration = Duration::from_millis(50);

/// A count that advances, and the number of threads that sleep until it does.
#[derive(Debug, Default)]
#[repr(C, align(128))]
pub(crate) struct Bell {
    count: AtomicU32,
    sleepers: AtomicU32,
}

// SAFETY: two atomics; zeroes are a bell that was never rung. The padding is never read.
unsafe impl Shareable for Bell {}

impl Bell {
    /// Shows `count` and wakes sleepers.
    pub(crate) fn set(&self, count: u32) {
        // SYNC: release; pairs with the acquire of `count`: what was written before is visible.
        self.count.store(count, Ordering::Release);
        // SYNC: with `sleep_while`, which counts itself among the sleepers before it looks again:
        // either it sees the new count, or we see the sleeper.
        std::sync::atomic::fence(Ordering::SeqCst);
        if self.sleepers.load(Ordering::Relaxed) != 0 {
            // SAFETY: FUTEX_WAKE only looks up waiters by the address, which is mapped.
            unsafe {
                libc::syscall(libc::SYS_futex, self.count.as_ptr(), libc::FUTEX_WAKE, i32::MAX)
            };
        }
    }

    /// The count shown last.
    pub(crate) fn count(&self) -> u32 {
        // SYNC: acquire; pairs with the release in `set`.
        self.count.load(Ordering::Acquire)
    }

    /// Sleeps while the count equals `seen`, at most [`FUTEX_SLEEP`].
    fn sleep_while(&self, seen: u32) {
        // SYNC: sequentially consistent; pairs with the fence in `set`. The kernel compares the
        // count once more before it puts us to sleep.
        self.sleepers.fetch_add(1, Ordering::SeqCst);
        let limit =
            libc::timespec { tv_sec: 0, tv_nsec: FUTEX_SLEEP.subsec_nanos() as libc::c_long };
        // SAFETY: the word is mapped and aligned, `limit` outlives the call. Not FUTEX_PRIVATE: the
        // other side is another process. Every outcome means "look again".
        unsafe {
            let limit = std::ptr::from_ref(&limit);
            libc::syscall(libc::SYS_futex, self.count.as_ptr(), libc::FUTEX_WAIT, seen, limit)
        };
        self.sleepers.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Polls until there is an answer, waiting as `how` says in between; `bell` is what a
/// [`Wait::Futex`] sleeps on.
///
/// # Errors
/// After `limit`, with the message of `site`: which process waited, and for what.
pub(crate) fn wait_for<T>(
    how: Wait,
    limit: Duration,
    bell: &Bell,
    mut poll: impl FnMut() -> Option<T>,
    site: impl FnOnce() -> String,
) -> anyhow::Result<T> {
    let started = Instant::now();
    loop {
        // Before the look, so that a bell rung after it does not let us sleep.
        let seen = if matches!(how, Wait::Futex { .. }) { bell.count() } else { 0 };
        if let Some(answer) = poll() {
            return Ok(answer);
        }
        let waited = started.elapsed();
        if waited > limit {
            anyhow::bail!("waited {:.1} s: {}", waited.as_secs_f64(), site());
        }
        match how {
            Wait::Yield { busy, sleep } if waited >= busy => std::thread::sleep(sleep),
            Wait::Yield { .. } => std::thread::yield_now(),
            Wait::Futex { spin } if waited >= spin => bell.sleep_while(seen),
            Wait::Spin | Wait::Futex { .. } => std::hint::spin_loop(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const WAYS: [Wait; 3] = [
        Wait::Spin,
        Wait::Yield { busy: Duration::from_millis(1), sleep: Duration::from_millis(1) },
        Wait::DEVICE_PLANE,
    ];

    #[test]
    fn each_way_sees_the_bell() {
        for how in WAYS {
            let bell = Bell::default();
            std::thread::scope(|scope| {
                scope.spawn(|| {
                    std::thread::sleep(Duration::from_millis(5));
                    bell.set(3);
                });
                let poll = || (bell.count() >= 3).then_some(());
                wait_for(how, Duration::from_secs(20), &bell, poll, || "test".into()).unwrap();
            });
        }
    }

    #[test]
    fn each_way_ends_at_its_limit_and_names_its_site() {
        for how in WAYS {
            let limit = Duration::from_millis(20);
            let none = || None::<()>;
            let error = wait_for(how, limit, &Bell::default(), none, || "rank 3 for x".into());
            let text = error.unwrap_err().to_string();
            assert!(text.starts_with("waited 0.") && text.ends_with("rank 3 for x"), "{text}");
        }
    }
}
