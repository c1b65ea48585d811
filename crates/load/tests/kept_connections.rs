//! Kept connections that a server ends, before it is asked again or just then: no request is sent
//! twice, and a drop is the failure of the request that met it.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex};

use saccade_load::{
    Arrival, Dialect, LoadSpec, Outcome, Priority, Run, Target, Workload, run_on_own_thread,
};

const ANSWER: &str = "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n\
    transfer-encoding: chunked\r\n\r\n";
const EVENTS: &str = "data: {\"choices\":[{\"index\":0,\"text\":\"a\",\"finish_reason\":\"length\"}]}\
    \n\ndata: [DONE]\n\n";

/// When the server closes a connection.
#[derive(Clone, Copy, PartialEq)]
enum Closes {
    /// After its first answer.
    WhileIdle,
    /// After it has read a second request, without a word.
    OnSecondRequest,
}

/// How often each `x-request-id` came.
type Seen = Arc<Mutex<BTreeMap<String, usize>>>;

/// Reads one request and notes its id; `None` when the client has closed.
fn take_request(reader: &mut BufReader<TcpStream>, seen: &Seen) -> Option<()> {
    let mut length = 0;
    loop {
        let mut line = String::new();
        if reader.read_line(&mut line).ok()? == 0 {
            return None;
        }
        let line = line.trim_end().to_ascii_lowercase();
        if let Some(value) = line.strip_prefix("content-length:") {
            length = value.trim().parse().ok()?;
        }
        if let Some(id) = line.strip_prefix("x-request-id:") {
            *seen.lock().ok()?.entry(id.trim().to_owned()).or_default() += 1;
        }
        if line.is_empty() {
            let mut body = vec![0; length];
            return reader.read_exact(&mut body).ok();
        }
    }
}

/// Answers the first request of each connection.
fn serve_one_each(listener: &TcpListener, closes: Closes, seen: &Seen) {
    for stream in listener.incoming().map_while(Result::ok) {
        let mut reader = BufReader::new(stream);
        if take_request(&mut reader, seen).is_some() {
            let answer = format!("{ANSWER}{:x}\r\n{EVENTS}\r\n0\r\n\r\n", EVENTS.len());
            reader.get_mut().write_all(answer.as_bytes()).expect("a client that reads");
            if closes == Closes::OnSecondRequest {
                take_request(&mut reader, seen);
            }
        }
    }
}

fn run(closes: Closes, arrival: Arrival, requests: u64) -> (Run, Seen) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address: SocketAddr = listener.local_addr().expect("its address");
    let seen = Seen::default();
    let noted = Arc::clone(&seen);
    std::thread::spawn(move || serve_one_each(&listener, closes, &noted));
    let mut target = Target::new(format!("http://{address}"));
    // Known, so that nothing is asked before the run.
    target.model = Some("m".into());
    target.dialect = Some(Dialect { usage: false, continuous_usage: false, exact: false });
    let spec = LoadSpec::new(arrival, Workload::fixed(4, 1), requests);
    (run_on_own_thread(&target, &spec, &(), Priority::Normal).expect("a run"), seen)
}

fn assert_each_came_once(seen: &Seen, requests: usize) {
    let seen = seen.lock().expect("no panic");
    assert!(seen.len() == requests && seen.values().all(|n| *n == 1), "{seen:?}");
}

#[test]
fn a_request_that_was_on_its_way_when_the_connection_closed_has_failed() {
    let arrival = Arrival::Closed { concurrency: 1 };
    let (run, seen) = run(Closes::OnSecondRequest, arrival, 6);
    for (i, request) in run.requests.iter().enumerate() {
        match &request.outcome {
            Outcome::Ok => assert!(i != 1, "{request:?}"),
            Outcome::Broken(why) => {
                assert!(i == 1 && why.contains("kept connection"), "{request:?}");
            }
            other => panic!("{other:?}"),
        }
    }
    assert_each_came_once(&seen, 6);
    assert_eq!(run.client.connections, 5, "one for the first two requests, then one for each");
    assert!(run.notes.iter().any(|note| note.contains("a connection each")), "{:?}", run.notes);
}

#[test]
fn a_connection_that_closed_while_idle_is_replaced_before_anything_is_sent() {
    // A fifth of a second apart: the end is long known when the next request comes.
    let (run, seen) = run(Closes::WhileIdle, Arrival::Constant { rate_rps: 5.0 }, 4);
    let outcomes: Vec<_> = run.requests.iter().map(|r| &r.outcome).collect();
    assert_eq!(outcomes, [&Outcome::Ok; 4]);
    assert_each_came_once(&seen, 4);
    assert_eq!(run.client.connections, 4);
}
