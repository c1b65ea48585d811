//! The processes of a run: the scheduler and the readers of a broadcast, and the replicas that
//! decide for themselves. Scheduler and replica run the same device plane, tick by tick, on a ring
//! region of their own; no model computes (the null step writes tokens only).

use std::os::fd::RawFd;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::Context;
use saccade_device::{
    AttachedDevice, Device, DeviceConfig, DeviceKind, KvDtype, PolicyConfig, PrefillPolicy,
    Quantization, RegionMemory,
};
use saccade_ring::{ShmTransport, Transport};
use serde::{Deserialize, Serialize};

use super::board::{Board, BoardShape};
use super::message::StepMessage;
use super::ring::{Ring, RingShape};
use crate::micro::os::wait::Wait;

/// Vocabulary size of the model that the run pretends to serve.
pub(crate) const VOCAB_SIZE: u32 = 32_000;
const BLOCK_SIZE: u32 = 16;

/// What all processes of a run know.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Common {
    pub board_fd: RawFd,
    pub board: BoardShape,
    /// Line of this process on the board.
    pub process: usize,
    /// How it waits.
    pub wait: Wait,
    /// Longest wait.
    pub limit: Duration,
}

/// The device plane of a scheduler or replica.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct DevicePlane {
    pub region: PathBuf,
    /// Sequences of each step.
    pub num_seqs: u32,
    /// Tokens of a sequence.
    pub max_model_len: u32,
}

/// The broadcast ring.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct RingAt {
    pub fd: RawFd,
    pub shape: RingShape,
}

/// A rank that decides for itself.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Replica {
    pub common: Common,
    pub device: DevicePlane,
}

/// The one that decides for all, and broadcasts.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Scheduler {
    pub common: Common,
    pub device: DevicePlane,
    pub ring: RingAt,
    pub message_bytes: usize,
    /// Second line on the board: when the message was shown.
    pub shown: usize,
}

/// A rank that receives the decisions.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Reader {
    pub common: Common,
    pub rank: usize,
    pub ring: RingAt,
}

/// The shared-memory region, mapped for the life of the device.
struct Region(ShmTransport);

// SAFETY: ShmTransport keeps `region_bytes()` bytes mapped, readable and writable, at `base_ptr()`
// until it is dropped.
unsafe impl RegionMemory for Region {
    fn base(&self) -> *mut u8 {
        self.0.base_ptr()
    }
    fn len(&self) -> usize {
        self.0.region_bytes() as usize
    }
}

impl DevicePlane {
    fn config(&self) -> DeviceConfig {
        // One block more for each sequence than it can fill: nothing is ever preempted.
        let blocks_per_seq = self.max_model_len.div_ceil(BLOCK_SIZE) + 1;
        DeviceConfig {
            kind: DeviceKind::Null { step_us: 0 },
            serial: false,
            prefill_policy: PrefillPolicy::Chunked,
            max_num_seqs: self.num_seqs,
            max_num_batched_tokens: self.num_seqs * self.max_model_len.min(1024),
            max_model_len: self.max_model_len,
            block_size: BLOCK_SIZE,
            num_blocks: self.num_seqs * blocks_per_seq,
            num_host_blocks: 0,
            eager_window: 0,
            prefix_caching: None,
            fetch: None,
            grammar_words: 0,
            embedding_size: 0,
            adapters: Default::default(),
            policy: PolicyConfig::default(),
            num_threads: 1,
            eos_ids: Vec::new(),
            log_decisions: true,
            quantization: Quantization::None,
            fp8_roles: Vec::new(),
            kv_dtype: KvDtype::Auto,
            kv_scales: Vec::new(),
            cuda: Default::default(),
        }
    }

    fn start(&self) -> anyhow::Result<AttachedDevice<Region>> {
        let region = open(&self.region)?;
        let mut device = Device::create(&self.config(), None, VOCAB_SIZE)?.attach(region)?;
        device.ready()?;
        Ok(device)
    }

    /// One tick, which must run every sequence.
    fn tick(&self, device: &mut AttachedDevice<Region>, step: usize) -> anyhow::Result<()> {
        let (ran, expected) = (device.tick()?, self.num_seqs);
        anyhow::ensure!(ran == expected, "step {step} ran {ran} sequences, not {expected}");
        Ok(())
    }
}

fn open(path: &Path) -> anyhow::Result<Region> {
    Ok(Region(ShmTransport::open(path).with_context(|| path.display().to_string())?))
}

/// Checks the scheduler's state and leaves what it decided on the board.
fn conclude(device: &AttachedDevice<Region>, board: &Board, process: usize) -> anyhow::Result<()> {
    device.check()?;
    board.set_decisions(process, &device.decisions());
    Ok(())
}

impl Common {
    fn board(&self) -> anyhow::Result<Board> {
        Board::adopt(self.board_fd, self.board).context("board")
    }
}

impl Replica {
    /// Decides each step as soon as it may be decided.
    ///
    /// # Errors
    /// Of the device plane, or a wait that took too long.
    pub(crate) fn play(&self, who: &str) -> anyhow::Result<()> {
        let Common { process, wait, limit, .. } = self.common;
        let board = self.common.board()?;
        let mut device = self.device.start()?;
        board.set_ready(process);
        for step in 1..=board.num_steps() {
            board.wait_for_step(who, step, wait, limit)?;
            self.device.tick(&mut device, step)?;
            board.record(process, step);
        }
        conclude(&device, &board, process)
    }
}

impl Scheduler {
    /// Decides each step and broadcasts it.
    ///
    /// # Errors
    /// Of the device plane, or a wait that took too long.
    pub(crate) fn play(&self, who: &str) -> anyhow::Result<()> {
        let Common { process, wait, limit, .. } = self.common;
        let board = self.common.board()?;
        let mut ring = Ring::adopt(self.ring.fd, self.ring.shape, wait, limit).context("ring")?;
        let mut device = self.device.start()?;
        let mut bytes = Vec::with_capacity(self.ring.shape.chunk_bytes);
        // Made once: translating each tick's decision would be charged to the broadcast.
        let num_seqs = self.device.num_seqs as usize;
        let mut message = StepMessage::of_size(0, num_seqs, self.message_bytes);
        board.set_ready(process);
        for step in 1..=board.num_steps() {
            board.wait_for_step(who, step, wait, limit)?;
            self.device.tick(&mut device, step)?;
            board.record(process, step);
            message.step = step as u64;
            message.encode(&mut bytes);
            ring.write(&bytes)?;
            board.record(self.shown, step);
        }
        conclude(&device, &board, process)
    }
}

impl Reader {
    /// Takes each step from the broadcast.
    ///
    /// # Errors
    /// A malformed message, or a wait that took too long.
    pub(crate) fn play(&self) -> anyhow::Result<()> {
        let Common { process, wait, limit, .. } = self.common;
        let board = self.common.board()?;
        let mut ring = Ring::adopt(self.ring.fd, self.ring.shape, wait, limit).context("ring")?;
        board.set_ready(process);
        for step in 1..=board.num_steps() {
            let message = ring.read(self.rank, StepMessage::decode)?;
            let right = message.as_ref().is_some_and(|m| m.step == step as u64);
            anyhow::ensure!(right, "what was broadcast for step {step} is not its batch");
            board.record(process, step);
            drop(message);
        }
        Ok(())
    }
}
