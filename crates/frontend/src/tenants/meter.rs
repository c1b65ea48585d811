//! So much per minute: a bucket that holds a minute's worth and fills evenly, as one instant (the
//! generic cell rate algorithm).

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

const MINUTE_NS: u64 = 60_000_000_000;

/// Why a meter does not let something pass.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Held {
    /// It will pass after this time, if nothing else passes before it.
    For(Duration),
    /// It is more than a minute's worth.
    ForEver,
}

/// What has passed of late. Without a lock: a thread that is descheduled here holds up no other.
#[derive(Debug, Default)]
pub struct Meter {
    /// When the bucket will be full again, nanoseconds of the caller's clock.
    full_at_ns: AtomicU64,
}

impl Meter {
    /// Lets `amount` pass at `now_ns`, of which `per_minute` may.
    ///
    /// # Errors
    /// Nothing has passed then.
    pub fn pass(&self, amount: u64, per_minute: u64, now_ns: u64) -> Result<(), Held> {
        if amount > per_minute {
            return Err(Held::ForEver);
        }
        let full_after =
            |full_at: u64| full_at.max(now_ns).saturating_add(worth_ns(amount, per_minute));
        let latest = now_ns.saturating_add(MINUTE_NS);
        // SYNC: the instant alone matters; no other memory depends on it.
        let passed =
            self.full_at_ns.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |full_at| {
                Some(full_after(full_at)).filter(|after| *after <= latest)
            });
        let too_early = |full_at| Duration::from_nanos(full_after(full_at).saturating_sub(latest));
        passed.map(drop).map_err(|full_at| Held::For(too_early(full_at)))
    }

    /// Takes `amount` at `now_ns` even if it would not pass: what a job uses is known at its end.
    /// At most a minute's worth is owed.
    pub fn take(&self, amount: u64, per_minute: u64, now_ns: u64) {
        let most = now_ns.saturating_add(2 * MINUTE_NS);
        // SYNC: as in `pass`. It never refuses.
        let _ = self.full_at_ns.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |full_at| {
            Some(full_at.max(now_ns).saturating_add(worth_ns(amount, per_minute)).min(most))
        });
    }

    /// Whether more was taken than had flowed in by `now_ns`.
    pub fn is_overdrawn(&self, now_ns: u64) -> bool {
        // SYNC: as in `pass`.
        self.full_at_ns.load(Ordering::Relaxed) > now_ns.saturating_add(MINUTE_NS)
    }

    /// Puts back what passed and was not used.
    pub fn put_back(&self, amount: u64, per_minute: u64) {
        let worth = worth_ns(amount, per_minute);
        // SYNC: as in `pass`. It never refuses.
        let _ = self.full_at_ns.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |full_at| {
            Some(full_at.saturating_sub(worth))
        });
    }
}

/// Time in which `amount` flows in.
fn worth_ns(amount: u64, per_minute: u64) -> u64 {
    let ns = u128::from(amount) * u128::from(MINUTE_NS) / u128::from(per_minute.max(1));
    u64::try_from(ns).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND_NS: u64 = 1_000_000_000;

    #[test]
    fn a_minutes_worth_passes_at_once_and_then_evenly() {
        let meter = Meter::default();
        for _ in 0..60 {
            meter.pass(1, 60, 0).unwrap();
        }
        assert_eq!(meter.pass(1, 60, 0), Err(Held::For(Duration::from_secs(1))));
        assert_eq!(meter.pass(61, 60, 0), Err(Held::ForEver));
        let later = 5 * SECOND_NS;
        assert_eq!(meter.pass(6, 60, later), Err(Held::For(Duration::from_secs(1))));
        meter.pass(5, 60, later).unwrap();
        assert!(meter.pass(1, 60, later).is_err());
        meter.put_back(2, 60);
        meter.pass(2, 60, later).unwrap();
        assert!(meter.pass(1, 60, later).is_err());
        let much_later = 3600 * SECOND_NS;
        meter.pass(60, 60, much_later).unwrap();
        assert!(meter.pass(1, 60, much_later).is_err(), "idle time is worth one minute at most");
    }

    #[test]
    fn what_is_taken_beyond_a_minutes_worth_is_owed_for_a_minute_at_most() {
        let meter = Meter::default();
        meter.take(60, 60, 0);
        assert!(!meter.is_overdrawn(0));
        meter.take(1, 60, 0);
        assert!(meter.is_overdrawn(SECOND_NS - 1));
        assert!(!meter.is_overdrawn(SECOND_NS));
        meter.take(1_000_000, 60, SECOND_NS);
        assert!(meter.is_overdrawn(60 * SECOND_NS));
        assert!(!meter.is_overdrawn(61 * SECOND_NS));
    }

    proptest::proptest! {
        #[test]
        fn no_minute_sees_more_than_twice_its_worth(
            steps in proptest::collection::vec((0u64..20_000, 1u64..40), 1..300)
        ) {
            let (meter, mut now_ms) = (Meter::default(), 0);
            let mut passed: Vec<(u64, u64)> = Vec::new();
            for (wait_ms, amount) in steps {
                now_ms += wait_ms;
                if meter.pass(amount, 100, now_ms * 1_000_000).is_ok() {
                    passed.push((now_ms, amount));
                }
                let last = passed.iter().filter(|(at, _)| at + 60_000 > now_ms);
                proptest::prop_assert!(last.map(|(_, amount)| amount).sum::<u64>() <= 200);
            }
        }
    }
}
