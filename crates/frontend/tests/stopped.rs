//! HTTP threads that are stopped at random moments, with whatever they hold then: the streams of
//! the other threads go on, the heartbeat moves, and nothing is lost.
//!
//! A signal handler stops the thread that it interrupts, as a scheduler that does not choose it
//! would.
#![allow(clippy::unwrap_used)]

mod common;

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::atomic::{AtomicI32, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use common::Harness;
use saccade_ring::testing::FakeConfig;

/// Far beyond what a loaded machine needs; a stream that waits for a stopped thread waits for ever.
const STUCK: Duration = Duration::from_secs(20);
/// What stops an HTTP thread; nothing else in this process uses it.
const SIGNAL: libc::c_int = libc::SIGUSR2;
const TOKENS: usize = 3900;
const STREAMS: usize = 3;
const GENERATIONS: usize = 3;
/// Tokens that each stream must get while the other thread is stopped.
const STEP: usize = 3;

/// Read end of the pipe that the handler waits on.
static PIPE: AtomicI32 = AtomicI32::new(-1);
/// How often the handler has stopped a thread, and let one go on.
static STOPPED: AtomicUsize = AtomicUsize::new(0);
static GONE_ON: AtomicUsize = AtomicUsize::new(0);

extern "C" fn stop_here(_: libc::c_int) {
    STOPPED.fetch_add(1, Ordering::SeqCst);
    let mut byte = 0u8;
    // SAFETY: read is async-signal-safe, and the buffer is one byte on this stack.
    while unsafe { libc::read(PIPE.load(Ordering::SeqCst), (&raw mut byte).cast(), 1) } != 1 {}
    GONE_ON.fetch_add(1, Ordering::SeqCst);
}

fn wait_for(counter: &AtomicUsize, before: usize) {
    let began = Instant::now();
    while counter.load(Ordering::SeqCst) == before {
        assert!(began.elapsed() < STUCK, "the thread neither stops nor goes on");
        std::thread::yield_now();
    }
}

/// Stops threads of this process and lets them go on.
struct Stopper {
    release: std::io::PipeWriter,
    _wait: std::io::PipeReader,
}

impl Stopper {
    fn new() -> Self {
        use std::os::fd::AsRawFd;
        let (wait, release) = std::io::pipe().unwrap();
        PIPE.store(wait.as_raw_fd(), Ordering::SeqCst);
        // SAFETY: the handler only reads from a pipe and adds to an atomic; a zeroed sigaction is
        // valid, and its fields are set as the system wants them.
        unsafe {
            let mut action: libc::sigaction = std::mem::zeroed();
            action.sa_sigaction = stop_here as extern "C" fn(libc::c_int) as usize;
            action.sa_flags = libc::SA_RESTART;
            assert_eq!(libc::sigaction(SIGNAL, &raw const action, std::ptr::null_mut()), 0);
        }
        Self { release, _wait: wait }
    }

    fn stop(&self, thread: libc::pid_t) {
        let before = STOPPED.load(Ordering::SeqCst);
        // SAFETY: a signal to a thread of this process, for which a handler is installed.
        let sent = unsafe {
            libc::syscall(libc::SYS_tgkill, std::process::id() as libc::pid_t, thread, SIGNAL)
        };
        assert_eq!(sent, 0, "no thread {thread}");
        wait_for(&STOPPED, before);
    }

    /// Returns once the thread has gone on: the byte is meant for no other.
    fn go_on(&mut self) {
        let before = GONE_ON.load(Ordering::SeqCst);
        self.release.write_all(&[0]).unwrap();
        wait_for(&GONE_ON, before);
    }
}

impl Drop for Stopper {
    fn drop(&mut self) {
        // A test that failed ends, too: no thread is stopped for good.
        while STOPPED.load(Ordering::SeqCst) > GONE_ON.load(Ordering::SeqCst) {
            let _ = self.release.write_all(&[0]);
            std::thread::yield_now();
        }
    }
}

/// The threads of this process whose names start so, by name.
fn threads(start: &str) -> Vec<libc::pid_t> {
    let mut found: Vec<(String, libc::pid_t)> = std::fs::read_dir("/proc/self/task")
        .unwrap()
        .map(|task| task.unwrap().path())
        .filter_map(|task| {
            let name = std::fs::read_to_string(task.join("comm")).ok()?;
            let id = task.file_name()?.to_str()?.parse().ok()?;
            name.starts_with(start).then_some((name, id))
        })
        .collect();
    found.sort();
    found.into_iter().map(|(_, id)| id).collect()
}

/// One request on a connection of its own.
struct Stream {
    socket: TcpStream,
    tokens: usize,
    tail: Vec<u8>,
    done: bool,
}

impl Stream {
    /// Returns after the first token.
    fn open(addr: SocketAddr) -> Self {
        let mut socket = TcpStream::connect(addr).unwrap();
        socket.set_read_timeout(Some(STUCK)).unwrap();
        let body = format!(
            r#"{{"model":"tiny","prompt":"hi","max_tokens":{TOKENS},"stream":true,"ignore_eos":true}}"#
        );
        let length = body.len();
        write!(
            socket,
            "POST /v1/completions HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\
             content-type: application/json\r\ncontent-length: {length}\r\n\r\n{body}"
        )
        .unwrap();
        let mut stream = Self { socket, tokens: 0, tail: Vec::new(), done: false };
        stream.more(1);
        stream
    }

    /// Waits for `count` more tokens, or the end.
    fn more(&mut self, count: usize) {
        let wanted = self.tokens + count;
        while self.tokens < wanted && !self.done {
            let mut bytes = [0; 4096];
            let read = self.socket.read(&mut bytes).expect("a stream waits for a stopped thread");
            self.done |= read == 0;
            self.tail.extend_from_slice(&bytes[..read]);
            self.count();
        }
    }

    /// Each token is the text `a`, alone or with others in one delta.
    fn count(&mut self) {
        const FIELD: &[u8] = b"\"text\":\"";
        let whole = self.tail.iter().rposition(|&b| b == b'\n').map_or(0, |i| i + 1);
        for line in self.tail[..whole].split(|&b| b == b'\n') {
            self.done |= line.starts_with(b"data: [DONE]");
            let at = line.windows(FIELD.len()).position(|window| window == FIELD);
            let text = at.map_or(&[][..], |at| &line[at + FIELD.len()..]);
            self.tokens += text.iter().take_while(|&&b| b == b'a').count();
        }
        self.tail.drain(..whole);
    }
}

/// A small generator, so that a run can be repeated.
struct Random(u64);

impl Random {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        (self.0 >> 33) % bound
    }
}

