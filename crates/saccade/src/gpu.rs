//! `--device cuda`: the device plane of a library that is loaded on demand, so that one binary,
//! built without CUDA, serves on machines with and without a GPU.

use std::path::PathBuf;
use std::sync::Arc;

use anyhow::Context;
use saccade_device::cuda::{
    CudaLaunch, CudaLibrary, CudaNeed, CudaProducts, CudaRotation, CudaSettings, GpuRing,
    LIBRARY_NAME,
};
use saccade_device::{Device, DeviceConfig, DeviceKind, KvDtype, Quantization, RegionMemory};
use saccade_model::{Dtype, ModelConfig, ModelFolder};
use saccade_ring::{InProcTransport, RegionLayout, Transport};

use crate::adapters::{self, Adapters};
use crate::cli::{
    DeviceArgs, LaunchArg, ProductsArg, QuantizationArg, RingMemory, RotationArg, SchedulerPlace,
    ServeArgs,
};
use crate::device_plane::{
    Region, device_config, kv_dtype, kv_scales, load, log_ready, open_weights,
};
use crate::kv_budget::{self, KvBudget};
use crate::remote;

/// The only compute capability with wgmma: 10 * major + minor.
const WGMMA_CAPABILITY: u32 = 90;

/// GPU memory that captured steps and the driver take on top of weights, workspace and KV.
const RESERVE_BYTES: u64 = 1 << 30;

/// What the flags say about the GPU.
pub(crate) fn settings(args: &ServeArgs) -> CudaSettings {
    CudaSettings {
        launch: match (args.sim.scheduler, args.cuda.cuda_launch) {
            (SchedulerPlace::Host, _) => CudaLaunch::Host,
            (SchedulerPlace::Device, LaunchArg::Graphs) => CudaLaunch::Window,
            (SchedulerPlace::Device, LaunchArg::Loop) => CudaLaunch::Loop,
        },
        rotation: match args.cuda.cuda_rotation {
            RotationArg::Vector => CudaRotation::Vector,
            RotationArg::Bulk => CudaRotation::Bulk,
        },
        rotation_blocks: args.cuda.cuda_rotation_blocks,
        products: match args.cuda.cuda_products {
            // `auto` is resolved once there is a GPU: see Gpu::products.
            ProductsArg::Mma | ProductsArg::Auto => CudaProducts::Mma,
            ProductsArg::Wgmma => CudaProducts::Wgmma,
        },
    }
}

/// The library's file: as given, or next to this program.
fn library_path(args: &ServeArgs) -> anyhow::Result<PathBuf> {
    if let Some(path) = &args.cuda.cuda_library {
        return Ok(path.clone());
    }
    let program = std::env::current_exe().context("find this program's file")?;
    let beside = program.with_file_name(LIBRARY_NAME);
    anyhow::ensure!(
        beside.exists(),
        "--device cuda needs {LIBRARY_NAME} beside this program, or --cuda-library PATH: there is \
         no {} (device/cuda/build.sh builds it)",
        beside.display()
    );
    Ok(beside)
}

/// The GPU that serves.
struct Gpu {
    library: CudaLibrary,
    /// Bytes of its memory that weights, adapters, workspace and KV may take.
    allowed: u64,
    products: CudaProducts,
}

fn open(args: &ServeArgs) -> anyhow::Result<Gpu> {
    let library = CudaLibrary::open(&library_path(args)?)?;
    let gpu = library.probe()?;
    tracing::info!(
        gpu = gpu.name,
        compute_capability = gpu.compute_capability,
        multiprocessors = gpu.num_multiprocessors,
        driver = gpu.driver_version,
        free_mib = gpu.free_bytes >> 20,
        "GPU"
    );
    let has_wgmma = gpu.compute_capability == WGMMA_CAPABILITY;
    anyhow::ensure!(
        args.cuda.cuda_products != ProductsArg::Wgmma || has_wgmma,
        "--cuda-products wgmma needs a GPU of compute capability 9.0; this one has {}.{}",
        gpu.compute_capability / 10,
        gpu.compute_capability % 10
    );
    let allowed = (gpu.total_bytes as f64 * args.cuda.gpu_memory_utilization) as u64;
    let products = match args.cuda.cuda_products {
        ProductsArg::Mma => CudaProducts::Mma,
        _ if has_wgmma => CudaProducts::Wgmma,
        _ => CudaProducts::Mma,
    };
    Ok(Gpu { library, allowed: allowed.min(gpu.free_bytes), products })
}

/// A ring in the GPU's memory.
#[derive(Clone)]
pub(crate) struct RingOnGpu {
    pub memory: Arc<GpuRing>,
    /// Tells it apart from the next device's, at whatever address.
    pub instance_id: u64,
}

/// The ring, if --ring-memory asks for one: empty, and with the limits of the region's file.
pub(crate) fn ring(args: &ServeArgs, region: &Region) -> anyhow::Result<Option<RingOnGpu>> {
    if args.ring.ring_memory == RingMemory::Host {
        return Ok(None);
    }
    remote::check_ring_memory(args)?;
    let image = InProcTransport::successor(&region.0)?;
    let instance_id = RegionLayout::read(&image)?.instance_id();
    let memory = Arc::new(open(args)?.library.ring(&Image(image))?);
    tracing::info!(mib = memory.len() >> 20, "the ring is in the GPU's memory");
    Ok(Some(RingOnGpu { memory, instance_id }))
}

