//! Embeddings, from HTTP to a scripted device and back.

#![allow(clippy::unwrap_used)]

mod common;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use common::{Harness, MAX_MODEL_LEN, NUM_SLOTS, VOCAB_SIZE};
use saccade_frontend::FrontendConfig;
use saccade_ring::testing::{FakeConfig, scripted_value};
use serde_json::{Value, json};

const PATH: &str = "/v1/embeddings";
/// Odd: the last word of a record is half.
const SIZE: u32 = 51;
/// No pause of a busy machine is a lost device.
const LONG: std::time::Duration = std::time::Duration::from_secs(60);

fn embedding() -> FakeConfig {
    FakeConfig { embedding_size: SIZE, ..FakeConfig::default() }
}

fn start() -> Harness {
    with(|_| ())
}

fn with(change: impl FnOnce(&mut FrontendConfig)) -> Harness {
    let patient = |c: &mut FrontendConfig| {
        c.device_lost_after = LONG;
        change(c);
    };
    Harness::with(patient, embedding())
}

/// What the device gives for these tokens.
fn state(ids: &[u32]) -> Vec<f32> {
    (0..SIZE).map(|i| scripted_value(ids, i)).collect()
}

/// The same, its first `keep` values, at length 1.
fn unit(ids: &[u32], keep: usize) -> Vec<f32> {
    let kept = &state(ids)[..keep];
    let length = kept.iter().map(|v| f64::from(*v).powi(2)).sum::<f64>().sqrt();
    kept.iter().map(|v| (f64::from(*v) / length) as f32).collect()
}

/// The tokens that the server makes of a text.
fn ids(h: &Harness, text: &str) -> Vec<u32> {
    let answer = h.post("/tokenize", &json!({"prompt": text})).json();
    answer["tokens"].as_array().unwrap().iter().map(|id| id.as_u64().unwrap() as u32).collect()
}

fn vector(item: &Value) -> Vec<f32> {
    match &item["embedding"] {
        Value::String(text) => {
            let bytes = STANDARD.decode(text).unwrap();
            bytes.chunks(4).map(|b| f32::from_le_bytes(b.try_into().unwrap())).collect()
        }
        list => {
            list.as_array().unwrap().iter().map(|value| value.as_f64().unwrap() as f32).collect()
        }
    }
}

fn vectors(answer: &Value) -> Vec<Vec<f32>> {
    let data = answer["data"].as_array().unwrap();
    for (i, item) in data.iter().enumerate() {
        assert_eq!((&item["object"], &item["index"]), (&json!("embedding"), &json!(i)));
    }
    data.iter().map(vector).collect()
}

/// Choices that take the only seat of a device one after the other, for some seconds.
const BUSY: usize = 8;

fn occupied(h: &Harness) -> common::client::Exchange {
    h.device.babble();
    let body = json!({"prompt": "x", "max_tokens": 4000, "stream": true, "n": BUSY});
    let mut busy = h.post_open("/v1/completions", &body);
    busy.head();
    busy
}

/// Status, code and field of a refusal, and what it says.
fn refused(h: &Harness, body: &Value) -> (u16, String, Value, String) {
    let answer = h.post(PATH, body);
    let error = &answer.json()["error"];
    let text = |name: &str| error[name].as_str().unwrap_or_default().to_owned();
    (answer.status, text("code"), error["param"].clone(), text("message"))
}

#[test]
fn every_form_of_input_gives_a_vector_of_length_one_for_each() {
    let h = start();
    for (input, prompts) in [
        (json!("Hi"), vec![ids(&h, "Hi")]),
        (json!(["Hi", "Hello there"]), vec![ids(&h, "Hi"), ids(&h, "Hello there")]),
        (json!([3, 1, 4]), vec![vec![3, 1, 4]]),
        (json!([[3, 1, 4], [1], [5, 9]]), vec![vec![3, 1, 4], vec![1], vec![5, 9]]),
    ] {
        let answer = h.post(PATH, &json!({"model": "org/tiny", "input": input, "user": "u"}));
        assert_eq!(answer.status, 200, "{input}: {}", answer.text());
        let json = answer.json();
        assert_eq!((&json["object"], &json["model"]), (&json!("list"), &json!("org/tiny")));
        assert!(json["id"].as_str().unwrap().starts_with("embd-"));
        let expected: Vec<_> = prompts.iter().map(|ids| unit(ids, SIZE as usize)).collect();
        assert_eq!(vectors(&json), expected, "{input}");
        let tokens: usize = prompts.iter().map(Vec::len).sum();
        assert_eq!(json["usage"]["prompt_tokens"], tokens);
        assert_eq!(json["usage"]["total_tokens"], tokens);
    }
}

