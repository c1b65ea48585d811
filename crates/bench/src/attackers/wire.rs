//! Connections of attackers: HTTP/1.1 by hand, because attackers say what no client library says,
//! and stop reading where none would. Every read and write has a bound in bytes and in time.

use std::io;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use saccade_load::Origin;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpSocket, TcpStream};
use tokio::time::timeout;

use super::tally::Tally;

/// Longest wait for a connection.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
/// Longest wait for a socket to take more of a body.
const WRITE_TIMEOUT: Duration = Duration::from_secs(60);
/// Longest wait for the head of an answer: a prompt near the limit takes its time.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(120);
/// Longest head of an answer.
const MAX_HEAD_BYTES: usize = 64 << 10;
/// What is read of a refusal.
const MAX_REFUSAL_BYTES: usize = 4096;
/// What is kept of a refusal's message.
const MAX_REFUSAL_CHARS: usize = 120;
/// Read at one time.
const PIECE_BYTES: usize = 16 << 10;
/// The least receive buffer that Linux gives; it doubles the number.
pub(super) const SMALL_WINDOW_BYTES: u32 = 2048;

/// Where attackers go, and what they have seen.
#[derive(Debug)]
pub(super) struct Way {
    pub origin: Origin,
    pub addresses: Vec<SocketAddr>,
    pub api_key: Option<String>,
    tally: Arc<Mutex<Tally>>,
}

impl Way {
    /// Resolves the server's name.
    pub async fn to(
        base_url: &str,
        api_key: Option<String>,
        tally: Arc<Mutex<Tally>>,
    ) -> anyhow::Result<Way> {
        let origin = Origin::parse(base_url)?;
        anyhow::ensure!(
            !origin.tls,
            "--server {base_url}: attackers speak plain http: give the address behind the TLS proxy"
        );
        let name = (origin.host.as_str(), origin.port);
        let addresses: Vec<SocketAddr> = tokio::net::lookup_host(name).await?.collect();
        Ok(Way { origin, addresses, api_key, tally })
    }

    /// The counts, for the moment of one change.
    pub fn tally(&self) -> MutexGuard<'_, Tally> {
        self.tally.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Opens a connection, with a small receive buffer where the attacker will not read. None is
    /// counted.
    pub async fn connect(&self, window_bytes: Option<u32>) -> Option<Connection<'_>> {
        let opened = timeout(CONNECT_TIMEOUT, self.open(window_bytes)).await;
        let mut tally = self.tally();
        let Ok(Ok(stream)) = opened else {
            tally.not_connected += 1;
            return None;
        };
        tally.connections += 1;
        tally.open += 1;
        tally.most_open = tally.most_open.max(tally.open);
        Some(Connection { way: self, stream, early: Vec::new() })
    }

    async fn open(&self, window_bytes: Option<u32>) -> io::Result<TcpStream> {
        let mut failed = io::Error::from(io::ErrorKind::AddrNotAvailable);
        for &address in &self.addresses {
            let socket = if address.is_ipv4() { TcpSocket::new_v4() } else { TcpSocket::new_v6() }?;
            if let Some(bytes) = window_bytes {
                socket.set_recv_buffer_size(bytes)?;
            }
            match socket.connect(address).await {
                Ok(stream) => {
                    stream.set_nodelay(true)?;
                    return Ok(stream);
                }
                Err(error) => failed = error,
            }
        }
        Err(failed)
    }

    /// The head of a POST with JSON, up to the fields that say how long the body is.
    pub fn head(&self, path: &str, length: &str) -> String {
        let key = self.api_key.as_ref();
        let key = key.map_or(String::new(), |key| format!("Authorization: Bearer {key}\r\n"));
        format!(
            "POST {} HTTP/1.1\r\nHost: {}\r\n{key}Content-Type: application/json\r\n\
             Connection: close\r\n{length}\r\n",
            self.origin.path(path),
            self.origin.authority,
        )
    }
}

