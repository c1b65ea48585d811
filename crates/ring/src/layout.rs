//! The Rust mirror of `abi/wire.h`: the same names, sizes and offsets, and nothing else.
//!
//! Constants keep their C names so that one search finds both sides. `tests/layout.rs` compiles the
//! header, dumps it, and compares every offset and constant with this file and with the golden
//! dump.

use bytemuck::{Pod, Zeroable};

use crate::transport::Halves;

/// "SACCADE1", little-endian.
pub const SAC_MAGIC: u64 = 0x3145_4441_4343_4153;
/// Version of the header as a whole.
pub const SAC_ABI_VERSION: u32 = 1;
/// FNV-1a 64 of `abi/wire.layout.txt`.
pub const SAC_LAYOUT_HASH: u64 = 0x7fb6_d2e1_f54c_a445;

/// One writer per line of this size.
pub const SAC_LINE_BYTES: u32 = 128;
/// Slots in a region, all frontends together.
pub const SAC_MAX_SLOTS: u32 = 4096;
/// Slots of one frontend come in multiples of this, so that no line is shared.
pub const SAC_SLOT_GRANULE: u32 = 32;
/// Frontends that can share one device.
pub const SAC_MAX_FRONTENDS: u32 = 16;
/// Alternatives per token.
pub const SAC_MAX_TOP_LOGPROBS: u32 = 20;
/// Logit bias pairs per request.
pub const SAC_MAX_LOGIT_BIAS: u32 = 1024;
/// Stop token ids per request.
pub const SAC_MAX_STOP_IDS: u32 = 128;
/// Tenants that the device tells apart.
pub const SAC_MAX_TENANTS: u32 = 64;
/// Largest weight of a tenant.
pub const SAC_MAX_TENANT_WEIGHT: u32 = 1000;
/// Adapters that a device may have.
pub const SAC_MAX_ADAPTERS: u32 = 256;
/// Smallest output ring of a slot, in 8-byte words.
pub const SAC_MIN_OUT_RING_WORDS: u32 = 64;
/// Largest output ring of a slot, in 8-byte words.
pub const SAC_MAX_OUT_RING_WORDS: u32 = 65536;
/// Arena extents start at multiples of this.
pub const SAC_ARENA_ALIGN_BYTES: u32 = 64;
/// Places of a grammar's stack.
pub const SAC_GRAMMAR_STACK: u32 = 32;
/// Bytes of plain text that a state of a grammar speaks of at most.
pub const SAC_GRAMMAR_PLAIN_BYTES: u32 = 32;
/// Places of a grammar's stack that must be free for that text.
pub const SAC_GRAMMAR_PLAIN_PLACES: u32 = 8;
/// Words of one grammar; a device may have room for fewer.
pub const SAC_MAX_GRAMMAR_WORDS: u32 = 196608;
/// The first edge in a state of a grammar.
pub const SAC_GRAMMAR_EDGE_MASK: u32 = 0xffff;
/// Where a state of a grammar says how much plain text may follow.
pub const SAC_GRAMMAR_PLAIN_SHIFT: u32 = 16;
/// The bits of that, shifted.
pub const SAC_GRAMMAR_PLAIN_MASK: u32 = 0x3f;
/// A state of a grammar that its rule may end in.
pub const SAC_GRAMMAR_FINAL: u32 = 1 << 22;
/// A state of a grammar whose last entry names the state that covers all other bytes.
pub const SAC_GRAMMAR_DEFAULT: u32 = 1 << 23;
/// Where a state of a grammar says how much of the stack its way out needs.
pub const SAC_GRAMMAR_NEED_SHIFT: u32 = 24;
/// An edge of a grammar that pushes no state.
pub const SAC_GRAMMAR_NO_PUSH: u32 = 0xffff;
/// Tokens behind a drawn one that a grammar may force.
pub const SAC_MAX_FORCED_TOKENS: u32 = 16;

