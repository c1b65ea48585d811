//! Who may touch a chunk of the broadcast ring, by one written flag and one read flag for each
//! reader: the protocol that serving engines use for their step broadcast (vLLM's `ShmRingBuffer`).
//!
//! | written | read flags | meaning |
//! |---|---|---|
//! | 0 | any | no reader may read; the writer may write |
//! | 1 | some are 0 | those readers may read; the writer waits |
//! | 1 | all are 1 | all readers have read; the writer may write again |
//!
//! Generic over the flags, so that `loom` runs the same lines through every interleaving and every
//! stale read that the memory model allows.

use std::sync::atomic::{AtomicU8, Ordering};

/// One flag in shared memory.
pub(crate) trait Flag {
    /// Stores it.
    fn set(&self, value: bool, order: Ordering);
    /// Loads it.
    fn is_set(&self, order: Ordering) -> bool;
}

impl Flag for AtomicU8 {
    fn set(&self, value: bool, order: Ordering) {
        self.store(value.into(), order);
    }
    fn is_set(&self, order: Ordering) -> bool {
        self.load(order) != 0
    }
}

/// The flags of one chunk.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ChunkFlags<'a, F> {
    /// Stored by the writer only.
    pub written: &'a F,
    /// By reader. Set by that reader, cleared by the writer while `written` is 0.
    pub read: &'a [F],
}

impl<F: Flag> ChunkFlags<'_, F> {
    /// Writer: takes the chunk if all readers have read what is in it.
    pub(crate) fn try_begin_write(&self) -> bool {
        // Relaxed: only the writer stores this flag.
        let in_use = self.written.is_set(Ordering::Relaxed);
        // SYNC: acquire; pairs with the release in `finish_read`: the readers' reads of the last
        // message come before our writes of the next.
        if in_use && !self.read.iter().all(|flag| flag.is_set(Ordering::Acquire)) {
            return false;
        }
        // Relaxed: a reader cannot use the old 1 together with its new 0, see `publish`.
        self.written.set(false, Ordering::Relaxed);
        true
    }

    /// Writer: shows the message to all readers.
    pub(crate) fn publish(&self) {
        for flag in self.read {
            // SYNC: release; pairs with the first acquire in `may_read`: a reader that sees this 0
            // sees `written` at 0 or later, never the 1 of the last round, and the payload.
            flag.set(false, Ordering::Release);
        }
        // SYNC: release; pairs with the second acquire in `may_read`: the payload is visible.
        self.written.set(true, Ordering::Release);
    }

    /// Reader: whether there is a message that this reader has not read. The order of the two
    /// loads matters: its own flag first.
    pub(crate) fn may_read(&self, reader: usize) -> bool {
        // SYNC: acquire; both pair with the releases in `publish`.
        !self.read[reader].is_set(Ordering::Acquire) && self.written.is_set(Ordering::Acquire)
    }

    /// Reader: is done with the payload.
    pub(crate) fn finish_read(&self, reader: usize) {
        // SYNC: release; pairs with the acquire in `try_begin_write`.
        self.read[reader].set(true, Ordering::Release);
    }
}

#[cfg(test)]
mod model {
    //! The check also runs with one order weakened and must then fail. Not for the clearing of read
    //! flags: the language allows a reader to see its new 0 with the old `written`, but loom does
    //! not find that case.

    use loom::cell::UnsafeCell;
    use loom::sync::Arc;
    use loom::sync::atomic::AtomicBool;

    use super::*;

    #[derive(Clone, Copy, PartialEq)]
    enum Weakened {
        Nothing,
        WrittenStore,
        ReadSet,
    }

    /// A flag whose stores of one kind are relaxed.
    struct Modelled {
        flag: AtomicBool,
        relaxed: Option<bool>,
    }

    impl Modelled {
        fn new(relaxed: Option<bool>) -> Modelled {
            Modelled { flag: AtomicBool::new(false), relaxed }
        }
    }

    impl Flag for Modelled {
        fn set(&self, value: bool, order: Ordering) {
            let weak = self.relaxed == Some(value);
            self.flag.store(value, if weak { Ordering::Relaxed } else { order });
        }
        fn is_set(&self, order: Ordering) -> bool {
            self.flag.load(order)
        }
    }

    struct Chunk {
        written: Modelled,
        read: Vec<Modelled>,
        payload: UnsafeCell<u32>,
    }

    impl Chunk {
        fn new(readers: usize, weakened: Weakened) -> Chunk {
            let written = (weakened == Weakened::WrittenStore).then_some(true);
            let read = (weakened == Weakened::ReadSet).then_some(true);
            Chunk {
                written: Modelled::new(written),
                read: (0..readers).map(|_| Modelled::new(read)).collect(),
                payload: UnsafeCell::new(0),
            }
        }
        fn flags(&self) -> ChunkFlags<'_, Modelled> {
            ChunkFlags { written: &self.written, read: &self.read }
        }
    }

    fn read_all(chunk: &Chunk, reader: usize, messages: u32) {
        for message in 1..=messages {
            while !chunk.flags().may_read(reader) {
                loom::thread::yield_now();
            }
            // SAFETY: the protocol gives the payload to readers; loom reports it if it does not.
            let got = chunk.payload.with(|payload| unsafe { *payload });
            assert_eq!(got, message, "reader {reader}");
            chunk.flags().finish_read(reader);
        }
    }

    /// Writes the payload when the protocol allows it.
    fn write(chunk: &Chunk, message: u32) {
        while !chunk.flags().try_begin_write() {
            loom::thread::yield_now();
        }
        // SAFETY: as in `read_all`, for the writer.
        chunk.payload.with_mut(|payload| unsafe { *payload = message });
    }

    /// Broadcasts a number of messages to one reader.
    fn check(messages: u32, weakened: Weakened) {
        loom::model(move || {
            let chunk = Arc::new(Chunk::new(1, weakened));
            let reader = Arc::clone(&chunk);
            let reader = loom::thread::spawn(move || read_all(&reader, 0, messages));
            for message in 1..=messages {
                write(&chunk, message);
                chunk.flags().publish();
            }
            reader.join().unwrap();
        });
    }

    #[test]
    fn a_reader_reads_every_message_once() {
        check(2, Weakened::Nothing);
    }

    /// Each side tries once: two that wait for each other in turns would keep loom busy forever.
    #[test]
    fn the_writer_gets_the_chunk_when_all_have_read_it() {
        loom::model(|| {
            let chunk = Arc::new(Chunk::new(2, Weakened::Nothing));
            write(&chunk, 1);
            chunk.flags().publish();
            let readers = [0, 1].map(|reader| {
                let chunk = Arc::clone(&chunk);
                loom::thread::spawn(move || read_all(&chunk, reader, 1))
            });
            if chunk.flags().try_begin_write() {
                // SAFETY: the protocol gives the payload to the writer; loom reports it if not.
                chunk.payload.with_mut(|payload| unsafe { *payload = 2 });
            }
            readers.into_iter().for_each(|reader| reader.join().unwrap());
        });
    }

    #[test]
    #[should_panic(expected = "Causality violation")]
    fn the_written_flag_needs_its_release() {
        check(2, Weakened::WrittenStore);
    }

    #[test]
    #[should_panic(expected = "Causality violation")]
    fn setting_a_read_flag_needs_its_release() {
        check(2, Weakened::ReadSet);
    }
}
