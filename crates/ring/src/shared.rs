//! What the two halves of a joined frontend share.

use std::mem::offset_of;
use std::ops::Range;

use crate::bits::SlotBits;
use crate::device::{DeviceInfo, Monitor};
use crate::gate::Gate;
use crate::layout::*;
use crate::region::RegionLayout;
use crate::request::Ticket;
use crate::sync::{AtomicU64, Edge, Mutex, MutexGuard, PAYLOAD, lock, order};
use crate::tracker::{Return, STATUS_WORDS, Tracker};
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
    /// The one record is an embedding of this many values; 0: records are tokens.
    pub(crate) embedding_size: u32,
}

/// Local state of one slot. The submitter that has claimed it writes the words of the flight before
/// it announces the arrival; the reader copies them when it collects it.
#[derive(Debug)]
pub(crate) struct Slot {
    pub(crate) gate: Gate,
    /// Ticket and epoch; stride, embedding and logprobs; most records and vocabulary.
    words: [AtomicU64; 3],
}

impl Slot {
    fn new() -> Slot {
        Slot { gate: Gate::new(), words: [(); 3].map(|()| AtomicU64::new(0)) }
    }

    pub(crate) fn put_flight(&self, flight: &Flight) {
        let pair = |high: u32, low: u32| u64::from(high) << 32 | u64::from(low);
        let words = [
            pair(flight.ticket.device_epoch, flight.ticket.ticket),
            pair(flight.stride, flight.embedding_size << 1 | u32::from(flight.logprobs)),
            pair(flight.max_records, flight.vocab_size),
        ];
        // Relaxed: `Shared::arrive` publishes them.
        self.words.iter().zip(words).for_each(|(at, word)| at.store(word, PAYLOAD));
    }

    fn flight(&self, slot: u32, out_ring_words: u32) -> Flight {
        // Relaxed: the arrival was acquired before.
        let [ticket, form, bounds] = self.words.each_ref().map(|word| word.load(PAYLOAD));
        let stride = (form >> 32) as u32;
        Flight {
            ticket: Ticket { slot, ticket: ticket as u32, device_epoch: (ticket >> 32) as u32 },
            stride,
            capacity: out_ring_words / stride,
            max_records: (bounds >> 32) as u32,
            vocab_size: bounds as u32,
            logprobs: form & 1 != 0,
            embedding_size: form as u32 >> 1,
        }
    }
}

/// What the reader gives back and no submitter has taken yet: the bounded way from the one that
/// must not wait to the ones that may. A slot has at most one of each.
#[derive(Debug)]
struct Returns {
    inputs: SlotBits,
    slots: SlotBits,
    drains: SlotBits,
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
    /// Never locked by the reader.
    tracker: Mutex<Tracker>,
    returns: Returns,
    /// By index within `slots`.
    pub(crate) locals: Box<[Slot]>,
    /// Rung, and not yet known to the reader.
    arrivals: SlotBits,
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
        let bits = || SlotBits::new(slots.len());
        Shared {
            transport,
            layout,
            frontend,
            epoch,
            heartbeat: AtomicU64::new(heartbeat),
            tracker: Mutex::new(tracker),
            returns: Returns { inputs: bits(), slots: bits(), drains: bits() },
            locals: slots.clone().map(|_| Slot::new()).collect(),
            arrivals: bits(),
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

    /// The tracker, with everything that was given back; for any thread but the reader's.
    pub(crate) fn tracker(&self) -> MutexGuard<'_, Tracker> {
        let mut tracker = lock(&self.tracker);
        // Slots before inputs: the input of a ticket is given back before its slot, so whatever
        // frees a slot here takes the bit of its input along. Left behind, that bit would free the
        // input of the slot's next ticket.
        self.returns.slots.take(|index| tracker.take_back(Return::Slot { index }));
        self.returns.drains.take(|index| tracker.take_back(Return::Drain { index }));
        self.returns.inputs.take(|index| tracker.take_back(Return::Input { index }));
        tracker
    }

    /// Gives back a slot or its input, without a lock.
    pub(crate) fn give_back(&self, returned: Return) {
        let (bits, index) = match returned {
            Return::Input { index } => (&self.returns.inputs, index),
            Return::Slot { index } => (&self.returns.slots, index),
            Return::Drain { index } => (&self.returns.drains, index),
        };
        // SYNC: release; pairs with the acquire of `SlotBits::take` in `tracker`. What was read of
        // the slot, and every write of its doorbell, comes before the next claim's.
        bits.set(index, order(Edge::Return));
    }

