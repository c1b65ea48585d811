//! The board of one run: a barrier of arrival counts, one line a rank, and when each rank arrived
//! and was released.

use std::os::fd::RawFd;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::micro::os::now_ns;
use crate::micro::os::shared::{LINE_BYTES, SharedMap};
use crate::micro::os::wait::{Bell, Wait, wait_for};

/// Size of a board.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
pub(crate) struct BoardShape {
    pub num_ranks: usize,
    pub num_iterations: usize,
}

impl BoardShape {
    fn arrived_at(&self, rank: usize) -> usize {
        (1 + rank) * LINE_BYTES
    }
    fn times_at(&self, index: usize) -> usize {
        let times_bytes = (8 * self.num_iterations).next_multiple_of(LINE_BYTES);
        self.arrived_at(self.num_ranks) + index * times_bytes
    }
    fn total_bytes(&self) -> usize {
        self.times_at(2 * self.num_ranks)
    }
}

/// A mapped board.
#[derive(Debug)]
pub(crate) struct Board {
    shape: BoardShape,
    map: SharedMap,
}

impl Board {
    /// # Errors
    /// If the memory cannot be allocated.
    pub(crate) fn create(shape: BoardShape) -> anyhow::Result<Board> {
        Ok(Board { shape, map: SharedMap::create(shape.total_bytes())? })
    }

    /// Maps the parent's board.
    ///
    /// # Errors
    /// If `fd` is not a board.
    pub(crate) fn adopt(fd: RawFd, shape: BoardShape) -> anyhow::Result<Board> {
        Ok(Board { shape, map: SharedMap::adopt(fd, shape.total_bytes())? })
    }

    pub(crate) fn fd(&self) -> RawFd {
        self.map.fd()
    }

    fn arrived(&self, rank: usize) -> &AtomicU32 {
        self.map.get(self.shape.arrived_at(rank))
    }

    fn times(&self, index: usize) -> &[AtomicU64] {
        self.map.slice(self.shape.times_at(index), self.shape.num_iterations)
    }

    /// Arrives at the barrier of `iteration` (from 0) and waits for all other ranks.
    ///
    /// # Errors
    /// After `limit`; names the ranks that have not arrived.
    pub(crate) fn meet(
        &self,
        who: &str,
        rank: usize,
        iteration: usize,
        how: Wait,
        limit: Duration,
    ) -> anyhow::Result<()> {
        let count = iteration as u32 + 1;
        self.times(2 * rank)[iteration].store(now_ns(), Ordering::Relaxed);
        // SYNC: release; pairs with the acquire below in every other rank.
        self.arrived(rank).store(count, Ordering::Release);
        // SYNC: acquire; pairs with the release above.
        let missing = |r: &usize| self.arrived(*r).load(Ordering::Acquire) < count;
        let ranks = 0..self.shape.num_ranks;
        let poll = || (!ranks.clone().any(|r| missing(&r))).then_some(());
        // No bell is rung: every way to wait here polls.
        wait_for(how, limit, self.map.get::<Bell>(0), poll, || {
            let late: Vec<usize> = ranks.clone().filter(missing).collect();
            format!("{who}, for ranks {late:?} at barrier {iteration}")
        })?;
        self.times(2 * rank + 1)[iteration].store(now_ns(), Ordering::Relaxed);
        Ok(())
    }

    /// When a rank arrived at a barrier; read it after all have ended.
    pub(crate) fn arrived_ns(&self, rank: usize, iteration: usize) -> u64 {
        self.times(2 * rank)[iteration].load(Ordering::Relaxed)
    }

    /// Times of a barrier, as a rank would have left them.
    #[cfg(test)]
    pub(super) fn script(&self, rank: usize, iteration: usize, arrived_ns: u64, released_ns: u64) {
        self.times(2 * rank)[iteration].store(arrived_ns, Ordering::Relaxed);
        self.times(2 * rank + 1)[iteration].store(released_ns, Ordering::Relaxed);
    }

    /// When it was released.
    pub(crate) fn released_ns(&self, rank: usize, iteration: usize) -> u64 {
        self.times(2 * rank + 1)[iteration].load(Ordering::Relaxed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SHAPE: BoardShape = BoardShape { num_ranks: 3, num_iterations: 200 };

    #[test]
    fn no_rank_is_released_before_the_last_arrives() {
        let board = Board::create(SHAPE).unwrap();
        let how = Wait::Yield { busy: Duration::MAX, sleep: Duration::ZERO };
        std::thread::scope(|scope| {
            for rank in 0..SHAPE.num_ranks {
                let board = &board;
                scope.spawn(move || {
                    for i in 0..SHAPE.num_iterations {
                        board.meet("test", rank, i, how, Duration::from_secs(20)).unwrap();
                    }
                });
            }
        });
        for i in 0..SHAPE.num_iterations {
            let ranks = 0..SHAPE.num_ranks;
            let last_arrival = ranks.clone().map(|r| board.arrived_ns(r, i)).max();
            let first_release = ranks.map(|r| board.released_ns(r, i)).min();
            assert!(first_release >= last_arrival, "barrier {i}");
        }
    }

    #[test]
    fn missing_ranks_are_named() {
        let board = Board::create(SHAPE).unwrap();
        board.arrived(2).store(1, Ordering::Relaxed);
        let limit = Duration::from_millis(20);
        let error = board.meet("rank 0", 0, 0, Wait::Spin, limit).unwrap_err().to_string();
        assert!(error.ends_with("rank 0, for ranks [1] at barrier 0"), "{error}");
    }
}
