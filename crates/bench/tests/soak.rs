//! `bench soak` against a scripted server: what goes wrong is found, what may happen is told from
//! it, and a server without faults is clean.
#![allow(clippy::unwrap_used)] // in helpers of tests

mod common;

use common::{Folder, free_port, json, mock, mock_command, text, tool};
use serde_json::Value;

/// The server process of other tests.
#[test]
#[ignore = "part of other tests"]
fn a_server_by_itself() {
    common::serve_by_environment();
}

const SMALL: [&str; 14] = [
    "--duration",
    "4",
    "--victim-streams",
    "3",
    "--questions",
    "4",
    "--attack-time",
    "1",
    "--rest",
    "0.2",
    "--sample-every",
    "0.5",
    "--timeout",
    "60",
];

/// Exit status, record, and what was printed.
fn soak(name: &str, words: &[&str]) -> (i32, Value, String) {
    let folder = Folder::new(name);
    let (json_file, html) = (folder.path("s.json"), folder.path("s.html"));
    let logs = folder.0.display().to_string();
    let mut all = vec!["soak"];
    all.extend(SMALL);
    all.extend(words);
    all.extend(["--json", &json_file, "--html", &html, "--log-dir", &logs]);
    let output = tool(&all).output().unwrap();
    let told = text(&output);
    let page = std::fs::read_to_string(&html).unwrap_or_else(|_| panic!("a page\n{told}"));
    assert!(page.contains("<svg"), "{told}");
    let out = folder.path("again.html");
    let again = tool(&["page", &json_file, "--out", &out]).output().unwrap();
    assert!(again.status.success(), "{}", text(&again));
    assert_eq!(std::fs::read_to_string(out).unwrap(), page, "the record has all of the page");
    (output.status.code().unwrap(), json(&json_file), told)
}

fn ends(record: &Value, end: &str) -> u64 {
    record["ends"][end].as_u64().unwrap_or(0)
}

/// The learning of the answers comes before any fault.
fn scripted(faults: &str) -> String {
    format!(
        r#"{{"ttft": "constant:1ms", "itl": "constant:1ms",
            "failures": {{"from_request": 24, {faults}}}}}"#
    )
}

#[test]
fn a_server_without_faults_is_clean_beside_attackers() {
    let server = mock(r#"{"ttft": "constant:1ms", "itl": "constant:1ms"}"#);
    let url = format!("s=http://{}", server.address());
    let attacks =
        ["--server", &url, "--attacks", "crowd,aborts,half-heads,malformed", "--attack-set"];
    let set = "crowd.clients=2,crowd.prompt=8,crowd.output=8,half-heads.clients=8";
    let (code, record, told) = soak("clean", &[&attacks[..], &[set]].concat());
    assert_eq!(code, 0, "{told}");
    assert_eq!(record["schema"], "saccade.bench-soak.v1");
    assert!(ends(&record, "right") > 0, "{told}");
    assert_eq!(record["ends"].as_object().unwrap().len(), 1, "nothing but right answers: {told}");
    assert!(!record["bouts"].as_array().unwrap().is_empty(), "{told}");
    assert!(record["samples"].as_array().unwrap().len() >= 4, "{told}");
    assert!(record["at_rest_after"]["planes"]["server"]["descriptors"].is_u64(), "{told}");
    assert!(told.contains("No wrong, lost or doubled token"), "{told}");
}

#[test]
fn a_token_that_is_said_twice_is_found() {
    let mut script: Value = serde_json::from_str(&scripted(r#""cut": 0"#)).unwrap();
    script["weaknesses"] = serde_json::json!({"doubled_token": 0.2});
    let server = mock(&script.to_string());
    let url = format!("s=http://{}", server.address());
    let (code, record, told) = soak("doubled", &["--server", &url]);
    assert_eq!(code, 1, "{told}");
    assert!(ends(&record, "wrong") > 0 && ends(&record, "right") > 0, "{told}");
    let fault = &record["faults"][0];
    assert_eq!(fault["end"], "wrong", "{fault}");
    assert!(told.contains("ended as none may"), "{told}");
}

#[test]
fn streams_that_break_for_no_reason_are_told_from_explicit_errors() {
    let server = mock(&scripted(r#""cut": 0.1, "error_event": 0.1, "http_500": 0.1"#));
    let url = format!("s=http://{}", server.address());
    let (code, record, told) = soak("broken", &["--server", &url]);
    assert_eq!(code, 1, "{told}");
    for end in ["right", "unexplained", "error_event", "refused"] {
        assert!(ends(&record, end) > 0, "{end}\n{told}");
    }
    assert_eq!(ends(&record, "wrong"), 0, "{told}");
    let faults = record["faults"].as_array().unwrap();
    assert!(faults.iter().all(|fault| fault["end"] == "unexplained"), "{told}");
}

/// A loop of the shell that starts the server again: what breaks when it is killed may break.
#[test]
fn signals_explain_what_breaks() {
    let port = free_port();
    let command = mock_command(port, r#"{"ttft": "constant:1ms", "itl": "constant:2ms"}"#)
        .replace("exec ", "")
        .replace("--exact a_server_by_itself", "a_server_by_itself --exact");
    let url = format!("s=http://127.0.0.1:{port}");
    let start = format!("s=while :; do {command}; done");
    let kill = ["--kill", "a_server_by_itself", "--kill-every", "0.7", "--signals", "kill,stop"];
    let words = [&["--server", &url, "--start", &start, "--stop-for", "0.2"][..], &kill].concat();
    let (code, record, told) = soak("killed", &words);
    assert_eq!(code, 0, "{told}");
    let kills = record["kills"].as_array().unwrap();
    assert!(kills.len() >= 2 && kills.iter().any(|kill| kill["signal"] == "SIGKILL"), "{told}");
    assert!(kills.iter().any(|kill| kill["listened"] == true), "{told}");
    assert!(ends(&record, "right") > 0, "{told}");
    assert!(ends(&record, "not_connected") + ends(&record, "broken_by_kill") > 0, "{told}");
}

#[test]
fn mistakes_are_named() {
    let url = "s=http://127.0.0.1:1";
    for (words, named) in [
        (vec!["--server", url, "--kill", "device"], "--start"),
        (vec!["--server", url, "--server", "t=http://127.0.0.1:2"], "one server"),
        (vec!["--server", url, "--duration", "0"], "--duration"),
        (vec!["--server", url, "--attacks", "none"], "\"none\" is none of all"),
        (vec!["--server", url, "--signals", "hup"], "--signals"),
    ] {
        let words: Vec<&str> = ["soak"].into_iter().chain(words).collect();
        let output = tool(&words).output().unwrap();
        let told = text(&output);
        assert!(output.status.code() == Some(2) && told.contains(named), "{words:?}: {told}");
    }
}
