//! The fetch plane under supervision. A server without it computes what it would have fetched, so
//! its end never ends the server.

use std::mem::offset_of;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use saccade_fetch::Region;
use saccade_fetch::layout::{DeviceLine, PlaneLine};
use saccade_ring::Transport;

use super::child::Plane;
use super::kept::{Kept, Life, as_long_as};
use super::restarts::Restarts;

/// A plane whose heartbeat has stopped for this long is killed and restarted.
const STALLED_AFTER: Duration = Duration::from_secs(3);

pub(super) struct Fetching {
    /// None: it has been given up, or is on another host.
    plane: Option<Kept>,
    ring: PathBuf,
}

impl Fetching {
    pub fn new(plane: Option<Plane>, ring: &Path, restarts: Restarts) -> Fetching {
        // Until a device serves it, it may wait for as long as it takes.
        let patience = as_long_as(STALLED_AFTER, Duration::MAX);
        let plane = plane.map(|plane| Kept::new(plane, patience, restarts));
        Fetching { plane, ring: ring.into() }
    }

    pub fn plane(&mut self) -> Option<&mut Plane> {
        self.plane.as_mut().map(|kept| &mut kept.plane)
    }

    pub fn describe(&self) -> Option<String> {
        self.plane.as_ref().map(|kept| kept.plane.describe())
    }

    /// Starts it again if it has died, and ends it if it hangs.
    pub fn watch(&mut self) {
        let Some(kept) = &mut self.plane else { return };
        let pid = kept.plane.pid();
        if let Err(error) = kept.tend(Instant::now(), || life(&self.ring, pid)) {
            tracing::error!("the fetch plane is left off, no KV is fetched or stored: {error:#}");
            self.plane = None;
        }
    }
}

impl Drop for Fetching {
    fn drop(&mut self) {
        // Best effort: the device plane may not have made it.
        std::fs::remove_file(&self.ring).ok();
    }
}

/// Process and heartbeat of the plane that has joined; none while no device serves it, or it is
/// another process than `pid`.
fn life(ring: &Path, pid: Option<u32>) -> Option<Life> {
    let region = Region::open(ring).ok()?;
    let (layout, transport) = (region.layout(), region.transport());
    let closed = transport.get_u32(layout.device_at(offset_of!(DeviceLine, closed))).ok()?;
    let joined = transport.get_u32(layout.plane_at(offset_of!(PlaneLine, pid))).ok()?;
    let heartbeat = transport.get_u64(layout.plane_at(offset_of!(PlaneLine, heartbeat))).ok()?;
    let life = Life { epoch: joined, heartbeat, joined: true };
    (closed == 0 && pid == Some(joined)).then_some(life)
}
