//! OpenAI's Responses API, from HTTP to a scripted device and back.

#![allow(clippy::unwrap_used)]

mod common;

use std::path::PathBuf;

use common::{EOS, Harness};
use saccade_ring::testing::{FakeConfig, FakeRequest};
use serde_json::{Value, json};

const ARGUMENTS: &str = r#"{"city": "Paris"}"#;

fn call() -> String {
    format!("<tool_call>\n{{\"name\": \"get_weather\", \"arguments\": {ARGUMENTS}}}\n</tool_call>")
}

/// A server whose template renders tools and opens no reasoning.
fn with_tools() -> Harness {
    with_device(FakeConfig::default())
}

fn with_device(device: FakeConfig) -> Harness {
    let template = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/templates/tagged.jinja");
    Harness::with(|config| config.chat_template = Some(template), device)
}

/// The same with a device that takes grammars.
fn with_grammars() -> Harness {
    with_device(common::takes_grammars())
}

fn body(extra: Value) -> Value {
    let mut body = json!({"model": "tiny", "input": "Hi", "stop_token_ids": [EOS]});
    body.as_object_mut().unwrap().extend(extra.as_object().unwrap().clone());
    body
}

fn tool() -> Value {
    json!({"type": "function", "name": "get_weather", "description": "Tells it.",
           "parameters": {"type": "object", "properties": {"city": {"type": "string"}}}})
}

fn answer(h: &Harness, extra: Value) -> Value {
    let answer = h.post("/v1/responses", &body(extra));
    assert_eq!(answer.status, 200, "{}", answer.text());
    answer.json()
}

/// Data of the events of a stream, whose names and numbers are as they must be.
fn events(text: &str) -> Vec<Value> {
    let event = |(index, event): (usize, &str)| {
        let (name, data) = event.split_once('\n').unwrap();
        let data: Value = serde_json::from_str(data.strip_prefix("data: ").unwrap()).unwrap();
        assert_eq!(data["type"], name.strip_prefix("event: ").unwrap());
        assert_eq!(data["sequence_number"], index);
        data
    };
    text.trim_end().split("\n\n").filter(|e| !e.starts_with(':')).enumerate().map(event).collect()
}

fn streamed(h: &Harness, extra: Value) -> Vec<Value> {
    let mut body = body(extra);
    body["stream"] = true.into();
    let answer = h.post("/v1/responses", &body);
    assert_eq!(answer.header("content-type"), Some("text/event-stream; charset=utf-8"));
    let text = answer.text();
    assert!(!text.contains("[DONE]"));
    events(&text)
}

/// The output as clients put it together from a stream; every item ends as it was told.
fn put_together(events: &[Value]) -> Vec<Value> {
    let mut items: Vec<Value> = Vec::new();
    for event in events {
        let kind = event["type"].as_str().unwrap().strip_prefix("response.").unwrap();
        let Some(index) = event["output_index"].as_u64().map(|index| index as usize) else {
            continue;
        };
        if kind == "output_item.added" {
            assert_eq!((index, &event["item"]["status"]), (items.len(), &json!("in_progress")));
            items.push(event["item"].clone());
            continue;
        }
        assert_eq!(index, items.len() - 1, "items come one after the other");
        let item = &mut items[index];
        assert!(kind == "output_item.done" || event["item_id"] == item["id"], "{event}");
        match kind {
            "content_part.added" => item["content"] = json!([event["part"]]),
            "output_text.delta" | "reasoning_text.delta" => {
                let part = &mut item["content"][0];
                let so_far = part["text"].as_str().unwrap().to_owned();
                part["text"] = json!(so_far + event["delta"].as_str().unwrap());
                if let Some(more) = event["logprobs"].as_array() {
                    part["logprobs"].as_array_mut().unwrap().extend(more.clone());
                }
            }
            "function_call_arguments.delta" => {
                let so_far = item["arguments"].as_str().unwrap().to_owned();
                item["arguments"] = json!(so_far + event["delta"].as_str().unwrap());
            }
            "output_text.done" | "reasoning_text.done" => {
                assert_eq!(event["text"], item["content"][0]["text"]);
            }
            "function_call_arguments.done" => assert_eq!(event["arguments"], item["arguments"]),
            "content_part.done" => assert_eq!(event["part"], item["content"][0]),
            "output_item.done" => {
                item["status"] = event["item"]["status"].clone();
                assert_eq!(&event["item"], item);
            }
            other => panic!("{other}"),
        }
    }
    items
}

