//! Misbehaving clients and devices: nothing leaks, no other request waits.

#![allow(clippy::unwrap_used)]

mod common;

use std::io::{Read, Write};
use std::time::Duration;

use common::{EOS, Harness, NUM_SLOTS};
use saccade_ring::testing::FakeConfig;
use serde_json::json;

/// A time limit that no test reaches.
const NEVER: Duration = Duration::from_secs(3600);

fn long_stream() -> serde_json::Value {
    json!({"prompt": "x", "max_tokens": 4000, "stream": true})
}

#[test]
fn a_client_that_goes_away_frees_its_slots() {
    let h = Harness::start();
    h.device.babble();
    for stream in [true, false] {
        let body = json!({"prompt": "x", "max_tokens": 4000, "n": 4, "stream": stream});
        let mut exchange = h.post_open("/v1/completions", &body);
        h.wait_until("running", |h| h.device.in_flight() == 4);
        if stream {
            exchange.head();
            exchange.chunk().unwrap();
        }
        drop(exchange);
        h.wait_until("cancelled", |h| h.device.in_flight() == 0);
    }
    assert_eq!(h.metric("saccade:requests_cancelled_total"), 2.0);
    assert_eq!(h.metric("saccade:requests_in_flight"), 0.0);
}

#[test]
fn a_storm_of_cut_streams_leaves_nothing_taken() {
    let h = Harness::start();
    h.device.babble();
    let mut seed = 0x9e37_79b9_7f4a_7c15_u64;
    for _ in 0..12 {
        let exchanges: Vec<_> =
            (0..16).map(|_| h.post_open("/v1/completions", &long_stream())).collect();
        for mut exchange in exchanges {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            if seed >> 63 == 0 {
                exchange.head();
                for _ in 0..seed >> 61 {
                    exchange.chunk();
                }
            }
        }
    }
    h.wait_until("no slot is taken", |h| h.device.in_flight() == 0);
    h.wait_until("no connection is open", |h| h.metric("saccade:http_connections") == 1.0);
    h.device.say("ok");
    let body = json!({"prompt": "x", "stop_token_ids": [EOS]});
    assert_eq!(h.post("/v1/completions", &body).json()["choices"][0]["text"], "ok");
}

#[test]
fn a_full_server_answers_429_and_all_or_none_of_n() {
    let h = Harness::start();
    h.device.babble();
    let body = json!({"prompt": "x", "max_tokens": 4000, "n": NUM_SLOTS - 1, "stream": true});
    let running = h.post_open("/v1/completions", &body);
    h.wait_until("running", |h| h.device.in_flight() == NUM_SLOTS as usize - 1);
    let answer = h.post("/v1/completions", &json!({"prompt": "x", "n": 2}));
    assert_eq!(answer.status, 429, "{}", answer.text());
    assert_eq!(answer.json()["error"]["type"], "rate_limit_error");
    let wait: u32 = answer.header("retry-after").unwrap().parse().unwrap();
    assert!((1..=60).contains(&wait));
    h.wait_until("none of the two", |h| h.device.in_flight() == NUM_SLOTS as usize - 1);
    assert_eq!(h.post("/v1/completions", &json!({"prompt": "x", "max_tokens": 2})).status, 200);
    drop(running);
    h.wait_until("free", |h| h.device.in_flight() == 0);
    let answer = h.post("/v1/completions", &json!({"prompt": "x", "n": NUM_SLOTS + 1}));
    assert_eq!(answer.status, 400, "{}", answer.text());
}

#[test]
fn the_queue_has_its_own_bound() {
    let h = Harness::with(
        |c| c.max_num_queued_reqs = Some(2),
        FakeConfig { max_num_seqs: 1, ..FakeConfig::default() },
    );
    h.device.babble();
    let _running: Vec<_> = (0..3)
        .map(|i| {
            let exchange = h.post_open("/v1/completions", &long_stream());
            h.wait_until("in the ring", |h| h.device.in_flight() == i + 1);
            exchange
        })
        .collect();
    h.wait_until("one runs, two wait", |h| {
        h.metric("saccade:slots{model_name=\"tiny\",state=\"prefill_pending\"}") == 2.0
    });
    let answer = h.post("/v1/completions", &json!({"prompt": "x"}));
    assert_eq!(answer.status, 429, "{}", answer.text());
    assert!(answer.text().contains("max_num_queued_reqs"));
    // A bound of 0 still admits a request that need not wait.
    let h = Harness::with(|c| c.max_num_queued_reqs = Some(0), FakeConfig::default());
    assert_eq!(h.post("/v1/completions", &json!({"prompt": "x"})).status, 200);
}

