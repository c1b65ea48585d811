//! Kept connections that a server ends just as it is asked again.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};

use saccade_load::{
    Arrival, Dialect, LoadSpec, Outcome, Priority, Target, Workload, run_on_own_thread,
};

const ANSWER: &str = "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n\
    transfer-encoding: chunked\r\n\r\n";
const EVENTS: &str = "data: {\"choices\":[{\"index\":0,\"text\":\"a\",\"finish_reason\":\"length\"}]}\
    \n\ndata: [DONE]\n\n";

/// Reads one request; `None` when the client has closed.
fn take_request(reader: &mut BufReader<TcpStream>) -> Option<()> {
    let mut length = 0;
    loop {
        let mut line = String::new();
        if reader.read_line(&mut line).ok()? == 0 {
            return None;
        }
        if let Some(value) = line.to_ascii_lowercase().strip_prefix("content-length:") {
            length = value.trim().parse().ok()?;
        }
        if line == "\r\n" {
            let mut body = vec![0; length];
            return reader.read_exact(&mut body).ok();
        }
    }
}

/// Answers the first request of each connection, reads the second, and closes without a word.
fn serve_one_each(listener: &TcpListener) {
    for stream in listener.incoming().map_while(Result::ok) {
        let mut reader = BufReader::new(stream);
        if take_request(&mut reader).is_some() {
            let answer = format!("{ANSWER}{:x}\r\n{EVENTS}\r\n0\r\n\r\n", EVENTS.len());
            reader.get_mut().write_all(answer.as_bytes()).expect("a client that reads");
            take_request(&mut reader);
        }
    }
}

fn server() -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = listener.local_addr().expect("its address");
    std::thread::spawn(move || serve_one_each(&listener));
    address
}

#[test]
fn a_kept_connection_that_ends_unanswered_is_no_failure_of_the_server() {
    let mut target = Target::new(format!("http://{}", server()));
    // Known, so that nothing is asked before the run.
    target.model = Some("m".into());
    target.dialect = Some(Dialect { usage: false, continuous_usage: false, exact: false });
    let arrival = Arrival::Closed { concurrency: 1 };
    let spec = LoadSpec::new(arrival, Workload::fixed(4, 1), 6);
    let run = run_on_own_thread(&target, &spec, &(), Priority::Normal).expect("a run");
    let outcomes: Vec<_> = run.requests.iter().map(|r| &r.outcome).collect();
    assert_eq!(outcomes, [&Outcome::Ok; 6]);
    assert_eq!(run.client.connections, 6, "one for each request");
}
