//! Tenants: whose requests may ask for what, how much at a time, and that none of them takes what
//! is another's.

#![allow(clippy::unwrap_used)]

mod common;

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use common::client::Answer;
use common::{DeviceControl, Harness};
use saccade_frontend::FrontendConfig;
use saccade_ring::testing::FakeConfig;
use serde_json::{Value, json};

/// No pause of a busy machine is a lost device.
const LONG: std::time::Duration = std::time::Duration::from_secs(60);

const TENANTS: &str = r#"
tenants:
  gold:
    keys: [gold-1, gold-2]
    priority: [-10, 0]
    slo_ttft_ms: [100, 60000]
    weight: 3
  batch:
    key_sha256: [6b23c0d5f35d1b11f9b683f0b0a617355deb11277d91ae091d399c655b87940d]
    keys: [batch-1]
    priority: [5, 100]
    slo_ttft_ms: [20000, 3600000]
    cache_salt: batch
  metered:
    keys: [metered-1]
    max_requests: 2
    max_tokens: 100
    requests_per_minute: 6
"#;

struct Files {
    folder: tempfile::TempDir,
}

impl Files {
    fn new() -> Self {
        Self { folder: tempfile::tempdir().unwrap() }
    }

    fn write(&self, name: &str, text: &str) -> std::path::PathBuf {
        let path = self.folder.path().join(name);
        std::fs::write(&path, text).unwrap();
        path
    }
}

fn with_tenants(files: &Files, device: FakeConfig) -> Harness {
    let path = files.write("tenants.yaml", TENANTS);
    let change = |c: &mut FrontendConfig| {
        c.tenants = Some(path);
        c.priority_scheduling = true;
        c.device_lost_after = LONG;
    };
    Harness::with(change, device)
}

fn post(h: &Harness, key: &str, body: &Value) -> Answer {
    let bearer = format!("Bearer {key}");
    let headers = [("content-type", "application/json"), ("authorization", &bearer)];
    h.request("POST", "/v1/completions", &headers, &body.to_string())
}

fn asking(field: &str, value: Value) -> Value {
    let mut body = json!({"prompt": "x", "max_tokens": 1});
    body[field] = value;
    body
}

/// Class, TTFT target and salt of each request that the device sees.
fn watched(device: &DeviceControl) -> Arc<Mutex<Vec<(i32, f32, u64)>>> {
    let seen = Arc::new(Mutex::new(Vec::new()));
    let shared = seen.clone();
    device.script(Box::new(move |request, _| {
        let d = &request.descriptor;
        shared.lock().unwrap().push((d.priority, d.slo_ttft_s, d.cache_salt));
        Some(97)
    }));
    seen
}

#[test]
fn requests_come_before_others_only_where_the_operator_lets_them() {
    for open in [false, true] {
        let change = |c: &mut FrontendConfig| {
            c.priority_scheduling = true;
            c.request_priority = open;
            c.device_lost_after = LONG;
        };
        let h = Harness::with(change, FakeConfig::default());
        let wanted = if open { 200 } else { 400 };
        for (field, value) in [
            ("priority", json!(-100)),
            ("priority", json!(1)),
            ("slo_ttft_ms", json!(400)),
            ("slo_tpot_ms", json!(99)),
        ] {
            let answer = post(&h, "", &asking(field, value));
            assert_eq!(answer.status, wanted, "{field}: {}", answer.text());
            if !open {
                assert_eq!(answer.json()["error"]["param"], field);
            }
        }
        for (field, value) in [
            ("priority", json!(0)),
            ("slo_ttft_ms", json!(5000)),
            ("slo_ttft_ms", json!(60_000)),
            ("slo_tpot_ms", json!(100)),
        ] {
            let answer = post(&h, "", &asking(field, value));
            assert_eq!(answer.status, 200, "{field}: {}", answer.text());
        }
    }
}

