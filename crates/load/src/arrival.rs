//! When requests come.

use rand::SeedableRng;
use rand_distr::Distribution as _;
use rand_pcg::Pcg64;
use serde::{Deserialize, Serialize};

use crate::LoadError;
use crate::spec::MAX_SECONDS;

/// An arrival process. All but the first are open-loop: no answer is waited for.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "process", rename_all = "snake_case")]
pub enum Arrival {
    /// The same number of requests at all times: the next is sent when one ends.
    Closed {
        /// Requests in flight.
        concurrency: usize,
    },
    /// Evenly spaced.
    Constant {
        /// Requests per second.
        rate_rps: f64,
    },
    /// Independent arrivals: exponential gaps.
    Poisson {
        /// Mean requests per second.
        rate_rps: f64,
    },
    /// Gamma-distributed gaps, as `--burstiness` of vLLM: below 1 burstier than Poisson, 1 is
    /// Poisson, above 1 more even.
    Bursty {
        /// Mean requests per second.
        rate_rps: f64,
        /// Shape of the gamma distribution.
        burstiness: f64,
    },
    /// Recorded times; the run ends with the last.
    Replay {
        /// Seconds since the start, not decreasing.
        timestamps_s: Vec<f64>,
    },
}

impl Arrival {
    /// Independent arrivals, or with gaps of another shape than 1, as `--burstiness` of vLLM.
    pub fn random(rate_rps: f64, burstiness: f64) -> Arrival {
        match burstiness {
            1.0 => Arrival::Poisson { rate_rps },
            burstiness => Arrival::Bursty { rate_rps, burstiness },
        }
    }

    /// Mean requests per second; `None` for a closed loop and for a replay of one instant.
    pub fn rate_rps(&self) -> Option<f64> {
        match self {
            Arrival::Closed { .. } => None,
            Arrival::Constant { rate_rps }
            | Arrival::Poisson { rate_rps }
            | Arrival::Bursty { rate_rps, .. } => Some(*rate_rps),
            Arrival::Replay { timestamps_s } => {
                let span = timestamps_s.last()? - timestamps_s.first()?;
                (span > 0.0).then(|| (timestamps_s.len() - 1) as f64 / span)
            }
        }
    }

    pub(crate) fn validate(&self) -> Result<(), LoadError> {
        match self {
            Arrival::Closed { concurrency: 0 } => {
                Err(LoadError::spec("concurrency", "must be at least 1"))
            }
            Arrival::Closed { .. } => Ok(()),
            Arrival::Constant { rate_rps } | Arrival::Poisson { rate_rps } => check_rate(*rate_rps),
            Arrival::Bursty { rate_rps, burstiness } => {
                check_rate(*rate_rps)?;
                if *burstiness >= MIN_BURSTINESS && *burstiness <= MAX_BURSTINESS {
                    return Ok(());
                }
                let bounds = format!("{MIN_BURSTINESS}..={MAX_BURSTINESS}");
                Err(LoadError::spec("burstiness", format!("must lie in {bounds}")))
            }
            Arrival::Replay { timestamps_s } => check_timestamps(timestamps_s),
        }
    }

    /// The intended times of an open loop in seconds, for planning without sending.
    ///
    /// # Errors
    /// For bounds, as a run would; and for a closed loop, whose times its answers decide.
    pub fn schedule(&self, seed: u64) -> Result<impl Iterator<Item = f64>, LoadError> {
        self.validate()?;
        self.times(seed).ok_or_else(|| LoadError::spec("arrival", "is a closed loop"))
    }

    /// The intended times of an open loop in seconds; `None` for a closed one.
    pub(crate) fn times(&self, seed: u64) -> Option<Times> {
        let gaps = match *self {
            Arrival::Closed { .. } => return None,
            Arrival::Constant { rate_rps } => Gaps::Constant(1.0 / rate_rps),
            Arrival::Poisson { rate_rps } => Gaps::gamma(rate_rps, 1.0)?,
            Arrival::Bursty { rate_rps, burstiness } => Gaps::gamma(rate_rps, burstiness)?,
            Arrival::Replay { ref timestamps_s } => Gaps::Replay(timestamps_s.clone()),
        };
        Some(Times { gaps, rng: Pcg64::seed_from_u64(seed), last_s: 0.0, index: 0 })
    }
}

const MAX_RATE_RPS: f64 = 1e6;
const MIN_BURSTINESS: f64 = 1e-3;
const MAX_BURSTINESS: f64 = 1e6;

fn check_rate(rate_rps: f64) -> Result<(), LoadError> {
    if rate_rps > 1.0 / MAX_SECONDS && rate_rps <= MAX_RATE_RPS {
        return Ok(());
    }
    Err(LoadError::spec("rate", format!("must lie in (0, {MAX_RATE_RPS}] requests/s")))
}

