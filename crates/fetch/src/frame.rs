//! The frames of a region: blocks of one chunk, as the device keeps them. All raw access to them is
//! here.

use std::ptr;

use saccade_ring::{ShmTransport, Transport, TransportError};

use crate::region::Region;
use crate::way::Way;

/// A frame that the device has lent. The region stays mapped, or connected, while this lives.
///
/// A plane of a chunk is `[token][kv_head][head_dim]` of 256 tokens; a block has `block_size` of
/// those tokens, of all planes. So a plane lies in as many pieces as the chunk has blocks.
pub(crate) struct Frame {
    region: Region,
    at: u64,
    block_bytes: usize,
    piece_bytes: usize,
}

impl Frame {
    /// `frame` is below the region's number of frames.
    pub fn new(region: &Region, frame: u32) -> Frame {
        let layout = region.layout();
        assert!(frame < layout.num_frames(), "frame {frame} of {}", layout.num_frames());
        let (g, blocks) = (layout.geometry(), 256 / layout.block_size() as usize);
        Frame {
            region: region.clone(),
            at: layout.frame_at(frame),
            block_bytes: layout.block_bytes() as usize,
            piece_bytes: g.plane_bytes() / blocks,
        }
    }

    /// Writes a plane into its pieces. What reads it must be told by a release store after it.
    ///
    /// # Errors
    /// The region cannot be reached any more, so no one can be told.
    pub fn write_plane(&self, plane: usize, kv: &[u8]) -> Result<(), TransportError> {
        let pieces = kv.chunks_exact(self.piece_bytes).enumerate();
        match self.region.transport() {
            Way::Mapped(memory) => {
                for (block, piece) in pieces {
                    let to = self.address(memory, plane, block);
                    // SAFETY: piece_bytes bytes of this mapping, to which no reference exists. The
                    // frame is lent: its owner does not use it now. One that does all the same
                    // gets torn bytes in a frame of its own, and nothing else.
                    unsafe { write_behind(piece, to) };
                }
                settle();
            }
            way @ Way::Remote(remote) => {
                for (block, piece) in pieces {
                    remote.put(self.piece(plane, block), piece)?;
                }
                // Before the part of the job is released: another thread answers the command.
                way.settle();
            }
        }
        Ok(())
    }

    /// Reads a plane from its pieces.
    ///
    /// # Errors
    /// The region cannot be reached any more.
    pub fn read_plane(&self, plane: usize, kv: &mut [u8]) -> Result<(), TransportError> {
        for (block, piece) in kv.chunks_exact_mut(self.piece_bytes).enumerate() {
            match self.region.transport() {
                Way::Mapped(memory) => {
                    let from = self.address(memory, plane, block);
                    // SAFETY: as in `write_plane`; bytes that change meanwhile are as good as any
                    // others.
                    unsafe { ptr::copy_nonoverlapping(from, piece.as_mut_ptr(), self.piece_bytes) };
                }
                Way::Remote(remote) => remote.get(self.piece(plane, block), piece)?,
            }
        }
        Ok(())
    }

    /// Where a piece is in the region.
    fn piece(&self, plane: usize, block: usize) -> u64 {
        let inside = block * self.block_bytes + plane * self.piece_bytes;
        assert!(inside + self.piece_bytes <= self.region.layout().frame_bytes() as usize);
        self.at + inside as u64
    }

    fn address(&self, memory: &ShmTransport, plane: usize, block: usize) -> *mut u8 {
        // SAFETY: a checked layout has all frames inside the mapping, and the piece is inside this
        // frame.
        unsafe { memory.base_ptr().add(self.piece(plane, block) as usize) }
    }
}

/// Writes to other memory as to a frame: what that costs is part of placing.
///
/// # Panics
/// The lengths differ.
pub(crate) fn write_out(from: &[u8], to: &mut [u8]) {
    assert_eq!(from.len(), to.len());
    // SAFETY: as long as `from`, and borrowed for this alone.
    unsafe { write_behind(from, to.as_mut_ptr()) };
    settle();
}

/// Copies to memory that this core will not read again: around the caches, which otherwise read
/// every line before they write it. It takes half as long.
///
/// # Safety
/// `to` has room for `from`, and no reference to it exists.
unsafe fn write_behind(from: &[u8], to: *mut u8) {
    #[cfg(target_arch = "x86_64")]
    if (to as usize).is_multiple_of(64) && from.len().is_multiple_of(64) {
        use std::arch::x86_64::{__m128i, _mm_loadu_si128, _mm_stream_si128};
        for i in (0..from.len()).step_by(16) {
            // SAFETY: both are within from.len() bytes; `to + i` is aligned to 16. SSE2 is part of
            // every x86-64.
            unsafe {
                let word = _mm_loadu_si128(from.as_ptr().add(i).cast::<__m128i>());
                _mm_stream_si128(to.add(i).cast::<__m128i>(), word);
            }
        }
        return;
    }
    // SAFETY: by the contract of this function.
    unsafe { ptr::copy_nonoverlapping(from.as_ptr(), to, from.len()) };
}

/// Orders what was written behind the caches before what this thread writes next, as a release
/// store alone would not.
fn settle() {
    #[cfg(target_arch = "x86_64")]
    // SYNC: a store fence; the plane is in memory before the part of the job is released.
    // SAFETY: SSE is part of every x86-64.
    unsafe {
        std::arch::x86_64::_mm_sfence();
    }
}
