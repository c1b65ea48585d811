//! Stores that misbehave in every way while servers run, and machines that are short of something:
//! no wrong token, no failed request, and no request much later than without a store.

use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use futures_util::StreamExt;
use futures_util::future::join_all;
use saccade_store::testing::{Dice, Fault, Proxy, RedisServer};
use serde_json::Value;

use crate::common::{End, Result, Server, Streamed, stream};
use crate::world::*;

const DOCUMENTS: u64 = 8;
const LATE_MS: u64 = 100;
/// What a busy machine may cost the median of a phase.
const SLACK: Duration = Duration::from_secs(5);

/// SACCADE_FETCH_ROUNDS sets how often each fault comes.
fn rounds() -> usize {
    std::env::var("SACCADE_FETCH_ROUNDS").ok().and_then(|s| s.parse().ok()).unwrap_or(1)
}

/// Asks for all documents at once; the right answers, and the median time.
async fn ask_all(
    server: &Server,
    bodies: &[Value],
    right: &[Streamed],
    what: &str,
) -> Result<Duration> {
    let one = async |n: usize| -> Result<Duration> {
        let began = Instant::now();
        let got = stream(server, &bodies[n]).await?;
        assert_eq!(got, right[n], "{what}, document {n}");
        Ok(began.elapsed())
    };
    let times: Result<Vec<Duration>> =
        join_all((0..bodies.len()).map(one)).await.into_iter().collect();
    let mut times = times?;
    times.sort();
    Ok(times[times.len() / 2])
}

