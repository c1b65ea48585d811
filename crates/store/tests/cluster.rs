//! Against a cluster of three nodes.
#![allow(clippy::unwrap_used)] // in helpers of tests

mod common;

use std::process::Command;
use std::time::{Duration, Instant};

use common::{MAX_BYTES, get_all, keys, list, open, value};
use saccade_store::testing::RedisServer;
use saccade_store::{Filter, Found, Guarded, Limits, Put};

const SETTINGS: [(&str, &str); 4] = [
    ("cluster-enabled", "yes"),
    // With one of three dead, the others go on.
    ("cluster-require-full-coverage", "no"),
    ("cluster-node-timeout", "2000"),
    ("requirepass", "pw"),
];

/// Three masters, each with a third of the slots.
fn cluster() -> Option<Vec<RedisServer>> {
    let nodes: Option<Vec<_>> = (0..3).map(|_| RedisServer::start(&SETTINGS)).collect();
    let nodes = nodes?;
    let made = Command::new("redis-cli")
        .args(["-a", "pw", "--cluster", "create"])
        .args(nodes.iter().map(|node| node.address().to_string()))
        .args(["--cluster-replicas", "0", "--cluster-yes"])
        .output()
        .expect("redis-cli is installed with redis-server");
    let text = String::from_utf8_lossy(&made.stdout);
    assert!(text.contains("All 16384 slots covered"), "{text}");
    Some(nodes)
}

#[tokio::test]
async fn keys_are_spread_over_nodes_and_a_dead_one_is_found_again() {
    let Some(mut nodes) = cluster() else { return };
    let at: Vec<String> = nodes.iter().map(|node| node.address().to_string()).collect();
    let store = open(&format!("redis://:pw@{}?cluster=true&ttl_s=600", at.join(",")));
    let keys = keys(1, 300);
    for (i, key) in keys.iter().enumerate() {
        assert_eq!(store.put(key, value(i as u64, 5_000)).await, Ok(Put::Stored));
    }
    assert_eq!(store.put(&keys[0], value(1, 9)).await, Ok(Put::Already));
    assert_eq!(store.longest_prefix(&keys).await, Ok(300));
    let all: Vec<Found> = (0..300).map(|i| Found::Value(value(i, 5_000))).collect();
    assert!(get_all(&store, &keys, MAX_BYTES).await == all);
    assert_eq!(get_all(&store, &keys[..9], 4_999).await, vec![Found::TooLarge; 9]);

    // Every node has some, and a listing goes to all of them.
    let mut sizes = Vec::new();
    for node in &nodes {
        let size = node.ask(&[&["AUTH", "pw"], &["DBSIZE"]]);
        sizes.push(size.trim_matches([':', '\r', '\n']).parse::<usize>().unwrap());
    }
    assert_eq!(sizes.iter().sum::<usize>(), 300, "{sizes:?}");
    assert!(sizes.iter().all(|size| *size > 50), "{sizes:?}");
    let (entries, foreign) = list(&store, &Filter::default()).await.unwrap();
    assert_eq!((entries.len(), foreign), (300, 0));
    assert!(entries.iter().all(|entry| entry.age.is_some_and(|age| age.as_secs() < 300)));
    store.remove(&keys[150..]).await.unwrap();
    assert_eq!(store.longest_prefix(&keys).await, Ok(150));

    // One node given is enough to find the others.
    let one = open(&format!("redis://:pw@{}?cluster=true", at[1]));
    assert_eq!(one.longest_prefix(&keys).await, Ok(150));

    let limits = Limits { failures: u32::MAX, ..Limits::default() };
    let store = Guarded::new(store, limits);
    nodes[2].kill();
    assert!(store.exist(&keys).await.is_err(), "a third of the keys cannot be asked for");
    nodes[2].restart();
    let began = Instant::now();
    while store.exist(&keys).await.is_err() {
        assert!(began.elapsed() < Duration::from_secs(60), "the cluster does not come back");
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
    for key in &keys {
        assert!(matches!(store.put(key, value(1, 9)).await, Ok(Put::Stored | Put::Already)));
    }
    assert_eq!(store.longest_prefix(&keys).await, Ok(300));
    eprintln!("back after {:?}: {:?}", began.elapsed(), store.counts());
}
