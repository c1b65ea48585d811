//! The region that a device plane shares with the fetch plane: how large, at which path, and whose
//! KV goes through it.

use anyhow::{Context, ensure};
use saccade_chunk::{CHUNK_TOKENS, ModelId};
use saccade_device::{Device, FetchConfig, KvDtype};
use saccade_fetch::Draft;
use saccade_model::{Dtype, ModelConfig, Weights};
use saccade_ring::ShmTransport;
use xxhash_rust::xxh3::Xxh3;

use crate::cli::{DeviceName, FetchOrder, ServeArgs};
use crate::device_plane::Region;
use crate::remote;

/// Prompts and chunks that the fetch plane knows at one time, beyond a prompt for each seat.
const SPARE_ENTRIES: u32 = 64;
/// Commands on their way.
const QUEUE_LEN: u32 = 1024;
/// Chunks on their way: less would not overlap, more gain nothing.
const FRAMES: std::ops::RangeInclusive<u64> = 4..=256;

/// Without a store the region is only there for events; its queues have their least length.
const NO_STORE: FetchConfig = FetchConfig {
    num_frames: 0,
    num_events: 0,
    num_entries: 1,
    queue_len: 1,
    first_come: false,
    synchronous: false,
    always: false,
    late_s: 1.0,
};

/// Refuses flags of a plane that this device cannot have, before anything is started.
pub(crate) fn check(args: &ServeArgs) -> anyhow::Result<()> {
    if !args.fetch.has_plane() {
        return Ok(());
    }
    let flag = match &args.fetch {
        fetch if fetch.fetch_listen.is_some() => "--fetch-listen",
        fetch if fetch.prefix_store.is_some() => "--prefix-store",
        _ => "--kv-events-config",
    };
    ensure!(args.device.shares_prefixes()?, "{flag}: needs --enable-prefix-caching");
    ensure!(
        matches!(args.device.device, DeviceName::Cpu | DeviceName::Sim(_)),
        "{flag}: needs --device cpu or sim:NAME"
    );
    Ok(())
}

/// What the flags say of the traffic with a fetch plane. None: there is none. `block_bytes`: of
/// one KV block.
pub(crate) fn config(args: &ServeArgs, block_bytes: u64) -> anyhow::Result<Option<FetchConfig>> {
    let fetch = &args.fetch;
    let num_events = fetch.events().map_or(0, |events| events.ring_events(args.device.block_size));
    if fetch.fetch_ring.is_none() || !fetch.has_plane() {
        return Ok(None);
    }
    if !fetch.has_store() {
        return Ok(Some(FetchConfig { num_events, ..NO_STORE }));
    }
    let chunk_bytes = block_bytes * (CHUNK_TOKENS as u64 / u64::from(args.device.block_size));
    let frames = fetch.fetch_frame_bytes / chunk_bytes;
    ensure!(
        frames >= *FRAMES.start(),
        "--fetch-frame-bytes is {}, must be at least {} for chunks of this model",
        fetch.fetch_frame_bytes,
        FRAMES.start() * chunk_bytes
    );
    Ok(Some(FetchConfig {
        num_frames: frames.min(*FRAMES.end()) as u32,
        num_events,
        num_entries: args.device.max_num_seqs + SPARE_ENTRIES,
        queue_len: QUEUE_LEN,
        first_come: fetch.fetch_order == FetchOrder::FirstCome,
        synchronous: fetch.fetch_order == FetchOrder::Synchronous,
        always: fetch.fetch_always,
        late_s: fetch.fetch_late_ms as f32 / 1e3,
    }))
}

/// Makes the region, if the device has one, and puts it where the fetch plane looks for it.
/// `model_id` is asked for only then.
pub(crate) fn open(
    args: &ServeArgs,
    device: &mut Device,
    model_id: impl FnOnce(&Device) -> ModelId,
) -> anyhow::Result<()> {
    let bytes = device.fetch_region_bytes();
    let Some(path) = args.fetch.fetch_ring.as_deref().filter(|_| bytes > 0) else { return Ok(()) };
    let id = model_id(device);
    // A fetch plane that has the region of the last device sees that another one is here.
    let draft = Draft::create(path, bytes).context("the ring for the fetch plane")?;
    let region = Region(draft.transport().clone());
    device.open_fetch_region(region, *id.bytes(), getrandom::u64()?)?;
    draft.publish().context("the ring for the fetch plane")?;
    tracing::info!(path = %path.display(), mib = bytes >> 20, model = %id, "ring for the fetch plane");
    Ok(())
}

/// Hands the region out at --fetch-listen, if that is given, until the value is dropped. The device
/// is loaded: the region is at its path.
pub(crate) fn hand_out(args: &ServeArgs) -> anyhow::Result<impl Sized> {
    let Some(path) = args.fetch.fetch_ring.as_deref().filter(|_| args.fetch.fetch_listen.is_some())
    else {
        return Ok(None);
    };
    let region = ShmTransport::open(path).with_context(|| path.display().to_string())?;
    remote::listen_for_fetching(args, region)
}

/// How KV is computed and kept.
pub(crate) struct KvOf<'a> {
    /// Of the model.
    pub dtype: Dtype,
    pub kept: KvDtype,
    pub scales: &'a [[f32; 2]],
}

impl KvOf<'_> {
    /// Of a stored element.
    fn chunk_dtype(&self) -> saccade_chunk::Dtype {
        match (self.kept, self.dtype) {
            (KvDtype::Fp8, _) => saccade_chunk::Dtype::Fp8,
            (KvDtype::Auto, Dtype::F32) => saccade_chunk::Dtype::F32,
            (KvDtype::Auto, Dtype::Bf16) => saccade_chunk::Dtype::Bf16,
            (KvDtype::Auto, Dtype::F16) => saccade_chunk::Dtype::F16,
        }
    }

    /// What decides about its bits; of KV in the model's dtype nothing else than that.
    fn settings(&self) -> String {
        match self.kept {
            KvDtype::Auto => format!("{:?}", self.dtype),
            KvDtype::Fp8 => format!("{:?} {:?} {:?}", self.dtype, self.kept, self.scales),
        }
    }
}

/// Tells KV that is computed from these weights, in this way, from all other: only where all of it
/// is the same may a chunk replace computing.
pub(crate) fn model_id(
    weights: Option<&Weights>,
    args: &ServeArgs,
    model: &ModelConfig,
    kv: &KvOf<'_>,
    kernels: &str,
) -> ModelId {
    let mut hash = Xxh3::new();
    match weights {
        Some(weights) => weights.read_all(|bytes| hash.update(bytes)),
        None => hash.update(format!("random weights, seed {}", args.model.seed).as_bytes()),
    }
    // All that decides about a bit of KV: the shape and the constants of the model, its angles, how
    // weights are kept, and the order of sums, which differs between kernel sets.
    let settings = format!("{model:?} {} {:?} {kernels}", kv.settings(), args.model.quantization);
    let geometry = saccade_chunk::Geometry {
        num_layers: model.num_layers as usize,
        kv_heads: model.num_kv_heads as usize,
        head_dim: model.head_dim as usize,
        num_tokens: CHUNK_TOKENS,
        dtype: kv.chunk_dtype(),
    };
    ModelId::new(&hash.digest128().to_le_bytes(), settings.as_bytes(), &geometry)
}
