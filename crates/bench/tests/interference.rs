//! `bench interference` against scripted servers: what it writes down, in which order, and that
//! nothing is left behind, or left stopped, when it is killed.
#![allow(clippy::unwrap_used)] // in helpers of tests

mod common;

use std::collections::HashSet;
use std::process::{Child, Command, Stdio};

use common::{Folder, eventually, free_port, is_alive, json, mock, mock_command, text, tool, tree};
use serde_json::Value;

const QUICK: &str = r#"{"ttft": "constant:30ms", "itl": "constant:2ms"}"#;
const SLOWER: &str = r#"{"ttft": "constant:60ms", "itl": "constant:4ms"}"#;
const SMALL: [&str; 12] = [
    "--num-prompts",
    "6",
    "--num-warmups",
    "2",
    "--max-concurrency",
    "2",
    "--random-input-len",
    "16",
    "--random-output-len",
    "8",
    "--settle",
    "0.1",
];

/// The server process of other tests.
#[test]
#[ignore = "part of other tests"]
fn a_server_by_itself() {
    common::serve_by_environment();
}

fn cells(record: &Value) -> &Vec<Value> {
    record["cells"].as_array().unwrap()
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    let n = values.len();
    (values[(n - 1) / 2] + values[n / 2]) / 2.0
}

#[test]
fn two_servers_side_by_side() {
    let folder = Folder::new("interference");
    let (quick, slower) = (mock(QUICK), mock(SLOWER));
    let servers = [
        format!("quick=http://{}", quick.address()),
        format!("slower=http://{}", slower.address()),
    ];
    let (json_file, html, raw) = (folder.path("r.json"), folder.path("r.html"), folder.path("raw"));
    let mut words = vec!["interference", "--server", &servers[0], "--server", &servers[1]];
    words.extend(["--neighbour", "cpu", "--neighbour-threads", "1", "--repeats", "2"]);
    words.extend(["--placement", "nice=19", "--json", &json_file, "--html", &html]);
    // On a busy machine the client may be late; that is tested separately.
    words.extend(["--client-tolerance", "1000"]);
    words.extend(["--raw-dir", &raw]);
    words.extend(SMALL);
    let output = tool(&words).output().unwrap();
    assert!(output.status.success(), "{}", text(&output));

    let record = json(&json_file);
    assert_eq!(record["schema"], "saccade.bench-interference.v2");
    assert_eq!(cells(&record).len(), 2 * 2 * 2);
    for repeat in cells(&record).chunks(4) {
        let combinations: HashSet<_> =
            repeat.iter().map(|c| (c["server"].to_string(), c["condition"].to_string())).collect();
        assert_eq!(combinations.len(), 4, "each once in a repeat");
        assert!(repeat.iter().all(|cell| cell["repeat"] == repeat[0]["repeat"]));
    }
    for cell in cells(&record) {
        check_cell(cell);
    }
    check_comparisons(&record);
    let printed = text(&output);
    assert!(printed.contains("cpu x1 nice=19") && printed.contains("slower"), "{printed}");
    let page = std::fs::read_to_string(&html).unwrap();
    assert!(page.contains("Retention") && page.contains("quick"));
    assert_eq!(std::fs::read_dir(&raw).unwrap().count(), 8);
}

fn check_cell(cell: &Value) {
    assert_eq!(cell["error"], Value::Null, "{cell}");
    assert_eq!(cell["summary"]["ok"], 6, "{cell}");
    let ttft = cell["summary"]["from_intended"]["ttft_ms"]["p50"].as_f64().unwrap();
    let least = if cell["server"] == "quick" { 30.0 } else { 60.0 };
    assert!(ttft >= least - 1.0, "TTFT {ttft} ms of a server that takes {least} ms");
    assert!(cell["client"]["send_lateness_ms"]["p99"].is_number());
    assert!(cell["host"]["run_queue_share"].is_number() || cell["host"].is_object());
    let beside = cell["condition"] != "isolation";
    assert_eq!(cell["work"]["unit"] == "rounds", beside, "{cell}");
    assert_eq!(cell["layout"]["neighbour"]["nice"] == 19, beside, "{cell}");
}

/// The record's quotients follow from its cells, computed here in another way.
fn check_comparisons(record: &Value) {
    let comparisons = record["comparisons"].as_array().unwrap();
    assert_eq!(comparisons.len(), 2);
    for comparison in comparisons {
        let value = |repeat: usize, isolated: bool, path: &str| {
            let cell = cells(record).iter().find(|cell| {
                cell["server"] == comparison["server"]
                    && cell["repeat"] == repeat
                    && (cell["condition"] == "isolation") == isolated
            });
            cell.unwrap()["summary"].pointer(path).unwrap().as_f64().unwrap()
        };
        for (name, path) in [
            ("retention_tokens", "/achieved_tokens_per_s"),
            ("retention_requests", "/achieved_rps"),
            ("inflation_ttft_p99", "/from_intended/ttft_ms/p99"),
            ("inflation_tpot_p50", "/tpot_ms/p50"),
        ] {
            let quotients = (0..2).map(|r| value(r, false, path) / value(r, true, path)).collect();
            let written = comparison[name]["median"].as_f64().unwrap();
            assert!((written - median(quotients)).abs() < 1e-9, "{name}: {comparison}");
        }
    }
}

