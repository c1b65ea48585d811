//! A device plane process: read the model, join the ring, tick until told to stop.

use std::path::Path;
use std::time::Instant;

use anyhow::Context;
use saccade_device::{
    AttachedDevice, Device, DeviceConfig, DeviceKind, KvDtype, LoadPhase, PackedUse, PolicyConfig,
    PrefillPolicy, Quantization, RegionMemory, SchedulingPolicy, StopHandle, kv_block_bytes,
    report_progress,
};
use saccade_host::CpuSet;
use saccade_model::{Dtype, DtypeChoice, ModelConfig, ModelFolder, Weights};
use saccade_ring::{ShmTransport, Transport};

use crate::adapters::{self, Adapters};
use crate::cli::{
    DeviceArgs, DeviceName, KvCacheDtype, LoadFormat, PolicyName, Prefill, QuantizationArg,
    ServeArgs, check_lora,
};
use crate::{emulated, gpu, kv_budget, kv_region, model_source, remote, supervised};

/// The shared-memory region, mapped for the life of the device.
pub(crate) struct Region(pub ShmTransport);

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

/// The device ended on its own.
const EXIT_CRASHED: i32 = 4;

/// Runs the plane until SIGTERM or SIGINT.
pub(crate) fn run(args: &ServeArgs) -> anyhow::Result<()> {
    supervised::die_with_supervisor()?;
    let path = args.ring.file()?.context("--ring names the region to join")?;
    let region = Region(ShmTransport::open(path).with_context(|| path.display().to_string())?);
    // Before there is a second thread.
    let signals = block_signals()?;
    let on_gpu = gpu::ring(args, &region)?;
    // Frontends on other hosts join while the weights are loaded, as those of this host do.
    let _listener = match &on_gpu {
        Some(ring) => remote::listen(args, ring.clone())?,
        None => remote::listen(args, region.0.clone())?,
    };
    let prepared = prepare(args, &region);
    if prepared.is_err() {
        // The error itself goes to the log of this process; frontends only need to know.
        report_progress(&region, LoadPhase::Failed, 0, 0).ok();
    }
    let device = prepared?;
    let _fetch_listener = kv_region::hand_out(args)?;
    match on_gpu {
        Some(ring) => tick(device.attach_on_gpu(region, ring.memory)?, signals),
        None => tick(device.attach(region)?, signals),
    }
}

fn tick<R>(mut device: AttachedDevice<R>, signals: libc::sigset_t) -> anyhow::Result<()> {
    stop_on_signal(signals, device.stop_handle())?;
    if let Err(error) = device.run() {
        // Not a mistake in flags: a restart may help.
        tracing::error!("{error}");
        std::process::exit(EXIT_CRASHED);
    }
    tracing::info!("device plane stopped");
    Ok(())
}

/// Blocks the signals that end the plane, so that one thread can wait for them.
fn block_signals() -> anyhow::Result<libc::sigset_t> {
    // SAFETY: an all-zero sigset_t is valid storage; the calls fill it and change this thread's
    // mask, which later threads inherit.
    unsafe {
        let mut set: libc::sigset_t = std::mem::zeroed();
        libc::sigemptyset(&mut set);
        libc::sigaddset(&mut set, libc::SIGTERM);
        libc::sigaddset(&mut set, libc::SIGINT);
        let code = libc::pthread_sigmask(libc::SIG_BLOCK, &set, std::ptr::null_mut());
        anyhow::ensure!(code == 0, "cannot block signals");
        Ok(set)
    }
}

fn stop_on_signal(set: libc::sigset_t, stop: StopHandle) -> anyhow::Result<()> {
    std::thread::Builder::new().name("signals".into()).spawn(move || {
        let mut signal = 0;
        // SAFETY: `set` was filled by block_signals, `signal` is writable.
        unsafe { libc::sigwait(&set, &mut signal) };
        stop.stop();
    })?;
    Ok(())
}

