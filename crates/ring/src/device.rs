//! What the frontend knows about the device plane, and whether it is alive.

use std::mem::offset_of;
use std::time::{Duration, Instant};

use crate::layout::*;
use crate::region::RegionLayout;
use crate::sync::{AtomicU64, PAYLOAD};
use crate::transport::{Halves, Transport, TransportError};

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
    /// Of its tokens' bytes; 0: it does not know them.
    pub vocab_hash: u64,
    /// Words of a grammar that a request may bring; 0: it refuses grammars.
    pub grammar_words: u32,
    /// Values of an embedding; 0: it refuses to give them.
    pub embedding_size: u32,
    /// Adapters that a request may name.
    pub num_adapters: u32,
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
            vocab_hash: 0,
            grammar_words: 0,
            embedding_size: 0,
            num_adapters: 0,
        }
    }

    pub(crate) fn read<T: Transport>(
        t: &T,
        layout: &RegionLayout,
    ) -> Result<DeviceInfo, TransportError> {
        // Three transfers, because a transfer may cross a network. SYNC: acquire; the first one
        // pairs with the device's releases of epoch and phase, in this order. The sizes are written
        // before phase READY. A restart in between shows in the third.
        let epoch_at = layout.device_at(offset_of!(DeviceLine, epoch));
        let mut first = [0u64];
        t.get_fields(epoch_at, &mut first, Halves::From(0))?;
        let (epoch, phase) = (first[0] as u32, Phase::from_wire((first[0] >> 32) as u32));
        let mut words = [0u64; size_of::<DeviceLine>() / 8];
        t.get_fields(layout.device_at(0), &mut words, DEVICE_LINE_HALVES)?;
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
            vocab_hash: line.vocab_hash,
            grammar_words: line.grammar_words,
            // What does not fit a slot's output ring is never given, whatever the device says.
            embedding_size: match sac_embedding_words(line.embedding_size) {
                words if words > layout.out_ring_words() => 0,
                _ => line.embedding_size,
            },
            num_adapters: line.num_adapters.min(SAC_MAX_ADAPTERS),
        };
        if t.get_u32(epoch_at)? != epoch {
            return Ok(DeviceInfo { phase: Phase::Loading, ..info });
        }
        Ok(info)
    }
}

/// What memory and arithmetic allow the device's steps: a step takes at least the larger of the
/// time in which its bytes are read and that of its products.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Roof {
    /// Measurements of this life of the device.
    pub generation: u32,
    /// Name of its set of kernels.
    pub kernels: String,
    /// Threads that run its steps.
    pub num_threads: u32,
    /// Bytes of all weights, as the kernels read them.
    pub packed_bytes: u64,
    /// Of those, in huge pages.
    pub huge_page_bytes: u64,
    /// Bytes of weights that a step of one row reads.
    pub step_weight_bytes: u64,
    /// Multiplications and additions of a row with those weights, logits included.
    pub row_flop: u64,
    /// The packed weights, read by the threads of its steps without a product: bytes/s.
    pub read_bytes_per_s: u64,
    /// Rows and the rate of their products with operands in caches, FLOP/s.
    pub product_flop_per_s: Vec<(u32, u64)>,
}

impl Roof {
    /// Steps of `rows` rows that this allows in a second, KV and experts beyond those of one row
    /// left out; infinite where nothing was measured.
    #[must_use]
    pub fn steps_per_s(&self, rows: u32) -> f64 {
        let memory_s = self.step_weight_bytes as f64 / self.read_bytes_per_s as f64;
        let rate = self.product_flop_per_s.iter().rev().find(|(of, _)| *of <= rows);
        let products_s =
            rate.map_or(0.0, |(_, rate)| self.row_flop as f64 * f64::from(rows) / *rate as f64);
        1.0 / memory_s.max(products_s)
    }

