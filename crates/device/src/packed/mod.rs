//! Packed weights in a file: written once, mapped by every later start with the same model, so that
//! nothing is packed again and processes share one copy in the page cache.
//!
//! The file is mapped rather than copied into memory of our own: kernels that keep files in large
//! folios (ext4 from Linux 6.16, XFS from 5.18) map it in huge pages, like the memory that packing
//! fills; copying costs a first touch of every page. `bench/start.py` measures starts that pack and
//! that map.
//!
//! A file is always created whole: the process that holds the lock on a temporary name writes it
//! there, syncs it and renames it. It never changes afterwards, and a reader trusts it only after
//! its header and the checksum of every chunk agree.

mod header;

use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{self, Write};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc;

use memmap2::{Advice, Mmap};
use saccade_model::Weights;
use twox_hash::{XxHash3_64, XxHash3_128};

use header::{FORMAT_VERSION, Key, Wanted};

/// Most threads that read and check a file.
const MAX_CHECKERS: usize = 8;

/// How a start used its folder of packed weights.
#[derive(Debug)]
pub enum PackedUse {
    /// A file in it is used; nothing was packed.
    Mapped {
        /// The file.
        path: PathBuf,
        /// Its bytes.
        bytes: u64,
        /// Whether its pages are locked in memory. If not (RLIMIT_MEMLOCK), the system may drop
        /// them when memory is short, and a step then waits for the disk.
        locked: bool,
    },
    /// Everything was packed from the model's own files.
    Packed {
        /// Why an existing file was not used.
        refused: Option<String>,
        /// The file that later starts will use and its bytes, or why there is none.
        kept: std::result::Result<(PathBuf, u64), String>,
    },
}

/// One entry of the folder.
pub(crate) struct Entry {
    path: PathBuf,
    wanted: Wanted,
}

/// A file with every byte checked.
pub(crate) struct Mapped {
    pub map: Mmap,
    /// The packed weights within `map`.
    pub payload: std::ops::Range<usize>,
    pub locked: bool,
}

