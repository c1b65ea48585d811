//! The last minute, for the page and for `Retry-After`: bounded rings of samples.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// Samples kept of each kind.
const MAX_SAMPLES: usize = 2048;
/// Age beyond which a sample does not count.
const WINDOW: Duration = Duration::from_secs(60);
/// Weight of the newest request in the mean.
const MEAN_WEIGHT: f64 = 0.1;

/// Recent samples.
#[derive(Default)]
pub struct Recent {
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    ttft: Ring,
    tbt: Ring,
    mean_request_s: f64,
    tokens: u64,
}

#[derive(Default)]
struct Ring {
    samples: Vec<(Instant, f32)>,
    next: usize,
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

impl Recent {
    /// A first token.
    pub fn first_token(&self, after: Duration) {
        let mut state = self.lock();
        state.ttft.push(after);
        state.tokens += 1;
    }

    /// A later token.
    pub fn next_token(&self, after: Duration) {
        let mut state = self.lock();
        state.tbt.push(after);
        state.tokens += 1;
    }

    /// A whole request.
    pub fn request(&self, took: Duration) {
        let mut state = self.lock();
        let (old, new) = (state.mean_request_s, took.as_secs_f64());
        state.mean_request_s = if old == 0.0 { new } else { old + MEAN_WEIGHT * (new - old) };
    }

    /// Mean time of recent requests, weighted towards the newest; 0 before the first.
    pub fn mean_request_s(&self) -> f64 {
        self.lock().mean_request_s
    }

    /// The window as it is now.
    pub fn state(&self) -> RecentState {
        let (ttft, tbt, tokens_total) = {
            let state = self.lock();
            (state.ttft.fresh(), state.tbt.fresh(), state.tokens)
        };
        RecentState { ttft: quantiles(ttft), tbt: quantiles(tbt), tokens_total }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // Samples are consistent after any panic: at worst one is missing.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Ring {
    fn push(&mut self, sample: Duration) {
        let sample = (Instant::now(), sample.as_secs_f32());
        if self.samples.len() < MAX_SAMPLES {
            self.samples.push(sample);
        } else {
            self.samples[self.next] = sample;
        }
        self.next = (self.next + 1) % MAX_SAMPLES;
    }

    fn fresh(&self) -> Vec<f32> {
        let fresh = self.samples.iter().filter(|(at, _)| at.elapsed() <= WINDOW);
        fresh.map(|(_, seconds)| *seconds).collect()
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
