//! The sockets, from the outside: subscribers that behave, that do not, and that are not there.

#![allow(clippy::unwrap_used)]

mod common;

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use common::*;
use saccade_events::{Adapters, Endpoint, Event, EventsConfig, Joins, Medium, Publisher, run};
use saccade_fetch::layout::{PlaneLine, SAC_KV_REMOVED};

/// Nothing that works takes this long.
const PATIENCE: Duration = Duration::from_secs(20);

/// A peer that speaks as little ZMTP as can be.
struct Peer {
    stream: TcpStream,
}

impl Peer {
    fn new(endpoint: &Endpoint, kind: &str) -> Peer {
        let Endpoint::Tcp { port, .. } = endpoint else { panic!("{endpoint}") };
        let stream = TcpStream::connect(SocketAddr::from(([127, 0, 0, 1], *port))).unwrap();
        Peer::of(stream, kind)
    }

    fn of(stream: TcpStream, kind: &str) -> Peer {
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        stream.set_write_timeout(Some(PATIENCE)).unwrap();
        let mut peer = Peer { stream };
        let mut greeting = [0; 64];
        (greeting[0], greeting[9], greeting[10], greeting[11]) = (0xff, 0x7f, 3, 1);
        greeting[12..16].copy_from_slice(b"NULL");
        peer.stream.write_all(&greeting).unwrap();
        peer.stream.read_exact(&mut greeting).unwrap();
        let mut ready = b"\x05READY\x0bSocket-Type\x00\x00\x00".to_vec();
        ready.push(kind.len() as u8);
        ready.extend(kind.as_bytes());
        peer.send(4, &ready);
        let (flags, body) = peer.frame().unwrap();
        assert!(flags == 4 && body.starts_with(b"\x05READY"));
        peer
    }

    fn send(&mut self, flags: u8, body: &[u8]) {
        let mut bytes = vec![flags, body.len() as u8];
        bytes.extend(body);
        self.stream.write_all(&bytes).unwrap();
    }

    fn frame(&mut self) -> std::io::Result<(u8, Vec<u8>)> {
        let mut head = [0; 2];
        self.stream.read_exact(&mut head)?;
        let mut len = u64::from(head[1]);
        if head[0] & 2 != 0 {
            let mut rest = [0; 7];
            self.stream.read_exact(&mut rest)?;
            len = rest.iter().fold(len, |len, byte| len << 8 | u64::from(*byte));
        }
        let mut body = vec![0; len as usize];
        self.stream.read_exact(&mut body)?;
        Ok((head[0], body))
    }

    fn message(&mut self) -> Vec<Vec<u8>> {
        let mut frames = Vec::new();
        loop {
            let (flags, body) = self.frame().unwrap();
            frames.push(body);
            if flags & 1 == 0 {
                return frames;
            }
        }
    }

    /// The number of the next batch.
    fn number(&mut self) -> u64 {
        let frames = self.message();
        assert_eq!(frames.len(), 3);
        u64::from_be_bytes(frames[1].as_slice().try_into().unwrap())
    }
}

fn config(more: &str) -> EventsConfig {
    let json = format!(
        r#"{{"enable_kv_cache_events": true, "endpoint": "tcp://127.0.0.1:0",
        "replay_endpoint": "tcp://127.0.0.1:0", "topic": "kv@a@m" {more}}}"#
    );
    EventsConfig::parse(&json).unwrap()
}

fn removed(key: u64) -> [Event; 1] {
    [Event::Removed { key, medium: Medium::Gpu }]
}

fn wait_for(what: &str, mut is_so: impl FnMut() -> bool) {
    let began = Instant::now();
    while !is_so() {
        assert!(began.elapsed() < PATIENCE, "{what}");
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// Publishes until a subscriber hears something: from then on it hears all.
fn tune_in(publisher: &Publisher, peer: &mut Peer) -> u64 {
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !stop.load(Ordering::Relaxed) {
                publisher.publish(&removed(1), 4);
                std::thread::sleep(Duration::from_millis(2));
            }
        });
        let number = peer.number();
        stop.store(true, Ordering::Relaxed);
        number
    })
}