/// Items without what differs from answer to answer.
fn contents(items: &Value) -> Vec<Value> {
    let strip = |item: &Value| without(item, &["id", "call_id"]);
    items.as_array().unwrap().iter().map(strip).collect()
}

fn without(object: &Value, fields: &[&str]) -> Value {
    let mut object = object.clone();
    for field in fields {
        object.as_object_mut().unwrap().remove(*field);
    }
    object
}

/// All of a response that two answers to one request have in common.
fn comparable(response: &Value) -> Value {
    let mut response = without(response, &["id", "created_at"]);
    // Where tokens of the prompt came from depends on what came before.
    response["usage"]["input_tokens_details"] = Value::Null;
    response["output"] = contents(&response["output"]).into();
    response
}

#[test]
fn a_response_answers_whole() {
    let h = Harness::start();
    let extra = json!({"instructions": "Be brief.", "metadata": {"a": "b"}, "user": "me",
                       "store": false, "include": ["reasoning.encrypted_content"],
                       "text": {"format": {"type": "text"}}, "reasoning": {"effort": "low"},
                       "temperature": 0.7, "max_output_tokens": 100, "truncation": "disabled"});
    let response = answer(&h, extra);
    let part = json!({"type": "output_text", "text": "Hello there.", "annotations": [],
                      "logprobs": []});
    let message = &response["output"][0];
    assert_eq!(message["content"], json!([part]));
    assert_eq!((&message["type"], &message["role"]), (&json!("message"), &json!("assistant")));
    assert!(message["id"].as_str().unwrap().starts_with("msg_"));
    assert!(response["id"].as_str().unwrap().starts_with("resp_"));
    let expected = json!({
        "object": "response", "status": "completed", "error": null, "incomplete_details": null,
        "instructions": "Be brief.", "metadata": {"a": "b"}, "user": "me", "store": false,
        "background": false, "previous_response_id": null, "truncation": "disabled",
        "parallel_tool_calls": true, "tool_choice": "auto", "tools": [], "temperature": 0.7,
        "top_p": 1.0, "max_output_tokens": 100, "top_logprobs": 0, "model": "tiny",
        "reasoning": {"effort": "low", "summary": null}, "service_tier": "default",
        "text": {"format": {"type": "text"}, "verbosity": "medium"},
    });
    for (field, value) in expected.as_object().unwrap() {
        assert_eq!(&response[field], value, "{field}");
    }
    // It is the conversation that a chat is.
    let chat = json!({"messages": [{"role": "system", "content": "Be brief."},
                                   {"role": "user", "content": "Hi"}], "stop_token_ids": [EOS]});
    let chat = h.post("/v1/chat/completions", &chat).json();
    let usage = &response["usage"];
    assert_eq!(usage["input_tokens"], chat["usage"]["prompt_tokens"]);
    assert_eq!(usage["output_tokens"], chat["usage"]["completion_tokens"]);
    assert_eq!(usage["output_tokens_details"]["reasoning_tokens"], 0);
    assert!(usage["input_tokens_details"]["cached_tokens"].is_u64());
    assert_eq!(h.metric("vllm:request_success_total{"), 2.0);
}

#[test]
fn an_answer_that_is_cut_is_incomplete() {
    let h = Harness::start();
    let response = answer(&h, json!({"max_output_tokens": 5}));
    assert_eq!(response["status"], "incomplete");
    assert_eq!(response["incomplete_details"], json!({"reason": "max_output_tokens"}));
    assert_eq!(response["output"][0]["status"], "incomplete");
    assert_eq!(response["output"][0]["content"][0]["text"], "Hello");
    let events = streamed(&h, json!({"max_output_tokens": 5}));
    let last = events.last().unwrap();
    assert_eq!(last["type"], "response.incomplete");
    assert_eq!(contents(&last["response"]["output"]), contents(&response["output"]));
}

