//! Tool calls and reasoning, from HTTP to a scripted device and back.

#![allow(clippy::unwrap_used)]

mod common;

use std::path::PathBuf;

use common::{EOS, Harness};
use saccade_frontend::{FrontendConfig, ParserChoice, ReasoningFormat, ToolFormat};
use saccade_ring::testing::FakeRequest;
use serde_json::{Value, json};

const CALL: &str = "<tool_call>\n{\"name\": \"get_weather\", \"arguments\": {\"city\": \"Paris\"}}\n\
    </tool_call>";
const ARGUMENTS: &str = r#"{"city": "Paris"}"#;

fn template(name: &str) -> Option<PathBuf> {
    Some(PathBuf::from(env!("CARGO_MANIFEST_DIR")).join(format!("tests/templates/{name}.jinja")))
}

fn serve(change: impl FnOnce(&mut FrontendConfig)) -> Harness {
    let with_template = |config: &mut FrontendConfig| {
        config.chat_template = template("tagged");
        change(config);
    };
    Harness::with(with_template, Default::default())
}

fn chat(extra: Value) -> Value {
    let mut body = json!({
        "model": "tiny", "messages": [{"role": "user", "content": "Hi"}],
        "stop_token_ids": [EOS],
        "tools": [{"type": "function", "function": {"name": "get_weather", "parameters": {
            "type": "object", "properties": {"city": {"type": "string"}}}}}]});
    body.as_object_mut().unwrap().extend(extra.as_object().unwrap().clone());
    body
}

fn answer(h: &Harness, extra: Value) -> Value {
    let answer = h.post("/v1/chat/completions", &chat(extra));
    assert_eq!(answer.status, 200, "{}", answer.text());
    answer.json()
}

fn chunks(h: &Harness, mut extra: Value) -> Vec<Value> {
    extra["stream"] = json!(true);
    let (chunks, done) = h.post("/v1/chat/completions", &chat(extra)).chunks();
    assert!(done);
    chunks
}

/// A message as clients put it together from a stream.
fn message(chunks: &[Value], index: u64) -> (Value, Value) {
    let (mut message, mut finish) = (json!({"content": ""}), Value::Null);
    let mut calls: Vec<Value> = Vec::new();
    for choice in chunks.iter().flat_map(|c| c["choices"].as_array().unwrap()) {
        if choice["index"] != index {
            continue;
        }
        let delta = &choice["delta"];
        for field in ["content", "reasoning_content", "reasoning"] {
            if let Some(text) = delta[field].as_str() {
                let so_far = message[field].as_str().unwrap_or_default().to_owned();
                message[field] = json!(so_far + text);
            }
        }
        for piece in delta["tool_calls"].as_array().into_iter().flatten() {
            let at = piece["index"].as_u64().unwrap() as usize;
            let arguments = piece["function"]["arguments"].as_str().unwrap();
            if at == calls.len() {
                assert!(piece["id"].is_string() && piece["type"] == "function", "{piece}");
                calls.push(json!({"name": piece["function"]["name"], "arguments": arguments}));
            } else {
                assert_eq!(at + 1, calls.len(), "calls come one after the other");
                assert!(piece.get("id").is_none() && piece["function"].get("name").is_none());
                let so_far = calls[at]["arguments"].as_str().unwrap().to_owned();
                calls[at]["arguments"] = json!(so_far + arguments);
            }
        }
        finish = if choice["finish_reason"].is_null() {
            finish
        } else {
            choice["finish_reason"].clone()
        };
    }
    message["calls"] = json!(calls);
    (message, finish)
}

#[test]
fn a_call_is_apart_from_the_text() {
    let h = serve(|_| {});
    h.device.say(&format!("I look.\n{CALL}\n{CALL}"));
    let json = answer(&h, json!({}));
    let choice = &json["choices"][0];
    assert_eq!(choice["finish_reason"], "tool_calls");
    assert_eq!(choice["message"]["content"], "I look.");
    let calls = choice["message"]["tool_calls"].as_array().unwrap();
    assert_eq!(calls.len(), 2);
    assert_eq!(calls[0]["function"], json!({"name": "get_weather", "arguments": ARGUMENTS}));
    assert_eq!(calls[0]["type"], "function");
    assert_ne!(calls[0]["id"], calls[1]["id"]);
    assert!(calls[0]["id"].as_str().unwrap().starts_with("call_"));
    h.device.say(CALL);
    let json = answer(&h, json!({}));
    assert!(json["choices"][0]["message"]["content"].is_null());
}

