//! The ring of events: what a device writes is read, what it should not write is left out.

#![allow(clippy::unwrap_used)]

mod common;

use std::mem::offset_of;

use common::*;
use saccade_events::{Adapters, Event, Medium, Reader};
use saccade_fetch::layout::*;
use saccade_ring::Transport;

fn ring(num_events: u32) -> (tempfile::TempDir, Ring, Reader) {
    let folder = tempfile::tempdir().unwrap();
    let region = create(&folder.path().join("fetch"), num_events, 4);
    let reader = Reader::new(region.clone(), &Adapters::of(ADAPTERS)).unwrap();
    (folder, Ring::new(region), reader)
}

fn keys(events: &[Event]) -> Vec<u64> {
    let key = |event: &Event| match event {
        Event::Stored { key, .. } | Event::Removed { key, .. } => *key,
        Event::Cleared => 0,
    };
    events.iter().map(key).collect()
}

#[test]
fn events_are_read_in_order_and_their_places_are_given_back() {
    let (_folder, mut ring, mut reader) = ring(8);
    let mut told = 0;
    for round in 0..100u64 {
        let count = 1 + round % 8;
        for _ in 0..count {
            told += 1;
            let mut stored = event(SAC_KV_STORED, 1, told, told / 2);
            stored.salt = 9;
            assert!(ring.write(&stored, &[1, 2, 3, told as u32]));
        }
        ring.show();
        let events = reader.take(5).unwrap();
        ring.look();
        assert_eq!(ring.written - ring.read, count.saturating_sub(5));
        let mut all = events;
        all.extend(reader.take(100).unwrap());
        assert_eq!(keys(&all), (told - count + 1..=told).collect::<Vec<_>>());
        ring.look();
        assert_eq!(ring.room(), 8);
        let last = all.pop().unwrap();
        let parent = (told / 2 != 0).then_some(told / 2);
        let tokens = vec![1, 2, 3, told as u32];
        let (medium, adapter) = (Medium::Cpu, None);
        let expected = Event::Stored { key: told, parent, salt: 9, adapter, medium, tokens };
        assert_eq!(last, expected);
    }
    assert!(reader.take(100).unwrap().is_empty());
}

#[test]
fn what_makes_no_sense_is_left_out() {
    let (_folder, mut ring, mut reader) = ring(64);
    let senseless = [
        event(77, 0, 5, 0),
        event(0, 0, 5, 0),
        event(u32::MAX, 0, 5, 0),
        event(SAC_KV_STORED, 9, 5, 0),
        event(SAC_KV_REMOVED, 2, 5, 0),
        event(SAC_KV_CLEARED, u32::MAX, 0, 0),
        event(SAC_KV_STORED, 0, 0, 0),
        event(SAC_KV_REMOVED, 0, 0, 0),
        event(SAC_KV_STORED, 0, 5, 5),
    ];
    for wrong in senseless {
        ring.write(&wrong, &[0; 4]);
        ring.write(&event(SAC_KV_REMOVED, 0, 7, 0), &[]);
    }
    ring.show();
    let events = reader.take(100).unwrap();
    assert_eq!(events, vec![Event::Removed { key: 7, medium: Medium::Gpu }; senseless.len()]);
    ring.look();
    assert_eq!(ring.room(), 64);
}

/// The device says a hash of the name. What no name here has is left out: as a block of the model
/// itself, or of another adapter, it would send a router's prompts to a server that cannot use it.
#[test]
fn an_adapter_is_found_by_its_name_or_its_block_is_left_out() {
    let (_folder, mut ring, mut reader) = ring(64);
    let mut key = 0;
    let mut store = |adapter: u64| {
        key += 1;
        let stored = KvEvent { adapter, ..event(SAC_KV_STORED, 0, key, 0) };
        assert!(ring.write(&stored, &[1, 2, 3, 4]));
        ring.show();
        let told = reader.take(100).unwrap();
        ring.look();
        told.into_iter().next().map(|event| match event {
            Event::Stored { adapter, .. } => adapter.map(|a| (a.number, a.name.clone())),
            other => panic!("{other:?}"),
        })
    };
    assert_eq!(store(0), Some(None));
    for (name, number) in ADAPTERS.into_iter().zip(1..) {
        assert_eq!(store(Adapters::hash_of(name)), Some(Some((number, name.to_owned()))));
    }
    for unknown in [1, 2, u64::MAX, Adapters::hash_of("SQL"), Adapters::hash_of("")] {
        assert_eq!(store(unknown), None, "{unknown:x}");
    }
}