/// How far an attack reads an answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Reading {
    /// To its end.
    All,
    /// Its status, and nothing more; the connection stays open.
    Nothing,
    /// Bytes per second.
    Slowly(u64),
    /// To the first event of a stream.
    FirstEvent,
}

/// How a connection's part ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Trouble {
    /// The server closed it.
    Closed,
    /// Nothing happened for too long.
    TimedOut,
}

/// One connection; counted as open until it is dropped.
#[derive(Debug)]
pub(super) struct Connection<'a> {
    way: &'a Way,
    stream: TcpStream,
    /// Bytes of the body that came with the head.
    early: Vec<u8>,
}

impl Drop for Connection<'_> {
    fn drop(&mut self) {
        self.way.tally().open -= 1;
    }
}

impl Connection<'_> {
    /// Writes all of it.
    pub async fn write(&mut self, bytes: &[u8]) -> Result<(), Trouble> {
        for piece in bytes.chunks(PIECE_BYTES) {
            let written = timeout(WRITE_TIMEOUT, self.stream.write_all(piece)).await;
            written.map_err(|_| Trouble::TimedOut)?.map_err(|_| Trouble::Closed)?;
            self.way.tally().sent_bytes += piece.len() as u64;
        }
        Ok(())
    }

    /// Some bytes of what comes, at most `most`; none at the end of the connection.
    pub async fn read(&mut self, most: usize) -> Result<Vec<u8>, Trouble> {
        if !self.early.is_empty() {
            let rest = self.early.split_off(most.min(self.early.len()));
            return Ok(std::mem::replace(&mut self.early, rest));
        }
        let mut piece = vec![0; most.min(PIECE_BYTES)];
        let read = timeout(ANSWER_TIMEOUT, self.stream.read(&mut piece)).await;
        let count = read.map_err(|_| Trouble::TimedOut)?.map_err(|_| Trouble::Closed)?;
        piece.truncate(count);
        self.way.tally().read_bytes += count as u64;
        Ok(piece)
    }

    /// The status of the answer, which is counted.
    pub async fn status(&mut self) -> Result<u16, Trouble> {
        let mut head = Vec::new();
        // A small piece: an attacker that reads no body must not drain it into its own memory.
        const HEAD_PIECE_BYTES: usize = 512;
        while head.len() < MAX_HEAD_BYTES {
            let piece = self.read(HEAD_PIECE_BYTES).await?;
            if piece.is_empty() {
                return Err(Trouble::Closed);
            }
            head.extend_from_slice(&piece);
            if let Some(at) = head.windows(4).position(|four| four == b"\r\n\r\n") {
                self.early = head.split_off(at + 4);
                let status = status_of(&head).ok_or(Trouble::Closed)?;
                self.way.tally().answered(status);
                return Ok(status);
            }
        }
        Err(Trouble::Closed)
    }

    /// Keeps what the first refusal says.
    pub async fn refusal(&mut self) {
        if self.way.tally().refusal.is_some() {
            return;
        }
        let mut body = Vec::new();
        while body.len() < MAX_REFUSAL_BYTES {
            match self.read(MAX_REFUSAL_BYTES - body.len()).await {
                Ok(piece) if !piece.is_empty() => body.extend_from_slice(&piece),
                _ => break,
            }
        }
        self.way.tally().refusal.get_or_insert(message_in(&body));
    }

    /// Reads the body as far as the attack does. Without an end where it does not read.
    pub async fn body(&mut self, reading: Reading) -> Result<(), Trouble> {
        match reading {
            Reading::All => while !self.read(PIECE_BYTES).await?.is_empty() {},
            Reading::FirstEvent => self.first_event().await?,
            Reading::Nothing => return self.hold().await,
            Reading::Slowly(bytes_per_s) => self.trickle(bytes_per_s).await?,
        }
        Ok(())
    }

    async fn first_event(&mut self) -> Result<(), Trouble> {
        let mut seen = Vec::new();
        while seen.len() < MAX_HEAD_BYTES {
            let piece = self.read(PIECE_BYTES).await?;
            if piece.is_empty() {
                return Err(Trouble::Closed);
            }
            seen.extend_from_slice(&piece);
            if seen.windows(5).any(|five| five == b"data:") {
                return Ok(());
            }
        }
        Ok(())
    }

    async fn trickle(&mut self, bytes_per_s: u64) -> Result<(), Trouble> {
        const READS_PER_S: u64 = 10;
        let pause = Duration::from_millis(1000 / READS_PER_S);
        let most = usize::try_from(bytes_per_s.div_ceil(READS_PER_S)).unwrap_or(PIECE_BYTES);
        while !self.read(most).await?.is_empty() {
            tokio::time::sleep(pause).await;
        }
        Ok(())
    }

    /// Waits without reading until the server gives the connection up.
    pub async fn hold(&mut self) -> Result<(), Trouble> {
        const LOOK: Duration = Duration::from_millis(500);
        while is_established(&self.stream) {
            tokio::time::sleep(LOOK).await;
        }
        Err(Trouble::Closed)
    }
}

