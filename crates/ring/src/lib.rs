//! The ring between the planes, from the frontend's side.
//!
//! A *region* is the memory of `abi/wire.h`: everything that crosses between a frontend and the
//! device plane. A *transport* reaches it by one-sided puts and gets. A frontend joins a region as
//! one of its frontends ([`FrontendRing::join`]) and splits in two: a [`Submitter`] that hands
//! requests to the device from any thread, and a [`Reader`] that delivers tokens to a [`Sink`] on
//! one thread.
//!
//! ```
//! # use saccade_ring::{FrontendRing, InProcTransport, RegionLimits};
//! let transport = InProcTransport::create(&RegionLimits::default())?;
//! let ring = FrontendRing::join(transport, 0)?;
//! assert!(!ring.device().ready()); // no device has joined yet
//! let (submitter, mut reader) = ring.split();
//! submitter.heartbeat(); // at least every 100 ms
//! # let _ = &mut reader;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! Invariants: nothing read from a region is used before it is validated; every ticket that
//! [`Submitter::try_submit`] returned ends exactly once; no code here waits for the device without
//! a bound; all unsafe code that touches a region is in `memory`, `inproc`, `shm` and `remote`.

mod arena;
mod bits;
mod device;
mod edge;
mod gate;
#[cfg(feature = "remote")]
pub mod handshake;
mod inproc;
mod join;
pub mod layout;
mod memory;
mod observe;
mod reader;
mod records;
mod region;
#[cfg(feature = "remote")]
pub mod remote;
mod request;
mod shared;
mod shm;
mod submitter;
mod sync;
#[cfg(feature = "testing")]
pub mod testing;
mod tracker;
mod transport;
mod wake;

pub use device::{DeviceInfo, Phase, Roof};
pub use inproc::InProcTransport;
pub use join::{FrontendRing, JoinError, JoinOptions};
pub use layout::{DeviceStats, FetchStats, REJECTION_KINDS, TROUBLE_KINDS};
pub use observe::{FrontendLife, Observer};
pub use reader::{PollSummary, Reader, Sink};
pub use region::{
    MAX_ARENA_BYTES, MIN_ARENA_BYTES_PER_FRONTEND, OUT_RING_WORDS_MULTIPLE, RegionError,
    RegionLayout, RegionLimits,
};
pub use request::{Finish, Record, RequestParams, Submission, SubmitError, Ticket};
pub use shm::{Region, ShmTransport, default_region_dir};
pub use submitter::Submitter;
pub use transport::{Halves, Transport, TransportError};
