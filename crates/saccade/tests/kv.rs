//! `saccade kv` on what a real server stored, in a folder and in Redis.

#![cfg(feature = "fetch")]

mod common;

use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

use common::{Result, Server};
use saccade_store::testing::RedisServer;
use serde_json::{Value, json};

/// Long enough for anything here on a busy machine.
const PATIENCE: Duration = Duration::from_secs(60);

/// What a command said, and its exit code.
struct Said {
    code: i32,
    out: String,
    err: String,
}

impl Said {
    fn of(output: Output) -> Said {
        let text = |bytes: Vec<u8>| String::from_utf8_lossy(&bytes).into_owned();
        let code = output.status.code().unwrap_or(-1);
        Said { code, out: text(output.stdout), err: text(output.stderr) }
    }

    #[track_caller]
    fn json(&self, code: i32) -> Value {
        assert_eq!(self.code, code, "{}{}", self.out, self.err);
        serde_json::from_str(&self.out).expect("one JSON object")
    }
}

fn command(store: &str, words: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_saccade"));
    command.arg("kv").args(words).stdin(Stdio::null()).env("SACCADE_PREFIX_STORE", store);
    command
}

fn kv(store: &str, words: &[&str]) -> Result<Said> {
    Ok(Said::of(command(store, words).output()?))
}

/// Prompts of some chunks each, in all forms of a line.
fn prompts(folder: &Path) -> Result<String> {
    let long = |n: usize| format!("{n}: {}", "In the beginning the earth was void. ".repeat(100));
    let lines = [
        long(1),
        json!(long(2)).to_string(),
        json!({"prompt": long(3), "cache_salt": "a", "max_tokens": 50}).to_string(),
        json!({"messages": [{"role": "user", "content": long(4)}]}).to_string(),
    ];
    let path = folder.join("prompts");
    std::fs::write(&path, lines.join("\n"))?;
    Ok(path.to_str().ok_or("a path")?.to_owned())
}

/// A server with this store, warmed: what that said.
async fn warmed(store: &str) -> Result<Value> {
    let folder = tempfile::tempdir()?;
    let server = Server::start(&["--prefix-store", store]).await?;
    let prompts = prompts(folder.path())?;
    let words = ["warm", "--url", &server.url, "--prompts", &prompts, "--json"];
    let said = kv(store, &words)?.json(0);
    assert_eq!((&said["answered"], &said["failed"]), (&json!(4), &json!(0)), "{said}");
    assert!(said["prompt_tokens"].as_u64() > Some(4 * 512), "{said}");
    // Once more: all is there, and nothing is stored twice.
    let text = kv(store, &words[..5])?;
    assert!(text.code == 0 && text.out.contains("4 answered, 0 failed"), "{}", text.out);
    assert!(text.out.contains("stored 0 chunks"), "{}", text.out);
    Ok(said)
}

fn number(value: &Value) -> u64 {
    value.as_u64().unwrap_or(u64::MAX)
}

fn keys(value: &Value) -> Vec<&str> {
    value.as_object().into_iter().flatten().map(|(key, _)| key.as_str()).collect()
}

/// Values below a folder, in order.
fn values(folder: &Path) -> Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    let mut folders = vec![folder.to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder)? {
            let path = entry?.path();
            if path.is_dir() {
                folders.push(path);
            } else if path.file_name().is_some_and(|name| name.len() == 64) {
                found.push(path);
            }
        }
    }
    found.sort();
    Ok(found)
}

#[tokio::test]
async fn a_folder_is_listed_verified_and_evicted() -> Result<()> {
    let folder = tempfile::tempdir()?;
    let store = format!("file://{}", folder.path().display());
    let stored = warmed(&store).await?["stored"].clone();
    let chunks = number(&stored["chunks"]);
    assert!(chunks >= 8 && stored["lost"] == 0 && stored["unfinished"] == 0, "{stored}");

    let listed = kv(&store, &["list", "--codecs", "--json"])?.json(0);
    assert_eq!(keys(&listed), ["schema", "store", "groups", "total", "foreign"]);
    assert_eq!(
        keys(&listed["groups"][0]),
        ["model", "salt", "chunks", "bytes", "tokens", "oldest_s", "newest_s", "codecs"]
    );
    let total = &listed["total"];
    assert_eq!(number(&total["chunks"]), chunks);
    assert_eq!(number(&total["bytes"]), number(&stored["bytes"]));
    assert_eq!(number(&total["tokens"]), 256 * chunks);
    let groups = listed["groups"].as_array().ok_or("no groups")?;
    assert_eq!(groups.len(), 2, "one with a salt, one without: {listed}");
    assert_eq!(groups[0]["salt"], "0000000000000000");
    assert_eq!(keys(&groups[0]["codecs"]), ["lossless"]);
    let salt = groups[1]["salt"].as_str().ok_or("no salt")?;
    let salted = kv(&store, &["list", "--salt", salt, "--json"])?.json(0);
    assert_eq!(salted["total"]["chunks"], groups[1]["chunks"]);
    let model = groups[0]["model"].as_str().ok_or("no model")?;
    let text = kv(&store, &["list", "--model", &model[..5]])?;
    assert!(text.out.contains(&model[..16]) && text.out.contains("total"), "{}", text.out);

    let verified = kv(&store, &["verify", "--json"])?.json(0);
    assert_eq!((number(&verified["right"]), &verified["wrong"]), (chunks, &json!({})));
    damage_and_verify(&store, folder.path(), chunks)?;
    evict(&store, folder.path(), salt, chunks - 4)
}

