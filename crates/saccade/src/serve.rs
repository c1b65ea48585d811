//! `saccade serve`: the host process. It makes the ring, starts the planes, says where they run,
//! and then only watches: a plane that dies is restarted, a signal ends all in order.

mod child;
mod fetching;
mod kept;
mod progress;
mod restarts;
mod watch;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::Context;
use saccade_frontend::Listening;
use saccade_model::ModelConfig;
use saccade_ring::layout::{SAC_MAX_OUT_RING_WORDS, sac_embedding_words};
use saccade_ring::{Region, RegionLimits, default_region_dir};
use tokio::signal::unix::{Signal, SignalKind, signal};

use crate::cli::{DeviceName, ServeArgs, check_lora};
use crate::run_folder::{self, RunFolder};
use crate::{emulated, frontend_plane, kv_region, model_source, open_files, remote};
use child::{Plane, PlaneKind};
use kept::{Kept, as_long_as};
use restarts::Restarts;
use watch::Patience;

/// Time for a plane to end after SIGTERM, beyond its own drain timeout, before SIGKILL.
const KILL_AFTER: Duration = Duration::from_secs(5);

/// Runs until a signal, or until a plane cannot be kept alive.
pub(crate) fn run(args: &ServeArgs) -> anyhow::Result<()> {
    // One thread: children are bound to the life of the thread that starts them.
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(Supervisor::start(args)?.watch())
}

struct Supervisor {
    planes: Vec<Kept>,
    fetching: Option<fetching::Fetching>,
    /// The notice that the device is emulated, if it is.
    notice: Option<String>,
    /// What the adapters are, if there are any.
    adapters: Option<String>,
    region: Region,
    /// What frontend planes of other hosts join by, if the device plane hands the region out.
    ring_for_others: Option<String>,
    /// The same for the fetch plane's.
    fetch_listen: Option<String>,
    /// Where clients connect, if there are frontend planes on this host.
    address: Option<String>,
    progress: progress::Progress,
    drain_timeout: Duration,
    started: Instant,
    /// Holds the unpacked bundled model, if that is served.
    _scratch: model_source::Scratch,
    /// Holds the ring, and that of the fetch plane, unless --ring says where.
    _folder: Option<RunFolder>,
}

impl Supervisor {
    fn start(args: &ServeArgs) -> anyhow::Result<Supervisor> {
        check_placement(args)?;
        args.http.check()?;
        check_lora(args)?;
        args.device.shares_prefixes()?;
        remote::check(args)?;
        kv_region::check(args)?;
        open_files::max_connections(args.http.max_connections, open_files::raise()?)?;
        // Whose address it is decides which server may go on.
        let listening = listening(args)?;
        let limits = RegionLimits {
            num_slots: args.ring.ring_slots,
            num_frontends: args.ring.api_server_count.saturating_add(args.ring.remote_frontends),
            out_ring_words: args.ring.out_ring_words.unwrap_or(OUT_RING_WORDS),
            arena_bytes: args.ring.arena_bytes,
        };
        let asked = args.ring.file()?;
        let run_folder = if asked.is_none() { Some(folder_for_ring(&limits)?) } else { None };
        let mut scratch = scratch(run_folder.as_ref());
        let folder = model_source::open(&args.model, &mut scratch)?;
        // A model that cannot be served is refused before anything is started.
        let model = folder.config()?;
        let limits = RegionLimits { out_ring_words: out_ring_words(args, &model), ..limits };
        let run_folder = run_folder.map(|folder| roomy(folder, &limits)).transpose()?;
        let own = run_folder.as_ref().map(|folder| folder.path().join("ring"));
        let path = asked.map(Path::to_owned).or(own).context("--ring names no file")?;
        let region = Region::create(&path, &limits).context("create the ring region")?;
        Ok(Supervisor {
            planes: planes(args, folder.root(), &path, listening.as_ref()),
            fetching: fetching(args, folder.root(), &path),
            notice: emulated::notice(args),
            adapters: args.lora.describe(),
            address: listening.map(|listening| args.http.address_of(&listening)),
            progress: progress::Progress::new(region.transport())?,
            region,
            ring_for_others: remote::ring_for_others(&args.ring),
            fetch_listen: args.fetch.fetch_listen.clone(),
            drain_timeout: Duration::from_secs(args.http.drain_timeout_s),
            started: Instant::now(),
            _scratch: scratch,
            _folder: run_folder,
        })
    }

