//! The built-in hogs: each takes one thing, and counts how much it got.

mod cpu;
mod fork;
mod memory;

use std::sync::{Arc, Barrier};
use std::time::Duration;

use anyhow::Context;

use super::board::Board;
use super::spec::Kind;

pub(super) use cpu::mixed;

/// Work of one thread: does a slice (well below a millisecond to some milliseconds) and says how
/// much that was, in the unit of its kind.
type Slice = Box<dyn FnMut() -> anyhow::Result<u64> + Send>;

/// Starts the threads of a built-in hog; returns when all have touched their memory and begun.
///
/// # Errors
/// Too little memory for the buffers, or no thread. After the start: `failed` is called
/// with the first error of a thread.
pub(super) fn start(
    kind: &Kind,
    board: &Arc<Board>,
    failed: fn(anyhow::Error),
) -> anyhow::Result<()> {
    let threads = board.threads();
    let plan = Plan::new(kind, threads)?;
    let begun = Arc::new(Barrier::new(threads + 1));
    for thread in 0..threads {
        let (board, begun, plan) = (Arc::clone(board), Arc::clone(&begun), plan.clone());
        let work = move || {
            let slice = plan.slice(thread);
            begun.wait();
            let ended = slice.and_then(|slice| count_forever(slice, &board, thread));
            if let Err(error) = ended {
                failed(error);
            }
        };
        std::thread::Builder::new()
            .name(format!("hog-{thread}"))
            .spawn(work)
            .context("start a thread of the neighbour")?;
    }
    begun.wait();
    Ok(())
}

fn count_forever(mut slice: Slice, board: &Board, thread: usize) -> anyhow::Result<()> {
    loop {
        board.add(thread, slice()?);
    }
}

/// A kind with its sizes settled, so that every thread makes the same of it.
#[derive(Clone)]
enum Plan {
    Cpu,
    /// Bytes of each thread's buffers.
    MemoryBandwidth(usize),
    /// Bytes of each thread's set.
    Cache(usize),
    /// Bytes of each thread's range.
    Tlb(usize),
    Fork,
}

/// Least size of a thread's buffer to stream over.
const LEAST_STREAM_BYTES: u64 = 64 << 20;
const TLB_RANGE_BYTES: u64 = 1 << 30;

impl Plan {
    fn new(kind: &Kind, threads: usize) -> anyhow::Result<Plan> {
        let threads = threads as u64;
        let last_level = memory::last_level_cache_bytes();
        let plan = match kind {
            Kind::Cpu => Plan::Cpu,
            Kind::Fork => Plan::Fork,
            Kind::MemoryBandwidth(size) => {
                let all = size.map_or(last_level * 4, |size| size.0);
                let least = if size.is_some() { 4096 } else { LEAST_STREAM_BYTES };
                Plan::MemoryBandwidth((all / threads).max(least) as usize)
            }
            Kind::Cache(size) => {
                let each = size.map_or(last_level / threads, |size| size.0);
                Plan::Cache(each.max(4096) as usize)
            }
            Kind::Tlb(size) => {
                let all = size.map_or(TLB_RANGE_BYTES, |size| size.0);
                Plan::Tlb((all / threads).max(4096) as usize)
            }
            Kind::Pbzip2 | Kind::Compile | Kind::Command(_) => {
                anyhow::bail!("{kind} is a command, not a built-in hog")
            }
        };
        memory::check_available(plan.bytes() as u64 * threads)?;
        Ok(plan)
    }

    fn bytes(&self) -> usize {
        match self {
            Plan::Cpu | Plan::Fork => 0,
            Plan::MemoryBandwidth(bytes) | Plan::Cache(bytes) | Plan::Tlb(bytes) => *bytes,
        }
    }

    fn slice(&self, thread: usize) -> anyhow::Result<Slice> {
        let seed = thread as u64;
        Ok(match *self {
            Plan::Cpu => cpu::slice(seed),
            Plan::MemoryBandwidth(bytes) => memory::stream(bytes),
            Plan::Cache(bytes) => memory::random_accesses(bytes, seed),
            Plan::Tlb(bytes) => memory::page_touches(bytes)?,
            Plan::Fork => fork::slice(),
        })
    }
}

/// How long a hog rests after the kernel refused it something for now.
const REST: Duration = Duration::from_millis(1);