/// The slot holds no request.
pub const SAC_STATE_EMPTY: u32 = 0;
/// Known to the device, waiting for a seat.
pub const SAC_STATE_PREFILL_PENDING: u32 = 1;
/// Holds KV blocks; its prompt is being computed.
pub const SAC_STATE_PREFILL_PROCESSING: u32 = 2;
/// Produces a token per step.
pub const SAC_STATE_DECODE_PROCESSING: u32 = 3;
/// Held: reader behind, preempted, or rotated out.
pub const SAC_STATE_DECODE_PAUSED: u32 = 4;
/// Count and finish reason are final; no resource is held.
pub const SAC_STATE_DECODE_COMPLETED: u32 = 5;
/// Prefix KV is being requested.
pub const SAC_STATE_FETCH_PENDING: u32 = 6;
/// Prefix KV is being written into reserved blocks.
pub const SAC_STATE_FETCH_PROCESSING: u32 = 7;
/// Number of states; they are dense from 0.
pub const NUM_STATES: usize = 8;

/// Not finished.
pub const SAC_FINISH_NONE: u32 = 0;
/// An end-of-sequence or stop token id; that token is the last.
pub const SAC_FINISH_STOP: u32 = 1;
/// `max_tokens`, or the model's length limit.
pub const SAC_FINISH_LENGTH: u32 = 2;
/// The frontend cancelled it.
pub const SAC_FINISH_CANCELLED: u32 = 3;
/// The descriptor or a token id broke a bound; nothing was run.
pub const SAC_FINISH_INVALID: u32 = 4;
/// Submitted to an earlier life of the device.
pub const SAC_FINISH_STALE_EPOCH: u32 = 5;
/// The step failed for this request.
pub const SAC_FINISH_ERROR: u32 = 6;

/// No device has joined, or it left.
pub const SAC_PHASE_ABSENT: u32 = 0;
/// Weights are being loaded.
pub const SAC_PHASE_LOADING: u32 = 1;
/// Requests are accepted.
pub const SAC_PHASE_READY: u32 = 2;
/// The device gave up.
pub const SAC_PHASE_FAILED: u32 = 3;

/// End-of-sequence ids of the model do not stop the request.
pub const SAC_REQ_IGNORE_EOS: u32 = 1;
/// Logprob of each produced token.
pub const SAC_REQ_LOGPROBS: u32 = 2;
/// Records for prompt tokens 1..n-1 come before the first token.
pub const SAC_REQ_PROMPT_LOGPROBS: u32 = 4;
/// One record, the embedding of the prompt.
pub const SAC_REQ_EMBED: u32 = 8;
/// Every flag that has a meaning.
pub const SAC_REQ_KNOWN_FLAGS: u32 = 15;

/// A living frontend's heartbeat moves at least this often.
pub const SAC_FRONTEND_HEARTBEAT_MS: u32 = 100;
/// A frontend whose heartbeat has not moved for this long loses its slots.
pub const SAC_FRONTEND_LOST_MS: u32 = 5000;
/// Doorbell bit that asks to end the ticket.
pub const SAC_DOORBELL_CANCEL: u32 = 1;
/// Tickets count modulo 2^24.
pub const SAC_TICKET_MASK: u32 = 0xff_ffff;
/// Lowest bit of the state in a status word.
pub const SAC_STATUS_STATE_SHIFT: u32 = 32;
/// Lowest bit of the finish reason in a status word.
pub const SAC_STATUS_FINISH_SHIFT: u32 = 36;
/// Lowest bit of the ticket in a status word.
pub const SAC_STATUS_TICKET_SHIFT: u32 = 40;

// The wire is little-endian, and the copies below take words as they lie in memory.
const _: () = assert!(cfg!(target_endian = "little"), "the ring needs a little-endian host");

