//! The plane: its control thread joins the region at a path, keeps the heartbeat, and reads
//! commands.

use std::hint::spin_loop;
use std::mem::offset_of;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use bytemuck::Zeroable;
use saccade_chunk::{CHUNK_TOKENS, Value};
use saccade_host::CpuSet;
use saccade_ring::{Transport, TransportError};
use saccade_store::{BreakerState, Guarded, Key, Store, StoreUrl};
use tokio::runtime::Runtime;

use crate::commands::{Request, Row};
use crate::config::{FetchConfig, FetchError};
use crate::counters::{Counters, Stats};
use crate::door::{Finder, Hold};
use crate::engine::{Engine, network_cores, pin};
use crate::errands::{Errand, Errands};
use crate::layout::*;
use crate::names::Names;
use crate::region::Region;
use crate::remote::{Remote, breaker_word};
use crate::session::{Session, Ticket};

/// Longest nap of a thread that is to see soon that it shall stop.
const STOP_EVERY: Duration = Duration::from_millis(10);
/// Between heartbeats, which also look whether the region is still the one at the path.
const BEAT_EVERY: Duration = Duration::from_millis(SAC_FETCH_HEARTBEAT_MS as u64 / 4);
/// Longest sleep where the device wakes; the heartbeat bounds it.
const MAX_SLEEP: Duration = BEAT_EVERY;
/// First and longest nap where it does not, or where completions wait for room.
const MIN_NAP: Duration = Duration::from_micros(50);
const MAX_NAP: Duration = Duration::from_millis(1);
/// Looks at the count of commands before it sleeps: some 20 us.
const SPINS: u32 = 2000;
/// Time for all that works for a session to see that it is over.
const MAX_END: Duration = Duration::from_secs(5);
/// Before a device that counts wrongly is joined again.
const AFTER_A_FAULT: Duration = Duration::from_secs(1);

/// A plane on threads of this process.
pub struct Plane {
    stop: Arc<AtomicBool>,
    counters: Arc<Counters>,
    control: Option<JoinHandle<Result<(), FetchError>>>,
}

impl Plane {
    /// Starts a plane. It waits for a region at the path.
    ///
    /// # Errors
    /// A thread cannot be started.
    pub fn start(config: FetchConfig, remote: Arc<dyn Remote>) -> Result<Plane, FetchError> {
        let stop = Arc::new(AtomicBool::new(false));
        let counters = Arc::new(Counters::default());
        let mut control = Control::new(config, remote, stop.clone(), counters.clone())?;
        let thread = std::thread::Builder::new().name("fetch control".into());
        let control = thread.spawn(move || control.run())?;
        Ok(Plane { stop, counters, control: Some(control) })
    }

    /// What it has done.
    pub fn stats(&self) -> Stats {
        self.counters.stats()
    }

    /// Whether it has ended by itself; [`Self::stop`] says why.
    pub fn has_ended(&self) -> bool {
        self.control.as_ref().is_none_or(JoinHandle::is_finished)
    }

    /// Ends the plane. When it returns, no thread of it touches a region any more.
    ///
    /// # Errors
    /// Why it had ended before.
    pub fn stop(mut self) -> Result<(), FetchError> {
        self.end()
    }

    fn end(&mut self) -> Result<(), FetchError> {
        // SYNC: relaxed; the control thread looks again within MAX_SLEEP.
        self.stop.store(true, Ordering::Relaxed);
        let Some(control) = self.control.take() else { return Ok(()) };
        control.join().unwrap_or(Err(FetchError::Worker))
    }
}

impl Drop for Plane {
    fn drop(&mut self) {
        if let Err(error) = self.end() {
            tracing::error!(%error, "the fetch plane has failed");
        }
    }
}

/// Runs a plane on this thread, with the store at a URL, until `stop` is set.
///
/// # Errors
/// The store's URL cannot be used, or why the plane cannot go on: buffers too small for the model,
/// or a fault of its own. That a store is down is no error.
pub fn run(config: FetchConfig, store: &StoreUrl, stop: Arc<AtomicBool>) -> Result<(), FetchError> {
    let guarded = Guarded::new(Store::open(store)?, config.store_limits);
    Control::new(config, Arc::new(guarded), stop, Arc::default())?.run()
}

/// Why a region was left.
enum Left {
    Stopped,
    Gone,
    Faulty,
}

struct Control {
    config: FetchConfig,
    stop: Arc<AtomicBool>,
    counters: Arc<Counters>,
    errands: Arc<Errands>,
    engine: Option<Arc<Engine>>,
    finder: Finder,
    /// Last, so that tasks end after what they use has been told to.
    runtime: Option<Runtime>,
}

