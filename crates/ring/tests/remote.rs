//! Regions over a network: what the transport promises, processes that die, and peers that talk
//! nonsense.
//!
//! Over TCP, or with SACCADE_TEST_RING=ucx over UCX: `UCX_TLS` says which of its transports is
//! under test, and `tests/ucx.sh` goes through them. The tests of the ring itself run over either
//! with SACCADE_TEST_RING=tcp or =ucx (`tests/common`).
#![cfg(feature = "remote")]

mod common;

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use common::{Ask, DEVICE, End, Ledger, PATIENT, SMALL, submit, way};
use saccade_ring::handshake::{Abi, Access, HandshakeError, MAX_LANES, Visitor, join};
use saccade_ring::remote::stream::Request;
use saccade_ring::remote::{
    ListenerOptions, Peer, RemoteEvent, RemoteListener, RemoteTransport, SecretFile, Way,
    check_address,
};
use saccade_ring::testing::{FakeDevice, FakeDeviceThread};
use saccade_ring::{
    Finish, FrontendRing, InProcTransport, Region, RegionLimits, ShmTransport, Transport,
    TransportError, default_region_dir,
};

/// Long enough for a busy machine; nothing that is tested takes a tenth of it.
const SOON: Duration = Duration::from_secs(20);

fn listen(region: &InProcTransport) -> RemoteListener {
    RemoteListener::start("127.0.0.1:0", region.clone(), ListenerOptions::default())
        .expect("free port")
}

fn connect(address: SocketAddr) -> RemoteTransport {
    RemoteTransport::connect(&Peer::unproved(way(), address.to_string()), |_| ())
        .expect("our listener")
}

fn until(what: &str, mut done: impl FnMut() -> bool) {
    let began = Instant::now();
    while !done() {
        assert!(began.elapsed() < SOON, "{what}: not within {SOON:?}");
        std::thread::sleep(Duration::from_micros(200));
    }
}

// ---- what a transport promises -----------------------------------------------------------------

#[test]
fn bytes_and_words_arrive_whatever_their_place_and_length() {
    let region = InProcTransport::create(&RegionLimits { arena_bytes: 1 << 20, ..SMALL })
        .expect("in bounds");
    let (listener, end) = (listen(&region), region.region_bytes());
    let remote = connect(listener.address());
    assert_eq!(remote.region_bytes(), end);
    for (at, len) in [(end - 300, 0), (end - 299, 7), (end - 293, 64), (end - 500_001, 200_001)] {
        let bytes: Vec<u8> = (0..len).map(|i| (i * 7 + 3) as u8).collect();
        remote.put(at, &bytes).expect("in bounds");
        remote.fence();
        let (mut here, mut there) = (vec![0; len], vec![0; len]);
        region.get(at, &mut here).expect("in bounds");
        remote.get(at, &mut there).expect("in bounds");
        assert!(here == bytes && there == bytes, "{len} bytes at {at}");
    }
    let at = end - 128 * 1024;
    remote.put_u32(at, 7).expect("in bounds");
    remote.put_u64(at + 8, u64::MAX - 1).expect("in bounds");
    assert_eq!(remote.get_u32(at), Ok(7));
    assert_eq!(remote.get_u64(at + 8), Ok(u64::MAX - 1));
    assert_eq!(remote.fetch_add_u32(at, u32::MAX), Ok(7));
    assert_eq!(region.get_u32(at), Ok(6));
    for words in [1, 63, 64, 65, 9000] {
        let expected: Vec<u64> = (0..words).map(|i| i * 0x0101_0101_0101).collect();
        remote.put(at, bytemuck::cast_slice(&expected)).expect("in bounds");
        let mut got = vec![0; words as usize];
        remote.get_words(at, &mut got).expect("in bounds");
        assert!(got == expected, "{words} words");
    }
}

#[test]
fn no_access_leaves_the_region() {
    let region = InProcTransport::create(&SMALL).expect("in bounds");
    let listener = listen(&region);
    let (t, end) = (connect(listener.address()), region.region_bytes());
    let outside = |result: Result<(), TransportError>| {
        assert!(matches!(result, Err(TransportError::OutOfRegion { .. })), "{result:?}");
    };
    outside(t.put(end - 3, &[0; 4]));
    outside(t.get(u64::MAX, &mut [0; 4]));
    outside(t.put_u64(end, 0));
    outside(t.put_u32(u64::MAX - 3, 0));
    outside(t.get_u64(end).map(|_| ()));
    outside(t.get_u32(end).map(|_| ()));
    outside(t.fetch_add_u32(end, 1).map(|_| ()));
    outside(t.get_words(end - 8, &mut [0; 2]));
    outside(t.wake_word(end));
    outside(t.wait_word(end, 0, Duration::ZERO));
    let crooked = Err(TransportError::Misaligned { at: 4, align: 8 });
    assert_eq!(t.get_u64(4).map(|_| ()), crooked);
    assert_eq!(t.put_u64(4, 0), crooked);
    assert_eq!(t.get_words(4, &mut [0]), crooked);
    assert_eq!(t.get_u64(0), region.get_u64(0), "and it still works");
}