#[test]
fn a_tenants_requests_ask_for_what_its_terms_allow() {
    let files = Files::new();
    let h = with_tenants(&files, FakeConfig::default());
    let seen = watched(&h.device);
    for (key, field, value, want) in [
        ("gold-1", "priority", json!(-10), 200),
        ("gold-2", "priority", json!(-11), 400),
        ("gold-2", "priority", json!(1), 400),
        ("gold-1", "slo_ttft_ms", json!(100), 200),
        ("gold-1", "slo_ttft_ms", json!(99), 400),
        ("gold-1", "slo_tpot_ms", json!(50), 400),
        ("batch-1", "slo_ttft_ms", json!(5000), 400),
        ("metered-1", "priority", json!(1), 400),
        ("other", "priority", json!(0), 401),
    ] {
        let answer = post(&h, key, &asking(field, value));
        assert_eq!(answer.status, want, "{key} {field}: {}", answer.text());
    }
    seen.lock().unwrap().clear();
    let plain = json!({"prompt": "x", "max_tokens": 1});
    for key in ["gold-1", "batch-1"] {
        assert_eq!(post(&h, key, &plain).status, 200);
    }
    let salted = json!({"prompt": "x", "max_tokens": 1, "cache_salt": "own"});
    assert_eq!(post(&h, "batch-1", &salted).status, 200);
    let seen = seen.lock().unwrap().clone();
    let [gold, batch, own] = seen[..] else { panic!("{seen:?}") };
    assert_eq!(gold, (0, 0.0, 0));
    // Below what it may ask for: its requests are of the class nearest to 0, and not more urgent.
    assert_eq!((batch.0, batch.1), (5, 20.0));
    assert!(batch.2 != 0 && own.2 != 0 && batch.2 != own.2);
}

#[test]
fn a_tenant_is_held_to_its_limits_and_others_are_not() {
    let files = Files::new();
    let h = with_tenants(&files, FakeConfig::default());
    let refused = |body: &Value| {
        let answer = post(&h, "metered-1", body);
        let error = answer.json()["error"].clone();
        (answer.status, error["code"].clone(), error["message"].as_str().unwrap().to_owned())
    };
    let (status, code, message) = refused(&json!({"prompt": "x", "max_tokens": 1, "n": 3}));
    assert_eq!((status, code), (400, json!("tenant_limit_exceeded")), "{message}");
    assert!(message.contains("max_requests"), "{message}");
    let (status, _, message) = refused(&json!({"prompt": "x", "max_tokens": 100}));
    assert_eq!(status, 400, "{message}");
    assert!(message.contains("max_tokens"), "{message}");

    // Two in flight, and what they may produce.
    h.device.babble();
    h.device.pause();
    let long = json!({"prompt": "x", "max_tokens": 40, "ignore_eos": true});
    let bearer = [("content-type", "application/json"), ("authorization", "Bearer metered-1")];
    let open = || h.open("POST", "/v1/completions", &bearer, &long.to_string());
    let (one, two) = (open(), open());
    h.wait_until("both are in flight", |h| {
        h.find_metric("saccade:tenant_requests{model_name=\"tiny\",tenant=\"metered\"}")
            == Some(2.0)
    });
    let (status, code, message) = refused(&json!({"prompt": "x", "max_tokens": 1}));
    assert_eq!((status, code), (429, json!("tenant_limit_reached")), "{message}");
    h.device.go_on();
    assert_eq!((one.answer().status, two.answer().status), (200, 200));
    assert_eq!(post(&h, "metered-1", &json!({"prompt": "x", "max_tokens": 1})).status, 200);

    // Six a minute: those above have used some.
    let answers: Vec<_> =
        (0..6).map(|_| post(&h, "metered-1", &json!({"prompt": "x", "max_tokens": 1}))).collect();
    let late = answers.last().unwrap();
    assert_eq!(late.status, 429, "{}", late.text());
    assert!(late.text().contains("requests_per_minute"), "{}", late.text());
    let seconds: u32 = late.header("retry-after").unwrap().parse().unwrap();
    assert!((1..=11).contains(&seconds), "{seconds}");
    for _ in 0..20 {
        assert_eq!(post(&h, "gold-1", &json!({"prompt": "x", "max_tokens": 1})).status, 200);
    }
    assert!(
        h.metric("saccade:tenant_requests_refused_total{model_name=\"tiny\",tenant=\"metered\"}")
            > 3.0
    );
    assert_eq!(
        h.metric("saccade:tenant_tokens{model_name=\"tiny\",tenant=\"metered\"}"),
        0.0,
        "what was reserved has returned"
    );
}

