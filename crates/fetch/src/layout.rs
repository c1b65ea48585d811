//! The Rust mirror of `abi/fetch.h`: the same names, sizes and offsets, and nothing else.
//!
//! Constants keep their C names so that one search finds both sides. `tests/layout.rs` compiles the
//! header, dumps it, and compares every offset and constant with this file and with the golden
//! dump.

use bytemuck::{Pod, Zeroable};

/// "SCFETCH1", little-endian.
pub const SAC_FETCH_MAGIC: u64 = 0x3148_4354_4546_4353;
/// Version of the header as a whole.
pub const SAC_FETCH_VERSION: u32 = 1;
/// FNV-1a 64 of `abi/fetch.layout.txt`.
pub const SAC_FETCH_LAYOUT_HASH: u64 = 0x2bf5_9e39_54c6_cb51;
/// Tokens of a chunk: what a store keeps under one name.
pub const SAC_CHUNK_TOKENS: u32 = 256;
/// Commands, and completions, that a region can hold.
pub const SAC_MAX_FETCH_QUEUE: u32 = 4096;
/// Rows of tokens that a region can hold.
pub const SAC_MAX_FETCH_ENTRIES: u32 = 8192;
/// Frames that a region can hold.
pub const SAC_MAX_FETCH_FRAMES: u32 = 4096;
/// Events that a region can hold.
pub const SAC_MAX_KV_EVENTS: u32 = 1 << 20;
/// The plane's heartbeat moves at least this often.
pub const SAC_FETCH_HEARTBEAT_MS: u32 = 100;

/// How many chunks of these tokens are there, from the first on?
pub const SAC_FETCH_LOOKUP: u32 = 1;
/// Write a chunk's KV into a frame.
pub const SAC_FETCH_LOAD: u32 = 2;
/// Keep the KV in a frame as a chunk.
pub const SAC_FETCH_STORE: u32 = 3;
/// The answer to command `target` is not wanted any more.
pub const SAC_FETCH_CANCEL: u32 = 4;

/// LOAD: the whole frame is written; STORE: it is kept, or was.
pub const SAC_FETCH_DONE: u32 = 0;
/// LOAD: the store has no such chunk (any more).
pub const SAC_FETCH_MISS: u32 = 1;
/// Not done within the command's budget.
pub const SAC_FETCH_LATE: u32 = 2;
/// The store failed; `detail` says how.
pub const SAC_FETCH_TROUBLE: u32 = 3;
/// LOAD: what came is not that chunk; `detail` says why.
pub const SAC_FETCH_REJECTED: u32 = 4;
/// STORE: the store has no room.
pub const SAC_FETCH_FULL: u32 = 5;
/// STORE: the plane has no room; nothing was tried.
pub const SAC_FETCH_DROPPED: u32 = 6;
/// The device asked.
pub const SAC_FETCH_CANCELLED: u32 = 7;
/// The command breaks a bound.
pub const SAC_FETCH_INVALID: u32 = 8;

/// Truncated, followed by other bytes, or too long.
pub const SAC_FETCH_REJECT_LENGTH: u32 = 1;
/// Not a chunk.
pub const SAC_FETCH_REJECT_MAGIC: u32 = 2;
/// Another program wrote it.
pub const SAC_FETCH_REJECT_VERSION: u32 = 3;
/// A bit has changed.
pub const SAC_FETCH_REJECT_CHECKSUM: u32 = 4;
/// Under this name, and of another.
pub const SAC_FETCH_REJECT_NAME: u32 = 5;
/// Of other weights or settings.
pub const SAC_FETCH_REJECT_MODEL: u32 = 6;
/// Of other positions, or of another shape.
pub const SAC_FETCH_REJECT_SPAN: u32 = 7;
/// Of a codec that this program does not have.
pub const SAC_FETCH_REJECT_CODEC: u32 = 8;
/// Its checksum is right, and its code is not.
pub const SAC_FETCH_REJECT_PAYLOAD: u32 = 9;

/// A stage of the plane failed; the store did not.
pub const SAC_FETCH_TROUBLE_INTERNAL: u32 = 1;
/// No connection, or it was lost.
pub const SAC_FETCH_TROUBLE_UNREACHABLE: u32 = 2;
/// The store may not be used so: key, bucket, rights.
pub const SAC_FETCH_TROUBLE_REFUSED: u32 = 3;
/// Its answer is none.
pub const SAC_FETCH_TROUBLE_PROTOCOL: u32 = 4;
/// It failed often and is left alone for a while.
pub const SAC_FETCH_TROUBLE_RESTING: u32 = 5;
/// The value exceeds what the plane has room for.
pub const SAC_FETCH_TROUBLE_TOO_LARGE: u32 = 6;
/// No answer within the deadline of the store.
pub const SAC_FETCH_TROUBLE_TIMEOUT: u32 = 7;
/// Too many calls to it are on their way.
pub const SAC_FETCH_TROUBLE_BUSY: u32 = 8;

