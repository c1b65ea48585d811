//! The one way to the other side: one-sided access to a region.

use std::time::Duration;

/// Why an access did not happen. The region is unchanged.
#[derive(Debug, thiserror::Error, Clone, PartialEq, Eq)]
pub enum TransportError {
    /// The access would leave the region.
    #[error("access of {len} bytes at {at} leaves the region of {region_bytes} bytes")]
    OutOfRegion {
        /// First byte.
        at: u64,
        /// Bytes.
        len: u64,
        /// Size of the region.
        region_bytes: u64,
    },
    /// A word access that is not aligned to the word.
    #[error("word access at {at} is not a multiple of {align}")]
    Misaligned {
        /// First byte.
        at: u64,
        /// Bytes of the word.
        align: u64,
    },
    /// The peer cannot be reached any more.
    #[error("transport is down: {0}")]
    Down(String),
}

/// Which of the 8-byte words of a transfer are two fields of 32 bits, each with stores of its own.
///
/// Memory that both sides share is accessed by atomics, and two atomic accesses that may meet must
/// have one size: the memory model knows no others, in C++ and in Rust.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Halves {
    /// Those whose bit is set, of at most 64.
    Of(u64),
    /// The odd ones, counted from 0.
    Odd,
    /// This one, and all behind it.
    From(usize),
}

impl Halves {
    /// Whether word `index` of a transfer is two fields.
    #[must_use]
    pub fn contains(self, index: usize) -> bool {
        match self {
            Halves::Of(bits) => index < 64 && bits >> index & 1 != 0,
            Halves::Odd => index % 2 == 1,
            Halves::From(first) => index >= first,
        }
    }
}

/// One-sided access to a region; offsets count from its start.
///
/// Implementations MUST:
/// - check every access against the region before touching memory;
/// - make [`put_u32`](Self::put_u32) and [`put_u64`](Self::put_u64) release: a peer that reads the
///   word with acquire sees everything that this thread put before;
/// - make [`get_u32`](Self::get_u32), [`get_u64`](Self::get_u64) and
///   [`get_words`](Self::get_words) acquire: a later get on this thread sees everything that was
///   put before the words it returned;
/// - never tear an aligned word of those five.
///
/// [`wake_word`](Self::wake_word) and [`wait_word`](Self::wait_word) are hints. A transport without
/// wake-ups (RDMA) makes the first a no-op and the second a bounded sleep.
pub trait Transport: Send + Sync {
    /// Size of the region in bytes.
    fn region_bytes(&self) -> u64;
    /// True if a put that returned may never arrive, because the connection was lost after it (and
    /// was made again).
    fn loses_puts(&self) -> bool {
        false
    }
    /// Writes payload; visible to the peer no later than the next word put by this thread.
    fn put(&self, at: u64, bytes: &[u8]) -> Result<(), TransportError>;
    /// Writes an aligned word with release.
    fn put_u32(&self, at: u64, value: u32) -> Result<(), TransportError>;
    /// Writes an aligned word with release.
    fn put_u64(&self, at: u64, value: u64) -> Result<(), TransportError>;
    /// Reads payload, after an acquire that shows it is there.
    fn get(&self, at: u64, out: &mut [u8]) -> Result<(), TransportError>;
    /// Reads an aligned word with acquire.
    fn get_u32(&self, at: u64) -> Result<u32, TransportError>;
    /// Reads an aligned word with acquire.
    fn get_u64(&self, at: u64) -> Result<u64, TransportError>;
    /// Reads aligned words in one transfer; acquire for each, no order among them.
    fn get_words(&self, at: u64, out: &mut [u64]) -> Result<(), TransportError>;
    /// Like [`get_words`](Self::get_words), where some words are two fields of 32 bits; of those
    /// the high one is read no earlier than the low one. A transport that copies into memory of its
    /// own need not tell them apart.
    fn get_fields(&self, at: u64, out: &mut [u64], _: Halves) -> Result<(), TransportError> {
        self.get_words(at, out)
    }
    /// Adds to an aligned word, atomically among all peers; returns the previous value.
    fn fetch_add_u32(&self, at: u64, value: u32) -> Result<u32, TransportError>;
    /// Orders this thread's earlier puts before its later gets (sequentially consistent fence).
    fn fence(&self);
    /// Wakes all waiters on the word. A hint: may do nothing.
    fn wake_word(&self, at: u64) -> Result<(), TransportError>;
    /// Returns when the word differs from `seen`, on a wake-up, after `timeout`, or spuriously.
    fn wait_word(&self, at: u64, seen: u32, timeout: Duration) -> Result<(), TransportError>;
}

/// Writes the methods of an `impl` of [`Transport`] that another transport does.
///
/// `forward_transport!(self => TO)` writes all, `forward_transport!(accesses: self => TO)` those
/// that reach the region. `TO` is evaluated at each call, and borrows the other transport.
#[macro_export]
macro_rules! forward_transport {
    ($this:ident => $to:expr) => {
        $crate::forward_transport! {
            methods: $this => $to;
            region_bytes() -> u64;
            loses_puts() -> bool;
        }
        $crate::forward_transport!(accesses: $this => $to);
    };
    (accesses: $this:ident => $to:expr) => {
        $crate::forward_transport! {
            methods: $this => $to;
            put(at: u64, bytes: &[u8]) -> Result<(), $crate::TransportError>;
            put_u32(at: u64, value: u32) -> Result<(), $crate::TransportError>;
            put_u64(at: u64, value: u64) -> Result<(), $crate::TransportError>;
            get(at: u64, out: &mut [u8]) -> Result<(), $crate::TransportError>;
            get_u32(at: u64) -> Result<u32, $crate::TransportError>;
            get_u64(at: u64) -> Result<u64, $crate::TransportError>;
            get_words(at: u64, out: &mut [u64]) -> Result<(), $crate::TransportError>;
            get_fields(at: u64, out: &mut [u64], halves: $crate::Halves)
                -> Result<(), $crate::TransportError>;
            fetch_add_u32(at: u64, value: u32) -> Result<u32, $crate::TransportError>;
            fence() -> ();
            wake_word(at: u64) -> Result<(), $crate::TransportError>;
            wait_word(at: u64, seen: u32, timeout: ::std::time::Duration)
                -> Result<(), $crate::TransportError>;
        }
    };
    (
        methods: $this:ident => $to:expr;
        $($name:ident($($arg:ident: $ty:ty),*) -> $out:ty;)*
    ) => {
        $(fn $name(&$this $(, $arg: $ty)*) -> $out {
            $crate::Transport::$name($to $(, $arg)*)
        })*
    };
}

impl<T: Transport + ?Sized> Transport for std::sync::Arc<T> {
    forward_transport!(self => &**self);
}
