//! Counters of work done, in memory that a neighbour's process shares with the tool: read at the
//! edges of a measurement without waiting for a process that may not get a core for a while.

use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, RawFd};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU64, Ordering};

/// One counter to a cache line: counting must not itself become a fight over a line.
#[repr(C, align(64))]
struct Line(AtomicU64);

/// A page of counters, one for each thread.
#[derive(Debug)]
pub struct Board {
    file: File,
    lines: NonNull<Line>,
    threads: usize,
}

// SAFETY: the mapping is only reached through atomics and lives as long as the board.
unsafe impl Send for Board {}
// SAFETY: as above.
unsafe impl Sync for Board {}

impl Board {
    /// A new board. Its file is close-on-exec: the parent clears that flag in the one child only.
    ///
    /// # Errors
    /// Of memfd_create, ftruncate or mmap.
    pub fn create(threads: usize) -> io::Result<Board> {
        // SAFETY: the name is a C string.
        let fd = unsafe { libc::memfd_create(c"saccade-neighbour".as_ptr(), libc::MFD_CLOEXEC) };
        if fd < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: a file descriptor that was just made, owned by nothing else.
        let file = unsafe { File::from_raw_fd(fd) };
        file.set_len((threads * size_of::<Line>()) as u64)?;
        Board::map(file, threads)
    }

    /// The board behind an inherited file descriptor.
    ///
    /// # Errors
    /// It is no file, too small for `threads`, or cannot be mapped.
    pub fn inherit(fd: RawFd, threads: usize) -> io::Result<Board> {
        // SAFETY: F_GETFD only asks whether the descriptor is open.
        if unsafe { libc::fcntl(fd, libc::F_GETFD) } < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: it is open, and the parent made it for this process alone.
        let file = unsafe { File::from_raw_fd(fd) };
        if file.metadata()?.len() < (threads * size_of::<Line>()) as u64 {
            return Err(io::Error::other("the board is smaller than its threads need"));
        }
        Board::map(file, threads)
    }

    fn map(file: File, threads: usize) -> io::Result<Board> {
        let bytes = threads * size_of::<Line>();
        // SAFETY: a fresh shared mapping of a file that is at least this long.
        let address = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                bytes,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_SHARED,
                file.as_raw_fd(),
                0,
            )
        };
        if address == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let lines = NonNull::new(address.cast::<Line>())
            .ok_or_else(|| io::Error::other("mmap answered with a null address"))?;
        Ok(Board { file, lines, threads })
    }

    /// The descriptor number by which a child opens the board.
    #[must_use]
    pub fn fd(&self) -> RawFd {
        self.file.as_raw_fd()
    }

    /// Counters.
    #[must_use]
    pub fn threads(&self) -> usize {
        self.threads
    }

    fn counter(&self, thread: usize) -> &AtomicU64 {
        assert!(thread < self.threads, "thread {thread} of {}", self.threads);
        // SAFETY: within the mapping, which lives as long as self; all-zero bytes are a counter.
        unsafe { &self.lines.add(thread).as_ref().0 }
    }

    /// Adds work of one thread.
    pub fn add(&self, thread: usize, work: u64) {
        // SYNC: relaxed, partner `total`: the counters order nothing but themselves.
        self.counter(thread).fetch_add(work, Ordering::Relaxed);
    }

    /// Work of all threads since the start.
    #[must_use]
    pub fn total(&self) -> u64 {
        // SYNC: relaxed, partner `add`: a sum over counters that move anyway.
        (0..self.threads).map(|thread| self.counter(thread).load(Ordering::Relaxed)).sum()
    }
}

impl Drop for Board {
    fn drop(&mut self) {
        // SAFETY: the mapping made in `map`, of the same length, which nothing borrows any more.
        unsafe { libc::munmap(self.lines.as_ptr().cast(), self.threads * size_of::<Line>()) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_are_seen_through_a_second_mapping() {
        let ours = Board::create(3).unwrap();
        // SAFETY: dup of an open file.
        let theirs = Board::inherit(unsafe { libc::dup(ours.fd()) }, 3).unwrap();
        theirs.add(0, 5);
        theirs.add(2, 7);
        assert_eq!(ours.total(), 12);
    }

    #[test]
    fn a_wrong_descriptor_is_refused() {
        assert!(Board::inherit(9_999, 1).is_err());
        let small = Board::create(1).unwrap();
        // SAFETY: dup of an open file.
        assert!(Board::inherit(unsafe { libc::dup(small.fd()) }, 2).is_err());
    }
}
