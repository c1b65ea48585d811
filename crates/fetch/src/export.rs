//! Hands a device's region out to a fetch plane of another host.

use saccade_ring::ucx::{Abi, ExportedRegion, ListenerOptions, MemoryKind, UcxError, UcxListener};
use saccade_ring::{ShmTransport, Transport};

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
    fn kind(&self) -> MemoryKind {
        MemoryKind::Host
    }
    fn abi(&self) -> Abi {
        ABI
    }
    fn instance_id(&self) -> Result<u64, UcxError> {
        Ok(Layout::read(&self.0)?.instance_id())
    }
    fn wake(&self, at: u64) {
        // An invalid offset is refused there.
        let _ = self.0.wake_word(at);
    }
}

/// Hands the region out at `HOST:PORT` until the value is dropped, to one plane at a time: the
/// access of an older one has ended before a new one has any, as `abi/fetch.h` asks.
///
/// # Errors
/// [`UcxError`]: the header of the region, what UCX says of its memory, or the address.
pub fn listen(
    address: &str,
    region: ShmTransport,
    options: ListenerOptions,
) -> Result<UcxListener, UcxError> {
    UcxListener::start(address, Exported(region), ListenerOptions { one_peer: true, ..options })
}