/// A block can be found.
pub const SAC_KV_STORED: u32 = 1;
/// It cannot any more.
pub const SAC_KV_REMOVED: u32 = 2;
/// No block can.
pub const SAC_KV_CLEARED: u32 = 3;
/// A block in the device's memory.
pub const SAC_KV_ON_DEVICE: u32 = 0;
/// A block in the host's memory.
pub const SAC_KV_ON_HOST: u32 = 1;

// The wire is little-endian, and copies take words as they lie in memory.
const _: () = assert!(cfg!(target_endian = "little"), "the ring needs a little-endian host");
const _: () = assert!(SAC_CHUNK_TOKENS as usize == saccade_chunk::CHUNK_TOKENS);

/// `sac_fetch_header`: written once by the device; `magic` last with release.
#[repr(C, align(128))]
#[derive(Clone, Copy, Debug, Pod, Zeroable)]
#[allow(missing_docs)] // the fields are documented where they are defined, in abi/fetch.h
pub struct Header {
    pub magic: u64,
    pub version: u32,
    pub header_bytes: u32,
    pub layout_hash: u64,
    pub region_bytes: u64,
    pub instance_id: u64,
    pub queue_len: u32,
    pub num_entries: u32,
    pub entry_tokens: u32,
    pub num_frames: u32,
    pub frame_bytes: u64,
    pub block_bytes: u64,
    pub block_size: u32,
    pub num_layers: u32,
    pub kv_heads: u32,
    pub head_dim: u32,
    pub dtype: u32,
    pub num_events: u32,
    pub event_bytes: u32,
    pub device_wakes: u32,
    pub model_id: [u8; 32],
    pub device_offset: u64,
    pub plane_offset: u64,
    pub commands_offset: u64,
    pub completions_offset: u64,
    pub tokens_offset: u64,
    pub frames_offset: u64,
    pub events_offset: u64,
    pub _pad0: [u8; 64],
}

/// `sac_fetch_device_line`: writer = device.
#[repr(C, align(128))]
#[derive(Clone, Copy, Debug, Pod, Zeroable)]
#[allow(missing_docs)]
pub struct DeviceLine {
    pub commands_written: u32,
    pub completions_read: u32,
    pub acked_epoch: u32,
    pub closed: u32,
    pub heartbeat: u64,
    pub events_written: u64,
    pub events_dropped: u64,
    pub _pad0: [u8; 88],
}

/// `sac_fetch_plane_line`: writer = the fetch plane.
#[repr(C, align(128))]
#[derive(Clone, Copy, Debug, Pod, Zeroable)]
#[allow(missing_docs)]
pub struct PlaneLine {
    pub epoch: u32,
    pub waiting: u32,
    pub commands_read: u32,
    pub completions_written: u32,
    pub heartbeat: u64,
    pub events_read: u64,
    pub pid: u32,
    pub breaker: u32,
    pub stores: u32,
    pub _pad0: u32,
    pub _pad1: [u8; 80],
}

/// `sac_fetch_command`: writer = device, before it counts it.
#[repr(C)]
#[derive(Clone, Copy, Debug, Pod, Zeroable)]
#[allow(missing_docs)]
pub struct Command {
    pub id: u64,
    pub salt: u64,
    pub target: u64,
    pub op: u32,
    pub entry: u32,
    pub num_tokens: u32,
    pub chunk: u32,
    pub frame: u32,
    pub budget_us: u32,
    pub _pad0: [u8; 16],
}

/// `sac_fetch_completion`: writer = the fetch plane, before it counts it.
#[repr(C)]
#[derive(Clone, Copy, Debug, Pod, Zeroable)]
#[allow(missing_docs)]
pub struct Completion {
    pub id: u64,
    pub op: u32,
    pub result: u32,
    pub detail: u32,
    pub num_chunks: u32,
    pub coded_bytes: u64,
    pub _pad0: [u8; 32],
}

/// `sac_kv_event`: writer = device; the block's tokens follow.
#[repr(C)]
#[derive(Clone, Copy, Debug, Pod, Zeroable)]
#[allow(missing_docs)]
pub struct KvEvent {
    pub key: u64,
    pub parent_key: u64,
    pub salt: u64,
    pub kind: u32,
    pub tier: u32,
    pub adapter: u64,
    pub _pad0: [u8; 24],
}

const _: () = assert!(size_of::<Header>() == 256 && align_of::<Header>() == 128);
const _: () = assert!(size_of::<DeviceLine>() == 128 && align_of::<DeviceLine>() == 128);
const _: () = assert!(size_of::<PlaneLine>() == 128 && align_of::<PlaneLine>() == 128);
const _: () = assert!(size_of::<Command>() == 64 && align_of::<Command>() == 8);
const _: () = assert!(size_of::<Completion>() == 64 && align_of::<Completion>() == 8);
const _: () = assert!(size_of::<KvEvent>() == 64 && align_of::<KvEvent>() == 8);
