//! Where a store is: `--prefix-store URL`.
//!
//! ```text
//! redis://[[user]:password@]host[:port][,host[:port]...][/db][?cluster=true]    valkey:// is the same
//! rediss://...[?ca=/path.pem]                                                   valkeys:// is the same
//! s3://bucket[/prefix][?endpoint=http://host:port&region=...&ca=/path.pem]
//! file:///folder[?max_bytes=...]
//! memory:[?max_bytes=...]
//! ```
//!
//! All take `ttl_s`, `namespace` and `connections`. User, password, folder and values are
//! percent-encoded.

mod parse;
#[cfg(test)]
mod tests;
mod write;

use std::fmt;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// `redis://` and `rediss://` without a port.
const REDIS_PORT: u16 = 6379;
/// Nodes that a URL of a cluster may give; the cluster tells the others.
const MAX_NODES: usize = 64;
const MAX_TTL_S: u64 = 366 * 24 * 3600;
const MAX_CONNECTIONS: usize = 256;
const DEFAULT_CONNECTIONS: usize = 4;
const DEFAULT_NAMESPACE: &str = "saccade";
const MAX_NAMESPACE: usize = 64;
const DEFAULT_FOLDER_BYTES: u64 = 16 << 30;
const DEFAULT_MEMORY_BYTES: u64 = 1 << 30;
/// Anything longer is no URL of a store.
const MAX_URL: usize = 8192;

/// A store's URL, checked. It prints without its password.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoreUrl {
    pub(crate) place: Place,
    pub(crate) common: Common,
}

impl StoreUrl {
    /// For a metric's label: `redis`, `s3`, `file` or `memory`.
    pub const fn kind(&self) -> &'static str {
        match &self.place {
            Place::Redis(_) => "redis",
            Place::S3(_) => "s3",
            Place::Folder(_) => "file",
            Place::Memory { .. } => "memory",
        }
    }

    /// After which a value is as if it were not there; none: never.
    pub const fn ttl(&self) -> Option<Duration> {
        self.common.ttl
    }

    /// Where a folder store keeps its values; none of other stores. Opening such a store makes it.
    pub fn folder(&self) -> Option<&Path> {
        match &self.place {
            Place::Folder(place) => Some(&place.folder),
            _ => None,
        }
    }

    /// What keys begin with.
    pub fn namespace(&self) -> &str {
        &self.common.namespace
    }
}

/// What every store takes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Common {
    /// Whole seconds.
    pub ttl: Option<Duration>,
    /// Letters, digits, `_`, `.` and `-`: it means the same in a pattern, a path and a key.
    pub namespace: String,
    /// Connections to a node; of a folder, operations at a time.
    pub connections: usize,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Place {
    Redis(RedisPlace),
    S3(S3Place),
    Folder(FolderPlace),
    Memory { max_bytes: u64 },
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct RedisPlace {
    /// At least one; more only of a cluster.
    pub nodes: Vec<Node>,
    pub cluster: bool,
    pub tls: bool,
    /// Of a file; none: the certificates of this machine.
    pub ca: Option<PathBuf>,
    pub user: Option<String>,
    pub password: Option<Secret>,
    pub db: u16,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Node {
    /// A name or an address; of IPv6 without brackets.
    pub host: String,
    pub port: u16,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct S3Place {
    pub bucket: String,
    /// Without slashes at its ends; may be empty.
    pub prefix: String,
    pub endpoint: Option<String>,
    pub region: Option<String>,
    pub ca: Option<PathBuf>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct FolderPlace {
    /// Absolute.
    pub folder: PathBuf,
    pub max_bytes: u64,
}

/// Printed as `***`.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct Secret(pub String);

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("***")
    }
}

/// What is wrong with a URL. It tells nothing that could be a password.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum UrlError {
    /// A part, or the value of a parameter.
    #[error("{field}: not {allowed}")]
    Wrong {
        /// Which.
        field: &'static str,
        /// What may be there.
        allowed: String,
    },
    /// A parameter that this kind of store has not.
    #[error("parameter {name}: not one of {allowed}")]
    Unknown {
        /// As given.
        name: String,
        /// Those that it has.
        allowed: String,
    },
    /// A parameter that was given before.
    #[error("parameter {name}: given twice")]
    Twice {
        /// Which.
        name: &'static str,
    },
}
