//! A store that fails, hangs or lies, budgets that end, and commands that are not wanted any more.

mod common;

use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use common::*;
use saccade_chunk::codec::Scratch;
use saccade_chunk::{Codec, Dtype, ModelId, Name, Value, seal};
use saccade_fetch::layout::*;
use saccade_store::Key;

/// Each kind of wrong value is rejected for its own reason.
#[test]
fn wrong_values_are_rejected() {
    let mut bench = Bench::plain();
    let row = tokens(3, 2);
    bench.device.set_row(0, &row);
    let right = value_of(&bench.device.limits, 0, &row, 1);
    let g = right.geometry;
    let (kv, key) = (kv_like(&g, 1), Key { model: right.model, salt: 0, name: right.name });
    let sealed = |value: &Value, codec, kv: &[u8]| {
        let mut bytes = Vec::new();
        seal(value, codec, kv, &mut Scratch::default(), &mut bytes);
        bytes
    };
    let good = sealed(&right, Codec::Lossless, &kv);
    let edited = |edit: &dyn Fn(&mut Vec<u8>)| {
        let mut bytes = good.clone();
        edit(&mut bytes);
        bytes
    };
    let other = |edit: &dyn Fn(&mut Value)| {
        let mut value = right;
        edit(&mut value);
        sealed(&value, Codec::Lossless, &kv)
    };
    let at_end = good.len() - 1;
    let cases = [
        (edited(&|b| b.truncate(at_end)), SAC_FETCH_REJECT_LENGTH),
        (edited(&|b| b.truncate(50)), SAC_FETCH_REJECT_LENGTH),
        (Vec::new(), SAC_FETCH_REJECT_LENGTH),
        (edited(&|b| b.push(0)), SAC_FETCH_REJECT_LENGTH),
        (vec![0x5a; 2 * g.bytes()], SAC_FETCH_REJECT_LENGTH),
        (edited(&|b| b[0] ^= 1), SAC_FETCH_REJECT_MAGIC),
        (edited(&|b| b[4] ^= 0x80), SAC_FETCH_REJECT_VERSION),
        (edited(&|b| b[at_end] ^= 0x10), SAC_FETCH_REJECT_CHECKSUM),
        (edited(&|b| b[70] ^= 1), SAC_FETCH_REJECT_CHECKSUM),
        (other(&|v| v.name = Name::root(&v.model, b"x")), SAC_FETCH_REJECT_NAME),
        (other(&|v| v.model = ModelId::from_bytes([1; 32])), SAC_FETCH_REJECT_MODEL),
        (other(&|v| v.first_token = 0), SAC_FETCH_REJECT_SPAN),
        (resealed(&good, |b| b[6] = 99), SAC_FETCH_REJECT_CODEC),
        (resealed(&good, |b| b[112] ^= 1), SAC_FETCH_REJECT_PAYLOAD),
        (resealed(&good, |b| b[at_end] ^= 0xff), SAC_FETCH_REJECT_PAYLOAD),
    ];
    let mut removed = 0;
    for (i, (bytes, detail)) in cases.into_iter().enumerate() {
        bench.shelf.values.lock().unwrap().insert(key, bytes.into());
        let answer = bench.device.ask(load(0, 0, 1, 3));
        assert_eq!((answer.result, answer.detail), (SAC_FETCH_REJECTED, detail), "case {i}");
        if [SAC_FETCH_REJECT_VERSION, SAC_FETCH_REJECT_CODEC].contains(&detail) {
            // Another version of this program can use it.
            assert_eq!(bench.shelf.num_values(), 1, "case {i}");
        } else {
            removed += 1;
            bench.shelf.wait_for_removals(removed);
        }
    }
    bench.shelf.values.lock().unwrap().insert(key, good.into());
    assert_eq!(bench.device.ask(load(0, 0, 1, 3)).result, SAC_FETCH_DONE);
    assert!(bench.device.chunk_of(&bench.device.frame(3)) == kv);
    let counted = bench.stats().rejections;
    assert_eq!(counted[1..], [5, 1, 1, 2, 1, 1, 1, 1, 2]);
}

