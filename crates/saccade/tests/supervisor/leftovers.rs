//! What a server that was killed leaves behind.

use std::path::Path;

use crate::common::Result;
use crate::world::{Started, runs, signal, until};

fn names(folder: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
    entries.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect()
}

/// Its planes die with it; its files go with the next start, and that one's with its end.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_killed_server_leaves_nothing_for_long() -> Result<()> {
    let temporary = tempfile::tempdir()?;
    let http = reqwest::Client::new();
    let start = || {
        let folder = temporary.path();
        Started::new(&["--port", "0"], |command| {
            command.env("TMPDIR", folder);
        })
    };
    let mut rings = Vec::new();
    for _ in 0..2 {
        let mut server = start()?;
        let url = server.url().await?;
        server.ready(&http, &url).await?;
        rings.push(server.value("  ring  ").await?);
        let planes = [server.planes("device"), server.planes("frontend")].concat();
        assert_eq!(planes.len(), 2);
        signal(server.pid(), libc::SIGKILL);
        server.ended().await?;
        until("its planes have died", || !planes.iter().any(|pid| runs(*pid))).await?;
    }
    let mut server = start()?;
    let url = server.url().await?;
    server.ready(&http, &url).await?;
    for ring in &rings {
        assert!(!Path::new(ring).exists(), "{ring}");
    }
    let left = names(temporary.path());
    assert_eq!(left.len(), 1, "the model of this server only: {left:?}");
    // Planes that are killed leave nothing either.
    for kind in ["device", "frontend"] {
        let old = server.planes(kind)[0];
        signal(old, libc::SIGKILL);
        server.replaced(kind, old).await?;
    }
    server.ready(&http, &url).await?;
    assert_eq!(names(temporary.path()), left);
    let ring = server.value("  ring  ").await?;
    assert!(Path::new(&ring).exists());
    assert!(server.stop().await?.success());
    assert!(!Path::new(&ring).exists(), "{ring}");
    assert_eq!(names(temporary.path()), Vec::<String>::new());
    Ok(())
}

/// Another server's files are left alone while it lives, also those of one that was just started.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_living_server_keeps_its_files() -> Result<()> {
    let temporary = tempfile::tempdir()?;
    let http = reqwest::Client::new();
    let start = || {
        let folder = temporary.path();
        Started::new(&["--port", "0"], |command| {
            command.env("TMPDIR", folder);
        })
    };
    let (mut first, mut second) = (start()?, start()?);
    let (first_url, second_url) = (first.url().await?, second.url().await?);
    first.ready(&http, &first_url).await?;
    second.ready(&http, &second_url).await?;
    let ring = first.value("  ring  ").await?;
    assert!(second.stop().await?.success());
    assert!(Path::new(&ring).exists());
    assert_eq!(names(temporary.path()).len(), 1);
    Ok(())
}

/// A ring at a path that was asked for: a dead server's is replaced, a living one's is refused.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_named_ring_belongs_to_one_server() -> Result<()> {
    let folder = tempfile::tempdir()?;
    let path = folder.path().join("r.ring");
    let flags = ["--port", "0", "--ring", path.to_str().unwrap_or_default()];
    let http = reqwest::Client::new();
    let mut dead = Started::new(&flags, |_| ())?;
    let url = dead.url().await?;
    dead.ready(&http, &url).await?;
    signal(dead.pid(), libc::SIGKILL);
    dead.ended().await?;
    assert!(path.exists());

    let mut first = Started::new(&flags, |_| ())?;
    let url = first.url().await?;
    first.ready(&http, &url).await?;
    let mut second = Started::new(&flags, |_| ())?;
    assert!(!second.ended().await?.success());
    assert!(second.said().contains("r.ring"), "{}", second.said());
    first.ready(&http, &url).await?;
    assert!(first.stop().await?.success());
    assert!(!path.exists());
    Ok(())
}