#[test]
fn started_servers_take_turns_and_end() {
    let folder = Folder::new("turns");
    let ports = [free_port(), free_port()];
    let servers = ports.map(|port| format!("s{port}=http://127.0.0.1:{port}"));
    let starts = ports.map(|port| format!("s{port}={}", mock_command(port, QUICK)));
    let json_file = folder.path("r.json");
    let mut words = vec!["interference", "--server", &servers[0], "--server", &servers[1]];
    words.extend(["--start", &starts[0], "--start", &starts[1], "--neighbour", "fork"]);
    words.extend(["--neighbour-threads", "1", "--repeats", "1", "--json", &json_file]);
    let logs = folder.0.display().to_string();
    words.extend(["--log-dir", &logs, "--prime-requests", "1"]);
    words.extend(SMALL);
    let output = tool(&words).output().unwrap();
    assert!(output.status.success(), "{}", text(&output));

    let record = json(&json_file);
    assert_eq!(record["in_turns"], true);
    let names: Vec<_> = cells(&record).iter().map(|cell| cell["server"].to_string()).collect();
    assert_eq!(names[0], names[1]);
    assert_eq!(names[2], names[3]);
    assert_ne!(names[0], names[2]);
    for server in record["servers"].as_array().unwrap() {
        assert_eq!(server["startup_s"].as_array().unwrap().len(), 1, "started once: {server}");
        assert_eq!(server["model"], "mock");
    }
    for cell in cells(&record) {
        assert!(cell["layout"]["server"]["pid"].is_number(), "{cell}");
    }
    for port in ports {
        assert!(std::net::TcpStream::connect(("127.0.0.1", port)).is_err(), "{port} still listens");
    }
}

#[test]
fn mistakes_are_named_before_anything_runs() {
    let url = "s=http://127.0.0.1:1";
    for (words, named) in [
        (vec!["--server", url, "--start", "t=true", "--neighbour", "cpu"], "--start t"),
        (vec!["--server", url, "--server", url, "--neighbour", "cpu"], "two servers"),
        (vec!["--server", url, "--neighbour", "gpu"], "memory-bandwidth"),
        (vec!["--server", url, "--neighbour", "cpu", "--placement", "cores=8191"], "8191"),
        (vec!["--server", url, "--neighbour", "cpu", "--settle=-1"], "--settle"),
        (vec!["--server", url, "--neighbour", "cpu"], "connect"),
        (vec!["--server", url, "--start", "s=exit 7", "--neighbour", "cpu"], "exit status: 7"),
        (vec!["--server", url, "--neighbour", "cpu", "--html", "/nowhere/x"], "--html"),
    ] {
        let folder = Folder::new("mistakes");
        let words: Vec<&str> = ["interference"].into_iter().chain(words).collect();
        let output = tool(&words).current_dir(&folder.0).output().unwrap();
        let told = text(&output);
        assert!(output.status.code() == Some(2) && told.contains(named), "{words:?}: {told}");
    }
}

struct Process(Child);

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Two servers in turns; one of them exits at its start.
#[test]
fn a_server_that_does_not_start_fails_its_cells_and_no_others() {
    let folder = Folder::new("no-start");
    let ports = [free_port(), free_port()];
    let urls = [
        format!("good=http://127.0.0.1:{}", ports[0]),
        format!("bad=http://127.0.0.1:{}", ports[1]),
    ];
    let starts = [
        format!("good={}", mock_command(ports[0], QUICK)),
        "bad=echo tried >> tries; echo no room for the model >&2; exit 3".to_owned(),
    ];
    let json_file = folder.path("r.json");
    let mut words = vec!["interference", "--server", &urls[0], "--server", &urls[1]];
    words.extend(["--start", &starts[0], "--start", &starts[1], "--neighbour", "cpu"]);
    words.extend(["--neighbour-threads", "1", "--repeats", "2", "--json", &json_file]);
    words.extend(["--prime-requests", "1", "--client-tolerance", "1000"]);
    words.extend(SMALL);
    let output = tool(&words).current_dir(&folder.0).output().unwrap();
    assert_eq!(output.status.code(), Some(1), "{}", text(&output));
    let record = json(&json_file);
    for cell in cells(&record) {
        let error = cell["error"].as_str();
        if cell["server"] == "good" {
            assert_eq!(error, None, "{cell}");
        } else {
            let error = error.expect("it cannot be measured");
            assert!(error.contains("exit status: 3"), "{error}");
            assert!(
                error.contains("no room for the model") && !error.contains("SIGKILL"),
                "{error}"
            );
        }
    }
    let kept =
        record["comparisons"].as_array().unwrap().iter().map(|c| c["retention_tokens"].is_object());
    assert_eq!(kept.collect::<Vec<_>>(), [true, false]);
    let tries = std::fs::read_to_string(folder.path("tries")).unwrap();
    assert_eq!(tries.lines().count(), 1, "a start that failed is not tried again");
}

