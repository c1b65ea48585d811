//! For the supervisor: look at the device line without joining, and write it for a device that
//! died.

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

    /// Says for a device process that has ended that it is gone, so that frontends need not wait
    /// for its heartbeat to be missed. The line has no other writer left when this is called.
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
