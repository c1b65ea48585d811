//! What the micro benchmarks need of the operating system: memory that processes share, waits with
//! a bound and a name, child processes that cannot outlive their parent.

pub(crate) mod crew;
pub(crate) mod shared;
pub(crate) mod wait;

/// Nanoseconds of the monotonic clock, the same in all processes of a host.
pub(crate) fn now_ns() -> u64 {
    let mut now = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `now` is a valid place to write to. CLOCK_MONOTONIC exists on every Linux, so the
    // call cannot fail.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &mut now) };
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}
