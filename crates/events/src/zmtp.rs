//! The wire protocol of ZeroMQ, ZMTP 3.0 (RFC 23), as far as a publisher needs it: the NULL
//! mechanism, small messages in, messages of any size out.

use std::io;
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};

/// Most bytes of a frame that a peer may send: a subscription, or a number.
const MAX_FRAME_BYTES: usize = 1024;
/// Most frames of a message that a peer may send.
const MAX_FRAMES: usize = 8;
/// Bytes asked for in one read.
const READ_BYTES: usize = 1024;
/// From a connection to the end of its handshake.
const HANDSHAKE_DEADLINE: Duration = Duration::from_secs(5);
/// Most bytes of a PING's context, which the PONG repeats.
const MAX_CONTEXT_BYTES: usize = 16;

const GREETING_BYTES: usize = 64;
const MECHANISM: std::ops::Range<usize> = 12..32;
const MORE: u8 = 1;
const LONG: u8 = 2;
const COMMAND: u8 = 4;

/// A connection of either kind of socket.
pub(crate) trait Stream: AsyncRead + AsyncWrite + Send + Unpin {}
impl<S: AsyncRead + AsyncWrite + Send + Unpin> Stream for S {}

/// Why a connection ends.
#[derive(Debug, thiserror::Error)]
pub(crate) enum PeerError {
    #[error("{0}")]
    Io(#[from] io::Error),
    #[error("not ZeroMQ as we speak it: {0}")]
    Protocol(&'static str),
    #[error("nothing came, or nothing was taken, for too long")]
    Late(#[from] tokio::time::error::Elapsed),
}

/// What a peer sent.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Received {
    /// All frames of a message.
    Message(Vec<Vec<u8>>),
    /// SUBSCRIBE (true) or CANCEL, and the beginning of topics.
    Subscription(bool, Vec<u8>),
    /// To be answered with this frame.
    Ping(Vec<u8>),
}

/// Greets a peer, as a socket of type `own`; its socket must be one of `peers`.
pub(crate) async fn shake_hands<S: Stream>(
    stream: &mut S,
    own: &str,
    peers: &[&[u8]],
) -> Result<Receiver, PeerError> {
    tokio::time::timeout(HANDSHAKE_DEADLINE, async {
        stream.write_all(&greeting()).await?;
        let mut theirs = [0; GREETING_BYTES];
        stream.read_exact(&mut theirs).await?;
        check_greeting(&theirs)?;
        stream.write_all(&ready(own)).await?;
        let mut receiver = Receiver::default();
        let (flags, body) = receiver.frame(stream).await?;
        let Some(properties) = body.strip_prefix(b"\x05READY").filter(|_| flags & COMMAND != 0)
        else {
            return Err(PeerError::Protocol("no READY"));
        };
        match property(properties, b"socket-type") {
            Some(kind) if peers.contains(&kind) => Ok(receiver),
            _ => Err(PeerError::Protocol("a socket of another kind")),
        }
    })
    .await?
}

fn greeting() -> [u8; GREETING_BYTES] {
    let mut greeting = [0; GREETING_BYTES];
    (greeting[0], greeting[9], greeting[10]) = (0xff, 0x7f, 3);
    greeting[MECHANISM][..4].copy_from_slice(b"NULL");
    greeting
}

fn check_greeting(theirs: &[u8; GREETING_BYTES]) -> Result<(), PeerError> {
    if theirs[0] != 0xff || theirs[9] != 0x7f {
        return Err(PeerError::Protocol("no greeting"));
    }
    if theirs[10] < 3 {
        return Err(PeerError::Protocol("a version before 3.0"));
    }
    if theirs[MECHANISM] != greeting()[MECHANISM] {
        return Err(PeerError::Protocol("a mechanism other than NULL"));
    }
    Ok(())
}

fn ready(own: &str) -> Vec<u8> {
    let mut body = b"\x05READY\x0bSocket-Type".to_vec();
    body.extend((own.len() as u32).to_be_bytes());
    body.extend(own.as_bytes());
    let mut out = vec![COMMAND, body.len() as u8];
    out.extend(body);
    out
}

/// The value of a property of a READY; names are compared without case.
fn property<'a>(mut properties: &'a [u8], wanted: &[u8]) -> Option<&'a [u8]> {
    loop {
        let (name_len, rest) = properties.split_first()?;
        let (name, rest) = rest.split_at_checked(usize::from(*name_len))?;
        let (value_len, rest) = rest.split_first_chunk()?;
        let (value, rest) = rest.split_at_checked(u32::from_be_bytes(*value_len) as usize)?;
        if name.eq_ignore_ascii_case(wanted) {
            return Some(value);
        }
        properties = rest;
    }
}

