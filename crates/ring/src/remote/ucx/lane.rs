//! One path to a peer's region: an endpoint, the buffer that its operations use, and the waiting.
//!
//! **Order.** UCX's one-sided operations are unordered. A put of a word is fenced from all earlier
//! puts on the lane, which makes it a release. A get returns once its data is here, so later
//! operations come after it, which makes it an acquire. A [`fence`](Lane::fence) waits until the
//! peer has everything. Where the peer's software does the operations (no RDMA) on a CPU that may
//! reorder its stores, a UCX fence is not enough, and each release waits as a fence does.
//!
//! **Words.** A NIC reads and writes aligned words whole, in transfers of any length. The software
//! path copies a long transfer in pieces that may split a word, so there each word is a separate
//! operation, with many in flight.
//!
//! **Bounds.** One operation in flight per lane (words: [`WORDS_AT_A_TIME`]), each limited by
//! [`OPERATION_TIMEOUT`]; at most [`MAX_UNFLUSHED`] puts that the peer has not confirmed. Data goes
//! through the lane's own buffer, which outlives the endpoint: an abandoned operation can touch
//! nothing else.

use std::net::TcpStream;
use std::os::fd::{AsRawFd, RawFd};
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::super::lane::Lane;
use super::super::{OPERATION_TIMEOUT, RemoteError, SPIN, poll_readable};
use super::ffi::{Context, Endpoint, Progress, Worker};
use crate::handshake::UcxGrant;
use crate::transport::Halves;

/// Longest sleep between two polls of an operation.
const LONGEST_SLEEP: Duration = Duration::from_millis(10);
/// Bytes of one transfer: all statuses of a region of 4096 slots.
const TRANSFER_BYTES: usize = 64 << 10;
/// Single-word gets in flight on the software path.
const WORDS_AT_A_TIME: usize = 64;
/// Puts that may be in flight to the peer.
const MAX_UNFLUSHED: u32 = 256;

/// An endpoint and its buffer.
#[derive(Debug)]
pub(super) struct UcxLane {
    /// Declared before the buffer: closing the endpoint lets go of the buffer.
    endpoint: Endpoint,
    /// [`TRANSFER_BYTES`].
    buffer: Box<[u64]>,
    /// Open while the peer's process lives.
    control: Arc<TcpStream>,
    base: u64,
    /// A NIC does the operations, not the peer's software.
    one_sided: bool,
    /// A UCX fence is a release: see the head of this file.
    fence_suffices: bool,
    /// Puts since the last fence.
    unordered: bool,
    /// Puts since the last flush.
    unflushed: u32,
}

impl UcxLane {
    pub(super) fn connect(
        context: &Arc<Context>,
        grant: &UcxGrant,
        control: Arc<TcpStream>,
    ) -> Result<UcxLane, RemoteError> {
        let endpoint = Endpoint::connect(Worker::new(context)?, &grant.address, &grant.key)?;
        let mut lane = UcxLane {
            endpoint,
            buffer: vec![0; TRANSFER_BYTES / 8].into(),
            control,
            base: grant.base,
            one_sided: false,
            fence_suffices: false,
            unordered: false,
            unflushed: 0,
        };
        // The first exchange also connects the transports, whose names are known only then.
        lane.flush().map_err(RemoteError::Lost)?;
        lane.one_sided = lane.transports().split(',').any(is_one_sided);
        lane.fence_suffices = lane.one_sided || grant.stores_in_order;
        Ok(lane)
    }

    /// Writes a word of 4 or 8 bytes, after all earlier puts.
    fn put_word(&mut self, at: u64, bytes: &[u8]) -> Result<(), String> {
        self.release()?;
        self.put(at, bytes)
    }

    /// Orders earlier puts before later ones.
    fn release(&mut self) -> Result<(), String> {
        if !self.unordered {
            return Ok(());
        }
        // SYNC: partner is the acquire of the device, or of another reader of the word that is put
        // next (abi/README.md): the peer's memory changes in this order.
        if self.fence_suffices {
            let fence = self.endpoint.fence();
            self.finish(fence)?;
            self.unordered = false;
            return Ok(());
        }
        self.flush()
    }

    fn flush(&mut self) -> Result<(), String> {
        let flush = self.endpoint.flush();
        self.finish(flush)?;
        (self.unordered, self.unflushed) = (false, 0);
        Ok(())
    }

    fn count_put(&mut self) -> Result<(), String> {
        if self.unflushed == MAX_UNFLUSHED {
            self.flush()?;
        }
        self.unordered = true;
        self.unflushed += 1;
        Ok(())
    }

    /// Waits for an operation: polls for a while, then sleeps until the next event.
    fn finish(&self, mut operation: Progress) -> Result<(), String> {
        let began = Instant::now();
        loop {
            match operation {
                Progress::Done => return Ok(()),
                Progress::Failed(why) => return Err(why),
                Progress::UnderWay(_) => {}
            }
            let busy = self.endpoint.worker().progress();
            operation = operation.again();
            if !matches!(operation, Progress::UnderWay(_)) {
                continue;
            }
            if let Some(why) = self.endpoint.failure() {
                return Err(why);
            }
            let waited = began.elapsed();
            if waited > OPERATION_TIMEOUT {
                return Err(format!("no answer within {OPERATION_TIMEOUT:?}"));
            }
            if waited > SPIN && !busy {
                self.sleep()?;
            }
        }
    }

