//! A generation as an answer: one JSON body, or server-sent events.

use std::convert::Infallible;
use std::pin::Pin;

use axum::body::Body;
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use futures_util::FutureExt;
use futures_util::stream::unfold;
use http::{HeaderValue, header};
use tokio::time::{Duration, Instant, Sleep, sleep};

use crate::api_error::ApiError;
use crate::lifecycle::InFlight;
use crate::openai::{ChunkUsage, Format, Frames, Usage};
use crate::serving::Generation;
use crate::validate::StreamOptions;

/// Ready frames beyond this many bytes are sent before more are looked for.
const FRAMES_BYTES: usize = 16 * 1024;

fn usage_of(generation: &Generation) -> Usage {
    Usage::new(generation.prompt_tokens(), generation.cached_tokens(), generation.produced())
}

/// Waits for all choices and answers with one JSON body.
///
/// # Errors
/// Of the first choice that ended without an answer.
pub async fn collect(
    mut generation: Generation,
    mut format: impl Format,
    _in_flight: InFlight,
) -> Result<Response, ApiError> {
    while let Some(next) = generation.next().await {
        let (index, delta) = next?;
        format.gather(index, delta);
    }
    let usage = usage_of(&generation);
    let json = format.answer(usage).map_err(|e| ApiError::internal(e.to_string()))?;
    let content_type = HeaderValue::from_static("application/json");
    Ok(([(header::CONTENT_TYPE, content_type)], json).into_response())
}

/// Answers at once with a stream of events. A failure midway is an event `{"error": …}`, and
/// then the stream ends without `[DONE]`.
pub fn stream(
    generation: Generation,
    format: impl Format + 'static,
    options: StreamOptions,
    keep_alive: Duration,
    in_flight: InFlight,
) -> Response {
    let state = Streaming {
        generation,
        format,
        options,
        keep_alive,
        silence: Box::pin(sleep(keep_alive)),
        last_frames: Instant::now(),
        over: false,
        _in_flight: in_flight,
    };
    let events = unfold(state, |mut state| async move {
        let bytes = state.next().await?;
        Some((Ok::<Bytes, Infallible>(bytes), state))
    });
    let headers = [
        (header::CONTENT_TYPE, HeaderValue::from_static("text/event-stream; charset=utf-8")),
        (header::CACHE_CONTROL, HeaderValue::from_static("no-cache")),
        // Proxies that buffer would turn a stream into a lump.
        (header::HeaderName::from_static("x-accel-buffering"), HeaderValue::from_static("no")),
    ];
    (headers, Body::from_stream(events)).into_response()
}

struct Streaming<F> {
    generation: Generation,
    format: F,
    options: StreamOptions,
    keep_alive: Duration,
    silence: Pin<Box<Sleep>>,
    last_frames: Instant,
    over: bool,
    _in_flight: InFlight,
}

impl<F: Format> Streaming<F> {
    /// The next frames: everything that is ready now, or a comment after a long silence.
    async fn next(&mut self) -> Option<Bytes> {
        if self.over {
            return None;
        }
        let mut frames = Frames::default();
        // A delta may have nothing to say yet, and an empty chunk is not an event.
        while frames.is_empty() && !self.over {
            tokio::select! {
                biased;
                next = self.generation.next() => self.say(next, &mut frames),
                () = self.silence.as_mut() => self.break_silence(&mut frames),
            }
        }
        while !self.over && frames.len() < FRAMES_BYTES {
            let Some(next) = self.generation.next().now_or_never() else { break };
            self.say(next, &mut frames);
        }
        self.last_frames = Instant::now();
        Some(frames.take())
    }

    /// The alarm is not reset for every token, which would cost each of them a timer: when it
    /// fires, it checks how long the silence really was.
    fn break_silence(&mut self, frames: &mut Frames) {
        let due = self.last_frames + self.keep_alive;
        if due <= Instant::now() {
            frames.comment("waiting");
            self.silence.as_mut().reset(Instant::now() + self.keep_alive);
        } else {
            self.silence.as_mut().reset(due);
        }
    }

    fn say(
        &mut self,
        next: Option<Result<(usize, crate::serving::Delta), ApiError>>,
        frames: &mut Frames,
    ) {
        match next {
            Some(Ok((index, delta))) => {
                let usage = ChunkUsage::of(self.options, self.usage());
                self.format.chunk(index, delta, usage, frames);
            }
            Some(Err(error)) => {
                frames.text(&error.to_json());
                self.over = true;
            }
            None => {
                if self.options.include_usage {
                    self.format.usage_chunk(self.usage(), frames);
                }
                frames.text("[DONE]");
                self.over = true;
            }
        }
    }

    fn usage(&self) -> Usage {
        usage_of(&self.generation)
    }
}
