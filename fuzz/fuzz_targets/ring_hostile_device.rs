//! A device that may write anything, anywhere, at any time between two polls.
//!
//! Whatever it does, the frontend must not panic, loop or allocate without bound; it delivers only
//! token ids below the vocabulary and at most the records that were asked for, and it ends each
//! ticket exactly once.
#![no_main]

use std::collections::HashMap;
use std::mem::offset_of;
use std::time::Duration;

use libfuzzer_sys::fuzz_target;
use saccade_ring::layout::*;
use saccade_ring::testing::{FakeConfig, FakeDevice};
use saccade_ring::{
    Finish, FrontendRing, InProcTransport, JoinOptions, Reader, Record, RegionLayout, RegionLimits,
    RequestParams, Sink, Submission, Submitter, Ticket, Transport,
};

const LIMITS: RegionLimits =
    RegionLimits { num_slots: 64, num_frontends: 2, out_ring_words: 64, arena_bytes: 16384 };
const FRONTEND: u32 = 1;
const JOIN: JoinOptions =
    JoinOptions { device_lost_after: Duration::from_secs(600), ack_timeout: Duration::ZERO };

/// The input as an endless supply of numbers; zeros after its end.
struct Bytes<'a>(&'a [u8]);

impl Bytes<'_> {
    fn u8(&mut self) -> u8 {
        let Some((&first, rest)) = self.0.split_first() else { return 0 };
        self.0 = rest;
        first
    }

    fn u16(&mut self) -> u16 {
        u16::from_le_bytes([self.u8(), self.u8()])
    }

    fn u32(&mut self) -> u32 {
        u32::from(self.u16()) | u32::from(self.u16()) << 16
    }

    fn u64(&mut self) -> u64 {
        u64::from(self.u32()) | u64::from(self.u32()) << 32
    }
}

struct Open {
    vocab_size: u32,
    left: u64,
    ended: bool,
}

#[derive(Default)]
struct Checks {
    tickets: HashMap<Ticket, Open>,
    last: Option<Ticket>,
    room: usize,
}

impl Checks {
    fn open(&mut self, ticket: Ticket) -> &mut Open {
        let open = self.tickets.get_mut(&ticket).expect("a ticket that was submitted");
        assert!(!open.ended, "{ticket:?} goes on after its end");
        open
    }
}

impl Sink for Checks {
    fn room(&mut self, ticket: Ticket) -> usize {
        self.open(ticket);
        self.room
    }

    fn record(&mut self, ticket: Ticket, record: Record<'_>) {
        let open = self.open(ticket);
        assert!(record.token < open.vocab_size && !record.logprob.is_nan());
        let sound = |&(id, logprob): &(u32, f32)| id < open.vocab_size && !logprob.is_nan();
        assert!(record.top.len() <= 20 && record.top.iter().all(sound));
        open.left = open.left.checked_sub(1).expect("no more records than asked for");
    }

    fn finished(&mut self, ticket: Ticket, _finish: Finish, _count: u32) {
        self.open(ticket).ended = true;
    }

    fn lost(&mut self, ticket: Ticket) {
        self.open(ticket).ended = true;
    }
}

struct World {
    region: InProcTransport,
    layout: RegionLayout,
    submitter: Submitter<InProcTransport>,
    reader: Reader<InProcTransport>,
    checks: Checks,
}

fn submit(world: &mut World, bytes: &mut Bytes<'_>) {
    let flags = bytes.u8();
    let params = RequestParams {
        logprobs: flags & 1 != 0,
        prompt_logprobs: flags & 2 != 0,
        num_top_logprobs: if flags & 3 == 0 { 0 } else { u32::from(bytes.u8() % 22) },
        max_tokens: u32::from(bytes.u8()),
        ..RequestParams::default()
    };
    let prompt = vec![u32::from(bytes.u8() % 100); usize::from(bytes.u8())];
    let submission =
        Submission { prompt: &prompt, logit_bias: &[], stop_ids: &[], grammar: &[], params };
    let vocab_size = world.submitter.device().vocab_size;
    let checks = &mut world.checks;
    let result = world.submitter.try_submit_with(&submission, |ticket| {
        let left = u64::from(params.max_tokens) + prompt.len() as u64;
        checks.tickets.insert(ticket, Open { vocab_size, left, ended: false });
        checks.last = Some(ticket);
    });
    if result.is_ok() {
        assert!(vocab_size > 0);
    }
}

