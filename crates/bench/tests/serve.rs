//! `bench serve` against a scripted server: its JSON is what the schema in the tree says, its page
//! and tables hold what was measured, and its exit codes tell.

mod common;

use std::sync::atomic::{AtomicU32, Ordering};

use common::{Folder, json, mock, text, tool};
use serde_json::Value;

const SCHEMA: &str = include_str!("../../../bench/schema/bench-serve.v2.schema.json");
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
    // A busy machine may serve less, but never more than the script allows.
    let knee = analysis["saturation"]["rate_rps"].as_f64().expect("saturated");
    assert!(knee < 40.0, "{analysis}");
    assert!(analysis["serviceable_rps"].as_f64().is_none_or(|rate| rate <= 10.0), "{analysis}");
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

/// Runs the tool; its exit code and what it printed.
fn run(words: &[&str]) -> (Option<i32>, String) {
    let words: Vec<&str> = ["serve"].iter().chain(words).copied().collect();
    let output = tool(&words).output().expect("the tool starts");
    (output.status.code(), text(&output))
}

#[test]
fn failures_are_counted_by_kind_with_their_words() {
    let script = r#"{"ttft": "constant:1ms", "itl": "constant:1ms",
        "failures": {"error_event": 1.0}}"#;
    let server = mock(script);
    let url = format!("http://{}", server.address());
    let (code, told) = run(&["--base-url", &url, "--num-prompts", "3"]);
    assert_eq!(code, Some(1), "none was answered: {told}");
    assert!(told.contains("3 error_event: the script ends"), "{told}");

    let script = r#"{"ttft": "constant:1ms", "itl": "constant:1ms",
        "capacity": {"running": 1, "waiting": 0}}"#;
    let server = mock(script);
    let url = format!("http://{}", server.address());
    let load = ["--max-concurrency", "8", "--num-prompts", "40", "--random-output-len", "20"];
    let (code, told) = run(&[&["--base-url", &url][..], &load].concat());
    assert_eq!(code, Some(0), "{told}");
    let failed = told.lines().position(|line| line.starts_with("failed")).expect("a line");
    let reason = told.lines().nth(failed + 1).expect("its reason");
    assert!(reason.contains(" http_") && reason.contains(": "), "{told}");
    assert!(told.lines().all(|line| line.chars().count() <= 120), "{told}");
}

#[test]
fn too_many_failures_stop_the_run_and_are_an_error() {
    let script = r#"{"ttft": "constant:1ms", "itl": "constant:1ms",
        "capacity": {"running": 1, "waiting": 0}}"#;
    let server = mock(script);
    let (folder, url) = (Folder::new("max-failed"), format!("http://{}", server.address()));
    let file = folder.path("results.json");
    let load =
        ["--rates", "500,500", "--duration", "600", "--warmup", "0", "--random-output-len", "50"];
    let words = [&["--base-url", &url, "--json", &file, "--max-failed", "3"][..], &load].concat();
    let (code, told) = run(&words);
    assert_eq!(code, Some(1), "{told}");
    assert!(told.contains("too many requests failed: 1 of 2 runs made"), "{told}");
    let results = json(&file);
    assert_valid(&results);
    assert_eq!((&results["ended"], &results["planned_runs"]), (&"max_failed".into(), &2.into()));
    assert_eq!(results["runs"].as_array().map(Vec::len), Some(1));
    assert_eq!(results["runs"][0]["ended"], "max_failed");
}

#[test]
fn an_interrupted_run_says_so_and_keeps_what_it_measured() {
    let server = mock(QUICK);
    let (folder, url) = (Folder::new("interrupted"), format!("http://{}", server.address()));
    let (file, page) = (folder.path("results.json"), folder.path("page.html"));
    let load = ["--request-rate", "50", "--duration", "600", "--evenly"];
    let out = ["serve", "--base-url", &url, "--json", &file, "--html", &page];
    let words: Vec<&str> = out.iter().chain(&load).chain(&SMALL).copied().collect();
    let mut command = tool(&words);
    command.stdout(std::process::Stdio::piped()).stderr(std::process::Stdio::piped());
    let child = command.spawn().expect("the tool starts");
    let seen = || server_requests(server.address()) > 5;
    common::eventually("requests come", seen);
    // SAFETY: plain integers; a child that has not been waited for.
    unsafe { libc::kill(child.id() as libc::pid_t, libc::SIGINT) };
    let output = child.wait_with_output().expect("it ends");
    assert_eq!(output.status.code(), Some(130), "{}", text(&output));
    assert!(text(&output).contains("Interrupted: 1 of 1 run made"), "{}", text(&output));
    let results = json(&file);
    assert_valid(&results);
    assert_eq!(results["runs"][0]["ended"], "interrupted");
    assert!(results["runs"][0]["summary"]["ok"].as_u64().is_some_and(|ok| ok > 0), "{results}");
    let html = std::fs::read_to_string(page).expect("a page");
    assert!(html.contains("Not the whole measurement"));
}

/// Completions that a scripted server has begun.
fn server_requests(address: std::net::SocketAddr) -> usize {
    use std::io::{Read, Write};
    let Ok(mut stream) = std::net::TcpStream::connect(address) else { return 0 };
    let request = "GET /records HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n";
    let mut answer = String::new();
    let asked =
        stream.write_all(request.as_bytes()).and_then(|()| stream.read_to_string(&mut answer));
    asked.map_or(0, |_| answer.matches("\"index\"").count())
}

#[test]
fn a_server_that_counts_nothing_is_not_credited_with_zeros() {
    // No usage: `--extra-body` takes the options away again.
    let words = ["--num-prompts", "4", "--extra-body", r#"{"stream_options": null}"#];
    let (results, printed) = serve(QUICK, &words);
    assert_valid(&results);
    assert!(results["runs"][0]["summary"]["input_tokens_per_s"].is_null(), "{results}");
    assert!(printed.contains("unknown tokens/s in"), "{printed}");
}

#[test]
fn files_that_cannot_be_written_are_refused_before_the_first_request() {
    for flag in ["--json", "--html"] {
        let (code, told) = run(&["--base-url", "http://127.0.0.1:1", flag, "/nowhere/x"]);
        assert!(code == Some(2) && told.contains(flag) && told.contains("/nowhere/x"), "{told}");
    }
}
