//! A connection whose peer must take what is written, at a rate.

use std::future::Future;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::{Duration, Instant, Sleep, sleep};

/// Fails a write once the peer has kept it waiting for `stall_timeout` longer than what it took
/// meanwhile is worth at `least_bytes_per_s`. A client that reads nothing, or a byte now and then,
/// so costs one connection for a bounded time, and its requests are cancelled; one that reads as
/// fast as it is written to is never waited for.
pub struct StallGuard<S> {
    inner: S,
    stall_timeout: Duration,
    least_bytes_per_s: u32,
    /// Time that writes have waited, less what the bytes taken since are worth.
    owed: Duration,
    /// Runs while a write waits.
    waiting: Option<Waiting>,
}

struct Waiting {
    since: Instant,
    /// When the peer owes `stall_timeout`.
    limit: Pin<Box<Sleep>>,
}

impl<S> StallGuard<S> {
    /// Guards `inner`.
    pub fn new(inner: S, stall_timeout: Duration, least_bytes_per_s: u32) -> Self {
        Self { inner, stall_timeout, least_bytes_per_s, owed: Duration::ZERO, waiting: None }
    }

    /// Watches a write of which `bytes` were taken, if it is ready.
    fn watch<T>(
        &mut self,
        cx: &mut Context<'_>,
        written: Poll<io::Result<T>>,
        bytes: impl FnOnce(&T) -> usize,
    ) -> Poll<io::Result<T>> {
        if let Poll::Ready(result) = &written {
            let waited = self.waiting.take().map_or(Duration::ZERO, |w| w.since.elapsed());
            let taken = result.as_ref().map_or(0, bytes) as f64;
            let worth = Duration::from_secs_f64(taken / f64::from(self.least_bytes_per_s.max(1)));
            self.owed = (self.owed + waited).saturating_sub(worth);
            return written;
        }
        let left = self.stall_timeout.saturating_sub(self.owed);
        let start = || Waiting { since: Instant::now(), limit: Box::pin(sleep(left)) };
        let waiting = self.waiting.get_or_insert_with(start);
        if waiting.limit.as_mut().poll(cx).is_ready() {
            let reason = "the peer reads too little";
            return Poll::Ready(Err(io::Error::new(io::ErrorKind::TimedOut, reason)));
        }
        Poll::Pending
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for StallGuard<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_read(cx, buf)
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for StallGuard<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.inner).poll_write(cx, buf);
        self.watch(cx, written, |n| *n)
    }
    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.inner).poll_write_vectored(cx, bufs);
        self.watch(cx, written, |n| *n)
    }
    fn is_write_vectored(&self) -> bool {
        self.inner.is_write_vectored()
    }
    /// A socket's flush is always ready: it says nothing about the peer.
    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_flush(cx)
    }
    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let closed = Pin::new(&mut self.inner).poll_shutdown(cx);
        self.watch(cx, closed, |()| 0)
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    use super::*;

    const STALL: Duration = Duration::from_secs(30);
    const RATE: u32 = 1000;

    /// How long a writer of 1 MB lasts whose peer takes `bytes` every `pause`; `None`: to the end.
    async fn lasts(bytes: usize, pause: Duration) -> Option<Duration> {
        let (peer, stream) = tokio::io::duplex(4096);
        let mut guard = StallGuard::new(stream, STALL, RATE);
        let reader = tokio::spawn(async move {
            let (mut peer, mut taken) = (peer, vec![0; bytes]);
            while bytes > 0 && peer.read_exact(&mut taken).await.is_ok() {
                tokio::time::sleep(pause).await;
            }
            // Open, and not read.
            std::future::pending::<()>().await;
        });
        let begun = Instant::now();
        let written = guard.write_all(&vec![0; 1_000_000]).await;
        reader.abort();
        written.is_err().then(|| begun.elapsed())
    }

    #[tokio::test(start_paused = true)]
    async fn a_peer_that_takes_too_little_is_cut_and_a_slow_one_is_not() {
        let second = Duration::from_secs(1);
        let nothing = lasts(0, second).await.unwrap();
        assert!((30..32).contains(&nothing.as_secs()), "{nothing:?}");
        // A trickle, which never leaves it without a byte for long.
        let trickle = lasts(100, second).await.unwrap();
        assert!((30..45).contains(&trickle.as_secs()), "{trickle:?}");
        let half = lasts(500, second).await.unwrap();
        assert!((55..75).contains(&half.as_secs()), "{half:?}");
        assert_eq!(lasts(1100, second).await, None);
        // Long pauses are fine for a peer that then takes what is worth them.
        assert_eq!(lasts(40_000, 20 * second).await, None);
    }
}