    /// `None` if the device has not measured it.
    pub(crate) fn read<T: Transport>(
        t: &T,
        layout: &RegionLayout,
    ) -> Result<Option<Roof>, TransportError> {
        // SYNC: acquire; pairs with the device's release of the generation. A measurement that ends
        // meanwhile makes the words behind it a mixture of two, each of which was measured.
        let generation = t.get_u32(layout.roof_at())?;
        if generation == 0 {
            return Ok(None);
        }
        let mut words = [0u64; size_of::<DeviceRoof>() / 8];
        t.get_fields(layout.roof_at(), &mut words, ROOF_HALVES)?;
        let line: DeviceRoof = bytemuck::cast(words);
        let name = line.kernels.split(|byte| *byte == 0).next().unwrap_or_default();
        let rates = line.product_mflop_per_s.iter().enumerate();
        let measured = rates.filter(|(_, rate)| **rate != 0);
        Ok(Some(Roof {
            generation,
            // Label and JSON string, from a peer that is not trusted.
            kernels: name.escape_ascii().to_string(),
            num_threads: line.num_threads,
            packed_bytes: line.packed_bytes,
            huge_page_bytes: line.huge_page_bytes.min(line.packed_bytes),
            step_weight_bytes: line.step_weight_bytes,
            row_flop: line.row_flop,
            read_bytes_per_s: line.read_bytes_per_s,
            product_flop_per_s: measured
                .map(|(log, rate)| (1 << log, u64::from(*rate) * 1_000_000))
                .collect(),
        }))
    }
}

/// Watches the device's heartbeat, from any number of threads, none of which waits for another.
///
/// Only time that this process spent looking counts: one look adds at most a quarter of the limit,
/// so a frontend that was itself stalled does not declare a live device dead.
#[derive(Debug)]
pub(crate) struct Monitor {
    began: Instant,
    lost_after_us: u32,
    /// When it was last looked at, in microseconds since `began`.
    looked_us: AtomicU64,
    /// High half: the life and heartbeat that were seen. Low half: how long they have been the same
    /// under our eyes, in microseconds.
    still: AtomicU64,
}

// `read` takes both in one word.
const _: () = assert!(offset_of!(DeviceLine, epoch) == 0 && offset_of!(DeviceLine, phase) == 4);

impl Monitor {
    /// `lost_after` counts up to 71 minutes, the range of 32 bits.
    pub(crate) fn new(lost_after: Duration) -> Monitor {
        Monitor {
            began: Instant::now(),
            lost_after_us: u32::try_from(lost_after.as_micros()).unwrap_or(u32::MAX - 1),
            looked_us: AtomicU64::new(0),
            still: AtomicU64::new(0),
        }
    }

    /// Reads the device line and judges it. A region that cannot be reached has no device.
    pub(crate) fn observe<T: Transport>(&self, t: &T, layout: &RegionLayout) -> DeviceInfo {
        match DeviceInfo::read(t, layout) {
            Ok(info) => DeviceInfo { alive: self.judge(info.epoch, info.heartbeat), ..info },
            Err(_) => DeviceInfo::unreachable(),
        }
    }

    fn judge(&self, epoch: u32, heartbeat: u64) -> bool {
        let now_us = self.began.elapsed().as_micros() as u64;
        // Relaxed, here and below: no other data depends on these words. Two looks at once share
        // the time since the last one; each counts its own part.
        let since_us = now_us.saturating_sub(self.looked_us.fetch_max(now_us, PAYLOAD));
        let since_us = since_us.min(u64::from(self.lost_after_us / 4));
        // Any two heartbeats of a life differ here within 2^32, and two lives in all but one case
        // of 2^32, which counts a restart as silence until the next beat.
        let seen = epoch.wrapping_mul(0x9e37_79b9) ^ heartbeat as u32;
        let word =
            |still_us: u64| u64::from(seen) << 32 | still_us.min(u64::from(self.lost_after_us) + 1);
        let before = self.still.load(PAYLOAD);
        let same = (before >> 32) as u32 == seen;
        let after = if same { word(u64::from(before as u32) + since_us) } else { word(0) };
        // Lost to another look at the same moment: its verdict counts, and our part of the time
        // goes uncounted, which favours the device.
        let after = match self.still.compare_exchange(before, after, PAYLOAD, PAYLOAD) {
            Ok(_) => after,
            Err(newer) => newer,
        };
        after as u32 <= self.lost_after_us
    }
}
