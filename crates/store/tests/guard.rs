//! Deadlines, the breaker, bounds and counters, on a clock that the tests move.
#![allow(clippy::unwrap_used)] // in helpers of tests

mod common;

use std::ops::ControlFlow;
use std::time::Duration;

use common::{MAX_BYTES, keys, open, value};
use saccade_store::testing::{Dice, Fault, Proxy, free_port};
use saccade_store::{BreakerState, Filter, Guarded, Key, Limits, Put, Trouble};
use tokio::time::{Instant, advance};

const LIMITS: Limits = Limits {
    deadline: Duration::from_secs(1),
    max_in_flight: 4,
    failures: 3,
    backoff: Duration::from_secs(2),
    max_backoff: Duration::from_secs(5),
};

/// Connections there are refused.
fn nowhere() -> Guarded {
    Guarded::new(open(&format!("redis://127.0.0.1:{}", free_port())), LIMITS)
}

/// Accepts, and never says anything.
async fn silence() -> (Proxy, Guarded) {
    let proxy = Proxy::start(([127, 0, 0, 1], 9).into(), Dice::of_this_run()).await;
    proxy.set(Fault::Hang);
    let store = open(&format!("redis://{}", proxy.address()));
    (proxy, Guarded::new(store, LIMITS))
}

async fn kind(store: &Guarded, key: &Key) -> &'static str {
    store.get(key, MAX_BYTES).await.map_or_else(|trouble| trouble.kind(), |_| "ok")
}

#[tokio::test(start_paused = true)]
async fn every_operation_ends_at_its_deadline() {
    let (_proxy, store) = silence().await;
    let keys = keys(1, 3);
    let began = Instant::now();
    let trouble = store.put(&keys[0], value(1, 9)).await;
    assert_eq!(trouble, Err(Trouble::Timeout(LIMITS.deadline)));
    assert!(began.elapsed() < LIMITS.deadline + Duration::from_millis(10), "{:?}", began.elapsed());
    assert_eq!(store.exist(&keys).await, Err(Trouble::Timeout(LIMITS.deadline)));
}

#[tokio::test]
async fn the_breaker_opens_probes_once_and_backs_off() {
    let store = nowhere();
    let key = keys(2, 1)[0];
    for _ in 0..3 {
        assert_eq!(store.breaker(), BreakerState::Closed);
        assert_eq!(kind(&store, &key).await, "connect");
    }
    tokio::time::pause();
    // Each probe fails, and doubles the time that the store is left alone, up to the bound.
    for backoff in [2, 4, 5, 5] {
        assert_eq!(store.breaker(), BreakerState::Open);
        advance(Duration::from_millis(backoff * 1000 - 50)).await;
        assert_eq!(kind(&store, &key).await, "breaker_open");
        advance(Duration::from_millis(51)).await;
        tokio::time::resume();
        assert_eq!(kind(&store, &key).await, "connect", "after {backoff} s");
        tokio::time::pause();
    }
}

#[tokio::test(start_paused = true)]
async fn one_probe_at_a_time_is_on_its_way() {
    let (proxy, store) = silence().await;
    let key = keys(3, 1)[0];
    for _ in 0..3 {
        assert_eq!(kind(&store, &key).await, "timeout");
    }
    advance(LIMITS.backoff).await;
    let probe = tokio::spawn({
        let store = store.clone();
        async move { kind(&store, &key).await }
    });
    tokio::task::yield_now().await;
    assert_eq!(store.breaker(), BreakerState::Probing);
    assert_eq!(kind(&store, &key).await, "breaker_open");
    // Its caller leaves: the next operation is the probe.
    probe.abort();
    assert!(probe.await.unwrap_err().is_cancelled());
    assert_eq!(kind(&store, &key).await, "timeout");
    assert_eq!(store.breaker(), BreakerState::Open);
    drop(proxy);
}

#[tokio::test(start_paused = true)]
async fn as_many_operations_as_allowed_run() {
    let (_proxy, store) = silence().await;
    let tasks: Vec<_> = (0..LIMITS.max_in_flight)
        .map(|_| {
            let store = store.clone();
            let long = 5 * LIMITS.deadline;
            tokio::spawn(async move {
                store.list(&Filter::default(), long, |_| ControlFlow::Continue(())).await
            })
        })
        .collect();
    tokio::task::yield_now().await;
    let began = Instant::now();
    assert_eq!(kind(&store, &keys(4, 1)[0]).await, "busy");
    assert!(began.elapsed() < LIMITS.deadline + Duration::from_millis(10), "{:?}", began.elapsed());
    assert_eq!(store.breaker(), BreakerState::Closed, "which is not the store's fault");
    for task in tasks {
        assert_eq!(task.await.unwrap(), Err(Trouble::Timeout(5 * LIMITS.deadline)));
    }
}

#[tokio::test]
async fn counters_tell_how_operations_ended() {
    let store = Guarded::new(open("memory:?max_bytes=2000"), LIMITS);
    let key = keys(5, 1)[0];
    assert_eq!(store.get(&key, MAX_BYTES).await, Ok(None));
    assert_eq!(store.put(&key, value(1, 100)).await, Ok(Put::Stored));
    assert_eq!(store.put(&key, value(1, 100)).await, Ok(Put::Already));
    assert_eq!(store.put(&keys(6, 1)[0], value(1, 9000)).await, Ok(Put::Full));
    assert_eq!(store.get(&key, MAX_BYTES).await, Ok(Some(value(1, 100))));
    // Not the store's fault, however often.
    for _ in 0..9 {
        assert_eq!(store.get(&key, 99).await, Err(Trouble::TooLarge { max_bytes: 99 }));
    }
    assert_eq!(store.breaker(), BreakerState::Closed);
    assert_eq!(store.exist(&[key]).await, Ok(vec![true]));
    let counts = store.counts().into_iter().map(|c| (c.operation.name(), c.outcome, c.count));
    let expected = [
        ("exist", "ok", 1),
        ("get", "ok", 1),
        ("get", "absent", 1),
        ("get", "too_large", 9),
        ("put", "ok", 1),
        ("put", "already", 1),
        ("put", "full", 1),
    ];
    assert_eq!(counts.collect::<Vec<_>>(), expected);
}
