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
use crate::serving::{Delta, Generation, pool_error};
use crate::text::pool::WorkPool;
use crate::validate::StreamOptions;

/// Tokens and alternatives of a part of an answer: some hundred microseconds to name and write.
const PART_ENTRIES: usize = 512;
/// Ready frames beyond this many bytes are sent before more are looked for.
const FRAMES_BYTES: usize = 16 * 1024;

fn usage_of(generation: &Generation) -> Usage {
    let (prompt, cached) = (generation.prompt_tokens(), generation.cached_tokens());
    Usage::new(prompt, cached, generation.produced()).with_reasoning(generation.reasoning_tokens())
}

/// Waits for all choices and answers with one JSON body. What a wide answer takes is done on
/// `pool`, a part at a time: on the reactor, every other stream would wait for it.
///
/// # Errors
/// Of the first choice that ended without an answer.
pub async fn collect(
    mut generation: Generation,
    format: impl Format + 'static,
    pool: &WorkPool,
    _in_flight: InFlight,
) -> Result<Response, ApiError> {
    let mut gathering = Gathering { format, deltas: Vec::new(), entries: 0, all_entries: 0 };
    while let Some(next) = generation.next().await {
        let (index, delta) = next?;
        gathering.add(index, delta);
        if gathering.entries >= PART_ENTRIES {
            let gather = move || gathering.gathered();
            gathering = pool.run_or_here(gather).await.map_err(pool_error)?;
        }
    }
    let usage = usage_of(&generation);
    let wide = gathering.all_entries >= PART_ENTRIES;
    let answer = move || gathering.gathered().format.answer(usage);
    let json = if wide { pool.run_or_here(answer).await.map_err(pool_error)? } else { answer() };
    let json = json.map_err(|e| ApiError::internal(e.to_string()))?;
    let content_type = HeaderValue::from_static("application/json");
    Ok(([(header::CONTENT_TYPE, content_type)], json).into_response())
}

/// An answer under construction, and deltas that are not part of it yet.
struct Gathering<F> {
    format: F,
    deltas: Vec<(usize, Delta)>,
    /// Tokens and alternatives of `deltas`.
    entries: usize,
    /// Of the whole answer so far.
    all_entries: usize,
}

impl<F: Format> Gathering<F> {
    fn add(&mut self, index: usize, delta: Delta) {
        let named = delta.prompt.iter().chain(&delta.logprobs);
        let entries = 1 + named.map(|token| 1 + token.top.len()).sum::<usize>();
        self.entries += entries;
        self.all_entries += entries;
        self.deltas.push((index, delta));
    }

    fn gathered(mut self) -> Self {
        for (index, delta) in self.deltas.drain(..) {
            self.format.gather(index, delta);
        }
        self.entries = 0;
        self
    }
}

/// Answers at once with a stream of events. A failure midway is an event of its own, and then the
/// stream ends without the last event of others.
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
        has_begun: false,
        over: false,
        more_is_ready: false,
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
    has_begun: bool,
    over: bool,
    /// The last frames were a part of what was ready.
    more_is_ready: bool,
    _in_flight: InFlight,
}

impl<F: Format> Streaming<F> {
    /// The next frames: everything that is ready now, or a comment after a long silence.
    async fn next(&mut self) -> Option<Bytes> {
        if self.over {
            return None;
        }
        let mut frames = Frames::default();
        if !std::mem::replace(&mut self.has_begun, true) {
            self.format.begin(&mut frames);
            if !frames.is_empty() {
                return Some(frames.take());
            }
        }
        if std::mem::take(&mut self.more_is_ready) {
            // Other streams come between two parts of what is ready at once.
            tokio::task::yield_now().await;
        }
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
        self.more_is_ready = frames.len() >= FRAMES_BYTES;
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

    fn say(&mut self, next: Option<Result<(usize, Delta), ApiError>>, frames: &mut Frames) {
        match next {
            Some(Ok((index, delta))) => {
                let usage = ChunkUsage::of(self.options, self.usage());
                self.format.chunk(index, delta, usage, frames);
            }
            Some(Err(error)) => {
                self.format.fail(&error, frames);
                self.over = true;
            }
            None => {
                let usage = self.usage();
                self.format.end(usage, self.options.include_usage, frames);
                self.over = true;
            }
        }
    }

    fn usage(&self) -> Usage {
        usage_of(&self.generation)
    }
}