/// A put of a word comes after the payload put before it, a get of a word comes before the payload
/// read after it, and no word is ever torn.
#[test]
fn words_are_whole_and_order_their_payload() {
    const ROUNDS: u64 = 100;
    const WORDS: usize = 24;
    /// Long enough for a copy in several pieces.
    const MANY: usize = 500;
    let region = InProcTransport::create(&RegionLimits { arena_bytes: 1 << 16, ..SMALL })
        .expect("in bounds");
    let listener = listen(&region);
    let remote = connect(listener.address());
    let base = region.region_bytes() - (1 << 15);
    let (there, here, acknowledged) = (base, base + 1024, base + 512);
    // Both halves equal: a torn word shows.
    let word = |round: u64| round << 32 | round;
    let whole = |word: u64| {
        assert_eq!(word >> 32, word & 0xffff_ffff, "torn");
        word >> 32
    };
    std::thread::scope(|scope| {
        // The device's side: payload, then a word, as fast as it can; and checks the other side's.
        scope.spawn(|| {
            let began = Instant::now();
            for round in 1.. {
                for i in 1..=MANY as u64 {
                    region.put_u64(here + 8 * i, word(round)).expect("in bounds");
                }
                region.put_u64(here, word(round)).expect("in bounds");
                // What the peer put with this word does not change before it is acknowledged.
                let flag = whole(region.get_u64(there).expect("in bounds"));
                let mut payload = [0u8; 8 * WORDS];
                region.get(there + 8, &mut payload).expect("in bounds");
                if region.get_u64(acknowledged) != Ok(flag) {
                    let words: &[u64] = bytemuck::cast_slice(&payload);
                    assert!(words.iter().all(|&w| whole(w) == flag), "{flag}: {words:?}");
                    region.put_u64(acknowledged, flag).expect("in bounds");
                }
                // The other thread may have failed.
                if flag == ROUNDS || began.elapsed() > 3 * SOON {
                    break;
                }
            }
        });
        let mut words = [0u64; MANY + 1];
        for round in 1..=ROUNDS {
            remote.put(there + 8, bytemuck::cast_slice(&[word(round); WORDS])).expect("up");
            remote.put_u64(there, word(round)).expect("up");
            let flag = whole(remote.get_u64(here).expect("up"));
            remote.get_words(here, &mut words).expect("up");
            assert!(words[1..].iter().all(|&w| whole(w) >= flag), "{flag}: {words:?}");
            until("acknowledged", || remote.get_u64(acknowledged) == Ok(round));
        }
    });
}

#[test]
fn additions_of_several_peers_all_count() {
    const EACH: u32 = 100;
    let region = InProcTransport::create(&SMALL).expect("in bounds");
    let listener = listen(&region);
    let at = region.region_bytes() - 64;
    let peers: Vec<_> = (0..2).map(|_| connect(listener.address())).collect();
    std::thread::scope(|scope| {
        for peer in &peers {
            for _ in 0..2 {
                scope.spawn(move || {
                    for _ in 0..EACH {
                        peer.fetch_add_u32(at, 1).expect("up");
                    }
                });
            }
        }
    });
    assert_eq!(region.get_u32(at), Ok(4 * EACH));
}

/// The device sleeps on a word; a frontend on another host wakes it.
#[test]
fn a_peer_wakes_who_sleeps_on_a_word() {
    let region = InProcTransport::create(&SMALL).expect("in bounds");
    let listener = listen(&region);
    let remote = connect(listener.address());
    let at = region.region_bytes() - 64;
    let awake = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let began = Instant::now();
            region.wait_word(at, 0, Duration::from_secs(60)).expect("in bounds");
            assert!(began.elapsed() < SOON, "slept on");
            awake.store(true, Ordering::Relaxed);
        });
        // The sleeper may not sleep yet: a hint is repeated until it has worked.
        until("awake", || {
            remote.wake_word(at).expect("up");
            awake.load(Ordering::Relaxed)
        });
    });
}

// ---- processes ---------------------------------------------------------------------------------

/// A region's file that is removed, and its creator's mapping.
fn region_file(name: &str) -> Region {
    let file = format!("saccade-remote-{}-{name}", std::process::id());
    let path = default_region_dir(1 << 20).join(file);
    // A leftover of a killed run with the same process id.
    let _ = std::fs::remove_file(&path);
    Region::create(&path, &SMALL).expect("a writable directory")
}

