//! A region on the heap, shared by planes in one process: tests, fuzzing, and a device in a thread.

use std::alloc::{Layout, alloc_zeroed, dealloc, handle_alloc_error};
use std::mem::offset_of;
use std::ptr::NonNull;
use std::sync::Arc;
use std::time::Duration;

use crate::layout::DeviceLine;
use crate::memory::{Memory, memory_transport};
use crate::region::{RegionError, RegionLayout, RegionLimits, write_header};
use crate::transport::{Transport, TransportError};

const PAGE_BYTES: usize = 4096;

/// Owns the memory; freed when the last clone of the transport goes.
#[derive(Debug)]
struct Heap {
    memory: Memory,
    layout: Layout,
}

impl Drop for Heap {
    fn drop(&mut self) {
        // SAFETY: allocated with this very layout in `InProcTransport::zeroed`, freed once here.
        unsafe { dealloc(self.memory.base(), self.layout) }
    }
}

/// A region in this process's heap. Clones share it.
#[derive(Clone, Debug)]
pub struct InProcTransport {
    heap: Arc<Heap>,
}

impl InProcTransport {
    /// Allocates a zeroed region for `limits` and writes its header.
    ///
    /// # Errors
    /// The limit that is out of bounds.
    pub fn create(limits: &RegionLimits) -> Result<InProcTransport, RegionError> {
        let layout = limits.layout()?;
        let transport = InProcTransport::zeroed(layout.region_bytes() as usize);
        write_header(&transport, &layout)?;
        Ok(transport)
    }

    /// An empty region with the limits of `region`, for a device's next life elsewhere: a new
    /// instance that continues the device's epochs.
    ///
    /// # Errors
    /// What is wrong with the header of `region`.
    pub fn successor<T: Transport>(region: &T) -> Result<InProcTransport, RegionError> {
        let layout = RegionLayout::read(region)?;
        let next = InProcTransport::create(&layout.limits())?;
        let epoch = layout.device_at(offset_of!(DeviceLine, epoch));
        next.put_u32(epoch, region.get_u32(epoch)?)?;
        Ok(next)
    }

    /// `len` zero bytes without a header, which a joiner must refuse.
    #[must_use]
    pub fn zeroed(len: usize) -> InProcTransport {
        let size = len.max(PAGE_BYTES).next_multiple_of(PAGE_BYTES);
        let Ok(layout) = Layout::from_size_align(size, PAGE_BYTES) else {
            handle_alloc_error(Layout::new::<u8>())
        };
        // SAFETY: the size is not 0.
        let base = unsafe { alloc_zeroed(layout) };
        let Some(base) = NonNull::new(base) else { handle_alloc_error(layout) };
        // SAFETY: fresh memory of at least `len` bytes, aligned to a page, alive until `Heap`
        // drops.
        let memory = unsafe { Memory::new(base, len) };
        InProcTransport { heap: Arc::new(Heap { memory, layout }) }
    }

    /// Start of the region, for a device plane in this process; valid while a clone lives. The
    /// device must access it by atomics only.
    #[must_use]
    pub fn base_ptr(&self) -> *mut u8 {
        self.heap.memory.base()
    }
}

impl Transport for InProcTransport {
    memory_transport!(heap);
}