#[test]
fn an_impossible_count_voids_what_was_told() {
    let (_folder, mut ring, mut reader) = ring(8);
    let written = offset_of!(DeviceLine, events_written);
    for (count, next) in [(9, 10), (1 << 40, 1 << 40), (3, 4), (u64::MAX, u64::MAX), (0, 1)] {
        ring.put(written, count);
        let events = reader.take(100).unwrap();
        match count {
            // One event more than 2^64 - 1 is event 0: no device counts so far, and nothing breaks.
            0 => assert!(events.len() <= 1),
            _ => assert_eq!(events, [Event::Cleared], "{count}"),
        }
        assert_eq!(ring.plane_word(offset_of!(PlaneLine, events_read)), count);
        assert!(reader.take(100).unwrap().is_empty());
        ring.written = count;
        ring.read = count;
        if next > count {
            ring.write(&event(SAC_KV_REMOVED, 0, 7, 0), &[]);
            ring.show();
            assert_eq!(keys(&reader.take(100).unwrap()), [7]);
        }
    }
}

/// Any bytes in the ring, the lines and the counts: never a panic, never more events than fit.
#[test]
fn any_bytes_are_survived() {
    let mut random = Random(7);
    for _ in 0..200 {
        let (_folder, ring, mut reader) = ring(16);
        let layout = *ring.region.layout();
        for number in 0..16 {
            let mut bytes: Vec<u8> = Vec::new();
            while bytes.len() < layout.event_bytes() as usize {
                // Small numbers too: kinds and tiers that there are.
                let word = if random.below(2) == 0 { random.next() } else { random.next() % 4 };
                bytes.extend(&word.to_le_bytes()[..4]);
            }
            ring.region.transport().put(layout.event_at(number), &bytes).unwrap();
        }
        for _ in 0..50 {
            let count = if random.below(4) == 0 { random.next() } else { random.next() % 40 };
            ring.put(offset_of!(DeviceLine, events_written), count);
            ring.put(offset_of!(DeviceLine, events_dropped), random.next());
            assert!(reader.take(100).unwrap().len() <= 16);
        }
    }
}

/// A reader that goes on where another one ended, and one that finds nonsense there.
#[test]
fn another_reader_goes_on() {
    let (_folder, mut ring, mut reader) = ring(8);
    for key in 1..=6 {
        ring.write(&event(SAC_KV_REMOVED, 0, key, 0), &[]);
    }
    ring.show();
    assert_eq!(keys(&reader.take(2).unwrap()), [1, 2]);
    let mut second = Reader::new(ring.region.clone(), &Adapters::default()).unwrap();
    assert_eq!(keys(&second.take(100).unwrap()), [3, 4, 5, 6]);
    let at = ring.region.layout().plane_at(offset_of!(PlaneLine, events_read));
    ring.region.transport().put_u64(at, 1 << 50).unwrap();
    let mut third = Reader::new(ring.region.clone(), &Adapters::default()).unwrap();
    assert_eq!(third.take(100).unwrap(), [Event::Cleared]);
}

/// A region that tells no events has none.
#[test]
fn a_region_without_a_ring_is_silent() {
    let (_folder, ring, mut reader) = ring(0);
    ring.put(offset_of!(DeviceLine, events_written), 5);
    assert!(reader.take(100).unwrap().is_empty());
}

/// A table rebuilt from events alone is the device's, through overflows and new lives of planes.
#[test]
fn the_table_is_rebuilt_from_events() {
    for seed in 0..20 {
        let folder = tempfile::tempdir().unwrap();
        let region = create(&folder.path().join("fetch"), 64, 4);
        let mut reader = Reader::new(region.clone(), &Adapters::of(ADAPTERS)).unwrap();
        let mut device = Device::new(region, seed, 200);
        let mut table = Table::new();
        for round in 0..3000 {
            let is_last = round >= 2500;
            let changes = if is_last { 0 } else { device.random.below(12) };
            device.tick(changes);
            if round % 700 == 300 {
                device.ring.begin_epoch();
            }
            if is_last || device.random.below(4) == 0 {
                reader.take(100).unwrap().into_iter().for_each(|event| apply(&mut table, event));
            }
        }
        assert!(device.is_settled() && device.ring.dropped > 0 && device.retold > 3);
        assert!(table == device.truth(), "seed {seed}");
    }
}

fn apply(table: &mut Table, event: Event) {
    let tier = |medium| usize::from(medium == Medium::Cpu);
    match event {
        Event::Stored { key, parent, salt, adapter, medium, tokens } => {
            let name = adapter.map(|adapter| adapter.name.clone());
            let block = table.entry(key).or_insert((parent, salt, name, tokens, [false; 2]));
            block.4[tier(medium)] = true;
        }
        Event::Removed { key, medium } => {
            let block = table.get_mut(&key).unwrap();
            block.4[tier(medium)] = false;
            if block.4 == [false; 2] {
                table.remove(&key);
            }
        }
        Event::Cleared => table.clear(),
    }
}
