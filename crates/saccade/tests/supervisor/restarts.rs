//! Planes that die as soon as they are started.

use std::time::{Duration, Instant};

use crate::common::Result;
use crate::world::{SOON, Started, signal};

/// The server waits longer and longer between starts, answers meanwhile, and gives up in the end.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_plane_that_cannot_live_is_given_up_after_a_while() -> Result<()> {
    let mut server = Started::new(&["--port", "0", "--max-restarts", "4"], |_| ())?;
    let (url, http) = (server.url().await?, reqwest::Client::new());
    server.ready(&http, &url).await?;
    let start = Instant::now();
    let (mut last, mut killed, mut refused) = (0, 0, 0);
    while start.elapsed() < SOON {
        if let Some(pid) = server.planes("device").first().copied().filter(|pid| *pid != last) {
            signal(pid, libc::SIGKILL);
            (last, killed) = (pid, killed + 1);
        }
        let Ok(answer) = http.get(format!("{url}/ready")).send().await else { break };
        refused += usize::from(answer.status() == 503);
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
    assert_eq!(server.ended().await?.code(), Some(2));
    assert_eq!(killed, 5, "{}", server.said());
    assert!(refused > 0, "the frontend plane answers meanwhile");
    // The pauses before the second to the fourth start: 100, 200 and 400 ms. Never less.
    assert!(start.elapsed() >= Duration::from_millis(700), "{:?}", start.elapsed());
    let said = server.said();
    assert!(said.contains("--max-restarts"), "{said}");
    Ok(())
}
