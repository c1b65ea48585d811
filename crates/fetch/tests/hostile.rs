//! Commands of a device that is broken or worse, and all kinds of commands at once.

mod common;

use std::collections::HashMap;
use std::mem::offset_of;
use std::time::{Duration, Instant};

use bytemuck::Zeroable;
use common::*;
use saccade_chunk::{Codec, Value};
use saccade_fetch::layout::*;
use saccade_fetch::{FetchMode, Limits};
use saccade_ring::layout::SAC_NUM_FETCH_RESULTS;

#[test]
fn commands_beyond_a_bound_are_invalid() {
    type Edit = fn(&mut Command);
    let mut bench = Bench::plain();
    bench.device.set_row(0, &tokens(1, 16));
    let cases: [(&str, Edit); 12] = [
        ("op 0", |c| c.op = 0),
        ("op 5", |c| c.op = 5),
        ("op", |c| c.op = u32::MAX),
        ("entry", |c| c.entry = 8),
        ("entry", |c| c.entry = u32::MAX),
        ("no tokens", |c| c.num_tokens = 0),
        ("half a chunk", |c| c.num_tokens = 300),
        ("tokens", |c| c.num_tokens = 17 * 256),
        ("tokens", |c| c.num_tokens = !255),
        ("chunk", |c| c.chunk = 2),
        ("chunk", |c| c.chunk = u32::MAX),
        ("frame", |c| c.frame = 16),
    ];
    for (what, edit) in cases {
        for mut command in [load(0, 0, 1, 3), store(0, 0, 1, 3)] {
            edit(&mut command);
            let answer = bench.device.ask(command);
            assert_eq!(answer.result, SAC_FETCH_INVALID, "{what}");
        }
    }
    bench.device.send_as_it_is(&lookup(0, 0, 1)); // id 0
    assert_eq!(bench.device.take(1)[0].result, SAC_FETCH_INVALID);
    assert_eq!(bench.shelf.num_values(), 0);
    assert_eq!(bench.stats().unknown_commands, 6);
}

/// What is lent may not be lent twice, and an id not used twice at a time.
#[test]
fn what_is_lent_is_not_lent_again() {
    let mut bench = Bench::plain();
    bench.device.set_row(0, &tokens(1, 4));
    bench.shelf.set(Mood::Hung);
    let first = bench.device.send(load(0, 0, 0, 3));
    for command in [load(0, 0, 1, 3), store(0, 0, 1, 3), Command { id: first, ..lookup(0, 0, 1) }] {
        bench.device.send(command);
        assert_eq!(bench.device.take(1)[0].result, SAC_FETCH_INVALID, "{command:?}");
    }
    bench.device.send(cancel(first));
    assert_eq!(bench.device.take(1)[0].result, SAC_FETCH_CANCELLED);
    bench.shelf.set(Mood::Well);
    assert_eq!(bench.device.ask(load(0, 0, 1, 3)).result, SAC_FETCH_MISS);
}

/// Random bytes as commands: each is answered once, and only frames that a believable LOAD named
/// are written.
#[test]
fn random_commands_harm_nothing() {
    let seed = 77;
    let mut random = Random(seed);
    let mut bench = Bench::plain();
    let device = &mut bench.device;
    let frame_bytes = device.region.layout().frame_bytes() as usize;
    (0..16).for_each(|frame| device.set_frame(frame, &vec![0x5a; frame_bytes]));
    let (mut asked, mut answered) = (0, 0);
    for round in 0..3000 {
        let mut command = Command::zeroed();
        for word in bytemuck::cast_slice_mut::<_, u64>(bytemuck::bytes_of_mut(&mut command)) {
            *word = random.next();
        }
        if round % 2 == 0 {
            // Near the bounds, and without a frame that could be written.
            command.op = random.below(5) as u32;
            command.entry = random.below(10) as u32;
            command.num_tokens = 256 * random.below(18) as u32;
            command.chunk = random.below(18) as u32;
            command.frame = 8 + random.below(1 << 20) as u32;
        }
        asked += usize::from(command.op != SAC_FETCH_CANCEL);
        let began = Instant::now();
        while !device.has_room() {
            answered += device.poll().len();
            assert!(began.elapsed() < PATIENCE, "seed {seed} round {round}");
        }
        device.send_as_it_is(&command);
    }
    let began = Instant::now();
    while answered < asked {
        answered += device.poll().len();
        assert!(began.elapsed() < PATIENCE, "{answered} of {asked}, seed {seed}");
    }
    std::thread::sleep(Duration::from_millis(30));
    assert_eq!((answered + device.poll().len(), asked), (asked, asked), "seed {seed}");
    for frame in 0..8 {
        assert!(device.frame(frame).iter().all(|b| *b == 0x5a), "frame {frame}, seed {seed}");
    }
}

