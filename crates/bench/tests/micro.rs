//! `bench micro` through its command line.
#![allow(clippy::unwrap_used)] // in helpers of tests

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::process::{Command, Output, Stdio};
use std::time::Duration;

use serde_json::Value;

fn micro(args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_saccade-bench"));
    command.args(["bench", "micro"]).args(args).stdin(Stdio::null());
    command
}

fn failed(output: &Output) -> String {
    assert_eq!(output.status.code(), Some(2), "{output:?}");
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// The document of a run that must succeed.
fn document(args: &[&str]) -> Value {
    let output = micro(args).args(["--json", "-"]).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let document: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(document["schema"], "saccade.bench-micro.v2");
    document
}

fn number(value: &Value) -> f64 {
    value.as_f64().unwrap_or_else(|| panic!("{value} is no number"))
}

#[test]
fn tokenization_takes_its_share() {
    let rate = ["--prefill-tokens-per-s", "100000"];
    let shape = ["--lengths", "64,512", "--batches", "1,4", "--threads", "1,2", "--repeats", "2"];
    let found = document(&[&["tokenize"], &rate[..], &shape].concat());
    let rows = found["tokenize"]["rows"].as_array().unwrap();
    assert_eq!(rows.len(), 8);
    for row in rows {
        let wanted = number(&row["length"]) * number(&row["batch"]);
        let tokens = number(&row["batch_tokens"]);
        assert!((0.7 * wanted..1.3 * wanted).contains(&tokens), "{row}");
        for figure in ["p50", "min", "max"] {
            let time_ms = number(&row["tokenize_ms"][figure]);
            let share = number(&row["share"][figure]);
            let expected = time_ms / (time_ms + tokens / 100.0);
            assert!((share - expected).abs() < 1e-9 && share > 0.0, "{row}");
        }
        assert!(number(&row["tokenize_ms"]["min"]) <= number(&row["tokenize_ms"]["max"]), "{row}");
    }
}

/// Answers each completion with one token, after a time that depends on the form of the prompt.
fn scripted_server(text: Duration, ids: Duration) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            std::thread::spawn(move || answer(stream.unwrap(), text, ids));
        }
    });
    url
}

fn answer(stream: TcpStream, text: Duration, ids: Duration) {
    let mut reader = BufReader::new(stream.try_clone().unwrap());
    let mut head = String::new();
    while !head.ends_with("\r\n\r\n") {
        if reader.read_line(&mut head).unwrap() == 0 {
            return;
        }
    }
    let field = |name: &str| {
        let line =
            head.lines().find_map(|l| l.to_lowercase().strip_prefix(name).map(str::to_owned));
        line.and_then(|value| value.trim().parse::<usize>().ok())
    };
    let mut body = vec![0; field("content-length:").unwrap_or(0)];
    reader.read_exact(&mut body).unwrap();
    let body: Value = serde_json::from_slice(&body).unwrap_or_default();
    let (kind, payload) = if body.is_null() {
        ("application/json", r#"{"object":"list","data":[{"id":"m"}]}"#.to_owned())
    } else {
        std::thread::sleep(if body["prompt"].is_string() { text } else { ids });
        let event = r#"{"choices":[{"index":0,"text":"x","finish_reason":"length"}]}"#;
        ("text/event-stream", format!("data: {event}\n\ndata: [DONE]\n\n"))
    };
    let mut stream = stream;
    let head = "HTTP/1.1 200 OK\r\nconnection: close\r\n";
    // The client may have gone away; that is its business.
    let _ = write!(
        stream,
        "{head}content-type: {kind}\r\ncontent-length: {}\r\n\r\n{payload}",
        payload.len()
    );
}

#[test]
fn a_server_that_pays_for_text_is_found_out() {
    let url = scripted_server(Duration::from_millis(300), Duration::from_millis(100));
    let shape = ["--lengths", "32", "--batches", "1,3", "--threads", "1", "--repeats", "3"];
    let found = document(&[&["tokenize", "--base-url", &url], &shape[..]].concat());
    let rows = found["tokenize"]["server"].as_array().unwrap();
    assert_eq!(rows.len(), 2);
    for row in rows {
        assert!(row["failed"].is_null(), "{row}");
        assert!(number(&row["ttft_text_ms"]) >= 300.0, "{row}");
        assert!(number(&row["ttft_ids_ms"]) >= 100.0, "{row}");
        // How large it is depends on the machine; what it is made of is tested separately.
        for figure in ["difference_ms", "share"] {
            let [min, p50, max] = ["min", "p50", "max"].map(|of| number(&row[figure][of]));
            assert!(min <= p50 && p50 <= max, "{row}");
        }
    }
}

#[test]
fn one_late_rank_holds_up_all() {
    let shape = ["--ranks", "3", "--num-cores", "1", "--iterations", "30", "--compute-us", "50"];
    let delay = ["--delay-us", "0,40000", "--delay-every", "3", "--barrier", "yield"];
    let found = document(&[&["straggler"], &shape[..], &delay].concat());
    let rows = found["straggler"]["rows"].as_array().unwrap();
    assert_eq!(rows.len(), 2);
    assert!(rows[0]["delayed_iteration_us"].is_null());
    assert_eq!(rows[0]["iteration_us"]["count"], 30);
    assert_eq!(rows[1]["delayed_iteration_us"]["count"], 10);
    // A rank that sees the barrier open before another one sleeps a little outside its iteration,
    // in the one before: together they are never shorter than the delay.
    let sum_us = |of: &str| number(&rows[1][of]["count"]) * number(&rows[1][of]["mean"]);
    let total_us = sum_us("iteration_us") + sum_us("delayed_iteration_us");
    assert!(total_us >= 10.0 * 40_000.0, "{}", rows[1]);
    // What the others wait depends on the machine; its sum is tested on a scripted board.
    assert!(rows[1]["wait_per_delay"].is_number() && rows[0]["wait_per_delay"].is_null());
}

/// Answers everything with this.
fn canned_server(head: &'static str, payload: String) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            let mut line = String::new();
            let mut reader = BufReader::new(stream.try_clone().unwrap());
            while reader.read_line(&mut line).unwrap() > 2 {
                line.clear();
            }
            let rest = format!("connection: close\r\ncontent-length: {}\r\n\r\n", payload.len());
            let _ = write!(stream, "HTTP/1.1 {head}\r\n{rest}{payload}");
        }
    });
    url
}