#[test]
fn a_stream_has_typed_events_in_order() {
    let h = Harness::start();
    let events = streamed(&h, json!({"stream_options": {"include_obfuscation": false}}));
    let mut names: Vec<&str> = events.iter().map(|data| data["type"].as_str().unwrap()).collect();
    names.dedup();
    assert_eq!(
        names,
        [
            "response.created",
            "response.in_progress",
            "response.output_item.added",
            "response.content_part.added",
            "response.output_text.delta",
            "response.output_text.done",
            "response.content_part.done",
            "response.output_item.done",
            "response.completed"
        ]
    );
    assert_eq!(events[0]["response"]["status"], "in_progress");
    assert_eq!(events[0]["response"]["output"], json!([]));
    let last = &events.last().unwrap()["response"];
    assert_eq!(json!(put_together(&events)), last["output"]);
    assert!(last["usage"]["output_tokens"].as_u64().unwrap() > 5);
}

#[test]
fn reasoning_text_and_calls_are_items_of_their_own() {
    let h = with_tools();
    h.device.say(&format!("<think>\nHm.\n</think>\n\nI look.\n{}\n{}", call(), call()));
    let extra = json!({"tools": [tool()]});
    let whole = answer(&h, extra.clone());
    let called = json!({"type": "function_call", "status": "completed", "name": "get_weather",
                        "arguments": ARGUMENTS});
    let expected = [
        json!({"type": "reasoning", "status": "completed", "summary": [],
               "content": [{"type": "reasoning_text", "text": "Hm."}]}),
        json!({"type": "message", "status": "completed", "role": "assistant", "content": [
               {"type": "output_text", "text": "I look.", "annotations": [], "logprobs": []}]}),
        called.clone(),
        called,
    ];
    assert_eq!(contents(&whole["output"]), expected);
    let ids: Vec<_> = whole["output"].as_array().unwrap().iter().map(|i| &i["id"]).collect();
    assert!(ids.iter().enumerate().all(|(n, id)| !ids[..n].contains(id)), "{ids:?}");
    assert_ne!(whole["output"][2]["call_id"], whole["output"][3]["call_id"]);
    assert_eq!(whole["tools"][0]["strict"], false);
    assert!(whole["usage"]["output_tokens_details"]["reasoning_tokens"].as_u64().unwrap() > 3);
    let events = streamed(&h, extra);
    let items = put_together(&events);
    assert_eq!(contents(&json!(items)), expected);
    assert_eq!(json!(items), events.last().unwrap()["response"]["output"]);
    let is_piece = |e: &&Value| e["type"] == "response.function_call_arguments.delta";
    assert!(events.iter().filter(is_piece).count() > ARGUMENTS.len());
    // A call is over before the next one begins.
    let names: Vec<&str> = events.iter().map(|data| data["type"].as_str().unwrap()).collect();
    let done = names.iter().filter(|name| **name == "response.output_item.done");
    assert_eq!(done.count(), 4);
    // What the answer has goes back into the conversation.
    let mut input = vec![json!({"role": "user", "content": "Hi"})];
    input.extend(whole["output"].as_array().unwrap().iter().cloned());
    for item in &items[2..] {
        input.push(json!({"type": "function_call_output", "call_id": item["call_id"],
                          "output": "22 degrees"}));
    }
    let again = answer(&h, json!({"tools": [tool()], "input": input}));
    let tokens = |response: &Value| response["usage"]["input_tokens"].as_u64().unwrap();
    assert!(tokens(&again) > tokens(&whole) + 2 * ARGUMENTS.len() as u64);
}

