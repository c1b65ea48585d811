//! Accepting connections, each with its time-outs, until the frontend stops.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use socket2::SockRef;
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpListener, TcpSocket, UnixListener};
use tokio::task::JoinSet;

use super::app::App;
use super::connection::OpenConnection;
use super::io::StallGuard;
use crate::config::{HttpLimits, Listen};
use crate::error::FrontendError;
use crate::lifecycle::Stage;

/// Connections that the system may hold for us before they are accepted.
const BACKLOG: u32 = 4096;
/// Pause after an error of accept (no file descriptors, say), to avoid a spin.
const ACCEPT_PAUSE: Duration = Duration::from_millis(20);
/// Header fields of a request.
const MAX_HEADERS: usize = 128;
/// Time that connections have to close once the last request is answered.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(1);
/// Bytes of a connection that the kernel holds unsent. With more, the device would not notice a
/// client that does not read: whole answers would wait in the kernel, computed for no reader in the
/// same batch as those of clients that do read. Bytes on their way to a reader do not count.
const UNSENT_BYTES: u32 = 16 * 1024;
/// hyper's smallest buffer.
const MIN_BUFFER_BYTES: usize = 8 * 1024;

const FULL: &[u8] = b"HTTP/1.1 503 Service Unavailable\r\ncontent-type: application/json\r\n\
retry-after: 1\r\nconnection: close\r\ncontent-length: 131\r\n\r\n\
{\"error\":{\"message\":\"too many connections are open; try again\",\"type\":\"server_error\",\
\"param\":null,\"code\":\"too_many_connections\"}}\r\n";

/// A bound socket, of no runtime.
pub enum Bound {
    /// TCP
    Tcp(std::net::TcpListener),
    /// UNIX, with the path to remove at the end.
    Unix(std::os::unix::net::UnixListener, PathBuf),
}

/// The same socket, for one HTTP thread.
pub enum Acceptor {
    /// TCP
    Tcp(TcpListener),
    /// UNIX
    Unix(UnixListener),
}

impl Bound {
    /// Where it listens, in readable form.
    pub fn address(&self) -> String {
        match self {
            Bound::Tcp(listener) => {
                listener.local_addr().map_or_else(|e| e.to_string(), |a| format!("http://{a}"))
            }
            Bound::Unix(_, path) => format!("unix:{}", path.display()),
        }
    }

    /// Another acceptor, for the runtime of the calling thread. All of them share one backlog: a
    /// connection goes to a thread that runs.
    ///
    /// # Errors
    /// If the system has no file descriptor left.
    pub fn acceptor(&self) -> std::io::Result<Acceptor> {
        Ok(match self {
            Bound::Tcp(listener) => Acceptor::Tcp(TcpListener::from_std(listener.try_clone()?)?),
            Bound::Unix(listener, _) => {
                Acceptor::Unix(UnixListener::from_std(listener.try_clone()?)?)
            }
        })
    }

    /// The TCP address, if it is one.
    pub fn tcp_addr(&self) -> Option<SocketAddr> {
        match self {
            Bound::Tcp(listener) => listener.local_addr().ok(),
            Bound::Unix(..) => None,
        }
    }
}

impl Drop for Bound {
    fn drop(&mut self) {
        if let Bound::Unix(_, path) = self {
            // It may have been removed already.
            let _ = std::fs::remove_file(path);
        }
    }
}

/// Binds the socket.
///
/// # Errors
/// [`FrontendError::Listen`] with the address.
pub fn bind(listen: &Listen) -> Result<Bound, FrontendError> {
    match listen {
        Listen::Tcp(address) => bind_tcp(*address)
            .map(Bound::Tcp)
            .map_err(|source| FrontendError::Listen { address: address.to_string(), source }),
        Listen::Unix(path) => bind_unix(path).map_err(|source| FrontendError::Listen {
            address: format!("unix:{}", path.display()),
            source,
        }),
    }
}

fn bind_tcp(address: SocketAddr) -> std::io::Result<std::net::TcpListener> {
    let socket = if address.is_ipv4() { TcpSocket::new_v4()? } else { TcpSocket::new_v6()? };
    // A restarted frontend must not wait for the old one's connections to time out.
    socket.set_reuseaddr(true)?;
    // Connections inherit it.
    SockRef::from(&socket).set_tcp_notsent_lowat(UNSENT_BYTES)?;
    socket.bind(address)?;
    socket.listen(BACKLOG)?.into_std()
}

fn bind_unix(path: &Path) -> std::io::Result<Bound> {
    use std::os::unix::fs::FileTypeExt;
    let stale = std::fs::symlink_metadata(path).is_ok_and(|m| m.file_type().is_socket());
    if stale {
        std::fs::remove_file(path)?;
    }
    Ok(Bound::Unix(UnixListener::bind(path)?.into_std()?, path.to_owned()))
}

/// Serves until the lifecycle stops and every request has ended; then closes idle connections.
pub async fn serve_connections(acceptor: Acceptor, app: Arc<App>, router: Router) {
    let mut connections = JoinSet::new();
    let mut stopping = pin!(app.lifecycle.reached(Stage::Stopping));
    loop {
        tokio::select! {
            biased;
            () = &mut stopping => break,
            Some(_) = connections.join_next(), if !connections.is_empty() => {}
            accepted = accept(&acceptor) => {
                accept_one(accepted, &app, &router, &mut connections).await;
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

async fn accept_one(
    accepted: std::io::Result<Box<dyn Stream>>,
    app: &Arc<App>,
    router: &Router,
    connections: &mut JoinSet<()>,
) {
    let mut stream = match accepted {
        Ok(stream) => stream,
        Err(error) => {
            tracing::warn!("accept: {error}");
            return tokio::time::sleep(ACCEPT_PAUSE).await;
        }
    };
    let Some(open) = app.connections.enter() else {
        app.serving.metrics.rejected("too_many_connections");
        // A fresh socket's buffer takes these bytes at once, or the client gets a reset.
        let write = async { stream.write_all(FULL).await.and(stream.shutdown().await) };
        let _ = tokio::time::timeout(ACCEPT_PAUSE, write).await;
        return;
    };
    connections.spawn(serve_one(stream, app.clone(), router.clone(), open));
}

async fn serve_one(stream: Box<dyn Stream>, app: Arc<App>, router: Router, _open: OpenConnection) {
    let io = TokioIo::new(StallGuard::new(stream, app.config.http.stall_timeout));
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