/// A server with this `stall_timeout`, and one client that does not read.
fn with_a_slow_reader(stall_timeout: Duration) -> (Harness, common::client::Exchange) {
    let h = Harness::with(
        |c| c.http.stall_timeout = stall_timeout,
        FakeConfig { records_per_tick: 64, ..FakeConfig::default() },
    );
    h.device.babble();
    // Enough logprobs to fill every buffer on the way.
    let body = json!({"prompt": "x", "max_tokens": 4000, "stream": true, "logprobs": 20, "n": 4});
    let slow = h.post_open("/v1/completions", &body);
    h.wait_until("stalled", |h| h.metric("saccade:reader_stalled_requests") > 0.0);
    (h, slow)
}

#[test]
fn a_slow_reader_stalls_only_itself() {
    let (h, _slow) = with_a_slow_reader(NEVER);
    let healthy = h.post("/v1/completions", &json!({"prompt": "x", "max_tokens": 200}));
    assert_eq!(healthy.json()["usage"]["completion_tokens"], 200);
    assert!(h.metric("saccade:reader_stalled_requests") > 0.0, "the slow one was not waited for");
}

#[test]
fn a_slow_reader_is_cut() {
    let (h, _slow) = with_a_slow_reader(Duration::from_millis(300));
    h.wait_until("cut", |h| h.device.in_flight() == 0);
}

#[test]
fn a_request_that_takes_too_long_ends_with_an_error() {
    let change = |c: &mut saccade_frontend::FrontendConfig| {
        c.request_timeout = Some(Duration::from_millis(400));
        c.device_lost_after = NEVER;
    };
    let h = Harness::with(change, FakeConfig::default());
    h.device.babble();
    let mut body = json!({"prompt": "x", "max_tokens": 4000});
    h.device.pause();
    let whole = h.post("/v1/completions", &body);
    assert_eq!(whole.status, 504, "{}", whole.text());
    assert_eq!(whole.json()["error"]["code"], "request_timeout");
    h.device.go_on();
    h.wait_until("it is back", |h| h.get("/ready").status == 200);
    h.device.pause();
    body["stream"] = true.into();
    let (chunks, done) = h.post("/v1/completions", &body).chunks();
    assert!(!done);
    assert_eq!(chunks.last().unwrap()["error"]["code"], "request_timeout");
    h.device.go_on();
    h.wait_until("both are cancelled", |h| h.device.in_flight() == 0);
    h.wait_until("it is back", |h| h.get("/ready").status == 200);
    let short = h.post("/v1/completions", &json!({"prompt": "x", "max_tokens": 2}));
    assert_eq!(short.status, 200);
}

/// The kernel would take some megabytes of it, and the device would compute it all for no reader.
#[test]
fn one_stream_that_nobody_reads_is_held() {
    let h = Harness::with(|_| {}, FakeConfig { records_per_tick: 64, ..FakeConfig::default() });
    h.device.babble();
    let body = json!({"prompt": "x", "max_tokens": 1500, "stream": true}).to_string();
    let mut client = h.connect_with_little_room();
    let head =
        "POST /v1/completions HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n";
    write!(client, "{head}content-length: {}\r\n\r\n{body}", body.len()).unwrap();
    h.wait_until("stalled", |h| h.metric("saccade:reader_stalled_requests") == 1.0);
    assert_eq!(h.device.in_flight(), 1);
}

#[test]
fn a_body_that_does_not_come_is_answered_408() {
    let h = Harness::with(
        |c| {
            c.http.header_read_timeout = NEVER;
            c.http.body_read_timeout = Duration::from_millis(300);
        },
        FakeConfig::default(),
    );
    let mut body = h.connect();
    body.write_all(
        b"POST /v1/completions HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n\
          content-length: 100\r\n\r\n{\"prompt\":",
    )
    .unwrap();
    let mut text = String::new();
    body.read_to_string(&mut text).unwrap();
    assert!(text.starts_with("HTTP/1.1 408"), "{text}");
    assert!(text.contains("body_timeout"), "{text}");
    h.wait_until("closed", |h| h.metric("saccade:http_connections") == 1.0);
}

