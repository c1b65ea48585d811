//! LoRA adapters by name: from the `model` of every endpoint to the number that the device is
//! given, and back to the answer's `model`.

#![allow(clippy::unwrap_used)]

mod common;

use std::collections::HashMap;
use std::sync::{Arc, Mutex};

use common::Harness;
use proptest::prelude::{Strategy, prop};
use proptest::test_runner::{Config, TestRunner};
use saccade_frontend::{Adapter, FrontendConfig};
use saccade_ring::testing::{FakeConfig, FakeRequest};
use serde_json::{Value, json};

/// Names that requests may use, and what the device says to each.
const MODELS: [(&str, &str); 4] =
    [("tiny", "base."), ("org/tiny", "base."), ("sql", "one.."), ("org/chat", "two..")];
const MAX_TOKENS: usize = 5;

fn adapter(name: &str, path: &str, base_model: Option<&str>) -> Adapter {
    Adapter { name: name.into(), path: path.into(), base_model: base_model.map(str::to_owned) }
}

fn two(config: &mut FrontendConfig) {
    config.device_lost_after = std::time::Duration::from_secs(60);
    config.adapters = vec![
        adapter("sql", "/adapters/sql", None),
        adapter("org/chat", "org/chat", Some("base/m")),
    ];
}

fn device(num_adapters: u32) -> FakeConfig {
    FakeConfig { num_adapters, embedding_size: 8, ..FakeConfig::default() }
}

/// What a device with adapters says: which one it was asked for.
fn speak(h: &Harness) {
    h.device.script(Box::new(|request: &FakeRequest, i| {
        let said = ["base.", "one..", "two.."][request.descriptor.adapter as usize];
        said.as_bytes().get(i as usize).map(|byte| u32::from(*byte))
    }));
}

fn start() -> Harness {
    let h = Harness::with(two, device(2));
    speak(&h);
    h
}

/// A body for an endpoint that generates.
fn body(path: &str, model: &str, extra: &Value) -> Value {
    let mut body = match path {
        "/v1/completions" | "/v1/completions/render" => json!({"prompt": "x"}),
        "/v1/responses" => json!({"input": "x", "max_output_tokens": MAX_TOKENS}),
        _ => json!({"messages": [{"role": "user", "content": "x"}]}),
    };
    if path != "/v1/responses" {
        body["max_tokens"] = json!(MAX_TOKENS);
    }
    body["model"] = json!(model);
    body.as_object_mut().unwrap().extend(extra.as_object().unwrap().clone());
    body
}

/// Where a whole answer of each endpoint has its text.
const ENDPOINTS: [(&str, &str); 4] = [
    ("/v1/completions", "/choices/0/text"),
    ("/v1/chat/completions", "/choices/0/message/content"),
    ("/v1/responses", "/output/0/content/0/text"),
    ("/v1/messages", "/content/0/text"),
];

#[test]
fn each_name_is_answered_by_its_own_model() {
    let h = start();
    for (path, text) in ENDPOINTS {
        for (model, said) in MODELS {
            let answer = h.post(path, &body(path, model, &json!({})));
            assert_eq!(answer.status, 200, "{path} {model}: {}", answer.text());
            let answer = answer.json();
            assert_eq!(answer.pointer(text), Some(&json!(said)), "{path} {model}: {answer}");
            assert_eq!(answer["model"], model, "{path}");
        }
    }
    let unnamed = h.post("/v1/completions", &json!({"prompt": "x", "max_tokens": MAX_TOKENS}));
    assert_eq!(unnamed.json()["choices"][0]["text"], "base.");
}