/// Changes a value and makes its checksum right again.
fn resealed(good: &[u8], edit: impl Fn(&mut Vec<u8>)) -> Vec<u8> {
    let mut bytes = good.to_vec();
    edit(&mut bytes);
    let mut hash = xxhash_rust::xxh3::Xxh3::new();
    hash.update(&bytes[..96]);
    hash.update(&bytes[112..]);
    bytes[96..112].copy_from_slice(&hash.digest128().to_le_bytes());
    bytes
}

/// Flipped, cut or lengthened at random: never DONE, unless nothing was changed.
#[test]
fn damage_is_never_believed() {
    let seed = 20;
    let mut random = Random(seed);
    let mut bench = Bench::plain();
    let row = tokens(3, 1);
    bench.device.set_row(0, &row);
    let value = value_of(&bench.device.limits, 0, &row, 0);
    let key = bench.shelf.insert(Codec::BinsRans, 0, &value, &kv_like(&value.geometry, 1));
    let good = bench.shelf.values.lock().unwrap()[&key].clone();
    for round in 0..300 {
        let mut bytes = good.to_vec();
        let at = random.below(bytes.len() as u64) as usize;
        match round % 3 {
            0 => bytes[at] ^= 1 << random.below(8),
            1 => bytes.truncate(at),
            _ => bytes.extend(vec![0; 1 + at % 100]),
        }
        bench.shelf.values.lock().unwrap().insert(key, bytes.into());
        let answer = bench.device.ask(load(0, 0, 0, 0));
        assert_eq!(answer.result, SAC_FETCH_REJECTED, "seed {seed} round {round} at {at}");
        // Out of the way, so that a good one can be stored.
        bench.shelf.wait_for_removals(round + 1);
    }
}

#[test]
fn a_store_that_is_down_is_trouble() {
    let mut bench = Bench::plain();
    bench.device.set_row(0, &tokens(1, 2));
    bench.shelf.set(Mood::Down);
    for command in [lookup(0, 0, 2), load(0, 0, 0, 0), store(0, 0, 1, 1)] {
        let answer = bench.device.ask(command);
        let expected = (SAC_FETCH_TROUBLE, SAC_FETCH_TROUBLE_UNREACHABLE);
        assert_eq!((answer.result, answer.detail), expected, "{command:?}");
    }
    bench.shelf.set(Mood::Full);
    assert_eq!(bench.device.ask(store(0, 0, 1, 1)).result, SAC_FETCH_FULL);
    bench.shelf.set(Mood::Well);
    assert_eq!(bench.device.ask(store(0, 0, 1, 1)).result, SAC_FETCH_DONE);
}

/// Calls that never end hold up nothing but themselves, and those only for their budgets.
#[test]
fn a_hung_store_makes_commands_late() {
    let mut bench = Bench::plain();
    let device = &mut bench.device;
    device.set_row(0, &tokens(1, 16));
    bench.shelf.set(Mood::Hung);
    // More loads than the buffers have room for values, and budgets that end out of order.
    for i in 0..12 {
        let budget_us = if i % 2 == 0 { 1_200_000 } else { 600_000 };
        device.send(Command { budget_us, ..load(0, 0, i, i) });
    }
    let short = Command { budget_us: 500_000, ..store(0, 0, 0, 12) };
    device.send(short);
    while bench.shelf.calls.load(Ordering::SeqCst) < 3 {
        std::thread::yield_now();
    }
    bench.shelf.set(Mood::Well);
    let began = Instant::now();
    let answer = device.send(lookup(0, 0, 4));
    let mut seen = Vec::new();
    while !seen.iter().any(|c: &Completion| c.id == answer) {
        seen.extend(device.poll());
        assert!(began.elapsed() < PATIENCE);
    }
    assert!(began.elapsed() < HANG / 5, "behind hung calls: {:?}", began.elapsed());
    seen.extend(device.take(14 - seen.len()));
    assert!(began.elapsed() < 2 * HANG, "{:?}", began.elapsed());
    for completion in seen.iter().filter(|c| c.id != answer) {
        // Those that waited for room find the store well, and the chunk missing.
        let expected = [SAC_FETCH_LATE, SAC_FETCH_MISS, SAC_FETCH_DONE];
        assert!(expected.contains(&completion.result), "{completion:?}");
    }
    assert!(seen.iter().filter(|c| c.result == SAC_FETCH_LATE).count() >= 3);
    let again = device.ask(load(0, 0, 5, 5));
    assert_eq!(again.result, SAC_FETCH_MISS);
}

