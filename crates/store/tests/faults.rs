//! A real server behind a network that misbehaves: every operation ends in time, says what
//! happened, and never gives a value that was not stored.
#![allow(clippy::unwrap_used)] // in helpers of tests

mod common;

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use common::{MAX_BYTES, keys, open, value};
use saccade_store::testing::{Dice, Fault, Injected, Proxy, RedisServer, S3Server};
use saccade_store::{BreakerState, Filter, Guarded, Key, Limits, Put, Trouble};

const LIMITS: Limits = Limits {
    deadline: Duration::from_secs(1),
    max_in_flight: 16,
    failures: 3,
    backoff: Duration::from_millis(50),
    max_backoff: Duration::from_millis(100),
};
/// For a machine that is busy: far less than a fault takes.
const LATE: Duration = Duration::from_secs(50);
const BYTES: usize = 40_000;

/// A fault, the kinds of trouble that it may make, and whether it was injected.
type Case = (Fault, &'static [&'static str], fn(Injected) -> bool);

const CASES: [Case; 6] = [
    (Fault::Refuse, &["connect"], |_| true),
    (Fault::Hang, &["timeout"], |i| i.hangs > 0),
    (Fault::Delay(Duration::from_secs(60)), &["timeout"], |i| i.delays > 0),
    (Fault::Trickle, &["timeout"], |i| i.drips > 0),
    (Fault::Cut { within: 100 }, &["connect", "io", "protocol"], |i| i.cuts > 0),
    (Fault::Reset { within: 100 }, &["connect", "io", "protocol"], |i| i.resets > 0),
];

/// Every operation once. Those that fail have one of these kinds.
async fn every_operation(store: &Guarded, keys: &[Key], kinds: &[&str]) -> usize {
    let mut failures = 0;
    let mut told = |what: &str, began: Instant, result: Result<(), Trouble>| {
        assert!(began.elapsed() < LATE, "{what}: {:?}", began.elapsed());
        let Err(trouble) = result else { return };
        failures += 1;
        let kind = trouble.kind();
        assert!(kinds.contains(&kind) || kind == "breaker_open", "{what}: {kind}: {trouble}");
    };
    let began = Instant::now();
    told("exist", began, store.exist(keys).await.map(|_| ()));
    let began = Instant::now();
    told("longest_prefix", began, store.longest_prefix(keys).await.map(|_| ()));
    let began = Instant::now();
    told("get", began, store.get(&keys[0], MAX_BYTES).await.map(|_| ()));
    let began = Instant::now();
    let many = store.get_many(keys, MAX_BYTES, |_, _| std::ops::ControlFlow::Continue(()));
    told("get_many", began, many.await);
    let began = Instant::now();
    let another = common::keys(99, 1)[0];
    told("put", began, store.put(&another, value(1, BYTES)).await.map(|_| ()));
    let began = Instant::now();
    told("remove", began, store.remove(&[another]).await);
    let began = Instant::now();
    let all = Filter::default();
    let list = store.list(&all, LIMITS.deadline, |_| std::ops::ControlFlow::Continue(()));
    told("list", began, list.await.map(|_| ()));
    failures
}

async fn recovers(store: &Guarded, keys: &[Key], fault: Fault) {
    let began = Instant::now();
    while store.longest_prefix(keys).await != Ok(keys.len())
        || store.get(&keys[0], MAX_BYTES).await != Ok(Some(value(0, BYTES)))
        || store.breaker() != BreakerState::Closed
    {
        assert!(began.elapsed() < LATE, "{fault:?}: {:?}", store.breaker());
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

async fn check(server: SocketAddr, url: impl Fn(SocketAddr) -> String) {
    let mut dice = Dice::of_this_run();
    let proxy = Proxy::start(server, Dice::new(dice.next())).await;
    let keys = keys(dice.next(), 6);
    // A busy machine may need longer than the deadline to store them.
    let direct = open(&url(server));
    for (i, key) in keys.iter().enumerate() {
        assert_eq!(direct.put(key, value(i as u64, BYTES)).await, Ok(Put::Stored));
    }
    let store = Guarded::new(open(&url(proxy.address())), LIMITS);
    for (fault, kinds, injected) in CASES {
        recovers(&store, &keys, Fault::None).await;
        proxy.set(fault);
        let mut failures = 0;
        let began = Instant::now();
        while store.breaker() == BreakerState::Closed {
            failures += every_operation(&store, &keys, kinds).await;
            assert!(began.elapsed() < LATE, "{fault:?}: the breaker stays closed");
        }
        assert!(failures >= 3, "{fault:?}");
        assert!(injected(proxy.injected()), "{fault:?}: {:?}", proxy.injected());
        proxy.set(Fault::None);
        recovers(&store, &keys, fault).await;
    }
    flips(&proxy, &store, &keys).await;
    eprintln!("{:?}", proxy.injected());
}

/// Whatever is flipped, nothing panics, hangs, or grows. A flipped value is not ours to find.
async fn flips(proxy: &Proxy, store: &Guarded, keys: &[Key]) {
    let kinds = ["connect", "io", "protocol", "refused", "timeout", "too_large"];
    for every in [7, 30, 100, 1_000, 10_000] {
        for _ in 0..3 {
            proxy.set(Fault::Flip { every });
            every_operation(store, keys, &kinds).await;
        }
    }
    assert!(proxy.injected().flips > 0);
    proxy.set(Fault::None);
    recovers(store, keys, Fault::Flip { every: 7 }).await;
}

#[tokio::test]
async fn redis() {
    let Some(server) = RedisServer::start(&[]) else { return };
    check(server.address(), |address| format!("redis://{address}")).await;
}

#[tokio::test]
async fn s3() {
    let Some(server) = S3Server::start() else { return };
    server.make_bucket("chunks");
    check(server.address(), |address| format!("s3://chunks?endpoint=http://{address}")).await;
}

#[tokio::test]
async fn a_connection_that_says_nothing_more_is_replaced() {
    let Some(server) = RedisServer::start(&[]) else { return };
    let proxy = Proxy::start(server.address(), Dice::of_this_run()).await;
    let limits = Limits { failures: 100, ..LIMITS };
    let url = format!("redis://{}?connections=2", proxy.address());
    let store = Guarded::new(open(&url), limits);
    let keys = keys(1, 6);
    for stalls in [2, 4, 6] {
        // Both connections are made, and used.
        recovers_all(&store, &keys).await;
        proxy.set(Fault::Stall);
        tokio::time::sleep(Duration::from_millis(50)).await;
        assert_eq!(proxy.injected().hangs, stalls);
        let stalled = store.get(&keys[0], MAX_BYTES).await;
        assert_eq!(stalled, Err(Trouble::Timeout(limits.deadline)));
        recovers_all(&store, &keys).await;
        proxy.set(Fault::None);
    }
}

async fn recovers_all(store: &Guarded, keys: &[Key]) {
    let began = Instant::now();
    let none = |_, _| std::ops::ControlFlow::Continue(());
    // A command that times out on one connection leaves the other to the next command.
    while store.get_many(keys, MAX_BYTES, none).await.is_err() {
        assert!(began.elapsed() < LATE, "the connection is not replaced");
    }
}