/// This binary again, as one of the ignored tests below.
fn spawn(role: &str, variables: &[(&str, &str)]) -> (Child, String) {
    let mut child = Command::new(std::env::current_exe().expect("this test"))
        .args(["--exact", role, "--ignored", "--nocapture", "--test-threads=1"])
        .envs(variables.iter().copied())
        .stdout(Stdio::piped())
        .spawn()
        .expect("this test starts again");
    let lines = BufReader::new(child.stdout.take().expect("piped")).lines();
    let said = lines
        .map_while(Result::ok)
        .find_map(|line| line.split_once("READY ").map(|(_, said)| said.to_owned()));
    (child, said.expect("the process says that it is ready"))
}

/// SIGKILL, and gone.
fn kill(mut child: Child) {
    child.kill().expect("our child");
    child.wait().expect("our child");
}

fn spawn_device(path: &Path, address: &str) -> (Child, String) {
    let path = path.to_str().expect("an ASCII name");
    spawn("role_device", &[("RING_FILE", path), ("RING_ADDRESS", address)])
}

#[test]
#[ignore = "a process of other tests"]
fn role_device() {
    let variable = |name| std::env::var(name).expect("set by the test that starts this");
    let region = ShmTransport::open(Path::new(&variable("RING_FILE"))).expect("made by the test");
    let device = FakeDevice::join(region.clone(), DEVICE).expect("our region");
    let _running = FakeDeviceThread::spawn(device, Duration::from_millis(5));
    let options = ListenerOptions::default();
    let listener = RemoteListener::start(&variable("RING_ADDRESS"), region, options).expect("free");
    println!("READY {}", listener.address());
    std::thread::sleep(Duration::from_secs(120)); // killed long before
}

#[test]
#[ignore = "a process of other tests"]
fn role_frontend() {
    let address = std::env::var("RING_ADDRESS").expect("set by the test that starts this");
    let transport =
        RemoteTransport::connect(&Peer::unproved(way(), &address), |_| ()).expect("our listener");
    let ring = FrontendRing::join_with(transport, 0, PATIENT).expect("our region");
    until("ready", || ring.device().ready());
    let (submitter, mut reader) = ring.split();
    let mut ledger = Ledger::default();
    until("submitted", || submit(&submitter, &mut ledger, &Ask::new(vec![1], 900)).is_ok());
    until("first token", || reader.poll(&mut ledger).records > 0);
    println!("READY streaming");
    loop {
        reader.poll(&mut ledger);
        submitter.heartbeat();
    }
}

/// Streams until the ledger is empty.
fn run_to_end<T: Transport>(
    reader: &mut saccade_ring::Reader<T>,
    submitter: &saccade_ring::Submitter<T>,
    ledger: &mut Ledger,
) {
    until("every ticket ends", || {
        reader.poll(ledger);
        reader.wait(Duration::from_micros(200));
        submitter.heartbeat();
        ledger.in_flight() == 0
    });
}

/// A device in another process: serves, dies under load, comes back, is held up. Every ticket ends,
/// nothing hangs, and the frontend continues.
#[test]
fn a_device_process_serves_dies_and_comes_back() {
    let region = region_file("device");
    let (device, address) = spawn_device(region.path(), "127.0.0.1:0");
    let events = Arc::new(Mutex::new(Vec::new()));
    let noted = Arc::clone(&events);
    let notice = move |event| noted.lock().expect("no panic").push(event);
    let transport = Arc::new(
        RemoteTransport::connect(&Peer::unproved(way(), &address), notice).expect("our listener"),
    );
    let ring = FrontendRing::join_with(Arc::clone(&transport), 0, PATIENT).expect("our region");
    until("ready", || ring.device().ready());
    let (submitter, mut reader) = ring.split();
    let mut ledger = Ledger::default();
    until("the slots are ours", || submitter.free_slots() == 32);
    for i in 0..32 {
        submit(&submitter, &mut ledger, &Ask::new(vec![i, 2], 1 + i)).expect("ready");
    }
    run_to_end(&mut reader, &submitter, &mut ledger);
    assert!(ledger.lines.values().all(|l| matches!(l.end, Some(End::Finished(..)))));

    // Killed: running requests are lost soon, and reported as such.
    for i in 0..16 {
        submit(&submitter, &mut ledger, &Ask::new(vec![i], 900)).expect("ready");
    }
    until("tokens flow", || reader.poll(&mut ledger).records > 0);
    kill(device);
    // By the end of the connection: its heartbeat would be missed after ten minutes (PATIENT).
    run_to_end(&mut reader, &submitter, &mut ledger);
    assert_eq!(ledger.lines.values().filter(|l| l.end == Some(End::Lost)).count(), 16);
    assert!(matches!(transport.get_u64(0), Err(TransportError::Down(_))));
    assert!(matches!(events.lock().expect("no panic")[..], [RemoteEvent::Lost(_)]));

    // Back, with the same region: the same frontend serves, and no slot is missing.
    let (device, _) = spawn_device(region.path(), &address);
    until("ready again", || submitter.device().ready());
    until("all slots are free", || {
        reader.wait(Duration::ZERO);
        submitter.free_slots() == 32
    });
    submit(&submitter, &mut ledger, &Ask::new(vec![5], 30)).expect("ready");
    run_to_end(&mut reader, &submitter, &mut ledger);
    assert_eq!(ledger.lines[&ledger.order[48]].end, Some(End::Finished(Finish::Length, 30)));

    // Held up, with its sockets open: an operation has a bound, and afterwards all is well.
    // SAFETY: a signal to our own child, which has not been waited for.
    unsafe { libc::kill(device.id() as i32, libc::SIGSTOP) };
    until("an operation that gives up", || transport.get_u64(0).is_err());
    // SAFETY: as above.
    unsafe { libc::kill(device.id() as i32, libc::SIGCONT) };
    until("answers again", || transport.get_u64(0).is_ok());
    kill(device);
}

