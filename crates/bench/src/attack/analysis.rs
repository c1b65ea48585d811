//! Results of the series: times by cores, and what more cores gain.

use serde::{Deserialize, Serialize};

use super::record::{Attack, Record, Series};

/// Victims' times of one server under one attack on one number of cores.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct CellResult {
    /// Name of the server.
    pub server: String,
    /// None: the baseline.
    pub attack: Option<Attack>,
    /// Cores of the server.
    pub cores: usize,
    /// Series whose client was on time.
    pub series: usize,
    /// How many of them had a victim time out.
    pub timed_out_series: usize,
    /// Mean time to the first token over all victims that got one, seconds.
    pub ttft_mean_s: Option<f64>,
    /// Its standard deviation over the series' own means (n − 1); none below two series.
    pub ttft_std_s: Option<f64>,
    /// By position in the series, from 1: mean, standard deviation over the series, time-outs.
    pub positions: Vec<Position>,
    /// Series left out because the client itself was late.
    pub untrusted_series: usize,
}

/// One position of the victims' series.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Position {
    /// From 1.
    pub position: usize,
    /// Mean time to the first token, seconds.
    pub ttft_mean_s: Option<f64>,
    /// Standard deviation over the series (n − 1); none below two.
    pub ttft_std_s: Option<f64>,
    /// Victims that timed out here.
    pub timed_out: usize,
}

impl CellResult {
    /// A configuration whose victims time out in at least half of its series has no time.
    #[must_use]
    pub fn timed_out(&self) -> bool {
        self.timed_out_series > 0 && self.timed_out_series * 2 >= self.series
    }

    /// From the series of one server, attack and number of cores.
    #[must_use]
    pub fn of(
        server: &str,
        attack: Option<Attack>,
        cores: usize,
        measured: &[&Series],
    ) -> CellResult {
        let trusted = measured.iter().copied().filter(|series| series.distrust.is_empty());
        let all: Vec<&Series> = trusted.collect();
        let all = all.as_slice();
        let times = |series: &&Series| -> Vec<f64> {
            series.victims.iter().filter_map(|victim| victim.ttft_s).collect()
        };
        let every: Vec<f64> = all.iter().flat_map(times).collect();
        let means: Vec<f64> = all.iter().filter_map(|series| mean(&times(series))).collect();
        let longest = all.iter().map(|series| series.victims.len()).max().unwrap_or(0);
        CellResult {
            server: server.to_owned(),
            attack,
            cores,
            series: all.len(),
            timed_out_series: all.iter().filter(|series| series.timed_out()).count(),
            ttft_mean_s: mean(&every),
            ttft_std_s: deviation(&means),
            positions: (1..=longest).map(|position| Position::of(position, all)).collect(),
            untrusted_series: measured.len() - all.len(),
        }
    }
}

impl Position {
    fn of(position: usize, all: &[&Series]) -> Position {
        let here = || all.iter().filter_map(|series| series.victims.get(position - 1));
        let times: Vec<f64> = here().filter_map(|victim| victim.ttft_s).collect();
        Position {
            position,
            ttft_mean_s: mean(&times),
            ttft_std_s: deviation(&times),
            timed_out: here().filter(|victim| victim.timed_out()).count(),
        }
    }
}

/// What the best of the other budgets gains over the smallest one.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum Speedup {
    /// Time with the fewest cores ÷ the best time with more.
    Times {
        /// The quotient.
        value: f64,
        /// The best number of cores.
        cores: usize,
    },
    /// Victims time out with the fewest cores and not with more: infinite.
    LeastTimesOut {
        /// The best number of cores.
        cores: usize,
    },
    /// They time out with any number of cores.
    AllTimeOut,
    /// Something is missing.
    NotMeasured,
}

impl Speedup {
    /// As a heatmap wants it: infinity for a time-out with the fewest cores only, not-a-number
    /// where there is nothing to compare.
    #[must_use]
    pub fn as_number(self) -> f64 {
        match self {
            Speedup::Times { value, .. } => value,
            Speedup::LeastTimesOut { .. } => f64::INFINITY,
            Speedup::AllTimeOut | Speedup::NotMeasured => f64::NAN,
        }
    }

    /// From the results by cores, in any order.
    #[must_use]
    pub fn of(results: &[&CellResult]) -> Speedup {
        let Some(least) = results.iter().min_by_key(|result| result.cores) else {
            return Speedup::NotMeasured;
        };
        let more = || results.iter().filter(|result| result.cores > least.cores);
        let time = |result: &CellResult| result.ttft_mean_s.filter(|_| !result.timed_out());
        let best = more()
            .filter_map(|result| Some((time(result)?, result.cores)))
            .min_by(|a, b| a.0.total_cmp(&b.0));
        match (time(least), best) {
            (Some(slow), Some((fast, cores))) if fast > 0.0 => {
                Speedup::Times { value: slow / fast, cores }
            }
            (None, Some((_, cores))) if least.timed_out() => Speedup::LeastTimesOut { cores },
            (None, None) if least.timed_out() && more().all(|result| result.timed_out()) => {
                Speedup::AllTimeOut
            }
            _ => Speedup::NotMeasured,
        }
    }
}

/// One field of the heatmap.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct SpeedupResult {
    /// Name of the server.
    pub server: String,
    /// The attack.
    pub attack: Attack,
    /// What more cores give.
    pub speedup: Speedup,
}