/// `sac_region_header`: written once by the creator; `magic` last with release.
#[repr(C, align(128))]
#[derive(Clone, Copy, Debug, Pod, Zeroable)]
#[allow(missing_docs)] // the fields are documented where they are defined, in abi/wire.h
pub struct RegionHeader {
    pub magic: u64,
    pub abi_version: u32,
    pub header_bytes: u32,
    pub layout_hash: u64,
    pub region_bytes: u64,
    pub instance_id: u64,
    pub num_slots: u32,
    pub num_frontends: u32,
    pub out_ring_words: u32,
    pub _pad0: u32,
    pub device_offset: u64,
    pub stats_offset: u64,
    pub acks_offset: u64,
    pub wake_offset: u64,
    pub frontends_offset: u64,
    pub doorbells_offset: u64,
    pub cursors_offset: u64,
    pub status_offset: u64,
    pub descriptors_offset: u64,
    pub out_ring_offset: u64,
    pub arena_offset: u64,
    pub arena_bytes: u64,
    pub fetch_stats_offset: u64,
    pub roof_offset: u64,
    pub _pad1: [u8; 88],
}

/// `sac_device_line`: writer = device.
#[repr(C, align(128))]
#[derive(Clone, Copy, Debug, Pod, Zeroable)]
#[allow(missing_docs)]
pub struct DeviceLine {
    pub epoch: u32,
    pub phase: u32,
    pub heartbeat: u64,
    pub publish_count: u32,
    pub sleeping: u32,
    pub load_done_bytes: u64,
    pub load_total_bytes: u64,
    pub vocab_size: u32,
    pub max_model_len: u32,
    pub block_size: u32,
    pub num_blocks: u32,
    pub max_num_seqs: u32,
    pub max_num_batched_tokens: u32,
    pub kv_block_bytes: u64,
    pub process_start_ticks: u64,
    pub pid: u32,
    pub num_host_blocks: u32,
    pub vocab_hash: u64,
    pub grammar_words: u32,
    pub embedding_size: u32,
    pub num_adapters: u32,
    pub _pad0: [u8; 20],
}

/// Numbers of rows that a roof speaks of: 1, 2, 4 ... 256.
pub const SAC_ROOF_ROWS: usize = 9;
/// Room for the name of a kernel set.
pub const SAC_KERNELS_NAME_BYTES: usize = 16;

/// `sac_device_roof`: writer = device; each word relaxed, then `generation` with release.
#[repr(C, align(128))]
#[derive(Clone, Copy, Debug, Pod, Zeroable)]
#[allow(missing_docs)]
pub struct DeviceRoof {
    pub generation: u32,
    pub num_threads: u32,
    pub kernels: [u8; SAC_KERNELS_NAME_BYTES],
    pub packed_bytes: u64,
    pub huge_page_bytes: u64,
    pub step_weight_bytes: u64,
    pub row_flop: u64,
    pub read_bytes_per_s: u64,
    pub product_mflop_per_s: [u32; SAC_ROOF_ROWS],
    pub _pad0: [u8; 28],
}

/// `sac_device_stats`: writer = device; each word relaxed.
#[repr(C, align(128))]
#[derive(Clone, Copy, Debug, Pod, Zeroable)]
#[allow(missing_docs)]
pub struct DeviceStats {
    pub ticks: u64,
    pub steps: u64,
    pub prefill_tokens: u64,
    pub decode_tokens: u64,
    pub preemptions: u64,
    pub recomputed_tokens: u64,
    pub requests_accepted: u64,
    pub requests_rejected: u64,
    pub requests_finished: u64,
    pub requests_reclaimed: u64,
    pub reader_stalls: u64,
    pub step_ns: u64,
    pub host_wait_ns: u64,
    pub reader_wait_ns: u64,
    pub copy_wait_ns: u64,
    pub rotations: u64,
    pub blocks_down_eager: u64,
    pub blocks_down_urgent: u64,
    pub blocks_up: u64,
    pub prefix_query_tokens: u64,
    pub prefix_hit_tokens: u64,
    pub prefix_evictions: u64,
    pub num_running: u32,
    pub num_waiting: u32,
    pub num_paused: u32,
    pub blocks_used: u32,
    pub blocks_used_max: u32,
    pub last_step_tokens: u32,
    pub last_step_seqs: u32,
    pub num_rotated: u32,
    pub host_blocks_used: u32,
    pub host_blocks_used_max: u32,
    pub blocks_cached: u32,
    pub host_blocks_cached: u32,
    pub forced_tokens: u64,
    pub _pad0: [u8; 24],
}

