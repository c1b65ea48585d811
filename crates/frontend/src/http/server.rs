//! Accepting connections, each with its time-outs, until the frontend stops.

use std::pin::pin;
use std::sync::Arc;
use std::time::{Duration, Instant};

use axum::Router;
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use socket2::SockRef;
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpListener, UnixListener};
use tokio::task::JoinSet;

use super::app::App;
use super::connection::OpenConnection;
use super::io::StallGuard;
use super::listen::{Listening, UNSENT_BYTES};
use crate::config::HttpLimits;
use crate::lifecycle::Stage;

/// Pause after an error of accept (no file descriptors, say), to avoid a spin.
const ACCEPT_PAUSE: Duration = Duration::from_millis(20);
/// Between complaints about accept: its errors come as fast as it is called.
const COMPLAIN_EVERY: Duration = Duration::from_secs(10);
/// Header fields of a request.
const MAX_HEADERS: usize = 128;
/// Time that connections have to close once the last request is answered.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(1);
/// hyper's smallest buffer.
const MIN_BUFFER_BYTES: usize = 8 * 1024;

const FULL: &[u8] = b"HTTP/1.1 503 Service Unavailable\r\ncontent-type: application/json\r\n\
retry-after: 1\r\nconnection: close\r\ncontent-length: 131\r\n\r\n\
{\"error\":{\"message\":\"too many connections are open; try again\",\"type\":\"server_error\",\
\"param\":null,\"code\":\"too_many_connections\"}}\r\n";

/// The listening socket, for one HTTP thread.
pub enum Acceptor {
    /// TCP
    Tcp(TcpListener),
    /// UNIX
    Unix(UnixListener),
}

impl Acceptor {
    /// Registers a descriptor of the socket with the runtime of the calling thread. All acceptors
    /// share one backlog: a connection goes to a thread that runs.
    ///
    /// # Errors
    /// If the system has no file descriptor left.
    pub fn of(listening: &Listening) -> std::io::Result<Self> {
        let socket = listening.try_clone()?;
        if listening.tcp_addr().is_some() {
            TcpListener::from_std(socket.into()).map(Self::Tcp)
        } else {
            UnixListener::from_std(socket.into()).map(Self::Unix)
        }
    }
}

/// Serves until the lifecycle stops and every request has ended; then closes idle connections.
pub async fn serve_connections(acceptor: Acceptor, app: Arc<App>, router: Router) {
    let mut connections = JoinSet::new();
    let mut stopping = pin!(app.lifecycle.reached(Stage::Stopping));
    let mut complaints = Complaints::default();
    loop {
        tokio::select! {
            biased;
            () = &mut stopping => break,
            Some(_) = connections.join_next(), if !connections.is_empty() => {}
            accepted = accept(&acceptor) => {
                match accepted {
                    Ok(stream) => serve_or_refuse(stream, &app, &router, &mut connections).await,
                    Err(error) => {
                        complaints.note(&error);
                        tokio::time::sleep(ACCEPT_PAUSE).await;
                    }
                }
                // Another thread may take the next one.
                tokio::task::yield_now().await;
            }
        }
    }
    drop(acceptor);
    let close = async { while connections.join_next().await.is_some() {} };
    // A connection still open then has a peer that does not take its last bytes.
    let _ = tokio::time::timeout(CLOSE_TIMEOUT, close).await;
}

/// A stream of either kind.
trait Stream: AsyncRead + AsyncWrite + Unpin + Send {}
impl<S: AsyncRead + AsyncWrite + Unpin + Send> Stream for S {}

/// Errors of accept, said at most once in [`COMPLAIN_EVERY`].
#[derive(Default)]
struct Complaints {
    said: Option<Instant>,
    unsaid: u64,
}