#[test]
fn a_head_that_does_not_come_is_cut() {
    let h = Harness::with(
        |c| c.http.header_read_timeout = Duration::from_millis(300),
        FakeConfig::default(),
    );
    let mut head = h.connect();
    head.write_all(b"POST /v1/completions HTTP/1.1\r\nhost: localhost\r\n").unwrap();
    // With or without an answer; if the connection does not end, the read itself times out.
    match head.read_to_end(&mut Vec::new()) {
        Ok(_) => {}
        Err(error) => assert_eq!(error.kind(), std::io::ErrorKind::ConnectionReset),
    }
    h.wait_until("closed", |h| h.metric("saccade:http_connections") == 1.0);
}

/// `saccade:http_connections`, read through a connection that stays open.
fn connections(through: &mut std::net::TcpStream) -> f64 {
    write!(through, "GET /metrics HTTP/1.1\r\nhost: localhost\r\n\r\n").unwrap();
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        let mut byte = [0];
        through.read_exact(&mut byte).unwrap();
        head.push(byte[0]);
    }
    let head = String::from_utf8(head).unwrap().to_ascii_lowercase();
    let length = head.lines().find_map(|line| line.strip_prefix("content-length: ")).unwrap();
    let mut body = vec![0; length.parse().unwrap()];
    through.read_exact(&mut body).unwrap();
    let text = String::from_utf8(body).unwrap();
    let line = text.lines().find(|line| line.starts_with("saccade:http_connections{")).unwrap();
    line.rsplit(' ').next().unwrap().parse().unwrap()
}

#[test]
fn connections_are_bounded() {
    let h = Harness::with(|c| c.http.max_connections = 3, FakeConfig::default());
    let mut first = h.connect();
    // The connection that asked for readiness takes a moment to close.
    h.wait_until("alone", |_| connections(&mut first) == 1.0);
    let others = [h.connect(), h.connect()];
    h.wait_until("all are open", |_| connections(&mut first) == 3.0);
    let mut refused = h.connect();
    let mut text = String::new();
    let _ = refused.read_to_string(&mut text);
    assert!(text.starts_with("HTTP/1.1 503"), "{text}");
    assert!(text.contains("too_many_connections"));
    drop((first, others));
    h.wait_until("room again", |h| h.get("/health").status == 200);
}

#[test]
fn a_lost_device_ends_streams_with_an_error_event() {
    let mut h = Harness::start();
    h.device.babble();
    let mut stream = h.post_open("/v1/completions", &long_stream());
    stream.head();
    stream.chunk().unwrap();
    let whole = h.post_open("/v1/completions", &json!({"prompt": "x", "max_tokens": 4000}));
    h.wait_until("both run", |h| h.device.in_flight() == 2);
    h.device.kill();
    let mut last = Vec::new();
    while let Some(chunk) = stream.chunk() {
        last = chunk;
    }
    let text = String::from_utf8(last).unwrap();
    let event = text.trim_end().rsplit("\n\n").next().unwrap();
    let error: serde_json::Value =
        serde_json::from_str(event.strip_prefix("data: ").unwrap()).unwrap();
    assert_eq!(error["error"]["code"], "device_lost");
    let whole = whole.answer();
    assert_eq!((whole.status, whole.json()["error"]["code"].clone()), (503, json!("device_lost")));
    assert_eq!(h.get("/ready").status, 503);
    assert_eq!(h.get("/health").status, 200);
    let refused = h.post("/v1/completions", &json!({"prompt": "x"}));
    assert_eq!((refused.status, refused.header("retry-after")), (503, Some("1")));
    // The next life serves again.
    let config = FakeConfig { vocab_size: common::VOCAB_SIZE, ..FakeConfig::default() };
    h.device.restart(config);
    h.device.say("back");
    h.wait_until("ready", |h| h.get("/ready").status == 200);
    let body = json!({"prompt": "x", "stop_token_ids": [EOS]});
    assert_eq!(h.post("/v1/completions", &body).json()["choices"][0]["text"], "back");
}

