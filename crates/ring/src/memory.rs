//! Bounds-checked atomic access to a region of memory that peers write concurrently.
//!
//! All pointer work of the crate's data path is here. Nothing ever forms a Rust reference to region
//! memory: a peer in another process may change any byte at any moment, so every access is an
//! atomic one of a word or a byte, and what comes back is a value to be validated.

use std::ptr::NonNull;
use std::sync::atomic::{AtomicU8, AtomicU32, AtomicU64, fence};
use std::time::Duration;

use crate::sync::{OBSERVE, PAYLOAD, PUBLISH, STORE_CHECK};
use crate::transport::{Halves, TransportError};

/// Longest single wait in seconds; the kernel refuses times that overflow its clock.
const MAX_WAIT_S: u64 = 3600;

/// A borrowed range of memory; its holder keeps the range mapped (see `Shm` and `Heap`).
#[derive(Debug)]
pub(crate) struct Memory {
    base: NonNull<u8>,
    len: usize,
}

// SAFETY: `Memory` is an address and a length; all access through it is atomic.
unsafe impl Send for Memory {}
// SAFETY: as above.
unsafe impl Sync for Memory {}

impl Memory {
    /// # Safety
    /// `base` is aligned to 128 and `len` bytes from it stay readable and writable while the value
    /// lives; nothing in this process accesses them through references or non-atomic accesses.
    pub(crate) unsafe fn new(base: NonNull<u8>, len: usize) -> Memory {
        debug_assert_eq!(base.as_ptr() as usize % 128, 0);
        Memory { base, len }
    }

    pub(crate) fn len(&self) -> u64 {
        self.len as u64
    }

    pub(crate) fn base(&self) -> *mut u8 {
        self.base.as_ptr()
    }

    /// The address of `len` bytes at `at`, aligned to `align` (a power of two of at most 128).
    fn check(&self, at: u64, len: usize, align: u64) -> Result<*mut u8, TransportError> {
        if !at.is_multiple_of(align) {
            return Err(TransportError::Misaligned { at, align });
        }
        let end = at.checked_add(len as u64);
        if end.is_none_or(|end| end > self.len as u64) {
            let region_bytes = self.len as u64;
            return Err(TransportError::OutOfRegion { at, len: len as u64, region_bytes });
        }
        // SAFETY: at <= at + len <= self.len, so the sum stays inside the range given to `new`.
        Ok(unsafe { self.base.as_ptr().add(at as usize) })
    }

    fn u32_at(&self, at: u64) -> Result<&AtomicU32, TransportError> {
        let pointer = self.check(at, 4, 4)?;
        // SAFETY: in bounds and aligned by `check`, mapped while self lives by the contract of
        // `new`, and accessed by atomics only.
        Ok(unsafe { AtomicU32::from_ptr(pointer.cast()) })
    }

    fn u64_at(&self, at: u64) -> Result<&AtomicU64, TransportError> {
        let pointer = self.check(at, 8, 8)?;
        // SAFETY: as in `u32_at`.
        Ok(unsafe { AtomicU64::from_ptr(pointer.cast()) })
    }

    // SYNC: PUBLISH here pairs with OBSERVE of `get_u32`/`get_u64`/`get_words`, and with the
    // device's acquire loads of the same words (abi/README.md).
    pub(crate) fn put_u32(&self, at: u64, value: u32) -> Result<(), TransportError> {
        self.u32_at(at)?.store(value, PUBLISH);
        Ok(())
    }

    pub(crate) fn put_u64(&self, at: u64, value: u64) -> Result<(), TransportError> {
        self.u64_at(at)?.store(value, PUBLISH);
        Ok(())
    }

    // SYNC: OBSERVE here pairs with PUBLISH of `put_u32`/`put_u64` and with the device's release
    // stores.
    pub(crate) fn get_u32(&self, at: u64) -> Result<u32, TransportError> {
        Ok(self.u32_at(at)?.load(OBSERVE))
    }

    pub(crate) fn get_u64(&self, at: u64) -> Result<u64, TransportError> {
        Ok(self.u64_at(at)?.load(OBSERVE))
    }

    pub(crate) fn fetch_add_u32(&self, at: u64, value: u32) -> Result<u32, TransportError> {
        Ok(self.u32_at(at)?.fetch_add(value, STORE_CHECK))
    }

