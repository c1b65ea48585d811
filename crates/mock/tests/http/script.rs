//! Whether the mock does what its script says, by its own records and by the client's clock.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use crate::client::{Reply, get, post, post_with, request};
use crate::start;
use serde_json::{Value, json};

/// A clock's worth of rounding between f64 seconds.
const ROUNDING_S: f64 = 1e-6;
/// How late a server may be on a busy test machine and still be said to keep its script.
const LATE_S: f64 = 0.25;

fn stream(server: SocketAddr, tokens: usize) -> Reply {
    let body = format!(r#"{{"prompt": "hi", "max_tokens": {tokens}, "stream": true}}"#);
    post(server, "/v1/completions", &body)
}

/// Records, once there are `count` of them.
fn records(server: SocketAddr, count: usize) -> Vec<Value> {
    let start = Instant::now();
    loop {
        let records = get(server, "/records").json()["records"].as_array().expect("all").clone();
        if records.len() >= count {
            return records;
        }
        assert!(start.elapsed() < Duration::from_secs(20), "{} records", records.len());
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// Waits until a metric has a value.
fn until_metric(server: SocketAddr, name: &str, value: usize) {
    let line = format!("vllm:{name}{{model_name=\"mock\"}} {value}\n");
    let start = Instant::now();
    while !get(server, "/metrics").text().contains(&line) {
        assert!(start.elapsed() < Duration::from_secs(20), "never {line}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

fn seconds(record: &Value, field: &str) -> f64 {
    record[field].as_f64().unwrap_or_else(|| panic!("{field} of {record}"))
}

fn intended(record: &Value) -> Vec<f64> {
    let events = record["events"].as_array().expect("events");
    events.iter().map(|event| seconds(event, "intended_s")).collect()
}

fn gaps(times: &[f64]) -> Vec<f64> {
    times.windows(2).map(|pair| pair[1] - pair[0]).collect()
}

fn assert_near(actual: f64, expected: f64, within: f64) {
    assert!((actual - expected).abs() <= within, "{actual} is not {expected} within {within}");
}

#[test]
fn events_leave_when_the_script_says() {
    let server = start(
        r#"{"ttft": "list:30ms,60ms", "itl": "list:10ms,40ms,5ms", "prefill_us_per_token": 1000}"#,
    );
    for (index, ttft) in [(0, 0.030), (1, 0.060), (2, 0.030)] {
        let reply = stream(server.address(), 5);
        let record = &records(server.address(), index + 1)[index];
        let times = intended(record);
        assert_near(times[0] - seconds(record, "seated_s"), ttft + 0.001, ROUNDING_S);
        for (gap, wanted) in gaps(&times).iter().zip([0.010, 0.040, 0.005, 0.010]) {
            assert_near(*gap, wanted, ROUNDING_S);
        }
        // The client saw the same: never early, and not later than a busy machine explains.
        for (event, (came, _)) in times.iter().zip(&reply.chunks) {
            assert!(came >= event, "came {} s early", event - came);
            assert!(came - event < LATE_S, "came {} s late", came - event);
        }
        for event in record["events"].as_array().expect("events") {
            assert!(seconds(event, "written_s") >= seconds(event, "intended_s"));
        }
    }
}

#[test]
fn draws_follow_their_distribution_and_seed() {
    let of = |itl: &str, seed: u64| {
        let server = start(&format!(r#"{{"ttft": "0us", "itl": "{itl}", "seed": {seed}}}"#));
        stream(server.address(), 2001);
        let mut gaps = gaps(&intended(&records(server.address(), 1)[0]));
        let first = gaps[0];
        gaps.sort_by(f64::total_cmp);
        (gaps, first)
    };
    let (uniform, _) = of("uniform:20us,60us", 1);
    assert_near(uniform[1000], 40e-6, 3e-6);
    assert!(uniform[0] >= 20e-6 - ROUNDING_S && uniform[1999] <= 60e-6 + ROUNDING_S);

    let (lognormal, first) = of("lognormal:40us,0.5", 1);
    assert_near(lognormal[1000], 40e-6, 3e-6);
    // A standard deviation of the logarithm to either side.
    assert_near(lognormal[1683] / lognormal[1000], 0.5_f64.exp(), 0.12);
    assert_near(lognormal[317] / lognormal[1000], (-0.5_f64).exp(), 0.08);
    assert_near(of("lognormal:40us,0.5", 1).1, first, ROUNDING_S);
    assert!((of("lognormal:40us,0.5", 2).1 - first).abs() > ROUNDING_S, "another seed");

    let (bimodal, _) = of("bimodal:10us,90us,0.1", 1);
    let second = bimodal.iter().filter(|gap| **gap > 50e-6).count();
    assert!((140..=260).contains(&second), "{second} of 2000 at a share of 0.1");
}

#[test]
fn those_beyond_the_seats_wait_in_turn_and_then_are_refused() {
    let server = start(
        r#"{"ttft": "2s", "itl": "1ms", "capacity": {"running": 1, "waiting": 2,
            "retry_after_s": 7}}"#,
    );
    let at = server.address();
    std::thread::scope(|scope| {
        for waiting in 0..3 {
            scope.spawn(move || assert_eq!(stream(at, 2).status, 200));
            until_metric(at, "num_requests_waiting", waiting);
            until_metric(at, "num_requests_running", 1);
        }
        let refused = stream(at, 2);
        assert_eq!(refused.status, 429);
        assert_eq!(refused.header("retry-after"), Some("7"));
    });
    let mut records = records(at, 4);
    records.sort_by_key(|record| record["index"].as_u64());
    assert_eq!(records[3]["outcome"], "rejected");
    for pair in records[..3].windows(2) {
        let waited = seconds(&pair[1], "seated_s") - seconds(&pair[0], "ended_s");
        assert!(waited >= -ROUNDING_S, "seated {waited} s before the seat was free");
    }
}

#[test]
fn a_frozen_server_moves_what_follows() {
    let server =
        start(r#"{"ttft": "20ms", "itl": "20ms", "stalls": [{"at_request": 1, "for_s": 0.2}]}"#);
    let at = server.address();
    std::thread::scope(|scope| {
        scope.spawn(move || stream(at, 200));
        until_metric(at, "num_requests_running", 1);
        std::thread::sleep(Duration::from_millis(100));
        stream(at, 1);
    });
    let mut records = records(at, 2);
    records.sort_by_key(|record| record["index"].as_u64());
    let begin = seconds(&records[1], "received_s");
    let end = begin + 0.2;
    let times = intended(&records[0]);
    assert!(times.iter().all(|t| *t < begin || *t >= end - ROUNDING_S), "{times:?}");
    let gaps = gaps(&times);
    let long: Vec<_> = gaps.iter().filter(|gap| **gap > 0.021).collect();
    assert_eq!(long.len(), 1, "one gap is longer: {gaps:?}");
    assert!(gaps.iter().all(|gap| *gap > 0.019), "nothing is made up for: {gaps:?}");
    // The request that came with the stall waited for its end.
    assert!(intended(&records[1])[0] >= end - ROUNDING_S);
}

#[test]
fn a_server_that_holds_back_sends_all_at_once() {
    let script = r#"{"ttft": "20ms", "itl": "20ms",
                     "stalls": [{"at_request": 0, "for_s": 0.2, "mode": "hold"}]}"#;
    let server = start(script);
    let reply = stream(server.address(), 15);
    let record = &records(server.address(), 1)[0];
    let end = seconds(record, "received_s") + 0.2;
    let times = intended(record);
    assert!(times.iter().all(|t| *t >= end - ROUNDING_S), "{times:?}");
    let at_end = times.iter().filter(|t| **t - end < ROUNDING_S).count();
    let due = (0.2 - (seconds(record, "seated_s") - seconds(record, "received_s"))) / 0.02;
    assert!(at_end.abs_diff(due as usize) <= 1, "{at_end} at the end, {due} were due");
    assert_eq!(reply.completion().split_whitespace().count(), 15);
}

#[test]
fn requests_fail_as_scripted() {
    let at_share_1 = |failure: &str| {
        start(&format!(r#"{{"ttft": "1ms", "itl": "1ms", "failures": {{"{failure}": 1.0}}}}"#))
    };
    let server = at_share_1("http_500");
    assert_eq!(stream(server.address(), 5).status, 500);
    assert_eq!(records(server.address(), 1)[0]["outcome"], "http500");

    let server = at_share_1("error_event");
    let reply = stream(server.address(), 5);
    assert!(reply.complete);
    assert_eq!(reply.events().last().expect("an event")["error"]["code"], 500);
    assert_eq!(records(server.address(), 1)[0]["outcome"], "error_event");
}

#[test]
fn a_cut_stream_has_what_was_written_before() {
    // The second script has all events due at once, and the cut with them.
    for stalls in ["", r#", "stalls": [{"at_request": 0, "for_s": 0.2, "mode": "hold"}]"#] {
        let script = r#"{"ttft": "1ms", "itl": "1ms", "failures": {"cut": 1.0}"#;
        let server = start(&format!("{script}{stalls}}}"));
        let reply = stream(server.address(), 5);
        assert!(!reply.complete);
        let record = &records(server.address(), 1)[0];
        assert_eq!(record["outcome"], "cut");
        let written = record["output_tokens"].as_u64().expect("tokens");
        assert!((1..5).contains(&written), "{written} tokens");
        assert_eq!(reply.completion().split_whitespace().count() as u64, written);
    }
}

#[test]
fn a_hanging_request_gets_no_byte_and_takes_no_seat() {
    let script = r#"{"ttft": "1ms", "capacity": {"running": 1, "waiting": 0},
                     "failures": {"hang": 1.0}}"#;
    let server = start(script);
    let body = r#"{"prompt": "hi", "max_tokens": 1}"#;
    let mut hanging = TcpStream::connect(server.address()).expect("the server listens");
    hanging.write_all(request("/v1/completions", "", body).as_bytes()).expect("the server reads");
    hanging.set_read_timeout(Some(Duration::from_millis(200))).expect("a timeout");
    assert!(hanging.read(&mut [0; 1]).is_err());
    let metrics = get(server.address(), "/metrics").text();
    assert!(metrics.contains("vllm:num_requests_running{model_name=\"mock\"} 0\n"));
    drop(hanging);
    assert_eq!(records(server.address(), 1)[0]["outcome"], "client_gone");
}

#[test]
fn shares_of_failures_are_kept() {
    let server = start(r#"{"ttft": "0us", "seed": 11, "failures": {"http_500": 0.25}}"#);
    let failed = (0..200).filter(|_| stream(server.address(), 1).status == 500).count();
    assert!((30..=70).contains(&failed), "{failed} of 200 at a share of 0.25");
}

#[test]
fn a_client_that_goes_gives_its_seat_back() {
    let server = start(r#"{"ttft": "1ms", "itl": "5ms", "capacity": {"running": 1}}"#);
    let body = r#"{"prompt": "hi", "max_tokens": 10000, "stream": true}"#;
    let mut client = TcpStream::connect(server.address()).expect("the server listens");
    client.write_all(request("/v1/completions", "", body).as_bytes()).expect("it reads");
    let mut first = [0; 1];
    client.read_exact(&mut first).expect("an answer begins");
    drop(client);
    assert_eq!(stream(server.address(), 1).status, 200);
    let records = records(server.address(), 2);
    assert!(records.iter().any(|record| record["outcome"] == "client_gone"), "{records:?}");
}

#[test]
fn records_are_bounded_counted_and_reset() {
    let server = start(r#"{"ttft": "0us", "itl": "0us", "max_records": 12}"#);
    let at = server.address();
    for number in 0..4 {
        let headers = format!("x-request-id: client-{number}\r\n");
        let body = r#"{"prompt": "hi", "max_tokens": 4, "stream": true}"#;
        post_with(at, "/v1/completions", &headers, body);
    }
    let listing = get(at, "/records").json();
    assert_eq!(listing["clock"], "CLOCK_MONOTONIC");
    assert_eq!(listing["dropped"], 2, "12 entries hold two requests of 1 + 4");
    assert_eq!(listing["records"][0]["request_id"], "client-2");
    assert_eq!(listing["records"][1]["index"], 3);

    assert_eq!(post(at, "/reset", "").status, 200);
    let listing = get(at, "/records").json();
    assert_eq!((&listing["dropped"], &listing["records"]), (&json!(0), &json!([])));
    stream(at, 1);
    assert_eq!(records(at, 1)[0]["index"], 0);
}

#[test]
fn in_cpu_mode_characters_and_tokens_cost_time() {
    let server = start(
        r#"{"cpu": {"tokenizer_threads": 1, "tokenize_us_per_char": 1000, "step_us": 4000,
            "prefill_us_per_token": 1000, "decode_us": 1000, "max_step_tokens": 20}}"#,
    );
    let at = server.address();
    let text = "x".repeat(400);
    let body = json!({"prompt": text, "max_tokens": 4, "stream": true}).to_string();
    let reply = post(at, "/v1/completions", &body);
    assert_eq!(reply.completion(), " 0 1 2 3");
    let body = json!({"prompt": vec![1; 100], "max_tokens": 4}).to_string();
    assert_eq!(post(at, "/v1/completions", &body).json()["choices"][0]["text"], " 0 1 2 3");

    let records = records(at, 2);
    // 400 characters at 1 ms; ids are not tokenized.
    let before = |r: &Value| seconds(r, "seated_s") - seconds(r, "received_s");
    assert!(before(&records[0]) >= 0.400, "{}", before(&records[0]));
    assert!(before(&records[1]) < 0.400, "{}", before(&records[1]));
    // 100 tokens of prompt by 20 are five steps, the last of which gives the first token.
    let times = intended(&records[0]);
    let ttft = times[0] - seconds(&records[0], "seated_s");
    assert!(ttft >= 5.0 * 0.004 + 0.100 + 0.001 - ROUNDING_S, "{ttft}");
    assert!(gaps(&times).iter().all(|gap| *gap >= 0.005 - ROUNDING_S), "{times:?}");
}

#[test]
fn in_cpu_mode_one_step_serves_all_and_the_pool_runs_side_by_side() {
    let server = start(
        r#"{"cpu": {"tokenizer_threads": 4, "tokenize_us_per_char": 0, "step_us": 10000,
            "prefill_us_per_token": 0, "decode_us": 0}}"#,
    );
    let at = server.address();
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(move || assert!(stream(at, 40).complete));
        }
    });
    let records = records(at, 4);
    let all: Vec<f64> = records.iter().flat_map(intended).collect();
    let mut steps = all.clone();
    steps.sort_by(f64::total_cmp);
    steps.dedup();
    assert_eq!(all.len(), 160);
    assert!(steps.len() <= 120, "160 tokens of 4 requests took {} steps", steps.len());
}
