//! Safe bindings to the device plane: create it, load weights, join a ring region, run.
//!
//! The control boundary is plain C (`device/capi/saccade_device.h`); nothing here is on the path of
//! a token. Tokens cross only through the ring.

mod adapters;
mod api;
pub mod cuda;
mod packed;
pub mod sim;
mod sys;

use std::path::Path;
use std::ptr::NonNull;
use std::sync::{Arc, OnceLock};

use api::{Api, LINKED};
use saccade_model::{ModelConfig, RopeTables, TensorRef, Weights};

pub use adapters::AdapterLimits;
pub use packed::PackedUse;

/// An error, in the device plane's own words.
#[derive(Debug, thiserror::Error)]
#[error("{what}: {sentence}")]
pub struct DeviceError {
    what: &'static str,
    sentence: String,
}

type Result<T> = std::result::Result<T, DeviceError>;

/// What runs the steps.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum DeviceKind {
    /// Real inference on CPU threads.
    Cpu,
    /// Steps that only write tokens, each taking `step_us` microseconds: for tests, and for
    /// benchmarks of the other planes.
    Null {
        /// Duration of a step, microseconds.
        step_us: u32,
    },
    /// As null, but each step takes as long as a cost model says, in real time.
    Sim(sim::SimConfig),
    /// Real inference on a GPU; made by [`cuda::CudaLibrary::create`].
    Cuda,
}

/// How prompts share the device with decodes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PrefillPolicy {
    /// Chunks of prompts ride with the decodes, within the token budget of a step.
    Chunked,
    /// Decodes pause while admitted prompts are computed.
    Inline,
    /// As `Chunked`, in chunks that end before the running streams' next tokens are due.
    Paced,
}

/// Which requests enter the device, and which leave when KV memory is short (docs/rotation.md).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum SchedulingPolicy {
    /// First come, first served.
    #[default]
    Fcfs,
    /// Waiting requests first.
    WaitingFirst,
    /// Rotated-out requests first.
    SwappedFirst,
    /// Largest virtual lag time first.
    Lvf,
    /// Requests that can still meet their targets first.
    Goodput,
    /// For tests: rotates whatever can be rotated, at every tick.
    Churn,
}

/// A policy and its settings; `device/sched/policy/policy.hpp` has their meanings.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct PolicyConfig {
    /// Which policy.
    pub policy: SchedulingPolicy,
    /// Blocks that may change hands per tick.
    pub b_xfer_blocks: u32,
    /// Slope of the lag of rotated-out requests, 0 to 100.
    pub alpha: f32,
    /// Share of the TTFT target that a request may wait without lagging, -100 to 100.
    pub beta_f: f32,
    /// Share of the TBT target that a request may be rotated out without lagging.
    pub beta_b: f32,
    /// Under `Goodput`, one block in this many goes to late requests; at least 2.
    pub late_share: u32,
    /// Seconds that a request runs before it may be preempted by choice.
    pub min_run_s: f32,
    /// Seconds of waiting after which a request comes in before all others.
    pub max_wait_s: f32,
    /// TTFT target of requests that name none, seconds.
    pub slo_ttft_s: f32,
    /// TBT target of requests that name none, seconds.
    pub slo_tbt_s: f32,
}

impl Default for PolicyConfig {
    fn default() -> Self {
        Self {
            policy: SchedulingPolicy::Fcfs,
            b_xfer_blocks: 2400,
            alpha: 3.0,
            beta_f: 0.5,
            beta_b: 0.0,
            late_share: 16,
            min_run_s: 0.5,
            max_wait_s: 60.0,
            slo_ttft_s: 5.0,
            slo_tbt_s: 0.1,
        }
    }
}