#[test]
fn base64_is_the_same_numbers() {
    let h = start();
    let ask = |format: &str| {
        let body = json!({"input": ["one", "two"], "encoding_format": format});
        h.post(PATH, &body).json()
    };
    let (plain, coded) = (ask("float"), ask("base64"));
    assert!(coded["data"][0]["embedding"].is_string());
    assert_eq!(vectors(&plain), vectors(&coded));
    assert_eq!(vectors(&plain)[1], unit(&ids(&h, "two"), SIZE as usize));
}

#[test]
fn a_vector_stays_as_it_is_if_that_is_asked_for() {
    let h = start();
    for field in ["normalize", "use_activation"] {
        let answer = h.post(PATH, &json!({"input": "Hi", field: false})).json();
        assert_eq!(vectors(&answer), [state(&ids(&h, "Hi"))], "{field}");
    }
    let (status, _, param, _) =
        refused(&h, &json!({"input": "Hi", "normalize": false, "use_activation": true}));
    assert_eq!((status, param), (400, json!("normalize")));
}

#[test]
fn fewer_values_are_for_models_that_were_trained_for_it() {
    let (status, _, param, message) =
        refused(&start(), &json!({"input": "Hi", "dimensions": SIZE}));
    assert_eq!((status, param), (400, json!("dimensions")));
    assert!(message.contains("matryoshka"), "{message}");

    let h = with(|c| {
        let path = std::path::Path::new(&c.model).join("config.json");
        let mut config: Value =
            serde_json::from_str(&std::fs::read_to_string(&path).unwrap()).unwrap();
        config["matryoshka_dimensions"] = json!([16, 32]);
        std::fs::write(path, config.to_string()).unwrap();
    });
    let cut = h.post(PATH, &json!({"input": "Hi", "dimensions": 16})).json();
    assert_eq!(vectors(&cut), [unit(&ids(&h, "Hi"), 16)], "cut, then brought to length 1");
    let whole = h.post(PATH, &json!({"input": "Hi"})).json();
    assert_eq!(vectors(&whole), [unit(&ids(&h, "Hi"), SIZE as usize)]);
    let (status, _, param, message) = refused(&h, &json!({"input": "Hi", "dimensions": 17}));
    assert_eq!((status, param), (400, json!("dimensions")));
    assert!(message.contains("[16, 32]"), "{message}");
}

#[test]
fn modules_of_sentence_transformers_are_obeyed_or_refused() {
    let modules = |kinds: &'static [&'static str]| {
        move |c: &mut FrontendConfig| {
            let of = |kind: &str| format!("sentence_transformers.models.{kind}");
            let module = |kind: &&str| json!({"path": "1_Pooling", "type": of(kind)});
            let list: Vec<Value> = kinds.iter().map(module).collect();
            let path = std::path::Path::new(&c.model).join("modules.json");
            std::fs::write(path, json!(list).to_string()).unwrap();
        }
    };
    let plain = with(modules(&["Transformer", "Pooling"]));
    assert_eq!(
        vectors(&plain.post(PATH, &json!({"input": "Hi"})).json()),
        [state(&ids(&plain, "Hi"))]
    );
    let dense = with(modules(&["Transformer", "Pooling", "Dense"]));
    let (status, _, _, message) = refused(&dense, &json!({"input": "Hi"}));
    assert_eq!(status, 400);
    assert!(message.contains("models.Dense"), "{message}");
}

#[test]
fn long_inputs_are_cut_or_refused() {
    let h = start();
    let most = MAX_MODEL_LEN as usize;
    let many: Vec<u32> = (0..most as u32 + 1).map(|i| i % 250).collect();
    let answer = h.post(PATH, &json!({"input": many[..most]})).json();
    assert_eq!(vectors(&answer), [unit(&many[..most], SIZE as usize)], "the whole context");
    let (status, code, param, message) = refused(&h, &json!({"input": many}));
    assert_eq!((status, &*code), (400, "context_length_exceeded"));
    assert_eq!(param, "input");
    assert!(message.contains("4096") && message.contains("4097"), "{message}");
    for (keep, kept) in [(-1, most), (3, 3)] {
        let body = json!({"input": many, "truncate_prompt_tokens": keep});
        let answer = h.post(PATH, &body).json();
        let expected = unit(&many[many.len() - kept..], SIZE as usize);
        assert_eq!(vectors(&answer), [expected], "the last {kept}");
        assert_eq!(answer["usage"]["prompt_tokens"], kept);
    }
    // The arena of this server holds 65,536 tokens.
    let batch = vec![many[..most].to_vec(); 17];
    let (status, _, param, message) = refused(&h, &json!({"input": batch}));
    assert_eq!((status, param), (400, json!("input")));
    assert!(message.contains("69632 tokens of 17 inputs"), "{message}");
}

