//! A region over TCP: what a peer asks of a listener after its handshake.
//!
//! A peer sends [`Request`]s; the listener carries them out one after another, each whole, and
//! answers those that read. Nothing else is sent. So everything on one connection is in order, and
//! a put is in the region before anything that follows it.

mod lane;
mod request;
mod session;

pub(super) use lane::StreamLane;
pub use request::{HEAD_BYTES, MAX_TRANSFER_BYTES, MalformedRequest, Request};
pub use session::{Session, SessionEnd, Turn};
