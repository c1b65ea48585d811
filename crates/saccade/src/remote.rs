//! Rings that cross hosts, by UCX: what the flags ask for, or why this build cannot.

use anyhow::bail;

#[cfg(feature = "device")]
use crate::cli::RingArgs;
#[cfg(all(not(feature = "ucx"), feature = "device"))]
use crate::cli::ServeArgs;
#[cfg(all(not(feature = "ucx"), feature = "device"))]
use saccade_ring::ShmTransport;

#[cfg(not(feature = "ucx"))]
const WITHOUT: &str = "needs a build with UCX: cargo build --features ucx (docs/ring.md)";

/// Refuses flags that mean nothing together, before anything is started.
#[cfg(feature = "device")]
pub(crate) fn check(ring: &RingArgs) -> anyhow::Result<()> {
    if ring.remote_frontends > 0 && ring.ring_listen.is_none() {
        bail!("--remote-frontends: nobody can join without --ring-listen");
    }
    if ring.ring_listen.is_some() && ring.remote_frontends == 0 {
        bail!("--ring-listen: nobody may join without --remote-frontends");
    }
    #[cfg(not(feature = "ucx"))]
    if ring.ring_listen.is_some() {
        bail!("--ring-listen {WITHOUT}");
    }
    Ok(())
}

#[cfg(all(feature = "ucx", feature = "device"))]
pub(crate) use with_ucx::listen;

#[cfg(feature = "ucx")]
pub(crate) use with_ucx::join;

/// No listener unless asked for.
#[cfg(all(not(feature = "ucx"), feature = "device"))]
pub(crate) fn listen(
    args: &ServeArgs,
    _: &ShmTransport,
) -> anyhow::Result<Option<std::convert::Infallible>> {
    if args.ring.ring_listen.is_some() { bail!("--ring-listen {WITHOUT}") } else { Ok(None) }
}

#[cfg(not(feature = "ucx"))]
pub(crate) fn join(
    _address: &str,
) -> anyhow::Result<(saccade_ring::ShmTransport, std::future::Pending<anyhow::Error>)> {
    bail!("--ring ucx:// {WITHOUT}")
}

#[cfg(feature = "ucx")]
mod with_ucx {
    use std::future::Future;

    use anyhow::Context;
    use saccade_ring::ucx::{UcxEvent, UcxTransport};

    /// Hands the region out at --ring-listen, if that is given, until the value is dropped.
    #[cfg(feature = "device")]
    pub(crate) fn listen(
        args: &crate::cli::ServeArgs,
        region: &saccade_ring::ShmTransport,
    ) -> anyhow::Result<Option<saccade_ring::ucx::UcxListener>> {
        use saccade_ring::ucx::{ListenerOptions, UcxListener};
        let Some(address) = &args.ring.ring_listen else { return Ok(None) };
        // What frontends cost belongs on their cores, where those are told.
        let cores = args.placement.frontend_cores.clone();
        let place = move || {
            if let Some(Err(error)) = cores.map(|cores| cores.bind(0)) {
                tracing::warn!("--frontend-cores: the ring's listener runs elsewhere: {error}");
            }
        };
        let options = ListenerOptions {
            on_thread: Some(Box::new(place)),
            log: Some(Box::new(|event| tracing::info!("ring: {event}"))),
        };
        let listener = UcxListener::start(address, region.clone(), options)
            .with_context(|| format!("--ring-listen {address}"))?;
        tracing::info!(address = %listener.address(), "the ring is handed out by UCX");
        Ok(Some(listener))
    }

    /// Joins a ring of another host. The future ends when that ring is another one than before, and
    /// this frontend has to start anew.
    pub(crate) fn join(
        address: &str,
    ) -> anyhow::Result<(UcxTransport, impl Future<Output = anyhow::Error>)> {
        let (tell, mut told) = tokio::sync::watch::channel(false);
        let notice = move |event| match event {
            UcxEvent::Lost(why) => tracing::warn!("the ring is lost: {why}"),
            UcxEvent::Back => tracing::info!("the ring is back"),
            UcxEvent::Replaced => {
                tell.send_replace(true);
            }
        };
        let transport = UcxTransport::connect(address, notice)
            .with_context(|| format!("--ring ucx://{address}"))?;
        tracing::info!(transports = transport.transports(), "ring over UCX");
        let replaced = async move {
            if told.wait_for(|replaced| *replaced).await.is_err() {
                // The transport went first: whoever waits here ends otherwise.
                std::future::pending::<()>().await;
            }
            anyhow::anyhow!(
                "another ring is handed out at this address now: start again to join it"
            )
        };
        Ok((transport, replaced))
    }
}
