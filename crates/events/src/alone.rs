//! The fetch plane's part in a region when there is no store: it joins, so that the device
//! resends its table, and keeps the heartbeat. No command comes: such a region has no frames.

use std::mem::offset_of;
use std::time::{Duration, Instant};

use saccade_fetch::Region;
use saccade_fetch::layout::{PlaneLine, SAC_FETCH_HEARTBEAT_MS};
use saccade_ring::{Transport, TransportError};

const BEAT_EVERY: Duration = Duration::from_millis(SAC_FETCH_HEARTBEAT_MS as u64 / 4);

pub(crate) struct Alone {
    region: Region,
    heartbeat: u64,
    beaten: Instant,
}

impl Alone {
    /// A new life of the plane.
    pub(crate) fn join(region: Region) -> Result<Alone, TransportError> {
        let at = |field| region.layout().plane_at(field);
        let transport = region.transport();
        for field in [
            offset_of!(PlaneLine, waiting),
            offset_of!(PlaneLine, commands_read),
            offset_of!(PlaneLine, completions_written),
            offset_of!(PlaneLine, breaker),
            offset_of!(PlaneLine, stores),
        ] {
            transport.put_u32(at(field), 0)?;
        }
        transport.put_u32(at(offset_of!(PlaneLine, pid)), std::process::id())?;
        let heartbeat = transport.get_u64(at(offset_of!(PlaneLine, heartbeat)))?;
        let before = transport.get_u32(at(offset_of!(PlaneLine, epoch)))?;
        // SYNC: release; pairs with the device's acquire of epoch: it sees the counts at 0.
        transport.put_u32(at(offset_of!(PlaneLine, epoch)), before.wrapping_add(1).max(1))?;
        Ok(Alone { region, heartbeat, beaten: Instant::now() })
    }

    /// Moves the heartbeat when it is time; to be called every few milliseconds.
    pub(crate) fn beat(&mut self) -> Result<(), TransportError> {
        if self.beaten.elapsed() < BEAT_EVERY {
            return Ok(());
        }
        self.beaten = Instant::now();
        self.heartbeat = self.heartbeat.wrapping_add(1);
        let at = self.region.layout().plane_at(offset_of!(PlaneLine, heartbeat));
        self.region.transport().put_u64(at, self.heartbeat)
    }
}
