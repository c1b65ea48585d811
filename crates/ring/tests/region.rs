//! Regions as files: creation, validation, removal; and the whole path through two mappings.

mod common;

use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use common::{Ask, DEVICE, End, Ledger, SMALL, submit};
use saccade_ring::layout::RegionHeader;
use saccade_ring::testing::{FakeDevice, FakeDeviceThread};
use saccade_ring::{
    Finish, FrontendRing, InProcTransport, JoinError, JoinOptions, Region, RegionError,
    RegionLimits, ShmTransport, Transport, TransportError, default_region_dir,
};

/// A path that no other test uses; nothing is there.
fn fresh_path(name: &str) -> PathBuf {
    let file = format!("saccade-test-{}-{name}", std::process::id());
    let path = default_region_dir(1 << 20).join(file);
    // A leftover of a killed run with the same process id.
    let _ = std::fs::remove_file(&path);
    path
}

#[test]
fn the_default_region_fits_a_container() {
    let layout = RegionLimits::default().layout().expect("the defaults are in bounds");
    let mib = layout.region_bytes() as f64 / f64::from(1 << 20);
    assert!((41.0..43.0).contains(&mib), "{mib} MiB");
}

#[test]
fn limits_out_of_bounds_are_named() {
    let cases = [
        (RegionLimits { num_slots: 16, ..SMALL }, "num_slots is 16, must be 32 ..= 4096"),
        (RegionLimits { num_slots: 4128, ..SMALL }, "num_slots is 4128, must be 32 ..= 4096"),
        (RegionLimits { num_slots: 48, ..SMALL }, "num_slots is 48, must be a multiple of 32"),
        (RegionLimits { num_frontends: 0, ..SMALL }, "num_frontends is 0, must be 1 ..= 16"),
        (RegionLimits { num_frontends: 17, ..SMALL }, "num_frontends is 17, must be 1 ..= 16"),
        (RegionLimits { num_frontends: 2, ..SMALL }, "num_slots is 32, must be 64 ..= 4096"),
        (
            RegionLimits { out_ring_words: 63, ..SMALL },
            "out_ring_words is 63, must be 64 ..= 65536",
        ),
        (RegionLimits { out_ring_words: 72, ..SMALL }, "out_ring_words is 72, must be a multiple"),
        (RegionLimits { arena_bytes: 100, ..SMALL }, "arena_bytes is 100, must be 4096 ..="),
        (RegionLimits { arena_bytes: 4100, ..SMALL }, "arena_bytes is 4100, must be a multiple"),
    ];
    for (limits, expected) in cases {
        let error = limits.layout().expect_err(expected).to_string();
        assert!(error.starts_with(expected), "{error}");
    }
}

#[test]
fn a_region_file_is_private_reserved_and_removed() {
    let path = fresh_path("file");
    let region = Region::create(&path, &SMALL).expect("a writable directory");
    let metadata = std::fs::metadata(&path).expect("created");
    assert_eq!(metadata.permissions().mode() & 0o777, 0o600);
    assert_eq!(metadata.len(), SMALL.layout().expect("in bounds").region_bytes());
    use std::os::unix::fs::MetadataExt;
    assert!(metadata.blocks() * 512 >= metadata.len(), "pages are not reserved");
    let again = Region::create(&path, &SMALL).expect_err("exists");
    assert!(again.to_string().starts_with("cannot create "), "{again}");
    assert!(path.exists(), "a failed creation must not remove what it found");
    drop(region);
    assert!(!path.exists());
    let missing = ShmTransport::open(&path).expect_err("removed");
    assert!(missing.to_string().starts_with("cannot open "), "{missing}");
}

