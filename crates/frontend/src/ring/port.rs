//! The submitting half of the ring behind one object-safe trait, so that nothing above has to name
//! the transport.

use saccade_ring::{
    DeviceInfo, DeviceStats, FetchStats, Roof, Submission, SubmitError, Submitter, Ticket,
    Transport, TransportError,
};

/// What the frontend asks of the ring from any thread.
pub trait DevicePort: Send + Sync {
    /// Hands a request to the device; `announce` is called with its ticket before the token reader
    /// can see it.
    fn submit(
        &self,
        submission: &Submission<'_>,
        announce: &mut dyn FnMut(Ticket),
    ) -> Result<Ticket, SubmitError>;
    /// Asks the device to end a request.
    fn cancel(&self, ticket: Ticket);
    /// No request submitted after this finds KV of one before.
    fn reset_prefixes(&self) -> Result<(), TransportError>;
    /// Asks the device to measure its roof again, once it is idle.
    fn ask_roof(&self) -> Result<(), TransportError>;
    /// What it last measured; `None` for devices that do not.
    fn roof(&self) -> Option<Roof>;
    /// The device as it is now.
    fn device(&self) -> DeviceInfo;
    /// Moves this frontend's heartbeat.
    fn heartbeat(&self) -> DeviceInfo;
    /// The device's counters.
    fn stats(&self) -> DeviceStats;
    /// Its counters of the traffic with the fetch plane.
    fn fetch_stats(&self) -> FetchStats;
    /// Life of this frontend.
    fn frontend_epoch(&self) -> u32;
    /// Times that the device gave this frontend's requests up, because its heartbeat stood still.
    fn times_given_up(&self) -> u32;
    /// Slots that a submission could take now.
    fn free_slots(&self) -> usize;
    /// Slots of this frontend.
    fn num_slots(&self) -> usize;
    /// Bytes for the prompts that wait at one time.
    fn arena_bytes(&self) -> u64;
    /// Slots of this frontend by `SAC_STATE_*`.
    fn slot_states(&self) -> Vec<usize>;
}

impl<T: Transport + 'static> DevicePort for Submitter<T> {
    fn submit(
        &self,
        submission: &Submission<'_>,
        announce: &mut dyn FnMut(Ticket),
    ) -> Result<Ticket, SubmitError> {
        self.try_submit_with(submission, announce)
    }
    fn cancel(&self, ticket: Ticket) {
        Submitter::cancel(self, ticket);
    }
    fn reset_prefixes(&self) -> Result<(), TransportError> {
        Submitter::reset_prefixes(self)
    }
    fn ask_roof(&self) -> Result<(), TransportError> {
        Submitter::ask_roof(self)
    }
    fn roof(&self) -> Option<Roof> {
        Submitter::roof(self)
    }
    fn device(&self) -> DeviceInfo {
        Submitter::device(self)
    }
    fn heartbeat(&self) -> DeviceInfo {
        Submitter::heartbeat(self)
    }
    fn stats(&self) -> DeviceStats {
        Submitter::stats(self)
    }
    fn fetch_stats(&self) -> FetchStats {
        Submitter::fetch_stats(self)
    }
    fn frontend_epoch(&self) -> u32 {
        Submitter::frontend_epoch(self)
    }
    fn times_given_up(&self) -> u32 {
        Submitter::times_given_up(self)
    }
    fn free_slots(&self) -> usize {
        Submitter::free_slots(self)
    }
    fn num_slots(&self) -> usize {
        Submitter::num_slots(self)
    }
    fn arena_bytes(&self) -> u64 {
        Submitter::arena_bytes(self)
    }
    fn slot_states(&self) -> Vec<usize> {
        Submitter::slot_states(self).to_vec()
    }
}