impl Control {
    fn new(
        config: FetchConfig,
        remote: Arc<dyn Remote>,
        stop: Arc<AtomicBool>,
        counters: Arc<Counters>,
    ) -> Result<Control, FetchError> {
        let max_stores = if config.stores { config.max_stores } else { 0 };
        let errands = Errands::new(remote, counters.clone(), max_stores);
        Ok(Control {
            runtime: Some(runtime(&config)?),
            finder: Finder::new(config.door.clone()),
            config,
            stop,
            counters,
            errands: Arc::new(errands),
            engine: None,
        })
    }

    fn run(&mut self) -> Result<(), FetchError> {
        tracing::info!(ring = %self.finder.door(), "fetch plane: waiting for a device");
        while !self.stopped() {
            let Some((region, hold)) = self.finder.find() else {
                self.sleep(self.finder.pause());
                continue;
            };
            match self.serve(region, hold)? {
                Left::Stopped => break,
                Left::Gone => tracing::info!("fetch plane: the device is gone"),
                Left::Faulty => {
                    tracing::error!(
                        "fetch plane: the device's counts are impossible; joining again"
                    );
                    self.sleep(AFTER_A_FAULT);
                }
            }
        }
        Ok(())
    }

    fn stopped(&self) -> bool {
        // SYNC: relaxed; a flag without data.
        self.stop.load(Ordering::Relaxed)
    }

    fn sleep(&self, time: Duration) {
        let until = Instant::now() + time;
        while Instant::now() < until && !self.stopped() {
            std::thread::sleep(STOP_EVERY.min(time));
        }
    }

    fn serve(&mut self, region: Region, hold: Hold) -> Result<Left, FetchError> {
        let engine = self.engine_for(&region)?;
        let names = Names::new(region.layout().model_id());
        let session = Session::new(region, self.counters.clone());
        let mut life = Life { control: self, engine, session, names, hold, read: 0 };
        let left = match life.live() {
            Err(FetchError::Transport(TransportError::Down(why))) => {
                tracing::warn!(why, "fetch plane: the connection is lost");
                Ok(Left::Gone)
            }
            left => left,
        };
        let Life { session, .. } = life;
        if end(session) { left } else { Err(FetchError::Worker) }
    }

    /// The engine, a new one if chunks have another shape than before.
    fn engine_for(&mut self, region: &Region) -> Result<Arc<Engine>, FetchError> {
        let geometry = region.layout().geometry();
        if let Some(engine) = &self.engine
            && *engine.geometry() == geometry
        {
            return Ok(engine.clone());
        }
        self.engine = None; // its buffers first
        let engine = Arc::new(Engine::start(&self.config, geometry, &self.counters)?);
        Ok(self.engine.insert(engine).clone())
    }
}

impl Drop for Control {
    fn drop(&mut self) {
        if let Some(runtime) = self.runtime.take() {
            // A store that hangs must not keep the plane.
            runtime.shutdown_background();
        }
    }
}

/// Ends a session. False: something still works for it, and may touch its frames.
fn end(mut session: Arc<Session>) -> bool {
    session.end();
    let until = Instant::now() + MAX_END;
    loop {
        // All tickets are gone when no one else has the session; `get_mut` orders what they did.
        if Arc::get_mut(&mut session).is_some() {
            return true;
        }
        if Instant::now() >= until {
            return false;
        }
        std::thread::sleep(MIN_NAP);
    }
}

/// The network's threads.
fn runtime(config: &FetchConfig) -> Result<Runtime, std::io::Error> {
    let cores: Option<Vec<u32>> = config.cores.as_ref().map(|cores| cores.iter().collect());
    let own = network_cores(config.num_cores());
    let threads = config.threads.map_or(own.max(1), |threads| threads.network.max(1));
    let next = AtomicUsize::new(0);
    let pin_next = move || {
        let Some(cores) = &cores else { return };
        // SYNC: relaxed; each thread gets a number of its own.
        let i = next.fetch_add(1, Ordering::Relaxed);
        let of_its_own = cores[..own].get(i % own.max(1)).map(|core| CpuSet::new([*core]));
        pin(Some(&of_its_own.unwrap_or_else(|| CpuSet::new(cores.iter().copied()))));
    };
    tokio::runtime::Builder::new_multi_thread()
        .worker_threads(threads)
        .thread_name("fetch network")
        .on_thread_start(pin_next)
        .enable_all()
        .build()
}

/// A region that is being served.
struct Life<'a> {
    control: &'a Control,
    engine: Arc<Engine>,
    session: Arc<Session>,
    names: Names,
    hold: Hold,
    /// Commands that were read.
    read: u32,
}

