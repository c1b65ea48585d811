//! The access log: a line of JSON for each request, when its answer has ended. Lines go through a
//! bounded queue to a thread of their own; what does not fit is dropped and counted, so that a slow
//! disk slows no answer.

use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::time::{Duration, Instant};

use serde::Serialize;

use super::exchange::Ended;

/// Lines that wait for the disk.
const QUEUE_LINES: usize = 4096;
/// Bytes that are written at once.
const BATCH_BYTES: usize = 64 * 1024;
/// How often it is looked whether the file was moved away, as by logrotate.
const LOOK_EVERY: Duration = Duration::from_secs(1);
/// As nginx says it: the client went away before there was an answer.
const CLIENT_GONE: u16 = 499;

/// Where lines go, and which.
#[derive(Debug, Clone, PartialEq)]
pub struct AccessLogConfig {
    /// A file that lines are appended to; `-` is standard error.
    pub path: PathBuf,
    /// Share of the answers below 400 that have a line, above 0 and at most 1. Others all have.
    pub sample_rate: f64,
}

/// The log of one frontend.
pub struct AccessLog {
    lines: SyncSender<Vec<u8>>,
    sample_rate: f64,
    succeeded: AtomicU64,
    dropped: AtomicU64,
}

#[derive(Serialize)]
struct Line<'a> {
    time_unix_s: f64,
    request_id: &'a str,
    method: &'a str,
    path: &'a str,
    status: u16,
    tenant: Option<&'a str>,
    duration_s: f64,
    body_bytes: u64,
    complete: bool,
    prompt_tokens: u64,
    cached_tokens: u64,
    completion_tokens: u64,
}

impl AccessLog {
    /// Opens the file and starts the thread, which ends with the last clone of the log.
    ///
    /// # Errors
    /// If the file cannot be opened, or the system refuses the thread.
    pub fn start(config: &AccessLogConfig) -> io::Result<Self> {
        let sink = Sink::open(config.path.clone())?;
        let (lines, queue) = sync_channel(QUEUE_LINES);
        std::thread::Builder::new().name("access-log".into()).spawn(move || write(&queue, sink))?;
        let (succeeded, dropped) = (AtomicU64::new(0), AtomicU64::new(0));
        Ok(Self { lines, sample_rate: config.sample_rate, succeeded, dropped })
    }

    /// Lines that did not fit the queue.
    pub fn dropped(&self) -> u64 {
        self.dropped.load(Ordering::Relaxed)
    }

    /// Writes the line of a request, or drops it if the disk is too slow.
    pub fn write(&self, ended: &Ended) {
        let tokens = ended.tally.tokens();
        let line = Line {
            time_unix_s: ended.begun_unix.as_secs_f64(),
            request_id: &ended.request_id,
            method: ended.method.as_str(),
            path: &ended.path,
            status: ended.status.unwrap_or(CLIENT_GONE),
            tenant: ended.tenant.as_deref(),
            duration_s: ended.duration.as_secs_f64(),
            body_bytes: ended.body_bytes,
            complete: ended.complete,
            prompt_tokens: tokens.prompt,
            cached_tokens: tokens.cached,
            completion_tokens: tokens.completion,
        };
        // Strings and numbers always serialise.
        let mut text = serde_json::to_vec(&line).unwrap_or_default();
        text.push(b'\n');
        if self.lines.try_send(text).is_err() {
            self.dropped.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Whether an answer with this status has a line; evenly spread, without chance.
    pub fn is_sampled(&self, status: u16) -> bool {
        if status >= 400 {
            return true;
        }
        let before = self.succeeded.fetch_add(1, Ordering::Relaxed) as f64;
        ((before + 1.0) * self.sample_rate).floor() > (before * self.sample_rate).floor()
    }
}

/// The file that is open, and its place in the file system.
struct Sink {
    path: PathBuf,
    /// `None`: standard error.
    file: Option<File>,
    looked: Instant,
}

impl Sink {
    fn open(path: PathBuf) -> io::Result<Self> {
        let file = match path.as_os_str() == "-" {
            true => None,
            false => Some(Self::append_to(&path)?),
        };
        Ok(Self { path, file, looked: Instant::now() })
    }

    fn append_to(path: &std::path::Path) -> io::Result<File> {
        OpenOptions::new().append(true).create(true).open(path)
    }

    /// Reopens the path if its file was moved away.
    fn follow(&mut self) {
        if self.looked.elapsed() < LOOK_EVERY {
            return;
        }
        self.looked = Instant::now();
        let Some(file) = &self.file else { return };
        let inode = |found: io::Result<std::fs::Metadata>| found.map(|m| (m.dev(), m.ino())).ok();
        if inode(std::fs::metadata(&self.path)) != inode(file.metadata())
            && let Ok(file) = Self::append_to(&self.path)
        {
            self.file = Some(file);
        }
    }

    fn write(&mut self, lines: &[u8]) -> io::Result<()> {
        self.follow();
        match &mut self.file {
            Some(file) => file.write_all(lines),
            None => io::stderr().write_all(lines),
        }
    }
}

/// Writes what comes, several lines at a time, until the log is gone.
fn write(queue: &Receiver<Vec<u8>>, mut sink: Sink) {
    let mut failing = false;
    while let Ok(mut batch) = queue.recv() {
        while batch.len() < BATCH_BYTES {
            let Ok(line) = queue.try_recv() else { break };
            batch.extend_from_slice(&line);
        }
        let written = sink.write(&batch);
        if let Err(error) = &written
            && !failing
        {
            tracing::error!("access log: {}: {error}", sink.path.display());
        }
        // Said once per trouble, not per line.
        failing = written.is_err();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn samples_are_even_and_errors_all_have_lines() {
        let (lines, _queue) = sync_channel(1);
        let zero = || AtomicU64::new(0);
        let log = AccessLog { lines, sample_rate: 0.25, succeeded: zero(), dropped: zero() };
        let sampled = (0..100).filter(|_| log.is_sampled(200)).count();
        assert_eq!(sampled, 25);
        assert!((0..10).all(|_| log.is_sampled(429)));
    }
}
