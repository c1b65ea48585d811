//! One address for all frontend planes of a server, and for no other server.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::os::unix::net::UnixStream;
use std::path::Path;

use crate::common::Result;
use crate::world::{SOON, Started, runs, signal, until};

fn http() -> reqwest::Client {
    // Each request on a connection of its own.
    reqwest::Client::builder().pool_max_idle_per_host(0).build().unwrap_or_default()
}

/// What a server says at a UNIX socket; empty if there is none.
fn health(path: &Path) -> String {
    let ask = || {
        let mut stream = UnixStream::connect(path)?;
        stream.set_read_timeout(Some(SOON))?;
        stream.write_all(b"GET /ready HTTP/1.1\r\nHost: localhost\r\nconnection: close\r\n\r\n")?;
        let mut text = String::new();
        stream.read_to_string(&mut text).map(|_| text)
    };
    ask().unwrap_or_default()
}

async fn ready(server: &Started, path: &Path) -> Result<()> {
    let served = until("ready", || health(path).starts_with("HTTP/1.1 200")).await;
    Ok(served.map_err(|e| format!("{e}\n{}", server.said()))?)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_frontend_planes_share_one_port() -> Result<()> {
    let mut server = Started::new(&["--port", "0", "--api-server-count", "2"], |_| ())?;
    let (url, http) = (server.url().await?, http());
    server.ready(&http, &url).await?;
    let supervisor = server.pid();
    until("two frontend planes", || crate::world::planes(supervisor, "frontend").len() == 2)
        .await?;
    let frontends = server.planes("frontend");
    // Either one serves while the other does not.
    for one in frontends {
        signal(one, libc::SIGSTOP);
        for _ in 0..8 {
            let answer = http.get(format!("{url}/health")).timeout(SOON).send().await?;
            assert!(answer.status().is_success(), "{}", server.said());
        }
        signal(one, libc::SIGCONT);
    }
    Ok(())
}

/// A connection that is made while a frontend plane does not accept is served by the next one.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_frontend_plane_that_dies_loses_no_waiting_connection() -> Result<()> {
    let mut server = Started::new(&["--port", "0"], |_| ())?;
    let url = server.url().await?;
    server.ready(&http(), &url).await?;
    let frontend = server.planes("frontend")[0];
    signal(frontend, libc::SIGSTOP);
    let mut stream = TcpStream::connect(url.trim_start_matches("http://"))?;
    stream.set_read_timeout(Some(SOON))?;
    stream.write_all(b"GET /health HTTP/1.1\r\nHost: localhost\r\nconnection: close\r\n\r\n")?;
    signal(frontend, libc::SIGKILL);
    let mut text = String::new();
    stream.read_to_string(&mut text)?;
    assert!(text.starts_with("HTTP/1.1 200"), "{text}");
    Ok(())
}

/// A port that is taken is said at once, by name, before a plane is started.
#[tokio::test]
async fn a_port_that_is_taken_is_refused_by_name() -> Result<()> {
    let taken = std::net::TcpListener::bind("127.0.0.1:0")?;
    let address = taken.local_addr()?;
    let mut server = Started::new(&["--port", &address.port().to_string()], |_| ())?;
    assert!(!server.ended().await?.success());
    let said = server.said();
    assert!(said.contains(&address.to_string()), "{said}");
    assert!(!said.contains("device plane"), "{said}");
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_unix_socket_belongs_to_one_server() -> Result<()> {
    let folder = tempfile::tempdir()?;
    let path = folder.path().join("saccade.sock");
    let flags = ["--uds", path.to_str().unwrap_or_default(), "--api-server-count", "2"];
    let mut first = Started::new(&flags, |_| ())?;
    ready(&first, &path).await?;

    let mut second = Started::new(&flags, |_| ())?;
    assert!(!second.ended().await?.success());
    assert!(second.said().contains(flags[1]), "{}", second.said());
    assert!(health(&path).starts_with("HTTP/1.1 200"), "the first one still serves");

    // One of its planes ends: the socket stays.
    let frontend = first.planes("frontend")[0];
    signal(frontend, libc::SIGTERM);
    until("it has ended", || !runs(frontend)).await?;
    until("another runs", || first.planes("frontend").len() == 2).await?;
    ready(&first, &path).await?;

    assert!(first.stop().await?.success());
    assert!(!path.exists(), "the owner removes it");
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_unix_socket_of_a_dead_server_is_replaced() -> Result<()> {
    let folder = tempfile::tempdir()?;
    let path = folder.path().join("saccade.sock");
    let flags = ["--uds", path.to_str().unwrap_or_default()];
    let mut dead = Started::new(&flags, |_| ())?;
    ready(&dead, &path).await?;
    signal(dead.pid(), libc::SIGKILL);
    dead.ended().await?;
    assert!(path.exists());

    let server = Started::new(&flags, |_| ())?;
    ready(&server, &path).await
}

/// What is no socket is never removed.
#[tokio::test]
async fn a_file_at_the_path_of_a_unix_socket_is_kept() -> Result<()> {
    let folder = tempfile::tempdir()?;
    let path = folder.path().join("notes.txt");
    std::fs::write(&path, "mine")?;
    let mut server = Started::new(&["--uds", path.to_str().unwrap_or_default()], |_| ())?;
    assert!(!server.ended().await?.success());
    assert!(server.said().contains("notes.txt"), "{}", server.said());
    assert_eq!(std::fs::read(&path)?, b"mine");
    Ok(())
}
