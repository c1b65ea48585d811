//! `saccade serve`: the host process. It makes the ring, starts the planes, says where they run,
//! and then only watches: a plane that dies is restarted, a signal ends all in order.

mod child;
mod fetching;
mod progress;

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use saccade_ring::{Region, RegionLimits, default_region_dir};
use tokio::signal::unix::{Signal, SignalKind, signal};

use crate::cli::ServeArgs;
use crate::{emulated, kv_region, model_source, remote};
use child::{Exit, Plane, PlaneKind};

/// Planes that die more often than --max-restarts within this window are given up, and the server
/// with them.
const RESTART_WINDOW: Duration = Duration::from_secs(60);
/// Time for a plane to end after SIGTERM, beyond its own drain timeout, before SIGKILL.
const KILL_AFTER: Duration = Duration::from_secs(5);

/// Runs until a signal, or until a plane cannot be kept alive.
pub(crate) fn run(args: &ServeArgs) -> anyhow::Result<()> {
    // One thread: children are bound to the life of the thread that starts them.
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(Supervisor::start(args)?.watch())
}

struct Supervisor {
    planes: Vec<Plane>,
    fetching: Option<fetching::Fetching>,
    /// The notice that the device is emulated, if it is.
    notice: Option<String>,
    region: Region,
    /// Where the device plane hands the region out, if it does.
    ring_listen: Option<String>,
    /// The same for the fetch plane's.
    fetch_listen: Option<String>,
    loading: progress::Loading,
    drain_timeout: Duration,
    restarts: Vec<Instant>,
    max_restarts: usize,
    started: Instant,
    /// Holds the unpacked bundled model, if that is served.
    _scratch: tempfile::TempDir,
}

impl Supervisor {
    fn start(args: &ServeArgs) -> anyhow::Result<Supervisor> {
        check_placement(args)?;
        args.http.check()?;
        args.device.shares_prefixes()?;
        remote::check(args)?;
        kv_region::check(args)?;
        let scratch = model_source::scratch()?;
        let folder = model_source::open(&args.model, scratch.path())?;
        folder.config()?; // a model that cannot be served is refused before anything is started
        let limits = RegionLimits {
            num_slots: args.ring.ring_slots,
            num_frontends: args.ring.api_server_count.saturating_add(args.ring.remote_frontends),
            out_ring_words: args.ring.out_ring_words,
            arena_bytes: args.ring.arena_bytes,
        };
        let path = ring_path(args.ring.file()?, &limits)?;
        let region = Region::create(&path, &limits).context("create the ring region")?;
        Ok(Supervisor {
            planes: planes(args, folder.root(), &path),
            fetching: fetching(args, folder.root(), &path),
            notice: emulated::notice(args),
            loading: progress::Loading::new(region.transport())?,
            region,
            ring_listen: args.ring.ring_listen.clone(),
            fetch_listen: args.fetch.fetch_listen.clone(),
            drain_timeout: Duration::from_secs(args.http.drain_timeout_s),
            restarts: Vec::new(),
            max_restarts: args.placement.max_restarts,
            started: Instant::now(),
            _scratch: scratch,
        })
    }

    async fn watch(mut self) -> anyhow::Result<()> {
        let mut signals = Signals::new()?;
        for plane in &mut self.planes {
            plane.spawn()?;
        }
        if let Some(plane) = self.fetching.as_mut().and_then(fetching::Fetching::plane) {
            plane.spawn()?;
        }
        self.print_placement();
        let mut poll = tokio::time::interval(Duration::from_millis(20));
        loop {
            tokio::select! {
                () = signals.recv() => return self.shut_down(&mut signals).await,
                _ = poll.tick() => {
                    self.loading.show();
                    if let Some(fetching) = &mut self.fetching {
                        fetching.watch();
                    }
                    if let Err(error) = self.revive() {
                        self.kill_all().await;
                        return Err(error);
                    }
                }
            }
        }
    }

    fn print_placement(&self) {
        if let Some(notice) = &self.notice {
            eprintln!("  {notice}");
        }
        for plane in &self.planes {
            eprintln!("  {}", plane.describe());
        }
        if let Some(line) = self.fetching.as_ref().and_then(fetching::Fetching::describe) {
            eprintln!("  {line}");
        }
        eprintln!("  ring             {}", self.region.path().display());
        if let Some(address) = &self.ring_listen {
            eprintln!("  ring for others  ucx://{address}");
        }
        if let Some(address) = &self.fetch_listen {
            eprintln!("  fetch for others ucx://{address}");
        }
    }

    /// Restarts planes that have died.
    fn revive(&mut self) -> anyhow::Result<()> {
        for i in 0..self.planes.len() {
            let Some(exit) = self.planes[i].exited()? else { continue };
            if self.planes[i].kind() == PlaneKind::Device {
                // Frontends need not wait for the heartbeat to be missed.
                self.loading.device_died()?;
            }
            let name = self.planes[i].name();
            if let Exit::Config(code) = exit {
                bail!("{name} ended with exit code {code}: see its message above");
            }
            self.allow_restart(&name)?;
            tracing::warn!(plane = name, %exit, "plane died; starting it again");
            self.planes[i].spawn()?;
            eprintln!("  {}", self.planes[i].describe());
        }
        Ok(())
    }