/// Four values are wrong in four ways; one sample of all finds them, and they are removed.
fn damage_and_verify(store: &str, folder: &Path, chunks: u64) -> Result<()> {
    let values = values(folder)?;
    assert_eq!(values.len() as u64, chunks);
    let mut flipped = std::fs::read(&values[0])?;
    *flipped.last_mut().ok_or("empty")? ^= 1;
    std::fs::write(&values[0], flipped)?;
    let whole = std::fs::read(&values[1])?;
    std::fs::write(&values[1], &whole[..whole.len() / 2])?;
    std::fs::copy(&values[4], &values[2])?;
    std::fs::write(&values[3], vec![0; 1000])?;
    std::fs::write(folder.join("saccade/notes.txt"), "not ours")?;

    let verified = kv(store, &["verify", "--json"])?.json(1);
    let wrong = json!({"checksum": 1, "length": 1, "magic": 1, "name": 1});
    assert_eq!((&verified["wrong"], &verified["removed"]), (&wrong, &json!(0)));
    let wrong_keys = keys(&verified["wrong_keys"]);
    for value in &values[..4] {
        let name = value.file_name().and_then(|name| name.to_str()).ok_or("no name")?;
        assert!(wrong_keys.iter().any(|key| key.ends_with(name)), "{name}");
    }
    let sampled = kv(store, &["verify", "--sample", "1", "--json"])?;
    let sampled: Value = serde_json::from_str(&sampled.out)?;
    assert_eq!(sampled["chunks"], 1);

    let text = kv(store, &["verify", "--remove"])?;
    assert!(text.code == 1 && text.out.contains("removed 4 chunks"), "{}", text.out);
    let verified = kv(store, &["verify", "--json"])?.json(0);
    assert_eq!(number(&verified["chunks"]), chunks - 4);
    Ok(())
}

fn evict(store: &str, folder: &Path, salt: &str, chunks: u64) -> Result<()> {
    let refused = kv(store, &["evict"])?;
    assert!(refused.code == 2 && refused.err.contains("--older-than"), "{}", refused.err);
    let evicted = kv(store, &["evict", "--older-than", "1h", "--json"])?.json(0);
    assert_eq!(evicted["chunks"], 0, "all are new");
    let counted = kv(store, &["evict", "--all", "--dry-run", "--json"])?.json(0);
    assert_eq!((number(&counted["chunks"]), &counted["foreign"]), (chunks, &json!(1)));
    assert_eq!(values(folder)?.len() as u64, chunks, "a dry run removed something");

    let salted = kv(store, &["evict", "--salt", salt, "--json"])?.json(0);
    let salted = number(&salted["chunks"]);
    assert!((1..chunks).contains(&salted), "{salted} of {chunks}");
    assert_eq!(values(folder)?.len() as u64, chunks - salted);
    let rest = kv(store, &["evict", "--all"])?;
    let expected = format!("removed {} chunk", chunks - salted);
    assert!(rest.code == 0 && rest.out.contains(&expected), "{}", rest.out);
    assert!(values(folder)?.is_empty());
    assert!(folder.join("saccade/notes.txt").exists(), "what is not ours was removed");
    let listed = kv(store, &["list", "--json"])?.json(0);
    assert_eq!((&listed["total"]["chunks"], &listed["foreign"]), (&json!(0), &json!(1)));
    assert_eq!(listed["total"]["oldest_s"], Value::Null);
    Ok(())
}

