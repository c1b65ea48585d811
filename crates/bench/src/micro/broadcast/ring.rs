//! The broadcast ring: chunks in shared memory, one writer, N readers.
//!
//! ```text
//! bell | chunk 0 | chunk 1 | … | chunk 0's flags: written, read 0 .. read N-1 | chunk 1's | …
//! ```
//!
//! A chunk holds a length and a message. The flags of a chunk are adjacent bytes, as in engines:
//! sharing their cache line between readers and writer is part of what is measured.

use std::os::fd::RawFd;
use std::sync::atomic::AtomicU8;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::protocol::ChunkFlags;
use crate::micro::os::shared::{LINE_BYTES, SharedMap};
use crate::micro::os::wait::{Bell, Wait, wait_for};

/// Bytes before a message: its length.
const LENGTH_BYTES: usize = 8;

/// Size of a ring.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
pub(crate) struct RingShape {
    /// Longest message.
    pub chunk_bytes: usize,
    pub num_chunks: usize,
    pub num_readers: usize,
}

impl RingShape {
    fn chunk_stride(&self) -> usize {
        (LENGTH_BYTES + self.chunk_bytes).next_multiple_of(LINE_BYTES)
    }
    fn chunk_at(&self, chunk: usize) -> usize {
        LINE_BYTES + chunk * self.chunk_stride()
    }
    fn flags_at(&self, chunk: usize) -> usize {
        self.chunk_at(self.num_chunks) + chunk * (1 + self.num_readers)
    }
    fn total_bytes(&self) -> usize {
        self.flags_at(self.num_chunks)
    }
}

/// A mapped ring, and how its two sides wait.
#[derive(Debug)]
pub(crate) struct Ring {
    shape: RingShape,
    map: SharedMap,
    wait: Wait,
    limit: Duration,
    /// Next message on this side, from 0.
    next: u64,
}

impl Ring {
    /// # Errors
    /// If the memory cannot be allocated.
    pub(crate) fn create(shape: RingShape, wait: Wait, limit: Duration) -> anyhow::Result<Ring> {
        let map = SharedMap::create(shape.total_bytes())?;
        Ok(Ring { shape, map, wait, limit, next: 0 })
    }

    /// Maps a ring that another process made.
    ///
    /// # Errors
    /// If `fd` is not a ring.
    pub(crate) fn adopt(
        fd: RawFd,
        shape: RingShape,
        wait: Wait,
        limit: Duration,
    ) -> anyhow::Result<Ring> {
        let map = SharedMap::adopt(fd, shape.total_bytes())?;
        Ok(Ring { shape, map, wait, limit, next: 0 })
    }

    pub(crate) fn fd(&self) -> RawFd {
        self.map.fd()
    }

    fn bell(&self) -> &Bell {
        self.map.get(0)
    }

    fn chunk(&self) -> usize {
        (self.next % self.shape.num_chunks as u64) as usize
    }