/// A file that no creator holds a lock on was left by a dead one. What is no region is never
/// removed.
#[test]
fn a_region_takes_the_place_of_a_dead_ones() {
    let (living, path) = (fresh_path("living"), fresh_path("dead"));
    let region = Region::create(&living, &SMALL).expect("a writable directory");
    std::fs::copy(&living, &path).expect("a writable directory");
    let next = Region::create(&path, &SMALL).expect("in the dead one's place");
    assert!(Region::create(&path, &SMALL).is_err(), "that one lives");
    drop((region, next));
    assert!(!path.exists());

    std::fs::write(&path, "notes").expect("a writable directory");
    let error = Region::create(&path, &SMALL).expect_err("no region").to_string();
    assert!(error.contains("is no region") && error.contains("dead"), "{error}");
    assert_eq!(std::fs::read(&path).expect("kept"), b"notes");
    std::fs::remove_file(&path).expect("just written");
}

#[test]
fn what_is_no_region_is_refused() {
    let path = fresh_path("junk");
    std::fs::write(&path, [0; 100]).expect("a writable directory");
    assert!(matches!(ShmTransport::open(&path), Err(RegionError::TooSmall { len: 100, .. })));
    std::fs::write(&path, [0; 4096]).expect("a writable directory");
    let transport = ShmTransport::open(&path).expect("large enough for a header");
    let error = FrontendRing::join(transport, 0).expect_err("no magic").to_string();
    assert!(error.contains("magic is 0"), "{error}");
    std::fs::remove_file(&path).expect("just written");
    let directory = ShmTransport::open(&std::env::temp_dir()).expect_err("a directory");
    assert!(matches!(directory, RegionError::Io { .. }), "{directory}");
}

