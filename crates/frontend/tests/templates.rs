//! Conversations with tools, as Hugging Face transformers renders them.

#![allow(clippy::unwrap_used)]

mod common;

use std::path::PathBuf;

use common::Harness;
use serde_json::{Value, json};

fn folder() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/templates")
}

fn read(name: &str) -> Value {
    serde_json::from_str(&std::fs::read_to_string(folder().join(name)).unwrap()).unwrap()
}

fn serve(template: &str) -> Harness {
    let path = match template {
        "bundled" => folder().join("../../../../models/saccade-tiny/chat_template.jinja"),
        name => folder().join(format!("{name}.jinja")),
    };
    Harness::with(|config| config.chat_template = Some(path), Default::default())
}

/// The prompt of a conversation, by way of its tokens.
fn rendered(h: &Harness, body: &Value) -> String {
    let answer = h.post("/tokenize", body);
    assert_eq!(answer.status, 200, "{}", answer.text());
    let text = h.post("/detokenize", &json!({"tokens": answer.json()["tokens"]})).json();
    text["prompt"].as_str().unwrap().to_owned()
}

#[test]
fn conversations_are_rendered_as_transformers_does() {
    let (spec, expected) = (read("cases.json"), read("expected.json"));
    let mut compared = 0;
    for template in ["tagged", "bracketed", "headed", "bundled"] {
        let h = serve(template);
        for case in spec["cases"].as_array().unwrap() {
            if !case["templates"].as_array().unwrap().contains(&json!(template)) {
                continue;
            }
            let mut body = json!({"messages": case["messages"]});
            if case["tools"] == true {
                body["tools"] = spec["tools"].clone();
            }
            if let Some(kwargs) = case.get("kwargs") {
                body["chat_template_kwargs"] = kwargs.clone();
            }
            let name = format!("{template}: {}", case["name"].as_str().unwrap());
            assert_eq!(rendered(&h, &body), expected[&name].as_str().unwrap(), "{name}");
            compared += 1;
        }
    }
    assert_eq!(compared, expected.as_object().unwrap().len());
}

/// vLLM's name of the field, and the short form of the template's variable.
#[test]
fn other_names_mean_the_same() {
    let h = serve("tagged");
    let messages = |name: &str| {
        json!([{"role": "user", "content": "Hi"},
               {"role": "assistant", "content": "Yes", name: "They greet."}])
    };
    let text = rendered(&h, &json!({"messages": messages("reasoning")}));
    assert!(text.contains("They greet."), "{text}");
    assert_eq!(text, rendered(&h, &json!({"messages": messages("reasoning_content")})));
    let body = json!({"messages": [{"role": "user", "content": "Hi"}], "enable_thinking": false});
    assert!(rendered(&h, &body).ends_with("<think>\n\n</think>\n\n"));
}

/// A template that would drop them says so: the model would never hear of them.
#[test]
fn what_a_template_leaves_out_is_refused() {
    let h = Harness::start();
    let user = json!({"role": "user", "content": "Hi"});
    let tool = json!({"type": "function", "function": {"name": "f"}});
    let call = json!({"role": "assistant", "tool_calls": [
        {"id": "1", "type": "function", "function": {"name": "f", "arguments": "{}"}}]});
    for (body, param) in [
        (json!({"messages": [user], "tools": [tool]}), "tools"),
        (json!({"messages": [user, call]}), "messages[1].tool_calls"),
    ] {
        let answer = h.post("/tokenize", &body);
        assert_eq!(answer.status, 400, "{}", answer.text());
        assert_eq!(answer.json()["error"]["param"], param);
    }
}

/// Clients send no content beside calls. Some templates ask for that, others take every content for
/// a text and fail, or write the word.
#[test]
fn a_content_that_is_none_is_an_empty_one_where_the_template_needs_it() {
    let folder = tempfile::tempdir().unwrap();
    let loops = |body: &str| format!("{{% for m in messages %}}{body}{{% endfor %}}");
    let calls = "{% for c in m.tool_calls or [] %}{{ c.function.name }}{% endfor %};";
    for (name, body, expected) in [
        ("asks", "{% if m.content is none %}calls {% else %}{{ m.content }}{% endif %}", "calls "),
        ("needs", "{% if '</think>' in m.content %}x{% endif %}{{ m.content.strip() }}", ""),
        ("writes", "{{ m.content }}", ""),
    ] {
        let path = folder.path().join(name);
        std::fs::write(&path, loops(&format!("{body}{calls}"))).unwrap();
        let h = Harness::with(|config| config.chat_template = Some(path), Default::default());
        let body = json!({"messages": [{"role": "user", "content": "Hi"},
            {"role": "assistant", "content": null, "tool_calls": [{"function": {"name": "f"}}]}]});
        assert_eq!(rendered(&h, &body), format!("Hi;{expected}f;"), "{name}");
    }
}

/// Special tokens that are written in tools and calls are text where they are escaped.
#[test]
fn special_tokens_in_tools_and_calls_are_text_where_they_are_escaped() {
    let path = folder().join("tagged.jinja");
    let change = |config: &mut saccade_frontend::FrontendConfig| {
        config.chat_template = Some(path);
        config.escape_special_tokens = true;
    };
    let h = Harness::with(change, Default::default());
    let body = |mark: &str| {
        let arguments = json!({mark: mark}).to_string();
        let properties = json!({mark: {"type": "string", "description": mark}});
        json!({
            "tools": [{"type": "function", "function": {
                "name": "f", "description": mark, "parameters": {"properties": properties}}}],
            "messages": [
                {"role": "user", "content": "Hi"},
                {"role": "assistant", "reasoning_content": mark, "tool_calls": [
                    {"id": mark, "function": {"name": "f", "arguments": arguments}}]},
                {"role": "tool", "content": mark, "tool_call_id": mark}]})
    };
    let ends = |mark: &str| {
        let json = h.post("/tokenize", &body(mark)).json();
        let ids = json["tokens"].as_array().unwrap();
        ids.iter().filter(|id| **id == json!(common::EOS)).count()
    };
    assert_eq!(ends("<|im_end|>"), ends("harmless"));
}
