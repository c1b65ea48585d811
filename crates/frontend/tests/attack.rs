//! What one client sends reaches no other: memory, hosts, codings, answers of any size.

#![allow(clippy::unwrap_used)]

mod common;

use std::io::{Read, Write};

use common::Harness;
use saccade_frontend::HttpLimits;
use serde_json::{Value, json};

const KIB: usize = 1024;

fn with_memory(bytes: usize) -> Harness {
    let http = HttpLimits { max_body_bytes_total: bytes, ..HttpLimits::default() };
    Harness::with(|c| c.http = http, Default::default())
}

/// A body of which `sent` bytes have come, in chunks of `chunk` bytes, and the rest has not.
fn unfinished_body(h: &Harness, path: &str, sent: usize, chunk: usize) -> std::net::TcpStream {
    let mut stream = h.connect();
    let head = format!(
        "POST {path} HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n\
         transfer-encoding: chunked\r\n\r\n"
    );
    stream.write_all(head.as_bytes()).unwrap();
    let one = format!("{chunk:x}\r\n{}\r\n", " ".repeat(chunk));
    stream.write_all(one.repeat(sent / chunk).as_bytes()).unwrap();
    stream
}

fn as_sent(path: &str, body: &Value) -> String {
    let body = body.to_string();
    format!(
        "POST {path} HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n\
         content-length: {}\r\n\r\n{body}",
        body.len()
    )
}

/// 200, or the status that refuses an answer of two tokens.
fn asked(h: &Harness) -> u16 {
    h.post("/v1/completions", &json!({"prompt": "hi", "max_tokens": 2})).status
}

/// 413 or 200 at once, 429 while others hold the memory: a body of `bytes`.
fn large(h: &Harness, bytes: usize) -> u16 {
    h.post("/tokenize", &json!({"prompt": "a".repeat(bytes)})).status
}

#[test]
fn a_body_in_one_byte_chunks_costs_its_bytes() {
    let h = with_memory(512 * KIB);
    let _held: Vec<_> = (0..4).map(|_| unfinished_body(&h, "/tokenize", 16 * KIB, 1)).collect();
    // Four bodies of 16 KiB are under what no body is charged for.
    for _ in 0..20 {
        assert_eq!(asked(&h), 200);
        assert_eq!(large(&h, 140 * KIB), 200, "it holds 496 KiB of ids");
    }
}

#[test]
fn large_bodies_take_nothing_from_ordinary_requests() {
    let h = with_memory(512 * KIB);
    let held: Vec<_> = (0..16).map(|_| unfinished_body(&h, "/tokenize", 128 * KIB, KIB)).collect();
    h.wait_until("large bodies hold their memory", |h| large(h, 100 * KIB) == 429);
    for _ in 0..20 {
        assert_eq!(asked(&h), 200);
    }
    drop(held);
    h.wait_until("it returns", |h| large(h, 100 * KIB) == 200);
}

#[test]
fn answers_of_any_size_come_in_pieces_and_are_whole() {
    let h = Harness::start();
    let vocab = h.post("/tokenize", &json!({"prompt": "ab", "return_token_strs": true})).json();
    assert_eq!(vocab["token_strs"].as_array().unwrap().len(), 2);
    for len in [0, 1, 1023, 1024, 1025, 5000, 300_000] {
        let text: String = "ab \"\\\u{1F600}\n".chars().cycle().take(len).collect();
        let answer = h.post("/tokenize", &json!({"prompt": text, "return_token_strs": true}));
        let json = answer.json();
        let ids = json["tokens"].as_array().unwrap();
        assert_eq!(json["count"], ids.len(), "{len}");
        assert_eq!(json["token_strs"].as_array().unwrap().len(), ids.len(), "{len}");
        let plain = h.post("/tokenize", &json!({"prompt": text})).json();
        assert_eq!((&plain["tokens"], &plain["token_strs"]), (&json["tokens"], &Value::Null));
        let back = h.post("/detokenize", &json!({"tokens": ids})).json();
        assert_eq!(back["prompt"], text, "{len}");
    }
}

