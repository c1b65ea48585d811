//! Hands a device's region out to a fetch plane of another host.

use saccade_ring::remote::{Abi, ExportedRegion, ListenerOptions, RemoteError, RemoteListener};
use saccade_ring::{RegionError, ShmTransport, Transport};

use crate::layout::*;
use crate::region::Layout;

/// What both sides must have been built with.
pub const ABI: Abi = Abi {
    name: "the region for the fetch plane, of this build",
    version: SAC_FETCH_VERSION,
    layout_hash: SAC_FETCH_LAYOUT_HASH,
};

/// A region in memory of this host.
struct Exported(ShmTransport);

// SAFETY: a `ShmTransport` keeps its bytes mapped at `base_ptr` while it lives. What this process
// reads of them meanwhile are words by atomics, and bytes that no one else has lent to the peer.
unsafe impl ExportedRegion for Exported {
    fn base(&self) -> *mut u8 {
        self.0.base_ptr()
    }
    fn len(&self) -> usize {
        self.0.region_bytes() as usize
    }
    fn abi(&self) -> Abi {
        ABI
    }
    fn instance_id(&self) -> Result<u64, RegionError> {
        Ok(Layout::read(&self.0)?.instance_id())
    }
    fn transport(&self) -> Option<&dyn Transport> {
        Some(&self.0)
    }
}

/// Hands the region out at `HOST:PORT` until the value is dropped, to one plane at a time: the
/// access of an older one has ended before a new one has any, as `abi/fetch.h` asks.
///
/// # Errors
/// [`RemoteError`]: the header of the region, or the address.
pub fn listen(
    address: &str,
    region: ShmTransport,
    options: ListenerOptions,
) -> Result<RemoteListener, RemoteError> {
    RemoteListener::start(address, Exported(region), ListenerOptions { one_peer: true, ..options })
}
