//! The fetch plane under supervision. A server without it computes what it would have fetched, so
//! its end never ends the server.

use std::mem::offset_of;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use saccade_fetch::Region;
use saccade_fetch::layout::{DeviceLine, PlaneLine};
use saccade_ring::Transport;

use super::RESTART_WINDOW;
use super::child::{Exit, Plane};

/// Between looks at the heartbeat.
const LOOK_EVERY: Duration = Duration::from_millis(250);
/// A plane whose heartbeat has stood still for so long is ended, and started anew.
const STALLED_AFTER: Duration = Duration::from_secs(3);

pub(super) struct Fetching {
    /// None: it has been given up, or is on another host.
    plane: Option<Plane>,
    ring: PathBuf,
    restarts: Vec<Instant>,
    max_restarts: usize,
    looked: Instant,
    /// Process, heartbeat, and when it moved.
    beat: (u32, u64, Instant),
}

impl Fetching {
    pub fn new(plane: Option<Plane>, ring: &Path, max_restarts: usize) -> Fetching {
        let now = Instant::now();
        Fetching {
            plane,
            ring: ring.into(),
            restarts: Vec::new(),
            max_restarts,
            looked: now,
            beat: (0, 0, now),
        }
    }

    pub fn plane(&mut self) -> Option<&mut Plane> {
        self.plane.as_mut()
    }

    pub fn describe(&self) -> Option<String> {
        self.plane.as_ref().map(Plane::describe)
    }

    /// Starts it again if it has died, and ends it if it hangs.
    pub fn watch(&mut self) {
        let Some(plane) = &mut self.plane else { return };
        match plane.exited() {
            Ok(None) => self.look(),
            Ok(Some(exit)) => self.revive(&exit),
            Err(error) => tracing::error!("{error:#}"),
        }
    }

    fn revive(&mut self, exit: &Exit) {
        let now = Instant::now();
        self.restarts.retain(|at| now - *at < RESTART_WINDOW);
        self.restarts.push(now);
        let hopeless = matches!(exit, Exit::Config(_)) || self.restarts.len() > self.max_restarts;
        let started = match &mut self.plane {
            Some(plane) if !hopeless => plane.spawn(),
            _ => {
                tracing::error!(%exit, "the fetch plane is left off: no KV is fetched or stored");
                self.plane = None;
                return;
            }
        };
        match started {
            Ok(()) => tracing::warn!(%exit, "the fetch plane died; started again"),
            Err(error) => {
                tracing::error!("the fetch plane is left off: {error:#}");
                self.plane = None;
            }
        }
    }

    /// Compares the heartbeat with the last one.
    fn look(&mut self) {
        if self.looked.elapsed() < LOOK_EVERY {
            return;
        }
        self.looked = Instant::now();
        let Some(plane) = &self.plane else { return };
        let Some((pid, heartbeat)) = heartbeat(&self.ring) else { return };
        if (pid, heartbeat) != (self.beat.0, self.beat.1) {
            self.beat = (pid, heartbeat, Instant::now());
        } else if plane.pid() == Some(pid) && self.beat.2.elapsed() >= STALLED_AFTER {
            tracing::warn!(pid, "the fetch plane hangs; ending it");
            plane.end_at_once();
        }
    }
}

impl Drop for Fetching {
    fn drop(&mut self) {
        // Best effort: the device plane may not have made it.
        std::fs::remove_file(&self.ring).ok();
    }
}

/// Process and heartbeat of the plane that has joined; none while no device serves it.
fn heartbeat(ring: &Path) -> Option<(u32, u64)> {
    let region = Region::open(ring).ok()?;
    let (layout, transport) = (region.layout(), region.transport());
    let closed = transport.get_u32(layout.device_at(offset_of!(DeviceLine, closed))).ok()?;
    let pid = transport.get_u32(layout.plane_at(offset_of!(PlaneLine, pid))).ok()?;
    let heartbeat = transport.get_u64(layout.plane_at(offset_of!(PlaneLine, heartbeat))).ok()?;
    (closed == 0).then_some((pid, heartbeat))
}
