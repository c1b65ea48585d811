//! Keeps a folder under its size by removing what was least recently used.
//!
//! Only a walk tells what a folder holds. So a walk gives a credit, puts use
//! it, and the next walk begins, aside, when half of it is used: the cost of a walk is shared by a
//! sixteenth of the folder's bytes.

use std::collections::BinaryHeap;
use std::fs;
use std::io;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime};

use tokio::sync::watch;

use super::walk::{DEPTH, Item, walk};
use super::{is_over, remove};

/// Of the folder's size that is written between walks, at least.
const CREDIT_SHARE: u64 = 16;
/// That a put waits for a walk; then it is told that the folder is full.
const PATIENCE: Duration = Duration::from_millis(500);
/// Of a temporary file whose writer is taken for dead.
const LEFTOVER_AGE: Duration = Duration::from_secs(600);
/// Files that one walk remembers as the least recently used, some 3 MiB of them.
const MAX_REMEMBERED: usize = 16_384;
/// Walks of one sweep, at most.
const MAX_WALKS: usize = 64;

#[derive(Debug)]
pub(super) struct Room {
    max_bytes: u64,
    state: Mutex<State>,
    sweeps: watch::Sender<u64>,
}

#[derive(Debug, Default)]
struct State {
    /// Bytes that may be written before the next walk.
    credit: u64,
    /// The longest value so far.
    longest: u64,
    sweeping: bool,
    /// Written while a walk was on its way: it may have seen them or not.
    meanwhile: u64,
}

impl Room {
    pub(super) fn new(max_bytes: u64) -> Self {
        let sweeps = watch::Sender::new(0);
        Self { max_bytes, state: Mutex::default(), sweeps }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn share(&self, longest: u64) -> u64 {
        (self.max_bytes / CREDIT_SHARE).max(2 * longest).min(self.max_bytes)
    }

    /// Room for a value. `sweep` is called where a sweep is to begin.
    pub(super) async fn take(&self, bytes: u64, sweep: impl Fn()) -> bool {
        if bytes > self.max_bytes {
            return false;
        }
        let mut sweeps = self.sweeps.subscribe();
        let swept = async {
            while !self.try_take(bytes, &sweep) {
                if sweeps.changed().await.is_err() {
                    return;
                }
            }
        };
        tokio::time::timeout(PATIENCE, swept).await.is_ok()
    }

    fn try_take(&self, bytes: u64, sweep: impl Fn()) -> bool {
        let mut state = self.state();
        state.longest = state.longest.max(bytes);
        let taken = bytes <= state.credit;
        if taken {
            state.credit -= bytes;
            state.meanwhile += bytes;
        }
        if !state.sweeping && state.credit < self.share(state.longest) / 2 {
            state.sweeping = true;
            state.meanwhile = 0;
            sweep();
        }
        taken
    }

    /// Removes what has expired, what was left over, and what was used least recently, and counts
    /// the rest.
    pub(super) fn sweep(&self, root: &Path, ttl: Option<Duration>) {
        let share = self.share(self.state().longest);
        let bytes = make_room(root, ttl, self.max_bytes - share);
        let mut state = self.state();
        // A folder that cannot be walked through takes nothing more.
        let free = bytes.map_or(0, |bytes| self.max_bytes.saturating_sub(bytes));
        state.credit = free.min(share).saturating_sub(state.meanwhile);
        state.sweeping = false;
        drop(state);
        self.sweeps.send_modify(|sweeps| *sweeps += 1);
    }
}

/// Bytes that stay, at most `max_bytes` of them.
fn make_room(root: &Path, ttl: Option<Duration>, max_bytes: u64) -> io::Result<u64> {
    for _ in 0..MAX_WALKS {
        let mut seen = Seen::default();
        walk(root, &mut |item| seen.item(item, ttl).map(|()| ControlFlow::Continue(())))?;
        let remembered = seen.oldest.len();
        let bytes = seen.remove_oldest(max_bytes)?;
        if bytes <= max_bytes || remembered == 0 {
            return Ok(bytes);
        }
    }
    Err(io::Error::other("others write faster than room is made"))
}

/// What a walk has seen.
#[derive(Default)]
struct Seen {
    bytes: u64,
    /// The first to come out is the one used last: it is forgotten where there are too many.
    oldest: BinaryHeap<(SystemTime, PathBuf, u64)>,
}

impl Seen {
    fn item(&mut self, item: Item, ttl: Option<Duration>) -> io::Result<()> {
        match item {
            Item::Value { path, metadata, .. } if is_over(ttl, metadata.modified()?) => {
                discard(&path)?;
            }
            Item::Value { path, metadata, .. } => {
                self.bytes += metadata.len();
                self.oldest.push((metadata.accessed()?, path, metadata.len()));
                if self.oldest.len() > MAX_REMEMBERED {
                    self.oldest.pop();
                }
            }
            Item::Temporary { path, metadata } => {
                match is_over(Some(LEFTOVER_AGE), metadata.modified()?) {
                    true => discard(&path)?,
                    false => self.bytes += metadata.len(),
                }
            }
            Item::Foreign => {}
        }
        Ok(())
    }

    /// Bytes that are left.
    fn remove_oldest(self, max_bytes: u64) -> io::Result<u64> {
        let mut left = self.bytes;
        for (_, path, bytes) in self.oldest.into_sorted_vec() {
            if left <= max_bytes {
                break;
            }
            discard(&path)?;
            left -= bytes;
        }
        Ok(left)
    }
}

/// A file, and the folders above it that it leaves empty.
fn discard(path: &Path) -> io::Result<()> {
    remove(path)?;
    path.ancestors().skip(1).take(DEPTH).find(|folder| fs::remove_dir(folder).is_err());
    Ok(())
}
