//! The bytes of a streamed answer, each event at its time.

use std::collections::VecDeque;
use std::io;
use std::sync::Arc;

use bytes::Bytes;
use futures_util::stream::{Stream, unfold};
use hyper::body::Frame;
use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64Mcg;
use serde_json::Value;
use tokio::sync::OwnedSemaphorePermit;

use crate::api::{Answer, error};
use crate::clock::{Nanos, from_seconds, now, to_seconds};
use crate::generation::{Generation, Next, Plan};
use crate::records::{Outcome, Recorder};
use crate::script::{LineEnd, Role, Wire};
use crate::server::Shared;

/// A piece of an event's bytes.
struct Piece {
    bytes: Bytes,
    /// When it may leave.
    at: Nanos,
    /// Tokens of the event, on the last piece of one that has any.
    tokens: usize,
}

enum Stage {
    /// Has a place, waits for a seat.
    Waiting(Plan, OwnedSemaphorePermit),
    /// Has a seat.
    Running(Box<Generation>),
    /// All has been said.
    Ended(Outcome),
}

struct Sse {
    shared: Arc<Shared>,
    answer: Answer,
    recorder: Recorder,
    stage: Option<Stage>,
    pieces: VecDeque<Piece>,
    events: usize,
    rng: Pcg64Mcg,
}

/// The body of a streamed answer to `answer.request`. Ends with an error where the script cuts.
pub fn body(
    shared: Arc<Shared>,
    answer: Answer,
    plan: Plan,
    place: OwnedSemaphorePermit,
    recorder: Recorder,
) -> impl Stream<Item = io::Result<Frame<Bytes>>> + Send {
    // Apart from the draws of the plan, so that how bytes are cut does not move the times.
    let rng = Pcg64Mcg::seed_from_u64(!recorder.index() ^ shared.script.seed);
    let stage = Some(Stage::Waiting(plan, place));
    let sse = Sse { shared, answer, recorder, stage, pieces: VecDeque::new(), events: 0, rng };
    unfold(sse, |mut sse| async move {
        let index = sse.recorder.index();
        sse.shared.readers.asks(index);
        let frame = sse.frame().await?;
        sse.shared.readers.gave(index, now());
        Some((frame, sse))
    })
}

impl Drop for Sse {
    fn drop(&mut self) {
        self.shared.readers.asks(self.recorder.index());
    }
}

impl Sse {
    /// The next piece, when it is due.
    async fn frame(&mut self) -> Option<io::Result<Frame<Bytes>>> {
        loop {
            if let Some(piece) = self.pieces.pop_front() {
                self.shared.pacer.sleep_until(piece.at).await;
                if piece.tokens > 0 {
                    self.recorder.written(piece.at, piece.tokens);
                }
                return Some(Ok(Frame::data(piece.bytes)));
            }
            match self.stage.take()? {
                Stage::Waiting(plan, place) => self.sit(plan, place).await,
                Stage::Running(generation) => self.step(generation).await,
                Stage::Ended(outcome) => {
                    self.recorder.end(outcome);
                    if outcome == Outcome::Cut {
                        // hyper forgets what it has not sent when a body fails, and it sends
                        // when the body has nothing ready.
                        tokio::task::yield_now().await;
                        return Some(Err(io::Error::other("the script ends the connection")));
                    }
                    return None;
                }
            }
        }
    }

    async fn sit(&mut self, plan: Plan, place: OwnedSemaphorePermit) {
        let request = self.answer.request.clone();
        let generation = Generation::begin(&self.shared, request, plan, place).await;
        self.recorder.record().seated_s = Some(to_seconds(generation.base()));
        if self.answer.request.chat && self.shared.script.wire.role == Role::AtOnce {
            let release = self.shared.leave(generation.base()).await;
            self.push(&self.answer.role_event(), release.at, 0);
        }
        self.stage = Some(Stage::Running(Box::new(generation)));
    }

    async fn step(&mut self, mut generation: Box<Generation>) {
        let ended = match generation.next(&self.shared).await {
            Next::Tokens { due, from, to } => {
                self.tokens(&mut generation, due, from, to).await;
                None
            }
            Next::Error(due) => {
                let at = self.shared.leave(due).await.at;
                self.push(&error(500, "the script ends this answer with an error"), at, 0);
                self.done(at);
                Some(Outcome::ErrorEvent)
            }
            Next::Cut(due) => {
                self.shared.leave(due).await;
                Some(Outcome::Cut)
            }
            Next::End => {
                let at = now();
                if self.answer.request.include_usage {
                    let usage = self.answer.usage_event(self.recorder.record().output_tokens);
                    self.push(&usage, at, 0);
                }
                self.done(at);
                Some(Outcome::Ok)
            }
        };
        self.stage = Some(ended.map_or(Stage::Running(generation), Stage::Ended));
    }

    /// Writes an event, then waits until it is due.
    async fn tokens(&mut self, generation: &mut Generation, due: Nanos, from: usize, to: usize) {
        let event = self.answer.token_event(from, to, generation.finish()).to_string();
        let release = self.shared.leave(due).await;
        generation.left(release.base);
        let with_first = self.shared.script.wire.role == Role::WithFirstToken;
        if from == 0 && self.answer.request.chat && with_first {
            self.push(&self.answer.role_event(), release.at, 0);
        }
        self.push_data(&event, release.at, to - from);
    }

    fn done(&mut self, at: Nanos) {
        if self.shared.script.wire.done {
            self.push_data("[DONE]", at, 0);
        }
    }

    fn push(&mut self, event: &Value, at: Nanos, tokens: usize) {
        self.push_data(&event.to_string(), at, tokens);
    }

    /// Queues an event's bytes, in pieces where the script says so.
    fn push_data(&mut self, data: &str, at: Nanos, tokens: usize) {
        let wire = &self.shared.script.wire;
        self.events += 1;
        let bytes = Bytes::from(frame_event(wire, data, self.events));
        let mut cuts: Vec<usize> =
            (0..wire.cuts).map(|_| self.rng.random_range(1..bytes.len())).collect();
        cuts.push(bytes.len());
        cuts.sort_unstable();
        cuts.dedup();
        let gap = from_seconds(wire.cut_gap_us * 1e-6);
        let mut start = 0;
        for (number, end) in cuts.iter().enumerate() {
            self.pieces.push_back(Piece {
                bytes: bytes.slice(start..*end),
                at: at + number as u64 * gap,
                tokens: if *end == bytes.len() { tokens } else { 0 },
            });
            start = *end;
        }
    }
}

/// An event as its lines; the `number`-th of its stream, from 1.
fn frame_event(wire: &Wire, data: &str, number: usize) -> String {
    let end = match wire.line_end {
        LineEnd::Lf => "\n",
        LineEnd::Crlf => "\r\n",
    };
    let comments = wire.comment_every > 0 && number.is_multiple_of(wire.comment_every);
    let comment = if comments { format!(": comment {number}{end}{end}") } else { String::new() };
    let pad = match wire.pad_bytes {
        0 => String::new(),
        bytes => format!(": {}{end}{end}", "x".repeat(bytes)),
    };
    format!("{comment}{pad}data: {data}{end}{end}")
}
