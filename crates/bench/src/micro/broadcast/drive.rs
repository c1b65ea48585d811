//! One run: starts the processes, shows them one step after the other, and takes their times.
//!
//! The driver is what both designs have in common: the frontend that puts requests, and the
//! device whose step ends. A step may be decided from the moment that its requests are visible and
//! the step before has ended; that moment is shown on the board, and is where the clock starts.

use std::time::{Duration, Instant};

use anyhow::Context;

use super::board::{Board, BoardShape};
use super::ranks::{Common, DevicePlane, Reader, Replica, RingAt, Scheduler};
use super::regions::{Ask, Feed, Feeds};
use super::ring::{Ring, RingShape};
use super::{Design, Setup};
use crate::micro::os::crew::{Crew, Part};
use crate::micro::os::now_ns;
use crate::micro::role::Role;

/// Steps before the measured ones: prefills of the running sequences, page faults, caches.
pub(crate) const WARM_UP_STEPS: usize = 32;
/// How often the driver checks whether a step is done.
const LOOK: Duration = Duration::from_micros(50);
/// How often it checks whether a process has died.
const CHECK: Duration = Duration::from_millis(200);

/// Times of one run in nanoseconds, one entry a measured step.
#[derive(Debug, Default, Clone)]
pub(crate) struct Times {
    /// From "may be decided" until the last rank had its batch.
    pub decision: Vec<u64>,
    /// Broadcast: from "may be decided" until the scheduler had ticked.
    pub tick: Vec<u64>,
    /// Broadcast: from then until the last rank had decoded the message.
    pub broadcast: Vec<u64>,
    /// Putting the step's requests into the one ring, or into each of N.
    pub put: Vec<u64>,
}

impl Times {
    pub(crate) fn append(&mut self, mut other: Times) {
        self.decision.append(&mut other.decision);
        self.tick.append(&mut other.tick);
        self.broadcast.append(&mut other.broadcast);
        self.put.append(&mut other.put);
    }
}

/// Runs one design with `num_ranks` ranks.
///
/// # Errors
/// If a process fails or waits too long, or if replicas decided differently.
pub(crate) fn run(setup: &Setup, design: Design, num_ranks: usize) -> anyhow::Result<Times> {
    let mut run = Run::start(setup, design, num_ranks)?;
    let mut times = Times::default();
    for step in 1..=run.board.num_steps() {
        let put_ns = run.put(step)?;
        let shown_ns = now_ns();
        run.board.show_step(step);
        std::thread::sleep(Duration::from_micros(setup.step_us));
        run.wait_for_ranks(step)?;
        run.feeds.feeds.iter_mut().try_for_each(Feed::read)?;
        if step > WARM_UP_STEPS {
            run.take_times(step, shown_ns, &mut times);
            times.put.push(put_ns);
        }
    }
    run.finish()?;
    Ok(times)
}

/// Processes and memory of one run. The crew ends first when this is dropped.
struct Run<'a> {
    setup: &'a Setup,
    design: Design,
    num_ranks: usize,
    crew: Crew,
    board: Board,
    feeds: Feeds,
}

