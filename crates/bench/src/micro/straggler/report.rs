//! What `straggler` found, as data and as a table.

use saccade_load::Distribution;
use saccade_report::{Cell, Table};
use serde::{Deserialize, Serialize};

use super::barrier::Board;
use super::{Setup, WARM_UP, delayed_rank};
use crate::micro::stats::{number, of_ns_in_us};

pub(crate) const NOTES: [&str; 2] = [
    "Ranks are CPU processes that do fixed work and meet at a barrier in shared memory; \
     iteration: from the last release of one barrier to the last of the next.",
    "wait share: time that ranks spend at the barrier. spread: from the first arrival to the last. \
     wait/delay: time that all ranks together wait more, for each unit of time that one is late; a \
     delay that holds up the whole group costs N - 1. It can be less, or below 0, where ranks \
     outnumber cores: a rank that sleeps leaves its core to the others.",
];

/// One configuration; times in microseconds.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Row {
    pub ranks: usize,
    pub cores: usize,
    pub delay_us: usize,
    /// Iterations in which no rank was delayed on purpose.
    pub iteration_us: Distribution,
    /// Those in which one was.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub delayed_iteration_us: Option<Distribution>,
    /// First arrival to last, all iterations.
    pub spread_us: Distribution,
    /// Of all ranks' time, all iterations.
    pub wait_share: f64,
    /// Extra waiting of all ranks per time that one was delayed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub wait_per_delay: Option<f64>,
}

/// One measured iteration, nanoseconds.
struct Iteration {
    total: u64,
    spread: u64,
    /// Sum over ranks.
    waiting: u64,
    /// From each rank's own release before to this one, sum over ranks.
    rank_time: u64,
    delayed: bool,
}

impl Iteration {
    fn of(board: &Board, num_ranks: usize, i: usize, setup: &Setup, delay_us: usize) -> Iteration {
        let last_release =
            |i| (0..num_ranks).map(|r| board.released_ns(r, i)).max().unwrap_or_default();
        let arrivals = || (0..num_ranks).map(|r| board.arrived_ns(r, i));
        let waiting =
            (0..num_ranks).map(|r| board.released_ns(r, i).saturating_sub(board.arrived_ns(r, i)));
        let since_release = (0..num_ranks)
            .map(|r| board.released_ns(r, i).saturating_sub(board.released_ns(r, i - 1)));
        let first = arrivals().min().unwrap_or_default();
        let last = arrivals().max().unwrap_or_default();
        Iteration {
            total: last_release(i).saturating_sub(last_release(i - 1)),
            spread: last - first,
            waiting: waiting.sum(),
            rank_time: since_release.sum(),
            delayed: delay_us > 0 && delayed_rank(i, setup.delay_every, num_ranks).is_some(),
        }
    }
}

impl Row {
    /// `None` if nothing was measured.
    pub(super) fn of(
        setup: &Setup,
        board: &Board,
        num_ranks: usize,
        num_cores: usize,
        delay_us: usize,
    ) -> Option<Row> {
        let all: Vec<Iteration> = (WARM_UP..WARM_UP + setup.iterations)
            .map(|i| Iteration::of(board, num_ranks, i, setup, delay_us))
            .collect();
        let (delayed, plain): (Vec<_>, Vec<_>) = all.iter().partition(|i| i.delayed);
        let totals = |of: &[&Iteration]| -> Vec<u64> { of.iter().map(|i| i.total).collect() };
        let spreads: Vec<u64> = all.iter().map(|i| i.spread).collect();
        let waiting: u64 = all.iter().map(|i| i.waiting).sum();
        let rank_time: u64 = all.iter().map(|i| i.rank_time).sum();
        // With a delay in every iteration there is nothing to compare with.
        let per_delay = mean_waiting(&delayed).zip(mean_waiting(&plain));
        let per_delay = per_delay.map(|(with, without)| (with - without) / 1e3 / delay_us as f64);
        Some(Row {
            ranks: num_ranks,
            cores: num_cores,
            delay_us,
            iteration_us: of_ns_in_us(&totals(&plain))
                .or_else(|| of_ns_in_us(&totals(&delayed)))?,
            delayed_iteration_us: of_ns_in_us(&totals(&delayed)),
            spread_us: of_ns_in_us(&spreads)?,
            wait_share: waiting as f64 / rank_time as f64,
            wait_per_delay: per_delay,
        })
    }
}