/// Whether neither side has closed the connection, as far as the kernel knows.
fn is_established(stream: &TcpStream) -> bool {
    use std::os::fd::AsRawFd;
    const ESTABLISHED: u8 = 1; // TCP_ESTABLISHED of the kernel
    // SAFETY: a tcp_info is a plain struct for which zeros are valid.
    let mut info: libc::tcp_info = unsafe { std::mem::zeroed() };
    let mut length = size_of::<libc::tcp_info>() as libc::socklen_t;
    // SAFETY: the descriptor is open as long as `stream` lives; `info` has `length` bytes.
    let rc = unsafe {
        libc::getsockopt(
            stream.as_raw_fd(),
            libc::IPPROTO_TCP,
            libc::TCP_INFO,
            (&raw mut info).cast(),
            &raw mut length,
        )
    };
    rc == 0 && info.tcpi_state == ESTABLISHED
}

/// The status in a head: `HTTP/1.1 200 OK`.
fn status_of(head: &[u8]) -> Option<u16> {
    let line = head.split(|&byte| byte == b'\r').next()?;
    let text = std::str::from_utf8(line).ok()?;
    text.strip_prefix("HTTP/1.")?.split(' ').nth(1)?.parse().ok()
}

/// What a refusal says: the message of its JSON, else its beginning.
fn message_in(body: &[u8]) -> String {
    let text = String::from_utf8_lossy(body);
    let json = text.find('{').zip(text.rfind('}')).filter(|(from, to)| from < to);
    let value = json
        .and_then(|(from, to)| serde_json::from_str::<serde_json::Value>(&text[from..=to]).ok());
    let message = value.as_ref().and_then(|value| {
        let said = [&value["error"]["message"], &value["message"], &value["detail"]];
        said.into_iter().find_map(|said| said.as_str())
    });
    let words = message.unwrap_or(&text).split_whitespace().collect::<Vec<_>>().join(" ");
    words.chars().take(MAX_REFUSAL_CHARS).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn heads_and_refusals_are_read() {
        assert_eq!(status_of(b"HTTP/1.1 200 OK\r\nA: b\r\n\r\n"), Some(200));
        assert_eq!(status_of(b"HTTP/1.0 404 Not Found\r\n\r\n"), Some(404));
        assert_eq!(status_of(b"SSH-2.0\r\n\r\n"), None);
        let chunked = b"2c\r\n{\"error\": {\"message\": \"n: at  most 8\"}}\r\n0\r\n\r\n";
        assert_eq!(message_in(chunked), "n: at most 8");
        assert_eq!(message_in(b"{\"detail\":\"Not Found\"}"), "Not Found");
        assert_eq!(message_in(b"no JSON\n"), "no JSON");
    }
}
