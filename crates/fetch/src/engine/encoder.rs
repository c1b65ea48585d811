//! The other direction: KV of a frame becomes a value. Encoders have threads of their own, of low
//! priority, so that what requests wait for goes first.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use bytes::Bytes;
use crossbeam_queue::ArrayQueue;
use saccade_chunk::codec::Scratch;
use saccade_chunk::{Codec, Value, raw_value_bytes, seal};
use tokio::sync::oneshot;

use crate::bell::Bell;
use crate::counters::Counters;
use crate::frame::Frame;
use crate::session::Op;

/// A frame to encode. `done` gets the value; it is dropped if the command is not wanted any more.
pub(crate) struct EncodeJob {
    pub op: Arc<Op>,
    pub frame: Frame,
    pub value: Value,
    pub done: oneshot::Sender<Bytes>,
}

pub(crate) struct Encoders {
    codec: Codec,
    jobs: ArrayQueue<EncodeJob>,
    bell: Bell,
    stop: AtomicBool,
    counters: Arc<Counters>,
}

/// An encoder's buffers.
pub(crate) struct Buffers {
    kv: Vec<u8>,
    sealed: Vec<u8>,
    scratch: Scratch,
}

impl Buffers {
    /// All pages are touched.
    pub fn new(value: &Value, codec: Codec) -> Buffers {
        let kv = vec![1; value.geometry.bytes()];
        let mut sealed = vec![1; raw_value_bytes(&value.geometry)];
        let mut scratch = Scratch::default();
        sealed.clear();
        seal(value, codec, &kv, &mut scratch, &mut sealed);
        Buffers { kv, sealed, scratch }
    }
}

impl Encoders {
    pub fn new(codec: Codec, queue_len: usize, counters: Arc<Counters>) -> Encoders {
        Encoders {
            codec,
            jobs: ArrayQueue::new(queue_len),
            bell: Bell::default(),
            stop: AtomicBool::new(false),
            counters,
        }
    }

    /// False: there is no room.
    pub fn submit(&self, job: EncodeJob) -> bool {
        let taken = self.jobs.push(job).is_ok();
        self.bell.ring();
        taken
    }

    pub fn stop(&self) {
        // SYNC: relaxed; ordered by the ring.
        self.stop.store(true, Ordering::Relaxed);
        self.bell.ring();
    }

    /// An encoder's life.
    pub fn work(&self, mut buffers: Buffers) {
        loop {
            let seen = self.bell.look();
            // SYNC: relaxed; ordered by `look`.
            if self.stop.load(Ordering::Relaxed) {
                return;
            }
            match self.jobs.pop() {
                Some(job) => self.encode(job, &mut buffers),
                None => self.bell.wait(seen, 0),
            }
        }
    }

    fn encode(&self, job: EncodeJob, buffers: &mut Buffers) {
        if job.op.refused().is_some() {
            return;
        }
        let began = Instant::now();
        let g = &job.value.geometry;
        for (plane, kv) in buffers.kv.chunks_exact_mut(g.plane_bytes()).enumerate() {
            if job.frame.read_plane(plane, kv).is_err() {
                return; // the region is lost
            }
        }
        let Buffers { kv, sealed, scratch } = buffers;
        sealed.clear();
        seal(&job.value, self.codec, kv, scratch, sealed);
        if sealed.len() > raw_value_bytes(g) {
            // What no codec shortens is kept as it is: readers have no room for more.
            sealed.clear();
            seal(&job.value, Codec::Raw, kv, scratch, sealed);
        }
        self.counters.encode_ns.add_time(began.elapsed());
        // A receiver that has gone needs no value.
        job.done.send(Bytes::copy_from_slice(sealed)).ok();
    }
}
