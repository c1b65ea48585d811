//! A mailbox, by itself; apart from it because the model check compiles that file.

use std::collections::VecDeque;
use std::time::Instant;

use saccade_ring::{Finish, Record, RequestParams, Submission};

use super::mailbox::{End, Mailbox, Token};
use crate::limits::MAILBOX_TOKENS;

fn mailbox(max_tokens: u32, top: u32) -> Mailbox {
    let params = RequestParams {
        max_tokens,
        logprobs: top > 0,
        num_top_logprobs: top,
        ..RequestParams::default()
    };
    let submission =
        Submission { prompt: &[1], logit_bias: &[], stop_ids: &[], grammar: &[], params };
    Mailbox::new(&submission, 0)
}

fn record(token: u32, top: &[(u32, f32)]) -> Record<'_> {
    Record { token, logprob: -1.5, top }
}

#[test]
fn it_holds_no_more_than_its_bound_and_loses_nothing() {
    let mailbox = mailbox(100_000, 0);
    let mut inbox = VecDeque::new();
    let mut next = 0;
    for round in 0..5 {
        while mailbox.room() > 0 {
            mailbox.push(&record(next, &[]), Instant::now());
            next += 1;
        }
        assert_eq!(next as usize, (round + 1) * MAILBOX_TOKENS);
        mailbox.push(&record(u32::MAX, &[]), Instant::now());
        assert_eq!(mailbox.drain(&mut inbox), Some(None));
    }
    assert!(inbox.iter().map(|token| token.id).eq(0..next));
    assert_eq!(mailbox.drain(&mut inbox), None);
}

#[test]
fn a_short_request_gets_a_short_queue() {
    assert_eq!((mailbox(3, 0).room(), mailbox(3, 20).room()), (3, 3));
}

#[test]
fn the_first_end_counts_and_comes_with_the_last_token() {
    let finishes =
        [Finish::Stop, Finish::Length, Finish::Cancelled, Finish::Invalid, Finish::Error];
    for end in finishes.map(End::Finished).into_iter().chain([End::Lost, End::Stopping]) {
        let mailbox = mailbox(2, 2);
        let at = Instant::now();
        mailbox.admit(at);
        mailbox.push(&record(7, &[(7, -1.5), (8, -2.0)]), at);
        mailbox.end(end);
        mailbox.end(End::Stopping);
        let mut inbox = VecDeque::new();
        assert_eq!(mailbox.drain(&mut inbox), Some(Some(end)));
        let top: Box<[(u32, f32)]> = [(7, -1.5), (8, -2.0)].into();
        assert_eq!(inbox, [Token { id: 7, logprob: -1.5, top, at }]);
        assert_eq!((mailbox.admitted(), mailbox.cached()), (Some(at), 0));
    }
}

#[test]
fn a_consumer_that_left_stalls_nothing() {
    let mailbox = mailbox(1, 0);
    mailbox.close();
    for i in 0..10 {
        assert_eq!(mailbox.room(), usize::MAX);
        mailbox.push(&record(i, &[]), Instant::now());
    }
    assert_eq!(mailbox.drain(&mut VecDeque::new()), None);
}

/// Two threads, all interleavings that chance brings.
#[test]
fn what_one_thread_puts_another_takes() {
    const COUNT: u32 = 200_000;
    let mailbox = mailbox(COUNT, 1);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut next = 0;
            while next < COUNT {
                if mailbox.room() == 0 {
                    std::thread::yield_now();
                    continue;
                }
                mailbox.push(&record(next, &[(!next, 0.0)]), Instant::now());
                next += 1;
            }
            mailbox.end(End::Lost);
        });
        let (mut inbox, mut expected) = (VecDeque::new(), 0);
        loop {
            let end = mailbox.drain(&mut inbox);
            for token in inbox.drain(..) {
                assert_eq!((token.id, token.top[0].0), (expected, !expected));
                expected += 1;
            }
            match end {
                Some(Some(end)) => break assert_eq!((end, expected), (End::Lost, COUNT)),
                _ => std::thread::yield_now(),
            }
        }
    });
}
