//! A bound on lines that strangers cause in a log.

use std::time::{Duration, Instant};

/// Lines that may be written in a period; the others are only counted.
const LINES: u32 = 10;
/// The period.
const PERIOD: Duration = Duration::from_secs(10);

/// Decides which lines about strangers are written.
#[derive(Debug)]
pub struct Lines {
    began: Instant,
    written: u32,
    left_out: u64,
}

impl Lines {
    /// From now on.
    #[must_use]
    pub fn new(now: Instant) -> Lines {
        Lines { began: now, written: 0, left_out: 0 }
    }

    /// Whether a line may be written; if so, how many were left out since the last one.
    pub fn admit(&mut self, now: Instant) -> Option<u64> {
        if now.saturating_duration_since(self.began) >= PERIOD {
            (self.began, self.written) = (now, 0);
        }
        if self.written == LINES {
            self.left_out += 1;
            return None;
        }
        self.written += 1;
        Some(std::mem::take(&mut self.left_out))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_flood_writes_some_lines_and_the_next_says_how_many_are_missing() {
        let began = Instant::now();
        let mut lines = Lines::new(began);
        let flood: Vec<_> = (0..1000).map(|_| lines.admit(began)).collect();
        assert!(flood[..10].iter().all(|line| *line == Some(0)));
        assert!(flood[10..].iter().all(Option::is_none));
        assert_eq!(lines.admit(began + PERIOD), Some(990));
        assert_eq!(lines.admit(began + PERIOD), Some(0));
    }
}
