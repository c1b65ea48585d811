//! Servers that live as long as a test.

use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU16, Ordering::Relaxed};
use std::time::{Duration, Instant};

/// Of servers: up to 22,000, those of clusters talk to each other up to 32,000.
const FIRST_PORT: u16 = 12_000;
const PORTS: u16 = 10_000;
/// For a server's first answer; a machine that is busy takes seconds.
const PATIENCE: Duration = Duration::from_secs(60);
/// Kills the program when our end of its input closes, however this process ends.
const LEASH: &str = r#""$@" & program=$!; read -r _; kill -9 $program; wait $program"#;

/// A port that is free now, as is the one 10,000 above it, where a node of a cluster talks to
/// others. Both are below those that Linux gives to connections: a server may come back there.
///
/// # Panics
/// There is none.
pub fn free_port() -> u16 {
    static NEXT: AtomicU16 = AtomicU16::new(0);
    let free = |port: u16| TcpListener::bind(("127.0.0.1", port)).is_ok();
    // Test programs run side by side: each begins elsewhere.
    let offset = std::process::id().wrapping_mul(37);
    (0..PORTS)
        .map(|_| u32::from(NEXT.fetch_add(1, Relaxed)).wrapping_add(offset) % u32::from(PORTS))
        .map(|nth| FIRST_PORT + nth as u16)
        .find(|port| free(*port) && free(*port + 10_000))
        .expect("a free port")
}

/// Is killed when it is dropped, with SIGKILL.
#[derive(Debug)]
pub struct Program(Child);

impl Program {
    /// Starts `program` in `folder`.
    ///
    /// # Panics
    /// There is no shell.
    pub fn start(program: &str, arguments: &[String], folder: &Path) -> Self {
        let mut command = Command::new("sh");
        command.args(["-c", LEASH, "sh", program]).args(arguments).current_dir(folder);
        command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null());
        Self(command.spawn().expect("a shell"))
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        drop(self.0.stdin.take());
        let _ = self.0.wait();
    }
}

/// The first of `names` that can be run. Without one a test is skipped, aloud; in CI it fails.
fn installed(names: &[String]) -> Option<String> {
    let runs = |name: &&String| {
        let output = Command::new("sh").args(["-c", "command -v \"$0\"", name]).output();
        output.is_ok_and(|output| output.status.success())
    };
    let found = names.iter().find(runs).cloned();
    if found.is_none() {
        let what = format!("not tried: none of {} is installed", names.join(", "));
        assert!(std::env::var_os("SACCADE_CI").is_none(), "{what}");
        eprintln!("{what}");
    }
    found
}

