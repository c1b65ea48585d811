//! `bench attack` against a scripted server: budgets are applied, time-outs are results.
#![allow(clippy::unwrap_used)] // in helpers of tests

mod common;

use std::process::Command;

use common::{Folder, eventually, free_port, json, mock_command, text, tool};
use saccade_host::CpuSet;
use serde_json::Value;

/// The server process of other tests.
#[test]
#[ignore = "part of other tests"]
fn a_server_by_itself() {
    common::serve_by_environment();
}

const SMALL: [&str; 16] = [
    "--victims",
    "3",
    "--victim-len",
    "32",
    "--attack-rate",
    "20",
    "--attack-len",
    "64",
    "--attack-output-len",
    "8",
    "--lead",
    "0.5",
    "--repeats",
    "1",
    "--client-tolerance",
    "1000",
];

fn two_cores() -> Option<String> {
    let usable = CpuSet::of_task(0).unwrap();
    let two = usable.first(2).map(|two| two.to_string());
    if two.is_none() {
        eprintln!("not tried: it needs two cores");
    }
    two
}

fn series(record: &Value, attacked: bool) -> Vec<&Value> {
    let all = record["series"].as_array().unwrap().iter();
    all.filter(|series| series["attack"].is_object() == attacked).collect()
}

/// One seat, held 160 ms by each of 20 attackers a second: the queue only grows.
#[test]
fn victims_behind_a_growing_queue_time_out_and_the_server_starts_on_its_budget() {
    let Some(two) = two_cores() else { return };
    let folder = Folder::new("attack");
    let port = free_port();
    let script = r#"{"ttft": "constant:20ms", "itl": "constant:20ms", "capacity": {"running": 1}}"#;
    let (seen, json_file, html) =
        (folder.path("affinity"), folder.path("a.json"), folder.path("a.html"));
    let url = format!("s=http://127.0.0.1:{port}");
    let note = format!("grep Cpus_allowed_list /proc/self/status >> {seen}");
    let start = format!("s={note}; {}", mock_command(port, script));
    let logs = folder.0.display().to_string();
    let mut words = vec!["attack", "--server", &url, "--start", &start, "--log-dir", &logs];
    words.extend(["--cores", "1,2", "--timeout", "1.5", "--drain", "0.2"]);
    words.extend(["--json", &json_file, "--html", &html]);
    words.extend(SMALL);
    let output = tool(&words).output().unwrap();
    assert!(output.status.success(), "time-outs are no failures: {}", text(&output));

    let record = json(&json_file);
    assert_eq!(record["schema"], "saccade.bench-attack.v2");
    for baseline in series(&record, false) {
        let victims = baseline["victims"].as_array().unwrap();
        assert_eq!(victims.len(), 3, "{baseline}");
        for victim in victims {
            let ttft_s = victim["ttft_s"].as_f64().unwrap();
            assert!((0.019..1.5).contains(&ttft_s), "{baseline}");
        }
        assert_eq!(baseline["attackers"], Value::Null);
    }
    for attacked in series(&record, true) {
        let victims = attacked["victims"].as_array().unwrap();
        let last = victims.last().unwrap();
        assert_eq!(last["ttft_s"], Value::Null, "{attacked}");
        assert_eq!(last["outcome"], "timeout", "{attacked}");
        assert!(attacked["attackers"]["sent"].as_u64().unwrap() >= 10, "{attacked}");
    }
    assert_eq!(record["speedups"][0]["speedup"]["kind"], "all_time_out");
    assert!(text(&output).contains('×'));
    assert!(std::fs::read_to_string(&html).unwrap().contains("<svg"));
    let affinities = std::fs::read_to_string(&seen).unwrap();
    let seen: Vec<&str> = affinities.lines().filter_map(|l| l.split('\t').nth(1)).collect();
    let one = two.split(['-', ',']).next().unwrap();
    assert!(seen.contains(&one) && seen.contains(&two.as_str()), "{seen:?} of {one} and {two}");
}

/// A server that runs already is bound for each budget, answers, and gets its cores back.
#[test]
fn a_running_server_is_bound_and_freed_again() {
    if two_cores().is_none() {
        return;
    }
    let folder = Folder::new("rebind");
    let port = free_port();
    let script = r#"{"ttft": "constant:20ms", "itl": "constant:1ms"}"#;
    let mut server = Command::new("sh").arg("-c").arg(mock_command(port, script)).spawn().unwrap();
    eventually("it listens", || std::net::TcpStream::connect(("127.0.0.1", port)).is_ok());
    let affinity = |pid: u32| CpuSet::of_task(pid as libc::pid_t).unwrap();
    let before = affinity(server.id());
    let (url, pid) = (format!("s=http://127.0.0.1:{port}"), format!("s={}", server.id()));
    let json_file = folder.path("a.json");
    let mut words = vec!["attack", "--server", &url, "--server-pid", &pid, "--cores", "1,2"];
    words.extend(["--json", &json_file]);
    words.extend(SMALL);
    let output = tool(&words).output().unwrap();
    let after = affinity(server.id());
    server.kill().unwrap();
    server.wait().unwrap();
    assert!(output.status.success(), "{}", text(&output));
    assert_eq!(after, before);
    let record = json(&json_file);
    for attacked in series(&record, true) {
        assert_eq!(attacked["victims"].as_array().unwrap().len(), 3, "{attacked}");
        assert!(attacked["drained_s"].is_number(), "{attacked}");
    }
    let kind = &record["speedups"][0]["speedup"]["kind"];
    assert_eq!(kind, "times", "{}", record["speedups"]);
}

#[test]
fn mistakes_are_named() {
    let url = "s=http://127.0.0.1:1";
    for (words, named) in [
        (vec!["--server", url], "--cores"),
        (vec!["--server", url, "--cores", "1"], "at least two"),
        (vec!["--server", url, "--cores", "1,9000"], "9000"),
        (vec!["--server", url, "--gpus", "0"], "--gpus"),
        (vec!["--server", url, "--cores", "1,2", "--gpus", "1"], "--gpus"),
        (vec!["--server", url, "--cores", "1,2", "--timeout", "0"], "--timeout"),
        (vec!["--server", url, "--cores", "1,2", "--attack-rate", "0"], "--attack-rate"),
    ] {
        let words: Vec<&str> = ["attack"].into_iter().chain(words).collect();
        let output = tool(&words).output().unwrap();
        let told = text(&output);
        assert!(output.status.code() == Some(2) && told.contains(named), "{words:?}: {told}");
    }
}