fn check_timestamps(timestamps_s: &[f64]) -> Result<(), LoadError> {
    let field = "timestamps";
    if timestamps_s.is_empty() {
        return Err(LoadError::spec(field, "must not be empty"));
    }
    if let Some(i) = timestamps_s.windows(2).position(|pair| pair[1] < pair[0]) {
        return Err(LoadError::spec(field, format!("number {} is before number {i}", i + 1)));
    }
    let inside = |t: &f64| *t >= 0.0 && *t <= MAX_SECONDS;
    match timestamps_s.iter().find(|t| !inside(t)) {
        Some(bad) => Err(LoadError::spec(field, format!("{bad} is not in 0..={MAX_SECONDS} s"))),
        None => Ok(()),
    }
}

/// Draws intended times, in ascending order.
#[derive(Debug)]
pub(crate) struct Times {
    gaps: Gaps,
    rng: Pcg64,
    last_s: f64,
    index: usize,
}

#[derive(Debug)]
enum Gaps {
    Constant(f64),
    Gamma(rand_distr::Gamma<f64>),
    Replay(Vec<f64>),
}

impl Gaps {
    fn gamma(rate_rps: f64, shape: f64) -> Option<Gaps> {
        rand_distr::Gamma::new(shape, 1.0 / (rate_rps * shape)).ok().map(Gaps::Gamma)
    }
}

impl Iterator for Times {
    type Item = f64;

    fn next(&mut self) -> Option<f64> {
        let index = self.index;
        self.index += 1;
        self.last_s = match &self.gaps {
            // Not a sum, so that rounding does not add up over a long run.
            Gaps::Constant(gap) => index as f64 * gap,
            Gaps::Gamma(gap) => self.last_s + gap.sample(&mut self.rng),
            Gaps::Replay(times) => *times.get(index)?,
        };
        Some(self.last_s)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn gaps(arrival: &Arrival, n: usize) -> Vec<f64> {
        let times: Vec<f64> = arrival.times(7).expect("open loop").take(n + 1).collect();
        times.windows(2).map(|w| w[1] - w[0]).collect()
    }

    fn mean_and_cv(values: &[f64]) -> (f64, f64) {
        let d = crate::Distribution::of(values.iter().copied());
        (d.mean, d.std / d.mean)
    }

    #[test]
    fn gaps_have_the_mean_of_the_rate_and_the_spread_of_the_process() {
        let cases = [
            (Arrival::Constant { rate_rps: 20.0 }, 0.0),
            (Arrival::Poisson { rate_rps: 20.0 }, 1.0),
            // The coefficient of variation of a gamma distribution is 1/sqrt(shape).
            (Arrival::Bursty { rate_rps: 20.0, burstiness: 0.25 }, 2.0),
            (Arrival::Bursty { rate_rps: 20.0, burstiness: 4.0 }, 0.5),
        ];
        for (arrival, expected_cv) in cases {
            let (mean, cv) = mean_and_cv(&gaps(&arrival, 40_000));
            assert!((mean - 0.05).abs() < 0.002, "{arrival:?}: mean gap {mean}");
            assert!((cv - expected_cv).abs() < 0.06, "{arrival:?}: cv {cv}");
        }
    }

    #[test]
    fn a_replay_gives_its_times_and_ends() {
        let arrival = Arrival::Replay { timestamps_s: vec![0.0, 0.0, 1.5] };
        let times: Vec<f64> = arrival.times(1).expect("open loop").collect();
        assert_eq!(times, [0.0, 0.0, 1.5]);
        assert_eq!(arrival.rate_rps(), Some(2.0 / 1.5));
    }

    #[test]
    fn bounds_are_named() {
        let bad = [
            (Arrival::Closed { concurrency: 0 }, "concurrency"),
            (Arrival::Poisson { rate_rps: f64::NAN }, "rate"),
            (Arrival::Constant { rate_rps: 0.0 }, "rate"),
            (Arrival::Bursty { rate_rps: 1.0, burstiness: 0.0 }, "burstiness"),
            (Arrival::Replay { timestamps_s: vec![] }, "timestamps"),
            (Arrival::Replay { timestamps_s: vec![1.0, 0.5] }, "timestamps"),
        ];
        for (arrival, field) in bad {
            let error = arrival.validate().expect_err("out of bounds").to_string();
            assert!(error.contains(field), "{error}");
        }
    }

    proptest! {
        #[test]
        fn times_never_decrease_and_follow_the_seed(
            seed: u64, rate in 0.1f64..1e4, burstiness in 0.05f64..20.0,
        ) {
            let arrival = Arrival::Bursty { rate_rps: rate, burstiness };
            let draw = |seed| arrival.times(seed).expect("open loop").take(200).collect::<Vec<_>>();
            let times = draw(seed);
            prop_assert!(times.windows(2).all(|w| w[1] >= w[0]));
            prop_assert_eq!(&times, &draw(seed));
        }
    }
}