#[test]
fn streams_and_choices_are_of_the_model_that_was_asked_for() {
    let h = start();
    for (model, said) in MODELS {
        let extra = json!({"stream": true, "n": 3});
        let (chunks, done) =
            h.post("/v1/completions", &body("/v1/completions", model, &extra)).chunks();
        assert!(done && chunks.iter().all(|chunk| chunk["model"] == model), "{chunks:?}");
        for index in 0..3 {
            let of_choice = chunks.iter().map(|chunk| &chunk["choices"][0]);
            let texts = of_choice.filter(|choice| choice["index"] == index);
            let text: String = texts.filter_map(|choice| choice["text"].as_str()).collect();
            assert_eq!(text, said, "{model}");
        }
    }
    for (path, events) in [("/v1/responses", "response.created"), ("/v1/messages", "message_start")]
    {
        let text = h.post(path, &body(path, "sql", &json!({"stream": true}))).text();
        let first = text.lines().find_map(|line| line.strip_prefix("data: ")).unwrap();
        let first: Value = serde_json::from_str(first).unwrap();
        let (kind, head) = (&first["type"], first.get("message").or(first.get("response")));
        assert_eq!((kind, &head.unwrap()["model"]), (&json!(events), &json!("sql")), "{path}");
    }
}

#[test]
fn embeddings_are_of_the_model_that_was_asked_for() {
    let h = start();
    let mut vectors = HashMap::new();
    for (model, _) in MODELS {
        let body = json!({"input": ["abc", "d"], "model": model, "encoding_format": "float"});
        let answer = h.post("/v1/embeddings", &body).json();
        assert_eq!(answer["model"], model);
        vectors.insert(model, answer["data"].clone());
    }
    assert_eq!(vectors["tiny"], vectors["org/tiny"]);
    let [base, sql, chat] = ["tiny", "sql", "org/chat"].map(|model| &vectors[model]);
    assert!(base.is_array() && base != sql && sql != chat && base != chat);
}

#[test]
fn prompts_are_read_alike_for_every_model() {
    let h = start();
    let paths = ["/tokenize", "/detokenize", "/v1/messages/count_tokens"];
    let answers = |model: &str| {
        let body = json!({"model": model, "prompt": "abc", "tokens": [97, 98]});
        let chat = body_of_chat(model);
        let bodies = [&body, &body, &chat];
        let answers = paths.iter().zip(bodies).map(|(path, body)| h.post(path, body));
        answers.map(|answer| (answer.status, answer.text())).collect::<Vec<_>>()
    };
    let base = answers("tiny");
    assert!(base.iter().all(|(status, _)| *status == 200), "{base:?}");
    assert_eq!(answers("sql"), base);
    for path in ["/v1/completions/render", "/v1/chat/completions/render"] {
        let rendered = |model: &str| {
            let answer = h.post(path, &body(path, model, &json!({}))).json();
            answer.get(0).cloned().unwrap_or(answer)
        };
        let (base, sql) = (rendered("tiny"), rendered("sql"));
        assert_eq!((&base["model"], &sql["model"]), (&json!("tiny"), &json!("sql")), "{path}");
        assert!(base["token_ids"].is_array() && base["token_ids"] == sql["token_ids"], "{path}");
    }
}

fn body_of_chat(model: &str) -> Value {
    body("/v1/messages", model, &json!({}))
}

#[test]
fn a_name_that_is_not_served_is_not_found() {
    let h = start();
    for model in ["SQL", "sql ", "chat", "/adapters/sql", "base/m"] {
        for (path, _) in ENDPOINTS {
            let answer = h.post(path, &body(path, model, &json!({})));
            assert_eq!(answer.status, 404, "{path} {model}");
        }
        let embeddings = h.post("/v1/embeddings", &json!({"input": "x", "model": model}));
        let error = &embeddings.json()["error"];
        assert_eq!((&error["code"], &error["param"]), (&json!("model_not_found"), &json!("model")));
        let tokenize = h.post("/tokenize", &json!({"prompt": "x", "model": model}));
        assert_eq!(tokenize.status, 404);
        assert_eq!(h.get(&format!("/v1/models/{}", model.replace(' ', "%20"))).status, 404);
    }
}

