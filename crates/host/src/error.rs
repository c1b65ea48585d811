//! Why something could not be read. Never to be mistaken for zero.

use std::io;
use std::path::{Path, PathBuf};

/// A file of /proc or /sys that gave no answer, and why.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum HostError {
    /// Not there: another kernel, another cgroup version, or the process has ended.
    #[error("{}: not there", .path.display())]
    Missing {
        /// The file.
        path: PathBuf,
    },
    /// There, but not for this user.
    #[error("{}: permission denied", .path.display())]
    Denied {
        /// The file.
        path: PathBuf,
    },
    /// The process ended while it was read.
    #[error("{}: the process is gone", .path.display())]
    Gone {
        /// The file.
        path: PathBuf,
    },
    /// Read, but not in the form that the kernel documents.
    #[error("{}: {what}", .path.display())]
    Malformed {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        what: String,
    },
    /// More than this library reads of such a file.
    #[error("{}: longer than {bound} bytes", .path.display())]
    TooLong {
        /// The file.
        path: PathBuf,
        /// Most bytes that are read.
        bound: usize,
    },
    /// Any other failure of a system call.
    #[error("{}: {message}", .path.display())]
    Io {
        /// The file, or the call.
        path: PathBuf,
        /// As the system words it.
        message: String,
    },
}

impl HostError {
    /// From a system call on `path`.
    pub fn from_io(path: &Path, error: &io::Error) -> HostError {
        let path = path.to_owned();
        match (error.kind(), error.raw_os_error()) {
            (_, Some(libc::ESRCH)) => HostError::Gone { path },
            // A kernel that was started with psi=0 has the files, and answers so.
            (io::ErrorKind::NotFound, _) | (_, Some(libc::ENOTDIR | libc::EOPNOTSUPP)) => {
                HostError::Missing { path }
            }
            (io::ErrorKind::PermissionDenied, _) => HostError::Denied { path },
            _ => HostError::Io { path, message: error.to_string() },
        }
    }

    /// The file was read and is not as documented.
    pub fn malformed(path: impl Into<PathBuf>, what: impl Into<String>) -> HostError {
        HostError::Malformed { path: path.into(), what: what.into() }
    }

    /// Nothing is there (any more), as opposed to: it is there and cannot be read.
    pub fn is_absent(&self) -> bool {
        matches!(self, HostError::Missing { .. } | HostError::Gone { .. })
    }

    /// The user may not read it.
    pub fn is_denied(&self) -> bool {
        matches!(self, HostError::Denied { .. })
    }
}