#[test]
fn a_stream_ends_with_the_whole_answer() {
    let h = with_tools();
    h.device.say(&format!("<think>\nHm.\n</think>\n\nI look, Zo\u{eb}.\n{}", call()));
    let logprobs = json!({"include": ["message.output_text.logprobs"], "top_logprobs": 1});
    for extra in [
        json!({"tools": [tool()]}),
        json!({"tools": [tool()], "tool_choice": "none", "instructions": "Look."}),
        json!({"max_output_tokens": 12, "metadata": {"a": "b"}}),
        json!({"max_output_tokens": 32, "reasoning": {"effort": "low"}}),
        json!({"include_reasoning": false, "stop": ["Zo"], "top_p": 0.5}),
        logprobs,
    ] {
        let whole = answer(&h, extra.clone());
        let events = streamed(&h, extra.clone());
        let last = &events.last().unwrap()["response"];
        assert_eq!(comparable(last), comparable(&whole), "{extra}");
        assert_eq!(json!(put_together(&events)), last["output"], "{extra}");
    }
}

#[test]
fn reasoning_that_is_not_wanted_is_left_out() {
    let h = with_tools();
    h.device.say("<think>\nHm.\n</think>\n\nI look.");
    let whole = answer(&h, json!({"include_reasoning": false}));
    let kinds: Vec<&Value> =
        whole["output"].as_array().unwrap().iter().map(|i| &i["type"]).collect();
    assert_eq!(kinds, ["message"]);
}

#[test]
fn calls_that_are_cut_are_incomplete() {
    let h = with_tools();
    h.device.say(&call());
    for (extra, status, of_item) in [
        (json!({"max_output_tokens": 60}), "incomplete", "incomplete"),
        (json!({"max_output_tokens": 70}), "incomplete", "completed"),
        (json!({"stop": ["Par"]}), "completed", "incomplete"),
        (json!({"stop": ["</tool"]}), "completed", "completed"),
    ] {
        let mut extra = extra;
        extra["tools"] = json!([tool()]);
        let whole = answer(&h, extra.clone());
        assert_eq!(whole["status"], status, "{extra}");
        assert_eq!(whole["output"][0]["status"], of_item, "{extra}");
        let events = streamed(&h, extra);
        assert_eq!(contents(&json!(put_together(&events))), contents(&whole["output"]));
    }
}

#[test]
fn logprobs_are_those_of_the_text() {
    let h = with_tools();
    h.device.say("<think>\nHm.\n</think>\n\nHé.");
    let extra = json!({"include": ["message.output_text.logprobs"], "top_logprobs": 2});
    let whole = answer(&h, extra.clone());
    assert_eq!(whole["top_logprobs"], 2);
    let part = &whole["output"][1]["content"][0];
    let logprobs = part["logprobs"].as_array().unwrap();
    let bytes: Vec<u8> = logprobs
        .iter()
        .flat_map(|token| token["bytes"].as_array().unwrap())
        .map(|byte| byte.as_u64().unwrap() as u8)
        .collect();
    assert!(String::from_utf8(bytes).unwrap().starts_with("Hé."), "{part}");
    assert!(logprobs.iter().all(|token| token["top_logprobs"].as_array().unwrap().len() == 2));
    let events = streamed(&h, extra);
    assert_eq!(contents(&json!(put_together(&events))), contents(&whole["output"]));
}

#[test]
fn an_answer_obeys_its_format() {
    let h = with_grammars();
    h.device.script(Box::new(|request: &FakeRequest, i| {
        let said: &[u8] = if request.grammar.is_empty() { b"free" } else { b"{\"a\": 1}" };
        Some(said.get(i as usize).map_or(EOS, |byte| u32::from(*byte)))
    }));
    let schema = json!({"type": "object", "properties": {"a": {"type": "integer"}}});
    let with_schema = json!({"type": "json_schema", "name": "x", "schema": schema, "strict": true});
    let with_tags = json!({"type": "structural_tag", "format": {"type": "any_text"}});
    let held = "{\"a\": 1}";
    for (extra, said) in [
        (json!({}), "free"),
        (json!({"text": {"format": {"type": "text"}}}), "free"),
        (json!({"text": {"format": {"type": "json_object"}}}), held),
        (json!({"text": {"format": with_schema}}), held),
        (json!({"text": {"format": with_tags}}), held),
        (json!({"guided_json": schema}), held),
        (json!({"structured_outputs": {"json_object": true}}), held),
        (json!({"structured_outputs": {"structural_tag": {"format": {"type": "any_text"}}}}), held),
        (json!({"structural_tag": {"format": {"type": "any_text"}}}), held),
    ] {
        let response = answer(&h, extra.clone());
        assert_eq!(response["output"][0]["content"][0]["text"], said, "{extra}");
        if let Some(format) = extra.pointer("/text/format") {
            assert_eq!(&response["text"]["format"], format);
        }
    }
}

