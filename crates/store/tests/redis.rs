//! Against Redis or Valkey: passwords, TLS, memory, deaths, clusters.
#![allow(clippy::unwrap_used)] // in helpers of tests

mod common;

use std::path::Path;
use std::process::Command;
use std::time::Duration;

use common::{MAX_BYTES, get_all, keys, list, open, value};
use saccade_store::testing::{RedisServer, free_port};
use saccade_store::{Filter, Found, Put, Store, Trouble};

#[tokio::test]
async fn a_password_is_asked_for() {
    let Some(server) = RedisServer::start(&[
        ("requirepass", "s3/c@et"),
        ("user", "eve on >pw ~saccade* +@all -set"),
    ]) else {
        return;
    };
    let at = server.address();
    let key = keys(1, 1)[0];
    let mine = open(&format!("redis://:s3%2Fc%40et@{at}"));
    assert_eq!(mine.put(&key, value(1, 9)).await, Ok(Put::Stored));
    let eve = open(&format!("redis://eve:pw@{at}"));
    assert_eq!(eve.get(&key, MAX_BYTES).await, Ok(Some(value(1, 9))));
    for (url, what) in [
        (format!("redis://{at}"), "none"),
        (format!("redis://:wrong@{at}"), "another"),
        (format!("redis://bob:wrong@{at}"), "another's"),
    ] {
        let refused = open(&url).get(&key, MAX_BYTES).await.unwrap_err();
        assert_eq!(refused.kind(), "refused", "{what}: {refused}");
        assert!(!refused.to_string().contains("wrong:"), "{refused}");
    }
    let refused = eve.put(&keys(2, 1)[0], value(1, 9)).await.unwrap_err();
    assert_eq!(refused.kind(), "refused", "{refused}");
}

