//! The plainest HTTP client: it shows what goes over the wire, and can misbehave.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use serde_json::Value;

use super::Harness;

pub struct Answer {
    pub status: u16,
    pub headers: Vec<(String, String)>,
    pub body: Vec<u8>,
}

impl Answer {
    pub fn text(&self) -> String {
        String::from_utf8(self.body.clone()).unwrap()
    }

    pub fn json(&self) -> Value {
        serde_json::from_slice(&self.body)
            .unwrap_or_else(|e| panic!("{e}: {}", String::from_utf8_lossy(&self.body)))
    }

    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(n, _)| n == name).map(|(_, v)| v.as_str())
    }

    /// Data of the server-sent events.
    pub fn events(&self) -> Vec<String> {
        let text = self.text();
        let frames = text.split_terminator("\n\n").filter_map(|f| f.strip_prefix("data: "));
        frames.map(str::to_owned).collect()
    }

    /// The events that are JSON, and whether `[DONE]` came last.
    pub fn chunks(&self) -> (Vec<Value>, bool) {
        let mut events = self.events();
        let done = events.last().is_some_and(|e| e == "[DONE]");
        if done {
            events.pop();
        }
        (events.iter().map(|e| serde_json::from_str(e).unwrap()).collect(), done)
    }
}

/// An open exchange whose answer has not been read.
pub struct Exchange {
    pub stream: BufReader<TcpStream>,
}

impl Harness {
    pub fn get(&self, path: &str) -> Answer {
        self.request("GET", path, &[], "")
    }

    pub fn post(&self, path: &str, body: &Value) -> Answer {
        self.request("POST", path, &[("content-type", "application/json")], &body.to_string())
    }

    pub fn request(
        &self,
        method: &str,
        path: &str,
        headers: &[(&str, &str)],
        body: &str,
    ) -> Answer {
        self.open(method, path, headers, body).answer()
    }

    pub fn post_open(&self, path: &str, body: &Value) -> Exchange {
        self.open("POST", path, &[("content-type", "application/json")], &body.to_string())
    }

    pub fn open(&self, method: &str, path: &str, headers: &[(&str, &str)], body: &str) -> Exchange {
        let mut stream = self.connect();
        let mut head =
            format!("{method} {path} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n");
        for (name, value) in headers {
            head.push_str(&format!("{name}: {value}\r\n"));
        }
        head.push_str(&format!("content-length: {}\r\n\r\n", body.len()));
        // A refused body may be answered before it is written in full.
        let _ = stream.write_all(head.as_bytes()).and_then(|()| stream.write_all(body.as_bytes()));
        Exchange { stream: BufReader::new(stream) }
    }

    pub fn connect(&self) -> TcpStream {
        let stream = TcpStream::connect(self.addr).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
        stream
    }

    /// A connection of whose answer the client's kernel holds a few KiB and no more.
    pub fn connect_with_little_room(&self) -> TcpStream {
        let client =
            socket2::Socket::new(socket2::Domain::IPV4, socket2::Type::STREAM, None).unwrap();
        client.set_recv_buffer_size(4096).unwrap();
        client.connect(&self.addr.into()).unwrap();
        client.into()
    }
}

impl Exchange {
    pub fn head(&mut self) -> (u16, Vec<(String, String)>) {
        let status = self.line();
        let status = status.split(' ').nth(1).unwrap_or_else(|| panic!("{status:?}"));
        let mut headers = Vec::new();
        loop {
            let line = self.line();
            let Some((name, value)) = line.split_once(": ") else { break };
            headers.push((name.to_ascii_lowercase(), value.to_owned()));
        }
        (status.parse().unwrap(), headers)
    }

    pub fn answer(mut self) -> Answer {
        let (status, headers) = self.head();
        let chunked = headers.iter().any(|(n, v)| n == "transfer-encoding" && v == "chunked");
        let mut body = Vec::new();
        if chunked {
            while let Some(mut chunk) = self.chunk() {
                body.append(&mut chunk);
            }
        } else {
            self.stream.read_to_end(&mut body).unwrap();
        }
        Answer { status, headers, body }
    }

    /// The next chunk of a chunked body; `None` at its proper end.
    pub fn chunk(&mut self) -> Option<Vec<u8>> {
        let size = self.line();
        let size = usize::from_str_radix(&size, 16).unwrap_or_else(|_| panic!("{size:?}"));
        let mut chunk = vec![0; size + 2];
        self.stream.read_exact(&mut chunk).unwrap();
        chunk.truncate(size);
        (size > 0).then_some(chunk)
    }

    fn line(&mut self) -> String {
        let mut line = String::new();
        self.stream.read_line(&mut line).unwrap();
        line.trim_end().to_owned()
    }
}
