//! Limits of the system, and an environment that others have filled.

use std::io::Read;
use std::net::TcpStream;
use std::process::Command;

use crate::common::Result;
use crate::world::{SOON, Started};

/// What Kubernetes sets in every pod for a service named saccade.
const SERVICE: [(&str, &str); 7] = [
    ("SACCADE_PORT", "tcp://10.0.0.1:8000"),
    ("SACCADE_SERVICE_HOST", "10.0.0.1"),
    ("SACCADE_SERVICE_PORT", "8000"),
    ("SACCADE_PORT_8000_TCP", "tcp://10.0.0.1:8000"),
    ("SACCADE_PORT_8000_TCP_PROTO", "tcp"),
    ("SACCADE_PORT_8000_TCP_PORT", "8000"),
    ("SACCADE_PORT_8000_TCP_ADDR", "10.0.0.1"),
];

/// They are no flags: the file's port counts.
#[tokio::test]
async fn service_variables_of_kubernetes_are_ignored() -> Result<()> {
    let folder = tempfile::tempdir()?;
    let file = folder.path().join("flags.yaml");
    std::fs::write(&file, "port: 0\n")?;
    let config = ["--config", file.to_str().unwrap_or_default()];
    let mut server = Started::new(&config, |command: &mut Command| {
        command.envs(SERVICE);
    })?;
    let url = server.url().await?;
    server.ready(&reqwest::Client::new(), &url).await?;
    let said = server.said();
    let named: Vec<&str> = said.lines().filter(|l| l.contains("Kubernetes")).collect();
    assert_eq!(named.len(), 1, "said once: {said}");
    assert!(SERVICE.iter().all(|(name, _)| named[0].contains(name)), "{}", named[0]);
    Ok(())
}

#[tokio::test]
async fn a_port_that_is_none_is_refused_by_name() -> Result<()> {
    for wrong in ["http://10.0.0.1:8000", "tcp://10.0.0.1", "80000", "eight"] {
        let mut server = Started::new(&[], |command: &mut Command| {
            command.env("SACCADE_PORT", wrong);
        })?;
        assert_eq!(server.ended().await?.code(), Some(2), "{wrong}");
        let said = server.said();
        assert!(said.contains(wrong) && said.contains("SACCADE_PORT"), "{said}");
    }
    Ok(())
}

/// With few open files there are few connections; what is too many is refused, not complained of.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn connections_are_bounded_by_open_files() -> Result<()> {
    let mut server = Started::with_open_files(256, &["--port", "0"])?;
    let url = server.url().await?;
    let http = reqwest::Client::new();
    server.ready(&http, &url).await?;
    let address = url.trim_start_matches("http://").to_owned();
    let held: Vec<TcpStream> = (0..400).map_while(|_| TcpStream::connect(&address).ok()).collect();
    assert_eq!(held.len(), 400);
    // All of them have been accepted or refused once a later one is answered, unasked.
    let mut late = TcpStream::connect(&address)?;
    late.set_read_timeout(Some(SOON))?;
    let mut answer = String::new();
    late.read_to_string(&mut answer)?;
    assert!(answer.starts_with("HTTP/1.1 503"), "beyond the bound: {answer}");
    let metrics = http.get(format!("{url}/metrics")).send().await?.text().await?;
    assert!(metrics.contains("too_many_connections"), "counted: {metrics}");
    drop(held);
    server.ready(&reqwest::Client::new(), &url).await?;
    let said = server.said();
    assert!(!said.contains("accept:"), "{said}");
    assert_eq!(said.matches("connections").count(), 1, "said once what was derived: {said}");
    Ok(())
}

/// What was asked for and cannot be is refused by name.
#[tokio::test]
async fn more_connections_than_open_files_are_refused() -> Result<()> {
    let flags = ["--port", "0", "--max-connections", "1000"];
    let mut server = Started::with_open_files(256, &flags)?;
    assert_eq!(server.ended().await?.code(), Some(2));
    let said = server.said();
    assert!(said.contains("--max-connections is 1000") && said.contains("256"), "{said}");
    Ok(())
}
