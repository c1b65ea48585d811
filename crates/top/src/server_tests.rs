//! Looking at scripted servers over real sockets.

use std::io::{BufRead, BufReader, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use clap::Parser;

use crate::args::Args;
use crate::once;
use crate::sampler::{Report, Sampler};

const OURS: &str = include_str!("../tests/data/saccade-2.prom");
const VLLM: &str = include_str!("../tests/data/vllm-2.prom");

#[derive(Debug, Parser)]
struct Cli {
    #[command(flatten)]
    args: Args,
}

/// Status and body for a path; `None`: no answer, ever.
type Script = fn(&str) -> Option<(u16, String)>;

/// A server until it is dropped.
struct Server {
    addr: SocketAddr,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Server {
    fn start(addr: SocketAddr, script: Script) -> Server {
        let listener = TcpListener::bind(addr).unwrap();
        listener.set_nonblocking(true).unwrap();
        let addr = listener.local_addr().unwrap();
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = stop.clone();
        let thread = std::thread::spawn(move || {
            let mut silent = Vec::new();
            while !stopped.load(Ordering::Relaxed) {
                match listener.accept() {
                    Ok((stream, _)) => silent.extend(answer(stream, script)),
                    Err(_) => std::thread::sleep(Duration::from_millis(2)),
                }
            }
        });
        Server { addr, stop, thread: Some(thread) }
    }

    fn args(&self, flags: &[&str]) -> Args {
        let url = format!("http://{}", self.addr);
        let all = ["top", "--url", &url, "--interval", "0.1"];
        Cli::try_parse_from(all.iter().chain(flags)).unwrap().args
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        self.thread.take().unwrap().join().unwrap();
    }
}

/// Answers one request. Gives the stream back if it is to stay open without an answer.
fn answer(stream: TcpStream, script: Script) -> Option<TcpStream> {
    stream.set_nonblocking(false).unwrap();
    let mut lines = BufReader::new(&stream).lines().map_while(Result::ok);
    let first = lines.next()?;
    let authorized = lines.take_while(|l| !l.is_empty()).any(|l| l == "authorization: Bearer key");
    let path = first.split(' ').nth(1)?;
    let path = if authorized { format!("{path}+key") } else { path.to_owned() };
    let Some((status, body)) = script(&path) else { return Some(stream) };
    let head = format!("HTTP/1.1 {status} x\r\ncontent-length: {}\r\n\r\n", body.len());
    // A client that has seen enough has gone.
    let _ =
        (&stream).write_all(head.as_bytes()).and_then(|()| (&stream).write_all(body.as_bytes()));
    None
}

fn any_port() -> SocketAddr {
    SocketAddr::from(([127, 0, 0, 1], 0))
}

fn ours(path: &str) -> Option<(u16, String)> {
    Some(match path {
        "/metrics" => (200, OURS.into()),
        "/ready" => (503, "{}".into()),
        "/version" => (200, r#"{"version":"9.8.7"}"#.into()),
        _ => (404, String::new()),
    })
}

#[test]
fn one_view_is_two_looks() {
    let server = Server::start(any_port(), ours);
    let view = once::view(&server.args(&[])).unwrap();
    let frame = view.frame.as_ref().unwrap();
    assert_eq!((frame.ready, frame.version.as_deref()), (Some(false), Some("9.8.7")));
    assert!(frame.window_s >= 0.1);
    assert!(once::text(&view).unwrap().contains("NOT READY"));
}

#[test]
fn a_server_without_ready_is_asked_for_its_health() {
    let server = Server::start(any_port(), |path| {
        Some(match path {
            "/metrics+key" => (200, VLLM.into()),
            "/health+key" => (200, String::new()),
            "/version+key" => (200, "not json".into()),
            _ => (404, String::new()),
        })
    });
    let view = once::view(&server.args(&["--api-key", "key"])).unwrap();
    let frame = view.frame.as_ref().unwrap();
    assert_eq!((frame.ready, frame.version.as_deref()), (Some(true), None));
    let error = once::view(&server.args(&[])).unwrap_err();
    assert!(format!("{error:#}").contains("/metrics: 404"), "{error:#}");
}

#[test]
fn answers_that_are_none_are_refused_by_name() {
    let cases: [(Script, &str); 3] = [
        (|_| Some((200, "<html>a login page</html>".into())), "no series in 25 bytes"),
        (|_| Some((500, "oops".into())), "/metrics: 500"),
        (|_| Some((200, "a 1\n".repeat(5 << 20))), "length limit exceeded"),
    ];
    for (script, expected) in cases {
        let server = Server::start(any_port(), script);
        let error = once::view(&server.args(&[])).unwrap_err();
        assert!(format!("{error:#}").contains(expected), "{error:#}");
    }
}

/// The next report; fails after a time that no run of this test takes.
fn next(sampler: &mut Sampler) -> Report {
    let begun = Instant::now();
    while begun.elapsed() < Duration::from_secs(60) {
        if let Some(report) = sampler.next() {
            return report;
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    panic!("no report within a minute");
}

fn until_answered(sampler: &mut Sampler) {
    while !matches!(next(sampler), Report::Answered(_)) {}
}

#[test]
fn a_server_that_was_gone_is_found_again() {
    let server = Server::start(any_port(), ours);
    let (addr, args) = (server.addr, server.args(&[]));
    let mut sampler = Sampler::start(&args).unwrap();
    until_answered(&mut sampler);
    drop(server);
    let retry_in = loop {
        if let Report::Failed(error, retry_in) = next(&mut sampler) {
            assert!(!error.is_empty());
            break retry_in;
        }
    };
    assert!(retry_in >= Duration::from_millis(500), "{retry_in:?}");
    let _server = Server::start(addr, ours);
    until_answered(&mut sampler);
}

#[test]
fn the_view_does_not_wait_for_a_silent_server() {
    let server = Server::start(any_port(), |_| None);
    let mut sampler = Sampler::start(&server.args(&[])).unwrap();
    assert!(sampler.set_interval(Duration::from_secs(2)));
    assert!(sampler.next().is_none());
    let begun = Instant::now();
    drop(sampler);
    assert!(begun.elapsed() < Duration::from_secs(4), "{:?}", begun.elapsed());
}