/// Loads everything that `run` needs before it can join.
fn prepare(args: &ServeArgs, region: &Region) -> anyhow::Result<Device> {
    check_lora(args)?;
    let mut scratch = model_source::Scratch::default();
    let folder = model_source::open(&args.model, &mut scratch)?;
    let model = folder.config()?;
    check_packed_weights_cache(args)?;
    let mut device = match &args.device.device {
        DeviceName::Null => null_device(args, &model)?,
        DeviceName::Sim(name) => emulated::device(args, name, &model)?,
        DeviceName::Cpu => cpu_device(args, &model, &folder, region)?,
        DeviceName::Cuda => gpu::device(args, &model, &folder, region)?,
        DeviceName::CudaNull => gpu::null_device(args, &model)?,
    };
    tell_tokens(args, &folder, model.vocab_size, &mut device)?;
    Ok(device)
}

/// Tells the device what its tokens are in bytes. Without it, requests with grammars are refused,
/// and all others are served.
fn tell_tokens(
    args: &ServeArgs,
    folder: &ModelFolder,
    vocab_size: u32,
    device: &mut Device,
) -> anyhow::Result<()> {
    match saccade_frontend::token_bytes(folder, args.model.tokenizer.as_deref(), vocab_size) {
        Ok(tokens) => Ok(device.set_vocab(tokens.offsets(), tokens.bytes())?),
        Err(error) => {
            tracing::warn!("requests with grammars are refused: {error}");
            Ok(())
        }
    }
}

/// What --kv-cache-dtype asks for.
pub(crate) fn kv_dtype(args: &ServeArgs) -> KvDtype {
    match args.device.kv_cache_dtype {
        KvCacheDtype::Auto => KvDtype::Auto,
        KvCacheDtype::Fp8 | KvCacheDtype::Fp8E4m3 => KvDtype::Fp8,
    }
}

/// The checkpoint's scales of FP8 KV; of other KV, and where it has none, there are none.
pub(crate) fn kv_scales(
    args: &ServeArgs,
    model: &ModelConfig,
    weights: Option<&Weights>,
) -> anyhow::Result<Vec<[f32; 2]>> {
    match (kv_dtype(args), weights) {
        (KvDtype::Fp8, Some(weights)) => Ok(weights.kv_scales(model.num_layers)?),
        _ => Ok(Vec::new()),
    }
}

/// Refuses the flag where nothing would be packed.
fn check_packed_weights_cache(args: &ServeArgs) -> anyhow::Result<()> {
    if args.model.packed_weights_cache.is_none() {
        return Ok(());
    }
    anyhow::ensure!(
        args.device.device == DeviceName::Cpu,
        "--packed-weights-cache: only --device cpu packs weights"
    );
    anyhow::ensure!(
        args.model.load_format != LoadFormat::Dummy,
        "--packed-weights-cache: weights of --load-format dummy are never kept"
    );
    Ok(())
}

fn null_device(args: &ServeArgs, model: &ModelConfig) -> anyhow::Result<Device> {
    let budget =
        kv_budget::resolve(&args.device, 0, model.max_model_len(), args.model.max_model_len)?;
    let kind = DeviceKind::Null { step_us: args.device.null_step_us };
    let mut config = device_config(args, kind, budget, model.eos_ids.clone())?;
    config.embedding_size = model.hidden_size;
    let mut device = Device::create(&config, None, model.vocab_size)?;
    adapters::set_keys(args, &mut device)?;
    Ok(device)
}