/// What a device and a fetch plane share (`abi/fetch.h`).
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct FetchConfig {
    /// Chunks on their way at one time; 0: none is fetched or stored.
    pub num_frames: u32,
    /// Events of the ring that routers are told by; a power of two, or 0: none is told.
    pub num_events: u32,
    /// Prompts and chunks that the fetch plane knows at one time. This and the rest: with frames.
    pub num_entries: u32,
    /// Commands in flight; a power of two.
    pub queue_len: u32,
    /// Loads in order of arrival, not the shortest first.
    pub first_come: bool,
    /// No step runs beside a load.
    pub synchronous: bool,
    /// What a store has is loaded, whatever is expected to be faster.
    pub always: bool,
    /// What a request may lose to a store against computing, seconds.
    pub late_s: f32,
}

impl FetchConfig {
    fn to_c(self) -> sys::SacFetchConfig {
        let flags = [self.first_come, self.synchronous, self.always];
        sys::SacFetchConfig {
            num_frames: self.num_frames,
            num_events: self.num_events,
            num_entries: self.num_entries,
            queue_len: self.queue_len,
            flags: flags.iter().enumerate().map(|(bit, set)| u32::from(*set) << bit).sum(),
            late_s: self.late_s,
        }
    }
}

/// How weight matrices are kept in memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Quantization {
    /// In the model's dtype.
    #[default]
    None,
    /// Symmetric 8 bits, one scale per output and 128 inputs; activations likewise, on the fly.
    /// Norms, biases and KV keep their types.
    Int8,
    /// e4m3, one scale per output and 128 inputs: matrices of the layers, but for routers.
    /// Activations keep the model's dtype.
    Fp8,
}

/// Elements of KV in memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum KvDtype {
    /// The model's.
    #[default]
    Auto,
    /// 8 bits, e4m3 without infinities: half the bytes of 16 bits, and a 16th of a value is lost at
    /// most.
    Fp8,
}

impl KvDtype {
    /// Bytes of an element, of a model in `dtype`.
    pub fn bytes(self, dtype: saccade_model::Dtype) -> u64 {
        match self {
            Self::Auto => dtype.bytes(),
            Self::Fp8 => 1,
        }
    }
}

/// Bounds and policies of a device plane; fixed for its life.
#[derive(Debug, Clone)]
pub struct DeviceConfig {
    /// What runs the steps.
    pub kind: DeviceKind,
    /// Run nothing alongside a step: the readable specification.
    pub serial: bool,
    /// How prompts share the device with decodes.
    pub prefill_policy: PrefillPolicy,
    /// Requests that hold a seat at one time.
    pub max_num_seqs: u32,
    /// Rows of one step; at least `max_num_seqs`.
    pub max_num_batched_tokens: u32,
    /// Tokens of a sequence, prompt and output.
    pub max_model_len: u32,
    /// Tokens in a KV block.
    pub block_size: u32,
    /// KV blocks; at least what one sequence of `max_model_len` needs.
    pub num_blocks: u32,
    /// KV blocks of host memory, the second tier; 0: preempted requests are recomputed.
    pub num_host_blocks: u32,
    /// Blocks that may be in flight to host memory ahead of need; 0: none is sent early.
    pub eager_window: u32,
    /// Requests with the same prefix share its KV blocks. The seed goes into the keys by which
    /// prefixes are found: draw one per start, so that clients cannot choose keys that collide.
    pub prefix_caching: Option<u64>,
    /// Traffic with a fetch plane; needs `prefix_caching`.
    pub fetch: Option<FetchConfig>,
    /// Words of a grammar that a request may bring; 0: grammars are refused, as they are until
    /// [`Device::set_vocab`].
    pub grammar_words: u32,
    /// Values of an embedding; 0: none is given. On CPU threads the model's hidden size or 0, for
    /// [`DeviceKind::Null`] any, 0 for the others.
    pub embedding_size: u32,
    /// Adapters that requests may name; not on a GPU.
    pub adapters: AdapterLimits,
    /// Which requests enter the device, and which leave it.
    pub policy: PolicyConfig,
    /// Compute threads of the CPU device.
    pub num_threads: u32,
    /// Token ids that end a sequence.
    pub eos_ids: Vec<u32>,
    /// Keep a log of the scheduler's decisions in memory.
    pub log_decisions: bool,
    /// How weight matrices are kept in memory.
    pub quantization: Quantization,
    /// With [`Quantization::Fp8`], the roles it is for, as [`Weights::fp8_roles`] tells them; empty
    /// for all of the layers.
    pub fp8_roles: Vec<u32>,
    /// How KV is kept in memory.
    pub kv_dtype: KvDtype,
    /// Of each layer, for K and for V: what is kept is the value / scale. Empty: all are 1. Only
    /// with [`KvDtype::Fp8`].
    pub kv_scales: Vec<[f32; 2]>,
    /// For devices on a GPU.
    pub cuda: cuda::CudaSettings,
}

