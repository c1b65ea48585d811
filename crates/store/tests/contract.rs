//! What every store does, whichever it is.
#![allow(clippy::unwrap_used)] // in helpers of tests

mod common;

use std::ops::ControlFlow;
use std::time::Duration;

use bytes::Bytes;
use common::{MAX_BYTES, get_all, keys, list, open, value};
use saccade_store::testing::{RedisServer, S3Server};
use saccade_store::{Filter, Found, Key, ModelId, Put, Store, Trouble};

/// Checks the store at `url`, which has no parameters, or some and a `&` at its end.
async fn check(url: &str) {
    let open = |parameters: &str| open(&format!("{url}{parameters}"));
    let store = open("namespace=contract");
    values_come_back(&store).await;
    values_stay_as_they_are(&store).await;
    prefixes_are_found(&store).await;
    nothing_larger_than_the_maximum_is_taken(&store).await;
    a_batch_may_end_early(&store).await;
    keys_are_apart(&store, &open("namespace=contract2")).await;
    listings_tell_all(&open("namespace=listings")).await;
    operations_run_side_by_side(&open("namespace=side&connections=2")).await;
    nothing_is_asked_of_nothing(&store).await;
    if !url.starts_with("memory") {
        another_client_sees_it(&store, &open("namespace=contract")).await;
    }
    values_expire(&open("namespace=contract3&ttl_s=5")).await;
}

async fn values_come_back(store: &Store) {
    let keys = keys(1, 40);
    for (i, key) in keys.iter().enumerate().filter(|(i, _)| i % 3 != 0) {
        assert_eq!(store.put(key, value(i as u64, 1 + i * 997)).await, Ok(Put::Stored));
    }
    let expected = |i: usize| match i % 3 {
        0 => Found::Absent,
        _ => Found::Value(value(i as u64, 1 + i * 997)),
    };
    let found = get_all(store, &keys, MAX_BYTES).await;
    assert_eq!(found, (0..40).map(expected).collect::<Vec<_>>());
    let exist = store.exist(&keys).await.unwrap();
    assert_eq!(exist, (0..40).map(|i| i % 3 != 0).collect::<Vec<_>>());
    assert_eq!(store.get(&keys[1], MAX_BYTES).await, Ok(Some(value(1, 998))));
    assert_eq!(store.get(&keys[0], MAX_BYTES).await, Ok(None));
    store.remove(&keys).await.unwrap();
    assert_eq!(store.exist(&keys).await, Ok(vec![false; 40]));
    store.remove(&keys).await.unwrap();
}

/// Bytes that mean something to a protocol are values like others.
async fn values_stay_as_they_are(store: &Store) {
    let keys = keys(2, 4);
    let values: [&[u8]; 4] = [b"\r\n", b"$-1\r\n", &[0], &[0xff; 3]];
    for (key, value) in keys.iter().zip(values) {
        assert_eq!(store.put(key, Bytes::from_static(value)).await, Ok(Put::Stored));
        assert_eq!(store.put(key, Bytes::from_static(b"other")).await, Ok(Put::Already));
        assert_eq!(store.get(key, MAX_BYTES).await, Ok(Some(Bytes::from_static(value))));
    }
    assert_eq!(store.put(&keys[0], Bytes::new()).await, Err(Trouble::Empty));
    store.remove(&keys[..1]).await.unwrap();
    assert_eq!(store.put(&keys[0], value(1, 5)).await, Ok(Put::Stored));
    assert_eq!(store.get(&keys[0], MAX_BYTES).await, Ok(Some(value(1, 5))));
    store.remove(&keys).await.unwrap();
}

async fn prefixes_are_found(store: &Store) {
    let keys = keys(3, 40);
    assert_eq!(store.longest_prefix(&keys).await, Ok(0));
    for there in 0..40 {
        store.put(&keys[there], value(1, 10)).await.unwrap();
        for asked in [1, there, there + 1, 40] {
            let prefix = store.longest_prefix(&keys[..asked]).await;
            assert_eq!(prefix, Ok(asked.min(there + 1)), "{there} of {asked}");
        }
    }
    store.remove(&keys).await.unwrap();
}

async fn nothing_larger_than_the_maximum_is_taken(store: &Store) {
    let keys = keys(4, 3);
    for (key, count) in keys.iter().zip([100, 101, 300_000]) {
        store.put(key, value(9, count)).await.unwrap();
    }
    let found = get_all(store, &keys, 100).await;
    assert_eq!(found, [Found::Value(value(9, 100)), Found::TooLarge, Found::TooLarge]);
    assert_eq!(store.get(&keys[0], 100).await, Ok(Some(value(9, 100))));
    assert_eq!(store.get(&keys[1], 100).await, Err(Trouble::TooLarge { max_bytes: 100 }));
    assert_eq!(store.get(&keys[2], 100).await, Err(Trouble::TooLarge { max_bytes: 100 }));
    store.remove(&keys).await.unwrap();
}

