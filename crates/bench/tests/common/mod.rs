//! What the tests of the commands share: a scripted server in a process of its own, and the tool.
#![allow(dead_code, clippy::unwrap_used)] // each test uses a part of it; helpers of tests

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::time::{Duration, Instant};

use saccade_host::{Root, Task, process};
use saccade_mock::{Script, Server};
use serde_json::Value;

/// A folder that is removed with its contents.
pub struct Folder(pub PathBuf);

impl Folder {
    pub fn new(name: &str) -> Folder {
        let path = std::env::temp_dir().join(format!("saccade-{name}-{}", std::process::id()));
        let _ = std::fs::remove_dir_all(&path);
        std::fs::create_dir_all(&path).unwrap();
        Folder(path)
    }

    pub fn path(&self, name: &str) -> String {
        self.0.join(name).display().to_string()
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// A server in this process.
pub fn mock(script: &str) -> Server {
    let script = Script::from_json(script).unwrap();
    Server::start(script, "127.0.0.1:0".parse().unwrap()).unwrap()
}

/// A port that was free a moment ago.
pub fn free_port() -> u16 {
    std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
}

/// Command line of a server in a process of its own: this test program, asked for one test.
pub fn mock_command(port: u16, script: &str) -> String {
    let program = std::env::current_exe().unwrap();
    format!(
        "MOCK_PORT={port} MOCK_SCRIPT='{script}' exec {} --exact a_server_by_itself --ignored",
        program.display()
    )
}

/// What that one test does.
pub fn serve_by_environment() {
    let port: u16 = std::env::var("MOCK_PORT").unwrap().parse().unwrap();
    let script = Script::from_json(&std::env::var("MOCK_SCRIPT").unwrap()).unwrap();
    Server::start(script, SocketAddr::from(([127, 0, 0, 1], port))).unwrap().join().unwrap();
}

/// The tool with these words.
pub fn tool(words: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_saccade-bench"));
    command.arg("bench").args(words);
    command
}

pub fn text(output: &Output) -> String {
    let (out, err) = (&output.stdout, &output.stderr);
    format!("{}\n{}", String::from_utf8_lossy(out), String::from_utf8_lossy(err))
}

pub fn json(path: impl AsRef<Path>) -> Value {
    serde_json::from_slice(&std::fs::read(path).unwrap()).unwrap()
}

/// Waits until it is so; a busy machine may take its time.
pub fn eventually(what: &str, mut so: impl FnMut() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(120);
    while !so() {
        assert!(Instant::now() < deadline, "never happened: {what}");
        std::thread::sleep(Duration::from_millis(10));
    }
}

pub fn state(pid: u32) -> Option<char> {
    Task::read(&Root::default(), pid, pid).ok().map(|task| task.state)
}

pub fn is_alive(pid: u32) -> bool {
    state(pid).is_some_and(|state| !matches!(state, 'Z' | 'X'))
}

pub fn tree(pid: u32) -> Vec<u32> {
    let tree = process::tree(&Root::default(), pid).unwrap_or_default();
    tree.iter().map(|process| process.pid).collect()
}
