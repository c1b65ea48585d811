//! Memory shared by the processes of one benchmark.
//!
//! It is a `memfd`: the kernel's shared memory (the same file system as `/dev/shm`) without a name,
//! so that nothing can be left behind, however the processes end.

use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU8, AtomicU32, AtomicU64};

/// Words of one writer are this far from those of another.
pub(crate) const LINE_BYTES: usize = 128;

/// A type that may lie in memory which other processes change at any time.
///
/// # Safety
/// Every field is atomic, any bytes are a value, and zeroed memory is a fresh one.
pub(crate) unsafe trait Shareable {}
// SAFETY: atomics.
unsafe impl Shareable for AtomicU8 {}
// SAFETY: atomics.
unsafe impl Shareable for AtomicU32 {}
// SAFETY: atomics.
unsafe impl Shareable for AtomicU64 {}

/// A mapping, zeroed when created. Both sides address it by offsets.
#[derive(Debug)]
pub(crate) struct SharedMap {
    base: NonNull<u8>,
    len: usize,
    fd: OwnedFd,
}

// SAFETY: all access is through atomics, or through the raw pointers of `bytes`, whose users say
// what orders them.
unsafe impl Send for SharedMap {}
// SAFETY: as above.
unsafe impl Sync for SharedMap {}

impl SharedMap {
    /// Makes `len` zeroed bytes.
    ///
    /// # Errors
    /// Of `memfd_create`, `ftruncate` or `mmap`.
    pub(crate) fn create(len: usize) -> io::Result<SharedMap> {
        // SAFETY: a NUL-terminated name; the result is checked before it is owned.
        let fd = unsafe { libc::memfd_create(c"saccade-micro".as_ptr(), libc::MFD_CLOEXEC) };
        if fd < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: just opened, owned by nothing else.
        let fd = unsafe { OwnedFd::from_raw_fd(fd) };
        let file = File::from(fd);
        file.set_len(len as u64)?;
        SharedMap::map(file.into(), len)
    }

    /// Maps what the parent process made; `fd` was inherited.
    ///
    /// # Errors
    /// If `fd` is not open, or holds fewer than `len` bytes.
    pub(crate) fn adopt(fd: RawFd, len: usize) -> io::Result<SharedMap> {
        // SAFETY: fcntl on any number is sound; an open descriptor of this number was left to this
        // process by its parent, for this one use.
        let fd = unsafe {
            if libc::fcntl(fd, libc::F_GETFD) < 0 {
                return Err(io::Error::last_os_error());
            }
            OwnedFd::from_raw_fd(fd)
        };
        let file = File::from(fd);
        if file.metadata()?.len() < len as u64 {
            return Err(io::Error::from(io::ErrorKind::UnexpectedEof));
        }
        SharedMap::map(file.into(), len)
    }

    fn map(fd: OwnedFd, len: usize) -> io::Result<SharedMap> {
        let protection = libc::PROT_READ | libc::PROT_WRITE;
        // SAFETY: a new mapping at an address of the kernel's choice; the descriptor is open.
        // Pages are touched now, so that no page fault falls into a measurement.
        let base = unsafe {
            let flags = libc::MAP_SHARED | libc::MAP_POPULATE;
            libc::mmap(std::ptr::null_mut(), len, protection, flags, fd.as_raw_fd(), 0)
        };
        match NonNull::new(base.cast::<u8>()) {
            Some(base) if base.as_ptr().cast() != libc::MAP_FAILED => {
                Ok(SharedMap { base, len, fd })
            }
            _ => Err(io::Error::last_os_error()),
        }
    }

    pub(crate) fn fd(&self) -> RawFd {
        self.fd.as_raw_fd()
    }

    /// `count` values from byte `at`. Panics if they are not inside the mapping: layouts are
    /// computed by the code that made it.
    pub(crate) fn slice<T: Shareable>(&self, at: usize, count: usize) -> &[T] {
        let pointer = self.bytes(at, count * size_of::<T>());
        assert!(at.is_multiple_of(align_of::<T>()), "offset {at} is not aligned");
        // SAFETY: in bounds by `bytes`, aligned (mmap gives pages), mapped while self lives, and
        // any bytes are a value of T, which is accessed by atomics only.
        unsafe { std::slice::from_raw_parts(pointer.cast::<T>(), count) }
    }

    /// One value at byte `at`.
    pub(crate) fn get<T: Shareable>(&self, at: usize) -> &T {
        &self.slice(at, 1)[0]
    }

    /// Address of `len` bytes at `at`; panics if they are not inside the mapping.
    pub(crate) fn bytes(&self, at: usize, len: usize) -> *mut u8 {
        let inside = at.checked_add(len).is_some_and(|end| end <= self.len);
        assert!(inside, "{len} bytes at {at} of a map of {}", self.len);
        // SAFETY: at <= self.len.
        unsafe { self.base.as_ptr().add(at) }
    }
}

impl Drop for SharedMap {
    fn drop(&mut self) {
        // SAFETY: mapped with this length in `map`, unmapped once here.
        unsafe { libc::munmap(self.base.as_ptr().cast(), self.len) };
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::Ordering::Relaxed;

    use super::*;

    #[test]
    fn both_mappings_show_the_same_bytes() {
        let ours = SharedMap::create(4096).unwrap();
        let copy = ours.fd.try_clone().unwrap();
        let theirs = SharedMap::map(copy, 4096).unwrap();
        ours.get::<AtomicU32>(256).store(7, Relaxed);
        assert_eq!(theirs.get::<AtomicU32>(256).load(Relaxed), 7);
        assert_eq!(theirs.get::<AtomicU64>(512).load(Relaxed), 0);
    }

    #[test]
    fn a_map_that_is_too_small_is_refused() {
        let ours = SharedMap::create(4096).unwrap();
        let copy = ours.fd.try_clone().unwrap();
        let fd = std::os::fd::IntoRawFd::into_raw_fd(copy);
        assert!(SharedMap::adopt(fd, 8192).is_err());
    }

    #[test]
    #[should_panic(expected = "of a map of 4096")]
    fn nothing_outside_is_reached() {
        SharedMap::create(4096).unwrap().slice::<AtomicU64>(4088, 2);
    }
}