fn faults() -> Vec<Fault> {
    vec![
        Fault::None,
        Fault::Refuse,
        Fault::None,
        Fault::Hang,
        Fault::Stall,
        Fault::Delay(Duration::from_millis(30)),
        Fault::Delay(Duration::from_millis(300)),
        Fault::Trickle,
        Fault::Cut { within: 50_000 },
        Fault::Reset { within: 50_000 },
        Fault::Flip { every: 100_000 },
        Fault::Flip { every: 2_000 },
        Fault::None,
    ]
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_store_behind_trouble() -> Result<()> {
    let Some(redis) = RedisServer::start(&[]) else { return Ok(()) };
    let proxy = Proxy::start(redis.address(), Dice::of_this_run()).await;
    let late = LATE_MS.to_string();
    let flags: &[&[&str]] = &[&["--fetch-always", "--fetch-late-ms", &late], &NARROW];
    let server = serve(&format!("redis://{}/0", proxy.address()), flags).await?;
    let plain = plain().await?;
    let bodies: Vec<Value> = (0..DOCUMENTS).map(|n| body(&document(600 + n, 900), 16)).collect();
    let mut right = Vec::new();
    for body in &bodies {
        right.push(stream(&plain, body).await?);
    }
    for round in 0..rounds() {
        for fault in faults() {
            proxy.set(fault);
            let without = ask_all(&plain, &bodies, &right, "plain").await?;
            let mut with = Duration::ZERO;
            for _ in 0..3 {
                with = with.max(ask_all(&server, &bodies, &right, &format!("{fault:?}")).await?);
            }
            println!("{round} {fault:?}: median {with:.0?}, without a store {without:.0?}");
            // Others compute meanwhile: a request waits for a lookup and for a load.
            let most = 3 * without + 2 * Duration::from_millis(LATE_MS) + SLACK;
            assert!(with < most, "{fault:?}: {with:?}, without a store {without:?}");
        }
    }
    proxy.set(Fault::None);
    let began = Instant::now();
    let before = commands(&server, "load", "done").await?;
    while commands(&server, "load", "done").await? <= before {
        assert!(began.elapsed() < SOON, "nothing is fetched any more");
        ask_all(&server, &bodies, &right, "afterwards").await?;
    }
    println!("{:?}", proxy.injected());
    for (op, result) in [
        ("load", "done"),
        ("load", "late"),
        ("load", "rejected"),
        ("load", "trouble"),
        ("lookup", "done"),
        ("lookup", "trouble"),
        ("store", "done"),
    ] {
        println!("{op} {result}: {}", commands(&server, op, result).await?);
    }
    Ok(())
}

/// A file system of its own that is soon full; none where this may not mount.
struct SmallDisk(tempfile::TempDir);

impl SmallDisk {
    fn new(bytes: u64) -> Option<SmallDisk> {
        let folder = tempfile::tempdir().ok()?;
        let mut mount = Command::new("mount");
        mount.args(["-t", "tmpfs", "-o", &format!("size={bytes}"), "tmpfs"]).arg(folder.path());
        let mounted = mount.output().is_ok_and(|output| output.status.success());
        mounted.then_some(SmallDisk(folder))
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        Command::new("umount").arg("-l").arg(self.0.path()).output().ok();
    }
}

/// Two servers write more than there is room for.
async fn fill(folder: &Path, parameters: &str) -> Result<(Server, Server)> {
    let url = format!("file://{}{parameters}", folder.display());
    let flags: &[&[&str]] = &[&PATIENT, &NARROW];
    let (plain, one, other) =
        (plain().await?, serve(&url, flags).await?, serve(&url, flags).await?);
    for n in 0..6 {
        let body = body(&document(700 + n, 1100), 12);
        let expected = ask(&plain, &body).await?.said;
        for server in [&one, &other, &one] {
            assert_eq!(ask(server, &body).await?.said, expected, "document {n}");
        }
    }
    Ok((one, other))
}

#[tokio::test]
async fn a_full_disk_stops_nothing() -> Result<()> {
    let Some(disk) = SmallDisk::new(3_000_000) else {
        assert!(std::env::var_os("SACCADE_CI").is_none(), "not tried: this may not mount");
        eprintln!("not tried: this may not mount");
        return Ok(());
    };
    let (one, other) = fill(disk.0.path(), "").await?;
    let refused = async |server| -> Result<f64> { commands(server, "store", "full").await };
    assert!(refused(&one).await? + refused(&other).await? > 0.0, "the disk was not full");
    Ok(())
}

#[tokio::test]
async fn a_folder_of_bounded_size_keeps_its_bound() -> Result<()> {
    let folder = tempfile::tempdir()?;
    let (one, _other) = fill(folder.path(), "?max_bytes=6000000").await?;
    assert!(commands(&one, "store", "done").await? > 0.0);
    Ok(())
}

/// A client that reads slowly gets what others get, and delays no other.
#[tokio::test]
async fn slow_clients_hold_up_nobody() -> Result<()> {
    let place = Place::folder()?;
    let url = place.url("kv");
    let (plain, one) = (plain().await?, serve(&url, &[&PATIENT, &ROOMY]).await?);
    let long = body(&document(800, 600), 200);
    let expected = stream(&plain, &long).await?;
    assert_eq!(stream(&one, &long).await?, expected);
    stored(&one, 3.0).await?;
    let server = serve(&url, &[&PATIENT, &ROOMY]).await?;
    let mut streamed = long.clone();
    streamed["stream"] = true.into();
    let path = format!("{}/v1/completions", server.url);
    let answer = server.http.post(path).json(&streamed).send().await?;
    let mut pieces = answer.bytes_stream();
    let mut slow = Vec::new();
    slow.extend_from_slice(&pieces.next().await.ok_or("no answer")??);
    let quick = stream(&server, &long).await?;
    assert_eq!(quick, expected);
    while let Some(piece) = pieces.next().await {
        slow.extend_from_slice(&piece?);
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    let mut text = String::new();
    for event in String::from_utf8(slow)?.split("\n\n").filter_map(|e| e.strip_prefix("data: ")) {
        if let Ok(event) = serde_json::from_str::<Value>(event) {
            text.push_str(event["choices"][0]["text"].as_str().unwrap_or_default());
        }
    }
    assert_eq!(text, expected.text);
    Ok(())
}

/// All planes on one core.
#[tokio::test]
async fn one_core_is_enough() -> Result<()> {
    let place = Place::folder()?;
    let url = place.url("kv");
    let by_one_core = || {
        let mut command = Command::new("taskset");
        command.args(["-c", "0", env!("CARGO_BIN_EXE_saccade")]);
        command
    };
    let flags: &[&[&str]] = &[&PATIENT, &ROOMY];
    let plain = plain().await?;
    let one = serve_by(by_one_core(), &url, flags).await?;
    let other = serve_by(by_one_core(), &url, flags).await?;
    let bodies: Vec<Value> = (0..4).map(|n| body(&document(900 + n, 900), 16)).collect();
    let mut right = Vec::new();
    for body in &bodies {
        right.push(stream(&plain, body).await?);
        assert!(matches!(right[right.len() - 1].end, End::Done(_)));
    }
    ask_all(&one, &bodies, &right, "computed").await?;
    stored(&one, 12.0).await?;
    ask_all(&other, &bodies, &right, "fetched").await?;
    assert!(commands(&other, "load", "done").await? >= 12.0);
    Ok(())
}
