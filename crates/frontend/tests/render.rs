//! Prompts that are rendered and not sent: the same ids as those of the real endpoints, and the
//! same refusals.

#![allow(clippy::unwrap_used)]

mod common;

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use common::{EOS, Harness, NUM_SLOTS};
use serde_json::{Value, json};

const CHAT: &str = "/v1/chat/completions";
const COMPLETIONS: &str = "/v1/completions";

fn rendered(h: &Harness, path: &str, body: &Value) -> Value {
    let answer = h.post(&format!("{path}/render"), body);
    assert_eq!(answer.status, 200, "{}", answer.text());
    answer.json()
}

fn with(mut body: Value, extra: Value) -> Value {
    body.as_object_mut().unwrap().extend(extra.as_object().unwrap().clone());
    body
}

fn messages() -> Value {
    json!([{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Héllo"}])
}

/// What the real endpoint says that it was given.
fn really(h: &Harness, path: &str, body: &Value) -> Value {
    let asked = json!({"return_token_ids": true, "max_tokens": 1});
    h.post(path, &with(body.clone(), asked)).json()
}

#[test]
fn a_conversation_is_the_prompt_that_the_device_would_get() {
    let h = Harness::start();
    let body = json!({"messages": messages()});
    let json = rendered(&h, CHAT, &body);
    assert_eq!(json["token_ids"], really(&h, CHAT, &body)["prompt_token_ids"]);
    assert_eq!(json["token_ids"], h.post("/tokenize", &body).json()["tokens"]);
    let text = h.post("/detokenize", &json!({"tokens": json["token_ids"]})).json();
    assert_eq!(json["prompt"], text["prompt"]);
    assert!(json["prompt"].as_str().unwrap().contains("Héllo<|im_end|>"));
    assert_eq!((&json["model"], &json["features"]), (&json!("tiny"), &Value::Null));
    let named = rendered(&h, CHAT, &with(body.clone(), json!({"request_id": "mine"})));
    assert_eq!(named["request_id"], "chatcmpl-mine");
    // What is cut off is in neither.
    let cut = rendered(&h, CHAT, &with(body, json!({"truncate_prompt_tokens": 5})));
    let last =
        &json["token_ids"].as_array().unwrap()[json["token_ids"].as_array().unwrap().len() - 5..];
    assert_eq!(cut["token_ids"], json!(last));
    assert!(json["prompt"].as_str().unwrap().ends_with(cut["prompt"].as_str().unwrap()));
}

#[test]
fn each_prompt_of_a_completion_is_rendered() {
    let h = Harness::start();
    for prompt in
        [json!("the end"), json!(["the end", "é"]), json!([1, 2, 268]), json!([[1, 2], [3]])]
    {
        let body = json!({"prompt": prompt, "request_id": "mine"});
        let json = rendered(&h, COMPLETIONS, &body);
        let choices = really(&h, COMPLETIONS, &body);
        let choices = choices["choices"].as_array().unwrap();
        let parts = json.as_array().unwrap();
        assert_eq!(parts.len(), choices.len());
        for (index, part) in parts.iter().enumerate() {
            let choice = choices.iter().find(|choice| choice["index"] == index).unwrap();
            assert_eq!(part["token_ids"], choice["prompt_token_ids"], "{prompt}");
            let text = h.post("/detokenize", &json!({"tokens": part["token_ids"]})).json();
            assert_eq!(part["prompt"], text["prompt"]);
            assert_eq!(part["request_id"], format!("cmpl-mine-{index}"));
        }
    }
}

#[test]
fn sampling_parameters_are_those_that_hold() {
    let h = Harness::start();
    let of = |extra| {
        let body = with(json!({"messages": messages()}), extra);
        rendered(&h, CHAT, &body)
    };
    let json = of(json!({}));
    let params = &json["sampling_params"];
    // The first two are of the model's generation config.
    assert_eq!((&params["temperature"], &params["top_k"]), (&json!(0.5), &json!(20)));
    assert_eq!((&params["top_p"], &params["n"]), (&json!(1.0), &json!(1)));
    let ids = json["token_ids"].as_array().unwrap().len();
    assert_eq!(params["max_tokens"], 4096 - ids);
    assert_eq!((&json["stream"], &json["stream_options"]), (&json!(false), &Value::Null));
    let json = of(json!({"max_tokens": 7, "temperature": 0, "seed": -3, "n": 2, "stop": ["x"],
        "logprobs": true, "top_logprobs": 2, "logit_bias": {"5": -1.5}, "stop_token_ids": [9],
        "stream": true, "stream_options": {"include_usage": true}}));
    let expected = json!({"max_tokens": 7, "temperature": 0.0, "seed": -3, "n": 2, "stop": ["x"],
        "logprobs": 2, "prompt_logprobs": null, "logit_bias": {"5": -1.5}, "stop_token_ids": [9]});
    for (name, value) in expected.as_object().unwrap() {
        assert_eq!(&json["sampling_params"][name], value, "{name}");
    }
    assert_eq!(json["stream"], true);
    assert_eq!(json["stream_options"]["include_usage"], true);
    let echo = json!({"prompt": "a", "echo": true, "logprobs": 3, "max_tokens": 0});
    let params = &rendered(&h, COMPLETIONS, &echo)[0]["sampling_params"];
    assert_eq!((&params["prompt_logprobs"], &params["max_tokens"]), (&json!(3), &json!(0)));
    let asked = json!({"prompt": "a", "echo": true, "logprobs": 3, "prompt_logprobs": 1});
    let params = &rendered(&h, COMPLETIONS, &asked)[0]["sampling_params"];
    assert_eq!((&params["prompt_logprobs"], &params["logprobs"]), (&json!(1), &json!(3)));
}

#[test]
fn what_the_real_endpoint_refuses_is_refused_with_the_same_words() {
    let h = Harness::start();
    let long = "a".repeat(5000);
    for (path, body) in [
        (CHAT, json!({})),
        (CHAT, json!({"messages": []})),
        (CHAT, json!({"messages": messages(), "model": "other"})),
        (CHAT, json!({"messages": messages(), "top_p": 2})),
        (CHAT, json!({"messages": messages(), "max_tokens": 5000})),
        (CHAT, json!({"messages": messages(), "n": NUM_SLOTS + 1})),
        (CHAT, json!({"messages": messages(), "tools": [{"type": "function"}]})),
        (CHAT, json!({"messages": messages(), "response_format": {"type": "xml"}})),
        (CHAT, json!({"messages": messages(), "response_format": {"type": "json_object"}})),
        (CHAT, json!({"messages": [{"role": "user", "content": long}]})),
        (COMPLETIONS, json!({"prompt": ""})),
        (COMPLETIONS, json!({"prompt": long})),
        (COMPLETIONS, json!({"prompt": [999]})),
        (COMPLETIONS, json!({"prompt": "a", "suffix": "b"})),
        (COMPLETIONS, json!({"prompt": vec![3; 3000], "n": 30})),
    ] {
        let real = h.post(path, &body);
        let answer = h.post(&format!("{path}/render"), &body);
        assert!(real.status >= 400, "{body}");
        assert_eq!((answer.status, answer.json()), (real.status, real.json()), "{body}");
    }
    assert_eq!(h.get("/v1/completions/render").status, 405);
    let keyed = Harness::with(|config| config.api_keys = vec!["secret".into()], Default::default());
    assert_eq!(keyed.post("/v1/completions/render", &json!({"prompt": "a"})).status, 401);
}

#[test]
fn nothing_reaches_the_device_and_a_full_one_is_no_hindrance() {
    let h = Harness::start();
    let seen = Arc::new(AtomicUsize::new(0));
    let counted = seen.clone();
    h.device.script(Box::new(move |_, _| {
        counted.fetch_add(1, Ordering::Relaxed);
        Some(EOS)
    }));
    let body = json!({"prompt": ["a", "b"], "stop_token_ids": [EOS], "max_tokens": 1});
    rendered(&h, COMPLETIONS, &body);
    rendered(&h, CHAT, &json!({"messages": messages(), "stream": true}));
    h.post(COMPLETIONS, &body).json();
    assert_eq!(seen.load(Ordering::Relaxed), 2, "tokens of the one request that was sent");
    h.device.babble();
    let all = json!({"prompt": "a", "n": NUM_SLOTS, "max_tokens": 4000, "stream": true});
    let _held = h.post_open(COMPLETIONS, &all);
    h.wait_until("full", |h| h.device.in_flight() == NUM_SLOTS as usize);
    assert_eq!(h.post(COMPLETIONS, &body).status, 429);
    rendered(&h, COMPLETIONS, &body);
}

/// Such answers are written in pieces.
#[test]
fn a_large_prompt_comes_whole() {
    let h = Harness::start();
    let text = "<|im_end|>é".repeat(1300);
    let json = rendered(&h, COMPLETIONS, &json!({"prompt": [text, text]}));
    for part in json.as_array().unwrap() {
        assert_eq!(part["prompt"], text);
        assert_eq!(
            part["token_ids"],
            h.post("/tokenize", &json!({"prompt": text})).json()["tokens"]
        );
    }
    let chat = rendered(&h, CHAT, &json!({"messages": [{"role": "user", "content": text}]}));
    assert!(chat["prompt"].as_str().unwrap().contains(&text));
}