    async fn watch(mut self) -> anyhow::Result<()> {
        let mut signals = Signals::new()?;
        for plane in self.planes_mut() {
            plane.spawn()?;
        }
        self.print_placement();
        let mut poll = tokio::time::interval(Duration::from_millis(20));
        loop {
            tokio::select! {
                () = signals.recv() => return self.shut_down(&mut signals).await,
                _ = poll.tick() => {
                    self.progress.show();
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
        for kept in &self.planes {
            eprintln!("  {}", kept.plane.describe());
        }
        if let Some(line) = self.fetching.as_ref().and_then(fetching::Fetching::describe) {
            eprintln!("  {line}");
        }
        if let Some(adapters) = &self.adapters {
            eprintln!("  adapters         {adapters}");
        }
        eprintln!("  ring             {}", self.region.path().display());
        if let Some(place) = &self.ring_for_others {
            eprintln!("  ring for others  {place}");
        }
        if let Some(address) = &self.fetch_listen {
            eprintln!("  fetch for others tcp://{address}");
        }
        if let Some(address) = &self.address {
            eprintln!("  listening on     {address}");
        }
    }

    /// Starts planes again that have died, and ends planes that hang.
    fn revive(&mut self) -> anyhow::Result<()> {
        let now = Instant::now();
        for kept in &mut self.planes {
            let (kind, index) = (kept.plane.kind(), kept.plane.index());
            let progress = &self.progress;
            let died = kept.tend(now, || match kind {
                PlaneKind::Device => progress.device(),
                PlaneKind::Frontend => progress.frontend(index),
                PlaneKind::Fetch => None,
            })?;
            if died && kind == PlaneKind::Device {
                // Frontends need not wait for the heartbeat to be missed.
                self.progress.device_died()?;
            }
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
            if kind == PlaneKind::Frontend {
                self.stop_listening().await;
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

    /// Gives the address up: connections that wait would wait for nothing.
    async fn stop_listening(&mut self) {
        for kept in self.planes.extract_if(.., |kept| kept.plane.kind() == PlaneKind::Frontend) {
            let mut plane = kept.plane;
            plane.kill().await;
        }
    }

    async fn kill_all(&mut self) {
        for plane in self.planes_mut() {
            plane.kill().await;
        }
    }

    fn planes_mut(&mut self) -> impl Iterator<Item = &mut Plane> {
        let fetching = self.fetching.as_mut().and_then(fetching::Fetching::plane);
        self.planes.iter_mut().map(|kept| &mut kept.plane).chain(fetching)
    }
}

/// The socket of all frontend planes of this host. Made once and handed on, so that a plane that is
/// replaced loses no connection that waits, and one that hangs is given none.
fn listening(args: &ServeArgs) -> anyhow::Result<Option<Arc<Listening>>> {
    if args.ring.api_server_count == 0 {
        return Ok(None);
    }
    let listen = frontend_plane::listen(&args.http)?;
    Ok(Some(Arc::new(Listening::bind(&listen)?)))
}

/// Words of output per slot, unless a flag says otherwise or an embedding takes more.
const OUT_RING_WORDS: u32 = 256;

/// Where the device gives embeddings, one fits.
fn out_ring_words(args: &ServeArgs, model: &ModelConfig) -> u32 {
    let embeds = matches!(args.device.device, DeviceName::Cpu | DeviceName::Null);
    let needed = sac_embedding_words(model.hidden_size);
    match args.ring.out_ring_words {
        Some(words) => words,
        None if embeds && needed <= SAC_MAX_OUT_RING_WORDS => OUT_RING_WORDS.max(needed),
        None => OUT_RING_WORDS,
    }
}

/// The folder, or another one if its file system has no room for such a ring. A model is unpacked
/// only into one that is not in shared memory, and that has room.
fn roomy(folder: RunFolder, limits: &RegionLimits) -> anyhow::Result<RunFolder> {
    let parent = default_region_dir(limits.layout()?.region_bytes());
    match folder.path().parent() == Some(&parent) {
        true => Ok(folder),
        false => folder_for_ring(limits),
    }
}

/// Where the ring is, if --ring does not say: in shared memory, if that has room.
fn folder_for_ring(limits: &RegionLimits) -> anyhow::Result<RunFolder> {
    run_folder::sweep_all();
    let parent = default_region_dir(limits.layout()?.region_bytes());
    RunFolder::create(&parent).with_context(|| format!("make a folder in {}", parent.display()))
}

/// Shared memory is for the ring; elsewhere its folder has room for a model as well.
fn scratch(run_folder: Option<&RunFolder>) -> model_source::Scratch {
    let temporary = std::env::temp_dir();
    match run_folder.filter(|folder| folder.path().parent() == Some(&temporary)) {
        Some(folder) => model_source::Scratch::within(folder.path()),
        None => model_source::Scratch::default(),
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

fn planes(
    args: &ServeArgs,
    model_folder: &Path,
    ring: &Path,
    listening: Option<&Arc<Listening>>,
) -> Vec<Kept> {
    let device = Plane::device(args, model_folder, ring);
    let device = match args.fetch.has_plane() {
        true => device.told(&fetch_ring(ring)),
        false => device,
    };
    let placement = &args.placement;
    let device_lost_after = Duration::from_secs(args.http.device_lost_after_s);
    let device_hung_after = Duration::from_secs(placement.device_hung_after_s);
    let patience = Patience {
        still: device_lost_after,
        silent: device_hung_after.max(device_lost_after),
        loading: device_hung_after,
    };
    let mut planes = vec![Kept::new(device, patience, restarts(args))];
    let frontend_hung_after = Duration::from_secs(placement.frontend_hung_after_s);
    let patience = as_long_as(frontend_hung_after, device_hung_after);
    let frontends = listening.into_iter().flat_map(|listening| {
        (0..args.ring.api_server_count)
            .map(move |index| Plane::frontend(args, model_folder, ring, index, listening))
    });
    planes.extend(frontends.map(|plane| Kept::new(plane, patience, restarts(args))));
    planes
}

/// Each plane counts its own.
fn restarts(args: &ServeArgs) -> Restarts {
    let longest_pause = Duration::from_millis(args.placement.max_restart_pause_ms);
    Restarts::new(args.placement.max_restarts, longest_pause)
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
    Some(fetching::Fetching::new(plane, &fetch_ring, restarts(args)))
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
