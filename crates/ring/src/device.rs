//! What the frontend knows about the device plane, and whether it is alive.

use std::mem::offset_of;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use crate::layout::*;
use crate::region::RegionLayout;
use crate::sync::{AtomicBool, Mutex, try_lock};
use crate::transport::{Transport, TransportError};

/// Phase of the device plane.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Phase {
    /// No device has joined, it left, or it wrote an unknown phase.
    Absent,
    /// Weights are being loaded.
    Loading,
    /// Requests are accepted.
    Ready,
    /// It gave up.
    Failed,
}

impl Phase {
    fn from_wire(phase: u32) -> Phase {
        match phase {
            SAC_PHASE_LOADING => Phase::Loading,
            SAC_PHASE_READY => Phase::Ready,
            SAC_PHASE_FAILED => Phase::Failed,
            _ => Phase::Absent,
        }
    }
}

/// The device line as last read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DeviceInfo {
    /// Life of the device; 0 = none has ever joined.
    pub epoch: u32,
    /// Its phase.
    pub phase: Phase,
    /// Its heartbeat moved within the joiner's time limit.
    pub alive: bool,
    /// Its heartbeat.
    pub heartbeat: u64,
    /// Bytes of weights loaded.
    pub load_done_bytes: u64,
    /// Bytes of weights to load.
    pub load_total_bytes: u64,
    /// Exclusive bound on token ids. This field and those below are valid in [`Phase::Ready`].
    pub vocab_size: u32,
    /// Longest sequence in tokens, prompt and output.
    pub max_model_len: u32,
    /// Tokens of a KV block.
    pub block_size: u32,
    /// KV blocks.
    pub num_blocks: u32,
    /// KV blocks in host memory; 0: there is one tier.
    pub num_host_blocks: u32,
    /// Sequences that can hold a seat.
    pub max_num_seqs: u32,
    /// Rows of a step.
    pub max_num_batched_tokens: u32,
    /// Bytes of a KV block; 0: blocks take no memory.
    pub kv_block_bytes: u64,
    /// Pid of the host process behind the device, in its own view; 0: unknown. It may belong to
    /// another machine or pid namespace: see `process_start_ticks`.
    pub pid: u32,
    /// Field 22 of its /proc/<pid>/stat, which identifies the process.
    pub process_start_ticks: u64,
}

impl DeviceInfo {
    /// True when a request may be submitted.
    #[must_use]
    pub fn ready(&self) -> bool {
        self.phase == Phase::Ready && self.alive
    }

    /// No device: reported while the region is unreachable.
    fn unreachable() -> DeviceInfo {
        DeviceInfo {
            epoch: 0,
            phase: Phase::Absent,
            alive: false,
            heartbeat: 0,
            load_done_bytes: 0,
            load_total_bytes: 0,
            vocab_size: 0,
            max_model_len: 0,
            block_size: 0,
            num_blocks: 0,
            num_host_blocks: 0,
            max_num_seqs: 0,
            max_num_batched_tokens: 0,
            kv_block_bytes: 0,
            pid: 0,
            process_start_ticks: 0,
        }
    }

    pub(crate) fn read<T: Transport>(
        t: &T,
        layout: &RegionLayout,
    ) -> Result<DeviceInfo, TransportError> {
        // Three transfers, because a transfer may cross a network. SYNC: acquire; the first one
        // pairs with the device's release of epoch and phase. The sizes are written before phase
        // READY. A restart in between shows in the third.
        let first = t.get_u64(layout.device_at(offset_of!(DeviceLine, epoch)))?;
        let (epoch, phase) = (first as u32, Phase::from_wire((first >> 32) as u32));
        let mut words = [0u64; size_of::<DeviceLine>() / 8];
        t.get_words(layout.device_at(0), &mut words)?;
        let line: DeviceLine = bytemuck::cast(words);
        let info = DeviceInfo {
            epoch,
            phase,
            alive: false,
            heartbeat: line.heartbeat,
            load_done_bytes: line.load_done_bytes,
            load_total_bytes: line.load_total_bytes,
            vocab_size: line.vocab_size,
            max_model_len: line.max_model_len,
            block_size: line.block_size,
            num_blocks: line.num_blocks,
            num_host_blocks: line.num_host_blocks,
            max_num_seqs: line.max_num_seqs,
            max_num_batched_tokens: line.max_num_batched_tokens,
            kv_block_bytes: line.kv_block_bytes,
            pid: line.pid,
            process_start_ticks: line.process_start_ticks,
        };
        if t.get_u32(layout.device_at(offset_of!(DeviceLine, epoch)))? != epoch {
            return Ok(DeviceInfo { phase: Phase::Loading, ..info });
        }
        Ok(info)
    }
}

/// Watches the device's heartbeat.
///
/// Only time that this process spent looking counts: one look adds at most a quarter of the limit,
/// so a frontend that was itself stalled does not declare a live device dead.
#[derive(Debug)]
pub(crate) struct Monitor {
    lost_after: Duration,
    last: Mutex<LastLook>,
    alive: AtomicBool,
}

// `read` takes both in one word.
const _: () = assert!(offset_of!(DeviceLine, epoch) == 0 && offset_of!(DeviceLine, phase) == 4);

#[derive(Clone, Copy, Debug)]
struct LastLook {
    epoch: u32,
    heartbeat: u64,
    at: Instant,
    still: Duration,
}

impl Monitor {
    pub(crate) fn new(lost_after: Duration) -> Monitor {
        let last = LastLook { epoch: 0, heartbeat: 0, at: Instant::now(), still: Duration::ZERO };
        Monitor { lost_after, last: Mutex::new(last), alive: AtomicBool::new(true) }
    }

    /// Reads the device line and judges it. A region that cannot be reached has no device.
    pub(crate) fn observe<T: Transport>(&self, t: &T, layout: &RegionLayout) -> DeviceInfo {
        match DeviceInfo::read(t, layout) {
            Ok(info) => DeviceInfo { alive: self.judge(info.epoch, info.heartbeat), ..info },
            Err(_) => DeviceInfo::unreachable(),
        }
    }

    fn judge(&self, epoch: u32, heartbeat: u64) -> bool {
        // The lock holder is judging the same line right now: use the last verdict.
        let Some(mut last) = try_lock(&self.last) else {
            return self.alive.load(Ordering::Relaxed);
        };
        let now = Instant::now();
        if (epoch, heartbeat) == (last.epoch, last.heartbeat) {
            let since = now - last.at;
            last.still += since.min(self.lost_after / 4);
        } else {
            last.still = Duration::ZERO;
        }
        (last.epoch, last.heartbeat, last.at) = (epoch, heartbeat, now);
        let alive = last.still <= self.lost_after;
        self.alive.store(alive, Ordering::Relaxed);
        alive
    }
}
