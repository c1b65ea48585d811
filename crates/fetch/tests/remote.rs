//! A region over a network: who may reach it, and in which order things arrive. Over TCP, or with
//! SACCADE_TEST_RING=ucx over UCX; `UCX_TLS` says by which of its transports. The tests of the
//! plane itself run over either with that variable (`tests/common`).

mod common;

use std::io::{BufRead, BufReader};
use std::mem::offset_of;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use common::*;
use saccade_chunk::{Codec, Dtype};
use saccade_fetch::layout::*;
use saccade_fetch::{Door, FetchConfig, Limits, Plane};
use saccade_ring::InProcTransport;
use saccade_ring::remote::{Abi, ListenerOptions, Peer, RemoteListener, RemoteTransport};

fn until(what: &str, mut done: impl FnMut() -> bool) {
    let began = Instant::now();
    while !done() {
        assert!(began.elapsed() < PATIENCE, "{what}: not within {PATIENCE:?}");
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// Values of a row, in a store.
fn filled_shelf(limits: &Limits, row: &[u32]) -> Arc<Shelf> {
    let shelf = Shelf::new();
    for chunk in 0..row.len() / 256 {
        let kv = kv_like(&limits.geometry, chunk as u64);
        shelf.insert(Codec::Raw, 0, &value_of(limits, 0, row, chunk), &kv);
    }
    shelf
}

/// The device looks at a frame in the moment in which it is told that the frame is whole. Planes of
/// a chunk are put by several threads, each through a connection of its own.
#[test]
fn a_frame_is_there_before_its_completion() {
    let limits = limits(geometry(2, 4, 128, Dtype::Bf16), 16);
    let (place, row) = (Place::remote(), tokens(1, 16));
    let mut device = Device::new(&place, &limits);
    let mut config = place.config(Codec::Raw);
    config.threads =
        Some(saccade_fetch::Threads { network: 1, coders: 2, placers: 3, encoders: 1 });
    let plane = Plane::start(config, filled_shelf(&limits, &row)).unwrap();
    device.wait_for_plane();
    device.set_row(0, &row);
    let expected: Vec<_> =
        (0..16).map(|i| device.blocks_of(&kv_like(&limits.geometry, i))).collect();
    let empty = vec![0xa5; device.region.layout().frame_bytes() as usize];
    for round in 0..6 {
        (0..16).for_each(|frame| device.set_frame(frame, &empty));
        let first = device.send(load(0, 0, 0, 0));
        for chunk in 1..16 {
            device.send(load(0, 0, chunk, chunk));
        }
        let mut left = 16;
        while left > 0 {
            for completion in device.poll() {
                let frame = (completion.id - first) as u32;
                assert_eq!(completion.result, SAC_FETCH_DONE, "{completion:?}");
                let whole = device.frame(frame) == expected[frame as usize];
                assert!(whole, "round {round}: frame {frame} is not whole");
                left -= 1;
            }
        }
    }
    plane.stop().unwrap();
}

/// The last plane that came has the region. The one before it waits, and joins again when there is
/// no other.
#[test]
fn one_plane_at_a_time() {
    let place = Place::remote();
    let mut device = Device::new(&place, &limits(small(), 16));
    let start = || Plane::start(place.config(Codec::Raw), Shelf::new()).unwrap();
    let epoch = |device: &Device| device.plane_word(offset_of!(PlaneLine, epoch));
    let first = start();
    device.wait_for_plane();
    until("the first life", || first.stats().joins == 1);
    let second = start();
    until("the second life", || epoch(&device) == 2);
    device.wait_for_plane();
    device.set_row(0, &tokens(1, 1));
    // Longer than the first one waits between attempts.
    for _ in 0..30 {
        assert_eq!(device.ask(lookup(0, 0, 1)).result, SAC_FETCH_DONE);
        std::thread::sleep(Duration::from_millis(100));
    }
    assert_eq!((epoch(&device), first.stats().joins, second.stats().joins), (2, 1, 1));
    second.stop().unwrap();
    device.wait_for_plane();
    assert_eq!(device.ask(lookup(0, 0, 1)).result, SAC_FETCH_DONE);
    assert_eq!((epoch(&device), first.stats().joins), (3, 2));
    first.stop().unwrap();
}

/// A plane that is stopped in the middle of its work, and goes on when another one has joined: it
/// writes nothing any more, neither frames nor counts.
#[test]
fn what_a_displaced_process_had_begun_never_lands() {
    let limits = limits(geometry(2, 4, 128, Dtype::Bf16), 16);
    for round in 0..4u64 {
        let place = Place::remote();
        let mut device = Device::new(&place, &limits);
        let Door::Remote(peer) = place.config(Codec::Raw).door else { panic!("not remote") };
        let old = spawn_plane(&peer.address);
        device.wait_for_plane();
        device.set_row(0, &tokens(1, 16));
        for chunk in 0..16 {
            device.send(load(0, 0, chunk, chunk));
        }
        // The others are on their way into their frames.
        let mut come = 0;
        until("chunks have come", || {
            come += device.poll().len() as u64;
            come > round
        });
        signal(&old, libc::SIGSTOP);
        let shelf = Shelf::new();
        let new = Plane::start(place.config(Codec::Raw), shelf.clone()).unwrap();
        device.wait_for_plane();
        // All is the device's again.
        let frame_bytes = device.region.layout().frame_bytes() as usize;
        (0..16).for_each(|frame| device.set_frame(frame, &vec![0x5a; frame_bytes]));
        let counts = |device: &Device| {
            [offset_of!(PlaneLine, epoch), offset_of!(PlaneLine, completions_written)]
                .map(|field| device.plane_word(field))
        };
        let before = counts(&device);
        signal(&old, libc::SIGCONT);
        std::thread::sleep(Duration::from_millis(400));
        assert_eq!(counts(&device), before, "round {round}");
        for frame in 0..16 {
            let untouched = device.frame(frame).iter().all(|byte| *byte == 0x5a);
            assert!(untouched, "round {round}: frame {frame} was written");
        }
        assert_eq!(device.ask(lookup(0, 0, 1)).result, SAC_FETCH_DONE);
        kill(old);
        new.stop().unwrap();
    }
}

/// A killed plane's place is taken at once, by a process that does not know of it.
#[test]
fn a_killed_process_is_followed_by_another() {
    let place = Place::remote();
    let mut device = Device::new(&place, &limits(geometry(2, 4, 128, Dtype::Bf16), 16));
    let Door::Remote(peer) = place.config(Codec::Raw).door else { panic!("not remote") };
    device.set_row(0, &tokens(1, 16));
    for _ in 0..3 {
        let plane = spawn_plane(&peer.address);
        device.wait_for_plane();
        for chunk in 0..16 {
            device.send(load(0, 0, chunk, chunk));
        }
        until("a chunk has come", || !device.poll().is_empty());
        kill(plane);
    }
    let plane = spawn_plane(&peer.address);
    device.wait_for_plane();
    assert_eq!(device.ask(load(0, 0, 3, 3)).result, SAC_FETCH_DONE);
    kill(plane);
}

#[test]
fn a_port_of_another_region_is_not_joined() {
    let limits = saccade_ring::RegionLimits {
        num_slots: 32,
        arena_bytes: 1 << 16,
        ..saccade_ring::RegionLimits::default()
    };
    let ring = InProcTransport::create(&limits).unwrap();
    let listener = RemoteListener::start("127.0.0.1:0", ring, ListenerOptions::default()).unwrap();
    let config = FetchConfig::at(
        Door::Remote(Peer::unproved(way(), listener.address().to_string())),
        Codec::Raw,
    );
    let plane = Plane::start(config, Shelf::new()).unwrap();
    let place = Place::remote();
    let _device = Device::new(&place, &common::limits(small(), 16));
    let Door::Remote(peer) = place.config(Codec::Raw).door else { panic!("not remote") };
    let refused = RemoteTransport::connect_once(&peer, Abi::RING, 1, 1).unwrap_err().to_string();
    assert!(refused.contains("the region for the fetch plane, of this build"), "{refused}");
    std::thread::sleep(Duration::from_millis(300));
    assert!(!plane.has_ended() && plane.stats().joins == 0);
    plane.stop().unwrap();
}

// ---- planes in other processes -----------------------------------------------------------------

/// This binary again, as a plane whose store takes 30 ms for each call.
fn spawn_plane(address: &str) -> Child {
    let mut child = Command::new(std::env::current_exe().expect("this test"))
        .args(["--exact", "role_plane", "--ignored", "--nocapture", "--test-threads=1"])
        .env("FETCH_ADDRESS", address)
        .stdout(Stdio::piped())
        .spawn()
        .expect("this test starts again");
    let lines = BufReader::new(child.stdout.take().expect("piped")).lines();
    assert!(lines.map_while(Result::ok).any(|line| line.contains("READY")));
    child
}

#[test]
#[ignore = "a process of other tests"]
fn role_plane() {
    let address = std::env::var("FETCH_ADDRESS").expect("set by the test that starts this");
    let limits = limits(geometry(2, 4, 128, Dtype::Bf16), 16);
    let shelf = filled_shelf(&limits, &tokens(1, 16));
    shelf.set(Mood::Slow);
    let config = FetchConfig::at(Door::Remote(Peer::unproved(way(), address)), Codec::Raw);
    let _plane = Plane::start(config, shelf).unwrap();
    println!("READY");
    std::thread::sleep(Duration::from_secs(120)); // killed long before
}

fn signal(child: &Child, signal: i32) {
    // SAFETY: a signal to our own child, which has not been waited for.
    assert_eq!(unsafe { libc::kill(child.id() as i32, signal) }, 0);
}

/// SIGKILL, and gone.
fn kill(mut child: Child) {
    child.kill().expect("our child");
    child.wait().expect("our child");
}