impl DeviceConfig {
    /// Keeps in e4m3 what the files of a model have in it, unless matrices are to be in 8-bit
    /// integers. Without files, what its configuration says.
    pub fn keep_fp8(&mut self, model: &ModelConfig, weights: Option<&Weights>) {
        let stored = weights.map(Weights::fp8_roles).unwrap_or_default();
        let has_any = stored.iter().any(|roles| *roles != 0);
        let would = weights.is_none() && model.fp8.is_some();
        if self.quantization != Quantization::Int8 && (has_any || would) {
            self.quantization = Quantization::Fp8;
            self.fp8_roles = stored;
        }
    }
}

/// Bytes of KV that one block takes: `[layer][k|v][token][kv_head][head_dim]`. `element_bytes`:
/// [`KvDtype::bytes`].
pub fn kv_block_bytes(model: &ModelConfig, element_bytes: u64, block_size: u32) -> u64 {
    u64::from(model.num_layers)
        * 2
        * u64::from(block_size)
        * u64::from(model.num_kv_heads)
        * u64::from(model.head_dim)
        * element_bytes
}

/// Owns the C++ object; shared by a device and its stop handles.
struct Handle {
    device: NonNull<sys::SacDevice>,
    api: &'static Api,
    /// The map that the device reads its weights from, if it did not pack them; dropped after it.
    packed: OnceLock<memmap2::Mmap>,
    /// Shared with a fetch plane; dropped after the device.
    fetch_region: OnceLock<Box<dyn RegionMemory + Sync>>,
}

// SAFETY: the C++ object has no thread affinity; the methods that change it take &mut Device, and
// sac_device_stop, the only one reachable through a shared handle, is an atomic store.
unsafe impl Send for Handle {}
// SAFETY: as above.
unsafe impl Sync for Handle {}

impl Drop for Handle {
    fn drop(&mut self) {
        // SAFETY: the pointer came from sac_device_create and this is its last owner.
        unsafe { (self.api.sac_device_destroy)(self.device.as_ptr()) }
    }
}

/// A device plane.
pub struct Device {
    handle: Arc<Handle>,
}

/// Ends [`Device::run`] from another thread.
#[derive(Clone)]
pub struct StopHandle(Arc<Handle>);

impl StopHandle {
    /// `run` returns after the current tick.
    pub fn stop(&self) {
        // SAFETY: the pointer is valid while the handle lives; the call is one atomic store.
        unsafe { (self.0.api.sac_device_stop)(self.0.device.as_ptr()) }
    }
}

/// Memory of a ring region that stays mapped, at one address, for the life of the value.
///
/// # Safety
/// `base` must point to `len` bytes, readable and writable, until the value is dropped.
pub unsafe trait RegionMemory: Send {
    /// First byte.
    fn base(&self) -> *mut u8;
    /// Bytes mapped.
    fn len(&self) -> usize;
    /// Whether nothing is mapped.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// Loading progress, as frontends and the supervisor see it in the region.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LoadPhase {
    /// Weights are being read.
    Loading,
    /// The device cannot serve; the process says why.
    Failed,
}

