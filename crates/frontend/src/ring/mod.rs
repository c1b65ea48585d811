//! The frontend's side of the ring: submissions out, tokens in, each request with its own bounded
//! mailbox.

mod bell;
mod mailbox;
#[cfg(test)]
mod mailbox_tests;
mod port;
mod reader;
mod registry;
mod sync;
mod uses;

pub use mailbox::{End, Token};
pub use port::DevicePort;
pub use reader::{ReaderCounters, ReaderHandle, ReaderSettings, spawn_reader};
pub use registry::{Flight, Registry};