/// Nanoseconds that all ranks together wait in one iteration.
fn mean_waiting(iterations: &[&Iteration]) -> Option<f64> {
    let sum: u64 = iterations.iter().map(|i| i.waiting).sum();
    (!iterations.is_empty()).then(|| sum as f64 / iterations.len() as f64)
}

/// All that was found.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Report {
    pub setup: Setup,
    pub rows: Vec<Row>,
    pub notes: Vec<String>,
}

impl Report {
    pub(super) fn new(setup: Setup, rows: Vec<Row>) -> Report {
        Report { setup, rows, notes: NOTES.map(str::to_owned).to_vec() }
    }

    /// A row for each configuration.
    pub(crate) fn table(&self) -> Table {
        let mut table = Table::new("Iterations with a barrier")
            .column("ranks")
            .column("cores")
            .column("delay us")
            .column("P50 us")
            .column("P99 us")
            .column("max us")
            .column("spread P50")
            .column("wait share %")
            .column("delayed P50")
            .column("wait/delay");
        for row in &self.rows {
            table.push([
                row.ranks.into(),
                row.cores.into(),
                row.delay_us.into(),
                Cell::Number(row.iteration_us.p50, 0),
                Cell::Number(row.iteration_us.p99, 0),
                Cell::Number(row.iteration_us.max, 0),
                Cell::Number(row.spread_us.p50, 0),
                Cell::Number(100.0 * row.wait_share, 0),
                number(row.delayed_iteration_us.as_ref().map(|d| d.p50), 0),
                number(row.wait_per_delay, 2),
            ]);
        }
        table
    }
}

#[cfg(test)]
mod tests {
    use super::super::barrier::BoardShape;
    use super::super::{Args, Barrier};
    use super::*;

    /// Three ranks arrive together and are released 1 us later; before each second barrier, from
    /// the first measured one on, one rank comes 40 us late.
    #[test]
    fn two_wait_for_as_long_as_one_is_late() {
        let args = Args {
            ranks: "3".into(),
            num_cores: Some("1".into()),
            delay_us: "40".into(),
            delay_every: 2,
            compute_us: 10,
            iterations: 20,
            barrier: Barrier::Spin,
            limit_s: 1,
        };
        let setup = Setup::of(&args).unwrap();
        let num_iterations = WARM_UP + setup.iterations;
        let board = Board::create(BoardShape { num_ranks: 3, num_iterations }).unwrap();
        let mut now_ns = 1_000_000;
        for i in 0..num_iterations {
            let late = delayed_rank(i, setup.delay_every, 3);
            let waited_ns = if late.is_some() { 41_000 } else { 1_000 };
            now_ns += 10_000;
            for rank in 0..3 {
                let late_ns = if late == Some(rank) { 40_000 } else { 0 };
                board.script(rank, i, now_ns + late_ns, now_ns + waited_ns);
            }
            now_ns += waited_ns;
        }
        let row = Row::of(&setup, &board, 3, 1, 40).unwrap();
        assert_eq!((row.iteration_us.count, row.iteration_us.p50), (10, 11.0));
        let delayed = row.delayed_iteration_us.unwrap();
        assert_eq!((delayed.count, delayed.p50), (10, 51.0));
        assert_eq!(row.wait_per_delay, Some(2.0));
        assert_eq!((row.spread_us.min, row.spread_us.max), (0.0, 40.0));
        let waited = 10.0 * (2.0 * 41.0 + 1.0) + 10.0 * 3.0;
        assert!((row.wait_share - waited / (3.0 * 10.0 * (51.0 + 11.0))).abs() < 1e-12);
    }

    /// Two ranks that only wait, and are released one after the other.
    #[test]
    fn ranks_wait_for_no_more_than_all_of_their_time() {
        let args = Args {
            ranks: "2".into(),
            num_cores: Some("1".into()),
            delay_us: "0".into(),
            delay_every: 10,
            compute_us: 1,
            iterations: 10,
            barrier: Barrier::Spin,
            limit_s: 1,
        };
        let setup = Setup::of(&args).unwrap();
        let num_iterations = WARM_UP + setup.iterations;
        let board = Board::create(BoardShape { num_ranks: 2, num_iterations }).unwrap();
        for i in 0..num_iterations {
            for rank in 0..2 {
                let released_ns = (i as u64 + 1) * 50_000 + rank as u64 * 30_000;
                board.script(rank, i, released_ns - 50_000, released_ns);
            }
        }
        let row = Row::of(&setup, &board, 2, 1, 0).unwrap();
        assert!((row.wait_share - 1.0).abs() < 1e-12, "{}", row.wait_share);
    }
}
