//! What the plane has done, in numbers.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::Duration;

use saccade_ring::layout::SAC_NUM_FETCH_RESULTS;

use crate::layout::*;

/// Operations that have completions: LOOKUP, LOAD, STORE.
pub const NUM_OPS: usize = 3;

/// Numbers since the plane began; not a snapshot of one moment.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Stats {
    /// Completions by operation (LOOKUP, LOAD, STORE) and result (`SAC_FETCH_DONE` ...).
    pub completions: [[u64; SAC_NUM_FETCH_RESULTS]; NUM_OPS],
    /// Commands of which no operation can be told, answered INVALID.
    pub unknown_commands: u64,
    /// Rejected values by reason (`SAC_FETCH_REJECT_*`; the first is unused).
    pub rejections: [u64; SAC_FETCH_REJECT_PAYLOAD as usize + 1],
    /// Bytes of values that came from the store.
    pub bytes_loaded: u64,
    /// Bytes of KV that were written into frames.
    pub kv_bytes_loaded: u64,
    /// Bytes of values that the store took.
    pub bytes_stored: u64,
    /// Time that transfers to and from the store took, summed over transfers.
    pub network_ns: u64,
    /// Time that workers checked values and undid coders.
    pub coder_ns: u64,
    /// Time that workers undid transforms and wrote frames.
    pub place_ns: u64,
    /// Time that workers read frames and coded them.
    pub encode_ns: u64,
    /// Lives of the device that were joined.
    pub joins: u64,
    /// Commands that are being carried out.
    pub in_flight: u32,
    /// Values that wait for the coder stage.
    pub values_waiting: u32,
    /// Planes of chunks that wait for the coder stage.
    pub planes_to_code: u32,
    /// Planes of chunks that wait to be placed.
    pub planes_to_place: u32,
    /// 0 = the store is used, 1 = it failed and rests, 2 = it is being tried.
    pub breaker: u32,
}

#[derive(Debug, Default)]
pub(crate) struct Counters {
    completions: [[AtomicU64; SAC_NUM_FETCH_RESULTS]; NUM_OPS],
    unknown_commands: AtomicU64,
    rejections: [AtomicU64; SAC_FETCH_REJECT_PAYLOAD as usize + 1],
    pub bytes_loaded: Count,
    pub kv_bytes_loaded: Count,
    pub bytes_stored: Count,
    pub network_ns: Count,
    pub coder_ns: Count,
    pub place_ns: Count,
    pub encode_ns: Count,
    pub joins: Count,
    pub in_flight: Gauge,
    pub values_waiting: Gauge,
    pub planes_to_code: Gauge,
    pub planes_to_place: Gauge,
    pub breaker: Gauge,
}

/// A sum. Relaxed: nothing depends on its order.
#[derive(Debug, Default)]
pub(crate) struct Count(AtomicU64);

impl Count {
    pub fn add(&self, n: u64) {
        self.0.fetch_add(n, Ordering::Relaxed);
    }
    pub fn add_time(&self, time: Duration) {
        self.add(u64::try_from(time.as_nanos()).unwrap_or(u64::MAX));
    }
    fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// A number of now. Relaxed: nothing depends on its order.
#[derive(Debug, Default)]
pub(crate) struct Gauge(AtomicU32);

impl Gauge {
    pub fn set(&self, n: usize) {
        self.0.store(u32::try_from(n).unwrap_or(u32::MAX), Ordering::Relaxed);
    }
    fn get(&self) -> u32 {
        self.0.load(Ordering::Relaxed)
    }
}

impl Counters {
    pub fn completed(&self, completion: &Completion) {
        let op = completion.op.checked_sub(SAC_FETCH_LOOKUP).map(|op| op as usize);
        let row = op.and_then(|op| self.completions.get(op));
        let cell = row.and_then(|row| row.get(completion.result as usize));
        cell.unwrap_or(&self.unknown_commands).fetch_add(1, Ordering::Relaxed);
        if completion.result == SAC_FETCH_REJECTED {
            self.rejections[completion.detail as usize].fetch_add(1, Ordering::Relaxed);
        }
    }

    pub fn stats(&self) -> Stats {
        let load = |count: &AtomicU64| count.load(Ordering::Relaxed);
        Stats {
            completions: self.completions.each_ref().map(|row| row.each_ref().map(load)),
            unknown_commands: load(&self.unknown_commands),
            rejections: self.rejections.each_ref().map(load),
            bytes_loaded: self.bytes_loaded.get(),
            kv_bytes_loaded: self.kv_bytes_loaded.get(),
            bytes_stored: self.bytes_stored.get(),
            network_ns: self.network_ns.get(),
            coder_ns: self.coder_ns.get(),
            place_ns: self.place_ns.get(),
            encode_ns: self.encode_ns.get(),
            joins: self.joins.get(),
            in_flight: self.in_flight.get(),
            values_waiting: self.values_waiting.get(),
            planes_to_code: self.planes_to_code.get(),
            planes_to_place: self.planes_to_place.get(),
            breaker: self.breaker.get(),
        }
    }
}
