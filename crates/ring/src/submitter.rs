//! The sending half of a joined frontend: submissions and cancels, from any thread.

use crate::device::{DeviceInfo, Roof};
use crate::gate::Cancel;
use crate::layout::*;
use crate::request::{Submission, SubmitError, Ticket};
use crate::shared::{Flight, Shared};
use crate::sync::Arc;
use crate::tracker::{Claim, Full, Return};
use crate::transport::{Transport, TransportError};

/// Submits and cancels requests. Clones share one frontend.
#[derive(Debug)]
pub struct Submitter<T: Transport> {
    shared: Arc<Shared<T>>,
}

impl<T: Transport> Clone for Submitter<T> {
    fn clone(&self) -> Submitter<T> {
        Submitter { shared: Arc::clone(&self.shared) }
    }
}

impl<T: Transport> Submitter<T> {
    pub(crate) fn new(shared: Arc<Shared<T>>) -> Submitter<T> {
        Submitter { shared }
    }

    /// Hands one request to the device. The reader may deliver records of the ticket before this
    /// returns: use [`try_submit_with`](Self::try_submit_with) to be prepared for that.
    ///
    /// # Errors
    /// See [`SubmitError`]; nothing is left behind.
    pub fn try_submit(&self, submission: &Submission<'_>) -> Result<Ticket, SubmitError> {
        self.try_submit_with(submission, |_| ())
    }

    /// Like [`try_submit`](Self::try_submit), and calls `announce` with the ticket before the
    /// device (and so the reader) can know it. If the region is lost right after that, the call
    /// still fails, and the announced ticket never reaches the reader.
    ///
    /// # Errors
    /// See [`SubmitError`]; nothing is left behind.
    pub fn try_submit_with(
        &self,
        submission: &Submission<'_>,
        announce: impl FnOnce(Ticket),
    ) -> Result<Ticket, SubmitError> {
        let device = self.device();
        if !device.ready() || !self.shared.owns_frontend() {
            return Err(SubmitError::DeviceNotReady);
        }
        submission.validate(&device).map_err(SubmitError::Invalid)?;
        let claim = self.claim(submission.extent_bytes())?;
        let slot = self.shared.slots.start + claim.index as u32;
        let ticket = Ticket { slot, ticket: claim.ticket, device_epoch: device.epoch };
        self.write_request(submission, &claim, ticket)
            .and_then(|()| self.ring(submission, &claim, ticket, device.vocab_size, announce))
            .map_err(|_| {
                self.abandon(&claim);
                SubmitError::DeviceNotReady
            })?;
        Ok(ticket)
    }

    /// Takes a slot, after a look at the region if the cache has none.
    fn claim(&self, input_bytes: u64) -> Result<Claim, SubmitError> {
        let first = self.shared.tracker().claim(input_bytes);
        match first {
            Ok(claim) => Ok(claim),
            Err(full) => match self.shared.refresh() {
                Ok(true) => self.shared.tracker().claim(input_bytes).map_err(|full| match full {
                    Full::Slots => SubmitError::SlotsFull,
                    Full::Arena => SubmitError::ArenaFull,
                }),
                // Not acknowledged yet: a slot can only be missing because none is ours.
                Ok(false) if full == Full::Slots => Err(SubmitError::DeviceNotReady),
                Ok(false) => Err(SubmitError::ArenaFull),
                Err(_) => Err(SubmitError::DeviceNotReady),
            },
        }
    }

