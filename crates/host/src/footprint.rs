//! What a process holds: memory and open files.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};

use crate::parse;
use crate::{HostError, Process, Root, process};

/// Memory and descriptors of one process, or of several together. `None`: it could not be read,
/// as for the descriptors of another user's process.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Footprint {
    /// Pages in memory, bytes: of its own, of files, and shared (VmRSS).
    pub resident_bytes: Option<u64>,
    /// Of them, pages of its own (RssAnon): what grows where memory is lost.
    pub private_bytes: Option<u64>,
    /// Open descriptors.
    pub descriptors: Option<u64>,
}

impl Footprint {
    /// Reads one process.
    ///
    /// # Errors
    /// It has ended.
    pub fn read(root: &Root, pid: u32) -> Result<Footprint, HostError> {
        let status = root.text(format!("proc/{pid}/status"))?;
        let kib = |key| parse::number::<u64>(&status, key).map(|kib| kib.saturating_mul(1024));
        let descriptors = root.numbers(format!("proc/{pid}/fd")).ok();
        Ok(Footprint {
            resident_bytes: kib("VmRSS"),
            private_bytes: kib("RssAnon"),
            descriptors: descriptors.map(|all| all.len() as u64),
        })
    }

    /// Of two together. What one of them lacks is the other's: a sum of what is known.
    #[must_use]
    pub fn and(self, other: Footprint) -> Footprint {
        let sum = |a: Option<u64>, b: Option<u64>| match (a, b) {
            (Some(a), Some(b)) => Some(a.saturating_add(b)),
            (known, None) | (None, known) => known,
        };
        Footprint {
            resident_bytes: sum(self.resident_bytes, other.resident_bytes),
            private_bytes: sum(self.private_bytes, other.private_bytes),
            descriptors: sum(self.descriptors, other.descriptors),
        }
    }

    /// The greater of two, figure by figure.
    #[must_use]
    pub fn most(self, other: Footprint) -> Footprint {
        Footprint {
            resident_bytes: self.resident_bytes.max(other.resident_bytes),
            private_bytes: self.private_bytes.max(other.private_bytes),
            descriptors: self.descriptors.max(other.descriptors),
        }
    }

    /// A process and its descendants. Pages that several of them map count for each in
    /// `resident_bytes`. Processes that end meanwhile are left out.
    ///
    /// # Errors
    /// The process itself has ended.
    pub fn of_tree(root: &Root, pid: u32) -> Result<Footprint, HostError> {
        let tree = process::tree(root, pid)?;
        Ok(Footprint::of_all(root, &tree))
    }

    /// Of these processes; each counts once.
    pub fn of_all<'a>(root: &Root, all: impl IntoIterator<Item = &'a Process>) -> Footprint {
        let pids: BTreeSet<u32> = all.into_iter().map(|process| process.pid).collect();
        let read = pids.iter().filter_map(|&pid| Footprint::read(root, pid).ok());
        read.fold(Footprint::default(), Footprint::and)
    }
}
