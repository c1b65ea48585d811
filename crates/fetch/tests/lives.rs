//! Lives of both sides: devices that are replaced or closed, planes that end and come back.

mod common;

use std::mem::offset_of;
use std::time::{Duration, Instant};

use common::*;
use saccade_chunk::{Codec, Dtype};
use saccade_fetch::layout::*;
use saccade_fetch::{FetchError, Limits, Plane, Region};
use saccade_ring::Transport;

/// Far beyond what a loaded machine needs.
const STUCK: Duration = Duration::from_secs(20);

#[test]
fn a_plane_waits_for_a_region() {
    let place = Place::new();
    let plane = Plane::start(place.config(Codec::Raw), Shelf::new()).unwrap();
    std::thread::sleep(Duration::from_millis(50));
    std::fs::write(place.path(), b"not a region").unwrap();
    std::thread::sleep(Duration::from_millis(50));
    std::fs::write(place.path(), vec![7; 4096]).unwrap();
    std::thread::sleep(Duration::from_millis(50));
    assert!(!plane.has_ended());
    let mut device = Device::new(&place, &limits(small(), 16));
    device.wait_for_plane();
    device.set_row(0, &tokens(1, 1));
    assert_eq!(device.ask(lookup(0, 0, 1)).result, SAC_FETCH_DONE);
    plane.stop().unwrap();
}

#[test]
fn the_heartbeat_moves_whether_or_not_there_is_work() {
    for wakes in [true, false] {
        let chosen = Limits { device_wakes: wakes, ..limits(small(), 16) };
        let mut bench = Bench::new(&chosen, |_| {});
        bench.device.wakes = wakes;
        // How often is the host's to say; that it goes on is the plane's.
        for _ in 0..5 {
            let last = bench.device.heartbeat();
            let began = Instant::now();
            while bench.device.heartbeat() == last {
                assert!(began.elapsed() < STUCK, "the heartbeat stands still");
                std::thread::sleep(Duration::from_millis(1));
            }
        }
        bench.device.set_row(0, &tokens(1, 1));
        // Commands after a pause are found, with and without a wake-up.
        for _ in 0..20 {
            std::thread::sleep(Duration::from_millis(3));
            assert_eq!(bench.device.ask(lookup(0, 0, 1)).result, SAC_FETCH_DONE);
        }
    }
}

/// A device that wakes its plane is answered long before the plane would look by itself: a quarter
/// of `SAC_FETCH_HEARTBEAT_MS` later. A busy host makes both late.
#[test]
fn a_sleeping_plane_is_woken() {
    if asked_way().is_some() {
        return; // Over a network no plane is woken: it looks each millisecond.
    }
    let mut bench = Bench::plain();
    bench.device.set_row(0, &tokens(1, 1));
    let mut waited = [Vec::new(), Vec::new()];
    for turn in 0..80 {
        bench.device.wakes = turn % 2 == 0;
        std::thread::sleep(Duration::from_millis(2));
        let began = Instant::now();
        bench.device.ask(lookup(0, 0, 1));
        waited[turn % 2].push(began.elapsed());
    }
    waited.iter_mut().for_each(|waited| waited.sort());
    let [woken, by_itself] = waited.map(|waited| waited[20]);
    assert!(woken + Duration::from_millis(10) < by_itself, "{woken:?} and {by_itself:?}");
}

/// A new device in mid-flight: what the old one asked for is dropped, the new one is served, and
/// nothing is written into the old region any more.
#[test]
fn a_new_device_is_joined() {
    let mut bench = Bench::plain();
    bench.device.set_row(0, &tokens(1, 4));
    assert_eq!(bench.device.ask(store(0, 0, 0, 0)).result, SAC_FETCH_DONE);
    for (round, mood) in [Mood::Hung, Mood::Slow, Mood::Well].into_iter().enumerate() {
        bench.shelf.set(mood);
        for chunk in 0..4 {
            bench.device.send(load(0, 0, chunk, chunk));
        }
        // The second one closes before it is replaced, as a device does that ends in order.
        if round == 1 {
            bench.device.close();
        }
        let g = if round == 2 { geometry(1, 4, 16, Dtype::F16) } else { small() };
        let written =
            |device: &Device| device.plane_word(offset_of!(PlaneLine, completions_written));
        let counted = written(&bench.device);
        let old = std::mem::replace(&mut bench.device, Device::new(&bench.place, &limits(g, 32)));
        bench.device.wait_for_plane();
        let before: Vec<_> = (0..4).map(|frame| old.frame(frame)).collect();
        // Calls that hang for longer than this takes have nothing to say to a device that is gone.
        assert!(mood != Mood::Hung || written(&old) == counted, "{} completions", written(&old));
        let counted = written(&old);
        bench.shelf.set(Mood::Well);
        bench.device.set_row(0, &tokens(1, 4));
        assert_eq!(bench.device.ask(lookup(0, 0, 4)).result, SAC_FETCH_DONE);
        std::thread::sleep(Duration::from_millis(50));
        let after: Vec<_> = (0..4).map(|frame| old.frame(frame)).collect();
        assert!(before == after, "frames of a device that is gone were written");
        assert_eq!(counted, written(&old));
        assert!(bench.device.poll().is_empty());
    }
    assert_eq!(bench.stats().joins, 4);
}

/// A device that has closed is not joined, however often the plane looks.
#[test]
fn a_closed_region_is_left_alone() {
    let place = Place::new();
    let device = Device::new(&place, &limits(small(), 16));
    device.close();
    let plane = Plane::start(place.config(Codec::Raw), Shelf::new()).unwrap();
    std::thread::sleep(Duration::from_millis(100));
    assert_eq!(device.plane_word(offset_of!(PlaneLine, epoch)), 0);
    plane.stop().unwrap();
}

