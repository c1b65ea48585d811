//! Between the token reader and one choice of one request: a bounded queue of tokens and one end.

use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};
use std::time::Instant;

use saccade_ring::Finish;

use crate::limits::MAILBOX_TOKENS;

/// One record of the device.
#[derive(Debug, Clone, PartialEq)]
pub struct Token {
    /// Token id.
    pub id: u32,
    /// Its logprob, if asked for.
    pub logprob: f32,
    /// Alternatives, best first.
    pub top: Box<[(u32, f32)]>,
    /// When the reader found it.
    pub at: Instant,
}

/// How a ticket ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum End {
    /// The device ended it.
    Finished(Finish),
    /// The device was lost, or broke the protocol.
    Lost,
    /// This frontend is stopping.
    Stopping,
}

#[derive(Default)]
struct State {
    tokens: VecDeque<Token>,
    end: Option<End>,
    waker: Option<Waker>,
    closed: bool,
    admitted: Option<Instant>,
    cached: u32,
}

/// Tokens of one ticket. The reader never waits on it: what does not fit stays in the ring.
#[derive(Default)]
pub struct Mailbox {
    state: Mutex<State>,
}

impl Mailbox {
    /// Records that fit now. A consumer that went away takes (and discards) any number.
    pub fn room(&self) -> usize {
        let state = self.lock();
        if state.closed { usize::MAX } else { MAILBOX_TOKENS.saturating_sub(state.tokens.len()) }
    }

    /// Adds a token; returns the task to wake.
    pub fn push(&self, token: Token) -> Option<Waker> {
        let mut state = self.lock();
        if state.closed {
            return None;
        }
        state.tokens.push_back(token);
        state.waker.take()
    }

    /// The device took the ticket from its queue.
    pub fn admit(&self, at: Instant) {
        self.lock().admitted.get_or_insert(at);
    }

    /// When the device took the ticket from its queue, if that was seen.
    pub fn admitted(&self) -> Option<Instant> {
        self.lock().admitted
    }

    /// Notes how many prompt tokens were not computed.
    pub fn cache(&self, tokens: u32) {
        self.lock().cached = tokens;
    }

    /// Prompt tokens that were not computed; known with the first token.
    pub fn cached(&self) -> u32 {
        self.lock().cached
    }

    /// Adds the end (the first one counts); returns the task to wake.
    pub fn end(&self, end: End) -> Option<Waker> {
        let mut state = self.lock();
        state.end.get_or_insert(end);
        state.waker.take()
    }

    /// The consumer goes away.
    pub fn close(&self) {
        let mut state = self.lock();
        state.closed = true;
        state.tokens = VecDeque::new();
    }

    /// Moves all tokens into the empty `tokens`; the end comes with the last of them.
    pub fn poll_drain(
        &self,
        tokens: &mut VecDeque<Token>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<End>> {
        let mut state = self.lock();
        if state.tokens.is_empty() && state.end.is_none() {
            let known = state.waker.as_ref().is_some_and(|w| w.will_wake(cx.waker()));
            if !known {
                state.waker = Some(cx.waker().clone());
            }
            return Poll::Pending;
        }
        std::mem::swap(&mut state.tokens, tokens);
        Poll::Ready(state.end)
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // No code under this lock can panic halfway: the state is consistent even if a holder died.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
