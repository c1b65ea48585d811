//! What keeps a frontend from starting, by name; sockets and cross-origin settings.

#![allow(clippy::unwrap_used)]

mod common;

use std::io::{Read, Write};
use std::net::SocketAddr;
use std::os::unix::net::UnixStream;
use std::path::Path;

use common::{Harness, write_model};
use saccade_frontend::{Frontend, FrontendConfig, FrontendError, Listen, Listening};
use saccade_ring::testing::FakeConfig;
use saccade_ring::{InProcTransport, RegionLimits};
use serde_json::json;

/// Starts over a model folder that `change` has modified.
fn start(change: impl FnOnce(&Path, &mut FrontendConfig)) -> Result<(), FrontendError> {
    let dir = tempfile::tempdir().unwrap();
    write_model(dir.path());
    let mut config = FrontendConfig {
        listen: Listen::Tcp(SocketAddr::from(([127, 0, 0, 1], 0))),
        model: dir.path().display().to_string(),
        ..FrontendConfig::default()
    };
    change(dir.path(), &mut config);
    let transport = InProcTransport::create(&RegionLimits::default()).unwrap();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let frontend = Frontend::start_on(config, transport)?;
        frontend.shutdown_handle().stop();
        frontend.run().await
    })
}

#[track_caller]
fn fails(change: impl FnOnce(&Path, &mut FrontendConfig), words: &[&str]) {
    let error = start(change).unwrap_err().to_string();
    assert!(words.iter().all(|w| error.contains(w)), "{error}: lacks one of {words:?}");
}

#[test]
fn what_is_missing_or_wrong_is_named() {
    start(|_, _| {}).unwrap();
    fails(|dir, _| std::fs::remove_file(dir.join("tokenizer.json")).unwrap(), &["tokenizer.json"]);
    fails(|dir, _| std::fs::write(dir.join("tokenizer.json"), "{").unwrap(), &["tokenizer.json"]);
    fails(|dir, c| c.tokenizer = Some(dir.join("none.json")), &["none.json"]);
    fails(|_, c| c.cache_salt_by_key = true, &["cache_salt_by_key", "api_keys"]);
    fails(
        |dir, _| {
            let mut tokenizer = common::tiny_tokenizer::byte_level_json();
            tokenizer["decoder"] = json!({"type": "CTC", "pad_token": "x",
                                          "word_delimiter_token": "|", "cleanup": true});
            std::fs::write(dir.join("tokenizer.json"), tokenizer.to_string()).unwrap();
        },
        &["tokenizer.json", "decoder", "CTC"],
    );
    fails(
        |dir, c| {
            let mut tokenizer = common::tiny_tokenizer::byte_level_json();
            tokenizer["normalizer"] = json!({"type": "NFKC"});
            std::fs::write(dir.join("tokenizer.json"), tokenizer.to_string()).unwrap();
            c.escape_special_tokens = true;
        },
        &["special_tokens_in_content", "escape", "tokenizer.json"],
    );
    fails(
        |dir, c| {
            let path = dir.join("mine.jinja");
            std::fs::write(&path, "{% for m in messages %}").unwrap();
            c.chat_template = Some(path);
        },
        &["mine.jinja"],
    );
    fails(|_, c| c.cors.allowed_origins = vec!["a\nb".into()], &["allowed_origins"]);
    fails(
        |_, c| {
            c.cors.allowed_origins = vec!["*".into()];
            c.cors.allow_credentials = true;
        },
        &["allow_credentials"],
    );
    fails(|_, c| c.listen = Listen::Unix("/none/x.sock".into()), &["/none/x.sock"]);
    fails(|_, c| c.frontend_index = 7, &["frontend index 7"]);
}

/// `--enable-auto-tool-choice`: the tiny model's template tells no format of tool calls.
#[test]
fn a_server_that_must_read_tool_calls_needs_their_format() {
    fails(|_, c| c.require_tool_calls = true, &["enable_auto_tool_choice", "--tool-call-parser"]);
    let named = |_: &Path, c: &mut FrontendConfig| {
        c.require_tool_calls = true;
        c.tool_call_parser = "hermes".parse().unwrap();
    };
    assert!(start(named).is_ok());
}