impl Complaints {
    fn note(&mut self, error: &std::io::Error) {
        self.unsaid += 1;
        let now = Instant::now();
        if self.said.is_none_or(|said| now - said >= COMPLAIN_EVERY) {
            tracing::warn!(times = self.unsaid, "accept: {error}");
            *self = Self { said: Some(now), unsaid: 0 };
        }
    }
}

async fn accept(acceptor: &Acceptor) -> std::io::Result<Box<dyn Stream>> {
    match acceptor {
        Acceptor::Tcp(listener) => {
            let (stream, _) = listener.accept().await?;
            // Tokens are small and must not wait for more.
            stream.set_nodelay(true)?;
            Ok(Box::new(stream))
        }
        Acceptor::Unix(listener) => {
            let (stream, _) = listener.accept().await?;
            SockRef::from(&stream).set_send_buffer_size(UNSENT_BYTES as usize)?;
            Ok(Box::new(stream))
        }
    }
}

async fn serve_or_refuse(
    mut stream: Box<dyn Stream>,
    app: &Arc<App>,
    router: &Router,
    connections: &mut JoinSet<()>,
) {
    let Some(open) = app.connections.enter() else {
        app.serving.metrics.rejected("too_many_connections");
        if app.tls.is_some() {
            // A handshake is what this connection may not have.
            return;
        }
        // A fresh socket's buffer takes these bytes at once, or the client gets a reset.
        let write = async { stream.write_all(FULL).await.and(stream.shutdown().await) };
        let _ = tokio::time::timeout(ACCEPT_PAUSE, write).await;
        return;
    };
    connections.spawn(serve_one(stream, app.clone(), router.clone(), open));
}

async fn serve_one(stream: Box<dyn Stream>, app: Arc<App>, router: Router, _open: OpenConnection) {
    let limits = &app.config.http;
    let stream = match encrypted(stream, &app).await {
        Ok(stream) => stream,
        Err(error) => return tracing::debug!("TLS: {error}"),
    };
    let guarded = StallGuard::new(stream, limits.stall_timeout, limits.least_bytes_per_s);
    let io = TokioIo::new(guarded);
    let service = TowerToHyperService::new(router);
    let mut connection = pin!(builder(&app.config.http).serve_connection(io, service));
    let served = tokio::select! {
        served = connection.as_mut() => served,
        () = app.lifecycle.reached(Stage::Stopping) => {
            connection.as_mut().graceful_shutdown();
            connection.await
        }
    };
    if let Err(error) = served {
        tracing::debug!("connection: {error}");
    }
}

/// The stream behind TLS, if the server has an identity. As much time as for a head.
async fn encrypted(stream: Box<dyn Stream>, app: &App) -> std::io::Result<Box<dyn Stream>> {
    let Some(tls) = &app.tls else { return Ok(stream) };
    let handshake = tls.acceptor().accept(stream);
    let encrypted = tokio::time::timeout(app.config.http.header_read_timeout, handshake).await;
    Ok(Box::new(encrypted.map_err(|_| std::io::ErrorKind::TimedOut)??))
}

fn builder(limits: &HttpLimits) -> http1::Builder {
    let mut builder = http1::Builder::new();
    builder
        .timer(TokioTimer::new())
        .header_read_timeout(limits.header_read_timeout)
        .max_headers(MAX_HEADERS)
        .max_header_size(limits.max_header_bytes)
        .max_buf_size(limits.max_header_bytes.max(MIN_BUFFER_BYTES))
        .half_close(false)
        .keep_alive(true);
    builder
}

#[cfg(test)]
mod tests {
    use super::FULL;

    #[test]
    fn the_answer_without_a_connection_is_well_formed() {
        let text = std::str::from_utf8(FULL).unwrap();
        let (head, body) = text.split_once("\r\n\r\n").unwrap();
        assert!(head.contains(&format!("content-length: {}", body.len())), "{}", body.len());
        let json: serde_json::Value = serde_json::from_str(body).unwrap();
        assert_eq!(json["error"]["code"], "too_many_connections");
    }
}