#[test]
fn what_is_wrong_is_named() {
    let h = start();
    for (body, param, part) in [
        (json!({}), "input", "required"),
        (json!({"input": null}), "input", "required"),
        (json!({"input": 7}), "input", "`input`"),
        (json!({"input": []}), "input", "empty array"),
        (json!({"input": [[]]}), "input", "empty array"),
        (json!({"input": ""}), "input", "empty"),
        (json!({"input": ["a", ""]}), "input", "empty"),
        (json!({"input": ["a", 1]}), "input", "`input`"),
        (json!({"input": [1, -1]}), "input", "`input`"),
        (json!({"input": [VOCAB_SIZE]}), "input", "vocabulary size 300"),
        (json!({"input": vec!["a"; 2049]}), "input", "2048"),
        (json!({"input": vec!["a"; NUM_SLOTS as usize + 1]}), "input", "at most 32 inputs"),
        (json!({"input": "a", "encoding_format": "bytes"}), "encoding_format", "bytes"),
        (json!({"input": "a", "dimensions": 0}), "dimensions", "between 1"),
        (json!({"input": "a", "truncate_prompt_tokens": 0}), "truncate_prompt_tokens", "-1"),
        (json!({"input": "a", "priority": 3}), "priority", "classes"),
        (json!({"input": "a", "normalize": "yes"}), "normalize", "boolean"),
    ] {
        let (status, _, named, message) = refused(&h, &body);
        assert_eq!((status, named), (400, json!(param)), "{message}");
        assert!(message.contains(part), "{message}");
    }
    for (name, value) in [
        ("messages", json!([{"role": "user", "content": "Hi"}])),
        ("temperature", json!(0)),
        ("max_tokens", json!(1)),
        ("stream", json!(true)),
        ("stop", json!("x")),
        ("logprobs", json!(1)),
        ("embed_dtype", json!("float16")),
        ("endianness", json!("big")),
        ("response_format", json!({"type": "json_object"})),
        ("prompt", json!("Hi")),
        ("allowed_token_ids", json!([1])),
        ("prompt_logprobs", json!(0)),
        ("structural_tag", json!({"type": "structural_tag"})),
    ] {
        let (status, code, named, _) = refused(&h, &json!({"input": "a", name: value}));
        assert_eq!((status, &*code), (400, "unsupported_parameter"), "{name}");
        assert_eq!(named, name);
    }
    let harmless = json!({"input": "a", "n": 1, "stream": false, "embed_dtype": "float32",
                          "endianness": "little", "top_p": 1, "unknown_to_all": 3});
    let answer = h.post(PATH, &harmless);
    assert_eq!(answer.status, 200, "{}", answer.text());
    assert_eq!(h.metric("saccade:unknown_fields_total"), 1.0);
    let (status, code, ..) = refused(&h, &json!({"input": "a", "model": "other"}));
    assert_eq!((status, &*code), (404, "model_not_found"));
    assert_eq!(h.get(PATH).status, 405);
    assert_eq!(h.device.in_flight(), 0);
}

#[test]
fn a_device_that_gives_none_is_named_before_anything_is_done() {
    let h = Harness::start();
    let (status, code, _, message) = refused(&h, &json!({"input": "a"}));
    assert_eq!((status, &*code), (400, "embeddings_unsupported"));
    assert!(message.contains("--device cpu") && message.contains("--out-ring-words"), "{message}");
    assert_eq!(h.metric("vllm:prompt_tokens_total"), 0.0);
}

#[test]
fn a_full_server_answers_429_and_takes_all_inputs_or_none() {
    let h = start();
    h.device.pause();
    let inputs = |n: u32| json!({"input": vec!["a"; n as usize]});
    let held = h.post_open(PATH, &inputs(NUM_SLOTS - 2));
    // Not before: three inputs that find room would wait for the paused device.
    h.wait_until("held", |h| {
        h.metric("saccade:slots{model_name=\"tiny\",state=\"prefill_pending\"}")
            == f64::from(NUM_SLOTS - 2)
    });
    let answer = h.post(PATH, &inputs(3));
    assert_eq!(answer.status, 429, "{}", answer.text());
    assert!(answer.header("retry-after").unwrap().parse::<u32>().unwrap() >= 1);
    assert_eq!(answer.json()["error"]["code"], "server_overloaded");
    h.device.go_on();
    let answer = held.answer();
    assert_eq!(answer.status, 200, "{}", answer.text());
    assert_eq!(answer.json()["data"].as_array().unwrap().len(), NUM_SLOTS as usize - 2);
    h.wait_until("free", |h| h.post(PATH, &inputs(NUM_SLOTS)).status == 200);
}

