//! A region in a shared-memory file, for planes that are processes of one host.

use std::fs::{File, OpenOptions, TryLockError};
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::ptr::NonNull;
use std::sync::Arc;
use std::time::Duration;

use crate::layout::SAC_MAGIC;
use crate::memory::{Memory, memory_transport};
use crate::region::{RegionError, RegionLimits, write_header};
use crate::transport::{Transport, TransportError};

/// Owns a mapping of a whole file.
#[derive(Debug)]
struct Mapping {
    memory: Memory,
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: mapped with this length in `map`, unmapped once here.
        unsafe { libc::munmap(self.memory.base().cast(), self.memory.len() as usize) };
    }
}

/// A mapped region file. Clones share the mapping.
#[derive(Clone, Debug)]
pub struct ShmTransport {
    mapping: Arc<Mapping>,
}

impl ShmTransport {
    /// Maps an existing region file for reading and writing. The header is validated by the join,
    /// not here.
    ///
    /// # Errors
    /// [`RegionError::Io`] naming the path when it cannot be opened or mapped, or is no plain file;
    /// [`RegionError::TooSmall`] when it cannot hold a header.
    pub fn open(path: &Path) -> Result<ShmTransport, RegionError> {
        let file = OpenOptions::new()
            .read(true)
            .write(true)
            .custom_flags(libc::O_NOFOLLOW | libc::O_CLOEXEC)
            .open(path)
            .map_err(|source| RegionError::io("open", path, source))?;
        let metadata = file.metadata().map_err(|source| RegionError::io("stat", path, source))?;
        if !metadata.is_file() {
            let source = io::Error::from(io::ErrorKind::InvalidInput);
            return Err(RegionError::io("map (not a plain file)", path, source));
        }
        let len = metadata.len();
        let least = size_of::<crate::layout::RegionHeader>() as u64;
        if len < least || usize::try_from(len).is_err() {
            return Err(RegionError::TooSmall { path: path.into(), len, least });
        }
        map(&file, path, len as usize)
    }

    /// Start of the mapping; valid while a clone lives. Access it by atomics only.
    #[must_use]
    pub fn base_ptr(&self) -> *mut u8 {
        self.mapping.memory.base()
    }
}

impl Transport for ShmTransport {
    memory_transport!(mapping);
}

fn map(file: &File, path: &Path, len: usize) -> Result<ShmTransport, RegionError> {
    let protection = libc::PROT_READ | libc::PROT_WRITE;
    // SAFETY: a fresh mapping at an address of the kernel's choice; the descriptor is open.
    let base = unsafe {
        libc::mmap(std::ptr::null_mut(), len, protection, libc::MAP_SHARED, file.as_raw_fd(), 0)
    };
    if base == libc::MAP_FAILED {
        return Err(RegionError::io("map", path, io::Error::last_os_error()));
    }
    let Some(base) = NonNull::new(base.cast::<u8>()) else {
        return Err(RegionError::io("map", path, io::Error::from(io::ErrorKind::OutOfMemory)));
    };
    // SAFETY: page-aligned, `len` bytes, mapped until `Mapping` drops. The creator keeps the file
    // at its size; if it is truncated anyway, the kernel ends the process with SIGBUS, and no
    // access here is worse than that.
    let memory = unsafe { Memory::new(base, len) };
    Ok(ShmTransport { mapping: Arc::new(Mapping { memory }) })
}

/// A region file and its creator's mapping; the file is removed when the creator drops it. The
/// creator holds a lock on the file while it lives, so that one left by a dead creator is known.
#[derive(Debug)]
pub struct Region {
    path: PathBuf,
    transport: ShmTransport,
    creator_pid: u32,
    _lock: File,
}

impl Region {
    /// Creates `path` (mode 0600), in the place of a region whose creator is dead, reserves all of
    /// its pages so that a full file system is an error here and not a SIGBUS later, and writes the
    /// header, magic last.
    ///
    /// # Errors
    /// A limit out of bounds, or [`RegionError::Io`] with the step, the path and the cause.
    pub fn create(path: &Path, limits: &RegionLimits) -> Result<Region, RegionError> {
        let layout = limits.layout()?;
        let file = match create_new(path) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
                remove_leftover(path)?;
                create_new(path)
            }
            other => other,
        };
        let file = file.map_err(|source| RegionError::io("create", path, source))?;
        // Where there are no locks, what a dead creator leaves stays until someone removes it.
        let _ = file.try_lock();
        let built = reserve(&file, path, layout.region_bytes())
            .and_then(|()| map(&file, path, layout.region_bytes() as usize))
            .and_then(|transport| write_header(&transport, &layout).map(|()| transport));
        match built {
            Ok(transport) => Ok(Region {
                path: path.into(),
                transport,
                creator_pid: std::process::id(),
                _lock: file,
            }),
            Err(error) => {
                // Best effort: the error that led here is the one to report.
                let _ = std::fs::remove_file(path);
                Err(error)
            }
        }
    }

    /// Where the file is.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The creator's mapping.
    #[must_use]
    pub fn transport(&self) -> ShmTransport {
        self.transport.clone()
    }
}

