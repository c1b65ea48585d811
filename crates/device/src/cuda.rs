//! The CUDA device's library, loaded at run time: the program itself needs neither CUDA nor a
//! GPU.

use std::ffi::{CStr, c_char, c_int, c_void};
use std::path::Path;
use std::sync::Arc;

use saccade_model::{Dtype, ModelConfig};

use crate::api::Api;
use crate::sys::{SacDevice, SacDeviceConfig, SacModelConfig};
use crate::{
    AttachedDevice, Device, DeviceConfig, RegionMemory, Result, c_device_config, c_model_config,
    check_fp8_roles, check_kv_scales, error,
};

/// File name of the library.
pub const LIBRARY_NAME: &str = "libsaccade_cuda.so";

/// What launches the steps, and how.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum CudaLaunch {
    /// The scheduler on the GPU launches a device graph for each step.
    #[default]
    Window,
    /// One graph of WHILE and SWITCH nodes, the scheduler a kernel in it.
    Loop,
    /// The scheduler on a host thread: one copy and one launch per step.
    Host,
}

/// How KV blocks are copied between the tiers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum CudaRotation {
    /// Vector loads and stores.
    #[default]
    Vector,
    /// Bulk copies through shared memory; Hopper and later.
    Bulk,
}

/// Which instructions compute the products with weights.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum CudaProducts {
    /// `mma.sync`: every GPU.
    #[default]
    Mma,
    /// `wgmma`: Hopper.
    Wgmma,
}

/// Settings of the CUDA device.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CudaSettings {
    /// What launches the steps.
    pub launch: CudaLaunch,
    /// How KV blocks are copied.
    pub rotation: CudaRotation,
    /// Thread blocks that bring KV up, 1 to 16; a quarter as many, at least one, take it down.
    pub rotation_blocks: u32,
    /// How products are computed.
    pub products: CudaProducts,
}

impl Default for CudaSettings {
    fn default() -> Self {
        Self {
            launch: CudaLaunch::default(),
            rotation: CudaRotation::default(),
            rotation_blocks: 4,
            products: CudaProducts::default(),
        }
    }
}

/// `sac_cuda_info`.
#[repr(C)]
struct SacCudaInfo {
    free_bytes: u64,
    total_bytes: u64,
    compute_capability: u32,
    num_multiprocessors: u32,
    driver_version: u32,
    _pad: u32,
    name: [c_char; 64],
}

/// The GPU in use.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CudaInfo {
    /// Its name, as the driver reports it.
    pub name: String,
    /// Free bytes of its memory.
    pub free_bytes: u64,
    /// Bytes of its memory.
    pub total_bytes: u64,
    /// 10 x major + minor.
    pub compute_capability: u32,
    /// Streaming multiprocessors.
    pub num_multiprocessors: u32,
    /// CUDA version of the driver, as 13000.
    pub driver_version: u32,
}

/// Device memory that a model takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CudaNeed {
    /// Weights and workspace, bytes.
    pub fixed_bytes: u64,
    /// One KV block, bytes.
    pub kv_block_bytes: u64,
}

type Probe = unsafe extern "C" fn(*mut SacCudaInfo) -> c_int;
type MemoryNeed = unsafe extern "C" fn(
    *const SacDeviceConfig,
    *const SacModelConfig,
    *mut u64,
    *mut u64,
) -> c_int;

/// `SAC_RING_MEMORY_CUDA`.
const RING_MEMORY_CUDA: u32 = 1;

/// `sac_cuda_ring`.
#[repr(C)]
struct SacCudaRing {
    base: *mut c_void,
    bytes: u64,
    memory: u32,
    _pad: u32,
    owner: *mut c_void,
}

type RingCreate = unsafe extern "C" fn(*const c_void, u64, *mut SacCudaRing) -> c_int;
type RingDestroy = unsafe extern "C" fn(*mut SacCudaRing);
type Attach = unsafe extern "C" fn(*mut SacDevice, *mut c_void, u64, *const SacCudaRing) -> c_int;

/// A ring region in the GPU's memory, for frontends whose NIC reaches it there.
pub struct GpuRing {
    ring: SacCudaRing,
    api: &'static Api,
    destroy: RingDestroy,
    attach: Attach,
}

// SAFETY: the pointers name memory of the GPU, which belongs to the value; the library's functions
// may be called from any thread.
unsafe impl Send for GpuRing {}
// SAFETY: shared references only read the addresses.
unsafe impl Sync for GpuRing {}

impl GpuRing {
    /// First byte. The host may not be able to access it.
    pub fn base(&self) -> *mut u8 {
        self.ring.base.cast()
    }

    /// Bytes.
    pub fn len(&self) -> usize {
        self.ring.bytes as usize
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Whether a network registers it as memory of a CUDA device.
    pub fn is_cuda(&self) -> bool {
        self.ring.memory == RING_MEMORY_CUDA
    }
}

impl Drop for GpuRing {
    fn drop(&mut self) {
        // SAFETY: made by sac_cuda_ring_create, given back once.
        unsafe { (self.destroy)(&mut self.ring) };
    }
}

/// The loaded library. It stays loaded for the life of the process.
pub struct CudaLibrary {
    api: &'static Api,
    library: &'static libloading::Library,
    probe: Probe,
    memory_need: MemoryNeed,
}

impl CudaLibrary {
    /// Loads the library from a file.
    ///
    /// # Errors
    /// If it cannot be loaded, or belongs to another version of this program.
    pub fn open(path: &Path) -> Result<CudaLibrary> {
        let (api, library) = Api::load(path)?;
        let failed = |e: libloading::Error| error("load library", e.to_string());
        // SAFETY: the functions have the types that saccade_cuda.h says; the version was checked.
        let (probe, memory_need) = unsafe {
            (
                *library.get::<Probe>(b"sac_cuda_probe\0").map_err(failed)?,
                *library.get::<MemoryNeed>(b"sac_cuda_memory_need\0").map_err(failed)?,
            )
        };
        Ok(CudaLibrary { api, library, probe, memory_need })
    }