/// Announces loading progress in a region before a device has joined it.
pub fn report_progress(
    region: &dyn RegionMemory,
    phase: LoadPhase,
    done_bytes: u64,
    total_bytes: u64,
) -> Result<()> {
    let phase = match phase {
        LoadPhase::Loading => 1,
        LoadPhase::Failed => 3,
    };
    // SAFETY: RegionMemory promises base and len.
    let code = unsafe {
        sys::sac_region_load_progress(
            region.base().cast(),
            region.len() as u64,
            phase,
            done_bytes,
            total_bytes,
        )
    };
    LINKED.check("report progress", code)
}

impl Device {
    /// Allocates everything the plane will ever use. `model` may be `None` for
    /// [`DeviceKind::Null`].
    pub fn create(
        config: &DeviceConfig,
        model: Option<(&ModelConfig, saccade_model::Dtype)>,
        vocab_size: u32,
    ) -> Result<Device> {
        Device::create_with(&LINKED, config, model, vocab_size)
    }

    fn create_with(
        api: &'static Api,
        config: &DeviceConfig,
        model: Option<(&ModelConfig, saccade_model::Dtype)>,
        vocab_size: u32,
    ) -> Result<Device> {
        if !api.abi_matches() {
            return Err(error("create device", "struct sizes differ from the C++ side's".into()));
        }
        if let Some((model, _)) = model {
            check_fp8_roles(config, model)?;
            check_kv_scales(config, model)?;
        }
        let c_config = c_device_config(config);
        let c_model = model.map(|(m, dtype)| c_model_config(m, dtype, config));
        let c_model_ptr = c_model.as_ref().map_or(std::ptr::null(), std::ptr::from_ref);
        let mut out = std::ptr::null_mut();
        // SAFETY: the structs and the arrays they point to (eos_ids, sliding_window, sparse_layers,
        // fp8_roles, kv_scales) live until the call returns; the callee copies what it keeps.
        let code = unsafe { (api.sac_device_create)(&c_config, c_model_ptr, vocab_size, &mut out) };
        api.check("create device", code)?;
        match NonNull::new(out) {
            Some(device) => {
                let (packed, fetch_region) = (OnceLock::new(), OnceLock::new());
                Ok(Device { handle: Arc::new(Handle { device, api, packed, fetch_region }) })
            }
            None => Err(error("create device", "no device came back".into())),
        }
    }

    fn raw(&self) -> *mut sys::SacDevice {
        self.handle.device.as_ptr()
    }