/// A device that does not read completions: the plane stops reading commands, and goes on when
/// there is room.
#[test]
fn completions_wait_for_room() {
    let small_queue = Limits { queue_len: 4, ..limits(small(), 16) };
    let mut bench = Bench::new(&small_queue, |_| {});
    let device = &mut bench.device;
    device.set_row(0, &tokens(1, 1));
    let ids: Vec<_> = (0..12).map(|_| device.send(lookup(0, 0, 1))).collect();
    let written = |device: &Device| device.plane_word(offset_of!(PlaneLine, completions_written));
    let began = Instant::now();
    while written(device) < 4 {
        assert!(began.elapsed() < PATIENCE);
    }
    std::thread::sleep(Duration::from_millis(50));
    // The queue is full, as many again are held by the plane, and the others wait in their queue.
    assert_eq!(written(device), 4);
    assert_eq!(device.plane_word(offset_of!(PlaneLine, commands_read)), 8);
    let answers = device.take(12);
    assert_eq!(answers.iter().map(|c| c.id).collect::<Vec<_>>(), ids);
}

/// All operations at random with a moody store: every command is answered exactly once, DONE means
/// the right bytes, and in the end nothing is left over.
#[test]
fn all_complete_exactly_once() {
    const NUM_COMMANDS: u64 = 600;
    for (seed, mode) in [(1, FetchMode::Pipelined), (2, FetchMode::NoPipeline)] {
        let mut bench = Bench::new(&limits(small(), 16), |c| c.mode = mode);
        let rows: Vec<_> = (0..8).map(|row| tokens(row, 16)).collect();
        let g = bench.device.limits.geometry;
        let model = bench.device.limits.model_id;
        let kv_of = |row: u32, chunk: u32| kv_like(&g, u64::from(row * 100 + chunk));
        for (row, tokens) in rows.iter().enumerate() {
            bench.device.set_row(row as u32, tokens);
            for (chunk, name) in names(&model, 0, tokens).into_iter().enumerate().skip(row) {
                let first_token = 256 * chunk as u32;
                let value = Value { model, name, first_token, geometry: g };
                bench.shelf.insert(Codec::Lossless, 0, &value, &kv_of(row as u32, chunk as u32));
            }
        }
        bench.shelf.set(Mood::Moody);
        let mut random = Random(seed);
        let mut open: HashMap<u64, Command> = HashMap::new();
        let mut free: Vec<u32> = (0..16).collect();
        let (mut sent, mut results) = (0, [0u32; SAC_NUM_FETCH_RESULTS]);
        let began = Instant::now();
        while sent < NUM_COMMANDS || !open.is_empty() {
            assert!(began.elapsed() < 3 * PATIENCE, "seed {seed}: open {open:?}");
            for answer in bench.device.poll() {
                let command = open.remove(&answer.id).expect("a command that is not answered yet");
                assert_eq!(answer.op, command.op, "seed {seed}");
                results[answer.result as usize] += 1;
                if command.op == SAC_FETCH_LOOKUP {
                    continue;
                }
                if command.op == SAC_FETCH_LOAD && answer.result == SAC_FETCH_DONE {
                    let loaded = bench.device.chunk_of(&bench.device.frame(command.frame));
                    assert!(loaded == kv_of(command.entry, command.chunk), "seed {seed}");
                }
                free.push(command.frame);
            }
            if sent == NUM_COMMANDS || open.len() >= 32 || !bench.device.has_room() {
                continue;
            }
            let (row, chunk) = (random.below(8) as u32, random.below(16) as u32);
            let mut command = match random.below(8) {
                0 => lookup(row, 0, chunk + 1),
                1 => {
                    let target = open.keys().copied().next().unwrap_or(99);
                    bench.device.send(cancel(target));
                    continue;
                }
                kind => {
                    let Some(frame) = free.pop() else { continue };
                    if kind < 4 {
                        let kv = kv_of(row, chunk);
                        let blocks = bench.device.blocks_of(&kv);
                        bench.device.set_frame(frame, &blocks);
                        store(row, 0, chunk, frame)
                    } else {
                        load(row, 0, chunk, frame)
                    }
                }
            };
            command.budget_us = 1000 * (1 + random.below(40) as u32);
            let id = bench.device.send(command);
            open.insert(id, command);
            sent += 1;
        }
        std::thread::sleep(Duration::from_millis(20));
        assert!(bench.device.poll().is_empty());
        println!("seed {seed}: results {results:?}");
        for result in [SAC_FETCH_DONE, SAC_FETCH_LATE, SAC_FETCH_TROUBLE, SAC_FETCH_CANCELLED] {
            assert!(results[result as usize] > 0, "seed {seed}: no result {result}: {results:?}");
        }
        assert_eq!(bench.stats().in_flight, 0);
        assert_eq!(results[SAC_FETCH_INVALID as usize], 0, "seed {seed}");
        let counted: u64 = bench.stats().completions.iter().flatten().sum();
        assert_eq!(counted, NUM_COMMANDS);
    }
}