/// Kinds of `SAC_FETCH_REJECT_*`, in their order, for metrics; empty: there is none.
pub const REJECTION_KINDS: [&str; SAC_NUM_FETCH_DETAILS] = [
    "other", "length", "magic", "version", "checksum", "name", "model", "span", "codec", "payload",
    "", "", "", "", "", "",
];
/// Kinds of `SAC_FETCH_TROUBLE_*`.
pub const TROUBLE_KINDS: [&str; SAC_NUM_FETCH_DETAILS] = [
    "other",
    "internal",
    "unreachable",
    "refused",
    "protocol",
    "resting",
    "too_large",
    "timeout",
    "busy",
    "",
    "",
    "",
    "",
    "",
    "",
    "",
];

/// Results of a command to the fetch plane (`abi/fetch.h`).
pub const SAC_NUM_FETCH_RESULTS: usize = 9;
/// Details of a result; what is beyond counts as the last.
pub const SAC_NUM_FETCH_DETAILS: usize = 16;

/// `sac_fetch_stats`: writer = device; each word relaxed.
#[repr(C, align(128))]
#[derive(Clone, Copy, Debug, Pod, Zeroable)]
#[allow(missing_docs)]
pub struct FetchStats {
    pub lookups: [u64; SAC_NUM_FETCH_RESULTS],
    pub loads: [u64; SAC_NUM_FETCH_RESULTS],
    pub stores: [u64; SAC_NUM_FETCH_RESULTS],
    pub rejections: [u64; SAC_NUM_FETCH_DETAILS],
    pub troubles: [u64; SAC_NUM_FETCH_DETAILS],
    pub looked_up_tokens: u64,
    pub lookups_skipped: u64,
    pub lookups_given_up: u64,
    pub requests_loaded: u64,
    pub loads_refused: u64,
    pub loads_given_up: u64,
    pub stores_dropped: u64,
    pub stores_evicted: u64,
    pub fetched_tokens: u64,
    pub loaded_bytes: u64,
    pub stored_bytes: u64,
    pub commands_lost: u64,
    pub planes_joined: u64,
    pub planes_broken: u64,
    pub num_aside: u32,
    pub num_loading: u32,
    pub frames_used: u32,
    pub num_frames: u32,
    pub stores_waiting: u32,
    pub plane_epoch: u32,
    pub plane_alive: u32,
    pub breaker: u32,
    pub _pad0: [u8; 24],
}

/// `sac_frontend_ack`: writer = device.
#[repr(C)]
#[derive(Clone, Copy, Debug, Pod, Zeroable)]
#[allow(missing_docs)]
pub struct FrontendAck {
    pub epoch: u32,
    pub lost: u32,
    pub _pad0: u64,
}

/// `sac_wake`: any frontend, atomic add; carries no data.
#[repr(C, align(128))]
#[derive(Clone, Copy, Debug, Pod, Zeroable)]
#[allow(missing_docs)]
pub struct Wake {
    pub device_kick: u32,
    pub _pad0: [u8; 124],
}

/// `sac_frontend_line`: writer = that frontend.
#[repr(C, align(128))]
#[derive(Clone, Copy, Debug, Pod, Zeroable)]
#[allow(missing_docs)]
pub struct FrontendLine {
    pub epoch: u32,
    pub waiting: u32,
    pub heartbeat: u64,
    pub prefix_generation: u32,
    pub roofs_asked: u32,
    pub _pad0: [u8; 104],
}

