//! Answers that may be many times as large as what was asked: they are written in pieces, as the
//! client takes them, and what is held for that is charged like a body.

use std::fmt::Write;

use axum::body::Body;
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use futures_util::{StreamExt, stream};
use http::{HeaderValue, header};

use crate::http::budget::Charge;
use crate::lifecycle::InFlight;
use crate::text::pool::{PoolError, WorkPool};

/// Tokens in one piece of an answer: some ten microseconds.
pub(super) const PIECE_TOKENS: usize = 1024;
/// Pieces that are written at a time: some hundred KiB.
const PIECES_AT_ONCE: usize = 16;

/// An answer that is one piece is sent as one body. Of any other, as many pieces as are worth it
/// are written at a time, by threads that yield to those of streams, as the client takes them.
pub(super) fn in_pieces(
    mut pieces: impl Iterator<Item = String> + Send + 'static,
    pool: &WorkPool,
    charge: Charge,
    in_flight: InFlight,
) -> Response {
    let content_type = (header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
    let first = pieces.next().unwrap_or_default();
    let Some(second) = pieces.next() else { return ([content_type], first).into_response() };
    let pool = pool.clone();
    let rest = stream::try_unfold(pieces, move |mut pieces| {
        let _held = (&charge, &in_flight);
        let pool = pool.clone();
        async move {
            let write = move || (pieces.by_ref().take(PIECES_AT_ONCE).collect::<String>(), pieces);
            let (text, pieces) = pool.run_in_turn(write).await?;
            Ok::<_, PoolError>((!text.is_empty()).then(|| (Bytes::from(text), pieces)))
        }
    });
    let begun = stream::iter([Ok(Bytes::from(first + &second))]);
    ([content_type], Body::from_stream(begun.chain(rest))).into_response()
}

/// Adds some of an array's ids, of which `from` come before them.
pub(super) fn push_ids(ids: &[u32], from: usize, json: &mut String) {
    for (i, id) in ids.iter().enumerate() {
        let comma = if from + i == 0 { "" } else { "," };
        // Into memory: it cannot fail.
        let _ = write!(json, "{comma}{id}");
    }
}

/// Adds a JSON string.
pub(super) fn push_quoted(text: &str, json: &mut String) {
    json.push('"');
    push_escaped(text, json);
    json.push('"');
}

/// Adds a JSON string without its quotes.
pub(super) fn push_escaped(text: &str, json: &mut String) {
    // A string always serialises.
    let quoted = serde_json::to_string(text).unwrap_or_default();
    json.push_str(quoted.get(1..quoted.len().saturating_sub(1)).unwrap_or_default());
}

#[cfg(test)]
mod tests {
    use http_body_util::BodyExt;

    use super::*;
    use crate::lifecycle::Lifecycle;

    /// A reactor that writes a large answer is late for every stream of its thread.
    #[tokio::test]
    async fn a_large_answer_is_written_by_threads_that_yield() {
        let pool = WorkPool::start("long", 1, 1, 0).unwrap();
        let in_flight = Lifecycle::default().enter().unwrap();
        let writer = |_| std::thread::current().name().unwrap_or_default().to_owned() + "\n";
        let pieces = (0..100).map(writer);
        let body = in_pieces(pieces, &pool, Charge::default(), in_flight).into_body();
        let text = body.collect().await.unwrap().to_bytes();
        let names: Vec<&str> = std::str::from_utf8(&text).unwrap().lines().collect();
        assert_eq!(names.len(), 100);
        assert!(names[2..].iter().all(|name| *name == "long-0"), "{names:?}");
    }
}
