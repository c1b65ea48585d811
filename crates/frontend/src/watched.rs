//! Files that may change while the server runs: they are read again, and what cannot be read
//! changes nothing.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, SystemTime};

use crate::error::FrontendError;
use crate::metrics::Metrics;

/// How often files are looked at.
const WATCH_INTERVAL: Duration = Duration::from_secs(2);

/// What is read from files.
pub trait Watched: Send + Sync {
    /// In messages and as the label `files`.
    fn name(&self) -> &'static str;
    /// Whether there are files at all.
    fn has_files(&self) -> bool;
    /// Reads the files again if one has changed; on an error, nothing has changed.
    fn reload_if_changed(&self) -> Option<Result<(), FrontendError>>;
}

/// Which files, and what they were like before they were read.
pub struct Files {
    paths: Vec<PathBuf>,
    seen: Mutex<Vec<Stamp>>,
}

impl Files {
    /// To be made before they are read: a change meanwhile is found the next time.
    pub fn new(paths: Vec<PathBuf>) -> Self {
        let seen = Mutex::new(paths.iter().map(|path| stamp(path)).collect());
        Self { paths, seen }
    }

    /// Whether there is nothing to look at.
    pub fn is_empty(&self) -> bool {
        self.paths.is_empty()
    }

    /// Whether one has changed since this was last asked.
    pub fn changed(&self) -> bool {
        let now: Vec<Stamp> = self.paths.iter().map(|path| stamp(path)).collect();
        // Plain values, changed in one go: consistent even if a holder died.
        let mut seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        std::mem::replace(&mut *seen, now.clone()) != now
    }
}

/// What changes with a file's content; `None` without a file.
type Stamp = Option<(SystemTime, u64)>;

/// A secret that Kubernetes mounts is a link to a new file: what it leads to is looked at.
fn stamp(file: &Path) -> Stamp {
    let found = std::fs::metadata(file).ok()?;
    Some((found.modified().ok()?, found.len()))
}

/// Reads what has changed again, for ever.
pub async fn watch(mut all: Vec<Arc<dyn Watched>>, metrics: Arc<Metrics>) {
    all.retain(|watched| watched.has_files());
    if all.is_empty() {
        // An idle server is not woken for nothing.
        return std::future::pending().await;
    }
    loop {
        tokio::time::sleep(WATCH_INTERVAL).await;
        for watched in &all {
            look(watched.clone(), &metrics).await;
        }
    }
}

async fn look(watched: Arc<dyn Watched>, metrics: &Metrics) {
    let name = watched.name();
    // A file system that hangs must not hang the reactor.
    match tokio::task::spawn_blocking(move || watched.reload_if_changed()).await {
        Ok(None) => {}
        Ok(Some(Ok(()))) => {
            metrics.reloaded(name, true);
            tracing::info!("{name}: the files were read again");
        }
        Ok(Some(Err(error))) => {
            metrics.reloaded(name, false);
            tracing::error!("{name}: all stays as it was: {error}");
        }
        Err(error) => tracing::error!("{name}: all stays as it was: {error}"),
    }
}
