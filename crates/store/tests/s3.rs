//! What a store of objects may answer beside what every store does.
#![allow(clippy::unwrap_used)] // in helpers of tests

mod common;

use std::time::Duration;

use common::{MAX_BYTES, keys, list, open, value};
use saccade_store::testing::{S3Server, free_port};
use saccade_store::{Filter, Key, Put, Store, StoreUrl, Trouble};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;

/// Answers every request of a connection with these words, the first of them with `first`.
async fn answering(first: &'static str, then: &'static str) -> Store {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        let mut answers = [first].into_iter().chain(std::iter::repeat(then));
        while let Ok((mut link, _)) = listener.accept().await {
            let mut request = vec![0; 1 << 16];
            let _ = link.read(&mut request).await;
            let answer = answers.next().unwrap_or(then);
            let _ = link.write_all(answer.replace('\n', "\r\n").as_bytes()).await;
            let _ = link.shutdown().await;
            while link.read(&mut request).await.is_ok_and(|count| count > 0) {}
        }
    });
    open(&format!("s3://chunks?endpoint=http://{address}"))
}

async fn get(answer: &'static str) -> Result<Option<bytes::Bytes>, Trouble> {
    let store = answering(answer, answer).await;
    let key = keys(1, 1)[0];
    let get = store.get(&key, 1000);
    tokio::time::timeout(Duration::from_secs(30), get).await.expect("it ends")
}

#[tokio::test]
async fn answers_are_told_apart() {
    for (answer, kind) in [
        ("HTTP/1.1 403 Forbidden\nContent-Length: 0\nConnection: close\n\n", "refused"),
        ("HTTP/1.1 401 Unauthorized\nContent-Length: 0\nConnection: close\n\n", "refused"),
        ("HTTP/1.1 500 Oh\nContent-Length: 0\nConnection: close\n\n", "protocol"),
        ("HTTP/1.1 307 There\nConnection: close\nContent-Length: 0\n\n", "protocol"),
        ("SSH-2.0-OpenSSH_9.2\n", "protocol"),
        ("", "io"),
        // More than the caller takes, and no body to prove it.
        (
            "HTTP/1.1 200 OK\nETag: \"a\"\nLast-Modified: Tue, 01 Jan 2030 00:00:00 GMT\n\
          Content-Length: 99999999999999\n\n",
            "too_large",
        ),
        // Less than it says.
        (
            "HTTP/1.1 200 OK\nETag: \"a\"\nLast-Modified: Tue, 01 Jan 2030 00:00:00 GMT\n\
          Content-Length: 10\n\nfive.",
            "io",
        ),
    ] {
        let trouble = get(answer).await.unwrap_err();
        assert_eq!(trouble.kind(), kind, "{answer}: {trouble}");
    }
    let absent = "HTTP/1.1 404 Not Found\nContent-Length: 0\nConnection: close\n\n";
    assert_eq!(get(absent).await, Ok(None));
}

#[tokio::test]
async fn a_store_without_room_is_full() {
    let absent = "HTTP/1.1 404 Not Found\nContent-Length: 0\nConnection: close\n\n";
    let full = "HTTP/1.1 507 Insufficient Storage\nContent-Length: 0\nConnection: close\n\n";
    let store = answering(absent, full).await;
    assert_eq!(store.put(&keys(2, 1)[0], value(1, 9)).await, Ok(Put::Full));
    // That number may be in a key too.
    let mut key = keys(2, 1)[0];
    key.salt = 0x507;
    let broken = "HTTP/1.1 500 507\nContent-Length: 0\nConnection: close\n\n";
    let trouble = answering(absent, broken).await.put(&key, value(1, 9)).await.unwrap_err();
    assert_eq!(trouble.kind(), "protocol", "{trouble}");
}

#[tokio::test]
async fn a_store_that_is_not_there_is_told() {
    let store = open(&format!("s3://chunks?endpoint=http://127.0.0.1:{}", free_port()));
    let trouble = store.get(&keys(3, 1)[0], 1000).await.unwrap_err();
    assert_eq!(trouble.kind(), "connect", "{trouble}");
    let Some(server) = S3Server::start() else { return };
    let bucket = open(&format!("s3://missing?endpoint=http://{}", server.address()));
    let trouble = bucket.put(&keys(3, 1)[0], value(1, 9)).await.unwrap_err();
    assert_eq!(trouble.kind(), "refused", "{trouble}");
}

#[tokio::test]
async fn what_others_keep_there_is_left_alone() {
    let Some(server) = S3Server::start() else { return };
    server.make_bucket("chunks");
    let key: Key = keys(4, 1)[0];
    let text = key.text("saccade", '/');
    for path in ["notes", "saccade/notes", &format!("{text}/deeper"), &format!("{text}0")] {
        server.request(&format!("PUT /chunks/{path}"));
    }
    let store = open(&format!("s3://chunks?endpoint=http://{}", server.address()));
    assert_eq!(list(&store, &Filter::default()).await, Ok((Vec::new(), 3)));
    store.put(&key, value(1, 9)).await.unwrap();
    assert_eq!(list(&store, &Filter::default()).await.unwrap().0.len(), 1);
    assert_eq!(store.get(&key, MAX_BYTES).await, Ok(Some(value(1, 9))));
}

/// Secrets are in no message, and settings of this process in none of a store's words.
#[test]
fn credentials_are_not_printed() {
    let url: StoreUrl = "s3://chunks?endpoint=http://127.0.0.1:1".parse().unwrap();
    let secret = |name: &str| (name.to_owned(), "s3cret".to_owned());
    let names = ["AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN"].map(secret);
    let store = Store::open_with(&url, names).unwrap();
    assert!(!format!("{store:?} {url}").contains("s3cret"));
    let redis = Store::open(&"redis://:s3cret@127.0.0.1:1".parse().unwrap()).unwrap();
    assert!(!format!("{redis:?}").contains("s3cret"));
}
