//! Tells routers which KV blocks can be found on this machine.
//!
//! The device plane writes an event for each block that becomes findable in a tier, or is so no
//! longer, into a ring of shared memory (`abi/fetch.h`). This crate reads that ring and publishes
//! what it says over ZeroMQ, in the format of vLLM's KV events: a PUB socket, and a ROUTER socket
//! that repeats what a subscriber has missed.
//!
//! Invariants: the reader of the ring waits for no subscriber; nothing read from the ring or from a
//! socket is used before it is checked; memory is bounded by the log of published batches, whatever
//! the number and the speed of subscribers.

mod adapters;
mod alone;
mod config;
mod counters;
mod encode;
mod endpoint;
mod event;
mod log;
mod publisher;
mod replay;
mod ring;
mod sockets;
mod subscriber;
mod zmtp;

pub use adapters::{Adapter, Adapters};
pub use config::{ConfigError, EventsConfig, PublisherKind};
pub use counters::Stats;
pub use encode::encode_batch;
pub use endpoint::{Endpoint, EndpointError};
pub use event::{Event, Medium};
pub use publisher::{EventsError, Joins, Publisher, run};
pub use ring::{Reader, RingError};
