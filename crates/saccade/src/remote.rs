//! Rings that cross hosts: what the flags ask for.

use std::future::Future;
use std::sync::Arc;

use anyhow::Context;
#[cfg(feature = "device")]
use anyhow::bail;
use saccade_ring::remote::{Peer, RemoteEvent, RemoteTransport, SecretFile, Way};

use crate::cli::RingArgs;
#[cfg(feature = "device")]
use crate::cli::{DeviceName, RingMemory, SchedulerPlace, ServeArgs};
#[cfg(feature = "device")]
use saccade_ring::remote::{
    ExportedRegion, ListenerOptions, MemoryKind, RemoteListener, check_address,
};
#[cfg(feature = "device")]
use saccade_ring::{RegionError, Transport};

/// Refuses flags that mean nothing together, before anything is started.
#[cfg(feature = "device")]
pub(crate) fn check(args: &ServeArgs) -> anyhow::Result<()> {
    let ring = &args.ring;
    if ring.remote_frontends > 0 && ring.ring_listen.is_none() {
        bail!("--remote-frontends: no frontend plane can join without --ring-listen");
    }
    if ring.ring_listen.is_some() && ring.remote_frontends == 0 {
        bail!("--ring-listen: no frontend plane may join without --remote-frontends");
    }
    check_ring_memory(args)?;
    check_fetching(args)?;
    check_secret(args)
}

/// Refuses addresses that other hosts reach without a secret, and a secret that is of no use.
#[cfg(feature = "device")]
fn check_secret(args: &ServeArgs) -> anyhow::Result<()> {
    let listens =
        [("--ring-listen", &args.ring.ring_listen), ("--fetch-listen", &args.fetch.fetch_listen)];
    if args.ring.ring_secret_file.is_some() && listens.iter().all(|(_, at)| at.is_none()) {
        bail!("--ring-secret-file: no plane joins without --ring-listen or --fetch-listen");
    }
    let has_secret = secret(&args.ring)?.is_some();
    for (flag, address) in listens {
        let Some(address) = address else { continue };
        check_address(address, has_secret)
            .map_err(|error| anyhow::anyhow!("{flag} {address}: {error}"))?;
    }
    Ok(())
}

/// Refuses what a fetch plane of another host names itself, and what it cannot do.
#[cfg(feature = "device")]
fn check_fetching(args: &ServeArgs) -> anyhow::Result<()> {
    if args.fetch.fetch_listen.is_none() {
        return Ok(());
    }
    if args.fetch.prefix_store.is_some() {
        bail!("--prefix-store: the fetch plane that joins at --fetch-listen names the store");
    }
    if args.fetch.events().is_some() {
        bail!("--kv-events-config: needs the fetch plane on this host, without --fetch-listen");
    }
    Ok(())
}

/// What frontend planes of other hosts name as their --ring, if they may join.
#[cfg(feature = "device")]
pub(crate) fn ring_for_others(ring: &RingArgs) -> Option<String> {
    let way = match ring.ring_memory {
        RingMemory::Host => Way::Tcp,
        RingMemory::Device => Way::Ucx,
    };
    ring.ring_listen.as_ref().map(|address| format!("{}://{address}", way.scheme()))
}

/// Refuses a ring that no frontend plane would reach, or that the scheduler would not.
#[cfg(feature = "device")]
pub(crate) fn check_ring_memory(args: &ServeArgs) -> anyhow::Result<()> {
    if args.ring.ring_memory == RingMemory::Host {
        return Ok(());
    }
    let broken = if !matches!(args.device.device, DeviceName::Cuda | DeviceName::CudaNull) {
        "only --device cuda has memory of its own"
    } else if args.sim.scheduler == SchedulerPlace::Host {
        "--scheduler host reads the ring from a thread of the host, which cannot reach it there"
    } else if args.ring.api_server_count > 0 {
        "frontend planes of this host cannot reach it there: --api-server-count 0"
    } else if args.ring.ring_listen.is_none() {
        "no frontend plane could reach it there without --ring-listen"
    } else if cfg!(not(feature = "ucx")) {
        "only RDMA reaches it there, which needs UCX: cargo build --features ucx (docs/ring.md)"
    } else {
        return Ok(());
    };
    bail!("--ring-memory device: {broken}")
}

