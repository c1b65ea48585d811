//! What is refused, with which status, naming what: through HTTP, and table by table.

#![allow(clippy::unwrap_used)]

mod common;

use common::Harness;
use saccade_frontend::{ApiError, Endpoint, fuzz_http_body, params};
use saccade_ring::testing::FakeConfig;
use serde_json::{Value, json};

const GENERATING: [Endpoint; 2] = [Endpoint::Chat, Endpoint::Completions];

/// A minimal body with one field set to JSON text.
fn body(endpoint: Endpoint, name: &str, raw: &str) -> String {
    let (required, base) = match endpoint {
        Endpoint::Chat | Endpoint::Messages => {
            ("messages", r#"[{"role": "user", "content": "x"}]"#)
        }
        Endpoint::Responses => ("input", r#""x""#),
        Endpoint::Completions | Endpoint::Tokenize => ("prompt", r#""x""#),
        Endpoint::Detokenize => ("tokens", "[1]"),
    };
    match name == required {
        true => format!(r#"{{"{name}": {raw}}}"#),
        false => format!(r#"{{"{required}": {base}, "{name}": {raw}}}"#),
    }
}

fn check(endpoint: Endpoint, name: &str, raw: &str) -> Result<(), ApiError> {
    fuzz_http_body(endpoint, body(endpoint, name, raw).as_bytes())
}

#[track_caller]
fn refused(endpoint: Endpoint, name: &str, raw: &str) {
    let shown: String = raw.chars().take(40).collect();
    match check(endpoint, name, raw) {
        Ok(()) => panic!("{endpoint:?}: {name} = {shown} was taken"),
        Err(error) => {
            assert_eq!(error.status.as_u16(), 400, "{name} = {shown}: {error:?}");
            assert!(error.message.contains(name), "{name} = {shown}: {error:?}");
            assert_eq!(error.param.as_deref(), Some(name), "{shown}: {error:?}");
            assert!(error.message.len() < 400, "{name} = {shown}: {error:?}");
        }
    }
}

#[track_caller]
fn taken(endpoint: Endpoint, name: &str, raw: &str) {
    check(endpoint, name, raw).unwrap_or_else(|e| panic!("{endpoint:?}: {name} = {raw}: {e:?}"));
}

#[test]
fn every_float_is_taken_at_its_bounds_and_refused_beyond() {
    for endpoint in GENERATING {
        for p in params::FLOATS {
            taken(endpoint, p.name, &p.max.to_string());
            if p.min_open {
                refused(endpoint, p.name, &p.min.to_string());
                taken(endpoint, p.name, &(p.min + 1e-3).to_string());
            } else {
                taken(endpoint, p.name, &p.min.to_string());
                refused(endpoint, p.name, &(p.min - 1e-3).to_string());
            }
            refused(endpoint, p.name, &(p.max + p.max.abs() * 1e-3).to_string());
            for raw in ["1e18", "-1e18", "1e400", "-1e400", "\"x\"", "true", "[]", "{}"] {
                refused(endpoint, p.name, raw);
            }
            refused(endpoint, p.name, &format!("\"{}\"", "9".repeat(1 << 20)));
            refused(endpoint, p.name, &"9".repeat(1 << 20));
        }
    }
}

#[test]
fn every_integer_is_taken_at_its_bounds_and_refused_beyond() {
    for endpoint in GENERATING {
        for p in params::INTS {
            // 0 has its own meaning in these two.
            let special = ["max_tokens", "priority"].contains(&p.name);
            // At their maximum, n asks for too many choices and min_tokens for too many tokens.
            let related = ["n", "min_tokens"].contains(&p.name);
            if !special {
                taken(endpoint, p.name, &p.min.to_string());
            }
            if !special && !related {
                taken(endpoint, p.name, &p.max.to_string());
            }
            for beyond in [i128::from(p.min) - 1, i128::from(p.max) + 1] {
                let allowed_zero = p.name == "max_tokens" && beyond == 0;
                if !(allowed_zero && endpoint == Endpoint::Completions) {
                    refused(endpoint, p.name, &beyond.to_string());
                }
            }
            for raw in ["1.5", "1e30", "-1e30", "\"1\"", "true", "[1]"] {
                refused(endpoint, p.name, raw);
            }
            if p.name != "seed" {
                refused(endpoint, p.name, "1e18");
                refused(endpoint, p.name, &i64::MIN.to_string());
            }
            refused(endpoint, p.name, &format!("\"{}\"", "1".repeat(1 << 20)));
        }
        taken(endpoint, "n", "1.0");
    }
    refused(Endpoint::Completions, "max_tokens", "0");
    refused(Endpoint::Chat, "priority", "1");
    refused(Endpoint::Chat, "priority", "-1");
}

#[test]
fn numbers_that_are_no_json_are_malformed() {
    for raw in ["NaN", "Infinity", "-Infinity", "01", "+1", ".5", "1.", "0x10"] {
        let error = check(Endpoint::Chat, "temperature", raw).unwrap_err();
        assert_eq!((error.status.as_u16(), error.code), (400, "invalid_json"), "{raw}");
    }
}

#[test]
fn lists_and_texts_are_bounded() {
    let ids = |n: usize| format!("[{}]", vec!["1"; n].join(","));
    let texts = |n: usize| format!("[{}]", vec!["\"s\""; n].join(","));
    let bias = |n: usize| {
        let pairs: Vec<String> = (0..n).map(|i| format!("\"{}\":1", i % 1000 + i / 1000)).collect();
        format!("{{{}}}", pairs.join(","))
    };
    for e in GENERATING {
        taken(e, "stop", "[]");
        taken(e, "stop", &texts(32));
        refused(e, "stop", &texts(33));
        refused(e, "stop", "\"\"");
        refused(e, "stop", "[\"a\", \"\"]");
        refused(e, "stop", "5");
        taken(e, "stop", &format!("\"{}\"", "x".repeat(1024)));
        refused(e, "stop", &format!("\"{}\"", "x".repeat(1025)));
        refused(e, "stop", &format!("\"{}\"", "x".repeat(1 << 20)));
        taken(e, "stop_token_ids", &ids(128));
        refused(e, "stop_token_ids", &ids(129));
        refused(e, "stop_token_ids", "[1000]");
        refused(e, "stop_token_ids", "[-1]");
        refused(e, "stop_token_ids", "[4294967296]");
        taken(e, "logit_bias", r#"{"0": -100, "999": 100}"#);
        refused(e, "logit_bias", r#"{"1000": 1}"#);
        refused(e, "logit_bias", r#"{"-1": 1}"#);
        refused(e, "logit_bias", r#"{"x": 1}"#);
        refused(e, "logit_bias", r#"{"1": 100.5}"#);
        refused(e, "logit_bias", r#"{"1": "1"}"#);
        refused(e, "logit_bias", "[1]");
        taken(e, "logit_bias", &bias(1000));
        refused(e, "logit_bias", &bias(100_000));
        taken(e, "cache_salt", "\"x\"");
        refused(e, "cache_salt", "\"\"");
        taken(e, "cache_salt", &format!("\"{}\"", "é".repeat(1024)));
        refused(e, "cache_salt", &format!("\"{}\"", "é".repeat(1025)));
        refused(e, "model", &format!("\"{}\"", "m".repeat(1025)));
        refused(e, "request_id", "\"a b\"");
        refused(e, "stream", "1");
        refused(e, "stream_options", "{\"include_usage\": true}");
        refused(e, "truncate_prompt_tokens", "0");
        refused(e, "min_tokens", "4294967295000");
    }
    refused(Endpoint::Chat, "top_logprobs", "1");
    refused(Endpoint::Chat, "logprobs", "1");
    taken(Endpoint::Completions, "logprobs", "20");
    refused(Endpoint::Completions, "logprobs", "21");
    refused(Endpoint::Completions, "logprobs", "-1");
    taken(Endpoint::Chat, "chat_template_kwargs", r#"{"enable_thinking": false}"#);
    refused(Endpoint::Chat, "chat_template_kwargs", r#"{"tokenize": true}"#);
    let long = format!("{{\"x\": \"{}\"}}", "y".repeat(1 << 17));
    refused(Endpoint::Chat, "chat_template_kwargs", &long);
    refused(Endpoint::Completions, "prompt", "[]");
    refused(Endpoint::Completions, "prompt", "[[]]");
    refused(Endpoint::Completions, "prompt", "[1, \"a\"]");
    refused(Endpoint::Completions, "prompt", "[1000]");
    refused(Endpoint::Completions, "prompt", &texts(257));
    refused(Endpoint::Chat, "messages", "[]");
    refused(Endpoint::Chat, "messages", "\"x\"");
    refused(Endpoint::Detokenize, "tokens", "[1000]");
}

#[test]
fn what_is_known_and_not_implemented_is_refused_by_name() {
    for e in GENERATING {
        for (name, raw, harmless) in [
            ("best_of", "2", "1"),
            ("use_beam_search", "true", "false"),
            ("grammar", r#""root ::= [0-9]""#, r#""""#),
            ("json_schema", r#"{"type": "object"}"#, "{}"),
            ("regex", r#""a+""#, "null"),
            ("thinking_token_budget", "100", "null"),
            ("truncation_side", r#""right""#, r#""left""#),
            ("allowed_token_ids", "[1]", "[]"),
        ] {
            refused(e, name, raw);
            assert_eq!(check(e, name, raw).unwrap_err().code, "unsupported_parameter");
            taken(e, name, harmless);
        }
    }
    refused(Endpoint::Completions, "suffix", "\"x\"");
    let image = r#"[{"role": "user", "content": [{"type": "image_url", "image_url": "x"}]}]"#;
    let error = check(Endpoint::Chat, "messages", image).unwrap_err();
    assert_eq!(error.param.as_deref(), Some("messages[0].content[0].type"));
}

/// Chat bodies with tools, and the field that is at fault; none if it is taken.
#[test]
fn tools_are_checked_field_by_field() {
    let tool = |function: &str| format!(r#"[{{"type": "function", "function": {function}}}]"#);
    let named = |name: &str| tool(&json!({"name": name}).to_string());
    let many = |n: usize| {
        let one = |i| json!({"type": "function", "function": {"name": format!("f{i}")}});
        json!((0..n).map(one).collect::<Vec<_>>()).to_string()
    };
    let deep = format!("{}1{}", r#"{"a":"#.repeat(200), "}".repeat(200));
    for (tools, param) in [
        ("[]".to_owned(), None),
        (named("f"), None),
        (named(&"f".repeat(128)), None),
        (many(512), None),
        (tool(r#"{"name": "f", "description": null, "parameters": null, "strict": false}"#), None),
        (many(513), Some("tools")),
        ("{}".into(), Some("tools")),
        ("[1]".into(), Some("tools[0]")),
        (r#"[{"type": "function"}]"#.into(), Some("tools[0].function")),
        (r#"[{"type": "custom", "function": {"name": "f"}}]"#.into(), Some("tools[0].type")),
        (tool("{}"), Some("tools[0].function.name")),
        (named(""), Some("tools[0].function.name")),
        (named("a b"), Some("tools[0].function.name")),
        (named("<|im_end|>"), Some("tools[0].function.name")),
        (named(&"f".repeat(129)), Some("tools[0].function.name")),
        (tool(r#"{"name": "f", "description": 1}"#), Some("tools[0].function.description")),
        (tool(r#"{"name": "f", "parameters": []}"#), Some("tools[0].function.parameters")),
        (tool(r#"{"name": "f", "strict": true}"#), None),
        (tool(r#"{"name": "f", "strict": 1}"#), Some("tools[0].function.strict")),
        (tool(&format!(r#"{{"name": "f", "parameters": {deep}}}"#)), Some("tools[0]")),
        (
            r#"[{"function": {"name": "f"}}, {"function": {"name": "f"}}]"#.into(),
            Some("tools[1].function.name"),
        ),
        (
            tool(&json!({"name": "f", "description": "x".repeat(1 << 20)}).to_string()),
            Some("tools"),
        ),
    ] {
        at_fault("tools", &tools, param);
    }
    let two = |choice: &str| {
        format!(
            r#"{{"messages": [{{"role": "user", "content": "x"}}],
                 "tools": [{{"type": "function", "function": {{"name": "f"}}}}], "tool_choice": {choice}}}"#
        )
    };
    for (choice, code) in [
        (r#""auto""#, None),
        (r#""none""#, None),
        (r#""required""#, None),
        (r#"{"type": "function", "function": {"name": "f"}}"#, None),
        (r#""required", "response_format": {"type": "json_object"}"#, None),
        (r#""required", "guided_json": {"type": "object"}"#, Some("invalid_value")),
        (r#"{"type": "function", "function": {"name": "g"}}"#, Some("invalid_value")),
        (r#""always""#, Some("invalid_value")),
        ("1", Some("invalid_value")),
    ] {
        let error = fuzz_http_body(Endpoint::Chat, two(choice).as_bytes()).err();
        assert_eq!(error.as_ref().map(|e| e.code), code, "{choice}: {error:?}");
        assert!(error.is_none_or(|e| e.param.as_deref() == Some("tool_choice")), "{choice}");
    }
    refused(Endpoint::Chat, "tool_choice", r#""required""#);
    taken(Endpoint::Chat, "tool_choice", r#""auto""#);
    refused(Endpoint::Chat, "parallel_tool_calls", "1");
    refused(Endpoint::Chat, "include_reasoning", r#""yes""#);
    refused(Endpoint::Chat, "enable_thinking", "1");
}

#[track_caller]
fn at_fault(name: &str, raw: &str, param: Option<&str>) {
    let shown: String = raw.chars().take(80).collect();
    let error = check(Endpoint::Chat, name, raw).err();
    assert_eq!(error.as_ref().and_then(|e| e.param.as_deref()), param, "{shown}: {error:?}");
    if let (Some(error), Some(param)) = (error, param) {
        assert!(error.message.contains(param) && error.message.len() < 400, "{error:?}");
    }
}

#[test]
fn calls_in_a_conversation_are_checked_field_by_field() {
    let calls = |calls: &str| format!(r#"[{{"role": "assistant", "tool_calls": {calls}}}]"#);
    let call = |call: &str| calls(&format!("[{call}]"));
    let of = |field: &str| Some(format!("messages[0].tool_calls[0]{field}"));
    let many = vec![r#"{"function": {"name": "f"}}"#; 257].join(",");
    let long = json!([{"role": "tool", "tool_call_id": "x".repeat(257)}]).to_string();
    for (messages, param) in [
        (calls("null"), None),
        (calls("[]"), None),
        (
            call(
                r#"{"id": "1", "type": "function", "function": {"name": "f", "arguments": "{}"}}"#,
            ),
            None,
        ),
        (call(r#"{"function": {"name": "f", "arguments": {"a": 1}}}"#), None),
        (call(r#"{"function": {"name": "f", "arguments": "not JSON"}}"#), None),
        (calls(r#""x""#), Some("messages[0].tool_calls".to_owned())),
        (call(&many), Some("messages[0].tool_calls".to_owned())),
        (call("1"), of(".function")),
        (call(r#"{"id": "1"}"#), of(".function")),
        (call(r#"{"type": "custom", "function": {"name": "f"}}"#), of(".type")),
        (call(r#"{"id": 1, "function": {"name": "f"}}"#), of(".id")),
        (call(r#"{"function": {"name": "a b"}}"#), of(".function.name")),
        (call(r#"{"function": {"name": "f", "arguments": 1}}"#), of(".function.arguments")),
        (long, Some("messages[0].tool_call_id".to_owned())),
        (
            r#"[{"role": "assistant", "function_call": {"name": "f"}}]"#.into(),
            Some("messages[0].function_call".to_owned()),
        ),
    ] {
        at_fault("messages", &messages, param.as_deref());
    }
}

/// Structural tags in both shapes.
const OLDER_TAGS: &str =
    r#""structures": [{"begin": "<a>", "schema": {}, "end": "</a>"}], "triggers": ["<a"]"#;
const TAGS: &str = r#""format": {"type": "any_text"}"#;

#[test]
fn one_grammar_is_taken_and_what_is_none_is_refused() {
    let many = serde_json::to_string(&vec!["x"; 4097]).unwrap();
    let long = serde_json::to_string(&"a".repeat(1 << 19)).unwrap();
    for e in GENERATING {
        for (name, raw) in [
            ("response_format", r#"{"type": "text"}"#),
            ("response_format", r#"{"type": "json_object"}"#),
            (
                "response_format",
                r#"{"type": "json_schema", "json_schema": {"name": "a", "schema": {}}}"#,
            ),
            ("structured_outputs", r#"{"regex": "a+"}"#),
            ("structured_outputs", r#"{"json": {"type": "object"}, "regex": null}"#),
            ("structured_outputs", r#"{"json": "{\"type\": \"object\"}"}"#),
            ("structured_outputs", r#"{"json_object": true, "choice": null}"#),
            ("structured_outputs", r#"{"choice": ["a", "b"], "disable_any_whitespace": false}"#),
            ("guided_json", r#"{"type": "integer"}"#),
            ("guided_regex", r#""[0-9]+""#),
            ("guided_choice", r#"["a", "b"]"#),
            ("guided_grammar", r#""root ::= [0-9]""#),
            ("structured_outputs", r#"{"grammar": "start: /[0-9]/", "json": null}"#),
            ("response_format", &format!(r#"{{"type": "structural_tag", {OLDER_TAGS}}}"#)),
            ("response_format", &format!(r#"{{"type": "structural_tag", {TAGS}}}"#)),
            ("structured_outputs", &format!(r#"{{"structural_tag": {{{TAGS}}}}}"#)),
            ("structured_outputs", r#"{"structural_tag": "{\"format\": {}}", "json": null}"#),
            ("structural_tag", &format!("{{{OLDER_TAGS}}}")),
        ] {
            taken(e, name, raw);
        }
        for (name, raw) in [
            ("response_format", "1"),
            ("response_format", "{}"),
            ("response_format", r#"{"type": "xml"}"#),
            ("response_format", r#"{"type": "json_schema"}"#),
            ("response_format", r#"{"type": "json_schema", "json_schema": {"name": "a"}}"#),
            ("structured_outputs", "{}"),
            ("structured_outputs", r#"{"regex": "a", "choice": ["a"]}"#),
            ("structured_outputs", r#"{"grammar": 1}"#),
            ("structured_outputs", r#"{"grammar": "start: /x/", "regex": "x"}"#),
            ("structured_outputs", r#"{"regex": "a", "whitespace_pattern": " "}"#),
            ("structured_outputs", r#"{"json_object": false}"#),
            ("structured_outputs", r#"{"structural_tag": {}, "regex": "x"}"#),
        ] {
            refused(e, name, raw);
        }
        for (name, raw) in [
            ("guided_regex", "1"),
            ("guided_regex", long.as_str()),
            ("guided_grammar", "{}"),
            ("guided_grammar", long.as_str()),
            ("structural_tag", long.as_str()),
            ("guided_choice", many.as_str()),
            ("guided_choice", "[]"),
            ("guided_choice", r#"["a", ""]"#),
        ] {
            let error = check(e, name, raw).unwrap_err();
            assert_eq!((error.status.as_u16(), error.param.as_deref()), (400, Some(name)));
        }
        let two = r#"{"type": "json_object"}, "guided_regex": "a""#;
        let error = check(e, "response_format", two).unwrap_err();
        assert!(error.message.contains("cannot be combined"), "{error:?}");
    }
}

/// What of a structural tag cannot be kept is named by the request's field and its place in it.
#[test]
fn a_structural_tag_is_kept_or_refused() {
    let h = Harness::with(|_| (), common::takes_grammars());
    let token = json!({"type": "tag", "begin": {"type": "token", "token": 1},
        "content": {"type": "any_text"}, "end": "</a>"});
    let older = json!({"type": "structural_tag", "triggers": ["<b"],
        "structures": [{"begin": "<a>", "schema": {}, "end": "</a>"}]});
    let schema = json!({"format": {"type": "json_schema", "json_schema": {"uniqueItems": true}}});
    for (param, value, message) in [
        (
            "response_format",
            json!({"type": "structural_tag", "format": token}),
            "`response_format`: `begin` must be a string (at #/format)",
        ),
        (
            "response_format",
            older,
            "`response_format`: `begin` must begin with one of `triggers`, got `<a>` (at #)",
        ),
        (
            "structured_outputs",
            json!({"structural_tag": schema.to_string()}),
            "`structured_outputs`: `uniqueItems` is not supported (at #/format/json_schema)",
        ),
        (
            "structural_tag",
            json!({"format": {"type": "any_text", "max_chars": 9}}),
            "`structural_tag`: `max_chars` is not supported (at #/format)",
        ),
    ] {
        let messages = json!([{"role": "user", "content": "x"}]);
        for (path, mut body) in [
            ("/v1/completions", json!({"prompt": "a"})),
            ("/v1/chat/completions", json!({"messages": messages})),
        ] {
            body[param] = value.clone();
            let refused = h.post(path, &body);
            let error = &refused.json()["error"];
            assert_eq!((refused.status, error["param"].as_str()), (400, Some(param)), "{error}");
            assert_eq!(error["message"], message);
        }
    }
}

/// A device that walks no grammars, or means other tokens, gets none.
#[test]
fn a_grammar_needs_a_device_that_means_the_same_tokens() {
    for (grammars, want) in
        [((0, 0), "device does not support it"), ((7, 1000), "another tokenizer")]
    {
        let h = Harness::with(|_| (), FakeConfig { grammars, ..FakeConfig::default() });
        let answer = h.post(
            "/v1/completions",
            &json!({"prompt": "a", "structured_outputs": {"regex": "a+"}}),
        );
        assert_eq!(answer.status, 400);
        let error = &answer.json()["error"];
        assert_eq!(error["param"], "structured_outputs");
        assert!(error["message"].as_str().unwrap().contains(want), "{error}");
        assert_eq!(h.post("/v1/completions", &json!({"prompt": "a"})).status, 200);
    }
}

/// The wire has its own limits too; here the errors are what a client reads.
#[test]
fn errors_are_openai_objects() {
    let h = Harness::start();
    let ids: Vec<u32> = vec![97; common::MAX_MODEL_LEN as usize];
    let message = json!([{"role": "user", "content": "x"}]);
    let mut seen = Vec::new();
    for (path, body) in [
        ("/v1/chat/completions", json!({})),
        ("/v1/chat/completions", json!({"messages": message, "temperature": -1})),
        ("/v1/chat/completions", json!({"messages": message, "model": "other"})),
        ("/v1/chat/completions", json!({"messages": message, "max_tokens": 5000})),
        ("/v1/chat/completions", json!({"messages": message, "min_tokens": 4090})),
        ("/v1/completions", json!({"prompt": ids})),
        ("/v1/completions", json!({"prompt": ""})),
        ("/v1/completions", json!({"prompt": "x".repeat(1 << 20)})),
        ("/v1/completions", json!({"prompt": ["a", "b"], "n": 20})),
        ("/v1/completions", json!({"prompt": "a", "response_format": {"type": "json_object"}})),
        ("/nowhere", json!({})),
        ("/health", json!({})),
    ] {
        let answer = h.post(path, &body);
        assert_eq!(answer.header("content-type"), Some("application/json"), "{path}");
        seen.push((answer.status, answer.json()));
    }
    insta::assert_json_snapshot!(seen);
}

#[test]
fn bodies_are_bounded_and_must_be_json() {
    let h = Harness::with(|c| c.http.max_body_bytes = 1000, Default::default());
    let big = json!({"prompt": "x".repeat(2000)}).to_string();
    let json_type = [("content-type", "application/json")];
    let answer = h.request("POST", "/v1/completions", &json_type, &big);
    assert_eq!(
        (answer.status, answer.json()["error"]["code"].clone()),
        (413, json!("body_too_large"))
    );
    let answer = h.request("POST", "/v1/completions", &[("content-type", "text/plain")], "{}");
    assert_eq!(answer.status, 415);
    let answer = h.request("POST", "/v1/completions", &json_type, "{\"prompt\": \n oops}");
    assert_eq!(answer.status, 400);
    let message = answer.json()["error"]["message"].as_str().unwrap().to_owned();
    assert!(message.contains("line 2 column 2"), "{message}");
    // Unknown fields are counted, not refused.
    let answer = h.post("/v1/completions", &json!({"prompt": "x", "frobnicate": 1, "hue": 2}));
    assert_eq!(answer.status, 200);
    assert_eq!(h.metric("saccade:unknown_fields_total"), 2.0);
    assert_eq!(
        h.metric("saccade:requests_rejected_total{model_name=\"tiny\",reason=\"invalid_json\"}"),
        1.0
    );
}

#[test]
fn keys_guard_v1_and_nothing_else() {
    let h =
        Harness::with(|c| c.api_keys = vec!["s3cret".into(), "other".into()], Default::default());
    assert_eq!(h.get("/v1/models").status, 401);
    assert_eq!(h.get("/v1/models").json()["error"]["code"], "invalid_api_key");
    for path in ["/health", "/ready", "/metrics", "/version", "/"] {
        assert_eq!(h.get(path).status, 200, "{path}");
    }
    for (key, status) in [("s3cret", 200), ("other", 200), ("s3cre", 401), ("", 401)] {
        let header = format!("Bearer {key}");
        let answer = h.request("GET", "/v1/models", &[("authorization", &header)], "");
        assert_eq!(answer.status, status, "{key}");
    }
    for path in
        ["//v1/models", "/v1//models", "/./v1/models", "/V1/models", "/v1/models/tiny?x=/health"]
    {
        let answer = h.get(path);
        assert!([401, 404].contains(&answer.status), "{path}: {}", answer.status);
    }
}

#[test]
fn a_reset_needs_the_key_and_reaches_the_device() {
    let h = Harness::with(|c| c.api_keys = vec!["s3cret".into()], Default::default());
    let reset = |key: &str| {
        let header = format!("Bearer {key}");
        h.request("POST", "/reset_prefix_cache", &[("authorization", &header)], "")
    };
    assert_eq!(h.request("POST", "/reset_prefix_cache", &[], "").status, 401);
    assert_eq!(reset("other").status, 401);
    assert_eq!(h.device.prefix_generation(), 0);
    for resets in 1..=3 {
        // What comes with it is vLLM's matter: nothing is read.
        let answer = reset("s3cret");
        assert_eq!((answer.status, answer.text().as_str()), (200, ""));
        assert_eq!(h.device.prefix_generation(), resets);
    }
    let open = Harness::start();
    assert_eq!(open.get("/reset_prefix_cache").status, 405);
    assert_eq!(open.request("POST", "/reset_prefix_cache", &[], "").status, 200);
    assert_eq!(open.device.prefix_generation(), 1);
}

#[test]
fn keys_are_part_of_the_salt_where_they_are_asked_for() {
    for by_key in [false, true] {
        let change = |c: &mut saccade_frontend::FrontendConfig| {
            c.api_keys = vec!["one".into(), "two".into()];
            c.cache_salt_by_key = by_key;
        };
        let h = Harness::with(change, FakeConfig::default());
        let seen = std::sync::Arc::new(std::sync::Mutex::new(0));
        h.device.script(Box::new({
            let seen = seen.clone();
            move |request, _| {
                *seen.lock().unwrap() = request.descriptor.cache_salt;
                Some(97)
            }
        }));
        let salt = |path: &str, key: &str, body: Value| {
            let header = format!("Bearer {key}");
            let headers = [("content-type", "application/json"), ("authorization", &header)];
            let answer = h.request("POST", path, &headers, &body.to_string());
            assert_eq!(answer.status, 200, "{}", answer.text());
            *seen.lock().unwrap()
        };
        let text = json!({"prompt": "x", "max_tokens": 1});
        let salted = json!({"prompt": "x", "max_tokens": 1, "cache_salt": "a"});
        let chat = json!({"messages": [{"role": "user", "content": "x"}], "max_tokens": 1});
        let (texts, chats) = ("/v1/completions", "/v1/chat/completions");
        let of_one = salt(texts, "one", text.clone());
        assert_eq!(salt(texts, "one", text.clone()), of_one);
        assert_eq!(salt(chats, "one", chat), of_one);
        assert_eq!(salt(texts, "two", text) != of_one, by_key);
        assert_eq!(of_one != 0, by_key);
        let chosen = salt(texts, "one", salted.clone());
        assert_ne!(chosen, of_one);
        assert_eq!(salt(texts, "two", salted) != chosen, by_key);
    }
}

#[test]
fn request_ids_are_echoed_and_part_of_the_answer() {
    let h = Harness::start();
    let body = json!({"prompt": "x"}).to_string();
    let headers = [("content-type", "application/json"), ("x-request-id", "abc-1")];
    let answer = h.request("POST", "/v1/completions", &headers, &body);
    assert_eq!(answer.header("x-request-id"), Some("abc-1"));
    assert_eq!(answer.json()["id"], "cmpl-abc-1");
    let long = "x".repeat(200);
    let answer = h.request("GET", "/health", &[("x-request-id", &long)], "");
    assert_eq!(answer.header("x-request-id").unwrap().len(), 32);
}

#[test]
fn slo_targets_reach_the_device_from_body_or_header() {
    let h = Harness::with(|c| c.request_priority = true, FakeConfig::default());
    let seen = std::sync::Arc::new(std::sync::Mutex::new(Vec::new()));
    h.device.script(Box::new({
        let seen = seen.clone();
        move |request, _| {
            let d = request.descriptor;
            seen.lock().unwrap().push((d.slo_ttft_s, d.slo_tbt_s, d.cache_salt));
            Some(97)
        }
    }));
    let headers =
        [("content-type", "application/json"), ("x-slo-ttft-ms", "250"), ("x-slo-tpot-ms", "50")];
    let one = |body: Value| {
        let answer = h.request("POST", "/v1/completions", &headers, &body.to_string());
        assert_eq!(answer.status, 200, "{}", answer.text());
        seen.lock().unwrap().drain(..).next().unwrap()
    };
    assert_eq!(one(json!({"prompt": "x", "max_tokens": 1})), (0.25, 0.05, 0));
    let (ttft, _, salt) =
        one(json!({"prompt": "x", "max_tokens": 1, "slo_ttft_ms": 1500, "cache_salt": "tenant"}));
    assert_eq!(ttft, 1.5);
    assert_ne!(salt, 0);
}

#[test]
fn slo_headers_are_refused_by_name_and_bound() {
    let h = Harness::start();
    for name in ["x-slo-ttft-ms", "x-slo-tpot-ms"] {
        for (value, complaint) in [
            ("soon", "must be a number"),
            ("", "must be a number"),
            ("0.5", "must be between 1 and 3600000"),
            ("-1", "must be between 1 and 3600000"),
            ("3600001", "must be between 1 and 3600000"),
            ("1e400", "must be between 1 and 3600000"),
        ] {
            let headers = [("content-type", "application/json"), (name, value)];
            let answer = h.request("POST", "/v1/completions", &headers, "{\"prompt\": \"x\"}");
            assert_eq!(answer.status, 400, "{name}: {value}");
            let error = &answer.json()["error"];
            assert_eq!(error["param"], name);
            let message = error["message"].as_str().unwrap();
            assert!(message.contains(name) && message.contains(complaint), "{message}");
        }
    }
}

#[test]
fn classes_are_taken_where_the_policy_has_them_and_counted_with_what_they_met() {
    let change = |config: &mut saccade_frontend::FrontendConfig| {
        config.priority_scheduling = true;
        config.request_priority = true;
    };
    let h = Harness::with(change, FakeConfig::default());
    let seen = std::sync::Arc::new(std::sync::Mutex::new(Vec::new()));
    h.device.script(Box::new({
        let seen = seen.clone();
        move |request, _| {
            seen.lock().unwrap().push(request.descriptor.priority);
            std::thread::sleep(std::time::Duration::from_millis(3));
            Some(97)
        }
    }));
    let post = |body: Value| {
        let headers = [("content-type", "application/json")];
        h.request("POST", "/v1/completions", &headers, &body.to_string())
    };
    // Targets that every token keeps, and one that none does.
    let easy = json!({"prompt": "x", "max_tokens": 3, "priority": -100, "slo_ttft_ms": 3.6e6,
        "slo_tpot_ms": 3.6e6});
    let late = json!({"prompt": "x", "max_tokens": 3, "priority": 7, "slo_ttft_ms": 1,
        "slo_tpot_ms": 3.6e6});
    assert_eq!(post(late).status, 200);
    assert_eq!(post(easy).status, 200);
    assert_eq!(post(json!({"prompt": "x", "max_tokens": 1, "priority": 101})).status, 400);
    let classes: Vec<i32> = seen.lock().unwrap().iter().copied().collect();
    assert!(classes.contains(&-100) && classes.contains(&7), "{classes:?}");
    let text = h.get("/metrics").text();
    let count = |target: &str, met: bool, priority: i32| {
        let wanted = [
            format!("met=\"{met}\""),
            format!("target=\"{target}\""),
            format!("priority=\"{priority}\""),
        ];
        text.lines()
            .filter(|l| l.starts_with("saccade:slo_requests_total{"))
            .filter(|l| wanted.iter().all(|w| l.contains(w.as_str())))
            .map(|l| l.rsplit(' ').next().unwrap().parse::<u64>().unwrap())
            .sum::<u64>()
    };
    for target in ["ttft", "tpot", "goodput"] {
        assert_eq!((count(target, true, -100), count(target, false, -100)), (1, 0), "{target}");
    }
    assert_eq!((count("ttft", true, 7), count("ttft", false, 7)), (0, 1));
    assert_eq!((count("tpot", true, 7), count("tpot", false, 7)), (1, 0));
    assert_eq!((count("goodput", true, 7), count("goodput", false, 7)), (0, 1));
}

#[test]
fn the_readme_names_every_parameter_and_code() {
    let readme = include_str!("../README.md");
    let names = params::FLOATS.iter().map(|p| p.name).chain(params::INTS.iter().map(|p| p.name));
    for name in names {
        assert!(readme.contains(&format!("`{name}`")), "README.md: no {name}");
    }
    let sources = [
        include_str!("../src/api_error.rs"),
        include_str!("../src/http/body.rs"),
        include_str!("../src/http/router.rs"),
        include_str!("../src/http/layers.rs"),
        include_str!("../src/http/app.rs"),
    ];
    let quoted = sources.iter().flat_map(|s| s.split('"'));
    let known = ["_error", "invalid_", "device_", "server_", "body_", "_found", "_allowed"];
    for code in quoted.filter(|w| w.bytes().all(|b| b.is_ascii_lowercase() || b == b'_')) {
        let is_type = ["server_error", "invalid_request_error"].contains(&code)
            || (code.ends_with("_error") && code != "internal_error");
        if !is_type && known.iter().any(|k| code.contains(k)) {
            assert!(readme.contains(&format!("`{code}`")), "README.md: no {code}");
        }
    }
}