impl Life<'_> {
    fn live(&mut self) -> Result<Left, FetchError> {
        let epoch = self.begin()?;
        let mut beaten = Instant::now();
        let mut acked = false;
        let mut nap = MIN_NAP;
        loop {
            if self.control.stopped() {
                return Ok(Left::Stopped);
            }
            if beaten.elapsed() >= BEAT_EVERY {
                beaten = Instant::now();
                if !self.beat()? {
                    return Ok(Left::Gone);
                }
            }
            if !acked {
                // SYNC: acquire; pairs with the device's release of acked_epoch: both of its counts
                // began at 0 before it.
                acked = self.device_word(offset_of!(DeviceLine, acked_epoch))? == epoch;
                if !acked {
                    std::thread::sleep(MIN_NAP);
                    continue;
                }
                self.control.counters.joins.add(1);
                tracing::info!(epoch, "fetch plane: joined a device");
            }
            match self.read_commands()? {
                None => return Ok(Left::Faulty),
                Some(0) => nap = self.rest(nap)?,
                Some(_) => nap = MIN_NAP,
            }
        }
    }

    /// A new life: counts at 0 first, then the epoch, which the device answers.
    fn begin(&self) -> Result<u32, TransportError> {
        let at = |field| self.session.region().layout().plane_at(field);
        let transport = self.session.region().transport();
        transport.put_u32(at(offset_of!(PlaneLine, waiting)), 0)?;
        transport.put_u32(at(offset_of!(PlaneLine, commands_read)), 0)?;
        transport.put_u32(at(offset_of!(PlaneLine, completions_written)), 0)?;
        transport.put_u32(at(offset_of!(PlaneLine, pid)), std::process::id())?;
        transport.put_u32(at(offset_of!(PlaneLine, breaker)), self.breaker())?;
        transport.put_u32(at(offset_of!(PlaneLine, stores)), self.control.config.stores.into())?;
        let before = transport.get_u32(at(offset_of!(PlaneLine, epoch)))?;
        let epoch = before.wrapping_add(1).max(1);
        // SYNC: release; pairs with the device's acquire of epoch: it sees the counts at 0.
        transport.put_u32(at(offset_of!(PlaneLine, epoch)), epoch)?;
        Ok(epoch)
    }

    /// Heartbeat and state of the store. False: the device is gone, or another one is here.
    fn beat(&self) -> Result<bool, FetchError> {
        if !self.engine.is_whole() {
            return Err(FetchError::Worker);
        }
        let (layout, transport) =
            (self.session.region().layout(), self.session.region().transport());
        let at = layout.plane_at(offset_of!(PlaneLine, heartbeat));
        transport.put_u64(at, transport.get_u64(at)?.wrapping_add(1))?;
        self.tell_breaker()?;
        if self.breaker() == breaker_word(BreakerState::Open) {
            self.spawn(self.control.errands.clone().try_store_again());
        }
        // SYNC: acquire; pairs with the device's release of closed.
        let closed = self.device_word(offset_of!(DeviceLine, closed))? != 0;
        Ok(self.hold.holds() && !closed)
    }

    fn breaker(&self) -> u32 {
        breaker_word(self.control.errands.remote().breaker())
    }

    fn tell_breaker(&self) -> Result<(), TransportError> {
        let (layout, transport) =
            (self.session.region().layout(), self.session.region().transport());
        let at = layout.plane_at(offset_of!(PlaneLine, breaker));
        let (before, now) = (transport.get_u32(at)?, self.breaker());
        self.control.counters.breaker.set(now as usize);
        if before != now {
            let state = self.control.errands.remote().breaker();
            tracing::warn!(?state, "fetch plane: the breaker of the store has changed");
            transport.put_u32(at, now)?;
        }
        Ok(())
    }

    /// Reads what there is and what there is room for; how many, or none if the device's count is
    /// impossible.
    fn read_commands(&mut self) -> Result<Option<u32>, TransportError> {
        // SYNC: acquire; pairs with the device's release of commands_written: it sees the commands
        // that are counted, and their rows and frames.
        let written = self.device_word(offset_of!(DeviceLine, commands_written))?;
        let waiting = written.wrapping_sub(self.read);
        if waiting > self.session.region().layout().queue_len() {
            return Ok(None);
        }
        let mut taken = 0;
        self.session.flush();
        while taken < waiting && self.read_one()? {
            taken += 1;
        }
        Ok(Some(taken))
    }

    /// False: it must wait for room among the completions.
    fn read_one(&mut self) -> Result<bool, TransportError> {
        let (layout, transport) =
            (self.session.region().layout(), self.session.region().transport());
        let mut command = Command::zeroed();
        transport.get(layout.command_at(self.read), bytemuck::bytes_of_mut(&mut command))?;
        if command.op != SAC_FETCH_CANCEL && !self.session.has_room() {
            return Ok(false);
        }
        self.read = self.read.wrapping_add(1);
        // SYNC: release; pairs with the device's acquire of commands_read: the command was copied.
        transport.put_u32(layout.plane_at(offset_of!(PlaneLine, commands_read)), self.read)?;
        self.carry_out(&command)?;
        Ok(true)
    }

    fn carry_out(&mut self, command: &Command) -> Result<(), TransportError> {
        let Some(request) = Request::check(self.session.region().layout(), command) else {
            self.session.refuse(command);
            return Ok(());
        };
        if let Request::Cancel { target } = request {
            self.session.cancel(target);
            return Ok(());
        }
        let budget = Duration::from_micros(command.budget_us.into());
        let budget = budget.min(self.control.config.max_budget);
        let Some(ticket) = self.session.accept(command, &request, budget) else { return Ok(()) };
        match request {
            Request::Lookup { row } => self.look_up(ticket, row, command.salt),
            Request::Load { row, chunk, frame } => {
                let errand = self.errand(ticket, row, command.salt, chunk, frame)?;
                let task = self.control.errands.clone().load(errand, self.engine.clone());
                self.spawn(task);
                Ok(())
            }
            Request::Store { row, chunk, frame } => {
                let errand = self.errand(ticket, row, command.salt, chunk, frame)?;
                let task = self.control.errands.clone().store(errand, self.engine.clone());
                self.spawn(task);
                Ok(())
            }
            Request::Cancel { .. } => Ok(()),
        }
    }

    fn look_up(&mut self, ticket: Ticket, row: Row, salt: u64) -> Result<(), TransportError> {
        let (region, model) = (ticket.region(), ticket.region().layout().model_id());
        let names = self.names.of(region, row.entry, salt, row.num_chunks as usize)?;
        let keys = names.iter().map(|name| Key { model, salt, name: *name }).collect();
        let task = self.control.errands.clone().look_up(ticket, keys);
        self.spawn(task);
        Ok(())
    }

    fn errand(
        &mut self,
        ticket: Ticket,
        row: Row,
        salt: u64,
        chunk: u32,
        frame: u32,
    ) -> Result<Errand, TransportError> {
        let layout = *ticket.region().layout();
        let names = self.names.of(ticket.region(), row.entry, salt, chunk as usize + 1)?;
        let (model, name) = (layout.model_id(), names[chunk as usize]);
        let value = Value {
            model,
            name,
            first_token: chunk * CHUNK_TOKENS as u32,
            geometry: layout.geometry(),
        };
        Ok(Errand { ticket, key: Key { model, salt, name }, value, frame })
    }

    fn spawn(&self, task: impl Future<Output = ()> + Send + 'static) {
        if let Some(runtime) = &self.control.runtime {
            runtime.spawn(task);
        }
    }

    /// Waits for commands, not for long; the next nap.
    fn rest(&self, nap: Duration) -> Result<Duration, TransportError> {
        let written = offset_of!(DeviceLine, commands_written);
        if !self.session.flush() || !self.session.has_room() {
            std::thread::sleep(MIN_NAP);
            return Ok(MIN_NAP);
        }
        let remote = self.session.region().transport().is_remote();
        if self.control.config.num_cores() > 1 && !remote {
            for _ in 0..SPINS {
                if self.device_word(written)? != self.read {
                    return Ok(MIN_NAP);
                }
                spin_loop();
            }
        }
        if remote || !self.session.region().layout().device_wakes() {
            std::thread::sleep(nap);
            return Ok((2 * nap).min(MAX_NAP));
        }
        let (layout, transport) =
            (self.session.region().layout(), self.session.region().transport());
        let waiting = layout.plane_at(offset_of!(PlaneLine, waiting));
        transport.put_u32(waiting, 1)?;
        // SYNC: sequentially consistent; mirrors the device, which counts a command, fences, and
        // looks at `waiting`: either it sees the flag, or this sees the command.
        transport.fence();
        if self.device_word(written)? == self.read {
            transport.wait_word(layout.device_at(written), self.read, MAX_SLEEP)?;
        }
        transport.put_u32(waiting, 0)?;
        Ok(MIN_NAP)
    }

    fn device_word(&self, field: usize) -> Result<u32, TransportError> {
        let region = self.session.region();
        region.transport().get_u32(region.layout().device_at(field))
    }
}
