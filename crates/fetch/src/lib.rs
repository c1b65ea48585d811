//! The fetch plane: a process that brings prefix KV from a store into frames of a region that it
//! shares with a device plane, by memory or a network ([`Way`]), and stores what was computed.
//! The device plane commands it through the second ring, `abi/fetch.h`.
//!
//! A *region* is the memory of that header. The device makes one for each of its lives; a [`Plane`]
//! joins it, and carries out commands: names of chunks are hashed from a copy of the tokens, values
//! come over the network, are checked, decoded plane by plane, and written into the blocks of a
//! frame. The stages have threads and buffers of their own and overlap.
//!
//! Invariants: nothing read from a region or from a store is used before it is checked; each
//! command but CANCEL has exactly one completion, after which no thread touches its frame; DONE is
//! said only of frames that are whole and verified, and where the device reads them; no wait is
//! without a bound; all raw access to regions is in `frame`.

mod bell;
mod commands;
mod config;
mod counters;
mod door;
mod engine;
mod errands;
mod export;
mod frame;
pub mod layout;
mod names;
mod plane;
pub mod region;
pub mod remote;
mod session;
mod way;

pub use config::{FetchConfig, FetchError, FetchMode, Threads};
pub use counters::{NUM_OPS, Stats};
pub use door::Door;
pub use export::listen;
pub use plane::{Plane, run};
pub use region::{Draft, Layout, Limits, Region};
pub use way::Way;