#[test]
fn a_streamed_call_is_the_whole_one_in_pieces() {
    let h = serve(|_| {});
    h.device.say(&format!("I look.\n{CALL}\n{CALL}"));
    let chunks = chunks(&h, json!({"n": 2}));
    for index in 0..2 {
        let (message, finish) = message(&chunks, index);
        let call = json!({"name": "get_weather", "arguments": ARGUMENTS});
        assert_eq!(message, json!({"content": "I look.", "calls": [call, call]}));
        assert_eq!(finish, "tool_calls");
    }
    let pieces = |c: &&Value| c["choices"][0]["delta"].get("tool_calls").is_some();
    let count = chunks.iter().filter(pieces).count();
    assert!(count > 2 * ARGUMENTS.len(), "arguments come with their tokens: {count}");
}

#[test]
fn arguments_that_are_cut_off_end_as_what_cut_them() {
    let h = serve(|_| {});
    h.device.say(CALL);
    for (extra, finish) in [
        (json!({"max_tokens": 70}), "length"),
        (json!({"stop": ["Par"]}), "stop"),
        (json!({"stop": ["</tool"]}), "tool_calls"),
    ] {
        let whole = answer(&h, extra.clone());
        let choice = &whole["choices"][0];
        assert_eq!(choice["finish_reason"], finish, "{extra}");
        let (streamed, end) = message(&chunks(&h, extra), 0);
        assert_eq!(end, finish);
        let function = &choice["message"]["tool_calls"][0]["function"];
        assert_eq!(&streamed["calls"][0], function);
        let arguments = function["arguments"].as_str().unwrap();
        assert!(ARGUMENTS.starts_with(arguments), "{arguments}");
    }
}

#[test]
fn one_call_ends_an_answer_that_may_have_no_more() {
    let h = serve(|_| {});
    h.device.say(&format!("{CALL}\n{CALL}{}", "x".repeat(500)));
    let json = answer(&h, json!({"parallel_tool_calls": false}));
    let choice = &json["choices"][0];
    assert_eq!(choice["message"]["tool_calls"].as_array().unwrap().len(), 1);
    assert_eq!(choice["finish_reason"], "tool_calls");
    // It ended on the device as well: no token behind the call was waited for.
    assert!(json["usage"]["completion_tokens"].as_u64().unwrap() <= CALL.len() as u64);
    h.wait_until("ended", |h| h.device.in_flight() == 0);
}

#[test]
fn what_may_not_call_says_text() {
    let h = serve(|_| {});
    h.device.say(CALL);
    for extra in [json!({"tool_choice": "none"}), json!({"tools": []}), json!({"tools": null})] {
        let json = answer(&h, extra);
        assert_eq!(json["choices"][0]["message"]["content"], CALL);
        assert_eq!(json["choices"][0]["finish_reason"], "stop");
        assert!(json["choices"][0]["message"].get("tool_calls").is_none());
    }
}

#[test]
fn reasoning_is_apart_from_the_answer_and_counted() {
    let h = serve(|_| {});
    h.device.say(&format!("<think>\nThey ask.\n</think>\n\nI look.\n{CALL}"));
    let json = answer(&h, json!({}));
    let message_of_whole = &json["choices"][0]["message"];
    assert_eq!(message_of_whole["reasoning_content"], "They ask.");
    assert_eq!(message_of_whole["reasoning"], "They ask.");
    assert_eq!(message_of_whole["content"], "I look.");
    // Tokens are bytes here, markers too: those behind which the thought was open still.
    let thought = "\nThey ask.\n</think".len();
    let details = &json["usage"]["completion_tokens_details"];
    assert_eq!(details["reasoning_tokens"], thought);
    let options = json!({"stream_options": {"include_usage": true}});
    let chunks = chunks(&h, options);
    let (streamed, _) = message(&chunks, 0);
    assert_eq!(streamed["reasoning_content"], "They ask.");
    assert_eq!(streamed["reasoning"], "They ask.");
    assert_eq!(streamed["content"], "I look.");
    assert_eq!(chunks.last().unwrap()["usage"], json["usage"]);
    let hidden = answer(&h, json!({"include_reasoning": false}));
    assert_eq!(hidden["choices"][0]["message"]["content"], "I look.");
    assert!(hidden["choices"][0]["message"].get("reasoning_content").is_none());
}