/// Initial contents of the ring.
struct Image(InProcTransport);

// SAFETY: InProcTransport keeps `region_bytes()` bytes at `base_ptr()` until it is dropped.
unsafe impl RegionMemory for Image {
    fn base(&self) -> *mut u8 {
        self.0.base_ptr()
    }
    fn len(&self) -> usize {
        self.0.region_bytes() as usize
    }
}

/// Steps that only write tokens, on the GPU.
pub(crate) fn null_device(args: &ServeArgs, model: &ModelConfig) -> anyhow::Result<Device> {
    let library = open(args)?.library;
    let budget =
        kv_budget::resolve(&args.device, 0, model.max_model_len(), args.model.max_model_len)?;
    anyhow::ensure!(
        budget.num_host_blocks == 0,
        "--kv-offloading-size: the steps of --device cuda:null have no KV to offload"
    );
    anyhow::ensure!(
        kv_dtype(args) == KvDtype::Auto,
        "--kv-cache-dtype: the steps of --device cuda:null have no KV"
    );
    let kind = DeviceKind::Null { step_us: args.device.null_step_us };
    let mut config = device_config(args, kind, budget, model.eos_ids.clone())?;
    config.embedding_size = model.hidden_size;
    let mut device = library.create(&config, None, model.vocab_size)?;
    adapters::set_keys(args, &mut device)?;
    Ok(device)
}

/// Inference.
pub(crate) fn device(
    args: &ServeArgs,
    model: &ModelConfig,
    folder: &ModelFolder,
    region: &Region,
) -> anyhow::Result<Device> {
    anyhow::ensure!(
        args.model.quantization != QuantizationArg::Int8,
        "--quantization int8: weights on a GPU are in bfloat16 or fp8"
    );
    let Gpu { library, allowed, products } = open(args)?;
    let by_wgmma = products == CudaProducts::Wgmma;
    anyhow::ensure!(
        args.model.quantization != QuantizationArg::Fp8 || by_wgmma,
        "--quantization fp8 needs products by wgmma, on a GPU of compute capability 9.0"
    );
    let (weights, stored) = open_weights(args, model, folder)?;
    let adapters = Adapters::open(args, model)?;
    if stored != Dtype::Bf16 {
        tracing::warn!(dtype = ?stored, "weights and KV on a GPU are bfloat16 where they are not fp8");
    }
    let kv_scales = kv_scales(args, model, weights.as_ref())?;
    let config_of = |budget| -> anyhow::Result<DeviceConfig> {
        let mut config = device_config(args, DeviceKind::Cuda, budget, model.eos_ids.clone())?;
        config.embedding_size = model.hidden_size;
        // Each adapter takes memory for this rank, whatever its own.
        config.adapters.max_rank = adapters.max_rank();
        config.cuda.products = products;
        if args.model.quantization == QuantizationArg::Fp8 {
            config.quantization = Quantization::Fp8;
        }
        if by_wgmma {
            config.keep_fp8(model, weights.as_ref());
        }
        config.kv_dtype = kv_dtype(args);
        config.kv_scales.clone_from(&kv_scales);
        Ok(config)
    };
    let need = memory_need(&library, &config_of(least(args, model))?, model)?;
    let budget = budget(args, model, allowed, need)?;
    let config = config_of(budget)?;
    let mut device = library.create(&config, Some((model, Dtype::Bf16)), model.vocab_size)?;
    load(&mut device, weights.as_ref(), args.model.seed, region)?;
    adapters.load(&mut device)?;
    device.set_rope(&model.rope_tables(budget.max_model_len))?;
    device.finish_load()?;
    log_ready(&config, Dtype::Bf16, need.kv_block_bytes);
    Ok(device)
}

/// The budget with the fewest blocks: the fixed memory does not depend on them.
fn least(args: &ServeArgs, model: &ModelConfig) -> KvBudget {
    let max_model_len = args.model.max_model_len.unwrap_or(model.max_model_len()).max(2);
    KvBudget {
        num_blocks: max_model_len.div_ceil(args.device.block_size.max(1)),
        num_host_blocks: 0,
        eager_window: 0,
        max_model_len,
    }
}

fn memory_need(
    library: &CudaLibrary,
    config: &DeviceConfig,
    model: &ModelConfig,
) -> anyhow::Result<CudaNeed> {
    Ok(library.memory_need(config, model, Dtype::Bf16)?)
}

fn budget(
    args: &ServeArgs,
    model: &ModelConfig,
    allowed: u64,
    need: CudaNeed,
) -> anyhow::Result<KvBudget> {
    let left = allowed.saturating_sub(need.fixed_bytes + RESERVE_BYTES);
    anyhow::ensure!(
        left > need.kv_block_bytes,
        "weights, adapters and workspace take {} MiB, and leave no memory for KV of the {} MiB that \
         --gpu-memory-utilization {} allows",
        need.fixed_bytes >> 20,
        allowed >> 20,
        args.cuda.gpu_memory_utilization
    );
    let kv = DeviceArgs {
        kv_cache_memory_bytes: args.device.kv_cache_memory_bytes.or(Some(left)),
        ..args.device.clone()
    };
    let model_len = model.max_model_len();
    kv_budget::resolve(&kv, need.kv_block_bytes, model_len, args.model.max_model_len)
}
