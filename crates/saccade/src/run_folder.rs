//! Folders that live as long as one process: its ring, its unpacked model. Their owner holds a lock
//! on the folder itself, which ends with it however it ends; so the next start can tell what a
//! killed server left from what a living one uses, on every process namespace that shares the file
//! system, and removes it.

use std::fs::{File, Metadata, OpenOptions, TryLockError};
use std::io;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::Path;

use tempfile::TempDir;

const PREFIX: &str = "saccade-run-";
/// Where rings are, beside the temporary folder.
const SHARED_MEMORY: &str = "/dev/shm";
/// Leftovers removed at one start; what is beyond goes at the next ones.
const MAX_SWEPT: usize = 256;
/// A sweep of another start may take a new folder for a leftover before its owner has locked it.
const MAX_ATTEMPTS: usize = 8;

/// A folder (mode 0700) of this process; removed when dropped.
#[derive(Debug)]
pub(crate) struct RunFolder {
    folder: TempDir,
    /// Declared last: held until the folder is gone. None: the file system has no locks, and what
    /// is left there is never swept.
    _lock: Option<File>,
}

impl RunFolder {
    /// Makes one below `parent`.
    ///
    /// # Errors
    /// It cannot be made.
    pub fn create(parent: &Path) -> io::Result<RunFolder> {
        for _ in 0..MAX_ATTEMPTS {
            let folder = tempfile::Builder::new().prefix(PREFIX).tempdir_in(parent)?;
            match lock(folder.path()) {
                Ok(Some(lock)) => return Ok(RunFolder { folder, _lock: Some(lock) }),
                Ok(None) => {}
                Err(_) if folder.path().exists() => return Ok(RunFolder { folder, _lock: None }),
                Err(_) => {}
            }
        }
        Err(io::Error::other("other processes remove each new folder"))
    }

    pub fn path(&self) -> &Path {
        self.folder.path()
    }
}

/// Removes what dead processes of this user left, wherever their folders may be: shared memory that
/// they fill would send the next ring elsewhere, and keep them.
pub(crate) fn sweep_all() {
    let temporary = std::env::temp_dir();
    let memory = Path::new(SHARED_MEMORY);
    sweep(memory);
    if temporary != memory {
        sweep(&temporary);
    }
}

/// Removes folders of this user whose owners are dead. What cannot be removed is left: the next
/// start tries again.
fn sweep(parent: &Path) {
    let entries = std::fs::read_dir(parent).into_iter().flatten().flatten();
    let ours = entries.filter(|e| e.file_name().to_string_lossy().starts_with(PREFIX));
    let mut swept = 0;
    for path in ours.map(|entry| entry.path()).filter(|path| is_own_folder(path)).take(MAX_SWEPT) {
        // Held while it is removed, so that no other sweep does the same.
        if let Ok(Some(_lock)) = lock(&path) {
            swept += usize::from(std::fs::remove_dir_all(&path).is_ok());
        }
    }
    if swept > 0 {
        tracing::info!(folders = swept, path = %parent.display(), "removed what dead servers left");
    }
}

fn is_own_folder(path: &Path) -> bool {
    // SAFETY: a system call without arguments, which cannot fail.
    let user = unsafe { libc::geteuid() };
    std::fs::symlink_metadata(path).is_ok_and(|m| m.is_dir() && m.uid() == user)
}

/// Locks the folder at a path. None: another process holds it, or has removed it.
fn lock(path: &Path) -> io::Result<Option<File>> {
    let mut options = OpenOptions::new();
    options.read(true).custom_flags(libc::O_DIRECTORY | libc::O_NOFOLLOW);
    let folder = options.open(path)?;
    match folder.try_lock() {
        Ok(()) => {}
        Err(TryLockError::WouldBlock) => return Ok(None),
        Err(TryLockError::Error(error)) => return Err(error),
    }
    let there = std::fs::symlink_metadata(path);
    let same = there.is_ok_and(|there| folder.metadata().is_ok_and(|own| is_same(&there, &own)));
    Ok(same.then_some(folder))
}

fn is_same(a: &Metadata, b: &Metadata) -> bool {
    (a.dev(), a.ino()) == (b.dev(), b.ino())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_has_no_living_owner_is_swept() {
        let parent = tempfile::tempdir().unwrap();
        let living = RunFolder::create(parent.path()).unwrap();
        std::fs::write(living.path().join("ring"), "x").unwrap();
        let dead = parent.path().join(format!("{PREFIX}dead"));
        std::fs::create_dir(&dead).unwrap();
        std::fs::write(dead.join("ring"), "x").unwrap();
        let (other, file) =
            (parent.path().join("saccade-other"), parent.path().join("saccade-run-f"));
        std::fs::create_dir(&other).unwrap();
        std::fs::write(&file, "x").unwrap();

        sweep(parent.path());
        let next = RunFolder::create(parent.path()).unwrap();
        assert!(!dead.exists());
        assert!(living.path().join("ring").exists() && other.exists() && file.exists());

        let path = living.path().to_owned();
        drop(living);
        assert!(!path.exists() && next.path().exists());
    }
}
