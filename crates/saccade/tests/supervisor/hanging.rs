//! Planes that live and do nothing.

use serde_json::json;

use crate::common::{End, Progress, Result, Server, watched};
use crate::world::{SOON, Started, signal};

fn long() -> serde_json::Value {
    json!({"model": "saccade-tiny", "prompt": "In the", "max_tokens": 400, "ignore_eos": true})
}

/// A stopped device plane is killed and another one serves; its stream ends with an error that
/// names the device.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_device_plane_that_stands_still_is_replaced() -> Result<()> {
    let mut server = Started::new(&["--port", "0", "--device-lost-after-s", "2"], |_| ())?;
    let url = server.url().await?;
    let seen = Server::existing(&url);
    server.ready(&seen.http, &url).await?;
    let device = server.planes("device")[0];
    let progress = Progress::default();
    let body = long();
    let stop = async {
        progress.until(1, 0, SOON).await?;
        signal(device, libc::SIGSTOP);
        Result::Ok(())
    };
    let (streamed, stopped) = tokio::join!(watched(&seen, &body, &progress), stop);
    stopped?;
    assert_eq!(streamed?.end, End::Error("device_lost".into()));
    server.replaced("device", device).await?;
    server.ready(&seen.http, &url).await?;
    let (status, answer) = seen.post("/v1/completions", &long()).await?;
    assert_eq!(status, 200, "{answer}");
    let said = server.says("device plane hangs").await?;
    assert!(said.contains(&device.to_string()), "{said}");
    Ok(())
}

/// The same for a frontend plane: its clients see their connections break, others are served.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_frontend_plane_that_stands_still_is_replaced() -> Result<()> {
    let flags = ["--port", "0", "--frontend-hung-after-s", "2"];
    let mut server = Started::new(&flags, |_| ())?;
    let url = server.url().await?;
    let seen = Server::existing(&url);
    server.ready(&seen.http, &url).await?;
    let frontend = server.planes("frontend")[0];
    signal(frontend, libc::SIGSTOP);
    server.replaced("frontend", frontend).await?;
    server.ready(&seen.http, &url).await?;
    let said = server.says("frontend plane 0 hangs").await?;
    assert!(said.contains(&frontend.to_string()), "{said}");
    Ok(())
}

/// A frontend plane that stood still for so long that the device plane gave its requests up says so
/// when it goes on: the device plane is well.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_frontend_plane_that_stood_still_does_not_blame_the_device() -> Result<()> {
    let flags = ["--port", "0", "--api-server-count", "2", "--frontend-hung-after-s", "600"];
    let mut server = Started::new(&flags, |_| ())?;
    let url = server.url().await?;
    server.ready(&reqwest::Client::new(), &url).await?;
    // Clients of their own: a connection that is kept belongs to one frontend plane.
    let (seen, other) = (Server::existing(&url), Server::existing(&url));
    server.says("device ready").await?;
    let (first, second) = (server.planes("frontend")[0], server.planes("frontend")[1]);
    // Only the first one can take the stream, and then only the second one what is asked next.
    signal(second, libc::SIGSTOP);
    let progress = Progress::default();
    let body = json!({
        "model": "saccade-tiny", "prompt": "In the", "max_tokens": 1900, "ignore_eos": true,
    });
    let stall = async {
        progress.until(1, 0, SOON).await?;
        signal(first, libc::SIGSTOP);
        signal(second, libc::SIGCONT);
        let reclaimed = "saccade:device_requests_reclaimed_total";
        let given_up = other.until_metric(reclaimed, 1.0, SOON).await;
        signal(first, libc::SIGCONT);
        given_up
    };
    let (streamed, stalled) = tokio::join!(watched(&seen, &body, &progress), stall);
    stalled?;
    assert_eq!(streamed?.end, End::Error("frontend_stalled".into()));
    Ok(())
}

/// Planes that are idle are left alone: the limits count time without a sign of life.
#[tokio::test]
async fn an_idle_plane_is_left_alone() -> Result<()> {
    let flags = ["--port", "0", "--device-lost-after-s", "1", "--frontend-hung-after-s", "1"];
    let mut server = Started::new(&flags, |_| ())?;
    let url = server.url().await?;
    let seen = Server::existing(&url);
    server.ready(&seen.http, &url).await?;
    let planes = (server.planes("device"), server.planes("frontend"));
    // Three times the limit.
    tokio::time::sleep(std::time::Duration::from_secs(3)).await;
    assert_eq!((server.planes("device"), server.planes("frontend")), planes, "{}", server.said());
    assert!(!server.said().contains("hangs"), "{}", server.said());
    Ok(())
}