#[test]
fn a_tenant_that_floods_leaves_others_their_share() {
    let files = Files::new();
    // Weights 3, 1 and 1 of ten seats: 6, 2 and 2.
    let h = with_tenants(&files, FakeConfig { max_num_seqs: 10, ..FakeConfig::default() });
    h.device.babble();
    let long = json!({"prompt": "x", "max_tokens": 4000, "stream": true, "ignore_eos": true});
    let bearer = [("content-type", "application/json"), ("authorization", "Bearer batch-1")];
    let mut flood = Vec::new();
    let mut refused = 0;
    for _ in 0..25 {
        let mut exchange = h.open("POST", "/v1/completions", &bearer, &long.to_string());
        match exchange.head().0 {
            200 => flood.push(exchange),
            429 => refused += 1,
            other => panic!("{other}"),
        }
    }
    // All seats while no other wants them, and no queue beyond its share.
    assert!((10..=12).contains(&flood.len()), "{} in flight", flood.len());
    assert!(refused >= 13, "{refused}");
    let bearer = [("content-type", "application/json"), ("authorization", "Bearer gold-1")];
    let served: Vec<_> = (0..6)
        .map(|_| h.open("POST", "/v1/completions", &bearer, &long.to_string()).head().0)
        .collect();
    assert_eq!(served, [200; 6], "gold has six seats' worth of requests, whatever batch does");
}

#[test]
fn files_are_read_again_when_they_change_and_kept_when_they_are_wrong() {
    let files = Files::new();
    let path = files.write("keys", "# who\n\nfirst\n");
    let change = |c: &mut FrontendConfig| {
        c.api_key_file = Some(path);
        c.device_lost_after = LONG;
    };
    let h = Harness::with(change, FakeConfig::default());
    let status = |key: &str| post(&h, key, &json!({"prompt": "x", "max_tokens": 1})).status;
    assert_eq!((status("first"), status("second"), status("")), (200, 401, 401));
    files.write("keys", "second\nthird\n");
    h.wait_until("the new key is accepted", |_| status("second") == 200);
    assert_eq!(status("first"), 401, "a key that is gone is no key");
    // An empty file would open the server.
    for wrong in ["", "# none\n", "two words\n"] {
        let before = h.find_metric(
            "saccade:reloads_total{files=\"keys\",model_name=\"tiny\",result=\"refused\"}",
        );
        files.write("keys", wrong);
        h.wait_until("it is refused", |h| {
            h.find_metric(
                "saccade:reloads_total{files=\"keys\",model_name=\"tiny\",result=\"refused\"}",
            ) > before
        });
        assert_eq!((status("second"), status("")), (200, 401), "{wrong:?}");
    }
}

#[test]
fn a_wrong_file_is_refused_by_name_at_the_start() {
    let files = Files::new();
    let model = tempfile::tempdir().unwrap();
    common::write_model(model.path());
    let fails = |text: &str, words: &[&str]| {
        let path = files.write("tenants.yaml", text);
        let config = FrontendConfig {
            model: model.path().display().to_string(),
            tenants: Some(path),
            ..FrontendConfig::default()
        };
        let limits = saccade_ring::RegionLimits { num_slots: 32, ..Default::default() };
        let transport = saccade_ring::InProcTransport::create(&limits).unwrap();
        let Err(error) = saccade_frontend::Frontend::start_on(config, transport) else {
            panic!("taken: {text}");
        };
        let error = error.to_string();
        for word in words {
            assert!(error.contains(word), "{text}: {error}");
        }
        assert!(!error.contains("s3cret"), "{error}");
    };
    fails("tenants: {}", &["tenants.yaml", "1 to 1000"]);
    fails("tenants: {a: {}}", &["tenant `a`", "no key"]);
    fails("tenants: {a: {keys: ['s3cret x']}}", &["tenant `a`", "visible ASCII"]);
    fails("tenants: {a: {key_sha256: [abc]}}", &["tenant `a`", "key_sha256"]);
    fails("tenants: {a: {keys: [s3cret], weight: 0}}", &["weight", "1 and 1000"]);
    fails("tenants: {a: {keys: [s3cret], priority: [1, -1]}}", &["priority", "-100 and 100"]);
    fails("tenants: {a: {keys: [s3cret], max_tokens: 0}}", &["max_tokens", "at least 1"]);
    fails("tenants: {a: {keys: [s3cret], max_token: 1}}", &["tenants.yaml", "max_token"]);
    fails("tenants: {a: {keys: [s3cret]}, b: {keys: [s3cret]}}", &["`a` and `b`", "in common"]);
    fails("tenants: {'a b': {keys: [s3cret]}}", &["a b", "letters"]);
}