    /// Puts input, descriptor and cursor; none of it means anything before the doorbell.
    fn write_request(
        &self,
        submission: &Submission<'_>,
        claim: &Claim,
        ticket: Ticket,
    ) -> Result<(), TransportError> {
        let (t, layout) = (&self.shared.transport, &self.shared.layout);
        let mut at = layout.arena_at(claim.extent.at);
        t.put(at, bytemuck::cast_slice(submission.prompt))?;
        at += 4 * submission.prompt.len() as u64;
        for &(token, bias) in submission.logit_bias {
            let pair = u64::from(bias.to_bits()) << 32 | u64::from(token);
            t.put(at, &pair.to_le_bytes())?;
            at += 8;
        }
        t.put(at, bytemuck::cast_slice(submission.stop_ids))?;
        at += 4 * submission.stop_ids.len() as u64;
        t.put(at, bytemuck::cast_slice(submission.grammar))?;
        let descriptor =
            submission.descriptor(claim.sequence, claim.extent.at, ticket.device_epoch);
        t.put(layout.descriptor_at(ticket.slot), bytemuck::bytes_of(&descriptor))?;
        t.put_u32(layout.cursor_at(ticket.slot), 0)
    }

    /// Announces the ticket, rings it, and tells the reader.
    fn ring(
        &self,
        submission: &Submission<'_>,
        claim: &Claim,
        ticket: Ticket,
        vocab_size: u32,
        announce: impl FnOnce(Ticket),
    ) -> Result<(), TransportError> {
        let shared = &self.shared;
        let flags = submission.params.flags();
        let stride = submission.params.stride();
        let flight = Flight {
            ticket,
            stride,
            capacity: shared.layout.out_ring_words() / stride,
            max_records: submission.max_records(),
            vocab_size,
            logprobs: flags & (SAC_REQ_LOGPROBS | SAC_REQ_PROMPT_LOGPROBS) != 0,
            embedding_size: submission.params.embedding_size,
        };
        let slot = &shared.locals[claim.index];
        slot.put_flight(&flight);
        slot.gate.open(ticket.ticket);
        announce(ticket);
        // A cancel may have arrived since then; it travels with the ring itself.
        let cancelled = slot.gate.is_cancelled();
        shared.ring(ticket, cancelled)?;
        if !slot.gate.rung(ticket.ticket, cancelled) {
            // It came after the look. An unreachable region ends the ticket as lost.
            let _ = shared.ring(ticket, true);
            slot.gate.leave();
        }
        shared.arrive(claim.index);
        // If the wake-up fails, the device is unreachable, and the reader finds out.
        let _ = shared.kick_device();
        Ok(())
    }

    /// Gives back a claim whose doorbell could not be rung. The transport may have failed on either
    /// side of the store, so the slot stays reserved until the device answers this ticket, or until
    /// the next join reads the doorbell.
    fn abandon(&self, claim: &Claim) {
        self.shared.locals[claim.index].gate.abandon();
        let index = claim.index as u32;
        self.shared.tracker().take_back(Return::Drain { index });
    }

    /// Asks the device to end a request. The reader delivers no further record of it, and ends it
    /// with [`Finish::Cancelled`](crate::Finish::Cancelled) or whatever came first. Does nothing
    /// for a ticket that has ended.
    pub fn cancel(&self, ticket: Ticket) {
        let Some(index) = self.shared.index(ticket.slot) else { return };
        let gate = &self.shared.locals[index].gate;
        match gate.cancel(ticket.ticket) {
            Cancel::Nothing => return,
            Cancel::Carried => {}
            Cancel::Write => {
                if self.shared.owns_frontend() {
                    // An unreachable region ends the ticket as lost, so errors need no handling.
                    let _ = self.shared.ring(ticket, true);
                }
                if let Some(drains) = gate.leave() {
                    let index = index as u32;
                    let slot = Return::Slot { index };
                    let returned = if drains { Return::Drain { index } } else { slot };
                    self.shared.give_back(returned);
                }
            }
        }
        let _ = self.shared.kick_device();
    }

    /// No request that is submitted after this, by any frontend, finds KV that was computed for one
    /// before. Requests in flight go on.
    ///
    /// # Errors
    /// When the region cannot be reached, or is another process's by now; then nothing is certain.
    pub fn reset_prefixes(&self) -> Result<(), TransportError> {
        self.shared.reset_prefixes()
    }

    /// Asks the device to measure its roof again, once it has nothing else to do: the generation of
    /// [`Submitter::roof`] then moves.
    ///
    /// # Errors
    /// When the region cannot be reached, or is another process's by now; then nothing is certain.
    pub fn ask_roof(&self) -> Result<(), TransportError> {
        self.shared.ask_roof()
    }