    /// The GPU that would be used.
    ///
    /// # Errors
    /// If there is no driver or no GPU.
    pub fn probe(&self) -> Result<CudaInfo> {
        let mut info = SacCudaInfo {
            free_bytes: 0,
            total_bytes: 0,
            compute_capability: 0,
            num_multiprocessors: 0,
            driver_version: 0,
            _pad: 0,
            name: [0; 64],
        };
        // SAFETY: `info` is writable and has the C struct's layout.
        self.api.check("use a GPU", unsafe { (self.probe)(&mut info) })?;
        // SAFETY: the callee wrote a NUL-terminated string into the array.
        let name = unsafe { CStr::from_ptr(info.name.as_ptr()) };
        Ok(CudaInfo {
            name: name.to_string_lossy().into_owned(),
            free_bytes: info.free_bytes,
            total_bytes: info.total_bytes,
            compute_capability: info.compute_capability,
            num_multiprocessors: info.num_multiprocessors,
            driver_version: info.driver_version,
        })
    }

    /// How much of the GPU's memory a model takes.
    ///
    /// # Errors
    /// If a GPU cannot run it; the message names the field and the bound.
    pub fn memory_need(
        &self,
        config: &DeviceConfig,
        model: &ModelConfig,
        dtype: Dtype,
    ) -> Result<CudaNeed> {
        check_fp8_roles(config, model)?;
        check_kv_scales(config, model)?;
        let c_config = c_device_config(config);
        let c_model = c_model_config(model, dtype, config);
        let mut need = CudaNeed { fixed_bytes: 0, kv_block_bytes: 0 };
        // SAFETY: the structs and the arrays they point to live until the call returns.
        let code = unsafe {
            (self.memory_need)(&c_config, &c_model, &mut need.fixed_bytes, &mut need.kv_block_bytes)
        };
        self.api.check("fit the model", code).map(|()| need)
    }

    /// As [`Device::create`], on the GPU. `model` may be `None` for [`crate::DeviceKind::Null`].
    ///
    /// # Errors
    /// If a field is out of bounds, there is no GPU, or its memory is too small.
    pub fn create(
        &self,
        config: &DeviceConfig,
        model: Option<(&ModelConfig, Dtype)>,
        vocab_size: u32,
    ) -> Result<Device> {
        Device::create_with(self.api, config, model, vocab_size)
    }

    /// A ring in the GPU's memory: a copy of `image`, a region in host memory, as it is now.
    ///
    /// # Errors
    /// If no NIC reaches the GPU's memory, or the memory is too small.
    pub fn ring(&self, image: &dyn RegionMemory) -> Result<GpuRing> {
        let failed = |e: libloading::Error| error("load library", e.to_string());
        // SAFETY: the functions have the types that saccade_cuda.h says; the version was checked.
        let (create, destroy, attach) = unsafe {
            (
                *self.library.get::<RingCreate>(b"sac_cuda_ring_create\0").map_err(failed)?,
                *self.library.get::<RingDestroy>(b"sac_cuda_ring_destroy\0").map_err(failed)?,
                *self.library.get::<Attach>(b"sac_cuda_attach\0").map_err(failed)?,
            )
        };
        let null = std::ptr::null_mut();
        let mut ring = SacCudaRing { base: null, bytes: 0, memory: 0, _pad: 0, owner: null };
        // SAFETY: RegionMemory promises base and len; `ring` has the C struct's layout.
        let code = unsafe { create(image.base().cast(), image.len() as u64, &mut ring) };
        self.api.check("put the ring into the GPU's memory", code)?;
        Ok(GpuRing { ring, api: self.api, destroy, attach })
    }
}

impl Device {
    /// As [`Device::attach`], but with the ring in the GPU's memory. `region` has the same limits;
    /// it only shows what the device reports about itself.
    ///
    /// # Errors
    /// If the ring is another library's, or does not fit the region.
    pub fn attach_on_gpu<R: RegionMemory>(
        self,
        region: R,
        ring: Arc<GpuRing>,
    ) -> Result<AttachedDevice<(R, Arc<GpuRing>)>> {
        let (ours, its) = (self.api().sac_device_attach, ring.api.sac_device_attach);
        if !std::ptr::fn_addr_eq(ours, its) {
            return Err(error("attach region", "the ring is another library's".into()));
        }
        // SAFETY: as in `attach`; the ring is kept alongside the region.
        let code = unsafe {
            (ring.attach)(self.raw(), region.base().cast(), region.len() as u64, &ring.ring)
        };
        self.api().check("attach region", code)?;
        Ok(AttachedDevice { device: self, _region: (region, ring) })
    }
}