/// Every header field is checked: damage one at a time, in ways that a peer or a bug might.
#[test]
fn a_damaged_header_is_refused_by_name() {
    type Damage = (&'static str, fn(&mut RegionHeader));
    let damages: [Damage; 20] = [
        ("magic", |h| h.magic ^= 1),
        ("abi_version", |h| h.abi_version += 1),
        ("header_bytes", |h| h.header_bytes = 128),
        ("layout_hash", |h| h.layout_hash ^= 1 << 40),
        ("region_bytes", |h| h.region_bytes += 1),
        ("num_slots", |h| h.num_slots = u32::MAX),
        ("num_frontends", |h| h.num_frontends = 0),
        ("out_ring_words", |h| h.out_ring_words = 1 << 20),
        ("arena_bytes", |h| h.arena_bytes = 1 << 40),
        ("device_offset", |h| h.device_offset = 0),
        ("stats_offset", |h| h.stats_offset += 64),
        ("acks_offset", |h| h.acks_offset = u64::MAX - 127),
        ("frontends_offset", |h| h.wake_offset = h.frontends_offset),
        ("frontends_offset", |h| h.frontends_offset = h.region_bytes),
        ("doorbells_offset", |h| h.doorbells_offset = h.region_bytes),
        ("cursors_offset", |h| h.cursors_offset += 4),
        ("status_offset", |h| h.status_offset = h.region_bytes - 128),
        ("descriptors_offset", |h| h.descriptors_offset = 1 << 63),
        ("out_ring_offset", |h| h.out_ring_offset += 8),
        ("arena_offset", |h| h.arena_offset += 128),
    ];
    for (field, damage) in damages {
        let transport = InProcTransport::create(&SMALL).expect("in bounds");
        let mut header: RegionHeader = bytemuck::Zeroable::zeroed();
        transport.get(0, bytemuck::bytes_of_mut(&mut header)).expect("in bounds");
        damage(&mut header);
        transport.put(0, bytemuck::bytes_of(&header)).expect("in bounds");
        match FrontendRing::join(transport, 0) {
            Err(JoinError::Region(RegionError::OutOfBounds { field: named, .. })) => {
                assert_eq!(named, field);
            }
            other => panic!("{field}: {other:?}"),
        }
    }
}

#[test]
fn no_access_leaves_the_region() {
    let path = fresh_path("bounds");
    let region = Region::create(&path, &SMALL).expect("a writable directory");
    let t = region.transport();
    let end = t.region_bytes();
    let outside = |result: Result<(), TransportError>| {
        assert!(matches!(result, Err(TransportError::OutOfRegion { .. })), "{result:?}");
    };
    for at in [end - 3, end, u64::MAX - 3, u64::MAX] {
        outside(t.put(at, &[0; 4]));
        outside(t.get(at, &mut [0; 4]));
    }
    for at in [end, end + 8, u64::MAX - 7] {
        outside(t.put_u64(at, 0));
        outside(t.get_u64(at).map(|_| ()));
        outside(t.put_u32(at, 0));
        outside(t.get_u32(at).map(|_| ()));
        outside(t.fetch_add_u32(at, 1).map(|_| ()));
        outside(t.get_words(at - 8, &mut [0; 2]));
        outside(t.wake_word(at));
        outside(t.wait_word(at, 0, Duration::ZERO));
    }
    let crooked = Err(TransportError::Misaligned { at: 4, align: 8 });
    assert_eq!(t.get_u64(4).map(|_| ()), crooked);
    assert_eq!(t.put_u64(4, 0), crooked);
    assert_eq!(t.get_words(4, &mut [0]), crooked);
    assert_eq!(t.put_u32(2, 0), Err(TransportError::Misaligned { at: 2, align: 4 }));
    t.put(end, &[]).expect("nothing, at the end");
}

#[test]
fn bytes_arrive_at_every_alignment() {
    let t = InProcTransport::zeroed(256);
    for at in 0..24u64 {
        for len in 0..40usize {
            t.put(0, &[0xee; 128]).expect("in bounds");
            let bytes: Vec<u8> = (1..=len as u8).collect();
            t.put(at, &bytes).expect("in bounds");
            let mut all = [0; 128];
            t.get(0, &mut all).expect("in bounds");
            let (before, rest) = all.split_at(at as usize);
            let (within, behind) = rest.split_at(len);
            assert_eq!(within, bytes, "{len} bytes at {at}");
            assert!(before.iter().chain(behind).all(|&byte| byte == 0xee), "{len} bytes at {at}");
            let mut part = vec![0; len];
            t.get(at, &mut part).expect("in bounds");
            assert_eq!(part, bytes);
        }
    }
}

/// Frontend and device on separate mappings of one file, asleep in futexes between tokens.
#[test]
fn two_mappings_serve_and_wake_each_other() {
    let path = fresh_path("serve");
    let region = Region::create(&path, &SMALL).expect("a writable directory");
    let device_side = ShmTransport::open(&path).expect("just created");
    assert_ne!(device_side.base_ptr(), region.transport().base_ptr());
    let device = FakeDevice::join(device_side, DEVICE).expect("our region");
    let _running = FakeDeviceThread::spawn(device, Duration::from_millis(2));
    let transport = ShmTransport::open(&path).expect("just created");
    let ring = FrontendRing::join_with(transport, 0, JoinOptions::default()).expect("our region");
    // The device must end these sleeps: one runs out only if a wake-up was lost.
    let lost = Duration::from_secs(60);
    let began = Instant::now();
    while ring.device().phase != saccade_ring::Phase::Ready {
        assert!(began.elapsed() < lost, "the device never got ready");
        std::thread::sleep(Duration::from_millis(1));
    }
    let (submitter, mut reader) = ring.split();
    let mut ledger = Ledger::default();
    let mut waits = 0;
    for round in 0..20 {
        while submitter.free_slots() == 0 {
            submitter.heartbeat();
        }
        let ask = Ask::new(vec![round, 1, 2], 30);
        let ticket = submit(&submitter, &mut ledger, &ask).expect("a ready device");
        while ledger.in_flight() > 0 {
            if reader.poll(&mut ledger).records == 0 {
                let asleep = Instant::now();
                reader.wait(lost);
                assert!(asleep.elapsed() < lost, "no wake-up in round {round}");
                waits += 1;
            }
        }
        assert_eq!(ledger.lines[&ticket].end, Some(End::Finished(Finish::Length, 30)));
    }
    assert!(waits > 0, "the reader never slept");
}
