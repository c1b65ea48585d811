//! The sockets, on a thread of their own.

use std::future::Future;
use std::io;
use std::os::unix::fs::FileTypeExt;
use std::path::Path;
use std::pin::Pin;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use tokio::net::{TcpListener, TcpStream, UnixListener};
use tokio::sync::{Semaphore, watch};

use crate::config::EventsConfig;
use crate::counters::Counters;
use crate::endpoint::Endpoint;
use crate::log::Log;
use crate::zmtp::{PeerError, Stream};
use crate::{replay, subscriber};

/// Connections to a socket at one time.
const MAX_CONNECTIONS: usize = 64;
/// After a failed accept, such as without descriptors.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);
/// Between attempts to connect to a router: the first, and the longest after doubling.
const MIN_RETRY: Duration = Duration::from_millis(100);
const MAX_RETRY: Duration = Duration::from_secs(5);

/// What connections share.
#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) log: Log,
    pub(crate) topic: String,
    /// Batches that a subscriber may be behind.
    pub(crate) hwm: u64,
    /// Batches that are repeated.
    pub(crate) buffer_steps: u64,
    pub(crate) counters: Arc<Counters>,
}

type BoxedStream = Box<dyn Stream>;
type Serve = fn(BoxedStream, Arc<Shared>) -> Pin<Box<dyn Future<Output = Served> + Send>>;
type Served = Result<(), PeerError>;

/// Open sockets. They are closed, with all connections, when this is dropped.
#[derive(Debug)]
pub(crate) struct Sockets {
    stop: watch::Sender<()>,
    thread: Option<JoinHandle<()>>,
    pub(crate) endpoint: Endpoint,
    pub(crate) replay_endpoint: Option<Endpoint>,
}

impl Sockets {
    /// Opens them. The error names the endpoint.
    pub(crate) fn open(
        config: &EventsConfig,
        shared: &Arc<Shared>,
    ) -> Result<Sockets, (Endpoint, io::Error)> {
        let of = |endpoint: &Endpoint| {
            let endpoint = endpoint.clone();
            move |error| (endpoint, error)
        };
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .map_err(of(&config.endpoint))?;
        let _entered = runtime.enter();
        let mut endpoint = config.endpoint.clone();
        let publisher = if endpoint.is_listened_at() {
            let door = runtime.block_on(Door::open(&mut endpoint)).map_err(of(&config.endpoint))?;
            Box::pin(door.serve(shared.clone(), |s, shared| Box::pin(subscriber::serve(s, shared))))
        } else {
            Box::pin(keep_connected(endpoint.clone(), shared.clone()))
                as Pin<Box<dyn Future<Output = ()> + Send>>
        };
        let mut replay_endpoint = config.replay_endpoint.clone();
        let replays: Pin<Box<dyn Future<Output = ()> + Send>> = match &mut replay_endpoint {
            None => Box::pin(std::future::pending()),
            Some(at) => {
                let asked = at.clone();
                let door = runtime.block_on(Door::open(at)).map_err(of(&asked))?;
                Box::pin(door.serve(shared.clone(), |s, shared| Box::pin(replay::serve(s, shared))))
            }
        };
        let (stop, mut stopped) = watch::channel(());
        let work = async move {
            tokio::select! {
                _ = stopped.changed() => {}
                () = publisher => {}
                () = replays => {}
            }
        };
        drop(_entered);
        let thread = std::thread::Builder::new()
            .name("kv events net".into())
            .spawn(move || runtime.block_on(work))
            .map_err(of(&config.endpoint))?;
        Ok(Sockets { stop, thread: Some(thread), endpoint, replay_endpoint })
    }
}

impl Drop for Sockets {
    fn drop(&mut self) {
        self.stop.send_replace(());
        if let Some(thread) = self.thread.take() {
            // A panic there has been reported on its own thread.
            let _ = thread.join();
        }
    }
}

/// Where others connect to.
#[derive(Debug)]
enum Door {
    Tcp(TcpListener),
    Unix(UnixListener),
}

impl Door {
    /// Listens; a port 0 becomes the one that was chosen.
    async fn open(endpoint: &mut Endpoint) -> io::Result<Door> {
        if let Endpoint::Ipc(path) = endpoint {
            remove_left_over(path);
            return UnixListener::bind(path).map(Door::Unix);
        }
        let Some(address) = endpoint.tcp_address() else {
            return Err(io::ErrorKind::AddrNotAvailable.into());
        };
        let listener = TcpListener::bind(address).await?;
        if let Endpoint::Tcp { port, .. } = endpoint {
            *port = listener.local_addr()?.port();
        }
        Ok(Door::Tcp(listener))
    }

    async fn accept(&self) -> io::Result<BoxedStream> {
        Ok(match self {
            Door::Tcp(listener) => Box::new(listener.accept().await.and_then(|(s, _)| prompt(s))?),
            Door::Unix(listener) => Box::new(listener.accept().await?.0),
        })
    }

    async fn serve(self, shared: Arc<Shared>, serve: Serve) {
        let places = Arc::new(Semaphore::new(MAX_CONNECTIONS));
        loop {
            let stream = match self.accept().await {
                Ok(stream) => stream,
                Err(error) => {
                    tracing::warn!(%error, "KV events: a connection could not be accepted");
                    tokio::time::sleep(ACCEPT_PAUSE).await;
                    continue;
                }
            };
            let Ok(place) = places.clone().try_acquire_owned() else {
                shared.counters.refused.add(1);
                continue;
            };
            let shared = shared.clone();
            tokio::spawn(async move {
                report(&shared, serve(stream, shared.clone()).await);
                drop(place);
            });
        }
    }
}

/// A socket file without a listener.
fn remove_left_over(path: &Path) {
    let is_socket = std::fs::symlink_metadata(path).is_ok_and(|m| m.file_type().is_socket());
    if is_socket && std::os::unix::net::UnixStream::connect(path).is_err() {
        // Best effort: if it stays, binding says so.
        let _ = std::fs::remove_file(path);
    }
}

fn prompt(stream: TcpStream) -> io::Result<TcpStream> {
    stream.set_nodelay(true)?;
    Ok(stream)
}

/// Publishes to a router that listens, and connects again whenever the connection ends.
async fn keep_connected(endpoint: Endpoint, shared: Arc<Shared>) {
    let Some(address) = endpoint.tcp_address() else { return };
    let mut retry = MIN_RETRY;
    loop {
        match TcpStream::connect(address).await.and_then(prompt) {
            Ok(stream) => {
                retry = MIN_RETRY;
                report(&shared, subscriber::serve(stream, shared.clone()).await);
            }
            Err(error) => tracing::debug!(%error, %endpoint, "KV events: no router yet"),
        }
        tokio::time::sleep(retry).await;
        retry = (2 * retry).min(MAX_RETRY);
    }
}

fn report(shared: &Shared, served: Served) {
    match served {
        Ok(()) => {}
        // It left.
        Err(PeerError::Io(error)) => tracing::debug!(%error, "KV events: a connection has ended"),
        Err(error) => {
            shared.counters.ended.add(1);
            tracing::debug!(%error, "KV events: a connection was ended");
        }
    }
}
