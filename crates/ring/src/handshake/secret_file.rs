//! The file that a secret is kept in.

use std::fs::{File, Metadata, OpenOptions};
use std::io::Read;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::SystemTime;

use super::Secret;
use crate::sync::lock;

/// A secret has at least as many bytes: they are expected to be random.
pub const MIN_SECRET_BYTES: u64 = 32;
/// And at most as many: more is some other file.
pub const MAX_SECRET_BYTES: u64 = 4096;

/// Why a file gives no secret.
#[derive(Debug, thiserror::Error, Clone, PartialEq, Eq)]
pub enum SecretError {
    /// The system does not let it be read.
    #[error("{}: {why}", path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// The system's message.
        why: String,
    },
    /// A folder, a pipe or a device.
    #[error("{}: is no file", .0.display())]
    NotAFile(PathBuf),
    /// Others than its owner may read or change it.
    #[error(
        "{0}: its mode is {mode:03o}, must be {most:03o} or less: chmod 600 {0}",
        path.display()
    )]
    NotPrivate {
        /// The file.
        path: PathBuf,
        /// Its permissions.
        mode: u32,
        /// What they may be.
        most: u32,
    },
    /// Too short to be a secret, or too long.
    #[error(
        "{0}: holds {bytes} bytes, must be {MIN_SECRET_BYTES} ..= {MAX_SECRET_BYTES}: \
         head -c 32 /dev/urandom > {0}",
        path.display()
    )]
    Size {
        /// The file.
        path: PathBuf,
        /// What it holds.
        bytes: u64,
    },
}

/// A secret in a file that others than its owner may not access. A file that has changed is read
/// again for the next handshake; connections that exist stay.
#[derive(Debug)]
pub struct SecretFile {
    path: PathBuf,
    known: Mutex<Known>,
}

#[derive(Debug)]
struct Known {
    stamp: Stamp,
    secret: Arc<Secret>,
}

/// What changes with a file's content.
type Stamp = (u64, u64, SystemTime);

impl SecretFile {
    /// Reads the file: all of its bytes are the secret, a line feed at the end included.
    ///
    /// # Errors
    /// [`SecretError`]: what is wrong with the file.
    pub fn open(path: &Path) -> Result<SecretFile, SecretError> {
        let known = Known::read(path)?;
        Ok(SecretFile { path: path.to_owned(), known: Mutex::new(known) })
    }

    /// The secret of now. If the file has changed and cannot be used, this is the last one that it
    /// held, with what is wrong.
    #[must_use]
    pub fn current(&self) -> (Arc<Secret>, Option<SecretError>) {
        let mut known = lock(&self.known);
        // The link may lead to another file by now: what it leads to is looked at.
        let changed = match std::fs::metadata(&self.path) {
            Ok(metadata) => stamp(&metadata) != Some(known.stamp),
            Err(_) => true,
        };
        let trouble = match changed.then(|| Known::read(&self.path)) {
            None => None,
            Some(Err(error)) => Some(error),
            Some(Ok(read)) => {
                *known = read;
                None
            }
        };
        (Arc::clone(&known.secret), trouble)
    }
}

impl Known {
    fn read(path: &Path) -> Result<Known, SecretError> {
        let io = |error: std::io::Error| SecretError::Io {
            path: path.to_owned(),
            why: error.to_string(),
        };
        // Opening a pipe would wait for its other end.
        let file = OpenOptions::new().read(true).custom_flags(libc::O_NONBLOCK).open(path);
        let file = file.map_err(io)?;
        // Of the file that is open, not of one that takes its place meanwhile.
        let metadata = file.metadata().map_err(io)?;
        check(path, &metadata)?;
        let stamp = stamp(&metadata).ok_or_else(|| SecretError::NotAFile(path.to_owned()))?;
        let bytes = read_bounded(file).map_err(io)?;
        check_size(path, bytes.len() as u64)?;
        Ok(Known { stamp, secret: Arc::new(Secret::new(&bytes)) })
    }
}

fn stamp(metadata: &Metadata) -> Option<Stamp> {
    Some((metadata.ino(), metadata.len(), metadata.modified().ok()?))
}

fn read_bounded(file: File) -> std::io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    file.take(MAX_SECRET_BYTES + 1).read_to_end(&mut bytes)?;
    Ok(bytes)
}

fn check(path: &Path, metadata: &Metadata) -> Result<(), SecretError> {
    if !metadata.is_file() {
        return Err(SecretError::NotAFile(path.to_owned()));
    }
    let (mode, most) = (metadata.permissions().mode() & 0o777, most_mode(metadata.uid()));
    if mode & 0o077 & !most != 0 {
        return Err(SecretError::NotPrivate { path: path.to_owned(), mode, most });
    }
    check_size(path, metadata.len())
}

/// A group may read what root hands to it, as an orchestrator does that mounts secrets.
fn most_mode(owner: u32) -> u32 {
    if owner == 0 { 0o640 } else { 0o600 }
}

fn check_size(path: &Path, bytes: u64) -> Result<(), SecretError> {
    if (MIN_SECRET_BYTES..=MAX_SECRET_BYTES).contains(&bytes) {
        return Ok(());
    }
    Err(SecretError::Size { path: path.to_owned(), bytes })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_root_may_share_a_secret_with_a_group() {
        assert_eq!((most_mode(0), most_mode(1000)), (0o640, 0o600));
    }
}
