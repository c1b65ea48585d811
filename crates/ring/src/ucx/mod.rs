//! A region that is reached through UCX (cargo feature `ucx`): RDMA where there is a NIC for it,
//! TCP or shared memory otherwise.
//!
//! The device's side hands its region out with a [`UcxListener`]; a frontend on another host joins
//! through a [`UcxTransport`]. They meet on a plain socket ([`crate::handshake`]), where each
//! proves that it knows a secret, if there is one; the socket then stays open as a sign of life.
//! All data goes through UCX (`lane` says in which order).
//!
//! UCX's software path (no RDMA) executes peers' messages at the listener **without a check**, of
//! the secret neither: any host that reaches UCX's own ports can read and write that process. An
//! RDMA peer can do so within the region. Both belong in a private network; see docs/ring.md.

mod ffi;
mod interfaces;
mod lane;
mod listener;
mod revocable;
mod transport;

use std::net::SocketAddr;
use std::os::fd::RawFd;
use std::time::Duration;

use crate::handshake::SecretError;
use crate::region::RegionError;

pub use crate::handshake::{Abi, HandshakeError, SecretFile};
pub use listener::{ExportedRegion, ListenerOptions, MemoryKind, UcxListener, check_address};
pub use transport::{Peer, UcxEvent, UcxTransport};

/// Time that either side allows for the whole handshake.
const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(2);

/// Why a connection cannot be made.
#[derive(Debug, thiserror::Error)]
pub enum UcxError {
    /// UCX refused.
    #[error("cannot {step}: {why} (UCX {})", ffi::version())]
    Ucx {
        /// What was tried.
        step: &'static str,
        /// UCX's message.
        why: String,
    },
    /// The operating system refused.
    #[error("cannot {step}: {why}")]
    Io {
        /// What was tried.
        step: &'static str,
        /// Its message.
        why: String,
    },
    /// This build cannot work with the other side.
    #[error("handshake: {0}")]
    Handshake(HandshakeError),
    /// Other hosts would reach the listener, and need no secret.
    #[error(
        "{0} can be reached from other hosts, so that joining needs a secret: \
         --ring-secret-file FILE (head -c 32 /dev/urandom > FILE; chmod 600 FILE)"
    )]
    NeedsSecret(SocketAddr),
    /// The secret's file has been changed into one that gives none.
    #[error("--ring-secret-file {0}")]
    Secret(#[from] SecretError),
    /// The peer was lost while the connection was made.
    #[error("lost the listener: {0}")]
    Lost(String),
    /// The region to be handed out is invalid.
    #[error(transparent)]
    Region(#[from] RegionError),
}

/// Waits until one of the descriptors can be read or has ended, at most `timeout`; says which.
fn poll_readable<const N: usize>(fds: &[RawFd; N], timeout: Duration) -> [bool; N] {
    let mut polled =
        fds.map(|fd| libc::pollfd { fd, events: libc::POLLIN | libc::POLLRDHUP, revents: 0 });
    poll(&mut polled, timeout);
    polled.map(|fd| fd.revents != 0)
}

/// As `poll_readable`, for any number of descriptors; an interruption counts as a time-out.
fn poll(fds: &mut [libc::pollfd], timeout: Duration) {
    // Rounded up, so that a short time-out is a sleep and not a spin.
    let timeout_ms = timeout.as_micros().div_ceil(1000).min(3_600_000) as libc::c_int;
    // SAFETY: the slice is valid for the call, which writes its `revents` only.
    unsafe { libc::poll(fds.as_mut_ptr(), fds.len() as libc::nfds_t, timeout_ms) };
}
