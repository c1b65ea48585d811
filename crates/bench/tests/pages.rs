//! `bench page`: the page drawn from a result's JSON is the one that its run wrote, and results in
//! the tree, of whatever version, have pages.
#![allow(clippy::unwrap_used)] // in helpers of tests

mod common;

use std::path::{Path, PathBuf};

use common::{Folder, free_port, mock, mock_command, text, tool};

/// The server process of another test.
#[test]
#[ignore = "part of another test"]
fn a_server_by_itself() {
    common::serve_by_environment();
}

/// Runs a command with --json and --html, draws the page again, and compares the two.
fn assert_same_page(folder: &Folder, words: &[&str]) {
    let [json, html, again] = ["r.json", "r.html", "again.html"].map(|name| folder.path(name));
    let words = [words, &["--json", &json, "--html", &html]].concat();
    let output = tool(&words).current_dir(&folder.0).output().unwrap();
    assert!(output.status.success(), "{}", text(&output));
    let output = tool(&["page", &json, "--out", &again]).output().unwrap();
    assert!(output.status.success(), "{}", text(&output));
    let [first, second] = [&html, &again].map(|file| std::fs::read_to_string(file).unwrap());
    assert!(first.contains("<svg") && first == second, "{words:?}: the pages differ");
}

#[test]
fn a_page_from_json_is_the_page_of_the_run() {
    let server = mock(r#"{"ttft": "uniform:1ms,9ms", "itl": "constant:1ms"}"#);
    let url = format!("http://{}", server.address());
    let small = ["--random-input-len", "8", "--random-output-len", "4"];
    let serve = ["serve", "--base-url", &url, "--goodput", "ttft:5"];
    let ladder = ["--rates", "20,40", "--duration", "0.5", "--repeat", "2"];
    let folder = Folder::new("page-serve");
    assert_same_page(&folder, &[&serve[..], &small, &ladder].concat());
    assert_same_page(&folder, &[&serve[..], &small, &["--num-prompts", "7"]].concat());

    let named = format!("s={url}");
    let interference = ["interference", "--server", &named, "--neighbour", "cpu", "--repeats", "2"];
    let load = ["--neighbour-threads", "1", "--num-prompts", "6", "--settle", "0"];
    assert_same_page(&folder, &[&interference[..], &small, &load].concat());

    let tokenize = ["micro", "tokenize", "--lengths", "32", "--batches", "1,2", "--repeats", "2"];
    assert_same_page(&folder, &[&tokenize[..], &["--prefill-tokens-per-s", "1000"]].concat());
    let against = [&tokenize[..], &["--base-url", &url]].concat();
    assert_same_page(&folder, &against);
    let ranks = ["micro", "straggler", "--ranks", "2", "--num-cores", "1", "--iterations", "10"];
    assert_same_page(&folder, &ranks);
    if cfg!(feature = "device") {
        let steps = ["micro", "broadcast", "--ranks", "1,2", "--hogs", "0", "--steps", "10"];
        assert_same_page(&folder, &steps);
    }
}

#[test]
fn a_page_of_an_attack_is_the_page_of_the_run() {
    let folder = Folder::new("page-attack");
    if saccade_host::CpuSet::of_task(0).unwrap().len() < 2 {
        return eprintln!("not tried: it needs two cores");
    }
    let port = free_port();
    let url = format!("s=http://127.0.0.1:{port}");
    let start = mock_command(port, r#"{"ttft": "constant:5ms", "itl": "constant:1ms"}"#);
    let start = format!("s={start}");
    let words = ["attack", "--server", &url, "--start", &start, "--cores", "1,2", "--repeats", "2"];
    let load =
        ["--victims", "2", "--victim-len", "16", "--attack-rate", "20", "--attack-len", "32"];
    assert_same_page(&folder, &[&words[..], &load, &["--lead", "0.2"]].concat());
}

/// Results of version 1 are committed; their pages are not.
#[test]
fn results_in_the_tree_have_pages() {
    let results = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../bench/results");
    let folder = Folder::new("page-results");
    let mut drawn = 0;
    for file in json_files(&results) {
        let text_of = std::fs::read_to_string(&file).unwrap();
        let value: Option<serde_json::Value> = serde_json::from_str(&text_of).ok();
        let schema = value.and_then(|v| v["schema"].as_str().map(str::to_owned));
        if !schema.is_some_and(|schema| schema.starts_with("saccade.bench")) {
            continue;
        }
        let out = folder.path("page.html");
        let output = tool(&["page", &file.display().to_string(), "--out", &out]).output().unwrap();
        assert!(output.status.success(), "{}: {}", file.display(), text(&output));
        assert!(std::fs::read_to_string(out).unwrap().contains("</html>"));
        drawn += 1;
    }
    eprintln!("{drawn} pages drawn");
}

fn json_files(folder: &Path) -> Vec<PathBuf> {
    let mut files = Vec::new();
    for entry in std::fs::read_dir(folder).into_iter().flatten().flatten() {
        let path = entry.path();
        if path.is_dir() {
            files.extend(json_files(&path));
        } else if path.extension().is_some_and(|end| end == "json") {
            files.push(path);
        }
    }
    files
}

#[test]
fn what_has_no_page_is_refused_in_words() {
    let folder = Folder::new("page-refused");
    let file = folder.path("plan.json");
    std::fs::write(&file, r#"{"schema": "saccade-plan/2"}"#).unwrap();
    for (file, words) in
        [(file.as_str(), "saccade.bench-serve.v2"), ("/nowhere.json", "/nowhere.json")]
    {
        let output = tool(&["page", file]).output().unwrap();
        assert!(
            output.status.code() == Some(2) && text(&output).contains(words),
            "{}",
            text(&output)
        );
    }
}
