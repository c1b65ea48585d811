//! The reading side of the ring of events.

use std::mem::offset_of;
use std::sync::Arc;

use bytemuck::Zeroable;
use saccade_fetch::Region;
use saccade_fetch::layout::{DeviceLine, KvEvent, PlaneLine};
use saccade_ring::{Transport, TransportError};

use crate::adapters::Adapters;
use crate::counters::Counters;
use crate::event::Event;

/// Why events cannot be read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RingError {
    /// The region cannot be reached any more.
    #[error("ring of KV events: {0}")]
    Transport(#[from] TransportError),
}

/// Reads the events of a region. There is one reader of a region at a time: it says how far it has
/// read, and the device writes over what is before that.
#[derive(Debug)]
pub struct Reader {
    region: Region,
    adapters: Adapters,
    counters: Arc<Counters>,
    /// Events that were read.
    read: u64,
    /// Events that the device has lost, as it said last.
    dropped: u64,
    /// A copy of an event and its tokens.
    copy: Vec<u8>,
}

impl Reader {
    /// Goes on where an earlier reader of the region ended. `adapters`: those that events may name.
    ///
    /// # Errors
    /// The region cannot be reached.
    pub fn new(region: Region, adapters: &Adapters) -> Result<Reader, RingError> {
        Reader::counted(region, adapters, Arc::default())
    }

    pub(crate) fn counted(
        region: Region,
        adapters: &Adapters,
        counters: Arc<Counters>,
    ) -> Result<Reader, RingError> {
        let layout = *region.layout();
        let read_at = layout.plane_at(offset_of!(PlaneLine, events_read));
        let read = region.transport().get_u64(read_at)?;
        let dropped_at = layout.device_at(offset_of!(DeviceLine, events_dropped));
        let dropped = region.transport().get_u64(dropped_at)?;
        let copy = vec![0; layout.event_bytes() as usize];
        Ok(Reader { region, adapters: adapters.clone(), counters, read, dropped, copy })
    }

    /// Takes events that there are, at most `limit`, and gives their places back to the device.
    /// Those that make no sense are counted and left out. When the device's count is impossible,
    /// the one event is [`Event::Cleared`]: what was told is void.
    ///
    /// # Errors
    /// The region cannot be reached.
    pub fn take(&mut self, limit: usize) -> Result<Vec<Event>, RingError> {
        let layout = *self.region.layout();
        if layout.num_events() == 0 {
            return Ok(Vec::new());
        }
        // SYNC: acquire; pairs with the device's release of events_written: it sees the events that
        // are counted.
        let written = self.device_word(offset_of!(DeviceLine, events_written))?;
        self.count_dropped()?;
        // Modulo 2^64: a count that ran backwards is far too large here.
        let waiting = written.wrapping_sub(self.read);
        if waiting > u64::from(layout.num_events()) {
            self.counters.resyncs.add(1);
            tracing::warn!(written, read = self.read, "KV events: impossible count; table resent");
            self.release(written)?;
            return Ok(vec![Event::Cleared]);
        }
        let count = waiting.min(limit as u64);
        let mut events = Vec::with_capacity(count as usize);
        for number in self.read..self.read.wrapping_add(count) {
            self.region.transport().get(layout.event_at(number), &mut self.copy)?;
            match self.checked(layout.block_size()) {
                Some(event) => events.push(event),
                None => self.counters.ignored.add(1),
            }
        }
        if count != 0 {
            self.release(self.read.wrapping_add(count))?;
            self.counters.events.add(events.len() as u64);
        }
        Ok(events)
    }

    fn checked(&self, block_size: u32) -> Option<Event> {
        let (head, rest) = self.copy.split_at_checked(size_of::<KvEvent>())?;
        let mut event = KvEvent::zeroed();
        bytemuck::bytes_of_mut(&mut event).copy_from_slice(head);
        Event::check(&event, rest.get(..4 * block_size as usize)?, &self.adapters)
    }

    fn count_dropped(&mut self) -> Result<(), RingError> {
        let dropped = self.device_word(offset_of!(DeviceLine, events_dropped))?;
        if dropped > self.dropped {
            self.counters.dropped_by_device.add(dropped - self.dropped);
        }
        self.dropped = dropped;
        Ok(())
    }

    fn release(&mut self, read: u64) -> Result<(), RingError> {
        self.read = read;
        let at = self.region.layout().plane_at(offset_of!(PlaneLine, events_read));
        // SYNC: release; pairs with the device's acquire of events_read: the copies are done.
        self.region.transport().put_u64(at, read)?;
        Ok(())
    }

    fn device_word(&self, field: usize) -> Result<u64, RingError> {
        Ok(self.region.transport().get_u64(self.region.layout().device_at(field))?)
    }

    /// Whether the device has said that it ends.
    pub(crate) fn has_closed(&self) -> bool {
        let at = self.region.layout().device_at(offset_of!(DeviceLine, closed));
        // SYNC: acquire; pairs with the device's release of closed.
        self.region.transport().get_u32(at).is_ok_and(|closed| closed != 0)
    }

    /// Tokens of a block.
    pub fn block_size(&self) -> u32 {
        self.region.layout().block_size()
    }
}
