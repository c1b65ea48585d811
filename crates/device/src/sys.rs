//! Mirror of `device/capi/saccade_device.h`. `control_abi` has the sizes of the structs, for
//! comparison with the ones that the C++ side was compiled with.

use std::ffi::{c_char, c_int, c_void};

/// `sac_model_config`.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub(crate) struct SacModelConfig {
    pub num_layers: u32,
    pub hidden_size: u32,
    pub intermediate_size: u32,
    pub num_heads: u32,
    pub num_kv_heads: u32,
    pub head_dim: u32,
    pub vocab_size: u32,
    pub rotary_dim: u32,
    pub dtype: u32,
    pub qk_norm: u32,
    pub tied_embeddings: u32,
    pub rms_norm_eps: f32,
    pub quantization: u32,
    pub sliding_window: *const u32,
    pub num_experts: u32,
    pub experts_per_token: u32,
    pub moe_intermediate_size: u32,
    pub norm_topk_prob: u32,
    pub rope_switch_len: u32,
    pub sparse_layers: *const u32,
    pub fp8_roles: *const u32,
    pub kv_scales: *const f32,
    pub kv_dtype: u32,
}

/// `sac_device_config`.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub(crate) struct SacDeviceConfig {
    pub kind: u32,
    pub mode: u32,
    pub prefill_policy: u32,
    pub max_num_seqs: u32,
    pub max_num_batched_tokens: u32,
    pub max_model_len: u32,
    pub block_size: u32,
    pub num_blocks: u32,
    pub num_host_blocks: u32,
    pub eager_window: u32,
    pub num_threads: u32,
    pub num_eos_ids: u32,
    pub eos_ids: *const u32,
    pub log_decisions: u32,
    pub null_step_us: u32,
    pub sim: *const crate::sim::SimConfig,
    pub policy: SacPolicyConfig,
    pub prefix_seed: u64,
    pub fetch: SacFetchConfig,
    pub prefix_caching: u32,
    pub grammar_words: u32,
    pub embedding_size: u32,
    pub num_adapters: u32,
    pub max_adapter_rank: u32,
    pub cuda_launch: u32,
    pub cuda_rotation: u32,
    pub cuda_rotation_blocks: u32,
    pub cuda_products: u32,
}

/// `sac_fetch_config`.
#[repr(C)]
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct SacFetchConfig {
    pub num_frames: u32,
    pub num_events: u32,
    pub num_entries: u32,
    pub queue_len: u32,
    pub flags: u32,
    pub late_s: f32,
}

/// `sac_policy_config`.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub(crate) struct SacPolicyConfig {
    pub policy: u32,
    pub b_xfer_blocks: u32,
    pub alpha: f32,
    pub beta_f: f32,
    pub beta_b: f32,
    pub late_share: u32,
    pub min_run_s: f32,
    pub max_wait_s: f32,
    pub slo_ttft_s: f32,
    pub slo_tbt_s: f32,
}

/// `sac_adapter_pair`.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub(crate) struct SacAdapterPair {
    pub role: u32,
    pub layer: u32,
    pub rank: u32,
    pub a_dtype: u32,
    pub b_dtype: u32,
    pub scaling: f32,
    pub inputs: u64,
    pub outputs: u64,
    pub a: *const c_void,
    pub b: *const c_void,
}

/// `sac_packed_weights`.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub(crate) struct SacPackedWeights {
    pub data: *const c_void,
    pub bytes: u64,
    pub layout: u64,
}

/// The opaque `sac_device`.
#[repr(C)]
pub(crate) struct SacDevice {
    _opaque: [u8; 0],
}

unsafe extern "C" {
    pub fn sac_last_error() -> *const c_char;
    pub fn sac_control_abi() -> u64;
    pub fn sac_device_create(
        config: *const SacDeviceConfig,
        model: *const SacModelConfig,
        vocab_size: u32,
        out: *mut *mut SacDevice,
    ) -> c_int;
    pub fn sac_device_destroy(device: *mut SacDevice);
    pub fn sac_device_set_tensor(
        device: *mut SacDevice,
        role: u32,
        layer: u32,
        expert: u32,
        dtype: u32,
        rows: u64,
        cols: u64,
        data: *const c_void,
        scales: *const f32,
    ) -> c_int;
    pub fn sac_device_packed_weights(device: *const SacDevice, out: *mut SacPackedWeights)
    -> c_int;
    pub fn sac_device_adopt_packed(
        device: *mut SacDevice,
        data: *const c_void,
        bytes: u64,
    ) -> c_int;
    pub fn sac_device_fill_dummy(device: *mut SacDevice, seed: u64) -> c_int;
    pub fn sac_device_set_rope(
        device: *mut SacDevice,
        cos: *const f32,
        sin: *const f32,
        count: u64,
    ) -> c_int;
    pub fn sac_device_set_vocab(
        device: *mut SacDevice,
        offsets: *const u32,
        bytes: *const u8,
        num_tokens: u32,
    ) -> c_int;
    pub fn sac_device_set_adapter(
        device: *mut SacDevice,
        adapter: u32,
        key: u64,
        name: u64,
    ) -> c_int;
    pub fn sac_device_set_adapter_pair(
        device: *mut SacDevice,
        adapter: u32,
        pair: *const SacAdapterPair,
    ) -> c_int;
    pub fn sac_device_finish_load(device: *mut SacDevice) -> c_int;
    pub fn sac_device_attach(device: *mut SacDevice, region: *mut c_void, bytes: u64) -> c_int;
    pub fn sac_device_fetch_bytes(device: *const SacDevice) -> u64;
    pub fn sac_device_open_fetch(
        device: *mut SacDevice,
        region: *mut c_void,
        bytes: u64,
        model_id: *const u8,
        instance_id: u64,
    ) -> c_int;
    pub fn sac_device_kernels(device: *const SacDevice) -> *const c_char;
    pub fn sac_device_measure_roof(device: *mut SacDevice) -> c_int;
    pub fn sac_region_load_progress(
        region: *mut c_void,
        bytes: u64,
        phase: u32,
        done_bytes: u64,
        total_bytes: u64,
    ) -> c_int;
    pub fn sac_device_run(device: *mut SacDevice) -> c_int;
    pub fn sac_device_stop(device: *mut SacDevice);
    pub fn sac_device_ready(device: *mut SacDevice) -> c_int;
    pub fn sac_device_tick(device: *mut SacDevice) -> c_int;
    pub fn sac_device_decisions(device: *const SacDevice, words: *mut u64, capacity: u64) -> u64;
    pub fn sac_device_check(device: *const SacDevice) -> c_int;
}

/// What the other side must say when it was compiled against the same structs.
pub(crate) fn control_abi() -> u64 {
    (size_of::<SacDeviceConfig>() as u64) << 32 | size_of::<SacModelConfig>() as u64
}
