//! A device that writes statuses and records at random. (`fuzz/` looks longer and wider.)

mod common;

use std::collections::HashMap;
use std::mem::offset_of;

use common::{Ask, PATIENT, VOCAB, small_ring};
use proptest::prelude::*;
use saccade_ring::layout::{
    DeviceLine, RegionHeader, SAC_PHASE_ABSENT, SAC_STATE_DECODE_COMPLETED,
    SAC_STATE_DECODE_PROCESSING, sac_status_word,
};
use saccade_ring::{
    Finish, FrontendRing, InProcTransport, Record, Sink, SubmitError, Ticket, Transport,
};

/// Bounds what comes, and counts ends.
#[derive(Debug, Default)]
struct Bounds {
    records: HashMap<Ticket, u32>,
    ends: HashMap<Ticket, u32>,
    room: usize,
}

impl Sink for Bounds {
    fn room(&mut self, _: Ticket) -> usize {
        self.room
    }
    fn record(&mut self, ticket: Ticket, record: Record<'_>) {
        assert!(!self.ends.contains_key(&ticket) && record.token < VOCAB);
        *self.records.entry(ticket).or_default() += 1;
    }
    fn finished(&mut self, ticket: Ticket, _: Finish, _: u32) {
        *self.ends.entry(ticket).or_default() += 1;
    }
    fn lost(&mut self, ticket: Ticket) {
        *self.ends.entry(ticket).or_default() += 1;
    }
}

fn header(transport: &InProcTransport) -> RegionHeader {
    let mut header: RegionHeader = bytemuck::Zeroable::zeroed();
    transport.get(0, bytemuck::bytes_of_mut(&mut header)).expect("in bounds");
    header
}

/// A status that is plausible in most of its parts: ticket 0..3, any state and finish, any count.
fn status() -> impl Strategy<Value = u64> {
    let count = prop_oneof![4 => 0u32..70, 1 => any::<u32>()];
    let ticket = prop_oneof![6 => Just(1u32), 1 => 0u32..4, 1 => any::<u32>()];
    (ticket, 0u32..16, 0u32..16, count).prop_map(|(t, s, f, c)| sac_status_word(t, s, f, c))
}

/// The first word of a record: mostly a token that exists.
fn word() -> impl Strategy<Value = u64> {
    prop_oneof![9 => 0..u64::from(VOCAB), 1 => any::<u64>()]
}

proptest! {
    #[test]
    fn no_device_can_break_the_reader(
        writes in prop::collection::vec((0u32..4, status(), any::<bool>(), 0usize..9), 1..60),
        records in prop::collection::vec(word(), 64),
    ) {
        let (transport, mut device, ring) = small_ring();
        let (submitter, mut reader) = ring.split();
        let mut bounds = Bounds::default();
        let ask = Ask::new(vec![1, 2], 60);
        let tickets: Vec<Ticket> =
            (0..4).map(|_| submitter.try_submit(&ask.submission()).expect("ready")).collect();
        let h = header(&transport);
        for slot in 0..4 {
            transport
                .put(h.out_ring_offset + slot * 64 * 8, bytemuck::cast_slice(&records))
                .expect("in bounds");
        }
        for (slot, word, poll, room) in writes {
            transport.put_u64(h.status_offset + u64::from(slot) * 16, word).expect("in bounds");
            bounds.room = room;
            if poll {
                reader.poll(&mut bounds);
            }
        }
        device.put_phase(SAC_PHASE_ABSENT).expect("in process");
        bounds.room = usize::MAX;
        prop_assert_eq!(reader.poll(&mut bounds).in_flight, 0);
        for ticket in tickets {
            prop_assert_eq!(bounds.ends.get(&ticket), Some(&1));
            prop_assert!(bounds.records.get(&ticket).is_none_or(|&records| records <= 60));
        }
    }
}

/// A violation ends only the ticket that it concerns, is counted, and takes the slot out of use
/// until the device shows it idle.
#[test]
fn a_violation_is_counted_and_contained() {
    let (transport, mut device, ring) = small_ring();
    let (submitter, mut reader) = ring.split();
    let mut bounds = Bounds { room: usize::MAX, ..Bounds::default() };
    let ask = Ask::new(vec![1], 6);
    let good = submitter.try_submit(&ask.submission()).expect("ready");
    let bad = submitter.try_submit(&ask.submission()).expect("ready");
    let h = header(&transport);
    let status = h.status_offset + u64::from(bad.slot) * 16;
    // One record, with a token id that does not exist.
    let ring_at = h.out_ring_offset + u64::from(bad.slot) * 64 * 8;
    transport.put_u64(ring_at, u64::from(VOCAB)).expect("in bounds");
    let word = sac_status_word(bad.ticket, SAC_STATE_DECODE_PROCESSING, 0, 1);
    transport.put_u64(status, word).expect("in bounds");
    assert_eq!(reader.poll(&mut bounds).lost, 1);
    assert_eq!((reader.violations(), bounds.ends.get(&bad)), (1, Some(&1)));
    reader.wait(std::time::Duration::ZERO);
    assert_eq!(submitter.free_slots(), 30, "the slot is not to be reused yet");
    let word = sac_status_word(bad.ticket, SAC_STATE_DECODE_COMPLETED, 3, 1);
    transport.put_u64(status, word).expect("in bounds");
    assert_eq!(submitter.free_slots(), 31);
    (0..3).for_each(|_| device.tick().expect("in process"));
    assert_eq!(reader.poll(&mut bounds).finished, 1);
    assert_eq!((bounds.ends.get(&good), bounds.records.get(&good)), (Some(&1), Some(&6)));
}

/// No length is right for it, not even none.
#[test]
fn a_device_whose_model_takes_nothing_is_asked_for_nothing() {
    let (transport, _device, ring) = small_ring();
    let (submitter, _reader) = ring.split();
    let at = header(&transport).device_offset + offset_of!(DeviceLine, max_model_len) as u64;
    transport.put(at, &0_u32.to_le_bytes()).expect("in bounds");
    for prompt in [vec![], vec![1]] {
        let refused = submitter.try_submit(&Ask::new(prompt, 1).submission());
        let Err(SubmitError::Invalid(why)) = refused else { panic!("{refused:?}") };
        assert!(why.contains("prompt") && why.contains("must be 1 ..= 0"), "{why}");
    }
}

#[test]
fn a_region_with_random_bytes_is_refused_or_served() {
    let transport = InProcTransport::zeroed(1 << 16);
    transport.put(0, &[0xff; 256]).expect("in bounds");
    assert!(FrontendRing::join_with(transport, 0, PATIENT).is_err());
}
