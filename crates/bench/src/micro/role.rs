//! The parts that child processes play.

use serde::{Deserialize, Serialize};

#[cfg(feature = "device")]
use super::broadcast::ranks;
use super::straggler;

/// What one child process does.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum Role {
    /// A rank that decides for itself.
    #[cfg(feature = "device")]
    Replica(ranks::Replica),
    /// Decides for all ranks and broadcasts.
    #[cfg(feature = "device")]
    Scheduler(ranks::Scheduler),
    /// A rank that receives the decisions.
    #[cfg(feature = "device")]
    Reader(ranks::Reader),
    /// A rank of a collective.
    Straggler(straggler::Rank),
}

impl Role {
    /// Plays it to its end; `who` is its name in errors.
    ///
    /// # Errors
    /// Of the part.
    pub(crate) fn play(self, who: &str) -> anyhow::Result<()> {
        match self {
            #[cfg(feature = "device")]
            Role::Replica(replica) => replica.play(who),
            #[cfg(feature = "device")]
            Role::Scheduler(scheduler) => scheduler.play(who),
            #[cfg(feature = "device")]
            Role::Reader(reader) => reader.play(),
            Role::Straggler(rank) => rank.play(who),
        }
    }
}
