//! What Linux says about a process and its cores: /proc, cgroups of both versions, schedstat,
//! pressure, affinity, throttling, memory nodes, GPUs and performance counters.
//!
//! Every reader takes a [`Root`], so that a scripted tree can stand in for the machine. What
//! cannot be read is an `Option` or a [`HostError`], never zero. Reads are bounded; bytes are taken
//! as they are, since the observed process chooses its thread names and command line.
//!
//! ```no_run
//! use saccade_host::{Root, Snapshot, process};
//! let root = Root::default();
//! let pids: Vec<u32> = process::tree(&root, 4711)?.iter().map(|p| p.pid).collect();
//! let before = Snapshot::take(&root, &pids)?;
//! std::thread::sleep(std::time::Duration::from_secs(5));
//! let delta = Snapshot::take(&root, &pids)?.since(&before);
//! println!("waited {:?} of the time it wanted a core", delta.total.wait_share());
//! # Ok::<(), saccade_host::HostError>(())
//! ```

mod affinity;
pub mod cgroup;
mod cores;
mod cpu_set;
mod delta;
mod environment;
mod error;
mod footprint;
pub mod gpu;
mod limits;
pub mod machine;
mod mounts;
pub mod numa;
mod nvml;
mod own_wait;
mod parse;
#[cfg(target_os = "linux")]
pub mod perf;
mod pressure;
pub mod process;
mod root;
#[cfg(feature = "scripted")]
pub mod scripted;
mod snapshot;
pub mod sockets;
mod task;

pub use cgroup::{Cgroups, CpuLevel, Quota, Throttling};
pub use cores::Cores;
pub use cpu_set::{CpuSet, MAX_CPUS};
pub use delta::{CpuUse, Delta, TaskDelta, Use};
pub use environment::{Environment, KEPT};
pub use error::HostError;
pub use footprint::Footprint;
pub use limits::{Bound, LockedMemory};
pub use own_wait::{OwnWait, WaitMeter, self_wait};
pub use pressure::{Pressure, Resource, Stall};
pub use process::Process;
pub use root::{MAX_ENTRIES, MAX_FILE_BYTES, Root};
pub use snapshot::{Snapshot, monotonic_ns};
pub use task::{Counters, Policy, Task};
