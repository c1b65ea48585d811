//! A folder, on a disk or mounted from elsewhere. Many processes may share one.
//!
//! A value is in `namespace/model/salt/first two digits of the name/name`. It was stored when the
//! file was modified, and last used when the file was accessed: reads set that themselves, as
//! most mounts do not.

mod room;
mod walk;

use std::fs::{self, File, FileTimes, OpenOptions};
use std::io::{self, Read, Write};
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::{Duration, SystemTime};

use bytes::Bytes;
use tokio::sync::{Semaphore, mpsc};

use crate::batch::{in_order, tell_all};
use crate::trouble::words;
use crate::url::{Common, FolderPlace};
use crate::{Entry, Filter, Found, Key, Listing, OpenError, Put, Trouble};
use room::Room;
use walk::{Item, walk};

/// Ends the names of files that are being written.
const TEMPORARY: &str = ".tmp";
/// Folders that another process removed between our making them and writing there.
const TRIES: usize = 4;
/// Entries of a listing that are told at a time.
const PAGE: usize = 256;

#[derive(Debug, Clone)]
pub(crate) struct Folder(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    root: PathBuf,
    common: Common,
    room: Room,
    /// Held by the thread that works, not by the caller: a mount that hangs keeps a bounded number
    /// of threads.
    threads: Arc<Semaphore>,
    written: AtomicU64,
}

impl Folder {
    pub(crate) fn open(place: &FolderPlace, common: Common) -> Result<Self, OpenError> {
        let root = place.folder.join(&common.namespace);
        fs::create_dir_all(&root).map_err(|source| OpenError::Folder {
            path: place.folder.display().to_string(),
            source,
        })?;
        let room = Room::new(place.max_bytes);
        let threads = Arc::new(Semaphore::new(common.connections));
        Ok(Self(Arc::new(Inner { root, common, room, threads, written: AtomicU64::new(0) })))
    }

    /// Does `work` on a thread that may wait for a disk.
    async fn work<T: Send + 'static>(
        &self,
        work: impl FnOnce(&Inner) -> io::Result<T> + Send + 'static,
    ) -> Result<T, Trouble> {
        let inner = self.0.clone();
        let permit = inner.threads.clone().acquire_owned().await.map_err(|e| lost(&e))?;
        let done = tokio::task::spawn_blocking(move || {
            let _permit = permit;
            work(&inner)
        });
        done.await.map_err(|error| lost(&error))?.map_err(|error| trouble(&error))
    }

    pub(crate) async fn exist(&self, keys: &[Key]) -> Result<Vec<bool>, Trouble> {
        let keys = keys.to_vec();
        self.work(move |inner| {
            keys.iter().map(|key| Ok(inner.find(&inner.path(key))?.is_some())).collect()
        })
        .await
    }

    pub(crate) async fn get_many(
        &self,
        keys: &[Key],
        max_bytes: usize,
        tell: impl FnMut(usize, Found) -> ControlFlow<()>,
    ) -> Result<(), Trouble> {
        let read = keys
            .iter()
            .map(|key| self.0.path(key))
            .map(async |path| self.work(move |inner| inner.read(&path, max_bytes)).await);
        tell_all(in_order(read, self.0.common.connections), tell).await
    }

    pub(crate) async fn put(&self, key: &Key, value: Bytes) -> Result<Put, Trouble> {
        let path = self.0.path(key);
        if self.0.there(self, &path).await? {
            return Ok(Put::Already);
        }
        if !self.0.room.take(value.len() as u64, || self.sweep()).await {
            return Ok(Put::Full);
        }
        self.work(move |inner| match inner.write(&path, &value) {
            Ok(()) => Ok(Put::Stored),
            Err(error) if is_full(&error) => Ok(Put::Full),
            Err(error) => Err(error),
        })
        .await
    }

    /// Makes room in the background: a put does not wait for it long.
    fn sweep(&self) {
        let folder = self.clone();
        tokio::task::spawn_blocking(move || {
            let inner = &folder.0;
            inner.room.sweep(&inner.root, inner.common.ttl);
        });
    }

    pub(crate) async fn remove(&self, keys: &[Key]) -> Result<(), Trouble> {
        let keys = keys.to_vec();
        self.work(move |inner| keys.iter().try_for_each(|key| remove(&inner.path(key)))).await
    }

    pub(crate) async fn list(
        &self,
        filter: &Filter,
        mut tell: impl FnMut(Entry) -> ControlFlow<()>,
    ) -> Result<Listing, Trouble> {
        let (send, mut pages) = mpsc::channel(2);
        let filter = *filter;
        let walked = self.work(move |inner| inner.walk(&filter, &send));
        let mut listing = Listing::default();
        let told = async {
            while let Some(page) = pages.recv().await {
                for entry in page {
                    if listing.tell(entry, &mut tell).is_break() {
                        // The walk ends when its pages are no longer read.
                        return pages.close();
                    }
                }
            }
        };
        let (foreign, ()) = futures_util::future::join(walked, told).await;
        listing.foreign = foreign?;
        Ok(listing)
    }
}