    fn api(&self) -> &'static Api {
        self.handle.api
    }

    /// Copies all tensors; `progress` gets the bytes done after each.
    pub fn load(&mut self, weights: &Weights, mut progress: impl FnMut(u64)) -> Result<()> {
        let mut done_bytes = 0;
        for tensor in weights.iter() {
            self.set_tensor(&tensor)?;
            weights.release(&tensor);
            done_bytes += tensor.data.len() as u64;
            progress(done_bytes);
        }
        Ok(())
    }

    /// Loads all tensors through a folder of packed weights: from the file for this model and
    /// layout if there is one, else as [`Device::load`] does, writing that file for the next
    /// start. Trouble with the folder costs packing time, never an answer. `progress` gets the
    /// bytes done and the total.
    pub fn load_packed(
        &mut self,
        weights: &Weights,
        dir: &Path,
        mut progress: impl FnMut(u64, u64),
    ) -> Result<PackedUse> {
        let own = self.packed_weights()?;
        let entry = packed::Entry::new(dir, weights, own.layout, own.bytes);
        let mut refused = None;
        if let Ok(entry) = &entry {
            match entry.open(|done_bytes| progress(done_bytes, own.bytes)) {
                Ok(Some(mapped)) => return self.adopt(weights, entry, mapped),
                Ok(None) => {}
                Err(reason) => refused = Some(format!("{} {reason}", entry.path().display())),
            }
        }
        let total_bytes = weights.total_bytes();
        self.load(weights, |done_bytes| progress(done_bytes, total_bytes))?;
        let kept = match entry {
            Ok(entry) => {
                // SAFETY: the device's own memory, already packed and not written again; it lives
                // as long as the handle, and no reference to it is kept.
                let payload =
                    unsafe { std::slice::from_raw_parts(own.data.cast(), own.bytes as usize) };
                let written = entry.write(payload);
                written.map(|()| (entry.path().to_owned(), entry.file_bytes()))
            }
            Err(error) => Err(format!("the model's files cannot be identified: {error}")),
        };
        Ok(PackedUse::Packed { refused, kept })
    }

    /// Reads weights from a mapped file from now on.
    fn adopt(
        &mut self,
        weights: &Weights,
        entry: &packed::Entry,
        mapped: packed::Mapped,
    ) -> Result<PackedUse> {
        let locked = mapped.locked;
        let map = self.handle.packed.get_or_init(|| mapped.map);
        let payload = &map[mapped.payload];
        let (data, bytes) = (payload.as_ptr().cast(), payload.len() as u64);
        // SAFETY: the map belongs to the handle, which drops it after the device.
        let code = unsafe { sys::sac_device_adopt_packed(self.raw(), data, bytes) };
        self.api().check("adopt packed weights", code)?;
        for tensor in weights.iter() {
            self.set_tensor(&tensor)?; // marks it as given; its data is not read
        }
        let (path, bytes) = (entry.path().to_owned(), entry.file_bytes());
        Ok(PackedUse::Mapped { path, bytes, locked })
    }

    fn packed_weights(&self) -> Result<sys::SacPackedWeights> {
        if !std::ptr::eq(self.api(), &LINKED) {
            return Err(error("packed weights", "are the cpu device's only".into()));
        }
        let mut out = sys::SacPackedWeights { data: std::ptr::null(), bytes: 0, layout: 0 };
        // SAFETY: the handle is valid and of the linked library; `out` is writable.
        let code = unsafe { sys::sac_device_packed_weights(self.raw(), &mut out) };
        self.api().check("packed weights", code).map(|()| out)
    }

    fn set_tensor(&mut self, tensor: &TensorRef<'_>) -> Result<()> {
        let scales = tensor.scales.map(|scales| scales.expand(tensor.rows, tensor.cols));
        // SAFETY: data holds rows * cols elements of dtype, which Weights checked; scales are one
        // for each row and 128 columns.
        let code = unsafe {
            (self.api().sac_device_set_tensor)(
                self.raw(),
                tensor.role.code(),
                tensor.layer,
                tensor.expert,
                tensor.dtype.code(),
                tensor.rows,
                tensor.cols,
                tensor.data.as_ptr().cast(),
                scales.as_ref().map_or(std::ptr::null(), |scales| scales.as_ptr()),
            )
        };
        self.api().check("load weights", code)
    }

    /// Random weights from a seed.
    pub fn fill_dummy(&mut self, seed: u64) -> Result<()> {
        // SAFETY: the handle is valid.
        self.api()
            .check("dummy weights", unsafe { (self.api().sac_device_fill_dummy)(self.raw(), seed) })
    }

    /// Rotary tables for `max_model_len` positions.
    pub fn set_rope(&mut self, tables: &RopeTables) -> Result<()> {
        if tables.cos.len() != tables.sin.len() {
            return Err(error("rope tables", "cos and sin differ in length".into()));
        }
        // SAFETY: both tables hold `count` floats.
        let code = unsafe {
            (self.api().sac_device_set_rope)(
                self.raw(),
                tables.cos.as_ptr(),
                tables.sin.as_ptr(),
                tables.cos.len() as u64,
            )
        };
        self.api().check("rope tables", code)
    }

    /// The bytes of every token, for grammars: token `i` is `bytes[offsets[i]..offsets[i + 1]]`.
    pub fn set_vocab(&mut self, offsets: &[u32], bytes: &[u8]) -> Result<()> {
        let ends_within = offsets.last().is_some_and(|&end| end as usize <= bytes.len());
        if !ends_within {
            return Err(error("tokens' bytes", "offsets exceed the bytes".into()));
        }
        // SAFETY: offsets has one element more than tokens; the callee checks that they ascend,
        // and the last one is within the bytes. The handle is valid.
        let code = unsafe {
            (self.api().sac_device_set_vocab)(
                self.raw(),
                offsets.as_ptr(),
                bytes.as_ptr(),
                offsets.len() as u32 - 1,
            )
        };
        self.api().check("tokens' bytes", code)
    }

    /// Checks that nothing is missing.
    pub fn finish_load(&mut self) -> Result<()> {
        // SAFETY: the handle is valid.
        self.api().check("load weights", unsafe { (self.api().sac_device_finish_load)(self.raw()) })
    }

    /// Bytes of the region that the device shares with a fetch plane; 0: there is none.
    pub fn fetch_region_bytes(&self) -> u64 {
        if !std::ptr::eq(self.api(), &LINKED) {
            return 0; // no device of another library has one
        }
        // SAFETY: the handle is valid and of the linked library.
        unsafe { sys::sac_device_fetch_bytes(self.raw()) }
    }

    /// Lays out that region in zeroed memory. `model_id` tells KV of this model, run in this way,
    /// from all other KV. The memory is kept as long as the device.
    pub fn open_fetch_region(
        &mut self,
        region: impl RegionMemory + Sync + 'static,
        model_id: [u8; 32],
        instance_id: u64,
    ) -> Result<()> {
        if self.fetch_region_bytes() == 0 {
            let sentence = "this device has no fetch plane".into();
            return Err(error("open the region for the fetch plane", sentence));
        }
        // SAFETY: RegionMemory promises base and len until the value is dropped, and the handle
        // drops it after the device, which is of the linked library.
        let code = unsafe {
            sys::sac_device_open_fetch(
                self.raw(),
                region.base().cast(),
                region.len() as u64,
                model_id.as_ptr(),
                instance_id,
            )
        };
        self.api().check("open the region for the fetch plane", code)?;
        // It was empty: the device opens one region only.
        self.handle.fetch_region.set(Box::new(region)).ok();
        Ok(())
    }

    /// The name of the CPU device's kernel set; empty for other devices.
    pub fn kernels(&self) -> String {
        if !std::ptr::eq(self.api(), &LINKED) {
            return String::new();
        }
        // SAFETY: the handle is valid and of the linked library; the name is a constant.
        let name = unsafe { std::ffi::CStr::from_ptr(sys::sac_device_kernels(self.raw())) };
        name.to_string_lossy().into_owned()
    }

    /// Measures what memory and arithmetic allow the steps of the CPU device, once its weights are
    /// there. Frontends read it in the ring; other devices have none.
    pub fn measure_roof(&mut self) -> Result<()> {
        if !std::ptr::eq(self.api(), &LINKED) {
            return Err(error("measure the roof", "only the cpu device measures its roof".into()));
        }
        // SAFETY: the handle is valid and of the linked library.
        let code = unsafe { sys::sac_device_measure_roof(self.raw()) };
        self.api().check("measure the roof", code)
    }

    /// Joins a ring region. The region is kept as long as the returned value.
    pub fn attach<R: RegionMemory>(self, region: R) -> Result<AttachedDevice<R>> {
        // SAFETY: RegionMemory promises base and len until the value is dropped, and AttachedDevice
        // drops the device first.
        let code = unsafe {
            (self.api().sac_device_attach)(self.raw(), region.base().cast(), region.len() as u64)
        };
        self.api().check("attach region", code)?;
        Ok(AttachedDevice { device: self, _region: region })
    }
}

