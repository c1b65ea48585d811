//! The same bytes as msgspec makes of vLLM's events (`tests/events/make_golden.py`).

#![allow(clippy::unwrap_used)]

use std::sync::Arc;

use saccade_events::{Adapter, Event, Medium, encode_batch};

/// Numbers at both sides of every length that MessagePack has for them.
const EDGES: [u32; 8] = [0, 127, 128, 255, 256, 65535, 65536, u32::MAX];

fn stored(key: u64, parent: Option<u64>, salt: u64, medium: Medium, tokens: &[u32]) -> Event {
    Event::Stored { key, parent, salt, adapter: None, medium, tokens: tokens.into() }
}

/// The same block as an adapter's.
fn of(number: u32, name: &str, event: Event) -> Event {
    let Event::Stored { key, parent, salt, medium, tokens, .. } = event else {
        panic!("{event:?} has no adapter")
    };
    let adapter = Some(Arc::new(Adapter { number, name: name.to_owned() }));
    Event::Stored { key, parent, salt, adapter, medium, tokens }
}

fn removed(key: u64, medium: Medium) -> Event {
    Event::Removed { key, medium }
}

#[test]
fn every_kind_is_written_as_vllm_does() {
    let (gpu, cpu) = (Medium::Gpu, Medium::Cpu);
    let events = [
        Event::Cleared,
        Event::Cleared,
        stored(1, None, 0xabcde, gpu, &EDGES[..4]),
        stored(u64::MAX, Some(1), 0xabcde, gpu, &EDGES[4..]),
        stored(1 << 63, Some(u64::MAX), 0xabcde, cpu, &EDGES[4..]),
        stored(1 << 32, None, 0, gpu, &EDGES[..4]),
        removed(1, gpu),
        removed(1 << 32, gpu),
        removed(1 << 63, cpu),
    ];
    let made = encode_batch(1789095808.8378847, &events, 4);
    assert_eq!(made, include_bytes!("golden/kinds.msgpack"));
}

#[test]
fn adapters_are_written_as_vllm_does() {
    let (gpu, cpu) = (Medium::Gpu, Medium::Cpu);
    let long = "x".repeat(256);
    let events = [
        of(1, "sql", stored(1, None, 0, gpu, &EDGES[..4])),
        of(1, "sql", stored(2, Some(1), 0, gpu, &EDGES[4..])),
        of(128, "Größe", stored(3, None, 0xabcde, cpu, &EDGES[..4])),
        of(128, "Größe", stored(4, Some(3), 0xabcde, cpu, &EDGES[4..])),
        of(256, &long, stored(5, Some(6), 0xabcde, gpu, &EDGES[..4])),
        stored(7, None, 0, gpu, &EDGES[..4]),
    ];
    let made = encode_batch(1789095808.8378847, &events, 4);
    assert_eq!(made, include_bytes!("golden/adapters.msgpack"));
}

#[test]
fn long_batches_are_written_as_vllm_does() {
    let mut events = Vec::new();
    for key in 1..=20u64 {
        let first = 256 * (key as u32 - 1);
        let tokens: Vec<u32> = (first..first + 256).collect();
        events.push(stored(key, (key > 1).then(|| key - 1), 0, Medium::Gpu, &tokens));
    }
    events.extend((1..=700).rev().map(|key| removed(key, Medium::Cpu)));
    assert_eq!(encode_batch(0.0, &events, 256), include_bytes!("golden/long.msgpack"));
    assert_eq!(encode_batch(1.5, &[], 256), include_bytes!("golden/empty.msgpack"));
}

/// What does not continue the event before it is an event of its own.
#[test]
fn only_chains_are_joined() {
    let gpu = Medium::Gpu;
    let apart = [
        [stored(1, None, 0, gpu, &[1]), stored(2, None, 0, gpu, &[1])],
        [stored(1, None, 0, gpu, &[1]), stored(2, Some(3), 0, gpu, &[1])],
        [stored(1, None, 0, gpu, &[1]), stored(2, Some(1), 5, gpu, &[1])],
        [stored(1, None, 0, gpu, &[1]), stored(2, Some(1), 0, Medium::Cpu, &[1])],
        [stored(1, None, 0, gpu, &[1]), of(1, "a", stored(2, Some(1), 0, gpu, &[1]))],
        [of(1, "a", stored(1, None, 0, gpu, &[1])), of(2, "b", stored(2, Some(1), 0, gpu, &[1]))],
        [removed(1, gpu), removed(2, Medium::Cpu)],
        [removed(1, gpu), Event::Cleared],
    ];
    // Behind the array of three, and the nine bytes of a number: the array of events.
    const EVENTS_AT: usize = 1 + 9;
    for pair in apart {
        assert_eq!(encode_batch(0.0, &pair, 1)[EVENTS_AT], 0x92, "{pair:?}");
    }
    let chain = [stored(1, None, 0, gpu, &[1]), stored(2, Some(1), 0, gpu, &[1])];
    assert_eq!(encode_batch(0.0, &chain, 1)[EVENTS_AT], 0x91);
}