/// A killed frontend takes no other plane with it, and its place can be taken.
#[test]
fn a_frontend_process_dies_and_another_takes_its_place() {
    let region = region_file("frontend");
    let (device, address) = spawn_device(region.path(), "127.0.0.1:0");
    for _ in 0..3 {
        let (frontend, said) = spawn("role_frontend", &[("RING_ADDRESS", &address)]);
        assert_eq!(said, "streaming");
        kill(frontend);
    }
    let transport = RemoteTransport::connect(&Peer::unproved(way(), &address), |_| ())
        .expect("the device lives");
    let ring = FrontendRing::join_with(transport, 0, PATIENT).expect("our region");
    until("ready", || ring.device().ready());
    let (submitter, mut reader) = ring.split();
    until("the slots are ours", || submitter.free_slots() == 32);
    let mut ledger = Ledger::default();
    submit(&submitter, &mut ledger, &Ask::new(vec![3], 50)).expect("ready");
    run_to_end(&mut reader, &submitter, &mut ledger);
    assert_eq!(ledger.lines[&ledger.order[0]].end, Some(End::Finished(Finish::Length, 50)));
    kill(device);
}

#[test]
#[ignore = "a process of other tests"]
fn role_writer() {
    let address = std::env::var("RING_ADDRESS").expect("set by the test that starts this");
    let transport =
        RemoteTransport::connect(&Peer::unproved(way(), &address), |_| ()).expect("our listener");
    let end = transport.region_bytes();
    println!("READY writing");
    loop {
        transport.put(end - 64, &[7; 32]).expect("up");
    }
}

/// A peer dies with puts in flight that the listener has not done. Over TCP, UCX would end the
/// process of a listener that cannot confirm them.
#[test]
fn puts_of_a_dead_process_do_no_harm() {
    let region = region_file("writer");
    let (mut device, address) = spawn_device(region.path(), "127.0.0.1:0");
    let id = device.id() as i32;
    // SAFETY: a signal to our own child, which has not been waited for.
    let signal = |signal| assert_eq!(unsafe { libc::kill(id, signal) }, 0);
    for round in 0..3 {
        let (writer, _) = spawn("role_writer", &[("RING_ADDRESS", &address)]);
        signal(libc::SIGSTOP);
        // Whatever the network holds is full, or its puts wait for a confirmation.
        std::thread::sleep(Duration::from_millis(200));
        kill(writer);
        signal(libc::SIGCONT);
        until("another peer is served", || {
            assert_eq!(device.try_wait().expect("our child"), None, "round {round}: it has ended");
            RemoteTransport::connect(&Peer::unproved(way(), &address), |_| ())
                .is_ok_and(|transport| transport.get_u64(0) == region.transport().get_u64(0))
        });
    }
    kill(device);
}

/// Another region at the same address is not mistaken for the joined one.
#[test]
fn another_region_at_the_address_is_not_joined() {
    let (first, second) = (region_file("first"), region_file("second"));
    let (device, address) = spawn_device(first.path(), "127.0.0.1:0");
    let replaced = Arc::new(AtomicBool::new(false));
    let told = Arc::clone(&replaced);
    let notice = move |event| told.store(event == RemoteEvent::Replaced, Ordering::Relaxed);
    let transport =
        RemoteTransport::connect(&Peer::unproved(way(), &address), notice).expect("our listener");
    kill(device);
    until("lost", || transport.get_u64(0).is_err());
    let (device, _) = spawn_device(second.path(), &address);
    until("told", || replaced.load(Ordering::Relaxed));
    let error = transport.get_u64(0).expect_err("another region").to_string();
    assert!(error.contains("another region"), "{error}");
    kill(device);
}

// ---- secrets -----------------------------------------------------------------------------------

fn secret_file(folder: &tempfile::TempDir, name: &str, byte: u8) -> Arc<SecretFile> {
    let path = folder.path().join(name);
    std::fs::write(&path, [byte; 32]).expect("a folder of ours");
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o600))
        .expect("a file of ours");
    Arc::new(SecretFile::open(&path).expect("private"))
}