#[test]
fn a_taken_port_is_named() {
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap();
    fails(|_, c| c.listen = Listen::Tcp(address), &[&address.to_string()]);
}

#[test]
fn without_a_template_chat_is_refused_with_a_reason() {
    let h = Harness::with(
        |c| {
            let path = Path::new(&c.model).join("tokenizer_config.json");
            std::fs::write(path, "{}").unwrap();
        },
        FakeConfig::default(),
    );
    let body = json!({"messages": [{"role": "user", "content": "x"}]});
    let answer = h.post("/v1/chat/completions", &body);
    assert_eq!(answer.status, 400);
    assert!(answer.text().contains("no chat template"), "{}", answer.text());
    assert_eq!(h.post("/v1/completions", &json!({"prompt": "x"})).status, 200);
}

#[test]
fn a_unix_socket_serves_even_over_a_stale_file() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("saccade.sock");
    drop(std::os::unix::net::UnixListener::bind(&path).unwrap());
    assert!(path.exists());
    let model = tempfile::tempdir().unwrap();
    write_model(model.path());
    let config = FrontendConfig {
        listen: Listen::Unix(path.clone()),
        model: model.path().display().to_string(),
        ..FrontendConfig::default()
    };
    let transport = InProcTransport::create(&RegionLimits::default()).unwrap();
    let (sender, started) = std::sync::mpsc::channel();
    let server = std::thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let frontend = Frontend::start_on(config, transport).unwrap();
            sender.send((frontend.address(), frontend.shutdown_handle())).unwrap();
            frontend.run().await.unwrap();
        });
    });
    let (address, shutdown) = started.recv().unwrap();
    assert_eq!(address, format!("unix:{}", path.display()));
    let mut stream = UnixStream::connect(&path).unwrap();
    stream
        .write_all(b"GET /health HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n")
        .unwrap();
    let mut text = String::new();
    stream.read_to_string(&mut text).unwrap();
    assert!(text.starts_with("HTTP/1.1 200"), "{text}");
    shutdown.stop();
    server.join().unwrap();
    assert!(!path.exists());
}

#[test]
fn a_unix_socket_of_a_living_server_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("saccade.sock");
    let first = Listening::bind(&Listen::Unix(path.clone())).unwrap();
    let error = Listening::bind(&Listen::Unix(path.clone())).unwrap_err().to_string();
    assert!(error.contains("saccade.sock: another server listens there"), "{error}");
    assert!(UnixStream::connect(&path).is_ok(), "the first one still listens");

    // What took its place meanwhile is not its to remove.
    std::fs::remove_file(&path).unwrap();
    let next = Listening::bind(&Listen::Unix(path.clone())).unwrap();
    drop(first);
    assert!(UnixStream::connect(&path).is_ok());
    drop(next);
    assert!(!path.exists());

    std::fs::write(&path, "mine").unwrap();
    let error = Listening::bind(&Listen::Unix(path.clone())).unwrap_err().to_string();
    assert!(error.contains("a file that is no socket"), "{error}");
    assert_eq!(std::fs::read(&path).unwrap(), b"mine");
}

#[test]
fn cross_origin_requests_are_allowed_only_when_configured() {
    let origin = [("origin", "https://app.example")];
    let closed = Harness::start();
    let answer = closed.request("GET", "/v1/models", &origin, "");
    assert_eq!(answer.header("access-control-allow-origin"), None);
    let open = Harness::with(
        |c| {
            c.cors.allowed_origins = vec!["https://app.example".into()];
            c.api_keys = vec!["k".into()];
        },
        FakeConfig::default(),
    );
    let preflight = [
        ("origin", "https://app.example"),
        ("access-control-request-method", "POST"),
        ("access-control-request-headers", "authorization,content-type"),
    ];
    let answer = open.request("OPTIONS", "/v1/chat/completions", &preflight, "");
    assert_eq!(answer.status, 200);
    assert_eq!(answer.header("access-control-allow-origin"), Some("https://app.example"));
    let other = open.request("GET", "/v1/models", &[("origin", "https://evil.example")], "");
    assert_eq!((other.status, other.header("access-control-allow-origin")), (401, None));
}