#[test]
fn streams_go_on_while_another_thread_is_stopped() {
    let seed = std::env::var("SACCADE_TEST_SEED").map_or(1, |seed| seed.parse().unwrap());
    println!("SACCADE_TEST_SEED={seed}");
    let mut random = Random(seed);
    let harness = Harness::with(|config| config.http_threads = 2, FakeConfig::default());
    harness.device.babble();
    // A thread has its name only once it runs.
    harness.wait_until("both threads", |_| threads("http-").len() == 2);
    let http = threads("http-");
    let mut stopper = Stopper::new();
    let mut rounds = 0;
    for _ in 0..GENERATIONS {
        // What is opened while one thread is stopped belongs to the other.
        let mut streams = [0, 1].map(|thread: usize| {
            stopper.stop(http[1 - thread]);
            let opened: Vec<_> = (0..STREAMS).map(|_| Stream::open(harness.addr)).collect();
            stopper.go_on();
            opened
        });
        while streams.iter().flatten().all(|stream| !stream.done) {
            let stopped = random.below(2) as usize;
            // Any moment between two tokens.
            for _ in 0..random.below(20_000) {
                std::hint::spin_loop();
            }
            stopper.stop(http[stopped]);
            streams[1 - stopped].iter_mut().for_each(|stream| stream.more(STEP));
            stopper.go_on();
            rounds += 1;
        }
        for stream in streams.iter_mut().flatten() {
            stream.more(TOKENS);
            assert_eq!((stream.tokens, stream.done), (TOKENS, true));
        }
    }
    println!("{rounds} stops");
    assert!(rounds >= GENERATIONS);
    assert_eq!(harness.metric("saccade:frontend_epoch"), 1.0);
}