// SAFETY: a `GpuRing` keeps its memory where it is while it lives. This process does not access
// it, and the GPU does by atomics.
#[cfg(feature = "device")]
unsafe impl ExportedRegion for crate::gpu::RingOnGpu {
    fn base(&self) -> *mut u8 {
        self.memory.base()
    }
    fn len(&self) -> usize {
        self.memory.len()
    }
    fn kind(&self) -> MemoryKind {
        if self.memory.is_cuda() { MemoryKind::Cuda } else { MemoryKind::Host }
    }
    fn instance_id(&self) -> Result<u64, RegionError> {
        Ok(self.instance_id)
    }
    // The host has none. The scheduler on a GPU polls: no thread sleeps on the ring's words.
    fn transport(&self) -> Option<&dyn Transport> {
        None
    }
}

/// What --ring-secret-file holds, if it is given.
pub(crate) fn secret(args: &RingArgs) -> anyhow::Result<Option<Arc<SecretFile>>> {
    let file = args.ring_secret_file.as_deref().map(SecretFile::open);
    Ok(file.transpose().context("--ring-secret-file")?.map(Arc::new))
}

/// The listener of another host.
pub(crate) fn peer(args: &RingArgs, way: Way, address: &str) -> anyhow::Result<Peer> {
    Ok(Peer { way, address: address.into(), secret: secret(args)? })
}

/// Hands the region out at --ring-listen, if that is given, until the value is dropped.
#[cfg(feature = "device")]
pub(crate) fn listen(
    args: &crate::cli::ServeArgs,
    region: impl ExportedRegion,
) -> anyhow::Result<Option<RemoteListener>> {
    let Some(address) = &args.ring.ring_listen else { return Ok(None) };
    // Work for frontends belongs on their cores, if those are given.
    let cores = args.placement.frontend_cores.clone();
    let listener =
        RemoteListener::start(address, region, options("ring", cores, secret(&args.ring)?))
            .with_context(|| format!("--ring-listen {address}"))?;
    tracing::info!(address = %listener.address(), "the ring is handed out");
    Ok(Some(listener))
}

/// Hands the fetch plane's region out at --fetch-listen, if that is given, until the value is
/// dropped.
#[cfg(feature = "device")]
pub(crate) fn listen_for_fetching(
    args: &crate::cli::ServeArgs,
    region: saccade_ring::ShmTransport,
) -> anyhow::Result<Option<RemoteListener>> {
    let Some(address) = &args.fetch.fetch_listen else { return Ok(None) };
    // No fetch plane runs here: its cores are there for its traffic.
    let cores = args.fetch.fetch_cores.clone().or(args.placement.frontend_cores.clone());
    let options = options("fetch ring", cores, secret(&args.ring)?);
    let listener = saccade_fetch::listen(address, region, options)
        .with_context(|| format!("--fetch-listen {address}"))?;
    tracing::info!(address = %listener.address(), "the fetch ring is handed out");
    Ok(Some(listener))
}

/// The listener's thread runs on these cores, and says what happens.
#[cfg(feature = "device")]
fn options(
    ring: &'static str,
    cores: Option<saccade_host::CpuSet>,
    secret: Option<Arc<SecretFile>>,
) -> ListenerOptions {
    let place = move || {
        if let Some(Err(error)) = cores.map(|cores| cores.bind(0)) {
            tracing::warn!("the listener of the {ring} runs on other cores: {error}");
        }
    };
    ListenerOptions {
        on_thread: Some(Box::new(place)),
        log: Some(Box::new(move |event| tracing::info!("{ring}: {event}"))),
        secret,
        ..ListenerOptions::default()
    }
}

/// Joins a ring of another host. The future completes when another ring has replaced it, and
/// this frontend must restart.
pub(crate) fn join(
    ring: &RingArgs,
    way: Way,
    address: &str,
) -> anyhow::Result<(RemoteTransport, impl Future<Output = anyhow::Error>)> {
    let (tell, mut told) = tokio::sync::watch::channel(false);
    let notice = move |event| match event {
        RemoteEvent::Lost(why) => tracing::warn!("the ring is lost: {why}"),
        RemoteEvent::Refused(why) => tracing::warn!("the ring cannot be joined again: {why}"),
        RemoteEvent::Back => tracing::info!("the ring is back"),
        RemoteEvent::Replaced => {
            tell.send_replace(true);
        }
    };
    let peer = peer(ring, way, address)?;
    let transport =
        RemoteTransport::connect(&peer, notice).with_context(|| format!("--ring {peer}"))?;
    tracing::info!(transports = transport.transports(), "ring of another host");
    let replaced = async move {
        if told.wait_for(|replaced| *replaced).await.is_err() {
            // The transport went first: the waiting task ends some other way.
            std::future::pending::<()>().await;
        }
        anyhow::anyhow!("another ring is handed out at this address now: start again to join it")
    };
    Ok((transport, replaced))
}
