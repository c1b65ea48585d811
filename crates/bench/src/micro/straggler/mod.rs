//! `saccade bench micro straggler`: collectives with a barrier, when ranks outnumber cores.
//!
//! N processes do the same fixed work (what a host does to launch the next collective) and meet at
//! a barrier, again and again, on C cores. A rank without a core holds up all others.

mod barrier;
mod report;
mod work;

use std::time::Duration;

use anyhow::Context;
use saccade_host::CpuSet;
use serde::{Deserialize, Serialize};

use super::numbers::{self, within};
use super::os::crew::{Crew, Part};
use super::os::wait::Wait;
use super::role::Role;
use crate::output::counted;
use barrier::{Board, BoardShape};
pub(crate) use report::{Report, Row};

/// Iterations before the measured ones.
const WARM_UP: usize = 8;

/// Flags of `saccade bench micro straggler`.
#[derive(Debug, Clone, clap::Args)]
#[group(skip)]
pub struct Args {
    /// Numbers of ranks, as a list of numbers and ranges
    #[arg(long, default_value = "2,4,8", value_name = "LIST")]
    ranks: String,
    /// Numbers of cores that the ranks share, as a list [default: 1, and all of this process]
    #[arg(long, value_name = "LIST")]
    num_cores: Option<String>,
    /// Delays of one rank in microseconds, as a list
    #[arg(long, default_value = "0,1000", value_name = "LIST")]
    delay_us: String,
    /// Delay a rank, each time another one, in one of N iterations
    #[arg(long, value_name = "N", default_value_t = 10, value_parser = within::<u32>(1..=10_000))]
    delay_every: u32,
    /// Work between two barriers, in microseconds of an undisturbed core
    #[arg(long, default_value_t = 200, value_parser = within::<u64>(1..=1_000_000))]
    compute_us: u64,
    /// Measured iterations of each configuration
    #[arg(long, default_value_t = 400, value_parser = within::<u32>(10..=100_000))]
    iterations: u32,
    /// Way of waiting at the barrier
    #[arg(long, value_enum, default_value_t = Barrier::Spin)]
    barrier: Barrier,
    /// Longest wait of a rank for the others, in seconds
    #[arg(long, default_value_t = 30, value_parser = within::<u64>(1..=600))]
    limit_s: u64,
}

/// How ranks wait at the barrier.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Barrier {
    /// Without pause, as collectives do
    Spin,
    /// Yielding the core between looks
    Yield,
}

impl Barrier {
    fn wait(self) -> Wait {
        match self {
            Barrier::Spin => Wait::Spin,
            Barrier::Yield => Wait::Yield { busy: Duration::MAX, sleep: Duration::ZERO },
        }
    }
}

/// The flags, read and checked.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Setup {
    pub ranks: Vec<usize>,
    pub num_cores: Vec<usize>,
    pub delay_us: Vec<usize>,
    pub delay_every: usize,
    pub compute_us: u64,
    pub iterations: usize,
    pub barrier: Barrier,
    #[serde(skip)]
    cores: CpuSet,
    #[serde(skip)]
    limit: Duration,
}

impl Setup {
    fn of(args: &Args) -> anyhow::Result<Setup> {
        let cores = CpuSet::of_task(0).context("read the cores of this process")?;
        let num_cores = match &args.num_cores {
            Some(list) => numbers::list("--num-cores", list, 1..=cores.len())?,
            None if cores.len() == 1 => vec![1],
            None => vec![1, cores.len()],
        };
        Ok(Setup {
            ranks: numbers::list("--ranks", &args.ranks, 1..=256)?,
            num_cores,
            delay_us: numbers::list("--delay-us", &args.delay_us, 0..=1_000_000)?,
            delay_every: args.delay_every as usize,
            compute_us: args.compute_us,
            iterations: args.iterations as usize,
            barrier: args.barrier,
            cores,
            limit: Duration::from_secs(args.limit_s),
        })
    }
}

/// One rank process.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Rank {
    board_fd: i32,
    board: BoardShape,
    rank: usize,
    /// Rounds of work between barriers.
    work_rounds: u64,
    delay: Duration,
    delay_every: usize,
    wait: Wait,
    limit: Duration,
}

/// The rank that is delayed before the barrier of `iteration`, if one is.
fn delayed_rank(iteration: usize, every: usize, num_ranks: usize) -> Option<usize> {
    let measured = iteration.checked_sub(WARM_UP)?;
    (measured % every == every - 1).then(|| measured / every % num_ranks)
}

impl Rank {
    /// Works and meets the others.
    ///
    /// # Errors
    /// If the others do not come.
    pub(crate) fn play(&self, who: &str) -> anyhow::Result<()> {
        let board = Board::adopt(self.board_fd, self.board).context("board")?;
        let num_ranks = self.board.num_ranks;
        for iteration in 0..self.board.num_iterations {
            let delayed = delayed_rank(iteration, self.delay_every, num_ranks);
            if delayed == Some(self.rank) && !self.delay.is_zero() {
                std::thread::sleep(self.delay);
            }
            work::work(self.work_rounds);
            board.meet(who, self.rank, iteration, self.wait, self.limit)?;
        }
        Ok(())
    }
}

/// Runs all configurations.
///
/// # Errors
/// Of the flags, or of a rank.
pub(crate) fn measure(args: &Args) -> anyhow::Result<Report> {
    let setup = Setup::of(args)?;
    let work_rounds = work::rounds_for(Duration::from_micros(setup.compute_us));
    let mut rows = Vec::new();
    for &num_ranks in &setup.ranks {
        for &num_cores in &setup.num_cores {
            let configuration =
                format!("{} on {}", counted(num_ranks, "rank"), counted(num_cores, "core"));
            eprintln!("straggler: {configuration}");
            for &delay_us in &setup.delay_us {
                let board = run(&setup, num_ranks, num_cores, delay_us, work_rounds)
                    .with_context(|| configuration.clone())?;
                rows.extend(Row::of(&setup, &board, num_ranks, num_cores, delay_us));
            }
        }
    }
    Ok(Report::new(setup, rows))
}

fn run(
    setup: &Setup,
    num_ranks: usize,
    num_cores: usize,
    delay_us: usize,
    work_rounds: u64,
) -> anyhow::Result<Board> {
    let shape = BoardShape { num_ranks, num_iterations: WARM_UP + setup.iterations };
    let board = Board::create(shape)?;
    let mut crew = Crew::default();
    for rank in 0..num_ranks {
        let role = Rank {
            board_fd: board.fd(),
            board: shape,
            rank,
            work_rounds,
            delay: Duration::from_micros(delay_us as u64),
            delay_every: setup.delay_every,
            wait: setup.barrier.wait(),
            limit: setup.limit,
        };
        let part = Part {
            name: format!("rank {rank}"),
            cores: setup.cores.first(num_cores),
            role: Role::Straggler(role),
        };
        crew.start(&part, &[board.fd()])?;
    }
    // Each iteration takes at most the limit, and a crew that fails ends itself.
    crew.finish(setup.limit.saturating_mul(shape.num_iterations as u32))?;
    Ok(board)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_rank_gets_its_turn_to_be_late() {
        let late_at = |i: usize| Some((i - WARM_UP, delayed_rank(i, 4, 2)?));
        let late: Vec<_> = (WARM_UP..WARM_UP + 12).filter_map(late_at).collect();
        assert_eq!(delayed_rank(0, 1, 2), None);
        assert_eq!(late, [(3, 0), (7, 1), (11, 0)]);
    }
}
