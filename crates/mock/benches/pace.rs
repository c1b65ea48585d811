//! How late the mock is, by its own records, and what that costs it: streams that begin at an even
//! rate, on connections that stay open, from one thread next to the server's.
//!
//!     cargo bench -p saccade-mock --bench pace -- 1000 8 5      # requests/s, tokens, seconds
//!
//! Under `chrt -f 50` the rest of the machine does not count.

use std::net::SocketAddr;
use std::time::Duration;

use saccade_mock::{Script, Server};
use serde_json::Value;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::{Instant, sleep_until};

const END: &[u8] = b"0\r\n\r\n";
/// Answers last 20 ms + 10 ms a token; twice that many connections leave room for a late one.
const SCRIPT: &str = r#"{"ttft": "lognormal:20ms,0.3", "itl": "uniform:5ms,15ms"}"#;

#[derive(Clone, Copy)]
struct Load {
    rate: f64,
    tokens: usize,
    seconds: f64,
}

impl Load {
    fn connections(self) -> usize {
        (self.rate * (0.02 + 0.01 * self.tokens as f64) * 2.0).ceil() as usize + 8
    }
}

/// The `number`-th of the connections: its share of the requests, evenly.
async fn connection(server: SocketAddr, load: Load, number: usize, start: Instant) -> usize {
    let body = format!(r#"{{"prompt": "hello", "max_tokens": {}, "stream": true}}"#, load.tokens);
    let request = format!(
        "POST /v1/completions HTTP/1.1\r\nhost: mock\r\ncontent-length: {}\r\n\r\n{body}",
        body.len()
    );
    let mut stream = TcpStream::connect(server).await.expect("the server listens");
    let requests = (load.rate * load.seconds) as usize;
    let mut answered = 0;
    for index in (number..requests).step_by(load.connections()) {
        sleep_until(start + Duration::from_secs_f64(index as f64 / load.rate)).await;
        stream.write_all(request.as_bytes()).await.expect("the server reads");
        let mut answer = Vec::new();
        while !answer.ends_with(END) {
            let count = stream.read_buf(&mut answer).await.expect("the server writes");
            assert!(count > 0, "the server closed the connection");
        }
        answered += 1;
    }
    answered
}

/// Processor seconds of the server's thread.
fn server_cpu_s() -> f64 {
    for task in std::fs::read_dir("/proc/self/task").expect("Linux").flatten() {
        let stat = std::fs::read_to_string(task.path().join("stat")).unwrap_or_default();
        if let Some((_, fields)) = stat.split_once("(mock-http) ") {
            let fields: Vec<f64> = fields.split(' ').map(|f| f.parse().unwrap_or(0.0)).collect();
            return (fields[11] + fields[12]) / 100.0;
        }
    }
    0.0
}

async fn records(server: SocketAddr) -> Value {
    let mut stream = TcpStream::connect(server).await.expect("the server listens");
    let request = "GET /records HTTP/1.1\r\nhost: mock\r\nconnection: close\r\n\r\n";
    stream.write_all(request.as_bytes()).await.expect("the server reads");
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.expect("the server writes");
    let body = answer.split_once("\r\n\r\n").expect("a body").1;
    serde_json::from_str(body).expect("JSON")
}

fn argument(place: usize, default: f64) -> f64 {
    let numbers: Vec<f64> = std::env::args().skip(1).filter_map(|a| a.parse().ok()).collect();
    numbers.get(place).copied().unwrap_or(default)
}

fn main() {
    let load = Load {
        rate: argument(0, 1000.0),
        tokens: argument(1, 8.0) as usize,
        seconds: argument(2, 3.0),
    };
    let script = Script::from_json(SCRIPT).expect("a script");
    let server = Server::start(script, ([127, 0, 0, 1], 0).into()).expect("a server");
    let runtime =
        tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    let (answered, cpu_s, records) = runtime.block_on(async {
        let start = Instant::now() + Duration::from_millis(200);
        let connections: Vec<_> = (0..load.connections())
            .map(|number| tokio::spawn(connection(server.address(), load, number, start)))
            .collect();
        sleep_until(start).await;
        let cpu_before_s = server_cpu_s();
        let mut answered = 0;
        for connection in connections {
            answered += connection.await.expect("no panic");
        }
        let cpu_s = server_cpu_s() - cpu_before_s;
        (answered, cpu_s, records(server.address()).await)
    });
    let mut late_us: Vec<f64> = records["records"]
        .as_array()
        .into_iter()
        .flatten()
        .flat_map(|record| record["events"].as_array().into_iter().flatten())
        .map(|event| {
            let time = |name: &str| event[name].as_f64().expect("a time");
            (time("written_s") - time("intended_s")) * 1e6
        })
        .collect();
    late_us.sort_by(f64::total_cmp);
    let at = |share: f64| late_us[((late_us.len() - 1) as f64 * share) as usize].round();
    println!(
        "{}",
        serde_json::json!({
            "requests_per_s": load.rate, "tokens": load.tokens, "answered": answered,
            "events": late_us.len(), "late_us": {"p50": at(0.5), "p90": at(0.9), "p99": at(0.99),
            "p99.9": at(0.999), "max": at(1.0)}, "server_core_share": cpu_s / load.seconds,
        })
    );
}