    /// Sleeps until the worker has an event, the peer's process ends, or a little time has passed.
    fn sleep(&self) -> Result<(), String> {
        let worker = self.endpoint.worker();
        if !worker.arm().map_err(|error| error.to_string())? {
            return Ok(());
        }
        let fds: [RawFd; 2] = [worker.event_fd(), self.control.as_raw_fd()];
        match poll_readable(&fds, LONGEST_SLEEP) {
            // The peer sends nothing after the grant: anything readable is its end.
            [_, true] => Err("the peer's process ended".into()),
            _ => Ok(()),
        }
    }
}

impl Lane for UcxLane {
    fn transports(&self) -> String {
        self.endpoint.transports()
    }

    fn put(&mut self, at: u64, bytes: &[u8]) -> Result<(), String> {
        for (chunk, at) in bytes.chunks(TRANSFER_BYTES).zip((at..).step_by(TRANSFER_BYTES)) {
            self.count_put()?;
            bytemuck::cast_slice_mut(&mut self.buffer[..])[..chunk.len()].copy_from_slice(chunk);
            // SAFETY: the buffer is the lane's and is not touched before `finish` returns; after a
            // failure, the lane is not used again and its endpoint goes before its buffer.
            let put = unsafe {
                self.endpoint.put(self.buffer.as_ptr().cast(), chunk.len(), self.base + at)
            };
            self.finish(put)?;
        }
        Ok(())
    }

    fn put_u32(&mut self, at: u64, value: u32) -> Result<(), String> {
        self.put_word(at, &value.to_le_bytes())
    }

    fn put_u64(&mut self, at: u64, value: u64) -> Result<(), String> {
        self.put_word(at, &value.to_le_bytes())
    }

    fn get(&mut self, at: u64, out: &mut [u8]) -> Result<(), String> {
        for (chunk, at) in out.chunks_mut(TRANSFER_BYTES).zip((at..).step_by(TRANSFER_BYTES)) {
            // SAFETY: as in `put`.
            let get = unsafe {
                self.endpoint.get(self.buffer.as_mut_ptr().cast(), chunk.len(), self.base + at)
            };
            self.finish(get)?;
            let bytes = bytemuck::cast_slice(&self.buffer[..]);
            chunk.copy_from_slice(&bytes[..chunk.len()]);
        }
        Ok(())
    }

    fn get_u32(&mut self, at: u64) -> Result<u32, String> {
        let mut word = [0; 4];
        self.get(at, &mut word)?;
        Ok(u32::from_le_bytes(word))
    }

    fn get_u64(&mut self, at: u64) -> Result<u64, String> {
        let mut word = [0; 8];
        self.get(at, &mut word)?;
        Ok(u64::from_le_bytes(word))
    }

    fn get_fields(&mut self, at: u64, out: &mut [u64], _: Halves) -> Result<(), String> {
        if self.one_sided {
            return self.get(at, bytemuck::cast_slice_mut(out));
        }
        for (chunk, at) in out.chunks_mut(WORDS_AT_A_TIME).zip((at..).step_by(8 * WORDS_AT_A_TIME))
        {
            let mut gets: [Progress; WORDS_AT_A_TIME] = std::array::from_fn(|_| Progress::Done);
            for (i, get) in gets.iter_mut().enumerate().take(chunk.len()) {
                // SAFETY: as in `put`; each get has a word of its own.
                *get = unsafe {
                    let word = self.buffer.as_mut_ptr().add(i);
                    self.endpoint.get(word.cast(), 8, self.base + at + 8 * i as u64)
                };
            }
            gets.into_iter().try_for_each(|get| self.finish(get))?;
            chunk.copy_from_slice(&self.buffer[..chunk.len()]);
        }
        Ok(())
    }

    fn fetch_add_u32(&mut self, at: u64, value: u32) -> Result<u32, String> {
        self.release()?;
        let words: &mut [u32] = bytemuck::cast_slice_mut(&mut self.buffer[..1]);
        words[0] = value;
        // SAFETY: as in `put`.
        let add =
            unsafe { self.endpoint.fetch_add_u32(self.buffer.as_mut_ptr().cast(), self.base + at) };
        self.finish(add)?;
        let words: &[u32] = bytemuck::cast_slice(&self.buffer[..1]);
        Ok(words[1])
    }

    fn fence(&mut self) -> Result<(), String> {
        if self.unflushed == 0 { Ok(()) } else { self.flush() }
    }

    fn wake(&mut self, at: u64) -> Result<(), String> {
        self.buffer[0] = at;
        // SAFETY: as in `put`.
        let wake = unsafe { self.endpoint.wake(self.buffer.as_ptr()) };
        self.finish(wake)
    }
}

/// Transports whose operations a NIC does without the peer's software.
fn is_one_sided(transport: &str) -> bool {
    transport.starts_with("rc_") || transport.starts_with("dc_")
}