    /// What memory and arithmetic allow the device's steps, as last measured. `None` while the
    /// region cannot be reached, and for devices that do not measure it.
    #[must_use]
    pub fn roof(&self) -> Option<Roof> {
        Roof::read(&self.shared.transport, &self.shared.layout).ok().flatten()
    }

    /// The device as it is now.
    #[must_use]
    pub fn device(&self) -> DeviceInfo {
        self.shared.device()
    }

    /// Moves this frontend's heartbeat, and returns the device as it is now. Call it at least every
    /// [`SAC_FRONTEND_HEARTBEAT_MS`].
    pub fn heartbeat(&self) -> DeviceInfo {
        self.shared.beat()
    }

    /// The device's counters; zeros while the region cannot be reached.
    #[must_use]
    pub fn stats(&self) -> DeviceStats {
        let mut words = [0u64; size_of::<DeviceStats>() / 8];
        let read = self.shared.transport.get_fields(
            self.shared.layout.stats_at(),
            &mut words,
            STATS_HALVES,
        );
        if read.is_err() {
            words.fill(0);
        }
        bytemuck::cast(words)
    }

    /// The device's counters of its traffic with the fetch plane; zeros while the region cannot be
    /// reached.
    #[must_use]
    pub fn fetch_stats(&self) -> FetchStats {
        let mut words = [0u64; size_of::<FetchStats>() / 8];
        let read = self.shared.transport.get_fields(
            self.shared.layout.fetch_stats_at(),
            &mut words,
            FETCH_STATS_HALVES,
        );
        if read.is_err() {
            words.fill(0);
        }
        bytemuck::cast(words)
    }

    /// Life of this frontend: the number of joins with its index since the region was made.
    #[must_use]
    pub fn frontend_epoch(&self) -> u32 {
        self.shared.epoch()
    }

    /// Times that the device gave this frontend's requests up because its heartbeat stood still,
    /// since the region was made; 0 while the region cannot be reached.
    #[must_use]
    pub fn times_given_up(&self) -> u32 {
        let at = self.shared.layout.ack_at(self.shared.frontend);
        let lost = at + std::mem::offset_of!(FrontendAck, lost) as u64;
        self.shared.transport.get_u32(lost).unwrap_or(0)
    }

    /// Slots that a submission could take now.
    #[must_use]
    pub fn free_slots(&self) -> usize {
        // When the region cannot be reached the cache still answers.
        let _ = self.shared.refresh();
        self.shared.tracker().num_free()
    }

    /// Slots of this frontend.
    #[must_use]
    pub fn num_slots(&self) -> usize {
        self.shared.slots.len()
    }

    /// Bytes of this frontend's input arena: what waits at one time takes at most these.
    #[must_use]
    pub fn arena_bytes(&self) -> u64 {
        self.shared.tracker().arena_bytes()
    }

    /// Bytes of this frontend's input arena that no waiting request holds.
    #[must_use]
    pub fn free_arena_bytes(&self) -> u64 {
        self.shared.tracker().free_arena_bytes()
    }

    /// How many slots of this frontend are in each state, by `SAC_STATE_*`. A slot that was rung
    /// and not yet seen by the device counts as pending; a state that does not exist is not
    /// counted.
    #[must_use]
    pub fn slot_states(&self) -> [usize; NUM_STATES] {
        let mut counts = [0; NUM_STATES];
        let Ok(statuses) = self.shared.read_statuses() else { return counts };
        let tracker = self.shared.tracker();
        for (status, ticket) in statuses.chunks_exact(2).zip(tracker.tickets()) {
            let seen = sac_status_ticket(status[0]) == ticket;
            let state = if seen { sac_status_state(status[0]) } else { SAC_STATE_PREFILL_PENDING };
            if let Some(count) = counts.get_mut(state as usize) {
                *count += 1;
            }
        }
        counts
    }
}
