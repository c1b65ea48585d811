//! Downloads against a hub made of a few lines: what is asked for, and what is not.
#![cfg(feature = "hub")]
#![allow(clippy::unwrap_used)] // in helpers of tests

mod common;

use std::io::{BufRead, BufReader, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Mutex};

use saccade_model::{ModelFolder, OpenOptions};
use serde_json::{Value, json};

const COMMIT: &str = "0123456789abcdef0123456789abcdef01234567";

/// Serves one repository, acme/tiny, and records the paths of all requests.
struct FakeHub {
    endpoint: String,
    requests: Arc<Mutex<Vec<String>>>,
}

impl FakeHub {
    fn start(files: &[(&str, String)]) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let endpoint = format!("http://{}", listener.local_addr().unwrap());
        let requests = Arc::new(Mutex::new(Vec::new()));
        let files: Vec<(String, String)> =
            files.iter().map(|(name, text)| ((*name).to_owned(), text.clone())).collect();
        let log = requests.clone();
        // Ends with the test process.
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                answer(stream.unwrap(), &files, &log);
            }
        });
        Self { endpoint, requests }
    }

    fn options(&self, cache: &std::path::Path) -> OpenOptions {
        OpenOptions {
            cache_dir: Some(cache.to_owned()),
            endpoint: Some(self.endpoint.clone()),
            ..OpenOptions::default()
        }
    }

    /// Names of the files whose content was asked for, sorted.
    fn downloaded(&self) -> Vec<String> {
        let requests = self.requests.lock().unwrap();
        let prefix = format!("GET /acme/tiny/resolve/{COMMIT}/");
        let mut names: Vec<String> =
            requests.iter().filter_map(|line| line.strip_prefix(&prefix)).map(Into::into).collect();
        names.sort();
        names
    }
}

/// Reads one request and answers it on a connection that is then closed.
fn answer(mut stream: TcpStream, files: &[(String, String)], log: &Mutex<Vec<String>>) {
    let mut lines = BufReader::new(stream.try_clone().unwrap()).lines();
    let Some(Ok(first)) = lines.next() else { return };
    for line in lines.by_ref() {
        if line.unwrap().is_empty() {
            break;
        }
    }
    let mut words = first.split(' ');
    let (method, path) = (words.next().unwrap(), words.next().unwrap());
    let path = path.split('?').next().unwrap();
    log.lock().unwrap().push(format!("{method} {path}"));
    let body = if path == "/api/models/acme/tiny/revision/main" {
        Some(json!({"id": "acme/tiny", "sha": COMMIT}).to_string())
    } else if path == format!("/api/models/acme/tiny/tree/{COMMIT}") {
        let entry = |(name, text): &(String, String)| {
            let size = text.len();
            json!({"type": "file", "path": name, "size": size, "oid": "0"})
        };
        Some(Value::Array(files.iter().map(entry).collect()).to_string())
    } else {
        let name = path.strip_prefix(&format!("/acme/tiny/resolve/{COMMIT}/"));
        files.iter().find(|(file, _)| Some(&file[..]) == name).map(|(_, text)| text.clone())
    };
    let status = if body.is_some() { "200 OK" } else { "404 Not Found" };
    let body = body.unwrap_or_default();
    let head = format!(
        "HTTP/1.1 {status}\r\nContent-Length: {}\r\nETag: \"{:x}\"\r\nX-Repo-Commit: {COMMIT}\r\n\
         Connection: close\r\n\r\n",
        body.len(),
        path.len() * 1000 + body.len(),
    );
    stream.write_all(head.as_bytes()).unwrap();
    if method == "GET" {
        stream.write_all(body.as_bytes()).unwrap();
    }
}

fn repository() -> Vec<(&'static str, String)> {
    let config = Value::Object(common::qwen3(&json!({}))).to_string();
    let other = |name| (name, format!("content of {name}"));
    vec![
        ("config.json", config),
        other("tokenizer.json"),
        other("chat_template.jinja"),
        other("model.safetensors"),
        other("consolidated.safetensors"),
        other("pytorch_model.bin"),
        other("model.pt"),
        other("modeling.py"),
        other("README.md"),
        other("original/params.json"),
        other("onnx/model.safetensors"),
    ]
}

#[test]
fn only_configurations_templates_and_safetensors_are_downloaded() {
    let hub = FakeHub::start(&repository());
    let cache = tempfile::tempdir().unwrap();
    let mut options = hub.options(cache.path());
    let progress = Arc::new(Mutex::new(Vec::new()));
    let reports = progress.clone();
    options.progress =
        Some(Arc::new(move |done, total| reports.lock().unwrap().push((done, total))));
    let folder = ModelFolder::open("acme/tiny", &options).unwrap();
    let wanted = ["chat_template.jinja", "config.json", "model.safetensors", "tokenizer.json"];
    assert_eq!(hub.downloaded(), wanted);
    assert_eq!(folder.config().unwrap().num_layers, 3);
    let (done, total) = *progress.lock().unwrap().last().unwrap();
    assert!(total > 0 && done == total, "{done} of {total}");

    // All of it is in the cache now.
    assert_eq!(ModelFolder::open("acme/tiny", &options).unwrap(), folder);
    assert_eq!(hub.downloaded(), wanted);
    options.endpoint = Some("http://127.0.0.1:1".to_owned());
    assert_eq!(ModelFolder::open("acme/tiny", &options).unwrap(), folder);
}

#[test]
fn weights_are_left_out_on_request() {
    let hub = FakeHub::start(&repository());
    let cache = tempfile::tempdir().unwrap();
    let options = OpenOptions { weights: false, ..hub.options(cache.path()) };
    ModelFolder::open("acme/tiny", &options).unwrap();
    assert_eq!(hub.downloaded(), ["chat_template.jinja", "config.json", "tokenizer.json"]);
}

#[test]
fn what_the_hub_does_not_have_is_named() {
    let hub = FakeHub::start(&repository());
    let cache = tempfile::tempdir().unwrap();
    let options = hub.options(cache.path());
    let error = ModelFolder::open("acme/absent", &options).unwrap_err().to_string();
    assert!(error.contains("acme/absent") && error.contains("not found"), "{error}");
}
