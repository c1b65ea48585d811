//! Anthropic's Messages API, from HTTP to a scripted device and back.

#![allow(clippy::unwrap_used)]

mod common;

use common::Harness;
use serde_json::{Value, json};

fn body(extra: Value) -> Value {
    let mut body = json!({"model": "tiny", "max_tokens": 12, "system": "Be brief.",
                          "messages": [{"role": "user", "content": "Hi"}]});
    body.as_object_mut().unwrap().extend(extra.as_object().unwrap().clone());
    body
}

#[test]
fn a_message_answers_whole() {
    let h = Harness::start();
    let answer = h.post("/v1/messages", &body(json!({})));
    assert_eq!(answer.status, 200, "{}", answer.text());
    let message = answer.json();
    assert_eq!(message["content"], json!([{"type": "text", "text": "Hello there."}]));
    assert_eq!(message["stop_reason"], "max_tokens");
    assert_eq!((&message["type"], &message["role"]), (&json!("message"), &json!("assistant")));
    assert_eq!(message["usage"]["output_tokens"], 12);
    assert!(message["id"].as_str().unwrap().starts_with("msg-"));
    // It is the conversation that a chat is.
    let chat = json!({"messages": [{"role": "system", "content": "Be brief."},
                                   {"role": "user", "content": "Hi"}], "max_tokens": 12});
    let chat = h.post("/v1/chat/completions", &chat).json();
    let tokens = &chat["usage"]["prompt_tokens"];
    let counted = h.post("/v1/messages/count_tokens", &body(json!({}))).json();
    assert_eq!(counted, json!({"input_tokens": tokens}));
    let cached = message["usage"]["cache_read_input_tokens"].as_u64().unwrap();
    assert_eq!(
        message["usage"]["input_tokens"].as_u64().unwrap() + cached,
        tokens.as_u64().unwrap()
    );
}

/// Names and data of the events of a stream.
fn events(text: &str) -> Vec<(String, Value)> {
    let event = |event: &str| {
        let (name, data) = event.split_once('\n')?;
        let data = serde_json::from_str(data.strip_prefix("data: ")?).ok()?;
        Some((name.strip_prefix("event: ")?.to_owned(), data))
    };
    text.split("\n\n").filter_map(event).collect()
}

#[test]
fn a_stream_has_named_events_in_order() {
    let h = Harness::start();
    let answer =
        h.post("/v1/messages", &body(json!({"stream": true, "stop_sequences": ["there"]})));
    assert_eq!(answer.header("content-type"), Some("text/event-stream; charset=utf-8"));
    let text = answer.text();
    assert!(!text.contains("[DONE]"));
    let events = events(&text);
    assert!(events.iter().all(|(name, data)| data["type"] == **name));
    let mut names: Vec<&str> = events.iter().map(|(name, _)| name.as_str()).collect();
    names.dedup();
    assert_eq!(
        names,
        [
            "message_start",
            "content_block_start",
            "content_block_delta",
            "content_block_stop",
            "message_delta",
            "message_stop"
        ]
    );
    let said: String =
        events.iter().filter_map(|(_, data)| data["delta"]["text"].as_str()).collect();
    assert_eq!(said, "Hello ");
    let end = &events[events.len() - 2].1;
    assert_eq!(end["delta"], json!({"stop_reason": "stop_sequence", "stop_sequence": "there"}));
    assert!(end["usage"]["output_tokens"].as_u64().unwrap() > 5);
}

#[test]
fn refusals_name_the_field_in_this_shape() {
    let h = Harness::start();
    for (extra, status, says) in [
        (json!({"max_tokens": null}), 400, "`max_tokens` is required"),
        (json!({"messages": []}), 400, "`messages` must not be empty"),
        (json!({"messages": [{"role": "tool", "content": "x"}]}), 400, "`messages[0].role`"),
        (
            json!({"messages": [{"role": "user", "content": [{"type": "image"}]}]}),
            400,
            "`messages[0].content[0]`",
        ),
        (json!({"system": 1}), 400, "`system`"),
        (json!({"top_p": 2}), 400, "`top_p`"),
        (json!({"tools": [{"type": "bash_20250124", "name": "bash"}]}), 400, "`tools[0].type`"),
        (json!({"tool_choice": {"type": "some"}}), 400, "`tool_choice.type`"),
        (json!({"thinking": {"type": "some"}}), 400, "`thinking.type`"),
        (json!({"model": "other"}), 404, "`other`"),
    ] {
        let answer = h.post("/v1/messages", &body(extra.clone()));
        assert_eq!(answer.status, status, "{extra}: {}", answer.text());
        let error = answer.json();
        assert_eq!(error["type"], "error");
        let kind = if status == 404 { "not_found_error" } else { "invalid_request_error" };
        assert_eq!(error["error"]["type"], kind);
        let message = error["error"]["message"].as_str().unwrap();
        assert!(message.contains(says), "{extra}: {message}");
    }
}

#[test]
fn keys_come_in_the_header_of_their_clients() {
    let h = Harness::with(|c| c.api_keys = vec!["secret".into()], Default::default());
    let path = "/v1/messages/count_tokens";
    for (header, status) in [
        (("x-api-key", "secret"), 200),
        (("authorization", "Bearer secret"), 200),
        (("x-api-key", "other"), 401),
        (("x-other", "secret"), 401),
    ] {
        let answer = h.request(
            "POST",
            path,
            &[header, ("content-type", "application/json")],
            &body(json!({})).to_string(),
        );
        assert_eq!(answer.status, status, "{header:?}: {}", answer.text());
    }
}