fn listen_with(region: &InProcTransport, secret: Arc<SecretFile>) -> RemoteListener {
    let options = ListenerOptions { secret: Some(secret), ..ListenerOptions::default() };
    RemoteListener::start("127.0.0.1:0", region.clone(), options).expect("free port")
}

#[test]
fn only_peers_with_the_secret_are_let_in() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let (ours, other) = (secret_file(&folder, "ours", 1), secret_file(&folder, "other", 2));
    let region = InProcTransport::create(&SMALL).expect("in bounds");
    let listener = listen_with(&region, Arc::clone(&ours));
    let address = listener.address().to_string();
    let join = |secret: Option<&Arc<SecretFile>>| {
        let peer = Peer { way: way(), address: address.clone(), secret: secret.cloned() };
        RemoteTransport::connect(&peer, |_| ()).map_err(|error| error.to_string())
    };
    let joined = join(Some(&ours)).expect("it has the secret");
    assert_eq!(joined.get_u64(0), region.get_u64(0));
    assert_eq!(listener.refused(), 0);
    for (secret, expected) in [
        (None, "refused: only the listener has a secret: name it with --ring-secret-file"),
        (Some(&other), "refused: the secrets of the two sides differ"),
    ] {
        let error = join(secret).expect_err(expected);
        assert!(error.contains(expected), "{error}");
    }
    until("counted", || listener.refused() == 2);
    assert_eq!(joined.get_u64(0), region.get_u64(0), "the peer that is in goes on");
    let open = listen(&region);
    let peer = Peer { way: way(), address: open.address().to_string(), secret: Some(ours) };
    let error = RemoteTransport::connect(&peer, |_| ()).expect_err("no secret there").to_string();
    assert!(error.contains("refused: only the joining side has a secret"), "{error}");
}

/// Both sides change their secret while they are connected. What is there stays; the next
/// connection needs the new one.
#[test]
fn a_secret_is_changed_while_it_is_in_use() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let (here, there) = (secret_file(&folder, "here", 1), secret_file(&folder, "there", 1));
    let region = InProcTransport::create(&SMALL).expect("in bounds");
    let listener = listen_with(&region, there);
    let peer = Peer { way: way(), address: listener.address().to_string(), secret: Some(here) };
    let joined = RemoteTransport::connect(&peer, |_| ()).expect("the same secret");
    let change = |name| std::fs::write(folder.path().join(name), [5; 40]).expect("ours");
    change("there");
    assert_eq!(joined.get_u64(0), region.get_u64(0));
    let error = RemoteTransport::connect(&peer, |_| ()).expect_err("the old one").to_string();
    assert!(error.contains("the secrets of the two sides differ"), "{error}");
    change("here");
    let again = RemoteTransport::connect(&peer, |_| ()).expect("the new one");
    assert_eq!(again.get_u64(0), region.get_u64(0));
}

/// A listener that comes back with another secret: the frontend says so, stays down, and is back
/// when the secrets are the same again.
#[test]
fn a_listener_that_comes_back_with_another_secret_is_reported() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let ours = secret_file(&folder, "ours", 1);
    let region = InProcTransport::create(&SMALL).expect("in bounds");
    let start = |address: &str, secret: Arc<SecretFile>| {
        let options = ListenerOptions { secret: Some(secret), ..ListenerOptions::default() };
        RemoteListener::start(address, region.clone(), options).expect("free")
    };
    let listener = start("127.0.0.1:0", Arc::clone(&ours));
    let peer = Peer {
        way: way(),
        address: listener.address().to_string(),
        secret: Some(Arc::clone(&ours)),
    };
    let events = Arc::new(Mutex::new(Vec::new()));
    let noted = Arc::clone(&events);
    let notice = move |event| noted.lock().expect("no panic").push(event);
    let joined = RemoteTransport::connect(&peer, notice).expect("the same secret");
    drop(listener);
    until("lost", || joined.get_u64(0).is_err());
    let listener = start(&peer.address, secret_file(&folder, "other", 2));
    let has =
        |wanted: fn(&RemoteEvent) -> bool| events.lock().expect("no panic").iter().any(wanted);
    until("told", || has(|event| matches!(event, RemoteEvent::Refused(_))));
    let error = joined.get_u64(0).expect_err("down").to_string();
    assert!(error.contains("the secrets of the two sides differ"), "{error}");
    drop(listener);
    let _listener = start(&peer.address, ours);
    until("back", || joined.get_u64(0) == region.get_u64(0));
    assert!(has(|event| *event == RemoteEvent::Back));
}

