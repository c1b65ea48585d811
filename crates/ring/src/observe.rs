//! For the supervisor: reads the device line without joining, and writes it on behalf of a dead
//! device.

use std::mem::offset_of;

use crate::device::DeviceInfo;
use crate::layout::{DeviceLine, SAC_PHASE_ABSENT};
use crate::region::{RegionError, RegionLayout};
use crate::transport::{Transport, TransportError};

/// Reads the device line of a region; owns no slot.
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