    /// Reads whole words, with one acquire fence after all of them instead of an acquire per word.
    pub(crate) fn get_words(&self, at: u64, out: &mut [u64]) -> Result<(), TransportError> {
        let pointer = self.check(at, size_of_val(out), 8)?;
        for (i, word) in out.iter_mut().enumerate() {
            // SAFETY: `check` covered out.len() words from an 8-aligned address.
            *word = unsafe { AtomicU64::from_ptr(pointer.cast::<u64>().add(i)) }.load(PAYLOAD);
        }
        // SYNC: a relaxed load that saw a release store, then an acquire fence, synchronises with
        // that store just as an acquire load would.
        fence(OBSERVE);
        Ok(())
    }

    /// Like [`get_words`](Self::get_words); the fields of 32 bits are loaded as such, as they are
    /// stored.
    pub(crate) fn get_fields(
        &self,
        at: u64,
        out: &mut [u64],
        halves: Halves,
    ) -> Result<(), TransportError> {
        let pointer = self.check(at, size_of_val(out), 8)?.cast::<u64>();
        for (i, word) in out.iter_mut().enumerate() {
            // SAFETY: `check` covered out.len() words from an 8-aligned address.
            let at = unsafe { pointer.add(i) };
            *word = if halves.contains(i) {
                let half = at.cast::<u32>();
                // SAFETY: both halves lie in the word, each aligned to 4.
                let (low, high) =
                    unsafe { (AtomicU32::from_ptr(half), AtomicU32::from_ptr(half.add(1))) };
                // SYNC: acquire; a writer that released the low half after the high one shows both.
                let low = u64::from(low.load(OBSERVE));
                u64::from(high.load(PAYLOAD)) << 32 | low
            } else {
                // SAFETY: as above.
                unsafe { AtomicU64::from_ptr(at) }.load(PAYLOAD)
            };
        }
        // SYNC: as in `get_words`.
        fence(OBSERVE);
        Ok(())
    }

    /// Copies payload in. Relaxed: a word put with release afterwards publishes it.
    pub(crate) fn put(&self, at: u64, bytes: &[u8]) -> Result<(), TransportError> {
        let pointer = self.check(at, bytes.len(), 1)?;
        let (head, words, tail) = split(at, bytes.len());
        for i in (0..head).chain(bytes.len() - tail..bytes.len()) {
            // SAFETY: i < bytes.len(), covered by `check`; a byte needs no alignment.
            unsafe { AtomicU8::from_ptr(pointer.add(i)) }.store(bytes[i], PAYLOAD);
        }
        for (i, word) in bytes[head..head + words].chunks_exact(8).enumerate() {
            let word = u64::from_le_bytes(word.try_into().unwrap_or([0; 8]));
            // SAFETY: head + 8 * i + 8 <= head + words <= bytes.len(), and at + head is a multiple
            // of 8 by `split` (the base is aligned to 128).
            unsafe { AtomicU64::from_ptr(pointer.add(head + 8 * i).cast()) }.store(word, PAYLOAD);
        }
        Ok(())
    }

    /// Copies payload out. Relaxed: ordered by the word that was read with acquire before.
    pub(crate) fn get(&self, at: u64, out: &mut [u8]) -> Result<(), TransportError> {
        let pointer = self.check(at, out.len(), 1)?;
        let (head, words, tail) = split(at, out.len());
        for i in (0..head).chain(out.len() - tail..out.len()) {
            // SAFETY: i < out.len(), covered by `check`; a byte needs no alignment.
            out[i] = unsafe { AtomicU8::from_ptr(pointer.add(i)) }.load(PAYLOAD);
        }
        for (i, word) in out[head..head + words].chunks_exact_mut(8).enumerate() {
            // SAFETY: as in `put`.
            let value = unsafe { AtomicU64::from_ptr(pointer.add(head + 8 * i).cast()) };
            word.copy_from_slice(&value.load(PAYLOAD).to_le_bytes());
        }
        Ok(())
    }

    /// Wakes every thread of any process that waits on the word.
    pub(crate) fn wake(&self, at: u64) -> Result<(), TransportError> {
        let word = self.u32_at(at)?;
        // SAFETY: FUTEX_WAKE only looks up waiters by the address, which is mapped.
        unsafe { libc::syscall(libc::SYS_futex, word.as_ptr(), libc::FUTEX_WAKE, i32::MAX) };
        Ok(())
    }

    /// Sleeps while the word equals `seen`, at most `timeout`; may return spuriously.
    pub(crate) fn wait(&self, at: u64, seen: u32, timeout: Duration) -> Result<(), TransportError> {
        let word = self.u32_at(at)?;
        let limit = libc::timespec {
            tv_sec: timeout.as_secs().min(MAX_WAIT_S) as libc::time_t,
            tv_nsec: timeout.subsec_nanos() as libc::c_long,
        };
        // SAFETY: the word is mapped and aligned, and `limit` outlives the call. Not FUTEX_PRIVATE:
        // the peer waits and wakes from another process. EAGAIN (the word changed), EINTR and
        // ETIMEDOUT are all "look again", which is what the contract of wait_word allows.
        unsafe {
            libc::syscall(
                libc::SYS_futex,
                word.as_ptr(),
                libc::FUTEX_WAIT,
                seen,
                std::ptr::from_ref(&limit),
            )
        };
        Ok(())
    }