#[test]
fn a_drain_lets_requests_end_and_takes_no_new_ones() {
    let mut h = Harness::with(
        |c| (c.drain_timeout, c.device_lost_after) = (NEVER, NEVER),
        FakeConfig::default(),
    );
    h.device.say(&"word ".repeat(100));
    let body = json!({"prompt": "x", "max_tokens": 600, "stop_token_ids": [EOS], "stream": true});
    let mut stream = h.post_open("/v1/completions", &body);
    stream.head();
    stream.chunk().unwrap();
    h.device.pause(); // the stream does not end before the server was asked
    h.shutdown.drain();
    assert_eq!(h.get("/ready").status, 503);
    assert_eq!(h.get("/health").status, 200);
    let refused = h.post("/v1/completions", &json!({"prompt": "x"}));
    assert_eq!(refused.json()["error"]["code"], "server_shutting_down");
    h.device.go_on();
    let mut text = String::new();
    while let Some(chunk) = stream.chunk() {
        text.push_str(std::str::from_utf8(&chunk).unwrap());
    }
    assert!(text.ends_with("data: [DONE]\n\n"), "{text}");
    h.join();
}

/// Both end a stream whose device has stopped: a server that waits for its end never returns.
#[test]
fn a_drain_is_bounded_and_a_stop_is_at_once() {
    for (stop, drain_timeout) in [(false, Duration::from_millis(300)), (true, NEVER)] {
        let mut h = Harness::with(
            |c| (c.drain_timeout, c.device_lost_after) = (drain_timeout, NEVER),
            FakeConfig::default(),
        );
        h.device.babble();
        let mut stream = h.post_open("/v1/completions", &long_stream());
        stream.head();
        stream.chunk().unwrap();
        h.device.pause();
        if stop {
            h.shutdown.stop()
        } else {
            h.shutdown.drain()
        }
        let mut text = String::new();
        while let Some(chunk) = stream.chunk() {
            text.push_str(std::str::from_utf8(&chunk).unwrap());
        }
        assert!(text.contains("server_shutting_down"), "{text}");
        assert!(!text.contains("[DONE]"));
        h.join();
        h.device.go_on();
        h.wait_until("cancelled on the device", |h| h.device.in_flight() == 0);
    }
}

#[test]
fn a_silent_stream_is_kept_alive() {
    let h = Harness::with(
        |c| {
            c.http.keep_alive_interval = Duration::from_millis(50);
            c.device_lost_after = Duration::from_secs(20);
        },
        FakeConfig::default(),
    );
    h.device.pause();
    let body = json!({"prompt": "x", "stop_token_ids": [EOS], "stream": true});
    let mut stream = h.post_open("/v1/completions", &body);
    stream.head();
    assert_eq!(stream.chunk().unwrap(), b": waiting\n\n");
    h.device.go_on();
    let answer = {
        let mut text = String::new();
        while let Some(chunk) = stream.chunk() {
            text.push_str(std::str::from_utf8(&chunk).unwrap());
        }
        text
    };
    assert!(answer.ends_with("data: [DONE]\n\n"));
}

#[test]
fn metrics_have_the_names_that_routers_read() {
    let h = Harness::start();
    let body = json!({"prompt": "x", "stop_token_ids": [EOS]});
    assert_eq!(h.post("/v1/completions", &body).status, 200);
    let text = h.get("/metrics").text();
    for name in [
        "vllm:num_requests_running",
        "vllm:num_requests_waiting",
        "vllm:kv_cache_usage_perc",
        "vllm:cache_config_info",
        "vllm:prompt_tokens_total",
        "vllm:generation_tokens_total",
        "vllm:request_success_total",
        "vllm:request_prompt_tokens_bucket",
        "vllm:request_generation_tokens_bucket",
        "vllm:time_to_first_token_seconds_bucket",
        "vllm:inter_token_latency_seconds_bucket",
        "vllm:time_per_output_token_seconds_bucket",
        "vllm:request_time_per_output_token_seconds_bucket",
        "vllm:e2e_request_latency_seconds_bucket",
        "vllm:request_queue_time_seconds_bucket",
        "vllm:request_inference_time_seconds_bucket",
        "vllm:request_prefill_time_seconds_bucket",
        "vllm:request_decode_time_seconds_bucket",
        "vllm:prefix_cache_queries_total",
        "vllm:prefix_cache_hits_total",
        "vllm:num_preemptions_total",
        "saccade:tokenize_seconds_bucket",
        "saccade:slots",
        "saccade:ring_violations_total",
    ] {
        let found = text.lines().any(|l| l.starts_with(name) && l.contains("model_name=\"tiny\""));
        assert!(found, "{name} in\n{text}");
    }
    assert_eq!(h.metric("vllm:generation_tokens_total"), 13.0);
    assert_eq!(h.metric("vllm:time_to_first_token_seconds_count"), 1.0);
    assert_eq!(h.metric("vllm:inter_token_latency_seconds_count"), 12.0);
    assert_eq!(h.metric("vllm:request_queue_time_seconds_count"), 1.0);
}

