//! The last minute, for the page and for `Retry-After`: bounded rings of samples.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

/// Samples kept of each kind.
const MAX_SAMPLES: usize = 2048;
/// Age beyond which a sample does not count.
const WINDOW: Duration = Duration::from_secs(60);
/// Weight of the newest request in the mean.
const MEAN_WEIGHT: f64 = 0.1;
/// Attempts to add a request to the mean, against other threads that do.
const MEAN_ATTEMPTS: usize = 8;

/// Recent samples. Every token of every stream passes here, on all HTTP threads: there is no lock
/// that a descheduled thread could hold.
pub struct Recent {
    began: Instant,
    ttft: Ring,
    tbt: Ring,
    /// The bits of an `f64`.
    mean_request_s: AtomicU64,
    tokens: AtomicU64,
}

/// A sample is a word: tenths of a second since the beginning, plus 1, and the bits of its seconds.
/// 0: none yet.
struct Ring {
    samples: Box<[AtomicU64]>,
    next: AtomicUsize,
}

/// Quantiles of the window, in seconds.
#[derive(Debug, Clone, Copy, PartialEq, serde::Serialize)]
pub struct Quantiles {
    /// Median.
    pub p50_s: f32,
    /// 99th percentile.
    pub p99_s: f32,
    /// Samples.
    pub count: usize,
}

/// What the page shows of the window.
#[derive(Debug, Clone, Copy, PartialEq, serde::Serialize)]
pub struct RecentState {
    /// Time to the first token.
    pub ttft: Option<Quantiles>,
    /// Time between tokens.
    pub tbt: Option<Quantiles>,
    /// Tokens delivered since the start.
    pub tokens_total: u64,
}

impl Default for Recent {
    fn default() -> Self {
        Self {
            began: Instant::now(),
            ttft: Ring::default(),
            tbt: Ring::default(),
            mean_request_s: AtomicU64::new(0),
            tokens: AtomicU64::new(0),
        }
    }
}

// Relaxed throughout: each word is whole by itself, and nothing else depends on it.
impl Recent {
    /// A first token.
    pub fn first_token(&self, after: Duration) {
        self.ttft.push(self.began, after);
        self.tokens.fetch_add(1, Ordering::Relaxed);
    }

    /// A later token.
    pub fn next_token(&self, after: Duration) {
        self.tbt.push(self.began, after);
        self.tokens.fetch_add(1, Ordering::Relaxed);
    }

    /// A whole request.
    pub fn request(&self, took: Duration) {
        let new = took.as_secs_f64();
        let mut bits = self.mean_request_s.load(Ordering::Relaxed);
        // A request that finds others at it every time is left out of a mean of many.
        for _ in 0..MEAN_ATTEMPTS {
            let old = f64::from_bits(bits);
            let mean = if old == 0.0 { new } else { old + MEAN_WEIGHT * (new - old) };
            let (at, relaxed) = (&self.mean_request_s, Ordering::Relaxed);
            match at.compare_exchange(bits, mean.to_bits(), relaxed, relaxed) {
                Ok(_) => return,
                Err(newer) => bits = newer,
            }
        }
    }

    /// Mean time of recent requests, weighted towards the newest; 0 before the first.
    pub fn mean_request_s(&self) -> f64 {
        f64::from_bits(self.mean_request_s.load(Ordering::Relaxed))
    }

    /// The window as it is now.
    pub fn state(&self) -> RecentState {
        RecentState {
            ttft: quantiles(self.ttft.fresh(self.began)),
            tbt: quantiles(self.tbt.fresh(self.began)),
            tokens_total: self.tokens.load(Ordering::Relaxed),
        }
    }
}

impl Default for Ring {
    fn default() -> Self {
        let samples = (0..MAX_SAMPLES).map(|_| AtomicU64::new(0)).collect();
        Self { samples, next: AtomicUsize::new(0) }
    }
}

/// Tenths of a second; 32 bits of them are 13 years.
fn tenths(time: Duration) -> u64 {
    (time.as_millis() / 100) as u64
}

impl Ring {
    fn push(&self, began: Instant, sample: Duration) {
        let word = (tenths(began.elapsed()) + 1) << 32 | u64::from(sample.as_secs_f32().to_bits());
        let next = self.next.fetch_add(1, Ordering::Relaxed) % MAX_SAMPLES;
        self.samples[next].store(word, Ordering::Relaxed);
    }

    fn fresh(&self, began: Instant) -> Vec<f32> {
        let oldest = (tenths(began.elapsed()) + 1).saturating_sub(tenths(WINDOW)).max(1);
        let words = self.samples.iter().map(|word| word.load(Ordering::Relaxed));
        let fresh = words.filter(|word| word >> 32 >= oldest);
        fresh.map(|word| f32::from_bits(word as u32)).collect()
    }
}

fn quantiles(mut samples: Vec<f32>) -> Option<Quantiles> {
    samples.sort_by(f32::total_cmp);
    let at = |q: f64| samples.get(((samples.len() as f64 * q).ceil() as usize).saturating_sub(1));
    Some(Quantiles { p50_s: *at(0.5)?, p99_s: *at(0.99)?, count: samples.len() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_are_those_of_the_samples() {
        let recent = Recent::default();
        assert_eq!(recent.state().tbt, None);
        for ms in 1..=100 {
            recent.next_token(Duration::from_millis(ms));
        }
        let tbt = recent.state().tbt.unwrap();
        assert_eq!((tbt.p50_s, tbt.p99_s, tbt.count), (0.05, 0.099, 100));
    }

    #[test]
    fn memory_is_bounded() {
        let recent = Recent::default();
        for _ in 0..3 * MAX_SAMPLES {
            recent.first_token(Duration::from_millis(1));
        }
        assert_eq!(recent.state().ttft.unwrap().count, MAX_SAMPLES);
    }
}
