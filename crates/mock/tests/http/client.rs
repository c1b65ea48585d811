//! A plain HTTP/1.1 client of the tests: every chunk with the time at which it came.

use std::io::{BufRead, BufReader, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use serde_json::Value;

/// What came back.
#[derive(Debug)]
pub struct Reply {
    pub status: u16,
    pub headers: Vec<(String, String)>,
    /// Each chunk, or the whole body, and when it was there: seconds on CLOCK_MONOTONIC.
    pub chunks: Vec<(f64, Vec<u8>)>,
    /// Whether the body came to its end.
    pub complete: bool,
}

impl Reply {
    pub fn text(&self) -> String {
        let bytes: Vec<u8> = self.chunks.iter().flat_map(|(_, bytes)| bytes.clone()).collect();
        String::from_utf8(bytes).expect("UTF-8")
    }

    pub fn json(&self) -> Value {
        serde_json::from_str(&self.text()).expect("JSON")
    }

    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(n, _)| n == name).map(|(_, value)| value.as_str())
    }

    /// The `data:` lines of an event stream.
    pub fn data(&self) -> Vec<String> {
        let text = self.text();
        text.lines().filter_map(|line| line.strip_prefix("data: ")).map(str::to_owned).collect()
    }

    /// The objects of an event stream.
    pub fn events(&self) -> Vec<Value> {
        let objects = self.data().into_iter().filter(|data| data != "[DONE]");
        objects.map(|data| serde_json::from_str(&data).expect("JSON")).collect()
    }

    /// The text that the events of a completion carried.
    pub fn completion(&self) -> String {
        self.events().iter().filter_map(|e| e["choices"][0]["text"].as_str()).collect()
    }
}

pub fn monotonic() -> f64 {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    time.tv_sec as f64 + time.tv_nsec as f64 * 1e-9
}

pub fn get(server: SocketAddr, path: &str) -> Reply {
    exchange(server, &format!("GET {path} HTTP/1.1\r\nhost: mock\r\n\r\n"))
}

pub fn post(server: SocketAddr, path: &str, body: &str) -> Reply {
    post_with(server, path, "", body)
}

pub fn post_with(server: SocketAddr, path: &str, headers: &str, body: &str) -> Reply {
    exchange(server, &request(path, headers, body))
}

/// The text of a POST; each of `headers` ends its line.
pub fn request(path: &str, headers: &str, body: &str) -> String {
    let length = body.len();
    format!("POST {path} HTTP/1.1\r\nhost: mock\r\n{headers}content-length: {length}\r\n\r\n{body}")
}

fn exchange(server: SocketAddr, request: &str) -> Reply {
    let mut stream = TcpStream::connect(server).expect("the server listens");
    stream.set_read_timeout(Some(Duration::from_secs(60))).expect("a timeout");
    stream.write_all(request.as_bytes()).expect("the server reads");
    let mut reader = BufReader::new(stream);
    let mut status = String::new();
    reader.read_line(&mut status).expect("a status line");
    let mut reply = Reply {
        status: status.split(' ').nth(1).and_then(|code| code.parse().ok()).expect("a status"),
        headers: read_headers(&mut reader),
        chunks: Vec::new(),
        complete: false,
    };
    read_body(&mut reader, &mut reply);
    reply
}

fn read_headers(reader: &mut impl BufRead) -> Vec<(String, String)> {
    let mut headers = Vec::new();
    loop {
        let mut line = String::new();
        reader.read_line(&mut line).expect("a header");
        let Some((name, value)) = line.trim_end().split_once(": ") else { return headers };
        headers.push((name.to_ascii_lowercase(), value.to_owned()));
    }
}

fn read_body(reader: &mut impl BufRead, reply: &mut Reply) {
    if let Some(length) = reply.header("content-length") {
        let mut bytes = vec![0; length.parse().expect("a length")];
        reply.complete = reader.read_exact(&mut bytes).is_ok();
        reply.chunks.push((monotonic(), bytes));
        return;
    }
    loop {
        let mut size = String::new();
        if reader.read_line(&mut size).unwrap_or(0) == 0 {
            return;
        }
        let size = usize::from_str_radix(size.trim_end(), 16).expect("a chunk's size");
        let mut bytes = vec![0; size + 2];
        if reader.read_exact(&mut bytes).is_err() {
            return;
        }
        if size == 0 {
            reply.complete = true;
            return;
        }
        bytes.truncate(size);
        reply.chunks.push((monotonic(), bytes));
    }
}
