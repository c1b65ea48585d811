//! So much per minute: a bucket that holds a minute's worth and fills evenly, as one instant (the
//! generic cell rate algorithm).

use std::time::{Duration, Instant};

const MINUTE: Duration = Duration::from_secs(60);

/// Why a meter does not let something pass.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Held {
    /// It will pass after this time, if nothing else passes before it.
    For(Duration),
    /// It is more than a minute's worth.
    ForEver,
}

/// What has passed of late.
#[derive(Debug, Clone, Copy, Default)]
pub struct Meter {
    /// When the bucket will be full again.
    full_at: Option<Instant>,
}

impl Meter {
    /// Lets `amount` pass, of which `per_minute` may.
    ///
    /// # Errors
    /// Nothing has passed then.
    pub fn pass(&mut self, amount: u64, per_minute: u64, now: Instant) -> Result<(), Held> {
        if amount > per_minute {
            return Err(Held::ForEver);
        }
        let full_at = self.full_at.unwrap_or(now).max(now) + worth(amount, per_minute);
        match full_at.checked_duration_since(now + MINUTE) {
            Some(too_early) if !too_early.is_zero() => Err(Held::For(too_early)),
            _ => {
                self.full_at = Some(full_at);
                Ok(())
            }
        }
    }

    /// Puts back what passed and was not used.
    pub fn put_back(&mut self, amount: u64, per_minute: u64) {
        self.full_at = self.full_at.and_then(|at| at.checked_sub(worth(amount, per_minute)));
    }
}

/// Time in which `amount` flows in.
fn worth(amount: u64, per_minute: u64) -> Duration {
    let ns = u128::from(amount) * MINUTE.as_nanos() / u128::from(per_minute.max(1));
    Duration::from_nanos(u64::try_from(ns).unwrap_or(u64::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_minutes_worth_passes_at_once_and_then_evenly() {
        let mut meter = Meter::default();
        let start = Instant::now();
        for _ in 0..60 {
            meter.pass(1, 60, start).unwrap();
        }
        assert_eq!(meter.pass(1, 60, start), Err(Held::For(Duration::from_secs(1))));
        assert_eq!(meter.pass(61, 60, start), Err(Held::ForEver));
        let later = start + Duration::from_secs(5);
        assert_eq!(meter.pass(6, 60, later), Err(Held::For(Duration::from_secs(1))));
        meter.pass(5, 60, later).unwrap();
        assert!(meter.pass(1, 60, later).is_err());
        meter.put_back(2, 60);
        meter.pass(2, 60, later).unwrap();
        assert!(meter.pass(1, 60, later).is_err());
        let much_later = start + Duration::from_secs(3600);
        meter.pass(60, 60, much_later).unwrap();
        assert!(meter.pass(1, 60, much_later).is_err(), "idle time is worth one minute at most");
    }

    proptest::proptest! {
        #[test]
        fn no_minute_sees_more_than_twice_its_worth(
            steps in proptest::collection::vec((0u64..20_000, 1u64..40), 1..300)
        ) {
            let (mut meter, start, mut now_ms) = (Meter::default(), Instant::now(), 0);
            let mut passed: Vec<(u64, u64)> = Vec::new();
            for (wait_ms, amount) in steps {
                now_ms += wait_ms;
                if meter.pass(amount, 100, start + Duration::from_millis(now_ms)).is_ok() {
                    passed.push((now_ms, amount));
                }
                let last = passed.iter().filter(|(at, _)| at + 60_000 > now_ms);
                proptest::prop_assert!(last.map(|(_, amount)| amount).sum::<u64>() <= 200);
            }
        }
    }
}
