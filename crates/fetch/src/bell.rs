//! What workers wait on: a count of rings. A waiter says which count it has seen, spins for a
//! bounded time, and then sleeps.

use std::hint::spin_loop;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Condvar, Mutex, PoisonError};
use std::time::Duration;

/// Longest sleep. Nothing depends on it: a ring is not lost.
const MAX_SLEEP: Duration = Duration::from_millis(50);

#[derive(Debug, Default)]
pub(crate) struct Bell {
    rings: AtomicU64,
    sleepers: AtomicU32,
    lock: Mutex<()>,
    rung: Condvar,
}

impl Bell {
    /// Taken before looking for work; given to [`Self::wait`] if there was none.
    pub fn look(&self) -> u64 {
        // SYNC: acquire; pairs with the ring: what was queued before it is seen after this.
        self.rings.load(Ordering::Acquire)
    }

    /// There may be work.
    pub fn ring(&self) {
        // SYNC: sequentially consistent, as in `wait`: either this sees the sleeper, or the sleeper
        // sees the ring.
        self.rings.fetch_add(1, Ordering::SeqCst);
        // SYNC: see above.
        if self.sleepers.load(Ordering::SeqCst) != 0 {
            // A sleeper holds the lock from when it is counted until it sleeps.
            drop(self.lock.lock().unwrap_or_else(PoisonError::into_inner));
            self.rung.notify_all();
        }
    }

    /// Returns when the bell was rung after `seen` was taken; at the latest after [`MAX_SLEEP`].
    pub fn wait(&self, seen: u64, spins: u32) {
        for _ in 0..spins {
            if self.look() != seen {
                return;
            }
            spin_loop();
        }
        let guard = self.lock.lock().unwrap_or_else(PoisonError::into_inner);
        // SYNC: sequentially consistent; mirrors `ring`.
        self.sleepers.fetch_add(1, Ordering::SeqCst);
        // SYNC: see above.
        if self.rings.load(Ordering::SeqCst) == seen {
            // Woken, timed out or poisoned: the caller looks again in any case.
            drop(self.rung.wait_timeout(guard, MAX_SLEEP));
        }
        // SYNC: relaxed; a ringer that still counts this one wakes no one.
        self.sleepers.fetch_sub(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::time::Instant;

    use super::*;

    #[test]
    fn a_ring_before_the_wait_is_not_missed() {
        let bell = Bell::default();
        // A busy host may hold up a few of them.
        let quickest = (0..20).map(|_| {
            let seen = bell.look();
            bell.ring();
            let began = Instant::now();
            bell.wait(seen, 0);
            began.elapsed()
        });
        assert!(quickest.min() < Some(MAX_SLEEP / 2));
    }

    /// Two threads hand a token to and fro: one lost ring costs `MAX_SLEEP`.
    #[test]
    fn no_ring_is_lost() {
        const ROUNDS: u64 = 2000;
        let (bell, turn) = (Arc::new(Bell::default()), Arc::new(AtomicU64::new(0)));
        let play = |me: u64, bell: Arc<Bell>, turn: Arc<AtomicU64>| {
            for round in 0..ROUNDS {
                loop {
                    let seen = bell.look();
                    if turn.load(Ordering::Relaxed) == 2 * round + me {
                        break;
                    }
                    bell.wait(seen, (round % 3) as u32 * 50);
                }
                turn.fetch_add(1, Ordering::Relaxed);
                bell.ring();
            }
        };
        let began = Instant::now();
        let other = {
            let (bell, turn) = (bell.clone(), turn.clone());
            std::thread::spawn(move || play(1, bell, turn))
        };
        play(0, bell, turn);
        other.join().unwrap();
        assert!(began.elapsed() < MAX_SLEEP * ROUNDS as u32 / 10, "{:?}", began.elapsed());
    }
}