#[tokio::test]
async fn redis_is_listed_verified_and_evicted() -> Result<()> {
    let Some(mut server) = RedisServer::start(&[]) else { return Ok(()) };
    let store = format!("redis://{}/0?ttl_s=3600", server.address());
    let chunks = number(&warmed(&store).await?["stored"]["chunks"]);
    server.ask(&[&["SET", "saccade:notes", "x"], &["SET", "other", "y"]]);
    let listed = kv(&store, &["list", "--json"])?.json(0);
    assert_eq!((number(&listed["total"]["chunks"]), &listed["foreign"]), (chunks, &json!(1)));
    assert!(number(&listed["total"]["oldest_s"]) < 3600, "{listed}");

    let found = server.ask(&[&["KEYS", "saccade:*:*:*"]]);
    let mut texts = found.lines().filter(|line| line.starts_with("saccade:"));
    let (flipped, cut) = (texts.next().ok_or("no key")?, texts.next().ok_or("no key")?);
    server.ask(&[&["SETRANGE", flipped, "300", "damage"], &["SET", cut, "x"]]);
    let wrong = kv(&store, &["verify", "--json"])?.json(1)["wrong"].clone();
    assert_eq!(wrong, json!({"checksum": 1, "length": 1}));
    assert_eq!(kv(&store, &["verify", "--remove", "--json"])?.json(1)["removed"], 2);
    assert_eq!(number(&kv(&store, &["verify", "--json"])?.json(0)["right"]), chunks - 2);

    // Ages are those of values that expire, for those who say when.
    let timeless = format!("redis://{}/0", server.address());
    let kept = kv(&timeless, &["evict", "--older-than", "0s", "--json"])?.json(0);
    assert_eq!((number(&kept["unknown_age"]), &kept["chunks"]), (chunks - 2, &json!(0)));
    let evicted = kv(&store, &["evict", "--all", "--json"])?.json(0);
    assert_eq!((number(&evicted["chunks"]), &evicted["foreign"]), (chunks - 2, &json!(1)));
    let left = server.ask(&[&["DBSIZE"]]);
    assert_eq!(left.trim(), ":2", "what is not ours was removed");

    server.kill();
    let secret = store.replace("redis://", "redis://:s3cret@");
    for words in [&["list"][..], &["verify"], &["evict", "--all"]] {
        let said = kv(&secret, words)?;
        assert_eq!(said.code, 2, "{words:?}: {}", said.err);
        assert!(said.err.contains("--prefix-store redis://:***@127.0.0.1"), "{}", said.err);
        assert!(said.err.contains("cannot reach the store"), "{}", said.err);
        assert!(!format!("{}{}", said.out, said.err).contains("s3cret"), "{}", said.err);
    }
    Ok(())
}

#[tokio::test]
async fn what_cannot_be_done_is_said() -> Result<()> {
    let folder = tempfile::tempdir()?;
    let none = folder.path().join("none");
    let missing = kv(&format!("file://{}", none.display()), &["list"])?;
    assert!(missing.code == 2 && missing.err.contains("there is no folder"), "{}", missing.err);
    assert!(!none.exists(), "looking made a folder");
    let memory = kv("memory:", &["list"])?;
    assert!(memory.code == 2 && memory.err.contains("memory:"), "{}", memory.err);

    let server = Server::start(&[]).await?;
    let prompts = prompts(folder.path())?;
    let said = kv("memory:", &["warm", "--url", &server.url, "--prompts", &prompts])?;
    assert!(said.code == 2 && said.err.contains("stores no KV"), "{}", said.err);
    let said = kv("memory:", &["warm", "--url", "http://127.0.0.1:1", "--prompts", &prompts])?;
    assert!(said.code == 2 && said.err.contains("127.0.0.1:1"), "{}", said.err);
    Ok(())
}

#[test]
fn an_interrupt_ends_it_at_once() -> Result<()> {
    // It takes the request and never answers.
    let silent = std::net::TcpListener::bind("127.0.0.1:0")?;
    let url = format!("http://{}", silent.local_addr()?);
    let folder = tempfile::tempdir()?;
    let prompts = prompts(folder.path())?;
    let mut command = command("memory:", &["warm", "--url", &url, "--prompts", &prompts]);
    let child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn()?;
    let taken = silent.accept()?;
    let began = Instant::now();
    // SAFETY: a signal to a process that this test started.
    unsafe { libc::kill(child.id() as i32, libc::SIGINT) };
    let said = Said::of(child.wait_with_output()?);
    assert!(began.elapsed() < PATIENCE);
    assert_eq!(said.code, 130, "{}", said.err);
    assert!(said.err.contains("interrupted") && said.out.contains("0 answered"), "{}", said.out);
    drop(taken);
    Ok(())
}