/// Fills in `cells` and `speedups`.
pub(super) fn analyse(record: &mut Record) {
    let mut cells = Vec::new();
    let mut speedups = Vec::new();
    for server in &record.servers {
        let attacks = std::iter::once(None).chain(record.attacks.iter().copied().map(Some));
        for attack in attacks {
            let results: Vec<CellResult> = record
                .budgets
                .iter()
                .map(|budget| {
                    let of = |series: &&Series| {
                        series.server == server.name
                            && series.attack == attack
                            && series.cores == budget.count
                            && series.error.is_none()
                    };
                    let all: Vec<&Series> = record.series.iter().filter(of).collect();
                    CellResult::of(&server.name, attack, budget.count, &all)
                })
                .collect();
            if let Some(attack) = attack {
                let speedup = Speedup::of(&results.iter().collect::<Vec<_>>());
                speedups.push(SpeedupResult { server: server.name.clone(), attack, speedup });
            }
            cells.extend(results);
        }
    }
    (record.cells, record.speedups) = (cells, speedups);
}

fn mean(values: &[f64]) -> Option<f64> {
    (!values.is_empty()).then(|| values.iter().sum::<f64>() / values.len() as f64)
}

fn deviation(values: &[f64]) -> Option<f64> {
    let mean = mean(values)?;
    let squares: f64 = values.iter().map(|value| (value - mean).powi(2)).sum();
    (values.len() > 1).then(|| (squares / (values.len() - 1) as f64).sqrt())
}

#[cfg(test)]
mod tests {
    use super::*;
    use saccade_load::Outcome;

    use super::super::record::Victim;

    /// Victims by their seconds; none: timed out.
    fn series(times: &[Option<f64>]) -> Series {
        let victim = |(i, ttft_s): (usize, &Option<f64>)| Victim {
            position: i + 1,
            ttft_s: *ttft_s,
            e2e_s: ttft_s.unwrap_or(200.0),
            prompt_tokens: None,
            outcome: if ttft_s.is_some() { Outcome::Ok } else { Outcome::Timeout },
        };
        Series {
            index: 0,
            repeat: 0,
            server: "s".into(),
            cores: 1,
            client_cores: Default::default(),
            attack: None,
            started_unix_s: 0.0,
            victims: times.iter().enumerate().map(victim).collect(),
            attackers: None,
            client: None,
            distrust: Vec::new(),
            host: None,
            drained_s: None,
            error: None,
        }
    }

    fn result(cores: usize, all: &[&[Option<f64>]]) -> CellResult {
        let all: Vec<Series> = all.iter().map(|times| series(times)).collect();
        CellResult::of("s", None, cores, &all.iter().collect::<Vec<_>>())
    }

    #[test]
    fn times_by_position_and_over_all() {
        let cell = result(1, &[&[Some(1.0), Some(2.0)], &[Some(3.0), None]]);
        assert_eq!((cell.series, cell.timed_out_series), (2, 1));
        assert!(cell.timed_out());
        assert_eq!(cell.ttft_mean_s, Some(2.0));
        // Means of the series are 1.5 and 3.
        assert!((cell.ttft_std_s.unwrap() - 1.5 / 2f64.sqrt()).abs() < 1e-12);
        assert_eq!(cell.positions[0].ttft_mean_s, Some(2.0));
        assert_eq!((cell.positions[1].ttft_mean_s, cell.positions[1].timed_out), (Some(2.0), 1));
    }

    #[test]
    fn a_series_whose_client_was_late_is_left_out() {
        let (good, mut late) = (series(&[Some(1.0)]), series(&[Some(9.0), None]));
        late.distrust.push("the client sent late".into());
        let cell = CellResult::of("s", None, 1, &[&good, &late]);
        assert_eq!((cell.series, cell.untrusted_series, cell.timed_out_series), (1, 1, 0));
        assert_eq!((cell.ttft_mean_s, cell.positions.len()), (Some(1.0), 1));
        let none = CellResult::of("s", None, 1, &[&late]);
        assert_eq!((none.series, none.ttft_mean_s, none.timed_out()), (0, None, false));
    }

    #[test]
    fn speedups() {
        let slow = result(5, &[&[Some(10.0)]]);
        let fast = result(8, &[&[Some(4.0)]]);
        let faster = result(16, &[&[Some(2.0)]]);
        let stuck = result(5, &[&[None]]);
        let stuck_too = result(8, &[&[None]]);
        let missing = result(8, &[]);
        let cases: [(&[&CellResult], Speedup); 6] = [
            (&[&slow, &fast, &faster], Speedup::Times { value: 5.0, cores: 16 }),
            (&[&faster, &slow, &stuck_too], Speedup::Times { value: 5.0, cores: 16 }),
            (&[&stuck, &fast], Speedup::LeastTimesOut { cores: 8 }),
            (&[&stuck, &stuck_too], Speedup::AllTimeOut),
            (&[&stuck, &missing], Speedup::NotMeasured),
            (&[&slow], Speedup::NotMeasured),
        ];
        for (results, expected) in cases {
            assert_eq!(Speedup::of(results), expected, "{results:?}");
        }
        assert_eq!(Speedup::of(&[&stuck, &fast]).as_number(), f64::INFINITY);
        assert!(Speedup::AllTimeOut.as_number().is_nan());
    }
}
