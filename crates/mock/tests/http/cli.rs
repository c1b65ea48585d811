//! The program: flags over the script's file, and refusals.

use std::io::{BufRead, BufReader};
use std::net::SocketAddr;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use crate::client::{get, post};

const PROGRAM: &str = env!("CARGO_BIN_EXE_saccade-mock");

/// Ends the program with the test.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        self.0.kill().expect("it runs");
        self.0.wait().expect("it ended");
    }
}

fn start(flags: &[&str]) -> (Running, SocketAddr) {
    let mut child = Command::new(PROGRAM)
        .args(["--listen", "127.0.0.1:0"])
        .args(flags)
        .stdout(Stdio::piped())
        .spawn()
        .expect("the program starts");
    let mut line = String::new();
    let mut out = BufReader::new(child.stdout.take().expect("a pipe"));
    out.read_line(&mut line).expect("a line");
    let address = line.trim_end().rsplit('/').next().and_then(|a| a.parse().ok());
    (Running(child), address.expect("an address"))
}

fn refusal(flags: &[&str]) -> String {
    let output = Command::new(PROGRAM).args(flags).output().expect("the program starts");
    assert!(!output.status.success(), "{flags:?} was accepted");
    String::from_utf8(output.stderr).expect("UTF-8")
}

#[test]
fn flags_win_over_the_file() {
    let file = std::env::temp_dir().join(format!("saccade-mock-{}.json", std::process::id()));
    let script = r#"{"model": "file", "ttft": "1ms", "itl": "0us", "natural_tokens": "3"}"#;
    std::fs::write(&file, script).expect("a file");
    let path = file.to_str().expect("UTF-8");
    let (_running, at) = start(&["--script", path, "--model", "flag", "--stall", "0+2:hold"]);
    let asked = Instant::now();
    std::fs::remove_file(&file).expect("it was written");
    assert_eq!(get(at, "/v1/models").json()["data"][0]["id"], "flag");
    assert!(asked.elapsed() > Duration::from_millis(200), "the stall holds every answer");
    let answer = post(at, "/v1/completions", r#"{"prompt": "a", "max_tokens": 9}"#).json();
    assert_eq!(answer["usage"]["completion_tokens"], 3, "the file's field is kept");
}

#[test]
fn wrong_flags_are_refused_by_name() {
    assert!(refusal(&["--ttft", "20"]).contains("unit"));
    assert!(refusal(&["--priority", "fifo:100"]).contains("fifo:N"));
    assert!(refusal(&["--stall", "5"]).contains("START_S+SECONDS"));
    assert!(refusal(&["--fail-cut", "2"]).contains("failures.cut"));
    assert!(refusal(&["--script", "/nowhere.json"]).contains("/nowhere.json"));
}
