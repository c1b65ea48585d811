//! A region that is reached over a network (cargo feature `remote`).
//!
//! The device's side hands its region out with a [`RemoteListener`]; a plane on another host joins
//! through a [`RemoteTransport`]. They meet on a plain socket ([`crate::handshake`]), where each
//! proves that it knows a secret, if there is one. What follows goes one of two ways ([`Way`]):
//!
//! - TCP: more connections to the same port, each with a handshake of its own. A peer sends
//!   requests ([`stream`]); the listener's thread checks each against the region and carries it
//!   out. A peer reaches nothing but the region, and only with the secret.
//! - UCX (cargo feature `ucx`): RDMA, or shared memory on one host. The socket stays open as a sign
//!   of life. UCX's own TCP is never used: there UCX writes wherever a message says, and ends the
//!   listener's process when a peer dies before its puts are confirmed.

mod lane;
mod listener;
pub mod stream;
mod transport;
#[cfg_attr(not(feature = "ucx"), path = "no_ucx.rs")]
mod ucx;

use std::fmt;
use std::io;
use std::net::{SocketAddr, TcpStream};
use std::os::fd::RawFd;
use std::sync::Arc;
use std::time::Duration;

use socket2::{SockRef, TcpKeepalive};

use crate::handshake::SecretError;
use crate::region::RegionError;

pub use crate::handshake::{Abi, HandshakeError, SecretFile};
pub use listener::{ExportedRegion, ListenerOptions, MemoryKind, RemoteListener, check_address};
pub use transport::{RemoteEvent, RemoteTransport};

/// Time that either side allows for the whole handshake.
const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(2);
/// Time limit of an operation. A peer that takes longer is lost: RDMA takes microseconds, and other
/// ways wait for one thread of the peer to be scheduled.
const OPERATION_TIMEOUT: Duration = Duration::from_secs(5);
/// How long an operation is polled before its thread sleeps until the next event.
const SPIN: Duration = Duration::from_micros(50);

/// A host that vanishes ends no connection: one that acknowledges nothing for this time is gone.
const VANISHED_AFTER: Duration = Duration::from_secs(20);
/// A silent host is asked this often for an acknowledgement.
const PROBE_INTERVAL: Duration = Duration::from_secs(5);

/// Small messages go out at once, and the end of a host that says nothing more is noticed.
fn set_up(socket: &TcpStream) -> io::Result<()> {
    socket.set_nodelay(true)?;
    let socket = SockRef::from(socket);
    let probes = TcpKeepalive::new().with_time(PROBE_INTERVAL).with_interval(PROBE_INTERVAL);
    socket.set_tcp_keepalive(&probes)?;
    // For probes, and for data that is under way.
    socket.set_tcp_user_timeout(Some(VANISHED_AFTER))
}

/// What carries the data between two hosts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Way {
    /// Connections to the listener's port.
    Tcp,
    /// RDMA or shared memory, by UCX.
    Ucx,
}

impl Way {
    /// Of an address: `tcp` in `tcp://HOST:PORT`.
    #[must_use]
    pub fn scheme(self) -> &'static str {
        match self {
            Way::Tcp => "tcp",
            Way::Ucx => "ucx",
        }
    }

    /// The way that such an address asks for.
    #[must_use]
    pub fn of_scheme(scheme: &str) -> Option<Way> {
        [Way::Tcp, Way::Ucx].into_iter().find(|way| way.scheme() == scheme)
    }
}

/// Where a listener is, how to reach it, and what proves that it is the right one.
#[derive(Debug, Clone)]
pub struct Peer {
    /// What carries the data.
    pub way: Way,
    /// `HOST:PORT`.
    pub address: String,
    /// Both sides prove that they know it. Without one, whatever is at the address is trusted.
    pub secret: Option<Arc<SecretFile>>,
}

impl Peer {
    /// At `HOST:PORT`, without a secret.
    #[must_use]
    pub fn unproved(way: Way, address: impl Into<String>) -> Peer {
        Peer { way, address: address.into(), secret: None }
    }
}

impl fmt::Display for Peer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}://{}", self.way.scheme(), self.address)
    }
}

/// Why a connection cannot be made.
#[derive(Debug, thiserror::Error)]
pub enum RemoteError {
    /// UCX refused.
    #[error("cannot {step}: {why}")]
    Ucx {
        /// What was tried.
        step: &'static str,
        /// UCX's message, and its version.
        why: String,
    },
    /// This build has no UCX.
    #[error("ucx:// needs a build with UCX: cargo build --features ucx (docs/ring.md)")]
    NoUcx,
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
    Handshake(#[from] HandshakeError),
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
#[cfg(feature = "ucx")]
fn poll_readable<const N: usize>(fds: &[RawFd; N], timeout: Duration) -> [bool; N] {
    let mut polled = fds.map(|fd| waiting_for(fd, libc::POLLIN | libc::POLLRDHUP));
    poll(&mut polled, timeout);
    polled.map(|fd| fd.revents != 0)
}

fn waiting_for(fd: RawFd, events: libc::c_short) -> libc::pollfd {
    libc::pollfd { fd, events, revents: 0 }
}

/// Waits until a descriptor has an event that it waits for, at most `timeout`; an interruption
/// counts as a time-out.
fn poll(fds: &mut [libc::pollfd], timeout: Duration) {
    // Rounded up, so that a short time-out is a sleep and not a spin.
    let timeout_ms = timeout.as_micros().div_ceil(1000).min(3_600_000) as libc::c_int;
    // SAFETY: the slice is valid for the call, which writes its `revents` only.
    unsafe { libc::poll(fds.as_mut_ptr(), fds.len() as libc::nfds_t, timeout_ms) };
}
