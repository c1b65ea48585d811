//! Neighbours: processes that take what a server needs, and report how much of it they got.
//!
//! Every neighbour (and every server that the tool starts, and every process of a micro benchmark)
//! lives in a process of the tool's own binary, `saccade bench neighbour …`, that ends when the
//! tool ends: it is told by the end of its standard input and by the kernel's death signal, and
//! takes its whole process tree along.

mod board;
mod cgroup;
mod commands;
mod descendants;
mod hogs;
mod kept;
mod layout;
mod lines;
mod neighbour;
mod pauser;
mod role;
mod spec;

pub use board::Board;
pub use cgroup::QuotaGroup;
pub use kept::use_program;
pub(crate) use kept::{Kept, Setup};
pub use layout::{Layout, Place};
pub use neighbour::{Neighbour, Reading, Work};
pub use pauser::Pauser;
pub use role::{Args, run};
pub use spec::{Bytes, Kind, Placement, Spec};
