//! One subscriber: what it wants to hear, and what it is sent.

use std::sync::Arc;
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt, ReadHalf, WriteHalf};
use tokio::sync::{mpsc, watch};

use crate::sockets::Shared;
use crate::zmtp::{PeerError, Received, Receiver, Stream, put_frame, shake_hands};

/// A subscriber that takes nothing for this long is left.
pub(crate) const SEND_DEADLINE: Duration = Duration::from_secs(30);
/// Batches are written together up to this many bytes; one batch always is.
pub(crate) const WRITE_BYTES: usize = 64 << 10;
/// Answers to PINGs that wait to be written; more are not given.
const MAX_PONGS: usize = 4;

/// Serves a connection of the PUB socket until it ends.
pub(crate) async fn serve<S: Stream>(mut stream: S, shared: Arc<Shared>) -> Result<(), PeerError> {
    let receiver = shake_hands(&mut stream, "PUB", &[b"SUB", b"XSUB"]).await?;
    let _connected = Connected::new(&shared);
    let (reader, writer) = tokio::io::split(stream);
    let (wanted, wants) = watch::channel(false);
    let (pongs, to_pong) = mpsc::channel(MAX_PONGS);
    tokio::select! {
        ended = listen(reader, receiver, &shared.topic, wanted, pongs) => ended,
        ended = speak(writer, &shared, wants, to_pong) => ended,
    }
}

struct Connected<'a>(&'a Shared);

impl Connected<'_> {
    fn new(shared: &Shared) -> Connected<'_> {
        shared.counters.subscribers.add(1);
        Connected(shared)
    }
}

impl Drop for Connected<'_> {
    fn drop(&mut self) {
        self.0.counters.subscribers.sub(1);
    }
}

/// There is one topic: of subscriptions only those count that it begins with.
async fn listen<S: AsyncRead>(
    mut reader: ReadHalf<S>,
    mut receiver: Receiver,
    topic: &str,
    wanted: watch::Sender<bool>,
    pongs: mpsc::Sender<Vec<u8>>,
) -> Result<(), PeerError> {
    let mut subscriptions = 0u64;
    loop {
        let (subscribes, prefix) = match receiver.receive(&mut reader).await? {
            Received::Subscription(subscribes, prefix) => (subscribes, prefix),
            // ZMTP 3.0 writes subscriptions as messages.
            Received::Message(frames) => match frames.as_slice() {
                [frame] => match frame.as_slice() {
                    [1, prefix @ ..] => (true, prefix.to_vec()),
                    [0, prefix @ ..] => (false, prefix.to_vec()),
                    _ => continue,
                },
                _ => continue,
            },
            Received::Ping(pong) => {
                // A peer that asks faster than it listens gets fewer answers.
                let _ = pongs.try_send(pong);
                continue;
            }
        };
        if topic.as_bytes().starts_with(&prefix) {
            let change = if subscribes { 1 } else { -1 };
            subscriptions = subscriptions.saturating_add_signed(change);
            wanted.send_replace(subscriptions != 0);
        }
    }
}

async fn speak<S: AsyncWrite>(
    mut writer: WriteHalf<S>,
    shared: &Shared,
    mut wants: watch::Receiver<bool>,
    mut pongs: mpsc::Receiver<Vec<u8>>,
) -> Result<(), PeerError> {
    let mut news = shared.log.watch();
    let mut place = None;
    let mut out = Vec::new();
    loop {
        news.borrow_and_update();
        match (*wants.borrow_and_update(), place) {
            (false, _) => place = None,
            (true, None) => place = Some(shared.log.next()),
            (true, Some(_)) => {}
        }
        if let Some(place) = &mut place {
            catch_up(shared, place, &mut out);
        }
        if out.is_empty() {
            tokio::select! {
                changed = news.changed() => if changed.is_err() { return Ok(()) },
                changed = wants.changed() => if changed.is_err() { return Ok(()) },
                pong = pongs.recv() => match pong {
                    Some(pong) => out = pong,
                    None => return Ok(()),
                },
            }
        }
        if !out.is_empty() {
            tokio::time::timeout(SEND_DEADLINE, writer.write_all(&out)).await??;
            out.clear();
        }
    }
}

/// Writes what there is from a place on, and moves the place behind it. A subscriber that is too
/// far behind goes on in the middle of what it may be behind: it misses much once, not a little
/// each time.
fn catch_up(shared: &Shared, place: &mut u64, out: &mut Vec<u8>) {
    if shared.log.next().saturating_sub(*place) > shared.hwm {
        let middle = shared.log.next() - shared.hwm / 2;
        shared.counters.missed.add(middle - *place);
        *place = middle;
    }
    while out.len() < WRITE_BYTES {
        let Some((number, payload)) = shared.log.at(*place) else { return };
        shared.counters.missed.add(number - *place);
        put_frame(out, shared.topic.as_bytes(), true);
        put_frame(out, &number.to_be_bytes(), true);
        put_frame(out, &payload, false);
        *place = number + 1;
    }
}
