//! The listener's side: a registered region, and a worker for each peer.

use std::ffi::c_void;
use std::net::SocketAddr;
use std::os::fd::RawFd;
use std::sync::Arc;

use super::super::RemoteError;
use super::super::listener::ExportedRegion;
use super::ffi::{Context, MappedMemory, WakeHandler, Worker};
use super::{interfaces, permitted};
use crate::handshake::UcxGrant;

/// A region that UCX reaches. Fields are dropped in order: registration, context. Workers go before
/// it, the region after it.
#[derive(Debug)]
pub(in super::super) struct Exporter {
    key: Vec<u8>,
    base: u64,
    _memory: MappedMemory,
    context: Arc<Context>,
}

impl Exporter {
    /// Registers a region, which must outlive the value; `one_peer`: access ends with a worker.
    pub(in super::super) fn new(
        region: &dyn ExportedRegion,
        one_peer: bool,
        addresses: &[SocketAddr],
    ) -> Result<Exporter, RemoteError> {
        use permitted::Access;
        let access = if one_peer { Access::Revocable } else { Access::Any };
        let interfaces = interfaces::for_addresses(addresses);
        let context = Context::new(permitted::transports(access).as_deref(), interfaces)?;
        // SAFETY: the caller keeps the region longer than this value, which holds the registration.
        let memory =
            unsafe { MappedMemory::new(&context, region.base(), region.len(), region.kind())? };
        Ok(Exporter { key: memory.key()?, base: region.base() as u64, _memory: memory, context })
    }

    /// A worker for a new peer, and how it is reached. The region must outlive the worker.
    pub(in super::super) fn admit(
        &self,
        region: &dyn ExportedRegion,
    ) -> Result<(PeerWorker, UcxGrant), RemoteError> {
        let worker = PeerWorker::new(&self.context, region)?;
        let grant = UcxGrant {
            base: self.base,
            stores_in_order: cfg!(target_arch = "x86_64"),
            address: worker.worker.address()?,
            key: self.key.clone(),
        };
        Ok((worker, grant))
    }
}

/// The worker that a peer's lanes talk to, and the handler that it calls, which must outlive it.
/// It is not shared: destroying it with its connection also discards what the network still holds
/// of that life of the peer, before the next life is granted anything.
#[derive(Debug)]
pub(in super::super) struct PeerWorker {
    worker: Worker,
    _handler: Box<WakeHandler>,
    _region: Box<*const dyn ExportedRegion>,
}

// SAFETY: the pointer is to the service's own region; the worker and its handler are used on the
// service's thread only.
unsafe impl Send for PeerWorker {}

/// Called by UCX within `Worker::progress`, for a peer's message.
unsafe extern "C" fn wake(argument: *mut c_void, at: u64) {
    // SAFETY: `argument` is the `_region` of the worker that calls, whose pointee, the service's
    // region, is dropped after all connections.
    let region = unsafe { &**argument.cast::<*const dyn ExportedRegion>() };
    region.wake(at);
}

impl PeerWorker {
    fn new(context: &Arc<Context>, region: &dyn ExportedRegion) -> Result<PeerWorker, RemoteError> {
        let region: *const dyn ExportedRegion = std::ptr::from_ref(region);
        // SAFETY: only the lifetime is forgotten; the caller keeps the region longer than this.
        let region: *const (dyn ExportedRegion + 'static) = unsafe { std::mem::transmute(region) };
        let mut region = Box::new(region);
        let argument = std::ptr::from_mut(&mut *region).cast();
        let handler = Box::new(WakeHandler { wake, argument });
        let worker = Worker::new(context)?;
        // SAFETY: both boxes are fields declared after the worker.
        unsafe { worker.on_wake(&*handler)? };
        Ok(PeerWorker { worker, _handler: handler, _region: region })
    }

    /// Does what the peer has asked for; true if there was anything.
    pub(in super::super) fn progress(&self) -> bool {
        self.worker.progress()
    }

    /// True if the descriptor will signal new events.
    pub(in super::super) fn arm(&self) -> bool {
        self.worker.arm().unwrap_or(true)
    }

    /// Readable on new events after [`arm`](Self::arm).
    pub(in super::super) fn event_fd(&self) -> RawFd {
        self.worker.event_fd()
    }
}