#[test]
fn a_client_that_leaves_takes_its_inputs_with_it() {
    let device = FakeConfig { max_num_seqs: 1, ..embedding() };
    let h = Harness::with(|c| c.device_lost_after = LONG, device);
    let busy = occupied(&h);
    let waits = h.post_open(PATH, &json!({"input": ["a", "b", "c"]}));
    h.wait_until("they wait", |h| h.device.in_flight() == BUSY + 3);
    drop(waits);
    h.wait_until("they are cancelled", |h| h.metric("saccade:requests_cancelled_total") == 1.0);
    h.wait_until("and gone", |h| h.device.in_flight() <= BUSY);
    drop(busy);
    h.wait_until("nothing runs", |h| h.device.in_flight() == 0);
    assert_eq!(h.post(PATH, &json!({"input": "a"})).status, 200);
}

#[test]
fn a_device_that_dies_ends_the_request_with_a_reason() {
    let device = FakeConfig { max_num_seqs: 1, ..embedding() };
    let mut h = Harness::with(|_| (), device);
    let _busy = occupied(&h);
    let waits = h.post_open(PATH, &json!({"input": ["a", "b"]}));
    h.wait_until("they wait", |h| h.device.in_flight() == BUSY + 2);
    h.device.kill();
    let answer = waits.answer();
    assert_eq!(
        (answer.status, answer.json()["error"]["code"].as_str()),
        (503, Some("device_lost"))
    );
    assert_eq!(
        h.metric("saccade:requests_failed_total{model_name=\"tiny\",reason=\"device_lost"),
        2.0
    );
}

#[test]
fn a_request_that_takes_too_long_is_ended() {
    let change = |c: &mut FrontendConfig| {
        c.device_lost_after = LONG;
        c.request_timeout = Some(std::time::Duration::from_millis(700));
    };
    let h = Harness::with(change, embedding());
    h.device.pause();
    let (status, code, ..) = refused(&h, &json!({"input": ["a", "b"]}));
    assert_eq!((status, &*code), (504, "request_timeout"));
    h.device.go_on();
    h.wait_until("nothing runs", |h| h.device.in_flight() == 0);
}

#[test]
fn embeddings_are_counted_like_other_requests() {
    let h = start();
    let answer = h.post(PATH, &json!({"input": ["Hi", "there"]})).json();
    let finished = "vllm:request_success_total{finished_reason=\"stop\"";
    assert_eq!(h.metric(finished), 2.0);
    let tokens = answer["usage"]["prompt_tokens"].as_f64().unwrap();
    assert!(tokens > 2.0);
    assert_eq!(h.metric("vllm:prompt_tokens_total"), tokens);
    assert_eq!(h.metric("vllm:generation_tokens_total"), 0.0);
    assert_eq!(h.metric("vllm:e2e_request_latency_seconds_count"), 2.0);
    assert_eq!(h.metric("vllm:time_to_first_token_seconds_count"), 0.0);
}

#[test]
fn tenants_limits_hold() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("tenants.yaml");
    let text =
        "tenants:\n  metered:\n    keys: [metered-1]\n    max_requests: 2\n    max_tokens: 100\n";
    std::fs::write(&path, text).unwrap();
    let h = with(|c| c.tenants = Some(path));
    let post = |key: &str, body: &Value| {
        let bearer = format!("Bearer {key}");
        let headers = [("content-type", "application/json"), ("authorization", &*bearer)];
        h.request("POST", PATH, &headers, &body.to_string())
    };
    assert_eq!(post("nobody", &json!({"input": "a"})).status, 401);
    assert_eq!(post("metered-1", &json!({"input": ["a", "b"]})).status, 200);
    for body in [json!({"input": ["a", "b", "c"]}), json!({"input": "a".repeat(101)})] {
        let answer = post("metered-1", &body);
        let json = answer.json();
        assert_eq!((answer.status, &json["error"]["code"]), (400, &json!("tenant_limit_exceeded")));
    }
    assert_eq!(post("metered-1", &json!({"input": "a".repeat(100)})).status, 200);
    let used = "saccade:tenant_tokens_used_total{model_name=\"tiny\",tenant=\"metered\"";
    h.wait_until("counted", |h| h.find_metric(used) == Some(102.0));
}
