//! Work of a fixed amount: it takes longer when its core is shared, as host work does.

use std::time::{Duration, Instant};

/// Rounds of the calibration; about a millisecond.
const PROBE_ROUNDS: u64 = 1_000_000;
/// Number of probes; the fastest is the one that was not disturbed.
const PROBES: usize = 9;

/// Does this many rounds.
pub(super) fn work(rounds: u64) {
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    for _ in 0..rounds {
        state = std::hint::black_box(state.rotate_left(5).wrapping_add(1));
    }
}

/// Rounds that take `time` on an undisturbed core.
pub(super) fn rounds_for(time: Duration) -> u64 {
    let probe = || {
        let started = Instant::now();
        work(PROBE_ROUNDS);
        started.elapsed()
    };
    let fastest = (0..PROBES).map(|_| probe()).min().unwrap_or(Duration::from_millis(1));
    let rounds = PROBE_ROUNDS as f64 * time.as_secs_f64() / fastest.as_secs_f64().max(1e-9);
    (rounds as u64).max(1)
}
