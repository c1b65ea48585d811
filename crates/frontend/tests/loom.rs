//! Model check of a mailbox: the same source, compiled with loom's atomics, run through every
//! interleaving and every stale read that the memory model allows. The check also runs with one
//! order weakened, and must then fail.
//!
//! | weakened | what then happens |
//! |---|---|
//! | put, or the look for it | a token is taken that is not whole |
//! | the end, or the look for it | the end comes before the last token |
//!
//! Weakening "taken", or the look for room, cannot fail here: what it allows is that a token is
//! read after its place was written again, and loom's loads see no store that comes later.

// The modules are whole; the check uses a part of them.
#![allow(dead_code, unused_imports, missing_docs, clippy::unwrap_used)]

#[path = "../src/ring/mailbox.rs"]
mod mailbox;
#[path = "../src/ring/sync.rs"]
mod plain;

mod limits {
    /// So few that the ring of words wraps.
    pub const MAILBOX_TOKENS: usize = 2;
}

/// Stands in for `src/ring/sync.rs`.
mod sync {
    pub(crate) use crate::plain::Edge;
    pub(crate) use loom::sync::atomic::{AtomicBool, AtomicU32, AtomicU64};
    use std::cell::Cell;
    pub(crate) use std::sync::atomic::Ordering;

    thread_local! {
        /// The edge that this test weakens: loom runs all threads of a model on the test's own.
        pub(crate) static WEAK: Cell<Option<Edge>> = const { Cell::new(None) };
    }

    pub(crate) fn order(edge: Edge) -> Ordering {
        if WEAK.get() == Some(edge) { Ordering::Relaxed } else { crate::plain::order(edge) }
    }
}

use std::collections::VecDeque;
use std::time::Instant;

use loom::sync::Arc;
use mailbox::{End, Mailbox};
use saccade_ring::{Finish, Record, RequestParams, Submission};
use sync::{Edge, WEAK};

const END: End = End::Finished(Finish::Length);

/// The reader puts `count` tokens as there is room, and the end; the task takes them.
fn pass(count: u32, weak: Option<Edge>) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(3);
    builder.check(move || {
        WEAK.set(weak);
        let params = RequestParams { max_tokens: count, ..RequestParams::default() };
        let submission =
            Submission { prompt: &[1], logit_bias: &[], stop_ids: &[], grammar: &[], params };
        let mailbox = Arc::new(Mailbox::new(&submission, 0));
        let reader = loom::thread::spawn({
            let mailbox = mailbox.clone();
            move || {
                for token in 1..=count {
                    while mailbox.room() == 0 {
                        loom::thread::yield_now();
                    }
                    mailbox.push(&Record { token, logprob: -1.0, top: &[] }, Instant::now());
                }
                mailbox.end(END);
            }
        });
        let mut inbox = VecDeque::new();
        while mailbox.drain(&mut inbox) != Some(Some(END)) {
            loom::thread::yield_now();
        }
        assert!(inbox.iter().map(|token| token.id).eq(1..=count), "{inbox:?}");
        reader.join().unwrap();
    });
}

#[test]
fn tokens_come_whole_in_order_and_before_the_end() {
    pass(1, None);
    pass(3, None);
}

#[test]
#[should_panic(expected = "Token")]
fn a_token_must_be_released() {
    pass(1, Some(Edge::Put));
}

#[test]
#[should_panic(expected = "Token")]
fn a_token_must_be_acquired() {
    pass(1, Some(Edge::Look));
}

#[test]
#[should_panic(expected = "[]")]
fn the_end_must_be_released() {
    pass(1, Some(Edge::End));
}

#[test]
#[should_panic(expected = "[]")]
fn the_end_must_be_acquired() {
    pass(1, Some(Edge::LookForEnd));
}
