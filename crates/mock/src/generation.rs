//! One answer's tokens: what the script drew for it, and when each event is due.

use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64Mcg;
use tokio::sync::{OwnedSemaphorePermit, mpsc};

use crate::api::Request;
use crate::clock::{Nanos, from_seconds, now};
use crate::script::Script;
use crate::server::Shared;

/// What happens to a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fate {
    /// It is answered.
    Answer,
    /// Status 500 at once.
    Http500,
    /// The connection ends after this many tokens.
    Cut(usize),
    /// An error event after this many tokens.
    ErrorEvent(usize),
    /// Never answered.
    Hang,
}

/// What the script drew for a request.
pub struct Plan {
    /// What happens to it.
    pub fate: Fate,
    /// Length of its answer.
    pub tokens: usize,
    /// A token that is said twice where the answer is streamed.
    pub doubled: Option<usize>,
    rng: Pcg64Mcg,
    index: u64,
}

impl Plan {
    /// Draws for the `index`-th request; the same for the same seed and index.
    pub fn draw(script: &Script, request: &Request, index: u64) -> Self {
        let mut rng = Pcg64Mcg::seed_from_u64(script.seed ^ index.rotate_left(32));
        let roll: f64 = rng.random();
        let natural = script
            .natural_tokens
            .as_ref()
            .map(|count| count.draw(index as usize, &mut rng))
            .filter(|_| !request.ignore_eos)
            .unwrap_or(usize::MAX);
        let tokens = natural.clamp(request.min_tokens.max(1), request.max_tokens);
        let after = rng.random_range(1..=tokens.saturating_sub(1).max(1));
        // Drawn last, so that the weakness does not move the other draws.
        let share = script.weaknesses.doubled_token;
        let doubled = (share > 0.0 && rng.random::<f64>() < share).then(|| after - 1);
        let (fate, doubled) = match index < script.failures.from_request {
            true => (Fate::Answer, None),
            false => (fate(script, roll, after), doubled),
        };
        Self { fate, tokens, doubled, rng, index }
    }
}

fn fate(script: &Script, roll: f64, after: usize) -> Fate {
    let shares = [
        (script.failures.http_500, Fate::Http500),
        (script.failures.cut, Fate::Cut(after)),
        (script.failures.error_event, Fate::ErrorEvent(after)),
        (script.failures.hang, Fate::Hang),
    ];
    let mut below = 0.0;
    for (share, fate) in shares {
        below += share;
        if roll < below {
            return fate;
        }
    }
    Fate::Answer
}

/// What comes next in an answer, and when the script wants it to leave.
#[derive(Debug, Clone, Copy)]
pub enum Next {
    /// Tokens `from..to`.
    Tokens {
        /// When they are due.
        due: Nanos,
        /// First token.
        from: usize,
        /// Behind the last token.
        to: usize,
    },
    /// The connection ends, at this time.
    Cut(Nanos),
    /// An error event, at this time.
    Error(Nanos),
    /// Nothing more.
    End,
}

enum Source {
    /// Delays from the script.
    Script,
    /// An engine's steps; times at which they ended.
    Engine(mpsc::Receiver<Nanos>),
}

/// An answer under way. Holds its seat until it is dropped.
pub struct Generation {
    plan: Plan,
    request: Request,
    source: Source,
    /// What the next delay counts from.
    base: Nanos,
    tokens: usize,
    events: usize,
    seat: Option<OwnedSemaphorePermit>,
    place: Option<OwnedSemaphorePermit>,
    /// Whether its seat is lost when it is dropped before its end.
    keeps_seat: bool,
}

impl Drop for Generation {
    fn drop(&mut self) {
        if self.keeps_seat && self.tokens < self.plan.tokens {
            self.seat.take().into_iter().chain(self.place.take()).for_each(|taken| taken.forget());
        }
    }
}

impl Generation {
    /// Waits for a seat and takes it.
    pub async fn begin(
        shared: &Shared,
        request: Request,
        plan: Plan,
        place: OwnedSemaphorePermit,
    ) -> Self {
        let seat = shared.gate.seat().await;
        let base = now(); // before the engine knows of it, and may begin its first step
        let source = match &shared.engine {
            None => Source::Script,
            Some(engine) => Source::Engine(engine.submit(request.prompt_tokens, plan.tokens)),
        };
        let keeps_seat = shared.script.weaknesses.aborted_keeps_seat;
        let place = Some(place);
        Self { plan, request, source, base, tokens: 0, events: 0, seat, place, keeps_seat }
    }

    /// When it got its seat; later, when the last event left.
    pub fn base(&self) -> Nanos {
        self.base
    }

    /// `length` where the answer reached its bound, else `stop`; `None` before its end.
    pub fn finish(&self) -> Option<&'static str> {
        let reason = if self.tokens == self.request.max_tokens { "length" } else { "stop" };
        (self.tokens == self.plan.tokens).then_some(reason)
    }

    /// What comes next. Where the script has the delays this does not wait: there is time to
    /// write the event before it is due. An engine's tokens are due when they are there.
    pub async fn next(&mut self, shared: &Shared) -> Next {
        // What goes wrong does so in place of an event, so at that event's time.
        let (cuts, fails) = match self.plan.fate {
            Fate::Cut(after) => (self.tokens >= after, false),
            Fate::ErrorEvent(after) => (false, self.tokens >= after),
            _ => (false, false),
        };
        if self.tokens == self.plan.tokens && !cuts && !fails {
            return Next::End;
        }
        let Some(due) = self.due(shared).await else {
            return if cuts { Next::Cut(now()) } else { Next::Error(now()) };
        };
        if cuts {
            return Next::Cut(due);
        }
        if fails {
            return Next::Error(due);
        }
        let count = match self.source {
            Source::Script => shared.script.tokens_per_event.draw(self.events, &mut self.plan.rng),
            Source::Engine(_) => 1,
        };
        let from = self.tokens;
        self.tokens = self.plan.tokens.min(from + count);
        self.events += 1;
        Next::Tokens { due, from, to: self.tokens }
    }

    /// What was due has left; the next delay counts from `base`.
    pub fn left(&mut self, base: Nanos) {
        self.base = base;
    }

    /// When the next event is due; `None` where an engine has no more of them.
    async fn due(&mut self, shared: &Shared) -> Option<Nanos> {
        match &mut self.source {
            Source::Script => Some(self.base + self.delay(&shared.script)),
            Source::Engine(steps) => steps.recv().await,
        }
    }

    fn delay(&mut self, script: &Script) -> Nanos {
        let rng = &mut self.plan.rng;
        let seconds = if self.events == 0 {
            let prefill = self.request.prompt_tokens as f64 * script.prefill_us_per_token * 1e-6;
            script.ttft.draw(self.plan.index as usize, rng) + prefill
        } else {
            script.itl.draw(self.events - 1, rng)
        };
        from_seconds(seconds)
    }
}