#[test]
fn a_roof_becomes_times_of_steps() {
    let roof = serde_json::json!({
        "kernels": "fast", "num_threads": 2, "weight_bytes": 4u64 << 20, "huge_page_bytes": 1 << 20,
        "step_weight_bytes": 2_000_000, "row_flops": 1_000_000,
        "read_bytes_per_second": 1_000_000_000u64,
        "product_flops_per_second": {"1": 1_000_000_000u64, "4": 1_000_000_000u64},
    });
    let url = canned_server("200 OK", roof.to_string());
    let flags = ["roof", "--base-url", url.as_str(), "--repeats", "3"];
    let found = document(&flags);
    assert_eq!(found["roof"]["roofs"], Value::from(vec![roof; 3]));
    let text = micro(&flags).output().unwrap();
    let text = String::from_utf8_lossy(&text.stdout).into_owned();
    // Memory binds one row, products bind four.
    for row in ["fast 2 4 25 1.0 1.0 1.0", "1 1 2.00 1.00 500.0", "4 1 2.00 4.00 1,000.0"] {
        let mut lines = text.lines().map(|l| l.split_whitespace().collect::<Vec<_>>().join(" "));
        assert!(lines.any(|line| line == row), "{row} in {text}");
    }
}

#[test]
fn a_server_without_a_roof_is_quoted() {
    let refusal = r#"{"error":{"message":"only --device cpu does"}}"#;
    let url = canned_server("501 Not Implemented", refusal.into());
    let words = failed(&micro(&["roof", "--base-url", &url]).output().unwrap());
    assert!(words.contains("HTTP 501") && words.contains("only --device cpu does"), "{words}");
}

#[test]
fn flags_out_of_bounds_are_refused_by_name() {
    let cases: [(&[&str], &str); 5] = [
        (&["straggler", "--ranks", "0"], "--ranks"),
        (&["straggler", "--num-cores", "1-9999"], "--num-cores"),
        (&["broadcast", "--cores", "4095"], "--cores"),
        (&["tokenize", "--prefill-tokens-per-s", "0"], "--prefill-tokens-per-s"),
        (&["tokenize", "--tokenizer", "/nowhere"], "/nowhere"),
    ];
    for (args, flag) in cases {
        let words = failed(&micro(args).output().unwrap());
        assert!(words.contains(flag), "{words}");
    }
}