#[test]
fn an_address_that_others_reach_needs_a_secret() {
    for open in ["0.0.0.0:7700", "[::]:7700", "10.201.7.1:7700"] {
        let error = check_address(open, false).expect_err(open).to_string();
        assert!(
            error.contains("--ring-secret-file FILE (head -c 32 /dev/urandom > FILE"),
            "{error}"
        );
        assert!(check_address(open, true).is_ok(), "{open}");
    }
    for own in ["127.0.0.1:7700", "[::1]:7700", "127.8.0.1:0"] {
        assert!(check_address(own, false).is_ok(), "{own}");
    }
    let region = InProcTransport::create(&SMALL).expect("in bounds");
    let started = RemoteListener::start("0.0.0.0:0", region, ListenerOptions::default());
    let error = started.expect_err("no secret").to_string();
    assert!(error.starts_with("0.0.0.0:0 can be reached from other hosts"), "{error}");
}

/// UCX's own ports, where it does what any message says, are not open to other hosts because of a
/// listener at loopback.
#[test]
fn a_listener_for_this_host_opens_no_port_to_others() {
    if std::env::var_os("UCX_NET_DEVICES").is_some() {
        return; // someone has decided where they are
    }
    let region = InProcTransport::create(&SMALL).expect("in bounds");
    let listener = listen(&region);
    let remote = connect(listener.address());
    assert_eq!(remote.get_u64(0), region.get_u64(0));
    let link =
        |entry: std::io::Result<std::fs::DirEntry>| std::fs::read_link(entry.ok()?.path()).ok();
    let descriptors = std::fs::read_dir("/proc/self/fd").expect("Linux");
    let ours: Vec<_> = descriptors.filter_map(link).collect();
    let is_ours = |inode: &str| ours.contains(&format!("socket:[{inode}]").into());
    // Of each socket: its number, local and remote address, state (0A: it listens), and so on.
    let table = std::fs::read_to_string("/proc/self/net/tcp").expect("Linux");
    let sockets = table.lines().skip(1).map(|line| line.split_whitespace().collect::<Vec<_>>());
    let listening: Vec<_> = sockets.filter(|s| s[3] == "0A" && is_ours(s[9])).collect();
    assert!(!listening.is_empty(), "its own is there at least");
    for socket in listening {
        // Little-endian: 127.x.x.x ends in 7F.
        let address = socket[1].split(':').next().expect("an address and a port");
        assert!(address.ends_with("7F"), "a port at {}", socket[1]);
    }
}

/// A peer that has said hello, and no more, is refused in time, and holds up no other.
#[test]
fn a_peer_that_does_not_prove_itself_in_time_is_refused() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let ours = secret_file(&folder, "ours", 1);
    let region = InProcTransport::create(&SMALL).expect("in bounds");
    let listener = listen_with(&region, Arc::clone(&ours));
    let hello = hello_of(&ours);
    let answer = text(&answer_to(listener.address(), &hello));
    assert!(answer.starts_with("SACUCXC1"), "{answer:?}");
    assert!(
        answer.contains("SACUCXR1") && answer.contains("no whole proof within 2s"),
        "{answer:?}"
    );
    assert!(!answer.contains("SACUCXG1"), "{answer:?}");
}

/// The hello of a transport with this secret, overheard.
fn hello_of(secret: &Arc<SecretFile>) -> Vec<u8> {
    let socket = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let address = socket.local_addr().expect("bound").to_string();
    std::thread::scope(|scope| {
        let heard = scope.spawn(|| {
            let (mut peer, _) = socket.accept().expect("it connects");
            let mut hello = vec![0; 80];
            peer.read_exact(&mut hello).expect("its hello");
            hello
        });
        let peer = Peer { way: way(), address, secret: Some(Arc::clone(secret)) };
        RemoteTransport::connect(&peer, |_| ()).expect_err("it is only heard");
        heard.join().expect("it heard")
    })
}

// ---- what a peer may ask for over TCP -----------------------------------------------------------

/// A granted connection whose peer sends what it likes.
fn raw_lane(address: SocketAddr, client: u64, lane: u32) -> Result<TcpStream, HandshakeError> {
    let mut socket = TcpStream::connect(address).expect("it listens");
    socket.set_read_timeout(Some(SOON)).expect("a socket");
    let visitor = Visitor { client, access: Access::Stream { lane } };
    join(&mut socket, visitor, &Abi::RING, None).map(|_| socket)
}

/// A listener, and what it logs.
fn listen_and_log(region: &InProcTransport) -> (RemoteListener, Arc<Mutex<Vec<String>>>) {
    let lines = Arc::new(Mutex::new(Vec::new()));
    let logged = Arc::clone(&lines);
    let log = Box::new(move |line: &str| logged.lock().expect("no panic").push(line.to_owned()));
    let options = ListenerOptions { log: Some(log), ..ListenerOptions::default() };
    let listener = RemoteListener::start("127.0.0.1:0", region.clone(), options);
    (listener.expect("a free port"), lines)
}

fn logged(lines: &Mutex<Vec<String>>, what: &str) -> bool {
    lines.lock().expect("no panic").iter().any(|line| line.contains(what))
}

