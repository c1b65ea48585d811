//! The stages behind the network: the coder (check a value, undo the coder of its planes) and
//! placing (undo the transform, write the blocks).
//!
//! ```text
//! network ─▶ arrived ─▶ open ─▶ to_code ─▶ decode ─▶ to_place ─▶ place ─▶ frame
//!                                            ▲                      │
//!                                            └─── scratches ◀───────┘
//! ```
//!
//! Planes of one chunk flow one by one, so that a chunk is placed while the next one is decoded and
//! others arrive. All queues are bounded by what was allocated at the start: values, and scratches.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use crossbeam_queue::ArrayQueue;
use saccade_chunk::Geometry;
use saccade_chunk::codec::Scratch;

use super::job::ChunkJob;
use crate::bell::Bell;
use crate::config::FetchMode;
use crate::counters::Counters;

/// What a worker does first. It helps with the other stage when it has nothing to do, but for
/// `NoPipeline`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Role {
    Coder,
    Placer,
    /// There is one worker for both.
    Both,
}

type Plane = (Arc<ChunkJob>, usize);

pub(crate) struct Stages {
    geometry: Geometry,
    mode: FetchMode,
    arrived: ArrayQueue<Arc<ChunkJob>>,
    to_code: ArrayQueue<Plane>,
    to_place: ArrayQueue<(Plane, Box<Scratch>)>,
    scratches: ArrayQueue<Box<Scratch>>,
    bell: Bell,
    stop: AtomicBool,
    counters: Arc<Counters>,
}

impl Stages {
    pub fn new(
        geometry: Geometry,
        mode: FetchMode,
        num_values: usize,
        scratches: Vec<Scratch>,
        counters: Arc<Counters>,
    ) -> Stages {
        let free = ArrayQueue::new(scratches.len());
        for scratch in scratches {
            free.push(Box::new(scratch)).ok();
        }
        Stages {
            geometry,
            mode,
            arrived: ArrayQueue::new(num_values),
            to_code: ArrayQueue::new(num_values * geometry.num_planes()),
            to_place: ArrayQueue::new(free.capacity()),
            scratches: free,
            bell: Bell::default(),
            stop: AtomicBool::new(false),
            counters,
        }
    }

    /// Takes a chunk whose value is here. It was let in by a permit, of which there are as many as
    /// `arrived` is long; one too many is dropped, which answers it.
    pub fn submit(&self, job: ChunkJob) {
        self.arrived.push(Arc::new(job)).ok();
        self.gauge();
        self.bell.ring();
    }

    /// Workers end after the plane that they are at.
    pub fn stop(&self) {
        // SYNC: relaxed; ordered by the ring.
        self.stop.store(true, Ordering::Relaxed);
        self.bell.ring();
    }

    /// A worker's life. `kv` has room for a plane.
    pub fn work(&self, role: Role, spins: u32, mut kv: Vec<u8>) {
        loop {
            let seen = self.bell.look();
            // SYNC: relaxed; ordered by `look`.
            if self.stop.load(Ordering::Relaxed) {
                return;
            }
            if !self.step(role, &mut kv) {
                self.bell.wait(seen, spins);
            }
        }
    }

    /// False: there was nothing to do.
    fn step(&self, role: Role, kv: &mut [u8]) -> bool {
        let helps = self.mode != FetchMode::NoPipeline;
        match role {
            Role::Coder => self.code() || (helps && self.place(kv)),
            Role::Placer => self.place(kv) || (helps && self.code()),
            Role::Both => self.place(kv) || self.code(),
        }
    }

    /// Undoes the coder of a plane; if none is there, opens the next value.
    fn code(&self) -> bool {
        let Some(mut scratch) = self.scratches.pop() else { return false };
        let Some((job, plane)) = self.to_code.pop() else {
            self.free(scratch);
            return self.open();
        };
        let began = Instant::now();
        if self.mode == FetchMode::NoMemoryManagement {
            *scratch = Scratch::default();
        }
        let decoded = match job.coded() {
            Some(coded) if !job.is_over() => {
                coded.decode_symbols(plane, &mut scratch).map_err(|error| job.reject(error.into()))
            }
            _ => Err(()),
        };
        self.counters.coder_ns.add_time(began.elapsed());
        let scratch = match decoded {
            Ok(()) => Some(scratch),
            Err(()) => {
                self.free(scratch);
                None
            }
        };
        self.pass(job, plane, scratch);
        true
    }

    /// Hands a plane to the next stage. None: the plane is skipped.
    fn pass(&self, job: Arc<ChunkJob>, plane: usize, scratch: Option<Box<Scratch>>) {
        if self.mode == FetchMode::NoPipeline {
            for (plane, scratch) in job.hold(scratch.map(|scratch| (plane, scratch))) {
                self.queue_placing((job.clone(), plane), scratch);
            }
        } else if let Some(scratch) = scratch {
            self.queue_placing((job, plane), scratch);
        }
    }

    /// The queue is as long as there are scratches.
    fn queue_placing(&self, plane: Plane, scratch: Box<Scratch>) {
        if let Err((_, scratch)) = self.to_place.push((plane, scratch)) {
            self.free(scratch);
        }
        self.gauge();
        self.bell.ring();
    }

    /// Checks the next value, and queues its planes.
    fn open(&self) -> bool {
        let Some(job) = self.arrived.pop() else { return false };
        let began = Instant::now();
        let opened = !job.is_over() && job.open();
        self.counters.coder_ns.add_time(began.elapsed());
        if opened {
            for plane in 0..job.num_planes() {
                // There is a place for each plane of each value; one too many would be skipped,
                // and its chunk would not be done.
                self.to_code.push((job.clone(), plane)).ok();
            }
        }
        drop(job);
        self.gauge();
        self.bell.ring();
        true
    }

    /// Undoes the transform of a plane, and writes it into the frame.
    fn place(&self, kv: &mut [u8]) -> bool {
        let Some(((job, plane), scratch)) = self.to_place.pop() else { return false };
        let began = Instant::now();
        if let Some(coded) = job.coded()
            && !job.is_over()
        {
            let placed = if self.mode == FetchMode::NoMemoryManagement {
                // As a plane would do without its own buffers: each step makes one.
                let mut kv = vec![0; self.geometry.plane_bytes()];
                coded.place(plane, &mut kv, &scratch).map(|()| {
                    let copy = kv.clone();
                    job.frame().write_plane(plane, &copy)
                })
            } else {
                coded.place(plane, kv, &scratch).map(|()| job.frame().write_plane(plane, kv))
            };
            match placed {
                Ok(Ok(())) => {
                    self.counters.kv_bytes_loaded.add(self.geometry.plane_bytes() as u64);
                    job.plane_placed();
                }
                // The region is lost: the chunk lacks a plane, so it is not done.
                Ok(Err(_)) => {}
                Err(error) => job.reject(error.into()),
            }
        }
        self.counters.place_ns.add_time(began.elapsed());
        drop(job);
        self.free(scratch);
        self.bell.ring();
        true
    }

    /// Gives a scratch back. There is a place for each.
    fn free(&self, scratch: Box<Scratch>) {
        self.scratches.push(scratch).ok();
    }

    fn gauge(&self) {
        self.counters.values_waiting.set(self.arrived.len());
        self.counters.planes_to_code.set(self.to_code.len());
        self.counters.planes_to_place.set(self.to_place.len());
    }
}