    fn flags(&self) -> ChunkFlags<'_, AtomicU8> {
        let at = self.shape.flags_at(self.chunk());
        let all: &[AtomicU8] = self.map.slice(at, 1 + self.shape.num_readers);
        ChunkFlags { written: &all[0], read: &all[1..] }
    }

    /// Writer: waits for a free chunk, copies `message` in and shows it. True if it had to wait.
    ///
    /// # Errors
    /// If the message is too long, or readers have not read for too long: says which.
    pub(crate) fn write(&mut self, message: &[u8]) -> anyhow::Result<bool> {
        let most = self.shape.chunk_bytes;
        anyhow::ensure!(message.len() <= most, "message: {} bytes, most {most}", message.len());
        let waited = self.wait_for_chunk()?;
        let chunk = self.map.bytes(self.shape.chunk_at(self.chunk()), LENGTH_BYTES + most);
        // SAFETY: in bounds by `bytes`, and the flags give the chunk to the writer alone until
        // `publish`. The copy ends inside: message.len() <= chunk_bytes.
        unsafe {
            chunk.cast::<u64>().write(message.len() as u64);
            chunk.add(LENGTH_BYTES).copy_from_nonoverlapping(message.as_ptr(), message.len());
        }
        self.flags().publish();
        self.next += 1;
        if matches!(self.wait, Wait::Futex { .. }) {
            self.bell().set(self.next as u32);
        }
        Ok(waited)
    }

    /// True if the chunk was not free at once. The writer of an engine never sleeps here.
    fn wait_for_chunk(&self) -> anyhow::Result<bool> {
        let flags = self.flags();
        if flags.try_begin_write() {
            return Ok(false);
        }
        let busy = Wait::Yield { busy: Duration::MAX, sleep: Duration::ZERO };
        let poll = || flags.try_begin_write().then_some(());
        wait_for(busy, self.limit, self.bell(), poll, || {
            let late: Vec<_> = (0..flags.read.len()).filter(|&r| flags.may_read(r)).collect();
            format!("the scheduler, for readers {late:?} to read message {}", self.next)
        })?;
        Ok(true)
    }

    /// Reader: waits for the next message and hands its bytes, in place, to `use_bytes`.
    ///
    /// # Errors
    /// If none comes for too long, or its length cannot be.
    pub(crate) fn read<T>(
        &mut self,
        reader: usize,
        use_bytes: impl FnOnce(&[u8]) -> T,
    ) -> anyhow::Result<T> {
        let (flags, next) = (self.flags(), self.next);
        let poll = || flags.may_read(reader).then_some(());
        wait_for(self.wait, self.limit, self.bell(), poll, || {
            format!("rank {reader}, for message {next} of the scheduler")
        })?;
        let most = self.shape.chunk_bytes;
        let chunk = self.map.bytes(self.shape.chunk_at(self.chunk()), LENGTH_BYTES + most);
        // SAFETY: in bounds by `bytes`; `may_read` gives the chunk to readers until `finish_read`.
        let len = unsafe { chunk.cast::<u64>().read() } as usize;
        anyhow::ensure!(len <= most, "message of {len} bytes, most {most}");
        // SAFETY: as above; nothing writes these bytes while the slice lives.
        let bytes = unsafe { std::slice::from_raw_parts(chunk.add(LENGTH_BYTES), len) };
        let used = use_bytes(bytes);
        flags.finish_read(reader);
        self.next += 1;
        Ok(used)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SHAPE: RingShape = RingShape { chunk_bytes: 100, num_chunks: 3, num_readers: 4 };
    const LIMIT: Duration = Duration::from_secs(20);

    fn yielding() -> Wait {
        Wait::Yield { busy: Duration::from_secs(1), sleep: Duration::from_millis(1) }
    }

    /// A second mapping of a ring, as another process has it.
    fn second(ring: &Ring, limit: Duration) -> Ring {
        // SAFETY: dup of an open descriptor; the copy is owned by the new ring alone.
        let fd = unsafe { libc::dup(ring.fd()) };
        Ring::adopt(fd, SHAPE, ring.wait, limit).unwrap()
    }

    #[test]
    fn all_readers_get_all_messages_in_order() {
        for wait in [yielding(), Wait::DEVICE_PLANE] {
            let mut writer = Ring::create(SHAPE, wait, LIMIT).unwrap();
            let readers: Vec<_> = (0..SHAPE.num_readers).map(|_| second(&writer, LIMIT)).collect();
            std::thread::scope(|scope| {
                for (reader, mut ring) in readers.into_iter().enumerate() {
                    scope.spawn(move || {
                        for i in 0..500u32 {
                            let got = ring.read(reader, <[u8]>::to_vec).unwrap();
                            assert_eq!(got, vec![i as u8; (i % 101) as usize], "reader {reader}");
                        }
                    });
                }
                for i in 0..500u32 {
                    writer.write(&vec![i as u8; (i % 101) as usize]).unwrap();
                }
            });
        }
    }

    #[test]
    fn the_writer_waits_for_the_slowest_and_names_it() {
        let limit = Duration::from_millis(30);
        let mut writer = Ring::create(SHAPE, yielding(), limit).unwrap();
        let mut readers: Vec<_> = (0..4).map(|_| second(&writer, limit)).collect();
        for _ in 0..SHAPE.num_chunks {
            assert!(!writer.write(b"step").unwrap());
        }
        for reader in [0, 1, 3] {
            readers[reader].read(reader, |bytes| assert_eq!(bytes, b"step")).unwrap();
        }
        let error = writer.write(b"step").unwrap_err().to_string();
        assert!(error.contains("readers [2] to read message 3"), "{error}");
        readers[2].read(2, |_| ()).unwrap();
        assert!(!writer.write(b"step").unwrap());
    }

    #[test]
    fn a_reader_without_a_writer_ends_at_its_limit() {
        let ring = Ring::create(SHAPE, yielding(), LIMIT).unwrap();
        let error = second(&ring, Duration::from_millis(20)).read(1, |_| ()).unwrap_err();
        assert!(error.to_string().contains("rank 1, for message 0"), "{error}");
    }
}