/// A device that has joined a region. Fields drop in order: the device before its region.
pub struct AttachedDevice<R> {
    device: Device,
    _region: R,
}

impl<R> AttachedDevice<R> {
    /// A handle that ends [`AttachedDevice::run`].
    pub fn stop_handle(&self) -> StopHandle {
        StopHandle(Arc::clone(&self.device.handle))
    }

    /// Serves until stopped. Blocks.
    pub fn run(&mut self) -> Result<()> {
        // SAFETY: the handle is valid and the region mapped.
        self.device
            .api()
            .check("run", unsafe { (self.device.api().sac_device_run)(self.device.raw()) })
    }

    /// Phase READY without a loop; ticks come from [`AttachedDevice::tick`].
    pub fn ready(&mut self) -> Result<()> {
        // SAFETY: as in run.
        self.device
            .api()
            .check("ready", unsafe { (self.device.api().sac_device_ready)(self.device.raw()) })
    }

    /// One tick; returns the number of sequences that ran.
    pub fn tick(&mut self) -> Result<u32> {
        // SAFETY: as in run.
        let ran = unsafe { (self.device.api().sac_device_tick)(self.device.raw()) };
        self.device.api().check("tick", ran.min(0)).map(|()| ran.unsigned_abs())
    }

    /// The log of decisions (format: `device/sched/decision_log.hpp`).
    pub fn decisions(&self) -> Vec<u64> {
        // SAFETY: a capacity of 0 copies nothing.
        let count = unsafe {
            (self.device.api().sac_device_decisions)(self.device.raw(), std::ptr::null_mut(), 0)
        };
        let mut words = vec![0; count as usize];
        // SAFETY: `words` has room for `count`.
        unsafe {
            (self.device.api().sac_device_decisions)(self.device.raw(), words.as_mut_ptr(), count)
        };
        words
    }

