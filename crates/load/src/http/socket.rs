//! A TCP connection whose other end can be checked while hyper holds it.

use std::io;
use std::os::fd::AsRawFd;
use std::pin::Pin;
use std::sync::{Arc, Weak};
use std::task::{Context, Poll, ready};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;

/// The stream as its one user reads and writes it.
#[derive(Debug)]
pub(crate) struct Socket(Arc<TcpStream>);

/// Looks at a socket, and does not keep it open.
#[derive(Debug, Clone)]
pub(crate) struct Peephole(Weak<TcpStream>);

impl Socket {
    pub(crate) fn new(stream: TcpStream) -> Socket {
        Socket(Arc::new(stream))
    }

    pub(crate) fn peephole(&self) -> Peephole {
        Peephole(Arc::downgrade(&self.0))
    }
}

impl Peephole {
    /// Whether the server has neither closed the connection nor sent what nothing asked for, as far
    /// as the kernel knows at this moment.
    pub(crate) fn is_quiet(&self) -> bool {
        let Some(stream) = self.0.upgrade() else { return false };
        let mut byte = 0u8;
        let flags = libc::MSG_PEEK | libc::MSG_DONTWAIT;
        // SAFETY: the descriptor is open as long as `stream` lives; one byte of room is given.
        let seen = unsafe { libc::recv(stream.as_raw_fd(), (&raw mut byte).cast(), 1, flags) };
        seen < 0 && io::Error::last_os_error().kind() == io::ErrorKind::WouldBlock
    }
}

impl AsyncRead for Socket {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        loop {
            ready!(self.0.poll_read_ready(cx))?;
            match self.0.try_read(buf.initialize_unfilled()) {
                Ok(count) => {
                    buf.advance(count);
                    return Poll::Ready(Ok(()));
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Err(error) => return Poll::Ready(Err(error)),
            }
        }
    }
}

impl AsyncWrite for Socket {
    fn poll_write(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        loop {
            ready!(self.0.poll_write_ready(cx))?;
            match self.0.try_write(bytes) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                result => return Poll::Ready(result),
            }
        }
    }

    /// A socket has no buffer of its own.
    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    /// The socket closes when its one user drops it, which follows at once.
    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }
}

#[cfg(test)]
mod tests {
    use tokio::net::TcpListener;

    use super::*;

    #[tokio::test]
    async fn a_peephole_sees_what_came_and_that_the_other_end_is_gone() {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let address = listener.local_addr().expect("its address");
        let connect = || async {
            let ours = TcpStream::connect(address).await.expect("connected");
            let (theirs, _) = listener.accept().await.expect("accepted");
            (Socket::new(ours), theirs)
        };
        let (ours, theirs) = connect().await;
        let peephole = ours.peephole();
        assert!(peephole.is_quiet());
        drop(theirs);
        // On one host the end is known as soon as it was sent.
        assert!(!peephole.is_quiet(), "closed");
        let (ours, theirs) = connect().await;
        theirs.try_write(b"x").expect("written");
        assert!(!ours.peephole().is_quiet(), "bytes came");
        let peephole = connect().await.0.peephole();
        assert!(!peephole.is_quiet(), "nothing holds it");
    }
}
