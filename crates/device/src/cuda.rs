//! The library of the CUDA device, which is loaded at run time: the program itself needs neither
//! CUDA nor a GPU.

use std::ffi::{CStr, c_char, c_int};
use std::path::Path;

use saccade_model::{Dtype, ModelConfig};

use crate::api::Api;
use crate::sys::{SacDeviceConfig, SacModelConfig};
use crate::{Device, DeviceConfig, Result, c_device_config, c_model_config, error};

/// File name of the library.
pub const LIBRARY_NAME: &str = "libsaccade_cuda.so";

/// Who launches the steps, and how.
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
    /// Bulk copies through shared memory; from Hopper on.
    Bulk,
}

/// Which instructions compute the products of dense matrices.
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
    /// Who launches the steps.
    pub launch: CudaLaunch,
    /// How KV blocks are copied.
    pub rotation: CudaRotation,
    /// Thread blocks that copy, per direction; 1 to 16.
    pub rotation_blocks: u32,
    /// How products are computed.
    pub products: CudaProducts,
}

impl Default for CudaSettings {
    fn default() -> Self {
        Self {
            launch: CudaLaunch::default(),
            rotation: CudaRotation::default(),
            rotation_blocks: 2,
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

/// The GPU that is used.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CudaInfo {
    /// As the driver calls it.
    pub name: String,
    /// Bytes of its memory that are free.
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

/// The loaded library. It stays loaded for the life of the process.
pub struct CudaLibrary {
    api: &'static Api,
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
        Ok(CudaLibrary { api, probe, memory_need })
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

    /// What a model takes of the GPU's memory.
    ///
    /// # Errors
    /// If a GPU cannot run it; the sentence names the field and the bound.
    pub fn memory_need(
        &self,
        config: &DeviceConfig,
        model: &ModelConfig,
        dtype: Dtype,
    ) -> Result<CudaNeed> {
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
    /// If a field is out of bounds, there is no GPU, or its memory does not suffice.
    pub fn create(
        &self,
        config: &DeviceConfig,
        model: Option<(&ModelConfig, Dtype)>,
        vocab_size: u32,
    ) -> Result<Device> {
        Device::create_with(self.api, config, model, vocab_size)
    }
}