    /// Checks every invariant of the scheduler's state.
    pub fn check(&self) -> Result<()> {
        // SAFETY: the handle is valid.
        self.device
            .api()
            .check("invariant", unsafe { (self.device.api().sac_device_check)(self.device.raw()) })
    }
}

fn c_device_config(config: &DeviceConfig) -> sys::SacDeviceConfig {
    let (kind, null_step_us) = match config.kind {
        DeviceKind::Cpu => (0, 0),
        DeviceKind::Null { step_us } => (1, step_us),
        DeviceKind::Sim(_) => (2, 0),
        DeviceKind::Cuda => (3, 0),
    };
    sys::SacDeviceConfig {
        kind,
        mode: u32::from(config.serial),
        prefill_policy: match config.prefill_policy {
            PrefillPolicy::Chunked => 0,
            PrefillPolicy::Inline => 1,
            PrefillPolicy::Paced => 2,
        },
        max_num_seqs: config.max_num_seqs,
        max_num_batched_tokens: config.max_num_batched_tokens,
        max_model_len: config.max_model_len,
        block_size: config.block_size,
        num_blocks: config.num_blocks,
        num_host_blocks: config.num_host_blocks,
        eager_window: config.eager_window,
        num_threads: config.num_threads,
        num_eos_ids: config.eos_ids.len() as u32,
        eos_ids: config.eos_ids.as_ptr(),
        log_decisions: u32::from(config.log_decisions),
        null_step_us,
        sim: match &config.kind {
            DeviceKind::Sim(emulated) => emulated,
            _ => std::ptr::null(),
        },
        policy: c_policy(&config.policy),
        fetch: config.fetch.map(FetchConfig::to_c).unwrap_or_default(),
        prefix_seed: config.prefix_caching.unwrap_or(0),
        prefix_caching: u32::from(config.prefix_caching.is_some()),
        grammar_words: config.grammar_words,
        embedding_size: config.embedding_size,
        num_adapters: config.adapters.num_adapters,
        max_adapter_rank: config.adapters.max_rank,
        cuda_launch: match config.cuda.launch {
            cuda::CudaLaunch::Window => 0,
            cuda::CudaLaunch::Loop => 1,
            cuda::CudaLaunch::Host => 2,
        },
        cuda_rotation: match config.cuda.rotation {
            cuda::CudaRotation::Vector => 0,
            cuda::CudaRotation::Bulk => 1,
        },
        cuda_rotation_blocks: config.cuda.rotation_blocks,
        cuda_products: match config.cuda.products {
            cuda::CudaProducts::Mma => 0,
            cuda::CudaProducts::Wgmma => 1,
        },
    }
}

