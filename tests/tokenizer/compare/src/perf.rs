//! Time and user-space instructions of this thread.

use std::time::Instant;

/// A counter of instructions, where the system has one.
pub struct Counter(Option<i32>);

/// perf_event_attr, as far as it is used.
#[repr(C)]
struct Attributes {
    kind: u32,
    size: u32,
    config: u64,
    unused: [u64; 3],
    flags: u64,
    rest: [u64; 9],
}

impl Counter {
    pub fn open() -> Self {
        const HARDWARE: u32 = 0;
        const INSTRUCTIONS: u64 = 1;
        const EXCLUDE_KERNEL_AND_HYPERVISOR: u64 = 0b11 << 5;
        let attributes = Attributes {
            kind: HARDWARE,
            size: size_of::<Attributes>() as u32,
            config: INSTRUCTIONS,
            unused: [0; 3],
            flags: EXCLUDE_KERNEL_AND_HYPERVISOR,
            rest: [0; 9],
        };
        // SAFETY: the kernel only reads `attributes`, whose size it is told.
        let fd = unsafe { libc::syscall(libc::SYS_perf_event_open, &attributes, 0, -1, -1, 0) };
        Self(i32::try_from(fd).ok().filter(|&fd| fd >= 0))
    }

    fn read(&self) -> Option<u64> {
        let mut value = 0u64;
        // SAFETY: the kernel writes at most the 8 bytes of `value`.
        let read = unsafe { libc::read(self.0?, (&raw mut value).cast(), 8) };
        (read == 8).then_some(value)
    }

    /// Nanoseconds and instructions of `run`.
    pub fn measure(&self, run: impl FnOnce()) -> (f64, Option<f64>) {
        let (before, began) = (self.read(), Instant::now());
        run();
        let (ns, after) = (began.elapsed().as_nanos() as f64, self.read());
        (ns, before.zip(after).map(|(a, b)| (b - a) as f64))
    }
}
