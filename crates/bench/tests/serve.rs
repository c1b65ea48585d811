//! `bench serve` against a scripted server: its JSON is what the schema in the tree says, its page
//! and tables hold what was measured, and its exit codes tell.

mod common;

use std::sync::atomic::{AtomicU32, Ordering};

use common::{Folder, json, mock, text, tool};
use serde_json::Value;

const SCHEMA: &str = include_str!("../../../bench/schema/bench-serve.v1.schema.json");
const SMALL: [&str; 4] = ["--random-input-len", "8", "--random-output-len", "4"];

fn assert_valid(results: &Value) {
    let schema: Value = serde_json::from_str(SCHEMA).expect("the schema is JSON");
    let validator = jsonschema::validator_for(&schema).expect("the schema is a schema");
    let errors: Vec<String> = validator
        .iter_errors(results)
        .map(|error| format!("{}: {error}", error.instance_path()))
        .collect();
    assert!(errors.is_empty(), "{}", errors.join("\n"));
}

/// Runs the tool with these words and a small load; its results, and what it printed.
fn serve(script: &str, words: &[&str]) -> (Value, String) {
    static RUNS: AtomicU32 = AtomicU32::new(0);
    let name = format!("serve-{}", RUNS.fetch_add(1, Ordering::Relaxed));
    let (folder, server) = (Folder::new(&name), mock(script));
    let (url, file) = (format!("http://{}", server.address()), folder.path("results.json"));
    let common = ["serve", "--base-url", &url, "--json", &file];
    let words: Vec<&str> = common.iter().chain(&SMALL).chain(words).copied().collect();
    let output = tool(&words).output().expect("the tool starts");
    assert!(output.status.success(), "{}", text(&output));
    (json(file), text(&output))
}

const QUICK: &str = r#"{"ttft": "constant:5ms", "itl": "constant:1ms"}"#;

#[test]
fn results_follow_their_schema() {
    let cases: [&[&str]; 4] = [
        &["--request-rate", "100", "--num-prompts", "20", "--save-detailed"],
        &["--max-concurrency", "2", "--num-prompts", "6", "--vocab", "100", "--api", "completions"],
        &["--rates", "20,40", "--duration", "0.5", "--repeat", "2", "--burstiness", "0.5"],
        &[
            "--request-rate",
            "50",
            "--num-prompts",
            "5",
            "--evenly",
            "--random-distribution",
            "lognormal",
            "--random-input-std",
            "3",
            "--random-prefix-len",
            "4",
            "--goodput",
            "ttft:1000",
            "tpot:100",
            "e2e:2000",
        ],
    ];
    for words in cases {
        let (results, _) = serve(QUICK, words);
        assert_valid(&results);
    }
    // A schema that takes anything would prove nothing.
    let (mut results, _) = serve(QUICK, &["--request-rate", "100", "--num-prompts", "3"]);
    results["runs"][0]["summary"]["ok"] = Value::from("three");
    let schema: Value = serde_json::from_str(SCHEMA).expect("the schema is JSON");
    assert!(!jsonschema::is_valid(&schema, &results));
}

#[test]
fn failed_requests_follow_the_schema_too() {
    let script = r#"{"ttft": "constant:2ms", "itl": "constant:1ms", "seed": 3,
        "failures": {"http_500": 0.2, "cut": 0.2, "error_event": 0.2}}"#;
    let words = ["--max-concurrency", "16", "--num-prompts", "60"];
    let server = mock(script);
    let (folder, url) = (Folder::new("serve-failures"), format!("http://{}", server.address()));
    let file = folder.path("results.json");
    let common = ["serve", "--base-url", &url, "--json", &file, "--save-detailed"];
    let words: Vec<&str> = common.iter().chain(&SMALL).chain(&words).copied().collect();
    // The request that a run begins with may be one that fails: then there is no run.
    let tried = (0..50).any(|_| tool(&words).output().is_ok_and(|output| output.status.success()));
    assert!(tried, "no run in fifty tries");
    let results = json(file);
    assert_valid(&results);
    let failures = results["runs"][0]["summary"]["failures"].as_object().map_or(0, |f| f.len());
    assert!(failures >= 2, "{}", results["runs"][0]["summary"]);
}

#[test]
fn a_ladder_finds_where_a_server_saturates() {
    // One seat held for 50 ms: 20 requests a second and no more.
    let script = r#"{"ttft": "constant:50ms", "itl": "constant:1us",
        "capacity": {"running": 1, "waiting": 4096}}"#;
    let words = ["--rates", "5,10,40,80", "--duration", "2", "--evenly", "--warmup", "0.5"];
    let (results, printed) = serve(script, &words);
    let analysis = &results["analysis"];
    let knee = analysis["saturation"]["rate_rps"].as_f64().expect("saturated");
    assert!((8.0..35.0).contains(&knee), "{analysis}");
    let serviceable = analysis["serviceable_rps"].as_f64().expect("some rate is served");
    assert!(serviceable <= 10.0, "{analysis}");
    assert_eq!(analysis["levels"].as_array().map(Vec::len), Some(4));
    assert!(printed.contains("saturation") && printed.contains("serviceable"), "{printed}");
}

#[test]
fn a_page_is_written_and_needs_no_network() {
    let (folder, server) = (Folder::new("serve-page"), mock(QUICK));
    let (url, page) = (format!("http://{}", server.address()), folder.path("page.html"));
    let words = ["serve", "--base-url", &url, "--rates", "20,40", "--duration", "0.5"];
    let words: Vec<&str> = words.iter().chain(&SMALL).chain(&["--html", &page]).copied().collect();
    let output = tool(&words).output().expect("the tool starts");
    assert!(output.status.success(), "{}", text(&output));
    let html = std::fs::read_to_string(page).expect("a page");
    assert!(html.matches("<svg").count() >= 5, "plots are drawn");
    assert!(!html.contains("src=\"http") && !html.contains("href=\"http"));
}

#[test]
fn mistakes_are_named_before_a_request_is_sent() {
    let cases: [(&[&str], &str); 8] = [
        (&["--goodput", "ttfb:3"], "ttfb"),
        (&["--request-rate", "0"], "rate"),
        (&["--random-range-ratio", "1.5"], "--random-range-ratio"),
        (&["--dataset-name", "sharegpt"], "--dataset-path"),
        (&["--duration", "3"], "--request-rate"),
        (&["--extra-body", "[1]"], "--extra-body"),
        (&["--client-priority", "fifo:100"], "1..=99"),
        (&["--base-url", "localhost:8000"], "http://"),
    ];
    for (words, named) in cases {
        let words: Vec<&str> = ["serve"].iter().chain(words).copied().collect();
        let output = tool(&words).output().expect("the tool starts");
        assert_eq!(output.status.code(), Some(2), "{words:?}: {}", text(&output));
        assert!(text(&output).contains(named), "{words:?}: {}", text(&output));
    }
}
