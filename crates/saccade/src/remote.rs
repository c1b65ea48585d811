//! Rings that cross hosts, by UCX: what the flags ask for, or why this build cannot.

use anyhow::bail;

#[cfg(any(feature = "fetch", not(feature = "ucx")))]
use crate::cli::RingArgs;
#[cfg(feature = "device")]
use crate::cli::{DeviceName, RingMemory, SchedulerPlace, ServeArgs};

#[cfg(not(feature = "ucx"))]
const WITHOUT: &str = "needs a build with UCX: cargo build --features ucx (docs/ring.md)";

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
    #[cfg(not(feature = "ucx"))]
    if ring.ring_listen.is_some() {
        bail!("--ring-listen {WITHOUT}");
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
    #[cfg(feature = "ucx")]
    {
        let has_secret = with_ucx::secret(&args.ring)?.is_some();
        for (flag, address) in listens {
            let Some(address) = address else { continue };
            saccade_ring::ucx::check_address(address, has_secret)
                .map_err(|error| anyhow::anyhow!("{flag} {address}: {error}"))?;
        }
    }
    Ok(())
}

/// Refuses what a fetch plane of another host names itself, and what it cannot do.
#[cfg(feature = "device")]
fn check_fetching(args: &ServeArgs) -> anyhow::Result<()> {
    if args.fetch.fetch_listen.is_none() {
        return Ok(());
    }
    #[cfg(not(feature = "ucx"))]
    bail!("--fetch-listen {WITHOUT}");
    #[cfg(feature = "ucx")]
    {
        if args.fetch.prefix_store.is_some() {
            bail!("--prefix-store: the fetch plane that joins at --fetch-listen names the store");
        }
        if args.fetch.events().is_some() {
            bail!("--kv-events-config: needs the fetch plane on this host, without --fetch-listen");
        }
        Ok(())
    }
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
    } else {
        return Ok(());
    };
    bail!("--ring-memory device: {broken}")
}

#[cfg(all(feature = "ucx", feature = "device"))]
pub(crate) use with_ucx::{listen, listen_for_fetching};

#[cfg(feature = "ucx")]
pub(crate) use with_ucx::join;

/// No listener unless asked for.
#[cfg(all(not(feature = "ucx"), feature = "device"))]
pub(crate) fn listen<R>(
    args: &ServeArgs,
    _: R,
) -> anyhow::Result<Option<std::convert::Infallible>> {
    if args.ring.ring_listen.is_some() { bail!("--ring-listen {WITHOUT}") } else { Ok(None) }
}

/// The same for the fetch plane's ring.
#[cfg(all(not(feature = "ucx"), feature = "device"))]
pub(crate) fn listen_for_fetching<R>(
    args: &ServeArgs,
    _: R,
) -> anyhow::Result<Option<std::convert::Infallible>> {
    if args.fetch.fetch_listen.is_some() { bail!("--fetch-listen {WITHOUT}") } else { Ok(None) }
}

/// Where a fetch plane finds the regions of a device plane of another host.
#[cfg(feature = "fetch")]
pub(crate) fn door(ring: &RingArgs, address: &str) -> anyhow::Result<saccade_fetch::Door> {
    #[cfg(feature = "ucx")]
    return Ok(saccade_fetch::Door::Ucx(with_ucx::peer(ring, address)?));
    #[cfg(not(feature = "ucx"))]
    {
        let _ = ring;
        bail!("--ring ucx://{address} {WITHOUT}")
    }
}

#[cfg(not(feature = "ucx"))]
pub(crate) fn join(
    _ring: &RingArgs,
    _address: &str,
) -> anyhow::Result<(saccade_ring::ShmTransport, std::future::Pending<anyhow::Error>)> {
    bail!("--ring ucx:// {WITHOUT}")
}

#[cfg(feature = "ucx")]
mod with_ucx {
    use std::future::Future;
    use std::sync::Arc;

    use anyhow::Context;
    use saccade_ring::ucx::{Peer, SecretFile, UcxEvent, UcxTransport};

    use crate::cli::RingArgs;

    #[cfg(feature = "device")]
    use saccade_ring::ucx::{ExportedRegion, ListenerOptions, MemoryKind, UcxError, UcxListener};

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
        fn instance_id(&self) -> Result<u64, UcxError> {
            Ok(self.instance_id)
        }
        fn wake(&self, _: u64) {
            // The scheduler on a GPU polls: no thread sleeps on the ring's words.
        }
    }

    /// What --ring-secret-file holds, if it is given.
    pub(crate) fn secret(args: &RingArgs) -> anyhow::Result<Option<Arc<SecretFile>>> {
        let file = args.ring_secret_file.as_deref().map(SecretFile::open);
        Ok(file.transpose().context("--ring-secret-file")?.map(Arc::new))
    }

    /// The listener of another host.
    pub(crate) fn peer(args: &RingArgs, address: &str) -> anyhow::Result<Peer> {
        Ok(Peer { address: address.into(), secret: secret(args)? })
    }

    /// Hands the region out at --ring-listen, if that is given, until the value is dropped.
    #[cfg(feature = "device")]
    pub(crate) fn listen(
        args: &crate::cli::ServeArgs,
        region: impl ExportedRegion,
    ) -> anyhow::Result<Option<UcxListener>> {
        let Some(address) = &args.ring.ring_listen else { return Ok(None) };
        // Work for frontends belongs on their cores, if those are given.
        let cores = args.placement.frontend_cores.clone();
        let listener =
            UcxListener::start(address, region, options("ring", cores, secret(&args.ring)?))
                .with_context(|| format!("--ring-listen {address}"))?;
        tracing::info!(address = %listener.address(), "the ring is handed out by UCX");
        Ok(Some(listener))
    }

    /// Hands the fetch plane's region out at --fetch-listen, if that is given, until the value is
    /// dropped.
    #[cfg(feature = "device")]
    pub(crate) fn listen_for_fetching(
        args: &crate::cli::ServeArgs,
        region: saccade_ring::ShmTransport,
    ) -> anyhow::Result<Option<UcxListener>> {
        let Some(address) = &args.fetch.fetch_listen else { return Ok(None) };
        // No fetch plane runs here: its cores are there for its traffic.
        let cores = args.fetch.fetch_cores.clone().or(args.placement.frontend_cores.clone());
        let options = options("fetch ring", cores, secret(&args.ring)?);
        let listener = saccade_fetch::listen(address, region, options)
            .with_context(|| format!("--fetch-listen {address}"))?;
        tracing::info!(address = %listener.address(), "the fetch ring is handed out by UCX");
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
        address: &str,
    ) -> anyhow::Result<(UcxTransport, impl Future<Output = anyhow::Error>)> {
        let (tell, mut told) = tokio::sync::watch::channel(false);
        let notice = move |event| match event {
            UcxEvent::Lost(why) => tracing::warn!("the ring is lost: {why}"),
            UcxEvent::Refused(why) => tracing::warn!("the ring cannot be joined again: {why}"),
            UcxEvent::Back => tracing::info!("the ring is back"),
            UcxEvent::Replaced => {
                tell.send_replace(true);
            }
        };
        let transport = UcxTransport::connect(&peer(ring, address)?, notice)
            .with_context(|| format!("--ring ucx://{address}"))?;
        tracing::info!(transports = transport.transports(), "ring over UCX");
        let replaced = async move {
            if told.wait_for(|replaced| *replaced).await.is_err() {
                // The transport went first: the waiting task ends some other way.
                std::future::pending::<()>().await;
            }
            anyhow::anyhow!(
                "another ring is handed out at this address now: start again to join it"
            )
        };
        Ok((transport, replaced))
    }
}
