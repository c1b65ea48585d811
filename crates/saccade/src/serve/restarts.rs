//! How often, and how soon, a plane that dies is started again.

use std::fmt;
use std::time::Duration;

/// A plane that has served for so long was healthy: its death is the first of a new row.
const STABLE_AFTER: Duration = Duration::from_secs(10);
/// Before the second start in a row; the first one is at once. Doubles with each.
const FIRST_PAUSE: Duration = Duration::from_millis(100);

/// Deaths in a row of one plane.
#[derive(Debug)]
pub(super) struct Restarts {
    max: usize,
    longest_pause: Duration,
    in_a_row: usize,
}

impl Restarts {
    /// At most `max` starts in a row, with pauses of at most `longest_pause`.
    pub fn new(max: usize, longest_pause: Duration) -> Restarts {
        Restarts { max, longest_pause, in_a_row: 0 }
    }

    /// After a death of a plane that had served for `served`: how long to wait before it is started
    /// again. None: it is given up.
    pub fn pause(&mut self, served: Duration) -> Option<Duration> {
        if served >= STABLE_AFTER {
            self.in_a_row = 0;
        }
        self.in_a_row += 1;
        if self.in_a_row > self.max {
            return None;
        }
        let Some(doublings) = self.in_a_row.checked_sub(2) else { return Some(Duration::ZERO) };
        let factor = 1u32.checked_shl(doublings.try_into().unwrap_or(u32::MAX)).unwrap_or(u32::MAX);
        Some(FIRST_PAUSE.saturating_mul(factor).min(self.longest_pause))
    }
}

impl fmt::Display for Restarts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "it died {} times in a row, {} are allowed", self.in_a_row, self.max)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LONGEST_PAUSE: Duration = Duration::from_secs(10);

    #[test]
    fn pauses_double_up_to_a_bound_and_end() {
        let mut restarts = Restarts::new(10, LONGEST_PAUSE);
        let pauses: Vec<_> = (0..11).map(|_| restarts.pause(Duration::ZERO)).collect();
        let ms = [0, 100, 200, 400, 800, 1600, 3200, 6400, 10_000, 10_000];
        let mut expected: Vec<_> = ms.iter().map(|ms| Some(Duration::from_millis(*ms))).collect();
        expected.push(None);
        assert_eq!(pauses, expected);
    }

    #[test]
    fn a_plane_that_served_begins_anew() {
        let mut restarts = Restarts::new(2, LONGEST_PAUSE);
        for served in [0, 1, 60, 9, 10, 0] {
            assert!(restarts.pause(Duration::from_secs(served)).is_some(), "{served}");
        }
        assert_eq!(restarts.pause(Duration::from_secs(9)), None);
    }

    #[test]
    fn many_restarts_wait_no_longer_than_the_bound() {
        let mut restarts = Restarts::new(1000, LONGEST_PAUSE);
        for _ in 0..1000 {
            assert!(restarts.pause(Duration::ZERO) <= Some(LONGEST_PAUSE));
        }
        assert_eq!(restarts.pause(Duration::ZERO), None);
        assert_eq!(Restarts::new(0, LONGEST_PAUSE).pause(Duration::from_secs(3600)), None);
    }
}
