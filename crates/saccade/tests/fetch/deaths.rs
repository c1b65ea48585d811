//! Planes and stores that die or hang while prompts are fetched: no wrong token, and fetching goes
//! on afterwards.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use futures_util::future::join_all;
use serde_json::Value;

use crate::common::{End, Result, Server, Streamed, stream};
use crate::world::*;

const DOCUMENTS: u64 = 8;
const CLIENTS: usize = 4;

/// Documents, the answers that are right, and a store that has their chunks.
struct Library {
    bodies: Vec<Value>,
    right: Vec<Streamed>,
}

impl Library {
    /// Each document begins as its neighbour does.
    async fn fill(store: &str) -> Result<Library> {
        let (plain, writer) = (plain().await?, serve(store, &[&PATIENT, &ROOMY]).await?);
        let (mut bodies, mut right) = (Vec::new(), Vec::new());
        for n in 0..DOCUMENTS {
            let mut prompt = document(100 + n / 2, 512);
            prompt.extend(document(200 + n, 600));
            bodies.push(body(&prompt, 24));
            right.push(stream(&plain, &bodies[n as usize]).await?);
            assert_eq!(stream(&writer, &bodies[n as usize]).await?, right[n as usize]);
        }
        stored(&writer, (DOCUMENTS / 2 * 2 + DOCUMENTS * 2) as f64).await?;
        Ok(Library { bodies, right })
    }

    /// Clients ask for document after document until told to stop, and at least `least` times.
    /// Answers that are right, and those that a fault has ended.
    async fn read(
        &self,
        server: &Server,
        stop: &AtomicBool,
        least: usize,
    ) -> Result<(usize, usize)> {
        let (right, ended) = (AtomicUsize::new(0), AtomicUsize::new(0));
        let client = async |first: usize| -> Result<()> {
            let mut asked = 0;
            while asked < least || !stop.load(Ordering::Relaxed) {
                let n = (first + asked * CLIENTS) % self.bodies.len();
                asked += 1;
                let Ok(got) = stream(server, &self.bodies[n]).await else {
                    ended.fetch_add(1, Ordering::Relaxed); // refused connection
                    tokio::time::sleep(Duration::from_millis(20)).await;
                    continue;
                };
                if let End::Done(_) = got.end {
                    assert_eq!(got, self.right[n], "document {n}");
                    right.fetch_add(1, Ordering::Relaxed);
                } else {
                    assert!(self.right[n].text.starts_with(&got.text), "document {n}: {got:?}");
                    ended.fetch_add(1, Ordering::Relaxed);
                    tokio::time::sleep(Duration::from_millis(20)).await;
                }
            }
            Ok(())
        };
        join_all((0..CLIENTS).map(client)).await.into_iter().collect::<Result<Vec<()>>>()?;
        Ok((right.into_inner(), ended.into_inner()))
    }

    /// Asks until chunks have come from the store again.
    async fn fetches(&self, server: &Server) -> Result<()> {
        let before = commands(server, "load", "done").await?;
        let began = Instant::now();
        while commands(server, "load", "done").await? <= before {
            assert!(began.elapsed() < SOON, "nothing is fetched any more");
            let (right, ended) = self.read(server, &AtomicBool::new(true), 4).await?;
            assert_eq!((right, ended), (4 * CLIENTS, 0));
        }
        Ok(())
    }
}

/// SACCADE_KILLS sets how often each dies.
fn kills() -> usize {
    std::env::var("SACCADE_KILLS").ok().and_then(|s| s.parse().ok()).unwrap_or(3)
}

async fn until_another(server: &Server, kind: &str, victim: u32) -> Result<()> {
    let began = Instant::now();
    while server.planes(kind).first().is_none_or(|pid| *pid == victim) {
        if began.elapsed() > SOON {
            return Err(format!("{kind} is not started again").into());
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    server.until_ready(SOON).await.map(|_| ())
}

async fn kill_planes(kind: &str, signal: i32, times: usize) -> Result<()> {
    let place = Place::folder()?;
    let url = place.url("kv");
    let library = Library::fill(&url).await?;
    let restarts = ["--max-restarts", "1000", "--max-restart-pause-ms", "0"];
    let flags = [&["--fetch-always", "--fetch-late-ms", "400"], &restarts[..]].concat();
    let server = serve(&url, &[&flags, &NARROW]).await?;
    library.fetches(&server).await?;
    for round in 0..times {
        let lives = count(&server, "saccade:fetch_planes_joined_total", &[]).await?;
        let stop = AtomicBool::new(false);
        let killer = async {
            tokio::time::sleep(Duration::from_millis(100 + 70 * round as u64)).await;
            let victims = server.planes(kind);
            assert_eq!(victims.len(), 1, "one {kind} plane runs");
            server.signal(victims[0], signal);
            let done = until_another(&server, kind, victims[0]).await;
            stop.store(true, Ordering::Relaxed);
            done
        };
        let (read, killed) = tokio::join!(library.read(&server, &stop, 4), killer);
        killed?;
        let (right, ended) = read?;
        eprintln!("{kind} {signal}: {right} answers are right, {ended} were ended by the fault");
        if kind == "fetch" {
            assert_eq!(ended, 0, "round {round}: the end of the fetch plane failed requests");
            joined(&server, lives + 1.0).await?;
        }
        library.fetches(&server).await?;
    }
    let broken = count(&server, "saccade:fetch_planes_broken_total", &[]).await?;
    assert_eq!(broken, 0.0);
    server.until_metric("saccade:fetch_frames_used", 0.0, SOON).await?;
    server.until_metric("vllm:num_requests_running", 0.0, SOON).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn fetch_plane_killed_under_load() -> Result<()> {
    kill_planes("fetch", libc::SIGKILL, kills()).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn device_plane_killed_under_load() -> Result<()> {
    kill_planes("device", libc::SIGKILL, kills()).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn frontend_plane_killed_under_load() -> Result<()> {
    kill_planes("frontend", libc::SIGKILL, kills()).await
}

/// A plane that hangs is replaced; until then prompts are computed.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn fetch_plane_stopped_under_load() -> Result<()> {
    kill_planes("fetch", libc::SIGSTOP, 1).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn store_killed_under_load() -> Result<()> {
    let Some(redis) = saccade_store::testing::RedisServer::start(&[]) else { return Ok(()) };
    let mut place = Place::Redis(redis);
    let url = place.url("kv");
    let library = Library::fill(&url).await?;
    let flags = ["--fetch-always", "--fetch-late-ms", "400"];
    let server = serve(&url, &[&flags, &NARROW]).await?;
    library.fetches(&server).await?;
    for round in 0..kills() {
        let Place::Redis(redis) = &mut place else { unreachable!() };
        let stop = AtomicBool::new(false);
        let killer = async {
            tokio::time::sleep(Duration::from_millis(100 + 70 * round as u64)).await;
            tokio::task::block_in_place(|| redis.kill());
            tokio::time::sleep(Duration::from_millis(700)).await;
            // It comes back empty.
            tokio::task::block_in_place(|| redis.restart());
            stop.store(true, Ordering::Relaxed);
        };
        let (read, ()) = tokio::join!(library.read(&server, &stop, 4), killer);
        let (right, ended) = read?;
        eprintln!("store: {right} answers are right, {ended} failed");
        assert_eq!(ended, 0, "round {round}");
        library.fetches(&server).await?;
    }
    Ok(())
}