fn c_policy(p: &PolicyConfig) -> sys::SacPolicyConfig {
    sys::SacPolicyConfig {
        policy: match p.policy {
            SchedulingPolicy::Fcfs => 0,
            SchedulingPolicy::WaitingFirst => 1,
            SchedulingPolicy::SwappedFirst => 2,
            SchedulingPolicy::Lvf => 3,
            SchedulingPolicy::Goodput => 4,
            SchedulingPolicy::Churn => 5,
        },
        b_xfer_blocks: p.b_xfer_blocks,
        alpha: p.alpha,
        beta_f: p.beta_f,
        beta_b: p.beta_b,
        late_share: p.late_share,
        min_run_s: p.min_run_s,
        max_wait_s: p.max_wait_s,
        slo_ttft_s: p.slo_ttft_s,
        slo_tbt_s: p.slo_tbt_s,
    }
}

fn c_model_config(
    model: &ModelConfig,
    dtype: saccade_model::Dtype,
    config: &DeviceConfig,
) -> sys::SacModelConfig {
    let experts = model.experts.as_ref();
    sys::SacModelConfig {
        num_layers: model.num_layers,
        hidden_size: model.hidden_size,
        intermediate_size: model.intermediate_size,
        num_heads: model.num_heads,
        num_kv_heads: model.num_kv_heads,
        head_dim: model.head_dim,
        vocab_size: model.vocab_size,
        rotary_dim: model.rope.rotary_dim,
        dtype: dtype.code(),
        qk_norm: u32::from(model.qk_norm),
        tied_embeddings: u32::from(model.tie_word_embeddings),
        rms_norm_eps: model.rms_norm_eps,
        quantization: match config.quantization {
            Quantization::None => 0,
            Quantization::Int8 => 1,
            Quantization::Fp8 => 2,
        },
        sliding_window: model.sliding_window.as_ptr(),
        num_experts: experts.map_or(0, |e| e.num_experts),
        experts_per_token: experts.map_or(0, |e| e.experts_per_token),
        moe_intermediate_size: experts.map_or(0, |e| e.intermediate_size),
        norm_topk_prob: experts.map_or(0, |e| u32::from(e.norm_topk_prob)),
        rope_switch_len: model.rope_switch_len(config.max_model_len),
        sparse_layers: experts.map_or(std::ptr::null(), |e| e.sparse_layers.as_ptr()),
        fp8_roles: match &config.fp8_roles[..] {
            [] => std::ptr::null(),
            roles => roles.as_ptr(),
        },
        kv_scales: match &config.kv_scales[..] {
            [] => std::ptr::null(),
            scales => scales.as_ptr().cast(),
        },
        kv_dtype: match config.kv_dtype {
            KvDtype::Auto => 0,
            KvDtype::Fp8 => 1,
        },
    }
}

/// The C++ side reads a pair for each layer.
fn check_kv_scales(config: &DeviceConfig, model: &ModelConfig) -> Result<()> {
    match config.kv_scales.len() {
        count if count == 0 || count == model.num_layers as usize => Ok(()),
        count => {
            let sentence = format!("kv_scales has {count} pairs, not one of each layer");
            Err(error("create device", sentence))
        }
    }
}

/// The callee reads as many as there are layers.
fn check_fp8_roles(config: &DeviceConfig, model: &ModelConfig) -> Result<()> {
    let (found, layers) = (config.fp8_roles.len(), model.num_layers as usize);
    if found == 0 || found == layers {
        return Ok(());
    }
    let sentence = format!("fp8_roles has {found} entries, must be 0 or num_layers = {layers}");
    Err(error("create device", sentence))
}

fn error(what: &'static str, sentence: String) -> DeviceError {
    DeviceError { what, sentence }
}