#[test]
fn a_page_holds_the_plots_and_the_data() {
    let page = std::env::temp_dir().join(format!("saccade-micro-{}.html", std::process::id()));
    let shape = ["--lengths", "32", "--batches", "1", "--repeats", "1"];
    let args = ["tokenize", "--prefill-tokens-per-s", "1000", "--html"];
    let output = micro(&args).arg(&page).args(shape).output().unwrap();
    assert!(output.status.success(), "{output:?}");
    assert!(String::from_utf8_lossy(&output.stdout).contains("tokenize ms"));
    let html = std::fs::read_to_string(&page).unwrap();
    std::fs::remove_file(&page).unwrap();
    assert!(html.contains("<svg") && html.contains("saccade.bench-micro.v2"));
}

#[cfg(not(feature = "device"))]
#[test]
fn a_build_without_device_plane_says_so() {
    let words = failed(&micro(&["broadcast"]).output().unwrap());
    assert!(words.contains("no device plane"), "{words}");
}

#[cfg(feature = "device")]
mod broadcast {
    use std::time::Instant;

    use super::*;

    /// Names of region files of a process.
    fn files_of(pid: u32) -> Vec<String> {
        let prefix = format!("saccade-micro-{pid}-");
        let names = ["/dev/shm", "/tmp"].into_iter().flat_map(|dir| {
            std::fs::read_dir(dir).into_iter().flatten().flatten().map(|entry| entry.file_name())
        });
        let names = names.map(|name| name.to_string_lossy().into_owned());
        names.filter(|name| name.starts_with(&prefix)).collect()
    }

    fn children_of(pid: u32) -> Vec<String> {
        let path = format!("/proc/{pid}/task/{pid}/children");
        let children = std::fs::read_to_string(path).unwrap_or_default();
        children.split_whitespace().map(str::to_owned).collect()
    }

    fn wait_until(what: &str, done: impl Fn() -> bool) {
        let started = Instant::now();
        while !done() {
            assert!(started.elapsed() < Duration::from_secs(60), "{what}");
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    #[test]
    fn every_design_gives_every_rank_every_step() {
        let shape = ["--ranks", "1,3", "--hogs", "0,1", "--steps", "20", "--rounds", "2"];
        let found = document(&[&["broadcast", "--samples"], &shape[..]].concat());
        let rows = found["broadcast"]["rows"].as_array().unwrap();
        assert_eq!(rows.len(), 2 * 2 * 4);
        for row in rows {
            assert_eq!(row["decision_us"]["count"], 20);
            assert_eq!(row["decision_samples_us"].as_array().unwrap().len(), 20);
            let broadcasts = row["design"].as_str().unwrap().starts_with("broadcast");
            assert_eq!(row["tick_us"].is_object(), broadcasts);
            if broadcasts {
                let parts = number(&row["tick_us"]["mean"]) + number(&row["broadcast_us"]["mean"]);
                let whole = number(&row["decision_us"]["mean"]);
                assert!((parts - whole).abs() < 0.01 * whole, "{row}");
            }
        }
        assert_eq!(found["broadcast"]["ratios"].as_array().unwrap().len(), 4 * 3);
        assert_eq!(found["broadcast"]["decisions_identical"], true);
    }

    #[test]
    fn a_message_may_be_smaller_than_its_batch_and_the_ring_one_chunk() {
        let shape = ["--ranks", "2", "--hogs", "0", "--steps", "10", "--rounds", "1"];
        let tight = ["--message-bytes", "64", "--chunks", "1", "--arrivals", "3"];
        let found = document(&[&["broadcast"], &shape[..], &tight].concat());
        assert_eq!(found["broadcast"]["rows"].as_array().unwrap().len(), 4);
    }

    #[test]
    fn nothing_outlives_a_run_that_is_ended() {
        for signal in ["-TERM", "-KILL"] {
            let long = ["broadcast", "--ranks", "3", "--hogs", "1", "--steps", "20000"];
            let mut run = micro(&long).stderr(Stdio::null()).spawn().unwrap();
            let pid = run.id();
            wait_until("processes to start", || children_of(pid).len() >= 4);
            if signal == "-KILL" {
                // No process can hold back this signal: the files must have gone before.
                wait_until("regions to be joined", || files_of(pid).is_empty());
            }
            let children = children_of(pid);
            assert!(
                Command::new("kill").args([signal, &pid.to_string()]).status().unwrap().success()
            );
            run.wait().unwrap();
            assert_eq!(files_of(pid), Vec::<String>::new(), "{signal}");
            let alive = |child: &String| {
                let status = std::fs::read_to_string(format!("/proc/{child}/status"));
                status.is_ok_and(|status| !status.contains("State:\tZ"))
            };
            wait_until("processes to end", || !children.iter().any(alive));
        }
    }
}