/// A thread's time is all that can be seen of it. Most grammars take less than this.
const LEAST_SPARE_NS: u64 = 5_000_000;

/// Such a grammar takes ten times as much, and is refused for it.
fn bomb(turn: usize) -> Value {
    asking("guided_regex", json!(format!("{turn}(.*a.{{40}})+")))
}

/// Nanoseconds that the threads for spare time have run.
fn spare_time_ns() -> u64 {
    let tasks = std::fs::read_dir("/proc/self/task").unwrap();
    let read =
        |task: &std::fs::DirEntry, name| std::fs::read_to_string(task.path().join(name)).ok();
    let ran = |task: std::fs::DirEntry| {
        let named = read(&task, "comm").is_some_and(|name| name.trim() == "spare-time-0");
        let stat = read(&task, "schedstat").filter(|_| named)?;
        stat.split_ascii_whitespace().next()?.parse::<u64>().ok()
    };
    tasks.filter_map(|task| ran(task.ok()?)).sum()
}

/// For a test that looks at these threads: others wait, and those of the test before have ended.
fn watch_spare_time() -> MutexGuard<'static, ()> {
    static ONE_TEST: Mutex<()> = Mutex::new(());
    let watched = ONE_TEST.lock().unwrap_or_else(PoisonError::into_inner);
    for _ in 0..6_000 {
        if spare_time_ns() < LEAST_SPARE_NS {
            return watched;
        }
        std::thread::sleep(std::time::Duration::from_millis(10));
    }
    panic!("a thread for spare time did not end");
}

#[test]
fn a_tenant_whose_grammars_take_long_has_them_compiled_in_spare_time() {
    let _watched = watch_spare_time();
    let files = Files::new();
    let h = with_tenants(&files, common::takes_grammars());
    let seconds = |tenant: &str| {
        h.metric(&format!(
            "saccade:tenant_grammar_seconds_total{{model_name=\"tiny\",tenant=\"{tenant}\"}}"
        ))
    };
    let budget = saccade_frontend::limits::GRAMMAR_US_PER_MINUTE as f64 / 1e6;
    // Time flows in while they compile: what was taken may be beyond the budget a while before the
    // tenant is.
    let mut turn = 0;
    while spare_time_ns() < LEAST_SPARE_NS {
        let taken = seconds("batch");
        assert!(turn < 1_000, "{taken}");
        assert_eq!(post(&h, "batch-1", &bomb(turn)).status, 400);
        assert!(
            spare_time_ns() < LEAST_SPARE_NS || taken > budget,
            "{taken} after {turn} grammars"
        );
        turn += 1;
    }
    let before_ns = spare_time_ns();
    assert_eq!(post(&h, "gold-1", &asking("guided_regex", json!("[a-z]"))).status, 200);
    assert!(seconds("gold") > 0.0 && seconds("gold") < budget);
    assert!(spare_time_ns() < before_ns + LEAST_SPARE_NS, "another tenant's grammar");
}

#[test]
fn more_steps_than_a_grammar_has_by_default_are_taken_in_spare_time() {
    let _watched = watch_spare_time();
    let default = saccade_frontend::limits::GRAMMAR_STEPS;
    for (steps, in_spare_time) in [(default, false), (2 * default, true)] {
        let change = |c: &mut FrontendConfig| {
            c.max_grammar_steps = steps;
            c.device_lost_after = LONG;
        };
        let h = Harness::with(change, common::takes_grammars());
        assert_eq!(post(&h, "", &asking("guided_regex", json!("[a-z]"))).status, 200);
        assert!(spare_time_ns() < LEAST_SPARE_NS, "for a small grammar");
        let answer = post(&h, "", &bomb(0));
        let bound = format!("must be at most {steps} (--max-grammar-steps)");
        assert!(answer.status == 400 && answer.text().contains(&bound), "{}", answer.text());
        assert_eq!(spare_time_ns() > LEAST_SPARE_NS, in_spare_time, "{steps} steps");
    }
}
