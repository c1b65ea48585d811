//! What a publisher has done, for metrics.

use std::sync::atomic::{AtomicU64, Ordering};

#[derive(Debug, Default)]
pub(crate) struct Counter(AtomicU64);

impl Counter {
    // SYNC: relaxed, here and below; a number for metrics orders nothing.
    pub(crate) fn add(&self, by: u64) {
        self.0.fetch_add(by, Ordering::Relaxed);
    }
    pub(crate) fn sub(&self, by: u64) {
        self.0.fetch_sub(by, Ordering::Relaxed);
    }
    fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

macro_rules! counters {
    ($($(#[$doc:meta])* $name:ident,)*) => {
        #[derive(Debug, Default)]
        pub(crate) struct Counters { $(pub(crate) $name: Counter,)* }

        /// What a publisher has done since it was started.
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
        pub struct Stats { $($(#[$doc])* pub $name: u64,)* }

        impl Counters {
            pub(crate) fn stats(&self) -> Stats {
                Stats { $($name: self.$name.get(),)* }
            }
        }
    };
}

counters! {
    /// Events read from the ring and published.
    events,
    /// Events of the ring that made no sense, and were left out.
    ignored,
    /// Times that the device's counts were impossible; each time routers were told to forget all.
    resyncs,
    /// Events that the device could not tell, as it says itself.
    dropped_by_device,
    /// Batches published.
    batches,
    /// Bytes of them.
    bytes,
    /// Subscribers that are connected.
    subscribers,
    /// Batches that subscribers missed because they were too far behind.
    missed,
    /// Requests for a replay that were answered.
    replays,
    /// Connections that were refused: too many, or no peers of ours.
    refused,
    /// Connections that were ended: what came was no ZeroMQ, or nothing was taken for too long.
    ended,
}