#[test]
fn models_are_listed_as_vllm_lists_them() {
    let h = start();
    let list = h.get("/v1/models").json();
    let mut seen = list.clone();
    let root = seen["data"][0]["root"].clone();
    for model in seen["data"].as_array_mut().unwrap() {
        let fields = model.as_object_mut().unwrap();
        let created = fields.insert("created".into(), json!("[seconds]"));
        assert!(created.is_some_and(|seconds| seconds.as_u64() > Some(1_700_000_000)));
        if fields["root"] == root {
            fields["root"] = json!("[folder]");
        }
        let permission = fields.remove("permission").unwrap();
        assert_eq!(permission[0]["allow_sampling"], true);
    }
    insta::assert_json_snapshot!(seen);
    for model in list["data"].as_array().unwrap() {
        let one = h.get(&format!("/v1/models/{}", model["id"].as_str().unwrap()));
        assert_eq!(&one.json(), model);
    }
}

/// Status and code of an answer.
fn outcome(answer: &common::client::Answer) -> (u16, Value) {
    (answer.status, answer.json()["error"]["code"].clone())
}

#[test]
fn a_device_without_the_adapter_gives_no_answer_of_the_model_without_it() {
    let mut h = Harness::with(two, device(0));
    speak(&h);
    let lacks = (503, json!("adapter_not_loaded"));
    for (path, _) in ENDPOINTS {
        let answer = h.post(path, &body(path, "sql", &json!({})));
        assert_eq!(answer.status, 503, "{path}");
        assert!(answer.text().contains("--lora-modules"), "{path}: {}", answer.text());
        assert_eq!(h.post(path, &body(path, "tiny", &json!({}))).status, 200, "{path}");
    }
    let embeddings = json!({"input": "x", "model": "sql"});
    assert_eq!(outcome(&h.post("/v1/embeddings", &embeddings)), lacks);
    assert_eq!(outcome(&h.get("/v1/models/sql")), lacks);
    let listed = |h: &Harness| {
        let models = h.get("/v1/models").json()["data"].as_array().cloned().unwrap_or_default();
        models.iter().map(|model| model["id"].as_str().unwrap().to_owned()).collect::<Vec<_>>()
    };
    assert_eq!(listed(&h), ["tiny", "org/tiny"]);
    // Another device has one of them.
    h.device.restart(device(1));
    h.wait_until("the device is back", |h| h.get("/ready").status == 200);
    speak(&h);
    h.wait_until("its adapters are known", |h| listed(h).len() == 3);
    assert_eq!(listed(&h), ["tiny", "org/tiny", "sql"]);
    let ask = |model| h.post("/v1/completions", &body("/v1/completions", model, &json!({})));
    assert_eq!(ask("sql").json()["choices"][0]["text"], "one..");
    assert_eq!(outcome(&ask("org/chat")), lacks);
}

#[test]
fn adapters_are_neither_loaded_nor_unloaded_while_it_runs() {
    let h = Harness::with(
        |config| {
            two(config);
            config.api_keys = vec!["s3cret".into()];
        },
        device(2),
    );
    let body = json!({"lora_name": "new", "lora_path": "/new"}).to_string();
    for path in ["/v1/load_lora_adapter", "/v1/unload_lora_adapter"] {
        assert_eq!(h.request("POST", path, &[], &body).status, 401);
        let answer = h.request("POST", path, &[("authorization", "Bearer s3cret")], &body);
        assert_eq!(outcome(&answer), (501, json!("adapters_are_fixed")));
        assert!(answer.text().contains("--lora-modules"), "{}", answer.text());
    }
}

/// The labels of `vllm:lora_requests_info` but the model's, and its value.
fn info(h: &Harness) -> Vec<(String, f64)> {
    let text = h.get("/metrics").text();
    let lines = text.lines().filter_map(|line| line.strip_prefix("vllm:lora_requests_info{"));
    let parts = lines.map(|line| line.rsplit_once("} ").unwrap());
    parts.map(|(labels, value)| (labels.to_owned(), value.parse().unwrap())).collect()
}

