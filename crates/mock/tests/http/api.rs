//! What a client sees of the mock: routes, answers, refusals, and how bytes are laid out.

use crate::client::{get, post, post_with};
use crate::start;
use saccade_mock::Script;
use serde_json::json;

const FAST: &str = r#"{"ttft": "1ms", "itl": "1ms"}"#;

#[test]
fn routes_answer() {
    let server = start(r#"{"model": "m", "ttft": "1ms", "itl": "0us"}"#);
    let at = server.address();
    assert_eq!(get(at, "/health").status, 200);
    assert_eq!(get(at, "/v1/models").json()["data"][0]["id"], "m");
    assert_eq!(get(at, "/nowhere").status, 404);
    post(at, "/v1/completions", r#"{"prompt": "hello", "max_tokens": 7}"#);
    let metrics = get(at, "/metrics").text();
    assert!(metrics.contains("vllm:generation_tokens_total{model_name=\"m\"} 7\n"), "{metrics}");
    assert!(metrics.contains("vllm:num_requests_running{model_name=\"m\"} 0\n"), "{metrics}");
}

#[test]
fn an_answer_in_one_piece_has_text_and_usage() {
    let server = start(FAST);
    let body = r#"{"prompt": [5, 6, 7], "max_tokens": 3}"#;
    let answer = post(server.address(), "/v1/completions", body).json();
    assert_eq!(answer["choices"][0]["text"], " 0 1 2");
    assert_eq!(answer["choices"][0]["finish_reason"], "length");
    let usage = json!({"prompt_tokens": 3, "completion_tokens": 3, "total_tokens": 6});
    assert_eq!(answer["usage"], usage);

    let body = r#"{"messages": [{"role": "user", "content": "12345678"}], "max_tokens": 2}"#;
    let answer = post(server.address(), "/v1/chat/completions", body).json();
    assert_eq!(answer["choices"][0]["message"]["content"], " 0 1");
    assert_eq!(answer["usage"]["prompt_tokens"], 2);
}

#[test]
fn a_stream_has_each_token_once_in_order() {
    let server = start(FAST);
    let body = r#"{"prompt": "hi", "max_tokens": 5, "stream": true,
                   "stream_options": {"include_usage": true}}"#;
    let reply = post(server.address(), "/v1/completions", body);
    assert_eq!(reply.header("content-type"), Some("text/event-stream"));
    assert!(reply.complete);
    let events = reply.events();
    assert_eq!(events.len(), 6);
    assert_eq!(reply.completion(), " 0 1 2 3 4");
    assert_eq!(events[3]["choices"][0]["finish_reason"], json!(null));
    assert_eq!(events[4]["choices"][0]["finish_reason"], "length");
    assert_eq!(events[5]["choices"], json!([]));
    assert_eq!(events[5]["usage"]["completion_tokens"], 5);
    assert_eq!(reply.data().last().map(String::as_str), Some("[DONE]"));
}

#[test]
fn a_chat_stream_begins_with_the_role() {
    let server = start(r#"{"ttft": "600ms", "itl": "1ms", "wire": {"role": "at_once"}}"#);
    let body = r#"{"messages": [{"role": "user", "content": [{"type": "text", "text": "x"}]}],
                   "max_tokens": 2, "stream": true}"#;
    let reply = post(server.address(), "/v1/chat/completions", body);
    let events = reply.events();
    assert_eq!(events[0]["choices"][0]["delta"]["role"], "assistant");
    assert_eq!(events[1]["choices"][0]["delta"]["content"], " 0");
    let ahead = reply.chunks[1].0 - reply.chunks[0].0;
    assert!(ahead > 0.15, "the role came only {ahead} s before the first token");
}

#[test]
fn usage_comes_with_each_event_where_it_is_asked_for() {
    let server = start(r#"{"ttft": "1ms", "itl": "1ms", "tokens_per_event": "3"}"#);
    let body = r#"{"prompt": "hi", "max_tokens": 8, "stream": true,
                   "stream_options": {"continuous_usage_stats": true}}"#;
    let reply = post(server.address(), "/v1/completions", body);
    let so_far: Vec<_> =
        reply.events().iter().map(|e| e["usage"]["completion_tokens"].as_u64()).collect();
    assert_eq!(so_far, [Some(3), Some(6), Some(8)]);
}

#[test]
fn answers_end_by_themselves_unless_told_not_to() {
    let server = start(r#"{"ttft": "1ms", "itl": "0us", "natural_tokens": "4"}"#);
    let at = server.address();
    let natural = post(at, "/v1/completions", r#"{"prompt": "hi", "max_tokens": 9}"#).json();
    assert_eq!(natural["usage"]["completion_tokens"], 4);
    assert_eq!(natural["choices"][0]["finish_reason"], "stop");
    let least = r#"{"prompt": "hi", "max_tokens": 9, "min_tokens": 6}"#;
    assert_eq!(post(at, "/v1/completions", least).json()["usage"]["completion_tokens"], 6);
    let exact = r#"{"prompt": "hi", "max_tokens": 9, "ignore_eos": true}"#;
    let exact = post(at, "/v1/completions", exact).json();
    assert_eq!(exact["usage"]["completion_tokens"], 9);
    assert_eq!(exact["choices"][0]["finish_reason"], "length");
}

#[test]
fn wrong_requests_are_refused_by_field() {
    let server = start(r#"{"model": "m", "max_model_len": 100}"#);
    let at = server.address();
    for (body, status, field) in [
        (r#"{"prompt": ["a", "b"]}"#, 400, "prompt"),
        (r#"{"prompt": []}"#, 400, "prompt"),
        (r#"{}"#, 400, "prompt"),
        (r#"{"prompt": "a", "n": 2}"#, 400, "n:"),
        (r#"{"prompt": "a", "max_tokens": 0}"#, 400, "max_tokens"),
        (r#"{"prompt": "a", "max_tokens": 100}"#, 400, "max_tokens"),
        (r#"{"prompt": "a", "model": "other"}"#, 404, "model"),
        ("no JSON", 400, "body"),
    ] {
        let reply = post(at, "/v1/completions", body);
        let message = reply.json()["error"]["message"].as_str().expect("a message").to_owned();
        assert_eq!(reply.status, status, "{body}");
        assert!(message.starts_with(field), "{body}: {message}");
    }
    let records = get(at, "/records").json();
    assert_eq!(records["records"], json!([]), "refused requests have no record");
}

#[test]
fn the_key_is_asked_for() {
    let server = start(r#"{"api_key": "secret", "ttft": "1ms"}"#);
    let body = r#"{"prompt": "a", "max_tokens": 1}"#;
    let wrong = "authorization: Bearer wrong\r\n";
    let right = "authorization: Bearer secret\r\n";
    assert_eq!(post(server.address(), "/v1/completions", body).status, 401);
    assert_eq!(post_with(server.address(), "/v1/completions", wrong, body).status, 401);
    assert_eq!(post_with(server.address(), "/v1/completions", right, body).status, 200);
}

#[test]
fn bytes_are_laid_out_as_scripted() {
    let server = start(
        r#"{"ttft": "1ms", "itl": "1ms", "seed": 3, "wire": {"done": false, "line_end": "crlf",
            "comment_every": 2, "cuts": 3, "cut_gap_us": 300}}"#,
    );
    let body = r#"{"prompt": "hi", "max_tokens": 6, "stream": true}"#;
    let reply = post(server.address(), "/v1/completions", body);
    let text = reply.text();
    assert_eq!(reply.completion(), " 0 1 2 3 4 5");
    assert_eq!(text.matches('\n').count(), text.matches("\r\n").count());
    assert_eq!(text.matches("\r\n\r\n").count(), 6 + 3);
    assert_eq!(text.lines().filter(|line| line.starts_with(": comment")).count(), 3);
    assert!(!text.contains("[DONE]"));
    assert!(reply.complete);
    assert!(reply.chunks.len() > 2 * 6, "{} chunks", reply.chunks.len());
}

#[test]
fn scripts_are_checked() {
    for (script, field) in [
        (r#"{"ttfft": "1ms"}"#, "ttfft"),
        (r#"{"ttft": "1"}"#, "unit"),
        (r#"{"ttft": "-1ms"}"#, "at least 0"),
        (r#"{"itl": "uniform:2ms,1ms"}"#, "uniform"),
        (r#"{"itl": "lognormal:0ms,1"}"#, "lognormal"),
        (r#"{"itl": "bimodal:1ms,2ms,1.5"}"#, "bimodal"),
        (r#"{"itl": "gauss:1ms,2ms"}"#, "none of"),
        (r#"{"failures": {"cut": 0.6, "hang": 0.6}}"#, "failures"),
        (r#"{"stalls": [{"for_s": 1}]}"#, "at_request"),
        (r#"{"capacity": {"running": 0}}"#, "capacity.running"),
        (r#"{"cpu": {"tokenizer_threads": 0}}"#, "cpu.tokenizer_threads"),
        (r#"{"spin_us": 100000}"#, "spin_us"),
    ] {
        let error = format!("{:#}", Script::from_json(script).expect_err(script));
        assert!(error.contains(field), "{script}: {error}");
    }
}
