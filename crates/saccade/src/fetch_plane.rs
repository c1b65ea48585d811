//! A fetch plane process: joins the regions of device planes until told to stop.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use anyhow::Context;
use saccade_fetch::{FetchConfig, FetchError};
use tokio::signal::unix::{SignalKind, signal};

use crate::cli::ServeArgs;

/// The plane ended on its own; another one may do better.
const EXIT_CRASHED: i32 = 4;

/// Runs the plane until SIGTERM or SIGINT.
pub(crate) fn run(args: &ServeArgs) -> anyhow::Result<()> {
    let store = args.fetch.prefix_store.clone().context("--prefix-store names the store")?;
    let config = config(args)?;
    tracing::info!(%store, "fetch plane");
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let (mut terminate, mut interrupt) =
            (signal(SignalKind::terminate())?, signal(SignalKind::interrupt())?);
        let stop = Arc::new(AtomicBool::new(false));
        let seen = stop.clone();
        let mut plane =
            tokio::task::spawn_blocking(move || saccade_fetch::run(config, &store, seen));
        tokio::select! {
            ended = &mut plane => return end(ended?),
            _ = terminate.recv() => {}
            _ = interrupt.recv() => {}
        }
        // SYNC: relaxed; a flag without data.
        stop.store(true, Ordering::Relaxed);
        end(plane.await?)
    })
}

fn config(args: &ServeArgs) -> anyhow::Result<FetchConfig> {
    let fetch = &args.fetch;
    let path = fetch.fetch_ring.as_deref().context("--fetch-ring names the region to join")?;
    if let Some(cores) = &fetch.fetch_cores {
        cores.check_usable().map_err(|error| anyhow::anyhow!("--fetch-cores: {error}"))?;
    }
    let mut config = FetchConfig::new(path, fetch.prefix_codec);
    config.mode = fetch.fetch_mode;
    config.cores.clone_from(&fetch.fetch_cores);
    config.buffer_bytes = fetch.fetch_buffer_bytes;
    Ok(config)
}

/// What another start would not change is an error in flags.
fn end(ended: Result<(), FetchError>) -> anyhow::Result<()> {
    match ended {
        Ok(()) => Ok(()),
        Err(error @ (FetchError::Buffers { .. } | FetchError::Store(_))) => Err(error.into()),
        Err(error) => {
            tracing::error!(%error, "the fetch plane has failed");
            std::process::exit(EXIT_CRASHED);
        }
    }
}