fn eventually(what: &str, mut done: impl FnMut() -> bool) {
    let began = Instant::now();
    while !done() {
        assert!(began.elapsed() < PATIENCE, "{what}: not within {PATIENCE:?}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// A Redis or Valkey server on a port of its own. It keeps nothing.
#[derive(Debug)]
pub struct RedisServer {
    program: Option<Program>,
    name: String,
    arguments: Vec<String>,
    folder: tempfile::TempDir,
    port: u16,
    tls: bool,
}

impl RedisServer {
    /// None where none is installed. `settings` are those of `redis.conf`, each with its value.
    ///
    /// # Panics
    /// It does not start.
    pub fn start(settings: &[(&str, &str)]) -> Option<Self> {
        let name = installed(&["redis-server".to_owned(), "valkey-server".to_owned()])?;
        let folder = tempfile::tempdir().expect("a folder");
        let port = free_port();
        let tls = settings.iter().any(|(setting, _)| setting.starts_with("tls-"));
        let mut arguments = vec!["--bind".to_owned(), "127.0.0.1".to_owned()];
        let port_setting = if tls { "tls-port" } else { "port" };
        let plain = [(port_setting, port.to_string()), ("save", String::new())];
        let given = settings.iter().map(|(setting, value)| (*setting, (*value).to_owned()));
        for (setting, value) in plain.into_iter().chain(given) {
            arguments.push(format!("--{setting}"));
            arguments.extend(value.split(' ').map(str::to_owned));
        }
        if tls {
            arguments.extend(["--port", "0"].map(str::to_owned));
        }
        let mut server = Self { program: None, name, arguments, folder, port, tls };
        server.restart();
        Some(server)
    }

    /// Kills it with SIGKILL.
    pub fn kill(&mut self) {
        self.program = None;
    }

    /// Starts it again on its port.
    ///
    /// # Panics
    /// It does not start.
    pub fn restart(&mut self) {
        self.program = None;
        self.program = Some(Program::start(&self.name, &self.arguments, self.folder.path()));
        eventually("redis-server", || self.listens());
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        SocketAddr::from(([127, 0, 0, 1], self.port))
    }

    /// Sends commands to a server without a password, and gives what it answers to the last.
    ///
    /// # Panics
    /// It does not answer.
    pub fn ask(&self, commands: &[&[&str]]) -> String {
        let mut link = TcpStream::connect(self.address()).expect("a connection");
        link.set_read_timeout(Some(PATIENCE)).expect("a timeout");
        let mut answer = String::new();
        for command in commands {
            let parts = command.iter().map(|part| format!("${}\r\n{part}\r\n", part.len()));
            let text = format!("*{}\r\n{}", command.len(), parts.collect::<String>());
            link.write_all(text.as_bytes()).expect("room for a command");
            let mut buffer = [0; 64 << 10];
            let count = link.read(&mut buffer).expect("an answer");
            answer = String::from_utf8_lossy(&buffer[..count]).into_owned();
        }
        answer
    }

    fn listens(&self) -> bool {
        let Ok(mut link) = TcpStream::connect(self.address()) else { return false };
        // One with TLS resets the connection; others answer, were it that they want a password.
        let _ = link.set_read_timeout(Some(Duration::from_secs(1)));
        let mut byte = [0];
        let read = link.write_all(b"PING\r\n").and_then(|()| link.read(&mut byte));
        match read {
            Ok(count) => count > 0 || self.tls,
            Err(error) => self.tls && error.kind() == ErrorKind::ConnectionReset,
        }
    }
}

/// An S3 server in memory: `moto_server` of the Python package moto, or what `SACCADE_S3_SERVER`
/// names.
#[derive(Debug)]
pub struct S3Server {
    _program: Program,
    _folder: tempfile::TempDir,
    port: u16,
}

impl S3Server {
    /// None where none is installed.
    ///
    /// # Panics
    /// It does not start.
    pub fn start() -> Option<Self> {
        let named = std::env::var("SACCADE_S3_SERVER").ok();
        let names: Vec<String> = named.into_iter().chain(["moto_server".to_owned()]).collect();
        let name = installed(&names)?;
        let folder = tempfile::tempdir().expect("a folder");
        let port = free_port();
        let arguments = ["-H", "127.0.0.1", "-p", &port.to_string()].map(str::to_owned);
        let program = Program::start(&name, &arguments, folder.path());
        let server = Self { _program: program, _folder: folder, port };
        eventually("moto_server", || TcpStream::connect(server.address()).is_ok());
        Some(server)
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        SocketAddr::from(([127, 0, 0, 1], self.port))
    }

    /// Makes a bucket.
    ///
    /// # Panics
    /// The server does not.
    pub fn make_bucket(&self, name: &str) {
        let answer = self.request(&format!("PUT /{name}"));
        assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    }

    /// Sends a request without a body, and gives the beginning of the answer.
    ///
    /// # Panics
    /// The server does not answer.
    pub fn request(&self, line: &str) -> String {
        let mut link = TcpStream::connect(self.address()).expect("a connection");
        let rest = "Host: s3.amazonaws.com\r\nContent-Length: 0\r\nConnection: close";
        let authorization = "Authorization: AWS4-HMAC-SHA256 Credential=test/20260101/us-east-1/s3/\
             aws4_request, SignedHeaders=host, Signature=0";
        let text = format!("{line} HTTP/1.1\r\n{rest}\r\n{authorization}\r\n\r\n");
        link.write_all(text.as_bytes()).expect("room for a request");
        let mut answer = Vec::new();
        link.take(64 << 10).read_to_end(&mut answer).expect("an answer");
        String::from_utf8_lossy(&answer).into_owned()
    }

    /// The variables that a client needs.
    pub fn variables() -> [(String, String); 2] {
        [("AWS_ACCESS_KEY_ID", "test"), ("AWS_SECRET_ACCESS_KEY", "test")]
            .map(|(name, value)| (name.to_owned(), value.to_owned()))
    }
}