    /// Tells the reader of a rung ticket.
    pub(crate) fn arrive(&self, index: usize) {
        // SYNC: release; pairs with the acquire of `SlotBits::take` in `collect_arrivals`, after
        // which the reader copies the flight.
        self.arrivals.set(index as u32, order(Edge::Arrive));
    }

    /// Calls `collected` for each ticket that was rung since the last call.
    pub(crate) fn collect_arrivals(&self, mut collected: impl FnMut(u32, Flight)) {
        self.arrivals.take(|index| {
            let slot = self.slots.start + index;
            let words = self.layout.out_ring_words();
            collected(index, self.locals[index as usize].flight(slot, words));
        });
    }

    /// True if a ticket was rung that the reader has not collected.
    pub(crate) fn has_arrivals(&self) -> bool {
        self.arrivals.any()
    }

    /// Looks for draining slots that the device shows idle. False while the device has not
    /// acknowledged this life of the frontend: until then it may use no slot.
    pub(crate) fn refresh(&self) -> Result<bool, TransportError> {
        // SYNC: acquire; pairs with the device's release of the ack, after its last status of an
        // older epoch.
        if self.transport.get_u32(self.layout.ack_at(self.frontend))? != self.epoch {
            return Ok(false);
        }
        if self.tracker().num_draining() > 0 {
            let statuses = self.read_statuses()?;
            let still_draining = {
                let mut tracker = self.tracker();
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
            let tracker = self.tracker();
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
        self.transport.get_fields(
            self.layout.status_at(self.slots.start),
            &mut statuses,
            STATUS_HALVES,
        )?;
        Ok(statuses)
    }

    pub(crate) fn kick_device(&self) -> Result<(), TransportError> {
        wake::kick_device(&self.transport, &self.layout)
    }

    /// Rings the doorbell of a slot, which the caller has (see `Gate`), or whose ticket has ended.
    pub(crate) fn ring(&self, ticket: Ticket, cancelled: bool) -> Result<(), TransportError> {
        let cancel = if cancelled { SAC_DOORBELL_CANCEL } else { 0 };
        let doorbell = sac_doorbell(ticket.ticket, cancel);
        // SYNC: release; pairs with the device's acquire of the doorbell, after which it reads the
        // descriptor, the arena extent and the cursor.
        self.transport.put_u32(self.layout.doorbell_at(ticket.slot), doorbell)
    }

    /// Raises this frontend's generation of prefixes, and sees it raised.
    pub(crate) fn reset_prefixes(&self) -> Result<(), TransportError> {
        self.count_up(offset_of!(FrontendLine, prefix_generation))
    }

    /// Raises the number of roofs that this frontend has asked for, and sees it raised.
    pub(crate) fn ask_roof(&self) -> Result<(), TransportError> {
        self.count_up(offset_of!(FrontendLine, roofs_asked))?;
        self.kick_device()
    }

    /// Adds 1 to a count of this frontend's line, and sees it there.
    fn count_up(&self, field: usize) -> Result<(), TransportError> {
        let at = self.layout.frontend_at(self.frontend, field);
        // Held, so that of two calls at once neither is lost.
        let _one_at_a_time = lock(&self.tracker);
        if !self.owns_frontend() {
            return Err(TransportError::Down("another process has joined in its place".into()));
        }
        let next = self.transport.get_u32(at)?.wrapping_add(1);
        // SYNC: release; the device reads a generation of prefixes after its acquire of a later
        // doorbell. Nothing depends on when it sees that a roof is asked for.
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
}

/// The doorbells of `slots`, a multiple of 32, in one transfer.
pub(crate) fn read_doorbells<T: Transport>(
    transport: &T,
    layout: &RegionLayout,
    slots: &Range<u32>,
) -> Result<Vec<u32>, TransportError> {
    let mut words = vec![0u64; slots.len() / 2];
    transport.get_fields(layout.doorbell_at(slots.start), &mut words, DOORBELL_HALVES)?;
    Ok(words.into_iter().flat_map(|pair| [pair as u32, (pair >> 32) as u32]).collect())
}