    fn allow_restart(&mut self, name: &str) -> anyhow::Result<()> {
        let now = Instant::now();
        self.restarts.retain(|at| now - *at < RESTART_WINDOW);
        self.restarts.push(now);
        let max = self.max_restarts;
        if self.restarts.len() > max {
            bail!("{name} died; more than {max} deaths within {RESTART_WINDOW:?} (--max-restarts)");
        }
        Ok(())
    }

    /// Frontends drain first, while the device still produces; then the device stops, and what
    /// serves it.
    async fn shut_down(mut self, signals: &mut Signals) -> anyhow::Result<()> {
        tracing::info!(after = ?self.started.elapsed(), "stopping: requests in flight may finish");
        let drain = self.drain_timeout + KILL_AFTER;
        let order = [
            (PlaneKind::Frontend, drain),
            (PlaneKind::Device, KILL_AFTER),
            (PlaneKind::Fetch, KILL_AFTER),
        ];
        for (kind, timeout) in order {
            let ended = self.end(kind, timeout);
            tokio::select! {
                () = ended => {}
                () = signals.recv() => {
                    tracing::warn!("second signal: stopping at once");
                    break;
                }
            }
        }
        self.kill_all().await;
        Ok(())
    }

    /// SIGTERM to the planes of a kind, and wait until they have ended or `timeout` has passed.
    async fn end(&mut self, kind: PlaneKind, timeout: Duration) {
        let deadline = tokio::time::Instant::now() + timeout;
        for plane in self.planes_mut().filter(|p| p.kind() == kind) {
            plane.terminate();
        }
        for plane in self.planes_mut().filter(|p| p.kind() == kind) {
            if tokio::time::timeout_at(deadline, plane.wait()).await.is_err() {
                tracing::warn!(plane = plane.name(), ?timeout, "did not end in time");
            }
        }
    }

    async fn kill_all(&mut self) {
        for plane in self.planes_mut() {
            plane.kill().await;
        }
    }

    fn planes_mut(&mut self) -> impl Iterator<Item = &mut Plane> {
        let fetching = self.fetching.as_mut().and_then(fetching::Fetching::plane);
        self.planes.iter_mut().chain(fetching)
    }
}

/// The region's file: as asked for, or one in shared memory named after this process. A file of
/// that name was left by a dead process that had our id.
fn ring_path(asked: Option<&Path>, limits: &RegionLimits) -> anyhow::Result<PathBuf> {
    if let Some(path) = asked {
        return Ok(path.to_owned());
    }
    let dir = default_region_dir(limits.layout()?.region_bytes());
    let path = dir.join(format!("saccade-{}.ring", std::process::id()));
    match std::fs::remove_file(&path) {
        Err(e) if e.kind() != std::io::ErrorKind::NotFound => {
            Err(e).with_context(|| format!("remove the stale {}", path.display()))
        }
        _ => Ok(path),
    }
}

/// Cores that this process may not use would be dropped silently by the kernel.
fn check_placement(args: &ServeArgs) -> anyhow::Result<()> {
    let placement = &args.placement;
    for (flag, cores) in [
        ("--device-cores", &placement.device_cores),
        ("--frontend-cores", &placement.frontend_cores),
        ("--fetch-cores", &args.fetch.fetch_cores),
    ] {
        if let Some(cores) = cores {
            cores.check_usable().map_err(|e| anyhow::anyhow!("{flag}: {e}"))?;
        }
    }
    Ok(())
}

fn planes(args: &ServeArgs, model_folder: &Path, ring: &Path) -> Vec<Plane> {
    let device = Plane::device(args, model_folder, ring);
    let device = match args.fetch.has_plane() {
        true => device.told(&fetch_ring(ring)),
        false => device,
    };
    let mut planes = vec![device];
    planes.extend(
        (0..args.ring.api_server_count).map(|i| Plane::frontend(args, model_folder, ring, i)),
    );
    planes
}

/// The plane that reaches the store and tells routers, if there is one.
fn fetching(args: &ServeArgs, model_folder: &Path, ring: &Path) -> Option<fetching::Fetching> {
    if !args.fetch.has_plane() {
        return None;
    }
    let fetch_ring = fetch_ring(ring);
    // One that joins at --fetch-listen is another host's to start.
    let plane = args.fetch.fetch_listen.is_none();
    let plane = plane.then(|| Plane::fetch(args, model_folder, ring, &fetch_ring));
    Some(fetching::Fetching::new(plane, &fetch_ring, args.placement.max_restarts))
}

/// Beside the ring.
fn fetch_ring(ring: &Path) -> PathBuf {
    ring.with_extension("fetch")
}

/// SIGTERM and SIGINT, as one.
struct Signals {
    terminate: Signal,
    interrupt: Signal,
}

impl Signals {
    fn new() -> std::io::Result<Signals> {
        Ok(Signals {
            terminate: signal(SignalKind::terminate())?,
            interrupt: signal(SignalKind::interrupt())?,
        })
    }

    async fn recv(&mut self) {
        tokio::select! {
            _ = self.terminate.recv() => {}
            _ = self.interrupt.recv() => {}
        }
    }
}