async fn a_batch_may_end_early(store: &Store) {
    let keys = keys(5, 20);
    for key in &keys {
        store.put(key, value(5, 1000)).await.unwrap();
    }
    let mut told = 0;
    let batch = store.get_many(&keys, MAX_BYTES, |index, _| {
        told += 1;
        if index == 4 { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    });
    batch.await.unwrap();
    assert_eq!(told, 5);
    assert_eq!(get_all(store, &keys, MAX_BYTES).await.len(), 20);
    store.remove(&keys).await.unwrap();
}

async fn keys_are_apart(store: &Store, other: &Store) {
    let key = keys(6, 1)[0];
    let salted = Key { salt: 8, ..key };
    let modelled = Key { model: ModelId::from_bytes([1; 32]), ..key };
    store.put(&key, value(1, 9)).await.unwrap();
    assert_eq!(store.exist(&[key, salted, modelled]).await, Ok(vec![true, false, false]));
    assert_eq!(other.exist(&[key, salted, modelled]).await, Ok(vec![false; 3]));
    store.put(&salted, value(2, 9)).await.unwrap();
    other.put(&key, value(3, 9)).await.unwrap();
    assert_eq!(store.get(&key, MAX_BYTES).await, Ok(Some(value(1, 9))));
    assert_eq!(store.get(&salted, MAX_BYTES).await, Ok(Some(value(2, 9))));
    assert_eq!(other.get(&key, MAX_BYTES).await, Ok(Some(value(3, 9))));
    let listed = list(store, &Filter::default()).await.unwrap().0;
    assert_eq!(listed.len(), 2, "of one namespace, though another begins with it");
    store.remove(&[key, salted]).await.unwrap();
    other.remove(&[key]).await.unwrap();
}

async fn listings_tell_all(store: &Store) {
    // More than a page of any store.
    let mut keys = keys(7, 1100);
    keys[10].salt = 8;
    keys[11].model = ModelId::from_bytes([1; 32]);
    for (i, key) in keys.iter().enumerate() {
        store.put(key, value(7, 1 + i % 50)).await.unwrap();
    }
    let mut expected: Vec<(Key, u64)> =
        keys.iter().enumerate().map(|(i, key)| (*key, 1 + i as u64 % 50)).collect();
    expected.sort_by_key(|(key, _)| *key.name.bytes());
    let (entries, foreign) = list(store, &Filter::default()).await.unwrap();
    let told: Vec<(Key, u64)> = entries.iter().map(|entry| (entry.key, entry.bytes)).collect();
    assert!(told == expected, "{} told", told.len());
    assert_eq!(foreign, 0);
    assert!(entries.iter().all(|e| e.age.is_none_or(|age| age < Duration::from_secs(600))));

    let (model, salt) = (Some(keys[0].model), Some(8));
    for (filter, count) in [
        (Filter { model, salt: None }, 1099),
        (Filter { model, salt }, 1),
        (Filter { model: None, salt }, 1),
        (Filter { model: Some(ModelId::from_bytes([2; 32])), salt: None }, 0),
    ] {
        assert_eq!(list(store, &filter).await.unwrap().0.len(), count, "{filter:?}");
    }
    let mut told = 0;
    let all = Filter::default();
    let some = store.list(&all, |_| {
        told += 1;
        if told == 3 { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    });
    assert_eq!(some.await.unwrap().told, 3);
    store.remove(&keys).await.unwrap();
}

async fn operations_run_side_by_side(store: &Store) {
    let keys = keys(8, 64);
    let tasks = keys.clone().into_iter().enumerate().map(|(i, key)| {
        let store = store.clone();
        tokio::spawn(async move {
            let value = value(i as u64, 20_000);
            let put = store.put(&key, value.clone()).await.unwrap();
            assert_eq!(store.get(&key, MAX_BYTES).await, Ok(Some(value)));
            put
        })
    });
    for task in tasks.collect::<Vec<_>>() {
        assert_eq!(task.await.unwrap(), Put::Stored);
    }
    assert_eq!(store.longest_prefix(&keys).await, Ok(64));
    store.remove(&keys).await.unwrap();
}

async fn nothing_is_asked_of_nothing(store: &Store) {
    assert_eq!(store.exist(&[]).await, Ok(Vec::new()));
    assert_eq!(store.longest_prefix(&[]).await, Ok(0));
    assert_eq!(get_all(store, &[], 1).await, []);
    assert_eq!(store.remove(&[]).await, Ok(()));
}

async fn another_client_sees_it(store: &Store, other: &Store) {
    let key = keys(9, 1)[0];
    store.put(&key, value(1, 9)).await.unwrap();
    assert_eq!(other.get(&key, MAX_BYTES).await, Ok(Some(value(1, 9))));
    other.remove(&[key]).await.unwrap();
    assert_eq!(store.get(&key, MAX_BYTES).await, Ok(None));
}

async fn values_expire(store: &Store) {
    let key = keys(10, 1)[0];
    assert_eq!(store.put(&key, value(1, 9)).await, Ok(Put::Stored));
    assert_eq!(store.put(&key, value(1, 9)).await, Ok(Put::Already));
    assert_eq!(list(store, &Filter::default()).await.unwrap().0.len(), 1);
    // S3 knows times in whole seconds.
    tokio::time::sleep(Duration::from_millis(6100)).await;
    assert_eq!(store.exist(&[key]).await, Ok(vec![false]));
    assert_eq!(store.get(&key, MAX_BYTES).await, Ok(None));
    assert_eq!(list(store, &Filter::default()).await.unwrap().0, []);
    assert_eq!(store.put(&key, value(2, 9)).await, Ok(Put::Stored));
    assert_eq!(store.get(&key, MAX_BYTES).await, Ok(Some(value(2, 9))));
    store.remove(&[key]).await.unwrap();
}

#[tokio::test]
async fn memory() {
    check("memory:?").await;
}

#[tokio::test]
async fn folder() {
    let folder = tempfile::tempdir().unwrap();
    check(&format!("file://{}?", folder.path().display())).await;
}

#[tokio::test]
async fn redis() {
    let Some(server) = RedisServer::start(&[]) else { return };
    check(&format!("redis://{}/3?", server.address())).await;
}

#[tokio::test]
async fn s3() {
    let Some(server) = S3Server::start() else { return };
    server.make_bucket("chunks");
    check(&format!("s3://chunks/a/b?endpoint=http://{}&", server.address())).await;
}
