//! The access log: a line of JSON for each request, when its answer has ended. Lines go through a
//! bounded queue to a thread of their own; what does not fit is dropped and counted, so that a slow
//! disk slows no answer.

use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::task::{Context, Poll};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use axum::body::{Body, HttpBody};
use axum::response::Response;
use bytes::Bytes;
use hyper::body::{Frame, SizeHint};
use serde::Serialize;

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

/// What is counted while an answer is made.
#[derive(Debug, Default)]
pub struct Tally {
    prompt_tokens: AtomicU64,
    cached_tokens: AtomicU64,
    completion_tokens: AtomicU64,
}

impl Tally {
    /// Tokens of the request's prompts, of those the cached ones, and what was produced.
    pub fn note(&self, prompt: u64, cached: u64, completion: u64) {
        // SYNC: read after the generation was dropped, by the same task.
        self.prompt_tokens.store(prompt, Ordering::Relaxed);
        self.cached_tokens.store(cached, Ordering::Relaxed);
        self.completion_tokens.store(completion, Ordering::Relaxed);
    }
}

/// A request that will have a line.
pub struct Entry {
    log: Arc<AccessLog>,
    begun: Instant,
    /// Seconds since 1970.
    time_unix_s: f64,
    method: String,
    path: String,
    request_id: String,
    /// `None`: no key was asked for, or none was accepted.
    pub tenant: Option<String>,
    /// See [`Tally`].
    pub tally: Arc<Tally>,
    status: u16,
    has_line: bool,
    body_bytes: u64,
    /// The client took all of it.
    complete: bool,
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

    /// Evenly spread over the answers, without chance.
    fn is_sampled(&self, status: u16) -> bool {
        if status >= 400 {
            return true;
        }
        let before = self.succeeded.fetch_add(1, Ordering::Relaxed) as f64;
        ((before + 1.0) * self.sample_rate).floor() > (before * self.sample_rate).floor()
    }
}

impl Entry {
    /// Of a request that has come.
    pub fn new(log: Arc<AccessLog>, request: &axum::extract::Request, request_id: &str) -> Self {
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        Self {
            log,
            begun: Instant::now(),
            time_unix_s: since.as_secs_f64(),
            method: request.method().to_string(),
            // Without a query, which may hold what a client should not have put there.
            path: request.uri().path().to_owned(),
            request_id: request_id.to_owned(),
            tenant: None,
            tally: Arc::default(),
            status: CLIENT_GONE,
            has_line: true,
            body_bytes: 0,
            complete: false,
        }
    }

    /// The answer, which writes the line when it ends.
    pub fn around(mut self, response: Response) -> Response {
        self.status = response.status().as_u16();
        if !self.log.is_sampled(self.status) {
            self.has_line = false;
            return response;
        }
        let (head, body) = response.into_parts();
        self.complete = body.is_end_stream();
        Response::from_parts(head, Body::new(Logged { body, entry: self }))
    }
}

impl Drop for Entry {
    fn drop(&mut self) {
        if !self.has_line {
            return;
        }
        let tally = &self.tally;
        let line = Line {
            time_unix_s: self.time_unix_s,
            request_id: &self.request_id,
            method: &self.method,
            path: &self.path,
            status: self.status,
            tenant: self.tenant.as_deref(),
            duration_s: self.begun.elapsed().as_secs_f64(),
            body_bytes: self.body_bytes,
            complete: self.complete,
            prompt_tokens: tally.prompt_tokens.load(Ordering::Relaxed),
            cached_tokens: tally.cached_tokens.load(Ordering::Relaxed),
            completion_tokens: tally.completion_tokens.load(Ordering::Relaxed),
        };
        // Strings and numbers always serialise.
        let mut text = serde_json::to_vec(&line).unwrap_or_default();
        text.push(b'\n');
        if self.log.lines.try_send(text).is_err() {
            self.log.dropped.fetch_add(1, Ordering::Relaxed);
        }
    }
}

/// An answer's body. Its fields are dropped in order: the generation behind it tells its tokens
/// before the line is written.
struct Logged {
    body: Body,
    entry: Entry,
}

impl HttpBody for Logged {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        let polled = Pin::new(&mut self.body).poll_frame(cx);
        match &polled {
            Poll::Ready(Some(Ok(frame))) => {
                let bytes = frame.data_ref().map_or(0, Bytes::len);
                self.entry.body_bytes += bytes as u64;
                self.entry.complete = self.body.is_end_stream();
            }
            Poll::Ready(None) => self.entry.complete = true,
            _ => {}
        }
        polled
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
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

    /// Opens the path anew if its file was moved away.
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