/// Appends a frame of a message.
pub(crate) fn put_frame(out: &mut Vec<u8>, body: &[u8], more: bool) {
    let more = if more { MORE } else { 0 };
    match u8::try_from(body.len()) {
        Ok(len) => out.extend([more, len]),
        Err(_) => {
            out.push(more | LONG);
            out.extend((body.len() as u64).to_be_bytes());
        }
    }
    out.extend_from_slice(body);
}

/// Reads from a peer. Reading may be given up at any await and begun again.
#[derive(Debug, Default)]
pub(crate) struct Receiver {
    /// Read and not yet understood; less than a frame.
    bytes: Vec<u8>,
    /// Frames of a message that is not whole.
    frames: Vec<Vec<u8>>,
}

impl Receiver {
    pub(crate) async fn receive<R: AsyncRead + Unpin>(
        &mut self,
        from: &mut R,
    ) -> Result<Received, PeerError> {
        loop {
            let (flags, body) = self.frame(from).await?;
            if flags & COMMAND != 0 {
                match command(&body)? {
                    Some(received) => return Ok(received),
                    None => continue,
                }
            }
            if self.frames.len() == MAX_FRAMES {
                return Err(PeerError::Protocol("a message of too many frames"));
            }
            self.frames.push(body);
            if flags & MORE == 0 {
                return Ok(Received::Message(std::mem::take(&mut self.frames)));
            }
        }
    }

    /// The flags and the body of the next frame.
    async fn frame<R: AsyncRead + Unpin>(
        &mut self,
        from: &mut R,
    ) -> Result<(u8, Vec<u8>), PeerError> {
        loop {
            if let Some(frame) = self.whole_frame()? {
                return Ok(frame);
            }
            let had = self.bytes.len();
            self.bytes.reserve(READ_BYTES);
            if from.read_buf(&mut self.bytes).await? == 0 {
                debug_assert_eq!(had, self.bytes.len());
                return Err(io::Error::from(io::ErrorKind::UnexpectedEof).into());
            }
        }
    }

    fn whole_frame(&mut self) -> Result<Option<(u8, Vec<u8>)>, PeerError> {
        let [flags, rest @ ..] = self.bytes.as_slice() else { return Ok(None) };
        if flags & !(MORE | LONG | COMMAND) != 0 {
            return Err(PeerError::Protocol("flags that there are not"));
        }
        let (head, len) = match (flags & LONG != 0, rest) {
            (false, [len, ..]) => (2, u64::from(*len)),
            (true, rest) => match rest.first_chunk() {
                Some(len) => (9, u64::from_be_bytes(*len)),
                None => return Ok(None),
            },
            (false, []) => return Ok(None),
        };
        if len > MAX_FRAME_BYTES as u64 {
            return Err(PeerError::Protocol("too long a frame"));
        }
        let end = head + len as usize;
        let Some(body) = self.bytes.get(head..end) else { return Ok(None) };
        let frame = (*flags, body.to_vec());
        self.bytes.drain(..end);
        Ok(Some(frame))
    }
}