#[test]
fn a_request_that_leaves_the_region_or_is_none_ends_its_connections() {
    let region = InProcTransport::create(&SMALL).expect("in bounds");
    let (listener, lines) = listen_and_log(&region);
    let end = region.region_bytes();
    let honest = connect_by_tcp(listener.address());
    let before = region.get_u64(0);
    let mut unknown = Request::Fence.to_bytes();
    unknown[0] = 77;
    let cases: [(&str, Vec<u8>); 6] = [
        ("access of 8 bytes at", Request::PutU64 { at: end, value: 1 }.to_bytes().into()),
        ("leaves the region of", Request::Get { at: u64::MAX - 3, len: 64 }.to_bytes().into()),
        (
            "access of 65536 bytes",
            [&Request::Put { at: end - 8, len: 65536 }.to_bytes()[..], &[9; 65536]].concat(),
        ),
        ("is not a multiple of 4", Request::AddU32 { at: 2, value: 1 }.to_bytes().into()),
        ("request operation is 77", unknown.into()),
        ("request operation is 71", b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n".to_vec()),
    ];
    for (client, (expected, bytes)) in (1..).zip(cases) {
        let mut first = raw_lane(listener.address(), client, 0).expect("no secret");
        let mut other = raw_lane(listener.address(), client, 1).expect("no secret");
        other.write_all(&bytes).expect("it reads");
        // A reset is an end like any other.
        for socket in [&mut other, &mut first] {
            assert!(socket.read(&mut [0; 8]).map_or(true, |got| got == 0), "{expected}: an answer");
        }
        until(expected, || logged(&lines, expected));
    }
    assert_eq!(honest.get_u64(0), before, "the region, and another peer's way to it");
    assert_eq!(region.get_u64(0), before);
}

#[test]
fn a_lane_belongs_to_a_process_that_has_joined() {
    let region = InProcTransport::create(&SMALL).expect("in bounds");
    let (listener, _) = listen_and_log(&region);
    let lane = |client, lane| raw_lane(listener.address(), client, lane);
    let refused = |lane: Result<TcpStream, HandshakeError>| lane.expect_err("refused").to_string();
    let unknown = refused(lane(5, 1));
    assert!(unknown.contains("the process of this lane has not joined"), "{unknown}");
    let _first = lane(5, 0).expect("the first of its own");
    let _second = lane(5, 1).expect("it has joined");
    let again = refused(lane(5, 1));
    assert!(again.contains("this lane is there already"), "{again}");
    let beyond = lane(5, MAX_LANES - 1).expect("the last one");
    drop(beyond);
    // A new first one replaces them all.
    let _anew = lane(5, 0).expect("the same process again");
    let _second = lane(5, 1).expect("not there any more");
}

/// A peer that asks and does not read, and one that never stops writing, hold up no other.
#[test]
fn a_peer_that_reads_nothing_or_writes_for_ever_delays_no_other() {
    let region = InProcTransport::create(&RegionLimits { arena_bytes: 1 << 20, ..SMALL })
        .expect("in bounds");
    let (listener, _) = listen_and_log(&region);
    let at = region.region_bytes() - (1 << 16);
    let mut deaf = raw_lane(listener.address(), 1, 0).expect("no secret");
    deaf.set_nonblocking(true).expect("a socket");
    let asks = Request::Get { at, len: 1 << 16 }.to_bytes().repeat(4096);
    // More answers than its socket and the listener's hold; the rest of the requests waits too.
    let mut sent = 0;
    while let Ok(more) = deaf.write(&asks[sent..]) {
        sent += more;
        if sent == asks.len() {
            break;
        }
    }
    let stop = AtomicBool::new(false);
    let mut busy = raw_lane(listener.address(), 2, 0).expect("no secret");
    let put = [&Request::Put { at, len: 4096 }.to_bytes()[..], &[3; 4096]].concat().repeat(16);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !stop.load(Ordering::Relaxed) {
                busy.write_all(&put).expect("it reads");
            }
        });
        let served = scope.spawn(|| {
            let honest = connect_by_tcp(listener.address());
            for i in 0..200 {
                honest.put_u64(at - 8, i).expect("up");
                assert_eq!(honest.get_u64(at - 8), Ok(i));
            }
        });
        let served = served.join();
        stop.store(true, Ordering::Relaxed);
        served.expect("the honest peer is served");
    });
}

/// Always by TCP.
fn connect_by_tcp(address: SocketAddr) -> RemoteTransport {
    RemoteTransport::connect(&Peer::unproved(Way::Tcp, address.to_string()), |_| ())
        .expect("our listener")
}