fn cpu_device(
    args: &ServeArgs,
    model: &ModelConfig,
    folder: &ModelFolder,
    region: &Region,
) -> anyhow::Result<Device> {
    let (weights, dtype) = open_weights(args, model, folder)?;
    let adapters = Adapters::open(args, model)?;
    let element_bytes = kv_dtype(args).bytes(dtype);
    let block_bytes = kv_block_bytes(model, element_bytes, args.device.block_size);
    let budget = kv_budget::resolve(
        &args.device,
        block_bytes,
        model.max_model_len(),
        args.model.max_model_len,
    )?;
    let mut config = device_config(args, DeviceKind::Cpu, budget, model.eos_ids.clone())?;
    config.fetch = kv_region::config(args, block_bytes)?;
    config.embedding_size = model.hidden_size;
    config.quantization = match args.model.quantization {
        QuantizationArg::None => Quantization::None,
        QuantizationArg::Int8 => Quantization::Int8,
        QuantizationArg::Fp8 => Quantization::Fp8,
    };
    config.keep_fp8(model, weights.as_ref());
    config.kv_dtype = kv_dtype(args);
    config.kv_scales = kv_scales(args, model, weights.as_ref())?;
    let mut device = Device::create(&config, Some((model, dtype)), model.vocab_size)?;
    let started = Instant::now();
    match (&args.model.packed_weights_cache, &weights) {
        (Some(dir), Some(weights)) => load_packed(&mut device, weights, dir, region)?,
        _ => load(&mut device, weights.as_ref(), args.model.seed, region)?,
    }
    tracing::info!(took = ?started.elapsed(), "weights loaded");
    adapters.load(&mut device)?;
    device.set_rope(&model.rope_tables(budget.max_model_len))?;
    device.finish_load()?;
    device.measure_roof()?;
    kv_region::open(args, &mut device, |device| {
        let kv = kv_region::KvOf { dtype, kept: config.kv_dtype, scales: &config.kv_scales };
        kv_region::model_id(weights.as_ref(), args, model, &kv, &device.kernels())
    })?;
    log_ready(&config, dtype, block_bytes);
    Ok(device)
}

/// The weights, none if they are random, and the element type that flags and files agree on.
pub(crate) fn open_weights(
    args: &ServeArgs,
    model: &ModelConfig,
    folder: &ModelFolder,
) -> anyhow::Result<(Option<Weights>, Dtype)> {
    let weights = match args.model.load_format {
        LoadFormat::Dummy => None,
        LoadFormat::Auto | LoadFormat::Safetensors => Some(Weights::open(folder, model)?),
    };
    let choice: DtypeChoice =
        args.model.dtype.parse().map_err(|e| anyhow::anyhow!("--dtype: {e}"))?;
    let dtype = choice.resolve(model.dtype, weights.as_ref().and_then(Weights::stored_dtype));
    Ok((weights, dtype))
}

pub(crate) fn load(
    device: &mut Device,
    weights: Option<&Weights>,
    seed: u64,
    region: &Region,
) -> anyhow::Result<()> {
    let Some(weights) = weights else {
        tracing::warn!(seed, "weights are random (--load-format dummy)");
        return Ok(device.fill_dummy(seed)?);
    };
    warn_of_unexpected(weights);
    let total = weights.total_bytes();
    report_progress(region, LoadPhase::Loading, 0, total)?;
    device.load(weights, |done| {
        // Progress is for people: a region that went away is noticed when the device joins it.
        report_progress(region, LoadPhase::Loading, done, total).ok();
    })?;
    Ok(())
}

/// Loads through the folder of --packed-weights-cache, and says what came of it.
fn load_packed(
    device: &mut Device,
    weights: &Weights,
    dir: &Path,
    region: &Region,
) -> anyhow::Result<()> {
    warn_of_unexpected(weights);
    report_progress(region, LoadPhase::Loading, 0, weights.total_bytes())?;
    let outcome = device.load_packed(weights, dir, |done, total| {
        // As in load.
        report_progress(region, LoadPhase::Loading, done, total).ok();
    })?;
    match outcome {
        PackedUse::Mapped { path, bytes, locked } => {
            let (path, mib) = (path.display(), bytes >> 20);
            tracing::info!(%path, mib, locked, "packed weights mapped; nothing was packed");
        }
        PackedUse::Packed { refused, kept } => {
            if let Some(reason) = refused {
                tracing::warn!(%reason, "packed weights not used; packing again");
            }
            match kept {
                Ok((path, bytes)) => {
                    let (path, mib) = (path.display(), bytes >> 20);
                    tracing::info!(%path, mib, "packed weights written for the next start");
                }
                Err(reason) => tracing::warn!(%reason, "packed weights not kept"),
            }
        }
    }
    Ok(())
}

