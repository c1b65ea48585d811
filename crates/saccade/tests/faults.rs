//! What dies, and what must not follow: planes killed under load, clients that leave, a drain. What
//! clients have seen decides when something happens; times only bound what hangs.

mod common;

use std::time::{Duration, Instant};

use common::{End, Progress, Result, Server, Streamed, stream, watched};
use serde_json::{Value, json};

/// Longer than anything here takes on a busy machine.
const SOON: Duration = Duration::from_secs(60);

/// Deterministic jitter for a test: xorshift64*.
struct Jitter(u64);

impl Jitter {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) % bound
    }
}

fn seed() -> u64 {
    let seed = std::env::var("SACCADE_SEED").ok().and_then(|s| s.parse().ok()).unwrap_or(20261121);
    eprintln!("SACCADE_SEED={seed}");
    seed
}

fn body(i: u64, tokens: u64) -> Value {
    json!({
        "model": "saccade-tiny", "prompt": format!("Chapter {}: in the", i % 16),
        "max_tokens": tokens, "temperature": 0.8, "seed": i % 16, "ignore_eos": true,
    })
}

/// Tokens of request `i`: some streams end before the kill, some are in the middle of it.
fn length(i: u64) -> u64 {
    2 + i % 16 * 10
}

/// Kills one plane `times` times while streams run: after some of them have ended, and before their
/// clients have seen half of all text. Every stream that ends normally equals its
/// reference; the others end with an explicit error or a broken connection (when their frontend
/// died).
async fn kill_under_load(kind: &str, times: usize) -> Result<()> {
    let server = Server::start(&["--max-restarts", "1000", "--max-restart-pause-ms", "0"]).await?;
    let mut reference = Vec::new();
    for i in 0..16 {
        reference.push(stream(&server, &body(i, length(i))).await?.text);
    }
    let all_bytes: usize = 2 * reference.iter().map(String::len).sum::<usize>();
    let mut jitter = Jitter(seed());
    let mut back = Vec::new();
    let (mut normal, mut ended_by_fault) = (0, 0);
    for round in 0..times {
        let bodies: Vec<Value> = (0..32).map(|i| body(i, length(i))).collect();
        let progress = Progress::default();
        let streams =
            futures_util::future::join_all(bodies.iter().map(|b| watched(&server, b, &progress)));
        let killer = async {
            let enough = 1 + jitter.below(all_bytes as u64 / 2) as usize;
            progress.until(enough, 1, SOON).await?;
            let victims = server.planes(kind);
            assert_eq!(victims.len(), 1, "round {round}: one {kind} plane runs");
            server.signal(victims[0], libc::SIGKILL);
            // Readiness must be lost before it is won again.
            let start = Instant::now();
            while server.planes(kind).first().is_none_or(|pid| *pid == victims[0]) {
                assert!(start.elapsed() < SOON, "{kind} is not started again");
                tokio::time::sleep(Duration::from_millis(2)).await;
            }
            server.until_ready(SOON).await.map(|_| start.elapsed())
        };
        let (results, recovered) = tokio::join!(streams, killer);
        back.push(recovered?);
        for (i, result) in results.into_iter().enumerate() {
            let Ok(Streamed { text, end, .. }) = result else { continue }; // refused connection
            match end {
                End::Done(_) => {
                    assert_eq!(text, reference[i % 16], "round {round}, request {i}");
                    normal += 1;
                }
                End::Broken if kind == "device" => {
                    panic!("round {round}, request {i}: no error event after {text:?}")
                }
                End::Error(_) | End::Broken => {
                    assert!(
                        reference[i % 16].starts_with(&text),
                        "round {round}, request {i}: {text}"
                    );
                    ended_by_fault += 1;
                }
            }
        }
        // The server is whole again: a full answer, and nothing left behind.
        assert_eq!(
            stream(&server, &body(3, length(3))).await?.text,
            reference[3],
            "after round {round}"
        );
    }
    assert!(
        normal > 0 && ended_by_fault > 0,
        "{normal} ended normally, {ended_by_fault} by the fault"
    );
    back.sort();
    eprintln!(
        "{kind}: {times} kills, {normal} streams ended normally, {ended_by_fault} by the fault; time \
         to serve again: median {:?}, longest {:?}",
        back[back.len() / 2],
        back[back.len() - 1]
    );
    server.until_metric("vllm:num_requests_running", 0.0, SOON).await?;
    server.until_metric("vllm:kv_cache_usage_perc", 0.0, SOON).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn device_killed_under_load() -> Result<()> {
    kill_under_load("device", kills()).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn frontend_killed_under_load() -> Result<()> {
    kill_under_load("frontend", kills()).await
}

/// SACCADE_KILLS sets how often each plane dies.
fn kills() -> usize {
    std::env::var("SACCADE_KILLS").ok().and_then(|s| s.parse().ok()).unwrap_or(4)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn clients_that_leave_hold_nothing() -> Result<()> {
    let server = Server::start(&[]).await?;
    let fds = |pid: u32| std::fs::read_dir(format!("/proc/{pid}/fd")).map(Iterator::count);
    let frontend = server.planes("frontend")[0];
    stream(&server, &body(0, 4)).await?;
    let fds_before = fds(frontend)?;
    let mut jitter = Jitter(seed());
    for _wave in 0..10 {
        let cuts: Vec<(u64, u64)> = (0..100).map(|i| (i, jitter.below(8))).collect();
        futures_util::future::join_all(cuts.into_iter().map(|(i, chunks)| {
            let server = &server;
            async move {
                // The answer is dropped, and its connection with it, after this many chunks.
                let client = reqwest::Client::new();
                let mut long = body(i, 400);
                long["stream"] = true.into();
                let request = client.post(format!("{}/v1/completions", server.url)).json(&long);
                let Ok(mut answer) = request.send().await else { return };
                for _ in 0..chunks {
                    if !matches!(answer.chunk().await, Ok(Some(_))) {
                        return;
                    }
                }
            }
        }))
        .await;
    }
    server.until_metric("vllm:num_requests_running", 0.0, SOON).await?;
    server.until_metric("vllm:num_requests_waiting", 0.0, SOON).await?;
    server.until_metric("vllm:kv_cache_usage_perc", 0.0, SOON).await?;
    assert!(server.metric("saccade:requests_cancelled_total").await? > 0.0, "no client left early");
    let start = Instant::now();
    while fds(frontend)? > fds_before + 4 {
        assert!(start.elapsed() < SOON, "{} descriptors, {fds_before} before", fds(frontend)?);
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    Ok(())
}

/// Asked to end while a stream runs, the server is not ready any more and the stream is whole.
#[tokio::test]
async fn sigterm_drains() -> Result<()> {
    let server = Server::start(&["--drain-timeout-s", "60"]).await?;
    let (pid, ready) = (server.pid(), format!("{}/ready", server.url));
    let progress = Progress::default();
    let late = async {
        progress.until(1, 0, SOON).await?;
        server.signal(pid, libc::SIGTERM);
        let start = Instant::now();
        let client = reqwest::Client::new();
        // 503, or the server no longer listens.
        while client.get(&ready).send().await.is_ok_and(|answer| answer.status() != 503) {
            assert!(start.elapsed() < SOON, "still ready");
        }
        Result::Ok(())
    };
    let long = body(1, 400);
    let (streamed, late) = tokio::join!(watched(&server, &long, &progress), late);
    late?;
    assert_eq!(streamed?.end, End::Done("length".into()), "the stream in flight finishes");
    assert!(server.wait()?.success());
    Ok(())
}
