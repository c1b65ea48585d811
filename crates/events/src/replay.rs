//! The ROUTER socket: a subscriber that has missed batches names the first one it wants, in eight
//! bytes, and gets all that are kept from there on, and then the number -1 without a payload.

use std::sync::Arc;
use std::time::Duration;

use tokio::io::AsyncWriteExt;

use crate::sockets::Shared;
use crate::subscriber::{SEND_DEADLINE, WRITE_BYTES};
use crate::zmtp::{PeerError, Received, Stream, put_frame, shake_hands};

/// A connection without a request for this long is ended.
const IDLE: Duration = Duration::from_secs(60);
/// Behind the last batch.
const END: [u8; 8] = (-1i64).to_be_bytes();

/// Serves a connection of the ROUTER socket until it ends.
pub(crate) async fn serve<S: Stream>(mut stream: S, shared: Arc<Shared>) -> Result<(), PeerError> {
    let mut receiver = shake_hands(&mut stream, "ROUTER", &[b"REQ", b"DEALER", b"ROUTER"]).await?;
    loop {
        match tokio::time::timeout(IDLE, receiver.receive(&mut stream)).await?? {
            Received::Ping(pong) => send(&mut stream, &pong).await?,
            Received::Subscription(..) => {}
            Received::Message(frames) => match first_wanted(&frames) {
                Some(first) => replay(&mut stream, &shared, first).await?,
                None => tracing::debug!("KV events: no request for a replay"),
            },
        }
    }
}

fn first_wanted(frames: &[Vec<u8>]) -> Option<u64> {
    match frames {
        [delimiter, number] if delimiter.is_empty() => {
            Some(u64::from_be_bytes(number.as_slice().try_into().ok()?))
        }
        _ => None,
    }
}

/// What was published until now; what is published meanwhile, subscribers hear anyway.
async fn replay<S: Stream>(stream: &mut S, shared: &Shared, first: u64) -> Result<(), PeerError> {
    let end = shared.log.next();
    let mut place = first.max(end.saturating_sub(shared.buffer_steps));
    let mut out = Vec::new();
    while let Some((number, payload)) = shared.log.at(place).filter(|(number, _)| *number < end) {
        put_batch(&mut out, shared.topic.as_bytes(), number.to_be_bytes(), &payload);
        place = number + 1;
        if out.len() >= WRITE_BYTES {
            send(stream, &out).await?;
            out.clear();
        }
    }
    put_batch(&mut out, b"", END, b"");
    send(stream, &out).await?;
    shared.counters.replays.add(1);
    Ok(())
}

fn put_batch(out: &mut Vec<u8>, topic: &[u8], number: [u8; 8], payload: &[u8]) {
    put_frame(out, b"", true);
    put_frame(out, topic, true);
    put_frame(out, &number, true);
    put_frame(out, payload, false);
}

async fn send<S: Stream>(stream: &mut S, bytes: &[u8]) -> Result<(), PeerError> {
    Ok(tokio::time::timeout(SEND_DEADLINE, stream.write_all(bytes)).await??)
}
