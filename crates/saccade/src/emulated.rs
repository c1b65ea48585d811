//! `--device sim:NAME`: a device plane whose steps take the time that an accelerator would need.

use anyhow::Context;
use saccade_device::sim::{ModelShape, SimConfig, SimHost, device as named, devices, model};
use saccade_device::{Device, DeviceKind};
use saccade_model::{Dtype, ModelConfig};

use crate::cli::{DeviceArgs, DeviceName, SchedulerPlace, ServeArgs};
use crate::device_plane::{device_config, kv_dtype};
use crate::{kv_budget, kv_region};

/// Weights, and KV unless --kv-cache-dtype says else.
const DTYPE: Dtype = Dtype::Bf16;
const DTYPE_BYTES: f64 = 2.0;
/// Share of the memory that weights and KV take, and the bytes that all else needs.
const MEMORY_SHARE: f64 = 0.9;
const RESERVE_BYTES: f64 = 2e9;
/// Longest sequence if the emulated model differs from the one whose tokenizer is used.
const MAX_MODEL_LEN: u32 = 32_768;

/// The line that says that the device is emulated, for lists of planes; None for a real device.
pub(crate) fn notice(args: &ServeArgs) -> Option<String> {
    let DeviceName::Sim(name) = &args.device.device else { return None };
    let model = args.sim.sim_model.as_deref().unwrap_or("the model's shape");
    let place = match args.sim.scheduler {
        SchedulerPlace::Device => "on the emulated device",
        SchedulerPlace::Host => "on the host",
    };
    Some(format!("EMULATED {name}, {model}, scheduler {place}: no token is a model's"))
}

fn shape(args: &ServeArgs, served: &ModelConfig) -> anyhow::Result<ModelShape> {
    match &args.sim.sim_model {
        None => Ok(ModelShape::from(served)),
        Some(name) => Ok(model(name)
            .with_context(|| format!("--sim-model {name}: `saccade plan --list` has the names"))?
            .shape),
    }
}

fn host(args: &ServeArgs) -> SimHost {
    match args.sim.scheduler {
        SchedulerPlace::Device => SimHost::default(),
        SchedulerPlace::Host => SimHost {
            step_s: args.sim.host_step_us * 1e-6,
            seq_s: args.sim.host_seq_us * 1e-6,
            drives: 1,
            ..SimHost::default()
        },
    }
}

/// Makes the device plane. Requests end at their max_tokens: what the steps write means nothing.
pub(crate) fn device(args: &ServeArgs, name: &str, served: &ModelConfig) -> anyhow::Result<Device> {
    let accelerator = named(name).with_context(|| {
        let names: Vec<&str> = devices().iter().map(|d| d.name).collect();
        format!("--device sim:{name}: not one of {}", names.join(", "))
    })?;
    let shape = shape(args, served)?;
    let kv_element_bytes = kv_dtype(args).bytes(DTYPE) as f64;
    let block_bytes = shape.kv_token_bytes(kv_element_bytes) * f64::from(args.device.block_size);
    let left = accelerator.hbm_bytes * MEMORY_SHARE - shape.params() * DTYPE_BYTES - RESERVE_BYTES;
    anyhow::ensure!(left > block_bytes, "the weights leave no memory for KV on a {name}");
    let kv = DeviceArgs {
        kv_cache_memory_bytes: args.device.kv_cache_memory_bytes.or(Some(left as u64)),
        ..args.device.clone()
    };
    let model_len = match args.sim.sim_model {
        None => served.max_model_len(),
        Some(_) => MAX_MODEL_LEN,
    };
    let budget = kv_budget::resolve(&kv, block_bytes as u64, model_len, args.model.max_model_len)?;
    let kind = DeviceKind::Sim(SimConfig {
        hardware: accelerator.hardware(),
        model: shape.costs(DTYPE_BYTES, kv_element_bytes),
        host: host(args),
        seed: args.model.seed,
    });
    let mut config = device_config(args, kind, budget, Vec::new())?;
    config.fetch = kv_region::config(args, block_bytes as u64)?;
    tracing::warn!(
        device = accelerator.name,
        parameters = shape.params(),
        kv_blocks = config.num_blocks,
        scheduler = ?args.sim.scheduler,
        "the device is EMULATED: steps take the time of a cost model, tokens mean nothing"
    );
    let mut device = Device::create(&config, None, served.vocab_size)?;
    kv_region::open(args, &mut device, |_| {
        let emulated = args.sim.sim_model.as_deref().unwrap_or("the model's shape");
        let kv = kv_region::KvOf { dtype: DTYPE, kept: kv_dtype(args), scales: &[] };
        kv_region::model_id(None, args, served, &kv, &format!("sim {emulated}"))
    })?;
    Ok(device)
}
