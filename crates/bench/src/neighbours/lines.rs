//! Lines from a child, with a limit to each wait and without a thread: a thread would take signals
//! that the measuring one holds back.

use std::io::{self, Read};
use std::os::fd::AsRawFd;
use std::process::ChildStdout;
use std::time::{Duration, Instant};

/// Our own children write short lines.
const MAX_LINE_BYTES: usize = 1 << 16;

/// The outcome of a wait.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Line {
    /// A line without its end.
    Whole(String),
    /// None within the limit.
    Late,
    /// None will come.
    End,
}

/// The output of a child.
#[derive(Debug)]
pub(super) struct Lines {
    pipe: ChildStdout,
    seen: Vec<u8>,
}

impl Lines {
    pub fn of(pipe: ChildStdout) -> Lines {
        Lines { pipe, seen: Vec::new() }
    }

    /// The next line; waits at most `limit` for it.
    ///
    /// # Errors
    /// Of poll or read; a line beyond the bound.
    pub fn next(&mut self, limit: Duration) -> io::Result<Line> {
        let deadline = Instant::now() + limit;
        loop {
            if let Some(end) = self.seen.iter().position(|&byte| byte == b'\n') {
                let line: Vec<u8> = self.seen.drain(..=end).take(end).collect();
                return Ok(Line::Whole(String::from_utf8_lossy(&line).into_owned()));
            }
            if self.seen.len() > MAX_LINE_BYTES {
                return Err(io::Error::other(format!("a line of over {MAX_LINE_BYTES} bytes")));
            }
            if !self.is_readable(deadline.saturating_duration_since(Instant::now()))? {
                return Ok(Line::Late);
            }
            let mut chunk = [0; 4096];
            match self.pipe.read(&mut chunk) {
                Ok(0) => return Ok(Line::End),
                Ok(count) => self.seen.extend_from_slice(&chunk[..count]),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
    }

    /// Whether a read would not wait; an end counts as readable.
    fn is_readable(&self, limit: Duration) -> io::Result<bool> {
        let mut poll = libc::pollfd { fd: self.pipe.as_raw_fd(), events: libc::POLLIN, revents: 0 };
        let limit_ms = i32::try_from(limit.as_millis()).unwrap_or(i32::MAX);
        // SAFETY: one descriptor, open as long as self.
        match unsafe { libc::poll(&raw mut poll, 1, limit_ms) } {
            -1 => match io::Error::last_os_error() {
                error if error.kind() == io::ErrorKind::Interrupted => self.is_readable(limit),
                error => Err(error),
            },
            ready => Ok(ready > 0),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::process::{Command, Stdio};

    use super::*;

    #[test]
    fn lines_come_whole_and_late_ones_are_not_waited_for() {
        let script = "printf 'one\\ntw'; sleep 0.2; echo o; sleep 0.2; printf half";
        let mut child =
            Command::new("sh").args(["-c", script]).stdout(Stdio::piped()).spawn().unwrap();
        let mut lines = Lines::of(child.stdout.take().unwrap());
        let long = Duration::from_secs(60);
        assert_eq!(lines.next(long).unwrap(), Line::Whole("one".into()));
        assert_eq!(lines.next(Duration::ZERO).unwrap(), Line::Late);
        assert_eq!(lines.next(long).unwrap(), Line::Whole("two".into()));
        assert_eq!(lines.next(long).unwrap(), Line::End);
        child.wait().unwrap();
    }
}
