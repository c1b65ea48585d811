//! A plane that is kept alive: ended when it hangs, started again when it dies.

use std::time::{Duration, Instant};

use anyhow::bail;
use saccade_host::{Process, Root};

use super::child::{Exit, Plane};
use super::restarts::Restarts;
use super::watch::{Hang, Patience, Sign, Watch};

/// What a ring shows of a plane.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Life {
    /// Differs between the lives of a plane.
    pub epoch: u32,
    pub heartbeat: u64,
    /// It has joined, and must move its heartbeat.
    pub joined: bool,
}

pub(super) struct Kept {
    pub plane: Plane,
    patience: Patience,
    watch: Watch,
    restarts: Restarts,
    /// Of the life before, which the ring shows until the next one has joined.
    last_epoch: u32,
    /// When it is started again, while it is dead.
    due: Option<Instant>,
}

impl Kept {
    pub fn new(plane: Plane, patience: Patience, restarts: Restarts) -> Kept {
        Kept { plane, patience, watch: Watch::new(patience), restarts, last_epoch: 0, due: None }
    }

    /// Restarts it if it is time, ends it if it hangs. `life`: what the ring shows now. True: it
    /// has just died.
    ///
    /// # Errors
    /// It is given up: it said that a restart would not help, or has died too often.
    pub fn tend(
        &mut self,
        now: Instant,
        life: impl FnOnce() -> Option<Life>,
    ) -> anyhow::Result<bool> {
        match self.due {
            Some(due) if now < due => return Ok(false),
            Some(_) => {
                self.due = None;
                return match self.plane.spawn() {
                    Ok(()) => {
                        self.watch = Watch::new(self.patience);
                        eprintln!("  {}", self.plane.describe());
                        Ok(false)
                    }
                    // The system lacks processes or memory: as with a death, it may do better soon.
                    Err(error) => self.died(now, Exit::Died(format!("{error:#}"))),
                };
            }
            None => {}
        }
        if let Some(exit) = self.plane.exited()? {
            self.last_epoch = life().map_or(self.last_epoch, |life| life.epoch);
            return self.died(now, exit);
        }
        if self.watch.is_due(now)
            && let Some(hang) = self.look(now, life())
        {
            let pid = self.plane.pid();
            tracing::warn!(pid, "the {} hangs: {hang}; ending it", self.plane.name());
            self.plane.end_at_once();
        }
        Ok(false)
    }

    fn look(&mut self, now: Instant, life: Option<Life>) -> Option<Hang> {
        let process = Process::read(&Root::default(), self.plane.pid()?).ok();
        let sign = Sign {
            heartbeat: life.map_or(0, |life| life.heartbeat),
            cpu_ns: process.map(|process| process.user_ns + process.system_ns),
            serving: life.is_some_and(|life| life.joined && life.epoch != self.last_epoch),
        };
        self.watch.look(now, sign)
    }

    fn died(&mut self, now: Instant, exit: Exit) -> anyhow::Result<bool> {
        let name = self.plane.name();
        if let Exit::Config(code) = exit {
            bail!("{name} ended with exit code {code}: see its message above");
        }
        let served = std::mem::replace(&mut self.watch, Watch::new(self.patience)).served();
        let Some(pause) = self.restarts.pause(served) else {
            bail!("{name} died ({exit}); {} (--max-restarts)", self.restarts);
        };
        tracing::warn!(plane = name, %exit, ?pause, "plane died; starting it again");
        self.due = Some(now + pause);
        Ok(true)
    }
}

/// Patience with planes that move their heartbeat whatever they do.
pub(super) fn as_long_as(limit: Duration, loading: Duration) -> Patience {
    Patience { still: limit, silent: limit, loading }
}
