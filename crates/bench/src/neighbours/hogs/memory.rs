//! Hogs of the memory system: bandwidth, caches, translations.

use std::hint::black_box;
use std::io;
use std::ptr::NonNull;

use anyhow::{Context, bail};

use super::Slice;
use super::cpu::mixed;

/// When the machine does not say: a common size of a server's.
const LAST_LEVEL_GUESS: u64 = 32 << 20;
const PAGE_BYTES: usize = 4096;
const LINE_WORDS: usize = 8;

/// Of core 0, from sysfs.
pub(super) fn last_level_cache_bytes() -> u64 {
    let sizes = (0..8).filter_map(|index| {
        let path = format!("/sys/devices/system/cpu/cpu0/cache/index{index}/size");
        let text = std::fs::read_to_string(path).ok()?;
        text.trim().strip_suffix('K')?.parse::<u64>().ok()
    });
    sizes.max().map_or(LAST_LEVEL_GUESS, |kib| kib << 10)
}

/// A neighbour that makes the machine swap measures something else.
pub(super) fn check_available(bytes: u64) -> anyhow::Result<()> {
    let text = std::fs::read_to_string("/proc/meminfo").context("read /proc/meminfo")?;
    let available = text
        .lines()
        .find_map(|line| line.strip_prefix("MemAvailable:")?.strip_suffix("kB"))
        .and_then(|kib| kib.trim().parse::<u64>().ok())
        .map(|kib| kib << 10);
    match available {
        Some(available) if bytes > available / 2 => bail!(
            "the neighbour's buffers need {} MiB, more than half of the {} MiB available: \
             give a smaller SIZE or fewer threads",
            bytes >> 20,
            available >> 20
        ),
        _ => Ok(()),
    }
}

/// `to[i] = from[i] + c` over two halves of `bytes`; counts bytes read and written.
pub(super) fn stream(bytes: usize) -> Slice {
    const WORDS_PER_SLICE: usize = (1 << 20) / 8;
    let words = bytes / 16;
    let (from, mut to) = (vec![1u64; words], vec![2u64; words]);
    let mut at = 0;
    Box::new(move || {
        let end = (at + WORDS_PER_SLICE).min(words);
        for (to, from) in to[at..end].iter_mut().zip(&from[at..end]) {
            *to = from.wrapping_add(3);
        }
        black_box(&mut to[at..end]);
        let moved = (end - at) * 16;
        at = if end == words { 0 } else { end };
        Ok(moved as u64)
    })
}

/// Reads and writes of random cache lines of a set; independent, so that many are under way.
pub(super) fn random_accesses(bytes: usize, seed: u64) -> Slice {
    const ACCESSES_PER_SLICE: u64 = 1 << 14;
    let lines = (bytes / (LINE_WORDS * 8)).max(1);
    let mut set = vec![1u64; lines * LINE_WORDS];
    let mut state = mixed(seed);
    Box::new(move || {
        for _ in 0..ACCESSES_PER_SLICE {
            state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
            // The high half of the product spreads a 64-bit number over 0 .. lines.
            let line = ((u128::from(mixed(state)) * lines as u128) >> 64) as usize;
            set[line * LINE_WORDS] += 1;
        }
        black_box(&mut set);
        Ok(ACCESSES_PER_SLICE)
    })
}

/// One write to each page of a range of small pages, each on another line of its page, so that
/// it is the translations that miss.
pub(super) fn page_touches(bytes: usize) -> anyhow::Result<Slice> {
    const PAGES_PER_SLICE: usize = 1 << 12;
    let mut range = SmallPages::map(bytes)?;
    let mut at = 0;
    Ok(Box::new(move || {
        let end = (at + PAGES_PER_SLICE).min(range.pages);
        for page in at..end {
            range.touch(page);
        }
        let touched = end - at;
        at = if end == range.pages { 0 } else { end };
        Ok(touched as u64)
    }))
}

/// Anonymous memory that the kernel may not back with huge pages.
struct SmallPages {
    start: NonNull<u8>,
    pages: usize,
}

// SAFETY: owned memory, used by the one thread that has the value.
unsafe impl Send for SmallPages {}

impl SmallPages {
    fn map(bytes: usize) -> anyhow::Result<SmallPages> {
        let pages = (bytes / PAGE_BYTES).max(1);
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
        let access = libc::PROT_READ | libc::PROT_WRITE;
        // SAFETY: a fresh anonymous mapping.
        let address =
            unsafe { libc::mmap(std::ptr::null_mut(), pages * PAGE_BYTES, access, flags, -1, 0) };
        if address == libc::MAP_FAILED {
            return Err(io::Error::last_os_error()).context("map the range of the TLB hog");
        }
        // Advice: a kernel without huge pages refuses it, and needs none.
        // SAFETY: the mapping made above, whole.
        unsafe { libc::madvise(address, pages * PAGE_BYTES, libc::MADV_NOHUGEPAGE) };
        let start = NonNull::new(address.cast()).context("mmap answered with a null address")?;
        let mut range = SmallPages { start, pages };
        (0..pages).for_each(|page| range.touch(page));
        Ok(range)
    }

    fn touch(&mut self, page: usize) {
        let offset = page * PAGE_BYTES + (page % (PAGE_BYTES / 64)) * 64;
        // SAFETY: page < self.pages, so the byte is within the mapping; volatile keeps the touch.
        unsafe {
            let byte = self.start.add(offset);
            byte.write_volatile(byte.read_volatile().wrapping_add(1));
        }
    }
}

impl Drop for SmallPages {
    fn drop(&mut self) {
        // SAFETY: the mapping of `map`, which nothing borrows.
        unsafe { libc::munmap(self.start.as_ptr().cast(), self.pages * PAGE_BYTES) };
    }
}