fn labels(most: u32, running: &str, waiting: &str) -> String {
    format!(
        "max_lora=\"{most}\",model_name=\"tiny\",running_lora_adapters=\"{running}\",\
         waiting_lora_adapters=\"{waiting}\""
    )
}

#[test]
fn metrics_name_the_adapters_with_requests() {
    let h = start();
    let idle = info(&h);
    assert_eq!(idle.len(), 1, "{idle:?}");
    assert_eq!(idle[0].0, labels(2, "", ""));
    assert!(idle[0].1 > 1.7e9, "seconds since 1970: {idle:?}");
    assert_eq!(info(&h), idle, "the value is when it changed");
    h.device.babble();
    h.device.pause();
    let ask = |model: &str, n: u32| {
        let extra = json!({"stream": true, "n": n, "max_tokens": 4000});
        h.post_open("/v1/completions", &body("/v1/completions", model, &extra))
    };
    let open = [ask("org/chat", 2), ask("sql", 1), ask("tiny", 1)];
    h.wait_until("they wait", |h| info(h)[0].0 == labels(2, "", "sql,org/chat"));
    h.device.go_on();
    h.wait_until("they run", |h| info(h)[0].0 == labels(2, "sql,org/chat", ""));
    assert_eq!(info(&h).len(), 1, "what was is gone");
    drop(open);
    h.wait_until("they are over", |h| info(h)[0].0 == labels(2, "", ""));
    assert!(info(&h)[0].1 > idle[0].1);
}

#[test]
fn metrics_of_adapters_are_there_only_with_adapters() {
    assert_eq!(info(&Harness::start()), []);
    let bounded = |config: &mut FrontendConfig| {
        two(config);
        config.max_adapters = Some(7);
    };
    let h = Harness::with(bounded, device(2));
    assert_eq!(info(&h)[0].0, labels(7, "", ""));
}

/// A model by its place in `MODELS`, or none, and how many choices.
fn request() -> impl Strategy<Value = (Option<usize>, u32)> {
    (prop::option::of(0..MODELS.len()), 1..4u32)
}

#[test]
fn the_adapter_that_is_asked_for_is_the_one_that_is_submitted() {
    let h = start();
    let submitted: Arc<Mutex<Vec<(u32, u32)>>> = Arc::default();
    let seen = submitted.clone();
    // The prompt is one token, which is the request's number.
    h.device.script(Box::new(move |request: &FakeRequest, _| {
        seen.lock().unwrap().push((request.prompt[0], request.descriptor.adapter));
        Some(97)
    }));
    let requests = prop::collection::vec(request(), 1..8);
    let mut runner = TestRunner::new(Config { cases: 40, ..Config::default() });
    let all_at_once = |requests: Vec<(Option<usize>, u32)>| {
        submitted.lock().unwrap().clear();
        let open = |(number, (model, n)): (usize, &(Option<usize>, u32))| {
            let mut body = json!({"prompt": [number], "n": n, "max_tokens": 1});
            if let Some(model) = model {
                body["model"] = json!(MODELS[*model].0);
            }
            h.post_open("/v1/completions", &body)
        };
        let open: Vec<_> = requests.iter().enumerate().map(open).collect();
        for exchange in open {
            assert_eq!(exchange.answer().status, 200);
        }
        let expected = |(number, (model, n)): (usize, &(Option<usize>, u32))| {
            let adapter = model.map_or(0, |model| [0, 0, 1, 2][model]);
            vec![(number as u32, adapter); *n as usize]
        };
        let mut got = submitted.lock().unwrap().clone();
        got.sort_unstable();
        assert_eq!(got, requests.iter().enumerate().flat_map(expected).collect::<Vec<_>>());
        Ok(())
    };
    runner.run(&requests, all_at_once).unwrap();
}