impl Drop for Region {
    fn drop(&mut self) {
        // A forked child that unwinds must not take the file from under its parent.
        if std::process::id() == self.creator_pid {
            // Best effort: the file may already be gone, and no caller could act on an error.
            let _ = std::fs::remove_file(&self.path);
        }
    }
}

fn create_new(path: &Path) -> io::Result<File> {
    OpenOptions::new()
        .read(true)
        .write(true)
        .create_new(true)
        .mode(0o600)
        .custom_flags(libc::O_NOFOLLOW | libc::O_CLOEXEC)
        .open(path)
}

/// Removes the region at `path` if its creator is dead. Its magic shows that it is one, and is
/// written when its creator holds the lock.
fn remove_leftover(path: &Path) -> Result<(), RegionError> {
    let fails = |step| move |source| RegionError::io(step, path, source);
    let mut options = OpenOptions::new();
    options.read(true).write(true).custom_flags(libc::O_NOFOLLOW | libc::O_NONBLOCK);
    let file = options.open(path).map_err(fails("create, and open what is there at"))?;
    let mut magic = [0; 8];
    let read = file.read_exact_at(&mut magic, 0);
    if read.is_err() || u64::from_ne_bytes(magic) != SAC_MAGIC {
        let source = io::Error::from(io::ErrorKind::AlreadyExists);
        return Err(RegionError::io("create (what is there is no region)", path, source));
    }
    match file.try_lock() {
        // Another creator may have replaced it since it was opened, and let go of the dead one.
        Ok(()) if !is_at(&file, path) => Ok(()),
        Ok(()) => std::fs::remove_file(path).map_err(fails("remove the dead")),
        Err(TryLockError::WouldBlock) => {
            let source = io::Error::from(io::ErrorKind::AlreadyExists);
            Err(RegionError::io("create (a living server has a region there)", path, source))
        }
        Err(TryLockError::Error(source)) => Err(RegionError::io("lock", path, source)),
    }
}

fn is_at(file: &File, path: &Path) -> bool {
    let identity = |metadata: std::fs::Metadata| (metadata.dev(), metadata.ino());
    let there = std::fs::symlink_metadata(path).map(identity);
    there.is_ok_and(|there| file.metadata().map(identity).is_ok_and(|own| own == there))
}

/// Sizes the file and reserves its pages.
fn reserve(file: &File, path: &Path, bytes: u64) -> Result<(), RegionError> {
    let Ok(bytes) = libc::off_t::try_from(bytes) else {
        return Err(RegionError::io("reserve", path, io::Error::from_raw_os_error(libc::EFBIG)));
    };
    // SAFETY: a call on an open descriptor.
    match unsafe { libc::posix_fallocate(file.as_raw_fd(), 0, bytes) } {
        0 => Ok(()),
        code => Err(RegionError::io("reserve", path, io::Error::from_raw_os_error(code))),
    }
}

/// Where region files go unless told otherwise: `/dev/shm` if it is a directory that can hold
/// `bytes`, else the temporary directory.
#[must_use]
pub fn default_region_dir(bytes: u64) -> PathBuf {
    let shm = Path::new("/dev/shm");
    if free_bytes(shm).is_some_and(|free| free >= bytes) {
        shm.into()
    } else {
        std::env::temp_dir()
    }
}

/// Bytes free to this user under `dir`; `None` if it is not a directory that we can write.
fn free_bytes(dir: &Path) -> Option<u64> {
    use std::os::unix::ffi::OsStrExt;
    let name = std::ffi::CString::new(dir.as_os_str().as_bytes()).ok()?;
    // SAFETY: a NUL-terminated name; both calls only read it.
    let writable = unsafe { libc::access(name.as_ptr(), libc::W_OK | libc::X_OK) } == 0;
    // SAFETY: statvfs is plain data, for which zero bytes are a value.
    let mut stat: libc::statvfs = unsafe { std::mem::zeroed() };
    // SAFETY: the name is NUL-terminated and `stat` is a valid place to write to.
    let known = unsafe { libc::statvfs(name.as_ptr(), &mut stat) } == 0;
    (writable && known).then(|| stat.f_bavail.saturating_mul(stat.f_frsize))
}
