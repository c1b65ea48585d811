//! What the two halves of a joined frontend share.

use std::mem::offset_of;
use std::ops::Range;
use std::sync::atomic::Ordering;

use crate::device::{DeviceInfo, Monitor};
use crate::layout::*;
use crate::region::RegionLayout;
use crate::request::Ticket;
use crate::sync::{AtomicU64, Mutex, lock};
use crate::tracker::{STATUS_WORDS, Tracker};
use crate::transport::{Transport, TransportError};
use crate::wake;

/// What the token reader must know about one request to judge what it reads.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Flight {
    pub(crate) ticket: Ticket,
    /// Words of a record.
    pub(crate) stride: u32,
    /// Records that the slot's output ring holds.
    pub(crate) capacity: u32,
    /// More records than this are a violation.
    pub(crate) max_records: u32,
    /// Exclusive bound on token ids.
    pub(crate) vocab_size: u32,
    /// Words carry logprobs.
    pub(crate) logprobs: bool,
}

/// Local state of one slot: whether its doorbell may still be written. Locked only for that write.
#[derive(Debug, Default)]
pub(crate) struct Local {
    /// Present from the claim until the ticket has ended.
    pub(crate) flight: Option<Flight>,
    /// The doorbell was rung with this ticket.
    pub(crate) rung: bool,
    /// A cancel was asked for, rung or not.
    pub(crate) cancelled: bool,
}

#[derive(Debug)]
pub(crate) struct Shared<T: Transport> {
    pub(crate) transport: T,
    pub(crate) layout: RegionLayout,
    pub(crate) frontend: u32,
    epoch: u32,
    pub(crate) heartbeat: AtomicU64,
    /// Slots of this frontend.
    pub(crate) slots: Range<u32>,
    pub(crate) tracker: Mutex<Tracker>,
    /// By index within `slots`.
    pub(crate) locals: Box<[Mutex<Local>]>,
    /// One bit per slot: rung, and not yet known to the reader.
    pub(crate) arrivals: Box<[AtomicU64]>,
    /// One bit per slot: its ticket was cancelled, so the reader delivers nothing more.
    cancelled: Box<[AtomicU64]>,
    monitor: Monitor,
}

impl<T: Transport> Shared<T> {
    #[allow(clippy::too_many_arguments)] // one caller, and every argument is a field
    pub(crate) fn new(
        transport: T,
        layout: RegionLayout,
        frontend: u32,
        epoch: u32,
        heartbeat: u64,
        slots: Range<u32>,
        tracker: Tracker,
        monitor: Monitor,
    ) -> Shared<T> {
        let bits = || (0..slots.len().div_ceil(64)).map(|_| AtomicU64::new(0)).collect();
        Shared {
            transport,
            layout,
            frontend,
            epoch,
            heartbeat: AtomicU64::new(heartbeat),
            tracker: Mutex::new(tracker),
            locals: slots.clone().map(|_| Mutex::new(Local::default())).collect(),
            arrivals: bits(),
            cancelled: bits(),
            slots,
            monitor,
        }
    }

    pub(crate) fn device(&self) -> DeviceInfo {
        self.monitor.observe(&self.transport, &self.layout)
    }

    /// Life of this frontend, from 1.
    pub(crate) fn epoch(&self) -> u32 {
        self.epoch
    }

    /// False once another process has joined with this frontend's index: this one must not write
    /// to the region any more.
    pub(crate) fn owns_frontend(&self) -> bool {
        let at = self.layout.frontend_at(self.frontend, offset_of!(FrontendLine, epoch));
        self.transport.get_u32(at) == Ok(self.epoch)
    }

    /// Looks for draining slots that the device shows idle. False while the device has not
    /// acknowledged this life of the frontend: until then it may use no slot.
    pub(crate) fn refresh(&self) -> Result<bool, TransportError> {
        // SYNC: acquire; pairs with the device's release of the ack, after its last status of an
        // older epoch.
        if self.transport.get_u32(self.layout.ack_at(self.frontend))? != self.epoch {
            return Ok(false);
        }
        if lock(&self.tracker).num_draining() > 0 {
            let statuses = self.read_statuses()?;
            let still_draining = {
                let mut tracker = lock(&self.tracker);
                tracker.refresh(&statuses);
                tracker.num_draining() > 0
            };
            if still_draining && self.transport.loses_puts() {
                self.ring_again()?;
            }
        }
        Ok(true)
    }