/// A new plane at the same region: the next epoch, counts from 0, and nothing read before the
/// device has answered the epoch.
#[test]
fn a_new_plane_joins_with_the_next_epoch() {
    let mut bench = Bench::plain();
    bench.device.set_row(0, &tokens(1, 4));
    bench.shelf.set(Mood::Hung);
    for life in 2..5 {
        for chunk in 0..4 {
            bench.device.send(load(0, 0, chunk, chunk));
        }
        drop(bench.plane.take()); // in the middle of it
        let frames: Vec<_> = (0..4).map(|frame| bench.device.frame(frame)).collect();
        bench.plane = Some(Plane::start(bench.config.clone(), bench.shelf.clone()).unwrap());
        let began = Instant::now();
        while bench.device.plane_word(offset_of!(PlaneLine, epoch)) != life {
            assert!(began.elapsed() < PATIENCE);
            std::thread::yield_now();
        }
        let heartbeat = bench.device.heartbeat();
        while bench.device.heartbeat() < heartbeat + 3 {
            assert!(began.elapsed() < PATIENCE, "it dies while it waits");
            std::thread::yield_now();
        }
        assert_eq!(bench.device.plane_word(offset_of!(PlaneLine, commands_read)), 0);
        assert_eq!(bench.device.plane_word(offset_of!(PlaneLine, completions_written)), 0);
        bench.device.wait_for_plane();
        bench.shelf.set(Mood::Well);
        assert_eq!(bench.device.ask(lookup(0, 0, 4)).result, SAC_FETCH_DONE);
        let after: Vec<_> = (0..4).map(|frame| bench.device.frame(frame)).collect();
        assert!(frames == after, "frames were written for an earlier life");
        bench.shelf.set(Mood::Hung);
    }
}

/// A device whose count is impossible is not believed; the plane begins a new life with it.
#[test]
fn a_miscounting_device_is_joined_anew() {
    let mut bench = Bench::plain();
    bench.device.miscount(1000);
    bench.device.wait_for_plane();
    bench.device.set_row(0, &tokens(1, 1));
    assert_eq!(bench.device.ask(lookup(0, 0, 1)).result, SAC_FETCH_DONE);
}

#[test]
fn buffers_too_small_for_a_chunk_end_the_plane() {
    let place = Place::new();
    let mut config = place.config(Codec::Lossless);
    config.buffer_bytes = 1 << 20;
    let _device = Device::new(&place, &limits(geometry(8, 8, 128, Dtype::Bf16), 16));
    let plane = Plane::start(config, Shelf::new()).unwrap();
    let began = Instant::now();
    while !plane.has_ended() {
        assert!(began.elapsed() < PATIENCE);
        std::thread::yield_now();
    }
    let ended = plane.stop();
    assert!(matches!(ended, Err(FetchError::Buffers { given: 0x10_0000, .. })), "{ended:?}");
}

/// Headers with any wrong field are refused, and named.
#[test]
fn wrong_headers_are_refused() {
    let place = Place::new();
    let whole = Region::create(&place.path(), &limits(small(), 16)).unwrap();
    let mut header = vec![0; size_of::<Header>()];
    whole.transport().get(0, &mut header).unwrap();
    let model = offset_of!(Header, model_id)..offset_of!(Header, model_id) + 32;
    let free = [
        offset_of!(Header, instance_id)..offset_of!(Header, instance_id) + 8,
        offset_of!(Header, device_wakes)..offset_of!(Header, device_wakes) + 4,
        offset_of!(Header, _pad0)..size_of::<Header>(),
        model,
    ];
    let (mut refused, mut random) = (0, Random(3));
    for word in 0..header.len() / 4 {
        for value in [0, u32::MAX, random.next() as u32] {
            let mut wrong = header.clone();
            wrong[4 * word..][..4].copy_from_slice(&value.to_le_bytes());
            whole.transport().put(0, &wrong).unwrap();
            let opened = Region::open(&place.path());
            let of_no_bound = free.iter().any(|range| range.contains(&(4 * word)));
            if of_no_bound || wrong == header {
                assert!(opened.is_ok(), "word {word}: {opened:?}");
            } else if let Err(error) = opened {
                assert!(!error.to_string().is_empty());
                refused += 1;
            } else {
                // A bound allows it: then every address is still inside the region.
                let layout = *opened.unwrap().layout();
                let last = layout.frame_at(layout.num_frames()).max(layout.command_at(0));
                assert!(last <= layout.region_bytes(), "word {word} is {value}");
            }
        }
    }
    assert!(refused > 80, "{refused}");
}

#[test]
fn limits_out_of_bounds_are_named() {
    type Edit = fn(&mut Limits);
    let place = Place::new();
    let cases: [(&str, Edit); 9] = [
        ("queue_len", |l| l.queue_len = 48),
        ("queue_len", |l| l.queue_len = 8192),
        ("num_entries", |l| l.num_entries = 0),
        ("entry_tokens", |l| l.entry_tokens = 300),
        ("num_frames", |l| l.num_frames = 5000),
        ("block_size", |l| l.block_size = 48),
        ("num_layers", |l| l.geometry.num_layers = 0),
        ("bytes of a chunk", |l| l.geometry.num_layers = 4096),
        ("num_events", |l| l.num_events = 3),
    ];
    for (field, edit) in cases {
        let mut wrong = limits(geometry(2, 8, 128, Dtype::F32), 16);
        edit(&mut wrong);
        let error = Region::create(&place.path(), &wrong).map(|_| ()).unwrap_err().to_string();
        assert!(error.starts_with(field), "{field}: {error}");
    }
    assert!(!place.path().exists());
}