impl<'a> Run<'a> {
    fn start(setup: &'a Setup, design: Design, num_ranks: usize) -> anyhow::Result<Run<'a>> {
        let broadcasts = design.broadcasts();
        let num_steps = setup.steps + WARM_UP_STEPS;
        // Broadcast: the ranks, the scheduler, and the scheduler's second line.
        let num_processes = num_ranks + if broadcasts { 2 } else { 0 };
        let board = Board::create(BoardShape { num_processes, num_steps })?;
        let feeds = Feeds::create(if broadcasts { 1 } else { num_ranks }, setup.num_seqs())?;
        let mut run = Run { setup, design, num_ranks, crew: Crew::default(), board, feeds };
        if broadcasts {
            run.start_broadcast()?
        } else {
            run.start_replicas()?
        }
        run.wait_until_joined()?;
        run.feeds.unlink()?;
        run.put_running()?;
        Ok(run)
    }

    fn common(&self, process: usize) -> Common {
        Common {
            board_fd: self.board.fd(),
            board: self.board_shape(),
            process,
            wait: self.design.wait(self.setup),
            limit: self.setup.limit,
        }
    }

    fn board_shape(&self) -> BoardShape {
        let num_processes = self.num_ranks + if self.design.broadcasts() { 2 } else { 0 };
        BoardShape { num_processes, num_steps: self.board.num_steps() }
    }

    fn device(&self, feed: usize) -> DevicePlane {
        DevicePlane {
            region: self.feeds.feeds[feed].path(),
            num_seqs: self.setup.num_seqs(),
            max_model_len: self.setup.max_model_len(self.board.num_steps()),
        }
    }

    fn start_one(&mut self, name: String, role: Role, fds: &[i32]) -> anyhow::Result<()> {
        let part = Part { name, cores: Some(self.setup.cores.clone()), role };
        self.crew.start(&part, fds)
    }

    fn start_replicas(&mut self) -> anyhow::Result<()> {
        for rank in 0..self.num_ranks {
            let role = Replica { common: self.common(rank), device: self.device(rank) };
            self.start_one(format!("rank {rank}"), Role::Replica(role), &[self.board.fd()])?;
        }
        Ok(())
    }

    fn start_broadcast(&mut self) -> anyhow::Result<()> {
        let (setup, n) = (self.setup, self.num_ranks);
        let shape = RingShape {
            chunk_bytes: setup.chunk_bytes(),
            num_chunks: setup.chunks,
            num_readers: n,
        };
        let ring = Ring::create(shape, self.design.wait(setup), setup.limit)?;
        let at = RingAt { fd: ring.fd(), shape };
        let fds = [self.board.fd(), ring.fd()];
        let scheduler = Scheduler {
            common: self.common(n),
            device: self.device(0),
            ring: at.clone(),
            message_bytes: setup.message_bytes,
            shown: n + 1,
        };
        self.start_one("scheduler".into(), Role::Scheduler(scheduler), &fds)?;
        for rank in 0..n {
            let role = Reader { common: self.common(rank), rank, ring: at.clone() };
            self.start_one(format!("rank {rank}"), Role::Reader(role), &fds)?;
        }
        Ok(())
    }

    /// Lines of processes that join: all but the scheduler's second one.
    fn joining(&self) -> std::ops::Range<usize> {
        0..self.num_ranks + usize::from(self.design.broadcasts())
    }

    fn wait_until_joined(&mut self) -> anyhow::Result<()> {
        let joining = self.joining();
        let board = &self.board;
        let missing = || joining.clone().filter(|&i| !board.is_ready(i)).collect::<Vec<usize>>();
        poll_until(
            &mut self.crew,
            self.setup.limit,
            || missing().is_empty(),
            || format!("the driver, for processes {:?} to join", missing()),
        )
    }

    /// The sequences that run through all steps.
    fn put_running(&self) -> anyhow::Result<()> {
        let setup = self.setup;
        let tokens = self.board.num_steps() as u32;
        for number in 0..setup.batch {
            let ask = Ask::new(number, setup.prompt_len, tokens);
            self.feeds.feeds.iter().try_for_each(|feed| feed.put(&ask))?;
        }
        Ok(())
    }

    /// Puts the requests of one step, each into all rings; returns the nanoseconds it took.
    fn put(&self, step: usize) -> anyhow::Result<u64> {
        let started = Instant::now();
        for arrival in 0..self.setup.arrivals {
            let number = self.setup.batch + step as u32 * self.setup.arrivals + arrival;
            let ask = Ask::new(number, self.setup.prompt_len, 1);
            self.feeds.feeds.iter().try_for_each(|feed| feed.put(&ask))?;
        }
        self.feeds.feeds.iter().for_each(Feed::heartbeat);
        Ok(started.elapsed().as_nanos() as u64)
    }

    fn wait_for_ranks(&mut self, step: usize) -> anyhow::Result<()> {
        let (board, n) = (&self.board, self.num_ranks);
        let late = || (0..n).filter(|&rank| board.done(rank) < step).collect::<Vec<usize>>();
        poll_until(
            &mut self.crew,
            self.setup.limit,
            || late().is_empty(),
            || format!("the driver, for ranks {:?} to have step {step}", late()),
        )
    }

    fn take_times(&self, step: usize, shown_ns: u64, times: &mut Times) {
        let last_ns = (0..self.num_ranks).map(|rank| self.board.time_ns(rank, step)).max();
        let last_ns = last_ns.unwrap_or(shown_ns);
        times.decision.push(last_ns.saturating_sub(shown_ns));
        if self.design.broadcasts() {
            let decided_ns = self.board.time_ns(self.num_ranks, step);
            times.tick.push(decided_ns.saturating_sub(shown_ns));
            times.broadcast.push(last_ns.saturating_sub(decided_ns));
        }
    }

    /// Lets the processes end, and compares what they decided.
    fn finish(self) -> anyhow::Result<()> {
        let deciders = if self.design.broadcasts() {
            self.num_ranks..self.num_ranks + 1
        } else {
            0..self.num_ranks
        };
        self.crew.finish(self.setup.limit)?;
        let logs: Vec<_> = deciders.map(|i| self.board.decisions(i)).collect();
        check_same(&logs)
    }
}

/// Compares all decision logs (fingerprint and words of each) with the first.
fn check_same(logs: &[Option<(u64, u64)>]) -> anyhow::Result<()> {
    let first = logs.first().copied().flatten().context("no decision log was left")?;
    match logs.iter().position(|log| *log != Some(first)) {
        None => Ok(()),
        Some(rank) => anyhow::bail!(
            "rank {rank} decided otherwise than rank 0: their ticks are not deterministic"
        ),
    }
}

/// Polls every [`LOOK`] until `done`, and now and then checks whether a process has died.
fn poll_until(
    crew: &mut Crew,
    limit: Duration,
    done: impl Fn() -> bool,
    site: impl Fn() -> String,
) -> anyhow::Result<()> {
    let started = Instant::now();
    let mut checked = started;
    while !done() {
        if checked.elapsed() > CHECK {
            crew.check()?;
            checked = Instant::now();
        }
        let waited = started.elapsed();
        if waited > limit {
            crew.check()?;
            anyhow::bail!("waited {:.1} s: {}", waited.as_secs_f64(), site());
        }
        std::thread::sleep(LOOK);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rank_that_decides_otherwise_is_named() {
        type Logs<'a> = &'a [Option<(u64, u64)>];
        check_same(&[Some((1, 8)); 4]).unwrap();
        let cases: [(Logs<'_>, &str); 4] = [
            (&[Some((1, 8)), Some((1, 8)), Some((2, 8))], "rank 2 "),
            (&[Some((1, 8)), Some((1, 6))], "rank 1 "),
            (&[Some((1, 8)), None], "rank 1 "),
            (&[None], "no decision log"),
        ];
        for (logs, words) in cases {
            let error = check_same(logs).unwrap_err().to_string();
            assert!(error.contains(words), "{error}");
        }
    }
}