/// `sac_status`: writer = device; 16 bytes a slot.
#[repr(C)]
#[derive(Clone, Copy, Debug, Pod, Zeroable)]
#[allow(missing_docs)]
pub struct Status {
    pub word: u64,
    pub num_computed_tokens: u32,
    pub num_cached_tokens: u32,
}

/// `sac_descriptor`: writer = the slot's frontend, before it rings.
#[repr(C, align(128))]
#[derive(Clone, Copy, Debug, Pod, Zeroable)]
#[allow(missing_docs)]
pub struct Descriptor {
    pub sequence: u64,
    pub arena_extent: u64,
    pub device_epoch: u32,
    pub flags: u32,
    pub prompt_len: u32,
    pub max_tokens: u32,
    pub min_tokens: u32,
    pub num_logit_bias: u32,
    pub num_stop_ids: u32,
    pub num_top_logprobs: u32,
    pub temperature: f32,
    pub top_p: f32,
    pub min_p: f32,
    pub top_k: u32,
    pub repetition_penalty: f32,
    pub presence_penalty: f32,
    pub frequency_penalty: f32,
    pub priority: i32,
    pub seed: u64,
    pub cache_salt: u64,
    pub slo_ttft_s: f32,
    pub slo_tbt_s: f32,
    pub tenant: u32,
    pub tenant_weight: u32,
    pub grammar_words: u32,
    pub adapter: u32,
    pub _pad0: [u8; 136],
}

/// The words of a device line that are two fields.
pub(crate) const DEVICE_LINE_HALVES: Halves = {
    use std::mem::offset_of;
    let pairs = [
        offset_of!(DeviceLine, epoch),
        offset_of!(DeviceLine, publish_count),
        offset_of!(DeviceLine, vocab_size),
        offset_of!(DeviceLine, block_size),
        offset_of!(DeviceLine, max_num_seqs),
        offset_of!(DeviceLine, pid),
        offset_of!(DeviceLine, grammar_words),
        offset_of!(DeviceLine, num_adapters),
    ];
    let (mut bits, mut i) = (0, 0);
    while i < pairs.len() {
        assert!(pairs[i].is_multiple_of(8));
        bits |= 1 << (pairs[i] / 8);
        i += 1;
    }
    Halves::Of(bits)
};
/// Those of its roof: all but what is between the first and the rates of products.
pub(crate) const ROOF_HALVES: Halves =
    Halves::Of(1 | !0 << (std::mem::offset_of!(DeviceRoof, product_mflop_per_s) / 8));
/// Those of the device's statistics.
pub(crate) const STATS_HALVES: Halves =
    Halves::From(std::mem::offset_of!(DeviceStats, num_running) / 8);
/// Those of its statistics of the fetch plane.
pub(crate) const FETCH_STATS_HALVES: Halves =
    Halves::From(std::mem::offset_of!(FetchStats, num_aside) / 8);
/// Those of statuses: the word of each is one, its progress is two.
pub(crate) const STATUS_HALVES: Halves = Halves::Odd;
/// Doorbells are fields of 32 bits.
pub(crate) const DOORBELL_HALVES: Halves = Halves::From(0);

const _: () = assert!(size_of::<RegionHeader>() == 256 && align_of::<RegionHeader>() == 128);
const _: () = assert!(size_of::<DeviceLine>() == 128 && align_of::<DeviceLine>() == 128);
const _: () = assert!(size_of::<DeviceRoof>() == 128 && align_of::<DeviceRoof>() == 128);
const _: () = assert!(size_of::<DeviceStats>() == 256 && align_of::<DeviceStats>() == 128);
const _: () = assert!(size_of::<FetchStats>() == 640 && align_of::<FetchStats>() == 128);
const _: () = assert!(size_of::<FrontendAck>() == 16 && align_of::<FrontendAck>() == 8);
const _: () = assert!(size_of::<Wake>() == 128 && align_of::<Wake>() == 128);
const _: () = assert!(size_of::<FrontendLine>() == 128 && align_of::<FrontendLine>() == 128);
const _: () = assert!(size_of::<Status>() == 16 && align_of::<Status>() == 8);
const _: () = assert!(size_of::<Status>() * SAC_MAX_SLOTS as usize == 65536);
const _: () = assert!(size_of::<Descriptor>() == 256 && align_of::<Descriptor>() == 128);

