//! In place of `ucx` in a build without it: nothing can be made, so nothing is ever called.

use std::convert::Infallible;
use std::net::{SocketAddr, TcpStream};
use std::os::fd::RawFd;
use std::sync::Arc;

use super::RemoteError;
use super::lane::Lane;
use super::listener::ExportedRegion;
use crate::handshake::{Grant, UcxGrant};

#[derive(Debug)]
pub(super) struct Exporter(Infallible);

impl Exporter {
    pub(super) fn new(
        _: &dyn ExportedRegion,
        _: bool,
        _: &[SocketAddr],
    ) -> Result<Exporter, RemoteError> {
        Err(RemoteError::NoUcx)
    }

    pub(super) fn admit(
        &self,
        _: &dyn ExportedRegion,
    ) -> Result<(PeerWorker, UcxGrant), RemoteError> {
        match self.0 {}
    }
}

#[derive(Debug)]
pub(super) struct PeerWorker(Infallible);

impl PeerWorker {
    pub(super) fn progress(&self) -> bool {
        match self.0 {}
    }
    pub(super) fn arm(&self) -> bool {
        match self.0 {}
    }
    pub(super) fn event_fd(&self) -> RawFd {
        match self.0 {}
    }
}

#[derive(Debug)]
pub(super) struct Dialer(Infallible);

impl Dialer {
    pub(super) fn new(_: &[SocketAddr]) -> Result<Dialer, RemoteError> {
        Err(RemoteError::NoUcx)
    }
    pub(super) fn lane(&self, _: &Grant, _: Arc<TcpStream>) -> Result<Box<dyn Lane>, RemoteError> {
        match self.0 {}
    }
}