/// The server writes a file when it is asked to end, and takes a while over it: a shell between the
/// tool and the server does not keep that from happening.
#[test]
fn a_started_server_is_asked_to_end_before_it_is_killed() {
    let folder = Folder::new("asked");
    let port = free_port();
    let url = format!("s=http://127.0.0.1:{port}");
    let mock = mock_command(port, QUICK).replace(" exec ", " ");
    let clean_up = "trap 'sleep 0.3; echo done > cleaned; exit 0' TERM";
    let start = format!("s=({clean_up}; ({mock}) & wait); true");
    let json_file = folder.path("r.json");
    let mut words = vec!["interference", "--server", &url, "--start", &start, "--neighbour", "cpu"];
    words.extend(["--neighbour-threads", "1", "--repeats", "1", "--json", &json_file]);
    words.extend(SMALL);
    let output = tool(&words).current_dir(&folder.0).output().unwrap();
    assert!(output.status.success(), "{}", text(&output));
    let cleaned = std::fs::read_to_string(folder.path("cleaned")).unwrap_or_default();
    assert_eq!(cleaned, "done\n");
    assert!(std::net::TcpStream::connect(("127.0.0.1", port)).is_err(), "{port} still listens");
}

/// A tolerance that no client can keep.
#[test]
fn cells_of_a_late_client_are_left_out_of_the_results() {
    let folder = Folder::new("late");
    let server = mock(r#"{"ttft": "constant:1ms", "itl": "constant:1us"}"#);
    let url = format!("s=http://{}", server.address());
    let json_file = folder.path("r.json");
    let mut words = vec!["interference", "--server", &url, "--neighbour", "cpu", "--repeats", "1"];
    words.extend(["--neighbour-threads", "1", "--json", &json_file, "--client-priority", "normal"]);
    // More arrivals at once than the client may have in flight.
    words.extend(["--request-rate", "100000", "--num-prompts", "5000", "--num-warmups", "0"]);
    words.extend(["--random-input-len", "4", "--random-output-len", "1", "--settle", "0"]);
    let output = tool(&words).output().unwrap();
    assert!(output.status.success(), "{}", text(&output));
    let record = json(&json_file);
    assert!(cells(&record).iter().all(|cell| cell["distrust"] != Value::Array(vec![])), "{record}");
    let comparison = &record["comparisons"][0];
    assert!(comparison["retention_tokens"].is_null(), "{comparison}");
    assert_eq!(comparison["untrusted_cells"], 2);
    assert!(text(&output).contains("2 cells left out"), "{}", text(&output));
}

/// One server that runs already (and is paused), one that is started, one hog; then kill -9.
#[test]
fn a_killed_run_leaves_nothing_running_and_nothing_stopped() {
    let folder = Folder::new("killed");
    let ports = [free_port(), free_port()];
    let server = Command::new("sh").arg("-c").arg(mock_command(ports[0], QUICK)).spawn().unwrap();
    let server = Process(server);
    eventually("it listens", || std::net::TcpStream::connect(("127.0.0.1", ports[0])).is_ok());
    let urls =
        [format!("a=http://127.0.0.1:{}", ports[0]), format!("b=http://127.0.0.1:{}", ports[1])];
    let pid = format!("a={}", server.0.id());
    let start = format!("b={}", mock_command(ports[1], QUICK));
    let logs = folder.0.display().to_string();
    let words = [
        "interference",
        "--server",
        &urls[0],
        "--server",
        &urls[1],
        "--server-pid",
        &pid,
        "--start",
        &start,
        "--log-dir",
        &logs,
        "--pause-others",
        "--neighbour",
        "cmd:sleep 1000",
        "--neighbour-threads",
        "1",
        "--duration",
        "8",
        "--settle",
        "0",
        "--repeats",
        "1",
    ];
    let mut run = tool(&words).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    // The seeded order has b first or a first: in either case b's turn comes within some seconds,
    // and the 8 s of a cell are time enough to see it.
    let is_stopped = || common::state(server.0.id()) == Some('T');
    eventually("the other one is paused", || is_stopped() || run.try_wait().unwrap().is_some());
    assert!(is_stopped(), "the run ended before");
    let below: Vec<u32> = tree(run.id()).into_iter().filter(|&pid| pid != run.id()).collect();
    assert!(below.len() >= 3, "pauser, keeper, server: {below:?}");
    run.kill().unwrap();
    run.wait().unwrap();
    for pid in below {
        eventually(&format!("process {pid} is gone"), || !is_alive(pid));
    }
    eventually("the paused server goes on", || !is_stopped());
    assert!(is_alive(server.0.id()));
}