/// Writes what the device may write, in its form but not in its meaning.
fn write_status(world: &World, bytes: &mut Bytes<'_>) {
    let last = world.checks.last.map_or((32, 0), |ticket| (ticket.slot, ticket.ticket));
    let kind = bytes.u8();
    let slot = if kind & 1 == 0 { last.0 } else { u32::from(bytes.u8()) % LIMITS.num_slots };
    let ticket = if kind & 2 == 0 { last.1 } else { bytes.u32() };
    let count = if kind & 4 == 0 { u32::from(bytes.u8() % 64) } else { bytes.u32() };
    let ends = bytes.u8();
    let word = sac_status_word(ticket, (ends & 15).into(), (ends >> 4).into(), count);
    put(world, status_at(world, slot), &word.to_le_bytes());
}

fn status_at(world: &World, slot: u32) -> u64 {
    // The layout's own accessors are private; the header says the same.
    let at = world.region.get_u64(offset_of!(RegionHeader, status_offset) as u64);
    at.unwrap_or(0).wrapping_add(u64::from(slot) * 16) % world.layout.region_bytes()
}

fn write_device_line(world: &World, bytes: &mut Bytes<'_>) {
    let Ok(at) = world.region.get_u64(offset_of!(RegionHeader, device_offset) as u64) else {
        return;
    };
    let field = u64::from(bytes.u8() % 16) * 4;
    let value = if bytes.u8() & 1 == 0 { u32::from(bytes.u8() % 4) } else { bytes.u32() };
    put(world, at.wrapping_add(field), &value.to_le_bytes());
}

fn put(world: &World, at: u64, value: &[u8]) {
    // Outside the region: refused, as it should be.
    let _ = world.region.put(at, value);
}

fn step(world: &mut World, device: &mut FakeDevice<InProcTransport>, bytes: &mut Bytes<'_>) {
    match bytes.u8() % 12 {
        0 | 1 => submit(world, bytes),
        2 | 3 => {
            world.checks.room = usize::from(bytes.u8() % 8);
            world.reader.poll(&mut world.checks);
        }
        4 => world.checks.last.into_iter().for_each(|ticket| world.submitter.cancel(ticket)),
        5 | 6 => write_status(world, bytes),
        7 => {
            let at = u64::from(bytes.u16()) % (world.layout.region_bytes() + 64);
            let value = bytes.u64().to_le_bytes();
            put(world, at, &value);
        }
        8 => write_device_line(world, bytes),
        9 => {
            world.submitter.heartbeat();
            let free = world.submitter.free_slots();
            assert!(free <= world.submitter.num_slots());
            assert!(world.submitter.slot_states().iter().sum::<usize>() <= 32);
            let _ = world.submitter.stats();
        }
        10 => world.reader.wait(Duration::ZERO),
        _ => {
            // A well-behaved device in between: its region may be damaged, so it may fail.
            let _ = device.tick();
        }
    }
}

fuzz_target!(|data: &[u8]| {
    let region = InProcTransport::create(&LIMITS).expect("the limits are in bounds");
    let layout = RegionLayout::read(&region).expect("a fresh region");
    let config = FakeConfig { vocab_size: 100, max_model_len: 300, ..FakeConfig::default() };
    let mut device = FakeDevice::join(region.clone(), config).expect("a fresh region");
    device.ready().expect("in process");
    let ring = FrontendRing::join_with(region.clone(), FRONTEND, JOIN).expect("a fresh region");
    device.tick().expect("in process");
    let (submitter, reader) = ring.split();
    let mut world = World { region, layout, submitter, reader, checks: Checks::default() };
    let mut bytes = Bytes(data);
    while !bytes.0.is_empty() {
        step(&mut world, &mut device, &mut bytes);
    }
    // With the device gone and room for everything, one poll ends every ticket.
    device.put_phase(SAC_PHASE_ABSENT).expect("in process");
    world.checks.room = usize::MAX;
    let summary = world.reader.poll(&mut world.checks);
    assert_eq!(summary.in_flight, 0);
    let submitted = world.checks.tickets.values();
    assert!(submitted.filter(|open| !open.ended).count() == 0, "a ticket never ended");
    // Whatever the region looks like by now, a join is refused or works.
    let _ = FrontendRing::join_with(world.region.clone(), 0, JOIN);
});