/// Packs a status word: count 0-31, state 32-35, finish 36-39, ticket 40-63.
#[must_use]
pub const fn sac_status_word(ticket: u32, state: u32, finish: u32, count: u32) -> u64 {
    ((ticket & SAC_TICKET_MASK) as u64) << SAC_STATUS_TICKET_SHIFT
        | ((finish & 15) as u64) << SAC_STATUS_FINISH_SHIFT
        | ((state & 15) as u64) << SAC_STATUS_STATE_SHIFT
        | count as u64
}

/// Records produced so far.
#[must_use]
pub const fn sac_status_count(word: u64) -> u32 {
    word as u32
}

/// `SAC_STATE_*`, or a value of 8..=15 from a faulty peer.
#[must_use]
pub const fn sac_status_state(word: u64) -> u32 {
    (word >> SAC_STATUS_STATE_SHIFT) as u32 & 15
}

/// `SAC_FINISH_*`, or a larger value from a faulty peer.
#[must_use]
pub const fn sac_status_finish(word: u64) -> u32 {
    (word >> SAC_STATUS_FINISH_SHIFT) as u32 & 15
}

/// The ticket that the status refers to.
#[must_use]
pub const fn sac_status_ticket(word: u64) -> u32 {
    (word >> SAC_STATUS_TICKET_SHIFT) as u32 & SAC_TICKET_MASK
}

/// Packs a doorbell; `cancel` is 0 or `SAC_DOORBELL_CANCEL`.
#[must_use]
pub const fn sac_doorbell(ticket: u32, cancel: u32) -> u32 {
    (ticket & SAC_TICKET_MASK) << 1 | cancel
}

/// The ticket of a doorbell.
#[must_use]
pub const fn sac_doorbell_ticket(doorbell: u32) -> u32 {
    doorbell >> 1 & SAC_TICKET_MASK
}

/// 8-byte words of one output record.
#[must_use]
pub const fn sac_record_stride(flags: u32, num_top_logprobs: u32) -> u32 {
    if flags & (SAC_REQ_LOGPROBS | SAC_REQ_PROMPT_LOGPROBS) != 0 { 1 + num_top_logprobs } else { 1 }
}

/// Words of the record that is an embedding.
#[must_use]
pub const fn sac_embedding_words(embedding_size: u32) -> u32 {
    embedding_size.div_ceil(2)
}

/// First slot of a frontend; the last frontend takes the remainder. `frontend` may be
/// `num_frontends`, which must not be 0.
#[must_use]
pub const fn sac_first_slot(num_slots: u32, num_frontends: u32, frontend: u32) -> u32 {
    if frontend >= num_frontends {
        return num_slots;
    }
    num_slots / SAC_SLOT_GRANULE / num_frontends * SAC_SLOT_GRANULE * frontend
}

/// Start of a frontend's share of the arena, by the same rule.
#[must_use]
pub const fn sac_first_arena_byte(arena_bytes: u64, num_frontends: u32, frontend: u32) -> u64 {
    if frontend >= num_frontends {
        return arena_bytes;
    }
    arena_bytes / SAC_LINE_BYTES as u64 / num_frontends as u64
        * SAC_LINE_BYTES as u64
        * frontend as u64
}

/// True when a status lets the slot's frontend ring a new ticket after `ticket`.
#[must_use]
pub const fn is_idle(word: u64, ticket: u32) -> bool {
    let state = sac_status_state(word);
    (state == SAC_STATE_EMPTY || state == SAC_STATE_DECODE_COMPLETED)
        && sac_status_ticket(word) == ticket
}
