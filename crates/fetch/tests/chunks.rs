//! Chunks go to the store and come back: the same KV, in the blocks where it was.

mod common;

use common::*;
use saccade_chunk::{Codec, Dtype, Value};
use saccade_fetch::layout::*;
use saccade_fetch::{FetchMode, Threads};

/// Stores KV from a frame, loads it into another one, and returns what came, in chunk order.
fn there_and_back(bench: &mut Bench, kv: &[u8]) -> Vec<u8> {
    let device = &mut bench.device;
    device.set_row(1, &tokens(7, 3));
    device.set_frame(2, &device.blocks_of(kv));
    let stored = device.ask(store(1, 5, 2, 2));
    assert_eq!(stored.result, SAC_FETCH_DONE, "{stored:?}");
    let frame_bytes = device.region.layout().frame_bytes() as usize;
    (0..16).for_each(|frame| device.set_frame(frame, &vec![0xa5; frame_bytes]));
    let loaded = device.ask(load(1, 5, 2, 4));
    assert_eq!(loaded.result, SAC_FETCH_DONE, "{loaded:?}");
    assert_eq!(loaded.coded_bytes, stored.coded_bytes);
    for frame in (0..16).filter(|frame| *frame != 4) {
        assert!(device.frame(frame).iter().all(|byte| *byte == 0xa5), "frame {frame} was written");
    }
    let frame = device.frame(4);
    let written = device.limits.geometry.bytes();
    assert!(frame[written..].iter().all(|byte| *byte == 0xa5), "behind the blocks");
    device.chunk_of(&frame)
}

#[test]
fn exact_codecs_give_every_bit_back() {
    let shapes = [(1, 1, 8), (3, 2, 64), (1, 8, 128), (5, 3, 20)];
    let block_sizes = [8, 16, 32, 64, 128, 256];
    let mut round = 0;
    for (layers, heads, dim) in shapes {
        for dtype in [Dtype::Bf16, Dtype::F16, Dtype::F32, Dtype::Fp8] {
            for codec in [Codec::Raw, Codec::Lossless] {
                let g = geometry(layers, heads, dim, dtype);
                let block_size = block_sizes[round % block_sizes.len()];
                round += 1;
                let mut bench = Bench::new(&limits(g, block_size), |c| c.codec = codec);
                let kv = kv_like(&g, round as u64);
                let back = there_and_back(&mut bench, &kv);
                assert!(back == kv, "{g:?} {codec:?} blocks of {block_size}");
            }
        }
    }
}

#[test]
fn other_codecs_come_close() {
    for codec in [Codec::BinsDeflate, Codec::BinsZstd, Codec::BinsRans, Codec::Cachegen] {
        let g = geometry(2, 2, 64, Dtype::F32);
        let mut bench = Bench::new(&limits(g, 32), |c| c.codec = codec);
        let kv = kv_like(&g, 3);
        let back = there_and_back(&mut bench, &kv);
        let numbers = |bytes: &[u8]| -> Vec<f32> {
            bytes.as_chunks().0.iter().map(|b| f32::from_le_bytes(*b)).collect()
        };
        let (before, after) = (numbers(&kv), numbers(&back));
        // KV here is within 2: bins are steps of 1/127 of that, levels of 1/7.
        let most = if codec == Codec::Cachegen { 0.15 } else { 0.01 };
        let worst = before.iter().zip(&after).map(|(a, b)| (a - b).abs()).fold(0.0, f32::max);
        assert!(worst > 0.0 && worst < most, "{codec:?}: {worst}");
    }
}

/// Modes, and any division of threads, give the same bytes.
#[test]
fn every_mode_and_division_gives_the_same() {
    let g = geometry(3, 2, 16, Dtype::Bf16);
    let one_core = std::thread::available_parallelism().map(|_| "0".parse().unwrap()).ok();
    for mode in FetchMode::ALL {
        for (coders, placers) in [(1, 0), (1, 1), (3, 1), (1, 3)] {
            let mut bench = Bench::new(&limits(g, 16), |c| {
                c.mode = mode;
                c.threads = Some(Threads { network: 1, coders, placers, encoders: 1 });
                if placers == 0 {
                    c.cores.clone_from(&one_core);
                }
            });
            let kv: Vec<_> = (0..8).map(|seed| kv_like(&g, seed)).collect();
            let device = &mut bench.device;
            device.set_row(0, &tokens(1, 8));
            let model = device.limits.model_id;
            for (i, name) in names(&model, 0, &tokens(1, 8)).into_iter().enumerate() {
                let first_token = 256 * i as u32;
                let value = Value { model, name, first_token, geometry: g };
                bench.shelf.insert(Codec::ALL[i % 2], 0, &value, &kv[i]);
            }
            for round in 0..3 {
                for chunk in 0..8 {
                    device.send(load(0, 0, chunk, chunk));
                }
                for completion in device.take(8) {
                    assert_eq!(completion.result, SAC_FETCH_DONE, "{completion:?} {round}");
                }
                for (chunk, kv) in kv.iter().enumerate() {
                    let frame = device.frame(chunk as u32);
                    assert!(device.chunk_of(&frame) == *kv, "{mode:?} chunk {chunk}");
                    device.set_frame(chunk as u32, &vec![0; frame.len()]);
                }
            }
        }
    }
}