#[test]
fn a_large_answer_that_is_not_read_holds_its_share_and_no_more() {
    let h = with_memory(2 * KIB * KIB);
    let body = json!({"prompt": "a".repeat(400 * KIB), "return_token_strs": true});
    let mut held = h.connect_with_little_room();
    write!(held, "{}", as_sent("/tokenize", &body)).unwrap();
    // Its ids are charged until the answer has been taken: 4 bytes each.
    h.wait_until("the answer holds memory", |h| large(h, 400 * KIB) == 429);
    assert_eq!(asked(&h), 200);
    drop(held);
    h.wait_until("it returns", |h| large(h, 400 * KIB) == 200);
}

#[test]
fn token_endpoints_ask_for_the_key() {
    let h = Harness::with(|c| c.api_keys = vec!["s3cret".into()], Default::default());
    for (path, body) in
        [("/tokenize", json!({"prompt": "x"})), ("/detokenize", json!({"tokens": [1]}))]
    {
        assert_eq!(h.post(path, &body).status, 401, "{path}");
        let headers = [("content-type", "application/json"), ("authorization", "Bearer s3cret")];
        assert_eq!(h.request("POST", path, &headers, &body.to_string()).status, 200, "{path}");
    }
}

/// Status of the answer to what is sent as it is.
fn status_of(h: &Harness, request: &str) -> String {
    let mut stream = h.connect();
    stream.write_all(request.as_bytes()).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    answer.split(' ').nth(1).unwrap_or_else(|| panic!("{request:?}: {answer:?}")).to_owned()
}

#[test]
fn requests_have_one_host_and_it_is_ours() {
    let h = Harness::start();
    for (hosts, want) in [
        ("host: localhost\r\n", "200"),
        ("host: 127.0.0.1:80\r\n", "200"),
        ("", "400"),
        ("host: localhost\r\nhost: localhost\r\n", "400"),
        // A page whose name was made to resolve to this machine.
        ("host: evil.example\r\n", "403"),
    ] {
        for path in ["/health", "/v1/models", "/metrics", "/"] {
            let request = format!("GET {path} HTTP/1.1\r\n{hosts}connection: close\r\n\r\n");
            assert_eq!(status_of(&h, &request), want, "{path} {hosts:?}");
        }
    }
    drop(h);
    let named = Harness::with(|c| c.allowed_hosts = vec!["localhost".into()], Default::default());
    let request = "GET /health HTTP/1.1\r\nhost: 127.0.0.1\r\nconnection: close\r\n\r\n";
    assert_eq!(status_of(&named, request), "403");
}

#[test]
fn a_body_that_is_coded_or_ambiguous_is_refused() {
    let h = Harness::start();
    let body = json!({"prompt": "hi", "max_tokens": 1}).to_string();
    for (coding, want) in [("identity", 200), ("Identity", 200), ("gzip", 415), ("br", 415)] {
        let headers = [("content-type", "application/json"), ("content-encoding", coding)];
        let answer = h.request("POST", "/v1/completions", &headers, &body);
        assert_eq!(answer.status, want, "{coding}: {}", answer.text());
    }
    let twice = r#"{"prompt": "hi", "max_tokens": 1, "max_tokens": 2}"#;
    let answer =
        h.request("POST", "/v1/completions", &[("content-type", "application/json")], twice);
    assert_eq!(answer.status, 400);
    assert!(answer.text().contains("`max_tokens` is repeated"), "{}", answer.text());
}

#[test]
fn what_never_fits_is_not_put_off() {
    let h = Harness::start();
    let ids: Vec<u32> = vec![97; 4000];
    // 32 slots of 16 KB each are more than the region's arena for prompts has.
    let answer = h.post("/v1/completions", &json!({"prompt": ids, "n": 32, "max_tokens": 1}));
    assert_eq!(answer.status, 400, "{}", answer.text());
    let message = answer.json()["error"]["message"].as_str().unwrap().to_owned();
    assert!(message.contains("`n`") && message.contains("--arena-bytes"), "{message}");
    assert_eq!(h.post("/v1/completions", &json!({"prompt": ids, "max_tokens": 1})).status, 200);
}
