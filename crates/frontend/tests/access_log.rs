//! The access log: what its lines say, of whom, and where they go when the file is moved away.

#![allow(clippy::unwrap_used)]

mod common;

use std::path::Path;

use common::Harness;
use saccade_frontend::AccessLogConfig;
use serde_json::{Value, json};

fn lines(path: &Path) -> Vec<Value> {
    let text = std::fs::read_to_string(path).unwrap_or_default();
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

fn of<'a>(all: &'a [Value], request_id: &str) -> Option<&'a Value> {
    all.iter().find(|line| line["request_id"] == request_id)
}

#[test]
fn each_request_has_a_line_when_its_answer_has_ended() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("access.log");
    let config = AccessLogConfig { path: path.clone(), sample_rate: 1.0 };
    let h = Harness::with(
        |c| {
            c.access_log = Some(config);
            c.device_lost_after = std::time::Duration::from_secs(60);
            c.api_keys = vec!["s3cret".into()];
        },
        Default::default(),
    );
    h.device.say("Hello there.");
    let open = |id: &str, key: &str, body: &Value| {
        let bearer = format!("Bearer {key}");
        let headers = [
            ("content-type", "application/json"),
            ("authorization", &*bearer),
            ("x-request-id", id),
        ];
        h.open("POST", "/v1/completions?secret=1", &headers, &body.to_string())
    };
    let body = json!({"prompt": "abc", "max_tokens": 5});
    assert_eq!(open("whole", "s3cret", &body).answer().status, 200);
    let streamed = json!({"prompt": "abc", "max_tokens": 7, "stream": true});
    assert!(open("streamed", "s3cret", &streamed).answer().chunks().1);
    assert_eq!(open("unknown", "other", &body).answer().status, 401);
    h.device.babble();
    let long = json!({"prompt": "abc", "max_tokens": 4000, "stream": true});
    let mut aborted = open("aborted", "s3cret", &long);
    aborted.head();
    assert!(aborted.chunk().is_some());
    assert!(of(&lines(&path), "aborted").is_none(), "it has not ended");
    drop(aborted);
    // One that goes away before its answer has begun.
    h.device.pause();
    let whole = json!({"prompt": "abc", "max_tokens": 4000});
    let early = open("early", "s3cret", &whole);
    h.wait_until("it has come", |h| {
        h.metric("saccade:tenant_requests{model_name=\"tiny\",tenant=\"default\"}") >= 1.0
    });
    drop(early);
    h.wait_until("its line", |_| of(&lines(&path), "early").is_some());
    h.device.go_on();
    h.wait_until("all lines", |_| of(&lines(&path), "aborted").is_some());

    let all = lines(&path);
    for (id, status, complete, prompt, produced) in [
        ("whole", 200, true, 3, Some(5)),
        ("streamed", 200, true, 3, Some(7)),
        ("unknown", 401, true, 0, Some(0)),
        ("aborted", 200, false, 3, None),
        ("early", 499, false, 3, None),
    ] {
        let line = of(&all, id).unwrap_or_else(|| panic!("no line of {id}"));
        assert_eq!(
            (line["method"].as_str(), &line["path"]),
            (Some("POST"), &json!("/v1/completions"))
        );
        assert_eq!(
            (&line["status"], &line["complete"]),
            (&json!(status), &json!(complete)),
            "{id}"
        );
        assert_eq!(line["prompt_tokens"], prompt, "{id}");
        assert_eq!(line["tenant"], if status == 200 { json!("default") } else { Value::Null });
        assert!(produced.is_none_or(|n| line["completion_tokens"] == n), "{line}");
        assert_eq!(line["body_bytes"].as_u64().unwrap() > 0, status != 499, "{line}");
        assert!(line["duration_s"].as_f64().unwrap() > 0.0, "{line}");
        assert!(line["time_unix_s"].as_f64().unwrap() > 1.6e9, "{line}");
    }
    let text = std::fs::read_to_string(&path).unwrap();
    assert!(!text.contains("s3cret") && !text.contains("secret=1"), "neither keys nor queries");

    // As logrotate moves it.
    let old = folder.path().join("access.log.1");
    std::fs::rename(&path, &old).unwrap();
    h.wait_until("the file is recreated", |h| {
        h.get("/health");
        lines(&path).iter().any(|line| line["path"] == "/health")
    });
    assert_eq!(h.metric("saccade:access_log_dropped_total"), 0.0);
}

#[test]
fn a_share_of_the_good_answers_and_all_errors_have_lines() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("access.log");
    let config = AccessLogConfig { path: path.clone(), sample_rate: 0.1 };
    let h = Harness::with(|c| c.access_log = Some(config), Default::default());
    let before = lines(&path).len();
    for _ in 0..30 {
        assert_eq!(h.get("/version").status, 200);
    }
    for _ in 0..5 {
        assert_eq!(h.get("/nothing").status, 404);
    }
    let count = |path: &Path, of: &str| lines(path).iter().filter(|l| l["path"] == of).count();
    h.wait_until("errors have lines", |_| count(&path, "/nothing") == 5);
    assert!((2..=4).contains(&count(&path, "/version")), "{before}: {:?}", lines(&path));
}

#[test]
fn what_cannot_be_written_is_refused_at_the_start() {
    let model = tempfile::tempdir().unwrap();
    common::write_model(model.path());
    for (path, sample_rate, word) in [
        ("/none/access.log", 1.0, "/none/access.log"),
        ("-", 0.0, "access_log_sample_rate"),
        ("-", 1.5, "1.5"),
    ] {
        let limits = saccade_ring::RegionLimits { num_slots: 32, ..Default::default() };
        let transport = saccade_ring::InProcTransport::create(&limits).unwrap();
        let config = saccade_frontend::FrontendConfig {
            model: model.path().display().to_string(),
            access_log: Some(AccessLogConfig { path: path.into(), sample_rate }),
            ..Default::default()
        };
        let Err(error) = saccade_frontend::Frontend::start_on(config, transport) else {
            panic!("taken: {path} {sample_rate}");
        };
        assert!(error.to_string().contains(word), "{error}");
    }
}