#[test]
fn batches_are_heard_in_order_and_repeated() {
    let publisher = Publisher::start(&config("")).unwrap();
    let first = publisher.next_batch() - 1;
    let mut peer = Peer::new(publisher.endpoint(), "SUB");
    peer.send(0, b"\x01kv@");
    let mut last = tune_in(&publisher, &mut peer);
    for _ in 0..100 {
        publisher.publish(&removed(2), 4);
    }
    while last + 1 < publisher.next_batch() {
        last += 1;
        assert_eq!(peer.number(), last);
    }
    // A subscription by command, taken back, and one to another topic.
    peer.send(4, b"\x06CANCELkv@");
    peer.send(4, b"\x09SUBSCRIBEother");
    // The second answer is given by one who has seen, since the first, that nothing is wanted.
    for _ in 0..2 {
        peer.send(4, b"\x04PING\x00\x0ahello");
        assert_eq!(peer.frame().unwrap(), (4, b"\x04PONGhello".to_vec()));
    }
    publisher.publish(&removed(3), 4);
    peer.send(4, b"\x09SUBSCRIBE");
    let later = tune_in(&publisher, &mut peer);
    assert!(later > last + 1);

    let mut asking = Peer::new(publisher.replay_endpoint().unwrap(), "DEALER");
    for (from, expected) in [(0, first), (first + 5, first + 5), (u64::MAX, u64::MAX)] {
        let end = publisher.next_batch();
        asking.send(1, b"");
        asking.send(0, &from.to_be_bytes());
        for number in expected..end {
            let frames = asking.message();
            assert_eq!(frames[..3], [vec![], b"kv@a@m".to_vec(), number.to_be_bytes().to_vec()]);
            assert!(!frames[3].is_empty() && frames.len() == 4);
        }
        assert_eq!(asking.message(), [vec![], vec![], vec![0xff; 8], vec![]]);
    }
    // What is no request is not answered, and does no harm.
    asking.send(0, b"what?");
    asking.send(1, b"");
    asking.send(0, b"123");
    asking.send(1, b"");
    asking.send(0, &u64::MAX.to_be_bytes());
    assert_eq!(asking.message(), [vec![], vec![], vec![0xff; 8], vec![]]);
    wait_for("all replays are counted", || publisher.stats().replays == 4);
}

