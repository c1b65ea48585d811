//! Where /proc and /sys are: `/` on a machine, a folder in tests.

use std::fs::{self, File};
use std::io::Read;
use std::path::{Path, PathBuf};

use crate::HostError;

/// Bytes read of a file unless its reader says otherwise.
pub const MAX_FILE_BYTES: usize = 1 << 20;
/// Entries read of a folder: more than any limit of threads or files that is set in practice.
pub const MAX_ENTRIES: usize = 1 << 18;

/// The folder that holds `proc` and `sys`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Root(PathBuf);

impl Default for Root {
    fn default() -> Root {
        Root(PathBuf::from("/"))
    }
}

impl Root {
    /// A tree other than the machine's own, e.g. `/host` in a container, or a scripted one.
    pub fn at(folder: impl Into<PathBuf>) -> Root {
        Root(folder.into())
    }

    /// Whether this is the machine's own tree, where system calls tell of the same machine.
    pub fn is_own(&self) -> bool {
        self.0 == Path::new("/")
    }

    /// `path` (with or without a leading slash) below the root.
    pub fn path(&self, path: impl AsRef<Path>) -> PathBuf {
        let path = path.as_ref();
        self.0.join(path.strip_prefix("/").unwrap_or(path))
    }

    /// A whole file.
    ///
    /// # Errors
    /// Unreadable, or longer than [`MAX_FILE_BYTES`].
    pub fn read(&self, path: impl AsRef<Path>) -> Result<Vec<u8>, HostError> {
        let (bytes, complete) = self.read_up_to(path.as_ref(), MAX_FILE_BYTES)?;
        if complete {
            return Ok(bytes);
        }
        Err(HostError::TooLong { path: path.as_ref().to_owned(), bound: MAX_FILE_BYTES })
    }

    /// The first `bound` bytes of a file, and whether that was all.
    ///
    /// # Errors
    /// Unreadable.
    pub fn read_up_to(
        &self,
        path: impl AsRef<Path>,
        bound: usize,
    ) -> Result<(Vec<u8>, bool), HostError> {
        let full = self.path(path);
        let mut bytes = Vec::new();
        File::open(&full)
            .and_then(|file| file.take(bound as u64 + 1).read_to_end(&mut bytes))
            .map_err(|e| HostError::from_io(&full, &e))?;
        let complete = bytes.len() <= bound;
        bytes.truncate(bound);
        Ok((bytes, complete))
    }

    /// A whole file as text; bytes that are not UTF-8 are replaced.
    ///
    /// # Errors
    /// As [`Root::read`].
    pub fn text(&self, path: impl AsRef<Path>) -> Result<String, HostError> {
        Ok(String::from_utf8_lossy(&self.read(path)?).into_owned())
    }

    /// A file that holds one number.
    ///
    /// # Errors
    /// Unreadable, or not a number.
    pub fn number<T: std::str::FromStr>(&self, path: impl AsRef<Path>) -> Result<T, HostError> {
        let text = self.text(path.as_ref())?;
        text.trim().parse().map_err(|_| {
            HostError::malformed(self.path(path), format!("{:?} is not a number", clip(&text)))
        })
    }

    /// Names in a folder, in no order, at most [`MAX_ENTRIES`].
    ///
    /// # Errors
    /// The folder cannot be opened.
    pub fn names(&self, path: impl AsRef<Path>) -> Result<Vec<String>, HostError> {
        let full = self.path(path);
        let entries = fs::read_dir(&full).map_err(|e| HostError::from_io(&full, &e))?;
        // An entry that fails is one that has just gone.
        let names = entries.take(MAX_ENTRIES).flatten();
        Ok(names.map(|e| e.file_name().to_string_lossy().into_owned()).collect())
    }

    /// The numeric names in a folder (pids, tids, descriptors), sorted.
    ///
    /// # Errors
    /// The folder cannot be opened.
    pub fn numbers(&self, path: impl AsRef<Path>) -> Result<Vec<u32>, HostError> {
        let mut numbers: Vec<u32> =
            self.names(path)?.iter().filter_map(|name| name.parse().ok()).collect();
        numbers.sort_unstable();
        Ok(numbers)
    }

    /// What a symbolic link says (not what it leads to).
    ///
    /// # Errors
    /// Not a link, or not readable.
    pub fn link(&self, path: impl AsRef<Path>) -> Result<PathBuf, HostError> {
        let full = self.path(path);
        fs::read_link(&full).map_err(|e| HostError::from_io(&full, &e))
    }

    /// Whether something is there.
    pub fn exists(&self, path: impl AsRef<Path>) -> bool {
        self.path(path).exists()
    }
}

/// The beginning of a text, for messages.
pub(crate) fn clip(text: &str) -> &str {
    const SHOWN: usize = 40;
    match text.char_indices().nth(SHOWN) {
        Some((end, _)) => &text[..end],
        None => text,
    }
}