/// A certificate for 127.0.0.1 that signs itself.
fn certificate(folder: &Path) {
    let openssl = Command::new("openssl")
        .args(["req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes"])
        .args(["-keyout", "key.pem", "-out", "cert.pem", "-days", "2", "-subj", "/CN=store"])
        .args(["-addext", "subjectAltName=IP:127.0.0.1"])
        .args(["-addext", "basicConstraints=critical,CA:FALSE"])
        .current_dir(folder)
        .output();
    let output = openssl.expect("openssl is installed");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

#[tokio::test]
async fn tls_is_believed_only_with_its_certificate() {
    let folder = tempfile::tempdir().unwrap();
    certificate(folder.path());
    let file = |name: &str| folder.path().join(name).display().to_string();
    let (cert, key) = (file("cert.pem"), file("key.pem"));
    let settings = [("tls-cert-file", &*cert), ("tls-key-file", &*key), ("tls-auth-clients", "no")];
    let Some(server) = RedisServer::start(&settings) else { return };
    let at = server.address();
    let keys = keys(3, 10);
    let store = open(&format!("rediss://{at}?ca={cert}"));
    for key in &keys {
        assert_eq!(store.put(key, value(1, 200_000)).await, Ok(Put::Stored));
    }
    assert_eq!(get_all(&store, &keys, MAX_BYTES).await, vec![Found::Value(value(1, 200_000)); 10]);
    let unknown = open(&format!("rediss://{at}")).exist(&keys).await.unwrap_err();
    assert_eq!(unknown.kind(), "connect", "{unknown}");
    let missing = format!("rediss://{at}?ca={}", file("none.pem")).parse().unwrap();
    let error = Store::open(&missing).unwrap_err().to_string();
    assert!(error.starts_with("ca=") && error.contains("none.pem"), "{error}");
}

#[tokio::test]
async fn a_server_without_memory_is_full() {
    let Some(server) =
        RedisServer::start(&[("maxmemory", "4mb"), ("maxmemory-policy", "noeviction")])
    else {
        return;
    };
    let store = open(&format!("redis://{}", server.address()));
    let keys = keys(4, 40);
    let mut stored = 0;
    let mut last = Put::Stored;
    for key in &keys {
        last = store.put(key, value(4, 250_000)).await.unwrap();
        stored += usize::from(last == Put::Stored);
    }
    assert_eq!(last, Put::Full);
    assert!((1..20).contains(&stored), "{stored}");
    assert_eq!(store.longest_prefix(&keys).await, Ok(stored));
    store.remove(&keys).await.unwrap();
    assert_eq!(store.put(&keys[0], value(4, 250_000)).await, Ok(Put::Stored));
}

#[tokio::test]
async fn a_server_that_was_killed_is_found_again() {
    let Some(mut server) = RedisServer::start(&[]) else { return };
    let store = open(&format!("redis://{}", server.address()));
    let keys = keys(5, 20);
    for round in 0..3 {
        for key in &keys {
            assert_eq!(store.put(key, value(5, 9)).await, Ok(Put::Stored), "round {round}");
        }
        assert_eq!(store.longest_prefix(&keys).await, Ok(20));
        server.kill();
        let gone = store.exist(&keys).await.unwrap_err();
        assert_eq!(gone.kind(), "connect", "{gone}");
        server.restart();
        // No connection is new; no operation fails for it.
        assert_eq!(store.exist(&keys).await, Ok(vec![false; 20]));
    }
}

#[tokio::test]
async fn a_server_need_not_be_up_at_the_start() {
    let port = free_port();
    let store = open(&format!("redis://127.0.0.1:{port}"));
    let trouble = store.put(&keys(6, 1)[0], value(1, 1)).await.unwrap_err();
    assert_eq!(trouble.kind(), "connect", "{trouble}");
}

#[tokio::test]
async fn connections_that_the_server_closes_are_no_trouble() {
    let Some(server) = RedisServer::start(&[]) else { return };
    let store = open(&format!("redis://{}", server.address()));
    let keys = keys(7, 8);
    for _ in 0..4 {
        assert_eq!(get_all(&store, &keys, MAX_BYTES).await, vec![Found::Absent; 8]);
        server.ask(&[&["CLIENT", "KILL", "TYPE", "normal"]]);
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

#[tokio::test]
async fn what_others_keep_there_is_left_alone() {
    let Some(server) = RedisServer::start(&[]) else { return };
    let store = open(&format!("redis://{}", server.address()));
    let key = keys(8, 1)[0];
    let text = key.text("saccade", ':');
    let upper = text.to_uppercase().replace("SACCADE", "saccade");
    server.ask(&[
        &["SET", "session:1", "x"],
        &["SET", "saccade:x", "x"],
        &["SET", "saccade:\r\n$", "x"],
        &["SET", &upper, "x"],
        &["SET", &format!("{text}0"), "x"],
        &["SET", &format!("{text}:0"), "x"],
        &["RPUSH", &text, "x"],
    ]);
    assert_eq!(list(&store, &Filter::default()).await, Ok((Vec::new(), 5)));
    // Ours, and no value: told, not taken for one.
    let trouble = store.get(&key, MAX_BYTES).await.unwrap_err();
    assert_eq!(trouble.kind(), "protocol", "{trouble}");
    store.remove(&[key]).await.unwrap();
    store.put(&key, value(8, 3)).await.unwrap();
    let (entries, foreign) = list(&store, &Filter::default()).await.unwrap();
    assert_eq!((entries.len(), foreign), (1, 5));
}

#[tokio::test]
async fn a_replica_refuses_to_store() {
    let Some(master) = RedisServer::start(&[]) else { return };
    let of = format!("127.0.0.1 {}", master.address().port());
    let Some(replica) = RedisServer::start(&[("replicaof", &of)]) else { return };
    let store = open(&format!("redis://{}", replica.address()));
    let trouble: Trouble = store.put(&keys(9, 1)[0], value(1, 1)).await.unwrap_err();
    assert!(matches!(trouble.kind(), "refused" | "connect"), "{trouble}");
}