/// Subscribers that read nothing: publishing goes on at full speed, in bounded memory, and others
/// hear everything.
#[test]
fn a_subscriber_that_reads_nothing_holds_up_nobody() {
    let publisher = Publisher::start(&config(r#", "hwm": 1000, "buffer_steps": 10"#)).unwrap();
    let mut stuck: Vec<Peer> = (0..20).map(|_| Peer::new(publisher.endpoint(), "SUB")).collect();
    for peer in &mut stuck {
        peer.send(0, b"\x01");
        tune_in(&publisher, peer);
    }
    let mut quick = Peer::new(publisher.endpoint(), "SUB");
    quick.send(0, b"\x01");
    let mut last = tune_in(&publisher, &mut quick);
    let tokens: Vec<u32> = (0..4000).collect();
    let event = [Event::Stored {
        key: 1,
        parent: None,
        salt: 0,
        adapter: None,
        medium: Medium::Gpu,
        tokens,
    }];
    for _ in 0..4000 {
        publisher.publish(&event, 4000);
        while last + 1 < publisher.next_batch() {
            last += 1;
            assert_eq!(quick.number(), last);
        }
    }
    // One of the stuck ones reads again: it hears what was on its way, then a gap, then the rest.
    let mut gaps = 0;
    let mut number = stuck[0].number();
    while number != last {
        let next = stuck[0].number();
        gaps += u32::from(next != number + 1);
        assert!(next > number);
        number = next;
    }
    assert!(gaps > 0 && publisher.stats().missed > 0);
    assert_eq!(publisher.stats().subscribers, 21);
    drop(stuck);
    wait_for("they have left", || {
        publisher.publish(&removed(1), 4);
        publisher.stats().subscribers == 1
    });
}

#[test]
fn peers_that_speak_something_else_are_left() {
    let publisher = Publisher::start(&config("")).unwrap();
    for endpoint in [publisher.endpoint(), publisher.replay_endpoint().unwrap()] {
        let Endpoint::Tcp { port, .. } = endpoint else { panic!("{endpoint}") };
        let mut greeting = vec![0; 64];
        (greeting[0], greeting[9], greeting[10]) = (0xff, 0x7f, 3);
        greeting[12..16].copy_from_slice(b"NULL");
        let mut plain = greeting.clone();
        plain[12..17].copy_from_slice(b"PLAIN");
        let mut old = greeting.clone();
        old[10] = 1;
        let with = |more: &[u8]| [&greeting, more].concat();
        let openings = [
            b"GET / HTTP/1.1\r\nhost: localhost\r\n\r\n".repeat(2),
            plain,
            old,
            with(b"\x04\x1d\x05READY\x0bSocket-Type\x00\x00\x00\x04PUSH"),
            with(b"\x06\xff\xff\xff\xff\xff\xff\xff\xff"),
            with(b"\x00\x03abc"),
            with(b"\x04\x06\x05READY"),
            with(b"\x04\x12\x05READY\x0bSocket-Type"),
        ];
        for opening in openings {
            let address = SocketAddr::from(([127, 0, 0, 1], *port));
            let mut stream = TcpStream::connect(address).unwrap();
            stream.set_read_timeout(Some(PATIENCE)).unwrap();
            stream.write_all(&opening).unwrap();
            let mut rest = Vec::new();
            // A reset is as good an end: what was sent has not been read.
            let _ = stream.read_to_end(&mut rest);
            assert!(rest.len() < 200);
        }
    }
    // And after the handshake.
    let endless = [&b"\x02\x7f\xff\xff\xff\xff\xff\xff\xff"[..], b"\x08\x00", &[1, 0].repeat(20)];
    for bytes in endless {
        let mut peer = Peer::new(publisher.endpoint(), "SUB");
        peer.stream.write_all(bytes).unwrap();
        // An end, or a reset: what was sent after the fault has not been read.
        let _ = peer.stream.read_to_end(&mut Vec::new());
    }
    let mut peer = Peer::new(publisher.endpoint(), "SUB");
    peer.send(0, b"\x01");
    tune_in(&publisher, &mut peer);
    assert_eq!(publisher.stats().ended, 2 * 8 + 3);
}

#[test]
fn connections_are_bounded() {
    let publisher = Publisher::start(&config("")).unwrap();
    let peers: Vec<Peer> = (0..64).map(|_| Peer::new(publisher.endpoint(), "SUB")).collect();
    let Endpoint::Tcp { port, .. } = publisher.endpoint() else { panic!() };
    let mut refused = TcpStream::connect(("127.0.0.1", *port)).unwrap();
    refused.set_read_timeout(Some(PATIENCE)).unwrap();
    assert_eq!(refused.read(&mut [0; 64]).unwrap_or(0), 0);
    assert_eq!(publisher.stats().refused, 1);
    drop(peers);
    wait_for("places are free again", || publisher.stats().subscribers == 0);
    let mut peer = Peer::new(publisher.endpoint(), "SUB");
    peer.send(0, b"\x01");
    tune_in(&publisher, &mut peer);
}

#[test]
fn an_address_in_use_is_named() {
    let publisher = Publisher::start(&config("")).unwrap();
    let mut second = config("");
    second.endpoint = publisher.endpoint().clone();
    let error = Publisher::start(&second).unwrap_err().to_string();
    assert!(error.contains(&second.endpoint.to_string()), "{error}");
    second = config("");
    second.replay_endpoint = publisher.replay_endpoint().cloned();
    let error = Publisher::start(&second).unwrap_err().to_string();
    assert!(error.contains(&second.replay_endpoint.unwrap().to_string()), "{error}");
}

/// A router that listens, comes late, and comes back.
#[test]
fn a_router_that_listens_is_connected_to() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let mut to_a_router = config("");
    // The system finds this machine by that name, and no rule takes it for an own address.
    to_a_router.endpoint = Endpoint::Tcp { host: "127.1".into(), port };
    assert!(!to_a_router.endpoint.is_listened_at());
    let publisher = Publisher::start(&to_a_router).unwrap();
    for _ in 0..2 {
        let mut peer = Peer::of(listener.accept().unwrap().0, "SUB");
        peer.send(0, b"\x01");
        tune_in(&publisher, &mut peer);
    }
}

/// `run` finds the region at a path, reads it, and follows one device after another. Sockets in the
/// file system; a file that an earlier process left there is no obstacle.
#[test]
fn devices_come_and_go() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("fetch");
    let mut config = config("");
    config.endpoint = Endpoint::Ipc(folder.path().join("events"));
    config.replay_endpoint = None;
    drop(std::os::unix::net::UnixListener::bind(folder.path().join("events")).unwrap());
    let stop = Arc::new(AtomicBool::new(false));
    let thread = {
        let (path, config, stop) = (path.clone(), config.clone(), stop.clone());
        std::thread::spawn(move || {
            run(&path, &config, &Adapters::default(), Joins::Publisher, &stop)
        })
    };
    for life in 0..3 {
        let region = create(&path, 64, 4);
        let mut ring = Ring::new(region);
        for key in 1..=200 {
            wait_for("there is room", || {
                ring.look();
                ring.room() != 0
            });
            ring.write(&event(SAC_KV_REMOVED, 0, key, 0), &[]);
            ring.show();
        }
        wait_for("all are read", || {
            ring.look();
            ring.room() == 64
        });
        assert_eq!(ring.epoch(), 1);
        let beats = || ring.plane_word(std::mem::offset_of!(PlaneLine, heartbeat));
        let before = beats();
        wait_for("the heart beats", || beats() > before + 3);
        if life == 1 {
            ring.close();
        }
    }
    stop.store(true, Ordering::Relaxed);
    thread.join().unwrap().unwrap();
}