impl Entry {
    /// The entry of this model for a device with packed weights of this layout and size.
    pub fn new(dir: &Path, weights: &Weights, layout: u64, payload_bytes: u64) -> io::Result<Self> {
        let key = key_of(weights, layout)?;
        let path = dir.join(format!("{key:032x}.packed"));
        Ok(Self { path, wanted: Wanted { key, payload_bytes } })
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    pub fn file_bytes(&self) -> u64 {
        self.wanted.file_bytes()
    }

    /// Maps the file, reads all of it into memory and checks it. `Ok(None)` if there is none; an
    /// error says why it cannot be used. `progress` gets the payload bytes checked so far.
    pub fn open(&self, progress: impl FnMut(u64)) -> Result<Option<Mapped>, String> {
        let file = match File::open(&self.path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            file => file.map_err(|error| format!("cannot be opened: {error}"))?,
        };
        let metadata = file.metadata().map_err(|error| format!("has no length: {error}"))?;
        if !metadata.is_file() {
            return Err("is not a file".into());
        }
        if metadata.len() != self.wanted.file_bytes() {
            // Checked before mapping: an empty file cannot be mapped.
            header::parse(&[], metadata.len(), &self.wanted)?;
        }
        // SAFETY: the mapping is read-only. Writers rename a new file into place and never change
        // one (ADR 13 requires the same of other programs), so its bytes and length stay.
        let map = unsafe { Mmap::map(&file) }.map_err(|error| format!("not mapped: {error}"))?;
        // Hints: huge pages where the file system has them, and for what is read from disk.
        map.advise(Advice::HugePage).ok();
        let checksums = header::parse(&map, map.len() as u64, &self.wanted)?;
        self.check_chunks(&map, &checksums, progress)?;
        let locked = map.lock().is_ok();
        let payload = self.wanted.header_bytes() as usize..map.len();
        Ok(Some(Mapped { map, payload, locked }))
    }

    /// Reads every chunk, on several threads, and compares its checksum.
    fn check_chunks(
        &self,
        map: &Mmap,
        checksums: &[u64],
        mut progress: impl FnMut(u64),
    ) -> Result<(), String> {
        let next = AtomicUsize::new(0);
        let check = |results: mpsc::SyncSender<(usize, bool)>| {
            loop {
                // SYNC: none; each index goes to one thread, and results meet in the channel.
                let index = next.fetch_add(1, Ordering::Relaxed);
                let Some(expected) = checksums.get(index) else { return };
                let range = self.wanted.chunk(index);
                // A hint: without it hashing faults the pages in one by one.
                map.advise_range(Advice::PopulateRead, range.start, range.len()).ok();
                let good = XxHash3_64::oneshot(&map[range]) == *expected;
                if results.send((index, good)).is_err() {
                    return;
                }
            }
        };
        let num_threads = std::thread::available_parallelism().map_or(1, usize::from);
        let (sender, results) = mpsc::sync_channel(checksums.len());
        std::thread::scope(|scope| {
            for _ in 0..num_threads.min(MAX_CHECKERS) {
                let sender = sender.clone();
                scope.spawn(|| check(sender));
            }
            drop(sender);
            let mut done_bytes = 0;
            for (index, good) in results {
                if !good {
                    return Err(format!("has a wrong checksum in chunk {index}"));
                }
                done_bytes += self.wanted.chunk(index).len() as u64;
                progress(done_bytes);
            }
            Ok(())
        })
    }

    /// Writes the file: whole or not at all, whatever else happens meanwhile.
    pub fn write(&self, payload: &[u8]) -> Result<(), String> {
        let temporary = self.path.with_extension("tmp");
        let failed = |error: io::Error| format!("{}: {error}", temporary.display());
        let dir = self.path.parent().unwrap_or(Path::new("."));
        fs::create_dir_all(dir).map_err(|error| format!("{}: {error}", dir.display()))?;
        let mut options = OpenOptions::new();
        // Not truncated: another process may be writing it.
        let file = options.write(true).create(true).truncate(false).open(&temporary);
        let mut file = file.map_err(failed)?;
        match file.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => return Err("another process is writing it".into()),
            Err(TryLockError::Error(error)) => return Err(failed(error)),
        }
        // Between opening and locking, the previous writer may have renamed it into place.
        if !names_still(&temporary, &file) {
            return Err("another process has just written it".into());
        }
        let written = self.fill(&mut file, payload).and_then(|()| {
            fs::rename(&temporary, &self.path)?;
            // The rename must survive a power failure too.
            File::open(dir)?.sync_all()
        });
        written.map_err(|error| {
            // Ours: the lock is held. If it stays, the next writer takes it over.
            fs::remove_file(&temporary).ok();
            failed(error)
        })
    }

    fn fill(&self, file: &mut File, payload: &[u8]) -> io::Result<()> {
        file.set_len(0)?; // left by a writer that was killed
        file.set_len(self.wanted.header_bytes())?;
        io::Seek::seek(file, io::SeekFrom::End(0))?;
        let mut checksums = Vec::with_capacity(self.wanted.num_chunks());
        for chunk in payload.chunks(header::CHUNK_BYTES as usize) {
            checksums.push(XxHash3_64::oneshot(chunk));
            file.write_all(chunk)?;
        }
        file.write_all_at(&header::encode(&self.wanted, &checksums), 0)?;
        file.sync_all()
    }
}

/// Whether `path` is the file that was opened.
fn names_still(path: &Path, file: &File) -> bool {
    let place = |metadata: fs::Metadata| (metadata.dev(), metadata.ino());
    let (named, opened) = (fs::metadata(path).map(place), file.metadata().map(place));
    matches!((named, opened), (Ok(a), Ok(b)) if a == b)
}

fn key_of(weights: &Weights, layout: u64) -> io::Result<Key> {
    let mut hash = XxHash3_128::new();
    hash.write(b"saccade packed weights");
    hash.write(&FORMAT_VERSION.to_le_bytes());
    hash.write(&layout.to_le_bytes());
    weights.identify(|bytes| hash.write(bytes))?;
    Ok(hash.finish_128())
}