#[test]
fn token_counters_move_while_a_request_runs() {
    let h = Harness::start();
    h.device.babble();
    let body = json!({"prompt": "abc", "max_tokens": 4000, "stream": true, "ignore_eos": true});
    let mut running = h.post_open("/v1/completions", &body);
    running.head();
    assert!(running.chunk().is_some());
    let total = |name: &str| h.metric(&format!("vllm:{name}_tokens_total{{model_name=\"tiny\"}}"));
    assert_eq!(total("prompt"), 3.0);
    h.wait_until("tokens are counted", |_| total("generation") > 10.0);
    assert_eq!(h.device.in_flight(), 1, "it had not ended by then");
}

#[test]
fn a_connection_serves_one_request_after_another() {
    let h = Harness::start();
    let mut stream = h.connect();
    let body = json!({"prompt": "x", "stream": true, "stop_token_ids": [EOS]}).to_string();
    let head =
        "POST /v1/completions HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n";
    for _ in 0..3 {
        write!(stream, "{head}content-length: {}\r\n\r\n{body}", body.len()).unwrap();
        read_until(&mut stream, b"[DONE]\n\n\r\n0\r\n\r\n");
        stream.write_all(b"GET /ui/state HTTP/1.1\r\nhost: localhost\r\n\r\n").unwrap();
        let text = read_until(&mut stream, b"}}");
        assert!(text.starts_with("HTTP/1.1 200"), "{text}");
        assert!(text.contains("cache-control: no-store"), "{text}");
        std::thread::sleep(Duration::from_millis(300));
    }
}

fn read_until(stream: &mut impl Read, end: &[u8]) -> String {
    let (mut text, mut buffer) = (Vec::new(), [0u8; 4096]);
    while !text.ends_with(end) {
        let n = stream.read(&mut buffer).unwrap();
        assert!(n > 0, "closed after {}", String::from_utf8_lossy(&text));
        text.extend_from_slice(&buffer[..n]);
    }
    String::from_utf8(text).unwrap()
}

/// A frontend that was silent for too long (its process was stopped, say) finds its requests taken
/// back. That is no fault of this server's logic: the client is told to try again, and may.
#[test]
fn a_frontend_that_was_given_up_says_try_again() {
    let h = Harness::start();
    h.device.babble();
    let whole = h.post_open("/v1/completions", &json!({"prompt": "x", "max_tokens": 4000}));
    let mut stream = h.post_open("/v1/completions", &long_stream());
    h.wait_until("running", |h| h.device.in_flight() == 2);
    stream.head();
    stream.chunk().unwrap();
    h.device.give_up();
    let whole = whole.answer();
    assert_eq!(
        (whole.status, whole.json()["error"]["code"].clone()),
        (503, json!("frontend_stalled"))
    );
    assert_eq!(whole.header("retry-after"), Some("1"));
    let mut last = Vec::new();
    while let Some(chunk) = stream.chunk() {
        last = chunk;
    }
    let last = String::from_utf8(last).unwrap();
    assert!(last.contains("\"code\":\"frontend_stalled\""), "{last}");
    h.device.say("ok");
    assert_eq!(h.post("/v1/completions", &json!({"prompt": "x", "max_tokens": 9})).status, 200);
}