#[cfg(not(feature = "ucx"))]
#[test]
fn without_ucx_both_sides_say_so() {
    let region = InProcTransport::create(&SMALL).expect("in bounds");
    let listener = listen(&region);
    let peer = Peer::unproved(Way::Ucx, listener.address().to_string());
    let error = RemoteTransport::connect(&peer, |_| ()).expect_err("no UCX here").to_string();
    assert!(error.contains("cargo build --features ucx"), "{error}");
    // A peer whose build has it is told that this one has not.
    let mut socket = TcpStream::connect(listener.address()).expect("it listens");
    let visitor = Visitor { client: 1, access: Access::Ucx };
    let error = join(&mut socket, visitor, &Abi::RING, None).expect_err("refused").to_string();
    assert!(error.contains("no UCX here") && error.contains("join by tcp://"), "{error}");
}

// ---- nonsense ----------------------------------------------------------------------------------

/// What a listener answers to these bytes.
fn answer_to(address: SocketAddr, bytes: &[u8]) -> Vec<u8> {
    let mut socket = TcpStream::connect(address).expect("it listens");
    socket.set_read_timeout(Some(SOON)).expect("a socket");
    socket.write_all(bytes).expect("it reads");
    let mut answer = Vec::new();
    // A reset after the answer is an end like any other.
    let _ = socket.read_to_end(&mut answer);
    answer
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

#[test]
fn a_listener_refuses_nonsense_and_serves_on() {
    let region = InProcTransport::create(&SMALL).expect("in bounds");
    let listener = listen(&region);
    let address = listener.address();
    for (bytes, expected) in [
        (&[0xa5; 40][..], "hello magic"),
        (b"GET / HTTP/1.1\r\nHost: localhost\r\nAccept: */*\r\n\r\n", "hello magic"),
        // What a build from before the secrets says.
        (b"SACUCXH1\x01\0\0\0\x01\0\0\0aaaaaaaaaaaaaaaaaaaaaaaa", "hello version is 0x1, must"),
        (b"SACUCXH1\x03\0\0\0\xff\0\0\0", "no whole hello within 2s"),
        (b"SACUCXH1", "no whole hello within 2s"),
    ] {
        let answer = text(&answer_to(address, bytes));
        assert!(answer.starts_with("SACUCXR1") && answer.contains(expected), "{answer:?}");
    }
    // As many silent connections as it takes; then there is room again.
    let idle: Vec<_> = (0..16).map(|_| TcpStream::connect(address).expect("listens")).collect();
    until("full", || text(&answer_to(address, b"")).contains("too many handshakes"));
    drop(idle);
    let mut transport = None;
    until("room", || {
        transport =
            RemoteTransport::connect(&Peer::unproved(way(), address.to_string()), |_| ()).ok();
        transport.is_some()
    });
    assert_eq!(transport.map(|t| t.get_u64(0)), Some(region.get_u64(0)));
    // What was nonsense, was silent, and found no room.
    until("all are counted", || listener.refused() > 5 + 16);
}

#[test]
fn a_frontend_refuses_nonsense_and_says_what_is_wrong() {
    let refusal = {
        let region = InProcTransport::create(&SMALL).expect("in bounds");
        answer_to(listen(&region).address(), &[0; 40])
    };
    let cases: [(&str, Vec<u8>); 6] = [
        ("answer magic is", b"HTTP/1.1 400 Bad Request\r\n\r\n".to_vec()),
        ("answer version is 0x9", b"SACUCXG1\x09\0\0\0\0\0\0\0".to_vec()),
        ("answer bytes is", b"SACUCXG1\x03\0\0\0\xff\xff\xff\x7f".to_vec()),
        ("answer checksum is", [&b"SACUCXG1\x03\0\0\0\0\0\0\0"[..], &[9; 8]].concat()),
        ("refused: hello magic", refusal),
        ("no answer", Vec::new()),
    ];
    for (expected, bytes) in cases {
        let socket = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let address = socket.local_addr().expect("bound").to_string();
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let (mut peer, _) = socket.accept().expect("it connects");
                peer.read_exact(&mut [0; 80]).expect("its hello");
                peer.write_all(&bytes).expect("it reads");
            });
            let error = RemoteTransport::connect(&Peer::unproved(way(), &address), |_| ())
                .expect_err(expected)
                .to_string();
            assert!(error.contains(expected), "{error}: lacks {expected}");
        });
    }
    let gone = RemoteTransport::connect(&Peer::unproved(way(), "127.0.0.1:1"), |_| ())
        .expect_err("nothing listens there");
    assert!(gone.to_string().starts_with("cannot connect: "), "{gone}");
}

#[test]
fn what_is_no_region_is_not_handed_out() {
    let region = InProcTransport::zeroed(1 << 16);
    let options = ListenerOptions::default();
    let error = RemoteListener::start("127.0.0.1:0", region, options).expect_err("no header");
    assert!(error.to_string().contains("magic is 0"), "{error}");
    let taken = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let address = taken.local_addr().expect("bound").to_string();
    let region = InProcTransport::create(&SMALL).expect("in bounds");
    let error =
        RemoteListener::start(&address, region, ListenerOptions::default()).expect_err("taken");
    assert!(error.to_string().starts_with("cannot listen: "), "{error}");
}