impl Inner {
    fn path(&self, key: &Key) -> PathBuf {
        let name = key.name.to_string();
        let salt = format!("{:016x}", key.salt);
        let folders = [&key.model.to_string(), &salt, &name[..2], &name];
        self.root.join(folders.iter().collect::<PathBuf>())
    }

    async fn there(&self, folder: &Folder, path: &Path) -> Result<bool, Trouble> {
        let path = path.to_owned();
        folder.work(move |inner| Ok(inner.find(&path)?.is_some())).await
    }

    /// The length of a value that has not expired.
    fn find(&self, path: &Path) -> io::Result<Option<u64>> {
        match fs::symlink_metadata(path) {
            Ok(metadata) if !metadata.is_file() || metadata.len() == 0 => Ok(None),
            Ok(metadata) if is_over(self.common.ttl, metadata.modified()?) => Ok(None),
            Ok(metadata) => Ok(Some(metadata.len())),
            Err(error) if is_absent(&error) => Ok(None),
            Err(error) => Err(error),
        }
    }

    fn read(&self, path: &Path, max_bytes: usize) -> io::Result<Found> {
        let Some(bytes) = self.find(path)? else { return Ok(Found::Absent) };
        if bytes > max_bytes as u64 {
            return Ok(Found::TooLarge);
        }
        let file = match File::open(path) {
            Ok(file) => file,
            Err(error) if is_absent(&error) => return Ok(Found::Absent),
            Err(error) => return Err(error),
        };
        let mut value = Vec::with_capacity(bytes as usize);
        (&file).take(max_bytes as u64 + 1).read_to_end(&mut value)?;
        if value.len() > max_bytes {
            return Ok(Found::TooLarge);
        }
        // A folder that we may only read has no order of use.
        let _ = file.set_times(FileTimes::new().set_accessed(SystemTime::now()));
        Ok(Found::Value(value.into()))
    }

    /// Under another name first: a file of the right name is whole. It is not forced to the disk:
    /// the checksum tells a value that a power failure cut.
    fn write(&self, path: &Path, value: &[u8]) -> io::Result<()> {
        let number = self.written.fetch_add(1, Relaxed);
        let temporary = format!(".{}.{number}{TEMPORARY}", std::process::id());
        let mut temporary_path = path.as_os_str().to_owned();
        temporary_path.push(temporary);
        let temporary = PathBuf::from(temporary_path);
        let result = create(&temporary)
            .and_then(|mut file| file.write_all(value))
            .and_then(|()| fs::rename(&temporary, path));
        if result.is_err() {
            let _ = fs::remove_file(&temporary);
        }
        result
    }

    fn walk(&self, filter: &Filter, pages: &mpsc::Sender<Vec<Entry>>) -> io::Result<u64> {
        let (mut foreign, mut page) = (0, Vec::new());
        let now = SystemTime::now();
        walk(&self.root, &mut |item| {
            match item {
                Item::Value { key, metadata, .. } if filter.takes(&key) => {
                    let modified = metadata.modified()?;
                    if is_over(self.common.ttl, modified) {
                        return Ok(ControlFlow::Continue(()));
                    }
                    let age = now.duration_since(modified).ok();
                    page.push(Entry { key, bytes: metadata.len(), age });
                }
                Item::Foreign => foreign += 1,
                Item::Value { .. } | Item::Temporary { .. } => {}
            }
            if page.len() == PAGE && pages.blocking_send(std::mem::take(&mut page)).is_err() {
                return Ok(ControlFlow::Break(()));
            }
            Ok(ControlFlow::Continue(()))
        })?;
        let _ = pages.blocking_send(page);
        Ok(foreign)
    }
}

/// The file, and the folders above it. A sweep removes folders that have become empty.
fn create(path: &Path) -> io::Result<File> {
    let mut tries = 0;
    loop {
        match OpenOptions::new().write(true).create_new(true).open(path) {
            Err(error) if is_absent(&error) && tries < TRIES => tries += 1,
            result => return result,
        }
        if let Some(folder) = path.parent() {
            fs::create_dir_all(folder)?;
        }
    }
}

fn remove(path: &Path) -> io::Result<()> {
    match fs::remove_file(path) {
        Err(error) if is_absent(&error) => Ok(()),
        result => result,
    }
}

fn is_over(ttl: Option<Duration>, modified: SystemTime) -> bool {
    let age = SystemTime::now().duration_since(modified).unwrap_or_default();
    ttl.is_some_and(|ttl| age >= ttl)
}

fn is_absent(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory)
}

fn is_full(error: &io::Error) -> bool {
    use io::ErrorKind::{FileTooLarge, QuotaExceeded, StorageFull};
    matches!(error.kind(), StorageFull | QuotaExceeded | FileTooLarge)
}

fn trouble(error: &io::Error) -> Trouble {
    use io::ErrorKind::{PermissionDenied, ReadOnlyFilesystem};
    match error.kind() {
        PermissionDenied | ReadOnlyFilesystem => Trouble::Refused(words(error)),
        _ => Trouble::Io(words(error)),
    }
}

/// The runtime ends.
fn lost(error: &impl ToString) -> Trouble {
    Trouble::Io(words(error))
}
