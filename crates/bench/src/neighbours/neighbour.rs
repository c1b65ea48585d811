//! A neighbour at work, as the measuring process sees it.

use std::time::Instant;

use anyhow::Context;
use saccade_host::Root;
use serde::{Deserialize, Serialize};

use super::board::Board;
use super::cgroup::QuotaGroup;
use super::kept::{Kept, Setup};
use super::spec::Spec;

/// More threads than any machine has cores: a typo.
const MAX_THREADS: usize = 4096;

/// A running neighbour. It ends when this is dropped, and when this process ends in any way.
#[derive(Debug)]
pub struct Neighbour {
    // Fields are dropped in this order: the processes before their cgroup.
    kept: Kept,
    board: Board,
    _quota: Option<QuotaGroup>,
    spec: Spec,
}

/// A reading of a neighbour's counters.
#[derive(Debug, Clone, Copy)]
pub struct Reading {
    at: Instant,
    work: u64,
}

/// What a neighbour got done over a time.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Work {
    /// What is counted: `rounds`, `bytes`, `children`, …
    pub unit: String,
    /// How many.
    pub done: u64,
    /// In each second.
    pub per_s: f64,
}

impl Neighbour {
    /// Starts one and waits until its threads are at work. Call it on a long-lived thread.
    ///
    /// # Errors
    /// Threads out of bounds, a placement that is not permitted, a program that is not installed,
    /// too little memory: in the words of what refused.
    pub fn start(spec: &Spec) -> anyhow::Result<Neighbour> {
        anyhow::ensure!(
            (1..=MAX_THREADS).contains(&spec.threads),
            "neighbour threads: {} is outside 1 .. {MAX_THREADS}",
            spec.threads
        );
        let what = format!("neighbour {spec}");
        let quota = spec.placement.quota_cores;
        let quota = quota.map(|cores| QuotaGroup::create(&Root::default(), cores)).transpose();
        let quota = quota.with_context(|| what.clone())?;
        let board = Board::create(spec.threads).context("make the neighbour's board")?;
        let own_session = spec.placement.own_session;
        let setup = Setup { own_session, inherited: vec![board.fd()] };
        let mut kept = Kept::start(&what, &role(spec, &board), &setup)?;
        if let Some(group) = &quota {
            group.take(kept.pid()).with_context(|| what.clone())?;
        }
        kept.go()?;
        Ok(Neighbour { kept, board, _quota: quota, spec: spec.clone() })
    }

    /// What it is.
    #[must_use]
    pub fn spec(&self) -> &Spec {
        &self.spec
    }

    /// Its first process; the others descend from it.
    #[must_use]
    pub fn pid(&self) -> u32 {
        self.kept.pid()
    }

    /// Its counters now.
    #[must_use]
    pub fn read(&self) -> Reading {
        Reading { at: Instant::now(), work: self.board.total() }
    }

    /// What it has done since a reading.
    #[must_use]
    pub fn work_since(&self, before: Reading) -> Work {
        let now = self.read();
        let seconds = now.at.duration_since(before.at).as_secs_f64();
        let done = now.work - before.work;
        let per_s = if seconds > 0.0 { done as f64 / seconds } else { 0.0 };
        Work { unit: self.spec.kind.unit().into(), done, per_s }
    }

    /// An error if it has ended on its own.
    ///
    /// # Errors
    /// Why it has, where it said so.
    pub fn check(&mut self) -> anyhow::Result<()> {
        self.kept.check()
    }

    /// Ends it and all that it started.
    ///
    /// # Errors
    /// It does not end.
    pub fn stop(self) -> anyhow::Result<()> {
        self.kept.kill()
    }
}

fn role(spec: &Spec, board: &Board) -> Vec<String> {
    let words = [
        "hog",
        "--threads",
        &spec.threads.to_string(),
        "--board",
        &board.fd().to_string(),
        "--placement",
        &spec.placement.to_string(),
        "--",
        &spec.kind.to_string(),
    ];
    words.map(str::to_owned).to_vec()
}