    /// Orders earlier stores of this thread before its later loads.
    pub(crate) fn fence() {
        fence(STORE_CHECK);
    }
}

/// Bytes of a copy at `at`: before the first aligned word, in whole words, after the last one.
fn split(at: u64, len: usize) -> (usize, usize, usize) {
    let head = ((8 - at % 8) % 8) as usize;
    let head = head.min(len);
    let words = (len - head) / 8 * 8;
    (head, words, len - head - words)
}

/// The part of `Transport` that is plain memory, for a type with a field that holds a [`Memory`].
macro_rules! memory_transport {
    ($holder:ident) => {
        fn region_bytes(&self) -> u64 {
            self.$holder.memory.len()
        }
        fn put(&self, at: u64, bytes: &[u8]) -> Result<(), TransportError> {
            self.$holder.memory.put(at, bytes)
        }
        fn put_u32(&self, at: u64, value: u32) -> Result<(), TransportError> {
            self.$holder.memory.put_u32(at, value)
        }
        fn put_u64(&self, at: u64, value: u64) -> Result<(), TransportError> {
            self.$holder.memory.put_u64(at, value)
        }
        fn get(&self, at: u64, out: &mut [u8]) -> Result<(), TransportError> {
            self.$holder.memory.get(at, out)
        }
        fn get_u32(&self, at: u64) -> Result<u32, TransportError> {
            self.$holder.memory.get_u32(at)
        }
        fn get_u64(&self, at: u64) -> Result<u64, TransportError> {
            self.$holder.memory.get_u64(at)
        }
        fn get_words(&self, at: u64, out: &mut [u64]) -> Result<(), TransportError> {
            self.$holder.memory.get_words(at, out)
        }
        fn get_fields(
            &self,
            at: u64,
            out: &mut [u64],
            halves: $crate::transport::Halves,
        ) -> Result<(), TransportError> {
            self.$holder.memory.get_fields(at, out, halves)
        }
        fn fetch_add_u32(&self, at: u64, value: u32) -> Result<u32, TransportError> {
            self.$holder.memory.fetch_add_u32(at, value)
        }
        fn fence(&self) {
            $crate::memory::Memory::fence();
        }
        fn wake_word(&self, at: u64) -> Result<(), TransportError> {
            self.$holder.memory.wake(at)
        }
        fn wait_word(&self, at: u64, seen: u32, timeout: Duration) -> Result<(), TransportError> {
            self.$holder.memory.wait(at, seen, timeout)
        }
    };
}
pub(crate) use memory_transport;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::transport::Transport;

    #[test]
    fn split_covers_every_alignment_and_length() {
        for at in 0..16u64 {
            for len in 0..64usize {
                let (head, words, tail) = split(at, len);
                assert_eq!(head + words + tail, len);
                assert!(tail < 8 && head < 8 && words.is_multiple_of(8));
                assert!(words == 0 || (at + head as u64).is_multiple_of(8));
            }
        }
    }

    /// All ways to read a span agree, whichever of its words are two fields.
    #[test]
    fn fields_are_words_read_in_their_sizes() {
        let region =
            crate::InProcTransport::create(&crate::RegionLimits::default()).expect("in bounds");
        let layout = crate::RegionLayout::read(&region).expect("our header");
        let at = layout.device_at(0);
        for i in 0..16u32 {
            region.put_u32(at + 8 * u64::from(i), i + 1).expect("in the region");
            region.put_u32(at + 8 * u64::from(i) + 4, 100 + i).expect("in the region");
        }
        let mut words = [0; 16];
        region.get_words(at, &mut words).expect("in the region");
        assert_eq!(words[3], 103 << 32 | 4);
        for halves in [Halves::Of(0), Halves::Of(0x55), Halves::Odd, Halves::From(5)] {
            let mut fields = [0; 16];
            region.get_fields(at, &mut fields, halves).expect("in the region");
            assert_eq!(fields, words, "{halves:?}");
        }
        assert!(region.get_fields(at + 4, &mut [0], Halves::Odd).is_err());
        let end = region.region_bytes();
        assert!(region.get_fields(end - 8, &mut [0, 0], Halves::Odd).is_err());
    }
}