#[test]
fn an_answer_calls_where_it_must() {
    let h = with_grammars();
    h.device.say(ARGUMENTS);
    let named = json!({"type": "function", "name": "get_weather"});
    let response = answer(&h, json!({"tools": [tool()], "tool_choice": named}));
    let [item] = response["output"].as_array().unwrap().as_slice() else { panic!("{response}") };
    assert_eq!((&item["type"], &item["arguments"]), (&json!("function_call"), &json!(ARGUMENTS)));
    assert_eq!(response["tool_choice"], named);
    h.device.say(&format!("[{{\"name\": \"get_weather\", \"parameters\": {ARGUMENTS}}}]"));
    let extra = json!({"tools": [tool()], "tool_choice": "required", "parallel_tool_calls": false});
    let response = answer(&h, extra);
    assert_eq!(response["output"][0]["name"], "get_weather");
    assert_eq!(response["parallel_tool_calls"], false);
}

/// Agents ask for both at once, in every turn.
#[test]
fn beside_a_format_an_answer_may_call() {
    let h = with_grammars();
    let format = json!({"format": {"type": "json_schema", "name": "x", "strict": true,
        "schema": {"type": "object", "properties": {"a": {"type": "integer"}}}}});
    let mut strict = tool();
    strict["strict"] = json!(true);
    let both = json!({"tools": [strict], "text": format});
    h.device.say("{\"a\": 1}");
    let response = answer(&h, both.clone());
    assert_eq!(response["output"][0]["content"][0]["text"], "{\"a\": 1}");
    h.device.say(&format!("[{{\"name\": \"get_weather\", \"parameters\": {ARGUMENTS}}}]"));
    let response = answer(&h, both);
    let [item] = response["output"].as_array().unwrap().as_slice() else { panic!("{response}") };
    assert_eq!((&item["type"], &item["arguments"]), (&json!("function_call"), &json!(ARGUMENTS)));
}

/// A field that a chat would heed is heeded here, or refused.
#[test]
fn no_field_of_chats_is_ignored() {
    let h = with_grammars();
    let ignored = |h: &Harness| h.find_metric("saccade:unknown_fields_total").unwrap_or(0.0);
    for (field, value) in [
        ("add_generation_prompt", json!(false)),
        ("add_special_tokens", json!(true)),
        ("audio", json!({"voice": "x"})),
        ("cache_salt", json!("x")),
        ("chat_template_kwargs", json!({"x": 1})),
        ("continue_final_message", json!(true)),
        ("echo", json!(true)),
        ("enable_thinking", json!(false)),
        ("frequency_penalty", json!(1)),
        ("function_call", json!({"name": "f"})),
        ("functions", json!([{"name": "f"}])),
        ("guided_choice", json!(["x"])),
        ("guided_grammar", json!("root ::= \"x\"")),
        ("guided_json", json!({})),
        ("guided_regex", json!("x")),
        ("ignore_eos", json!(true)),
        ("include_reasoning", json!(false)),
        ("include_stop_str_in_output", json!(true)),
        ("logit_bias", json!({"1": 1})),
        ("logprobs", json!(true)),
        ("max_completion_tokens", json!(5)),
        ("messages", json!([])),
        ("min_p", json!(0.5)),
        ("min_tokens", json!(1)),
        ("modalities", json!(["audio"])),
        ("n", json!(2)),
        ("prediction", json!({"type": "content"})),
        ("presence_penalty", json!(1)),
        ("priority", json!(0)),
        ("reasoning_effort", json!("low")),
        ("repetition_penalty", json!(1.5)),
        ("request_id", json!("x")),
        ("response_format", json!({"type": "json_object"})),
        ("return_token_ids", json!(true)),
        ("return_tokens_as_token_ids", json!(true)),
        ("seed", json!(1)),
        ("service_tier", json!("flex")),
        ("skip_special_tokens", json!(false)),
        ("slo_tpot_ms", json!(100)),
        ("slo_ttft_ms", json!(5000)),
        ("stop", json!("x")),
        ("structured_outputs", json!({"choice": ["x"]})),
        ("top_k", json!(5)),
        ("truncate_prompt_tokens", json!(5)),
        ("verbosity", json!("low")),
        ("web_search_options", json!({})),
    ] {
        let answer = h.post("/v1/responses", &body(json!({field: value, "max_output_tokens": 5})));
        match answer.status {
            200 => assert_eq!(ignored(&h), 0.0, "{field}"),
            status => {
                let error = &answer.json()["error"];
                assert_eq!((status, &error["param"]), (400, &json!(field)), "{error}");
                assert_eq!(error["code"], "unsupported_parameter", "{error}");
            }
        }
    }
    answer(&h, json!({"of_no_api": 1}));
    assert_eq!(ignored(&h), 1.0);
}