/// A command within the traffic; none: one that asks for nothing.
fn command(body: &[u8]) -> Result<Option<Received>, PeerError> {
    if let Some(topic) = body.strip_prefix(b"\x09SUBSCRIBE") {
        return Ok(Some(Received::Subscription(true, topic.into())));
    }
    if let Some(topic) = body.strip_prefix(b"\x06CANCEL") {
        return Ok(Some(Received::Subscription(false, topic.into())));
    }
    if let Some(ping) = body.strip_prefix(b"\x04PING") {
        let context = ping.get(2..).unwrap_or_default();
        if context.len() > MAX_CONTEXT_BYTES {
            return Err(PeerError::Protocol("too long a PING"));
        }
        let mut pong = vec![COMMAND, 5 + context.len() as u8];
        pong.extend(b"\x04PONG");
        pong.extend(context);
        return Ok(Some(Received::Ping(pong)));
    }
    if body.starts_with(b"\x05ERROR") {
        return Err(PeerError::Protocol("an ERROR"));
    }
    Ok(None)
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    fn received(bytes: &[u8]) -> Result<Received, PeerError> {
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        runtime.block_on(Receiver::default().receive(&mut &bytes[..]))
    }

    #[test]
    fn messages_and_subscriptions_are_read() {
        let message = received(b"\x01\x00\x00\x03abc").unwrap();
        assert_eq!(message, Received::Message(vec![vec![], b"abc".to_vec()]));
        let long = received(b"\x02\x00\x00\x00\x00\x00\x00\x00\x02ab").unwrap();
        assert_eq!(long, Received::Message(vec![b"ab".to_vec()]));
        let subscribe = received(b"\x04\x0c\x09SUBSCRIBEkv").unwrap();
        assert_eq!(subscribe, Received::Subscription(true, b"kv".to_vec()));
        let cancel = received(b"\x04\x07\x06CANCEL").unwrap();
        assert_eq!(cancel, Received::Subscription(false, vec![]));
        let ping = received(b"\x04\x09\x04PING\x00\x0ahi").unwrap();
        assert_eq!(ping, Received::Ping(b"\x04\x07\x04PONGhi".to_vec()));
    }

    #[test]
    fn what_a_frame_says_of_its_length_is_not_believed() {
        for bytes in [
            &b"\x02\xff\xff\xff\xff\xff\xff\xff\xff"[..],
            b"\x02\x00\x00\x00\x00\x00\x00\x04\x01",
            b"\x08\x00",
            b"\x01\x00\x01\x00\x01\x00\x01\x00\x01\x00\x01\x00\x01\x00\x01\x00\x01\x00",
            b"\x04\x1a\x04PING\x00\x0a01234567890123456789",
            b"\x04\x06\x05ERROR",
        ] {
            assert!(matches!(received(bytes), Err(PeerError::Protocol(_))), "{bytes:?}");
        }
        assert!(matches!(received(b"\x00\x05abc"), Err(PeerError::Io(_))));
    }

    #[test]
    fn properties_are_found_in_any_case() {
        let body = b"\x08Identity\x00\x00\x00\x00\x0bsocket-TYPE\x00\x00\x00\x03SUB";
        assert_eq!(property(body, b"socket-type"), Some(&b"SUB"[..]));
        for end in 0..body.len() {
            assert_eq!(property(&body[..end], b"socket-type"), None);
        }
        assert_eq!(property(b"\x0bsocket-type\xff\xff\xff\xff", b"socket-type"), None);
    }

    #[test]
    fn long_and_short_frames_are_written() {
        let mut out = Vec::new();
        put_frame(&mut out, b"ab", true);
        put_frame(&mut out, &[7; 300], false);
        assert_eq!(out[..4], *b"\x01\x02ab");
        assert_eq!(out[4..13], *b"\x02\x00\x00\x00\x00\x00\x00\x01\x2c");
        assert_eq!(out.len(), 13 + 300);
    }
}