/// Calls that are late go on to their end, and keep their room until then: then it comes back.
#[test]
fn room_comes_back_when_hung_calls_end() {
    let g = geometry(2, 8, 64, Dtype::Bf16);
    // Room for two values.
    let mut bench = Bench::new(&limits(g, 16), |c| {
        c.stores = false;
        c.buffer_bytes = 7 * g.bytes() as u64 / 2;
    });
    let device = &mut bench.device;
    device.set_row(0, &tokens(1, 4));
    bench.shelf.set(Mood::Hung);
    let began = Instant::now();
    for chunk in 0..2 {
        device.send(Command { budget_us: 50_000, ..load(0, 0, chunk, chunk) });
    }
    assert!(device.take(2).iter().all(|c| c.result == SAC_FETCH_LATE));
    assert!(began.elapsed() < HANG / 2);
    bench.shelf.set(Mood::Well);
    let waits = Command { budget_us: 50_000, ..load(0, 0, 2, 2) };
    assert_eq!(device.ask(waits).result, SAC_FETCH_LATE);
    assert_eq!(device.ask(load(0, 0, 3, 3)).result, SAC_FETCH_MISS);
    assert!(began.elapsed() >= HANG, "{:?}", began.elapsed());
    // Cancelled calls give their room back at once.
    bench.shelf.set(Mood::Hung);
    let ids = [0, 1].map(|chunk| device.send(load(0, 0, chunk, chunk)));
    std::thread::sleep(Duration::from_millis(20));
    bench.shelf.set(Mood::Well);
    for id in ids {
        device.send(cancel(id));
    }
    device.take(2);
    let began = Instant::now();
    assert_eq!(device.ask(load(0, 0, 2, 2)).result, SAC_FETCH_MISS);
    assert!(began.elapsed() < HANG / 2);
}

/// The store's own deadline ends a command that would wait longer.
#[test]
fn a_store_that_times_out_is_trouble() {
    let mut bench = Bench::plain();
    bench.device.set_row(0, &tokens(1, 1));
    bench.shelf.set(Mood::Hung);
    let answer = bench.device.ask(load(0, 0, 0, 0));
    assert_eq!((answer.result, answer.detail), (SAC_FETCH_TROUBLE, SAC_FETCH_TROUBLE_TIMEOUT));
}

#[test]
fn a_slow_store_is_slow_for_each_and_not_for_all() {
    let mut bench = Bench::plain();
    let row = tokens(3, 16);
    bench.device.set_row(0, &row);
    let kv = kv_like(&small(), 1);
    for chunk in 0..16 {
        let value = value_of(&bench.device.limits, 0, &row, chunk);
        bench.shelf.insert(Codec::Lossless, 0, &value, &kv);
    }
    bench.shelf.set(Mood::Slow);
    let began = Instant::now();
    for chunk in 0..16 {
        bench.device.send(load(0, 0, chunk, chunk));
    }
    assert!(bench.device.take(16).iter().all(|c| c.result == SAC_FETCH_DONE));
    assert!(began.elapsed() < 8 * SLOW, "one after the other: {:?}", began.elapsed());
}

#[test]
fn a_budget_of_nothing_is_late() {
    let mut bench = Bench::plain();
    bench.device.set_row(0, &tokens(1, 1));
    for command in [lookup(0, 0, 1), load(0, 0, 0, 0), store(0, 0, 0, 1)] {
        let answer = bench.device.ask(Command { budget_us: 0, ..command });
        assert_eq!(answer.result, SAC_FETCH_LATE, "{command:?}");
    }
    assert_eq!(bench.shelf.num_values(), 0);
}