#[test]
fn a_failure_midway_is_told() {
    let mut h = Harness::start();
    h.device.babble();
    let mut stream = h.post_open("/v1/responses", &body(json!({"stream": true})));
    stream.head();
    let mut text = String::new();
    while !text.contains("output_text.delta") {
        text.push_str(&String::from_utf8(stream.chunk().unwrap()).unwrap());
    }
    h.device.kill();
    while let Some(chunk) = stream.chunk() {
        text.push_str(&String::from_utf8(chunk).unwrap());
    }
    let events = events(&text);
    let [.., error, failed] = events.as_slice() else { panic!("{events:?}") };
    assert_eq!((&error["type"], &error["code"]), (&json!("error"), &json!("device_lost")));
    assert_eq!(failed["type"], "response.failed");
    let response = &failed["response"];
    assert_eq!(response["status"], "failed");
    assert_eq!(response["error"]["code"], "server_error");
    assert_eq!(response["output"][0]["status"], "incomplete");
}

#[test]
fn refusals_name_the_field() {
    let h = with_tools();
    let message = |content: Value| json!([{"role": "user", "content": content}]);
    for (extra, param) in [
        (json!({"input": null}), "input"),
        (json!({"input": []}), "input"),
        (json!({"input": 1}), "input"),
        (json!({"input": [{"role": "tool", "content": "x"}]}), "input[0].role"),
        (json!({"input": [{"type": "web_search_call", "id": "x"}]}), "input[0].type"),
        (json!({"input": [{"type": "item_reference", "id": "x"}]}), "input[0].type"),
        (json!({"input": message(json!([{"type": "input_image"}]))}), "input[0].content[0].type"),
        (json!({"input": message(json!([{"type": "input_text"}]))}), "input[0].content[0].text"),
        (json!({"input": message(json!(1))}), "input[0].content"),
        (
            json!({"input": [{"type": "function_call", "call_id": "1", "name": "a b",
                              "arguments": "{}"}]}),
            "input[0].name",
        ),
        (json!({"input": [{"type": "function_call_output", "output": "x"}]}), "input[0].call_id"),
        (json!({"instructions": 1}), "instructions"),
        (json!({"top_p": 2}), "top_p"),
        (json!({"max_output_tokens": 0}), "max_output_tokens"),
        (json!({"max_output_tokens": 100_000}), "max_output_tokens"),
        (json!({"max_tokens": 5}), "max_tokens"),
        (json!({"n": 2}), "n"),
        (json!({"store": true}), "store"),
        (json!({"background": true}), "background"),
        (json!({"previous_response_id": "resp_1"}), "previous_response_id"),
        (json!({"conversation": "conv_1"}), "conversation"),
        (json!({"prompt": {"id": "x"}}), "prompt"),
        (json!({"truncation": "auto"}), "truncation"),
        (json!({"service_tier": "flex"}), "service_tier"),
        (
            json!({"stream_options": {"include_obfuscation": true}}),
            "stream_options.include_obfuscation",
        ),
        (json!({"include": ["file_search_call.results"]}), "include[0]"),
        (json!({"top_logprobs": 2}), "top_logprobs"),
        (json!({"metadata": {"a": 1}}), "metadata"),
        (json!({"user": 1}), "user"),
        (json!({"text": {"format": {"type": "xml"}}}), "text.format"),
        (json!({"text": {"format": {"type": "json_schema"}}}), "text.format"),
        (json!({"text": {"verbosity": "low"}}), "text.verbosity"),
        (json!({"text": {"tone": "low"}}), "text.tone"),
        (json!({"reasoning": {"effort": ""}}), "reasoning.effort"),
        (json!({"reasoning": {"summary": "detailed"}}), "reasoning.summary"),
        (json!({"reasoning": "low"}), "reasoning"),
        (json!({"tools": [{"type": "web_search"}]}), "tools[0].type"),
        (json!({"tools": [{"type": "function", "function": {"name": "f"}}]}), "tools[0].function"),
        (json!({"tools": [{"type": "function", "name": "a b"}]}), "tools[0].name"),
        (
            json!({"tools": [{"type": "function", "name": "f", "defer_loading": true}]}),
            "tools[0].defer_loading",
        ),
        (json!({"tool_choice": "some"}), "tool_choice"),
        (json!({"tool_choice": "required"}), "tool_choice"),
        (json!({"tool_choice": {"type": "web_search"}}), "tool_choice.type"),
        (
            json!({"tools": [tool()], "tool_choice": {"type": "function", "name": "g"}}),
            "tool_choice",
        ),
        (json!({"grammar": "x"}), "grammar"),
        (json!({"input": "x".repeat(100_000)}), "input"),
    ] {
        let answer = h.post("/v1/responses", &body(extra.clone()));
        let shown: String = extra.to_string().chars().take(200).collect();
        assert_eq!(answer.status, 400, "{shown}: {}", answer.text());
        let error = &answer.json()["error"];
        assert_eq!(error["param"], param, "{shown}: {error}");
        assert_eq!(error["type"], "invalid_request_error");
        let told = error["message"].as_str().unwrap();
        let is_named = told.contains(&format!("`{param}")) || error["code"] != "invalid_value";
        assert!(is_named, "{shown}: {told}");
    }
    let answer = h.post("/v1/responses", &body(json!({"model": "other"})));
    assert_eq!((answer.status, &answer.json()["error"]["code"]), (404, &json!("model_not_found")));
}

#[test]
fn keys_and_limits_are_those_of_chats() {
    let h = Harness::with(
        |config| {
            config.api_keys = vec!["secret".into()];
            config.http.max_body_bytes = 4096;
        },
        FakeConfig::default(),
    );
    let ask = |key: &str, body: &Value| {
        let headers = [("authorization", key), ("content-type", "application/json")];
        h.request("POST", "/v1/responses", &headers, &body.to_string()).status
    };
    assert_eq!(ask("Bearer secret", &body(json!({}))), 200);
    assert_eq!(ask("Bearer other", &body(json!({}))), 401);
    assert_eq!(ask("Bearer secret", &body(json!({"input": "x".repeat(5000)}))), 413);
}

#[test]
fn a_client_that_goes_away_cancels_its_request() {
    let h = Harness::start();
    h.device.babble();
    let mut stream = h.post_open("/v1/responses", &body(json!({"stream": true})));
    stream.head();
    let mut text = String::new();
    while !text.contains("output_text.delta") {
        text.push_str(&String::from_utf8(stream.chunk().unwrap()).unwrap());
    }
    assert_eq!(h.device.in_flight(), 1);
    drop(stream);
    h.wait_until("cancelled", |h| h.device.in_flight() == 0);
}