    /// Rings, as cancelled, the tickets of draining slots whose doorbell the transport has lost:
    /// the device would never answer them.
    fn ring_again(&self) -> Result<(), TransportError> {
        let doorbells = read_doorbells(&self.transport, &self.layout, &self.slots)?;
        let mut rung = false;
        for (index, &doorbell) in doorbells.iter().enumerate() {
            // Held during the write, so that no other thread claims and rings the slot meanwhile.
            let tracker = lock(&self.tracker);
            let Some(ticket) = tracker.draining_ticket(index) else { continue };
            if ticket == sac_doorbell_ticket(doorbell) || !self.owns_frontend() {
                continue;
            }
            let slot = self.slots.start + index as u32;
            self.ring(Ticket { slot, ticket, device_epoch: 0 }, true)?;
            rung = true;
        }
        if rung { self.kick_device() } else { Ok(()) }
    }

    /// All statuses of this frontend's slots, `STATUS_WORDS` words each.
    pub(crate) fn read_statuses(&self) -> Result<Vec<u64>, TransportError> {
        let mut statuses = vec![0; self.slots.len() * STATUS_WORDS];
        self.transport.get_words(self.layout.status_at(self.slots.start), &mut statuses)?;
        Ok(statuses)
    }

    pub(crate) fn kick_device(&self) -> Result<(), TransportError> {
        wake::kick_device(&self.transport, &self.layout)
    }

    /// Rings the doorbell of a slot; the caller holds the slot's `Local`.
    pub(crate) fn ring(&self, ticket: Ticket, cancelled: bool) -> Result<(), TransportError> {
        let cancel = if cancelled { SAC_DOORBELL_CANCEL } else { 0 };
        let doorbell = sac_doorbell(ticket.ticket, cancel);
        // SYNC: release; pairs with the device's acquire of the doorbell, after which it reads the
        // descriptor, the arena extent and the cursor.
        self.transport.put_u32(self.layout.doorbell_at(ticket.slot), doorbell)
    }

    /// Raises this frontend's generation of prefixes, and sees it raised.
    pub(crate) fn reset_prefixes(&self) -> Result<(), TransportError> {
        let at =
            self.layout.frontend_at(self.frontend, offset_of!(FrontendLine, prefix_generation));
        // Held, so that of two resets at once neither is lost.
        let _one_at_a_time = lock(&self.tracker);
        if !self.owns_frontend() {
            return Err(TransportError::Down("another process has joined in its place".into()));
        }
        let next = self.transport.get_u32(at)?.wrapping_add(1);
        // SYNC: release; the device reads it after its acquire of a later doorbell.
        self.transport.put_u32(at, next)?;
        self.transport.fence();
        match self.transport.get_u32(at)? {
            seen if seen == next => Ok(()),
            _ => Err(TransportError::Down("the connection was lost meanwhile".into())),
        }
    }

    pub(crate) fn index(&self, slot: u32) -> Option<usize> {
        self.slots.contains(&slot).then(|| (slot - self.slots.start) as usize)
    }

    pub(crate) fn set_cancelled(&self, index: usize, cancelled: bool) {
        let bit = 1 << (index % 64);
        // Relaxed: a hint to stop delivering; the ticket's end is decided by the status.
        if cancelled {
            self.cancelled[index / 64].fetch_or(bit, Ordering::Relaxed);
        } else {
            self.cancelled[index / 64].fetch_and(!bit, Ordering::Relaxed);
        }
    }

    pub(crate) fn is_cancelled(&self, index: usize) -> bool {
        self.cancelled[index / 64].load(Ordering::Relaxed) & (1 << (index % 64)) != 0
    }
}

/// The doorbells of `slots`, a multiple of 32, in one transfer.
pub(crate) fn read_doorbells<T: Transport>(
    transport: &T,
    layout: &RegionLayout,
    slots: &Range<u32>,
) -> Result<Vec<u32>, TransportError> {
    let mut words = vec![0u64; slots.len() / 2];
    transport.get_words(layout.doorbell_at(slots.start), &mut words)?;
    Ok(words.into_iter().flat_map(|pair| [pair as u32, (pair >> 32) as u32]).collect())
}
