//! A fetch plane process: joins the regions of device planes, and tells routers what the devices
//! say, until told to stop.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use anyhow::Context;
use saccade_events::{Adapters, Joins};
use saccade_fetch::{Door, FetchConfig, FetchError};
use tokio::signal::unix::{SignalKind, signal};
use tokio::task::JoinSet;

use crate::cli::{RingPlace, ServeArgs};
use crate::{remote, supervised};

/// The plane ended on its own; another one may do better.
const EXIT_CRASHED: i32 = 4;

/// Runs the plane until SIGTERM or SIGINT.
pub(crate) fn run(args: &ServeArgs) -> anyhow::Result<()> {
    supervised::die_with_supervisor()?;
    let store = args.fetch.prefix_store.clone();
    let (events, config) = (args.fetch.events().cloned(), config(args)?);
    anyhow::ensure!(store.is_some() || events.is_some(), "--prefix-store names the store");
    tracing::info!(store = store.as_ref().map(tracing::field::display), "fetch plane");
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let (mut terminate, mut interrupt) =
            (signal(SignalKind::terminate())?, signal(SignalKind::interrupt())?);
        let stop = Arc::new(AtomicBool::new(false));
        let mut parts = JoinSet::new();
        if let Some(events) = events {
            let (ring, seen) = (fetch_ring(args)?.to_owned(), stop.clone());
            let joins = if store.is_some() { Joins::FetchPlane } else { Joins::Publisher };
            let names = args.lora.lora_modules.iter().map(|module| module.name.as_str());
            let adapters = Adapters::of(names);
            parts.spawn_blocking(move || {
                Ok(saccade_events::run(&ring, &events, &adapters, joins, &seen)?)
            });
        }
        if let Some(store) = store {
            let seen = stop.clone();
            parts.spawn_blocking(move || end(saccade_fetch::run(config, &store, seen)));
        }
        let mut ended = tokio::select! {
            ended = parts.join_next() => ended,
            _ = terminate.recv() => None,
            _ = interrupt.recv() => None,
        };
        // SYNC: relaxed; a flag without data.
        stop.store(true, Ordering::Relaxed);
        // What ended first says why.
        let mut first = Ok(());
        while let Some(part) = match ended.take() {
            Some(part) => Some(part),
            None => parts.join_next().await,
        } {
            first = first.and(part?);
        }
        first
    })
}

fn config(args: &ServeArgs) -> anyhow::Result<FetchConfig> {
    let fetch = &args.fetch;
    let door = door(args)?;
    if let Some(cores) = &fetch.fetch_cores {
        cores.check_usable().map_err(|error| anyhow::anyhow!("--fetch-cores: {error}"))?;
    }
    let mut config = FetchConfig::at(door, fetch.prefix_codec);
    config.mode = fetch.fetch_mode;
    config.cores.clone_from(&fetch.fetch_cores);
    config.buffer_bytes = fetch.fetch_buffer_bytes;
    Ok(config)
}

/// Where the device puts its regions.
fn door(args: &ServeArgs) -> anyhow::Result<Door> {
    match &args.ring.ring {
        Some(RingPlace::Remote(way, address)) => {
            anyhow::ensure!(
                args.fetch.events().is_none(),
                "--kv-events-config: events are published on the device's host only"
            );
            Ok(Door::Remote(remote::peer(&args.ring, *way, address)?))
        }
        _ => Ok(Door::File(fetch_ring(args)?.to_owned())),
    }
}

fn fetch_ring(args: &ServeArgs) -> anyhow::Result<&Path> {
    let path = args.fetch.fetch_ring.as_deref();
    path.context("--ring tcp://HOST:PORT or --fetch-ring names the region to join")
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
