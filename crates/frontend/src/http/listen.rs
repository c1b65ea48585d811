//! The listening socket: made once, by a frontend plane that runs alone or by the supervisor of
//! several, which all accept from it. So a plane that restarts takes over the connections that
//! wait, and one that hangs takes none.

use std::fs::{File, Metadata, TryLockError};
use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use socket2::{Domain, SockAddr, Socket, Type};

use crate::config::Listen;
use crate::error::FrontendError;

/// Connections that the system may hold for us before they are accepted.
const BACKLOG: i32 = 4096;
/// Bytes of a connection that the kernel holds unsent. With more, the device would not notice a
/// client that does not read: whole answers would wait in the kernel, computed for no reader in the
/// same batch as those of clients that do read. Bytes on their way to a reader do not count.
pub(super) const UNSENT_BYTES: u32 = 16 * 1024;

/// An address that is taken may be free in a moment: the planes of a server that was killed end
/// after it, and have its socket until then.
const TAKEN_PAUSE: Duration = Duration::from_millis(50);
const MAX_TAKEN_PAUSES: usize = 20;

/// A socket that listens, and the file that it owns, if any; dropped, the file is removed.
#[derive(Debug)]
pub struct Listening {
    socket: Socket,
    _file: Option<SocketFile>,
}

impl Listening {
    /// Binds and listens. A socket file that no server listens at is replaced.
    ///
    /// # Errors
    /// [`FrontendError::Listen`] with the address: it is taken, by another server or by a file that
    /// is no socket, or the system refused.
    pub fn bind(listen: &Listen) -> Result<Listening, FrontendError> {
        let bind = || match listen {
            Listen::Tcp(address) => bind_tcp(*address),
            Listen::Unix(path) => bind_unix(path),
            Listen::Inherited(socket) => inherit(socket),
        };
        let address = || match listen {
            Listen::Tcp(address) => address.to_string(),
            Listen::Unix(path) => format!("unix:{}", path.display()),
            Listen::Inherited(_) => "an inherited socket".into(),
        };
        let mut bound = bind();
        for _ in 0..MAX_TAKEN_PAUSES {
            match &bound {
                Err(error) if error.kind() == io::ErrorKind::AddrInUse => {
                    std::thread::sleep(TAKEN_PAUSE);
                    bound = bind();
                }
                _ => break,
            }
        }
        bound.map_err(|source| FrontendError::Listen { address: address(), source })
    }

    /// Where it listens, in readable form.
    #[must_use]
    pub fn address(&self) -> String {
        match self.socket.local_addr() {
            Err(error) => error.to_string(),
            Ok(address) => match (address.as_socket(), address.as_pathname()) {
                (Some(address), _) => format!("http://{address}"),
                (None, Some(path)) => format!("unix:{}", path.display()),
                (None, None) => "an unnamed socket".into(),
            },
        }
    }

    /// The TCP address, if it is one.
    pub fn tcp_addr(&self) -> Option<SocketAddr> {
        self.socket.local_addr().ok()?.as_socket()
    }

    /// Another descriptor of the same socket.
    pub(super) fn try_clone(&self) -> io::Result<Socket> {
        self.socket.try_clone()
    }
}

impl AsFd for Listening {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

fn bind_tcp(address: SocketAddr) -> io::Result<Listening> {
    let socket = Socket::new(Domain::for_address(address), Type::STREAM.nonblocking(), None)?;
    // A restarted server must not wait for the old one's connections to time out.
    socket.set_reuse_address(true)?;
    // Connections inherit it.
    socket.set_tcp_notsent_lowat(UNSENT_BYTES)?;
    socket.bind(&address.into())?;
    socket.listen(BACKLOG)?;
    Ok(Listening { socket, _file: None })
}

/// The socket behind a descriptor that another process made.
fn inherit(descriptor: &Arc<OwnedFd>) -> io::Result<Listening> {
    let socket = Socket::from(descriptor.try_clone()?);
    if !socket.is_listener()? {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "it is no listening socket"));
    }
    socket.set_nonblocking(true)?;
    Ok(Listening { socket, _file: None })
}

fn bind_unix(path: &Path) -> io::Result<Listening> {
    let address = SockAddr::unix(path)?;
    // Two servers that start together must not each take the other's new socket for a dead one's.
    let _turn = take_turn(path);
    clear(path, &address)?;
    let socket = Socket::new(Domain::UNIX, Type::STREAM.nonblocking(), None)?;
    socket.bind(&address)?;
    let file = SocketFile::at(path)?;
    socket.listen(BACKLOG)?;
    Ok(Listening { socket, _file: Some(file) })
}

/// How long to wait for the end of another server's turn, which takes microseconds.
const TURN_PAUSE: Duration = Duration::from_millis(5);
const MAX_TURN_PAUSES: usize = 200;

/// Holds other servers back from sockets of this folder. Without it (the folder cannot be opened,
/// its file system has no locks, another process keeps it) only a start at the same instant is not
/// noticed.
fn take_turn(path: &Path) -> Option<File> {
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
    let folder = File::open(folder.unwrap_or(Path::new("."))).ok()?;
    for _ in 0..MAX_TURN_PAUSES {
        match folder.try_lock() {
            Ok(()) => return Some(folder),
            Err(TryLockError::WouldBlock) => std::thread::sleep(TURN_PAUSE),
            Err(TryLockError::Error(_)) => return None,
        }
    }
    None
}

/// Makes room at the path: removes a socket that no server listens at.
fn clear(path: &Path, address: &SockAddr) -> io::Result<()> {
    let metadata = match std::fs::symlink_metadata(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        other => other?,
    };
    let taken = |why: &str| Err(io::Error::new(io::ErrorKind::AddrInUse, why));
    if !metadata.file_type().is_socket() {
        return taken("a file that is no socket is there");
    }
    // Only a refusal proves that no server listens. A full backlog (EAGAIN) is a living server's.
    let probe = Socket::new(Domain::UNIX, Type::STREAM.nonblocking(), None)?;
    match probe.connect(address) {
        Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => {
            tracing::info!(path = %path.display(), "the socket of a dead server is replaced");
            std::fs::remove_file(path)
        }
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied => Err(error),
        _ => taken("another server listens there"),
    }
}

/// The file of a UNIX socket that this process made; removed when dropped, unless another has taken
/// its place.
#[derive(Debug)]
struct SocketFile {
    path: PathBuf,
    identity: (u64, u64),
    owner: u32,
}

impl SocketFile {
    fn at(path: &Path) -> io::Result<SocketFile> {
        let identity = identity(&std::fs::symlink_metadata(path)?);
        Ok(SocketFile { path: path.into(), identity, owner: std::process::id() })
    }
}

impl Drop for SocketFile {
    fn drop(&mut self) {
        let now = std::fs::symlink_metadata(&self.path).ok().map(|metadata| identity(&metadata));
        if now == Some(self.identity) && self.owner == std::process::id() {
            // It may have been removed already.
            let _ = std::fs::remove_file(&self.path);
        }
    }
}

fn identity(metadata: &Metadata) -> (u64, u64) {
    (metadata.dev(), metadata.ino())
}
