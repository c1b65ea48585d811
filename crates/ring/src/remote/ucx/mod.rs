//! RDMA, or shared memory on one host, by UCX (cargo feature `ucx`).
//!
//! An RDMA peer reaches the region, and with its key any other host of the network can; where UCX
//! does the operations in software (shared memory) a process of this host reaches all of the
//! listener's memory. See docs/ring.md.

mod exporter;
mod ffi;
mod interfaces;
mod lane;
mod permitted;

use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;

pub(super) use exporter::{Exporter, PeerWorker};

use super::RemoteError;
use super::lane::Lane;
use crate::handshake::Grant;

/// What the joining side has of UCX.
#[derive(Debug)]
pub(super) struct Dialer {
    context: Arc<ffi::Context>,
}

impl Dialer {
    /// To a listener at one of these addresses.
    pub(super) fn new(addresses: &[SocketAddr]) -> Result<Dialer, RemoteError> {
        let transports = permitted::transports(permitted::Access::Any);
        let interfaces = interfaces::for_addresses(addresses);
        Ok(Dialer { context: ffi::Context::new(transports.as_deref(), interfaces)? })
    }

    /// To the region of a grant; `control` is the socket of the handshake.
    pub(super) fn lane(
        &self,
        grant: &Grant,
        control: Arc<TcpStream>,
    ) -> Result<Box<dyn Lane>, RemoteError> {
        let Some(ucx) = &grant.ucx else {
            return Err(RemoteError::Lost("it has no UCX".into()));
        };
        Ok(Box::new(lane::UcxLane::connect(&self.context, ucx, control)?))
    }
}