fn warn_of_unexpected(weights: &Weights) {
    for name in weights.unexpected() {
        tracing::warn!(tensor = name, "not used by this architecture");
    }
}

pub(crate) fn device_config(
    serve: &ServeArgs,
    kind: DeviceKind,
    budget: kv_budget::KvBudget,
    eos_ids: Vec<u32>,
) -> anyhow::Result<DeviceConfig> {
    let args = &serve.device;
    let cores = CpuSet::of_task(0).context("read the cores of this process")?;
    Ok(DeviceConfig {
        kind,
        serial: args.serial,
        prefill_policy: match args.prefill_policy {
            Prefill::Chunked => PrefillPolicy::Chunked,
            Prefill::Inline => PrefillPolicy::Inline,
            Prefill::Paced => PrefillPolicy::Paced,
        },
        max_num_seqs: args.max_num_seqs,
        max_num_batched_tokens: args.max_num_batched_tokens.max(args.max_num_seqs),
        max_model_len: budget.max_model_len,
        block_size: args.block_size,
        num_blocks: budget.num_blocks,
        num_host_blocks: budget.num_host_blocks,
        eager_window: budget.eager_window,
        prefix_caching: prefix_caching(args)?,
        fetch: None,
        grammar_words: args.max_grammar_kib * 256,
        embedding_size: 0,
        adapters: adapters::limits(serve),
        policy: policy_config(serve),
        num_threads: args.device_threads.unwrap_or(cores.len() as u32),
        eos_ids,
        log_decisions: false,
        quantization: Quantization::None,
        fp8_roles: Vec::new(),
        kv_dtype: KvDtype::Auto,
        kv_scales: Vec::new(),
        cuda: gpu::settings(serve),
    })
}

/// The seed of this start's keys, unless prefixes are not to be shared.
fn prefix_caching(args: &DeviceArgs) -> anyhow::Result<Option<u64>> {
    if !args.shares_prefixes()? {
        return Ok(None);
    }
    Ok(Some(getrandom::u64().context("draw the seed of prefix keys")?))
}

fn policy_config(serve: &ServeArgs) -> PolicyConfig {
    let args = &serve.device.policy;
    PolicyConfig {
        policy: match args.scheduling_policy {
            PolicyName::Fcfs => SchedulingPolicy::Fcfs,
            PolicyName::Wf => SchedulingPolicy::WaitingFirst,
            PolicyName::Sf => SchedulingPolicy::SwappedFirst,
            PolicyName::Lvf => SchedulingPolicy::Lvf,
            PolicyName::Goodput => SchedulingPolicy::Goodput,
        },
        b_xfer_blocks: args.b_xfer_blocks,
        alpha: args.vlt_alpha,
        beta_f: args.vlt_beta_f,
        beta_b: args.vlt_beta_b,
        late_share: args.late_share,
        min_run_s: args.min_run_ms as f32 / 1e3,
        max_wait_s: args.max_wait_s as f32,
        slo_ttft_s: serve.http.slo_ttft_ms as f32 / 1e3,
        slo_tbt_s: serve.http.slo_tpot_ms as f32 / 1e3,
    }
}

pub(crate) fn log_ready(config: &DeviceConfig, dtype: Dtype, block_bytes: u64) {
    tracing::info!(
        ?dtype,
        quantization = ?config.quantization,
        kv_dtype = ?config.kv_dtype,
        kv_scales = config.kv_scales.len(),
        policy = ?config.policy.policy,
        max_model_len = config.max_model_len,
        kv_blocks = config.num_blocks,
        kv_mib = (u64::from(config.num_blocks) * block_bytes) >> 20,
        host_kv_blocks = config.num_host_blocks,
        host_kv_mib = (u64::from(config.num_host_blocks) * block_bytes) >> 20,
        threads = config.num_threads,
        "device plane loaded"
    );
}