#[test]
fn no_budget_exceeds_the_planes() {
    let longest = Duration::from_millis(150);
    let mut bench = Bench::new(&limits(small(), 16), |c| c.max_budget = longest);
    bench.device.set_row(0, &tokens(1, 1));
    bench.shelf.set(Mood::Hung);
    let began = Instant::now();
    assert_eq!(bench.device.ask(load(0, 0, 0, 0)).result, SAC_FETCH_LATE);
    assert!(began.elapsed() >= longest && began.elapsed() < HANG / 2, "{:?}", began.elapsed());
}

#[test]
fn cancelled_commands_end_at_once() {
    let mut bench = Bench::plain();
    let device = &mut bench.device;
    device.set_row(0, &tokens(1, 3));
    bench.shelf.set(Mood::Hung);
    let ids = [lookup(0, 0, 1), load(0, 0, 1, 1), store(0, 0, 2, 2)].map(|c| device.send(c));
    std::thread::sleep(Duration::from_millis(20));
    assert!(device.poll().is_empty());
    let began = Instant::now();
    for id in ids {
        device.send(cancel(id));
    }
    device.send(cancel(ids[0])); // once more, and one that never was
    device.send(cancel(4711));
    let answers = device.take(3);
    assert!(began.elapsed() < HANG / 4, "{:?}", began.elapsed());
    for (answer, id) in answers.iter().zip(ids) {
        assert_eq!((answer.id, answer.result), (id, SAC_FETCH_CANCELLED));
    }
    std::thread::sleep(Duration::from_millis(20));
    assert!(device.poll().is_empty(), "a cancellation has no completion");
}

/// More STOREs than the plane takes are dropped at once; what was taken is stored.
#[test]
fn stores_beyond_the_bound_are_dropped() {
    let mut bench = Bench::new(&limits(small(), 16), |c| c.max_stores = 2);
    bench.device.set_row(0, &tokens(1, 8));
    bench.shelf.set(Mood::Slow);
    for chunk in 0..8 {
        bench.device.send(store(0, 0, chunk, chunk));
    }
    let answers = bench.device.take(8);
    let dropped = answers.iter().filter(|c| c.result == SAC_FETCH_DROPPED).count();
    let done = answers.iter().filter(|c| c.result == SAC_FETCH_DONE).count();
    assert!(done >= 2 && dropped >= 4 && done + dropped == 8, "{answers:?}");
    assert_eq!(bench.shelf.num_values(), done);
}

#[test]
fn a_plane_that_does_not_store_says_so() {
    let mut bench = Bench::new(&limits(small(), 16), |c| c.stores = false);
    bench.device.set_row(0, &tokens(1, 1));
    assert_eq!(bench.device.plane_word(std::mem::offset_of!(PlaneLine, stores)), 0);
    assert_eq!(bench.device.ask(store(0, 0, 0, 0)).result, SAC_FETCH_DROPPED);
}

#[test]
fn the_breaker_is_told_to_the_device() {
    let mut bench = Bench::plain();
    for state in [1, 2, 0] {
        bench.shelf.breaker.store(state, Ordering::SeqCst);
        let began = Instant::now();
        while bench.device.plane_word(std::mem::offset_of!(PlaneLine, breaker)) != state {
            assert!(began.elapsed() < PATIENCE, "breaker {state}");
            std::thread::yield_now();
        }
        bench.device.poll();
    }
}

/// No command comes while the store rests: the plane itself finds out that it is well again.
#[test]
fn a_store_that_rests_is_tried_without_commands() {
    let bench = Bench::plain();
    let calls = || bench.shelf.calls.load(Ordering::SeqCst);
    assert_eq!(calls(), 0, "a store that is used is not tried");
    bench.shelf.breaker.store(1, Ordering::SeqCst);
    let began = Instant::now();
    while calls() == 0 {
        assert!(began.elapsed() < PATIENCE, "nobody tries");
        std::thread::yield_now();
    }
    bench.shelf.breaker.store(2, Ordering::SeqCst);
    std::thread::sleep(Duration::from_millis(100));
    let tried = calls();
    std::thread::sleep(Duration::from_millis(200));
    assert_eq!(calls(), tried, "it is being tried");
}
