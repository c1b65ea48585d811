//! For the supervisor: reads the lines of planes without joining, and writes the device's on behalf
//! of a dead device.

use std::mem::offset_of;

use crate::device::{DeviceInfo, Roof};
use crate::layout::{DeviceLine, FrontendLine, SAC_PHASE_ABSENT};
use crate::region::{RegionError, RegionLayout};
use crate::transport::{Transport, TransportError};

/// A frontend line as last read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FrontendLife {
    /// Joins with this index since the region was made; 0: none.
    pub epoch: u32,
    /// Its heartbeat.
    pub heartbeat: u64,
}

/// Reads the lines of planes in a region; owns no slot.
#[derive(Debug, Clone)]
pub struct Observer<T> {
    transport: T,
    layout: RegionLayout,
}

impl<T: Transport> Observer<T> {
    /// Checks the region.
    ///
    /// # Errors
    /// What is wrong with its header.
    pub fn new(transport: T) -> Result<Observer<T>, RegionError> {
        let layout = RegionLayout::read(&transport)?;
        Ok(Observer { transport, layout })
    }

    /// The device line now. Its `alive` is not judged here: the supervisor knows its child.
    ///
    /// # Errors
    /// The region cannot be reached.
    pub fn device(&self) -> Result<DeviceInfo, TransportError> {
        DeviceInfo::read(&self.transport, &self.layout)
    }

    /// The device's roof, if it has measured one.
    ///
    /// # Errors
    /// The region cannot be reached.
    pub fn roof(&self) -> Result<Option<Roof>, TransportError> {
        Roof::read(&self.transport, &self.layout)
    }

    /// The line of a frontend now. `frontend` is below the region's number of frontends.
    ///
    /// # Errors
    /// The region cannot be reached.
    pub fn frontend(&self, frontend: u32) -> Result<FrontendLife, TransportError> {
        let at = |field| self.layout.frontend_at(frontend, field);
        // SYNC: acquire; pairs with the release of the epoch in `announce`. Its first heartbeat is
        // written before it.
        let epoch = self.transport.get_u32(at(offset_of!(FrontendLine, epoch)))?;
        let heartbeat = self.transport.get_u64(at(offset_of!(FrontendLine, heartbeat)))?;
        Ok(FrontendLife { epoch, heartbeat })
    }

    /// Marks a dead device process as absent, so that frontends need not wait for missed
    /// heartbeats. The line must have no other writer left.
    ///
    /// # Errors
    /// The region cannot be reached.
    pub fn mark_absent(&self) -> Result<(), TransportError> {
        let phase = self.layout.device_at(offset_of!(DeviceLine, phase));
        // SYNC: release; pairs with the frontends' acquire of the phase.
        self.transport.put_u32(phase, SAC_PHASE_ABSENT)?;
        self.transport.wake_word(self.layout.device_at(offset_of!(DeviceLine, publish_count)))
    }
}