/// What a grammar holds an answer to is neither a thought nor a call, whatever it looks like.
#[test]
fn an_answer_that_obeys_a_grammar_is_all_content() {
    let always = ParserChoice::Format(ReasoningFormat::ThinkFirst);
    let h = Harness::with(
        |config| {
            config.chat_template = template("tagged");
            config.reasoning_parser = always;
        },
        common::takes_grammars(),
    );
    h.device.say("{\"a\": 1}");
    for extra in [
        json!({"response_format": {"type": "json_object"}, "tool_choice": "none"}),
        json!({"response_format": {"type": "json_object"}}),
        json!({"guided_json": {"type": "object"}}),
        json!({"response_format": {"type": "structural_tag", "format": {"type": "any_text"}}}),
    ] {
        let message = answer(&h, extra)["choices"][0]["message"].clone();
        assert_eq!(message["content"], "{\"a\": 1}");
        assert!(message.get("reasoning_content").is_none_or(Value::is_null));
    }
    h.device.say(LISTED);
    for extra in [
        json!({"response_format": {"type": "json_object"}, "tool_choice": "none"}),
        json!({"response_format": schema(json!({"type": "array", "items": true}))}),
        json!({"guided_json": {"type": "array", "items": true}}),
    ] {
        let message = answer(&h, extra)["choices"][0]["message"].clone();
        assert_eq!(message["content"], LISTED);
    }
}

const LISTED: &str = r#"[{"name": "get_weather", "parameters": {"city": "Paris"}}]"#;

fn schema(schema: Value) -> Value {
    json!({"type": "json_schema", "json_schema": {"name": "x", "strict": true, "schema": schema}})
}

/// A format is of what the model says. Agents ask for one in every turn, also where calls are due.
#[test]
fn beside_a_format_an_answer_may_call_or_must() {
    let h =
        Harness::with(|config| config.chat_template = template("tagged"), common::takes_grammars());
    let strict = json!([{"type": "function", "function": {"name": "get_weather", "strict": true,
        "parameters": {"type": "object", "additionalProperties": false, "required": ["city"],
            "properties": {"city": {"$ref": "#/$defs/city"}},
            "$defs": {"city": {"type": "string"}}}}}]);
    let format = schema(json!({"type": "object", "properties": {"a": {"$ref": "#/$defs/a"}},
        "$defs": {"a": {"type": "integer"}}, "$schema": "http://json-schema.org/draft-07/schema#"}));
    for format in [format, json!({"type": "json_object"})] {
        let mut both = json!({"response_format": format});
        for strict in [None, Some(&strict)] {
            if let Some(strict) = strict {
                both["tools"] = strict.clone();
            }
            h.device.say("{\"a\": 1}");
            let choice = answer(&h, both.clone())["choices"][0].clone();
            assert_eq!(choice["message"]["content"], "{\"a\": 1}");
            assert_eq!(choice["finish_reason"], "stop");
            h.device.say(LISTED);
            for choice in ["auto", "required"] {
                both["tool_choice"] = json!(choice);
                let (said, finish) = message(&chunks(&h, both.clone()), 0);
                let call = json!({"name": "get_weather", "arguments": ARGUMENTS});
                assert_eq!(said, json!({"content": "", "calls": [call]}));
                assert_eq!(finish, "tool_calls");
            }
            both["tool_choice"] = Value::Null;
        }
    }
    // What is wrong is named by the field that has it.
    let odd = json!({"type": "object", "properties": {"a": {"type": "odd"}}});
    let odd_tool = json!([{"type": "function",
        "function": {"name": "f", "strict": true, "parameters": odd}}]);
    for (extra, param) in [
        (json!({"response_format": schema(odd)}), "response_format"),
        (json!({"response_format": {"type": "json_object"}, "tools": odd_tool}), "tools"),
        (json!({"response_format": schema(json!({"type": "array"})), "tools": strict}), "tools"),
    ] {
        let refused = h.post("/v1/chat/completions", &chat(extra));
        assert_eq!(refused.status, 400, "{}", refused.text());
        assert_eq!(refused.json()["error"]["param"], param, "{}", refused.text());
    }
}