#[test]
fn what_is_incompressible_is_stored_and_comes_back() {
    let g = small();
    let mut bench = Bench::new(&limits(g, 16), |c| c.codec = Codec::Cachegen);
    let mut random = Random(11);
    let kv: Vec<u8> = (0..g.bytes()).map(|_| random.next() as u8).collect();
    assert_eq!(there_and_back(&mut bench, &kv).len(), kv.len());
    assert_eq!(bench.stats().completions[1][SAC_FETCH_DONE as usize], 1);
}

#[test]
fn lookups_count_the_first_chunks_that_are_there() {
    let mut bench = Bench::plain();
    let device = &mut bench.device;
    device.set_row(0, &tokens(1, 6));
    assert_eq!(device.ask(lookup(0, 0, 6)).num_chunks, 0);
    for chunk in [0, 1, 2, 4] {
        assert_eq!(device.ask(store(0, 0, chunk, chunk)).result, SAC_FETCH_DONE);
    }
    let found = device.ask(lookup(0, 0, 6));
    assert_eq!((found.result, found.num_chunks), (SAC_FETCH_DONE, 3));
    assert_eq!(device.ask(lookup(0, 0, 2)).num_chunks, 2);
    // A row that shares its first chunk and a half.
    let mut other = tokens(1, 6);
    other[300] += 1;
    device.set_row(0, &other);
    assert_eq!(device.ask(lookup(0, 0, 6)).num_chunks, 1);
    assert_eq!(device.ask(load(0, 0, 1, 0)).result, SAC_FETCH_MISS);
    assert_eq!(device.ask(load(0, 0, 0, 0)).result, SAC_FETCH_DONE);
    // Another salt finds none of it.
    assert_eq!(device.ask(lookup(0, 1, 6)).num_chunks, 0);
    assert_eq!(device.ask(load(0, 1, 0, 0)).result, SAC_FETCH_MISS);
}

#[test]
fn models_do_not_share() {
    let mut first = Bench::plain();
    first.device.set_row(0, &tokens(1, 1));
    assert_eq!(first.device.ask(store(0, 0, 0, 0)).result, SAC_FETCH_DONE);
    let other = saccade_fetch::Limits {
        model_id: saccade_chunk::ModelId::from_bytes([9; 32]),
        ..limits(small(), 16)
    };
    first.device.close();
    first.device = Device::new(&first.place, &other);
    first.device.wait_for_plane();
    first.device.set_row(0, &tokens(1, 1));
    assert_eq!(first.device.ask(lookup(0, 0, 1)).num_chunks, 0);
    assert_eq!(first.device.ask(load(0, 0, 0, 0)).result, SAC_FETCH_MISS);
}

#[test]
fn a_chunk_is_stored_once() {
    let mut bench = Bench::plain();
    let device = &mut bench.device;
    device.set_row(0, &tokens(1, 1));
    assert_eq!(device.ask(store(0, 0, 0, 0)).result, SAC_FETCH_DONE);
    let again = device.ask(store(0, 0, 0, 1));
    assert_eq!((again.result, again.coded_bytes), (SAC_FETCH_DONE, 0));
    // Two at a time: one of them is enough.
    bench.shelf.set(Mood::Slow);
    device.set_row(1, &tokens(2, 1));
    device.send(store(1, 0, 0, 2));
    device.send(store(1, 0, 0, 3));
    let mut results: Vec<_> = device.take(2).iter().map(|c| c.result).collect();
    results.sort_unstable();
    assert_eq!(results, [SAC_FETCH_DONE, SAC_FETCH_DROPPED]);
    assert_eq!(bench.shelf.puts.load(std::sync::atomic::Ordering::SeqCst), 2);
}