#[test]
fn reasoning_that_the_prompt_has_opened_or_closed_is_known() {
    let h = serve(|_| {});
    h.device.say("So.</think>Yes.");
    let begun = |text: &str| {
        json!({"continue_final_message": true, "tools": [], "messages": [
            {"role": "user", "content": "Hi"}, {"role": "assistant", "content": text}]})
    };
    // A template that ends with an opened thought.
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("open.jinja");
    let text = std::fs::read_to_string(template("tagged").unwrap()).unwrap();
    std::fs::write(&path, text + "{{- '<think>\\n' }}").unwrap();
    let open = serve(|config| config.chat_template = Some(path));
    open.device.say("So.</think>Yes.");
    let json = answer(&open, json!({}));
    assert_eq!(json["choices"][0]["message"]["reasoning_content"], "So.");
    assert_eq!(json["choices"][0]["message"]["content"], "Yes.");
    // Here it has not: the closing marker is text.
    let json = answer(&h, begun("Well"));
    assert_eq!(json["choices"][0]["message"]["content"], "So.</think>Yes.");
    let always = ParserChoice::Format(ReasoningFormat::ThinkFirst);
    let r1 = serve(|config| config.reasoning_parser = always);
    r1.device.say("So.</think>Yes.");
    assert_eq!(answer(&r1, json!({}))["choices"][0]["message"]["reasoning_content"], "So.");
    let none = serve(|config| config.reasoning_parser = ParserChoice::None);
    none.device.say("<think>So.</think>Yes.");
    let json = answer(&none, json!({}));
    assert_eq!(json["choices"][0]["message"]["content"], "<think>So.</think>Yes.");
    assert!(json["usage"].get("completion_tokens_details").is_none());
}

/// A marker that is a special token leaves no text otherwise.
#[test]
fn markers_that_are_special_tokens_reach_the_parser() {
    const TOOL_CALLS: u32 = 270;
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("tokenizer.json");
    let mut tokenizer = common::tiny_tokenizer::byte_level_json();
    let mut marker = tokenizer["added_tokens"][0].clone();
    marker["id"] = json!(TOOL_CALLS);
    marker["content"] = json!("[TOOL_CALLS]");
    tokenizer["added_tokens"].as_array_mut().unwrap().push(marker);
    std::fs::write(&path, tokenizer.to_string()).unwrap();
    let h = serve(|config| {
        config.chat_template = template("bracketed");
        config.tokenizer = Some(path);
    });
    let text = "f{\"a\": 1}";
    h.device.script(Box::new(move |_: &FakeRequest, i| {
        let byte = |i: u32| text.as_bytes().get(i as usize).map_or(EOS, |b| u32::from(*b));
        Some(if i == 0 { TOOL_CALLS } else { byte(i - 1) })
    }));
    let json = answer(&h, json!({}));
    let call = &json["choices"][0]["message"]["tool_calls"][0];
    assert_eq!(call["function"], json!({"name": "f", "arguments": "{\"a\": 1}"}));
    let id = call["id"].as_str().unwrap();
    assert!(id.len() == 9 && id.bytes().all(|b| b.is_ascii_alphanumeric()), "{id}");
    let json = answer(&h, json!({"tools": []}));
    assert_eq!(json["choices"][0]["message"]["content"], text);
}

#[test]
fn a_format_that_is_not_known_is_said_at_once() {
    let none = serve(|config| config.tool_call_parser = ParserChoice::None);
    let refused = none.post("/v1/chat/completions", &chat(json!({})));
    assert_eq!(refused.status, 400);
    assert_eq!(refused.json()["error"]["param"], "tools");
    assert!(refused.text().contains("--tool-call-parser"), "{}", refused.text());
    assert_eq!(
        none.post("/v1/chat/completions", &chat(json!({"tool_choice": "none"}))).status,
        200
    );
    // The flag wins over the template.
    let named = ParserChoice::Format(ToolFormat::Pythonic);
    let h = serve(|config| config.tool_call_parser = named);
    h.device.say("[get_weather(city='Paris')]");
    let json = answer(&h, json!({}));
    let function = &json["choices"][0]["message"]["tool_calls"][0]["function"];
    assert_eq!(function, &json!({"name": "get_weather", "arguments": ARGUMENTS}));
}

#[test]
fn logprobs_go_on_while_a_call_is_read() {
    let h = serve(|_| {});
    h.device.say(CALL);
    let json = answer(&h, json!({"logprobs": true}));
    let tokens = json["choices"][0]["logprobs"]["content"].as_array().unwrap();
    assert_eq!(json["usage"]["completion_tokens"], tokens.len());
}
