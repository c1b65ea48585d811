//! Which processes to look at.

use std::net::{IpAddr, TcpListener, ToSocketAddrs};

use anyhow::{Context, Result, bail, ensure};
use saccade_host::{Process, Root, process, sockets};

use crate::container;
use crate::engine::{Engine, recognise};

/// What the user named.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Target {
    /// A process and its descendants.
    Pid(u32),
    /// The server that listens there.
    Url(String),
    /// Name, id or beginning of an id.
    Container(String),
    /// Every engine that is known by its command line.
    Everything,
}

/// A server: the process at the top of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Server {
    /// The topmost process.
    pub pid: u32,
    /// Where it can be asked, if that is known.
    pub url: Option<String>,
}

/// The servers that a target means.
///
/// # Errors
/// There are none, or they are not on this machine; the text says what else to try.
pub fn find(root: &Root, target: &Target) -> Result<Vec<Server>> {
    match target {
        Target::Pid(pid) => {
            Process::read(root, *pid).with_context(|| format!("no process {pid}"))?;
            Ok(vec![Server { pid: *pid, url: None }])
        }
        Target::Url(url) => Ok(vec![Server { pid: of_url(root, url)?, url: Some(url.clone()) }]),
        Target::Container(name) => of_container(root, name),
        Target::Everything => everything(root),
    }
}

fn of_container(root: &Root, name: &str) -> Result<Vec<Server>> {
    let members = container::members(root, name)?;
    ensure!(
        !members.is_empty(),
        "no process runs in a container {name:?}: use the id that the runtime shows (names are \
         known of Docker and Podman only, and only to root), or --pid"
    );
    let all = read_all(root, &members);
    let engines = engine_heads(&all);
    let heads = if engines.is_empty() { container::heads(root, &members) } else { engines };
    Ok(heads.into_iter().map(|pid| Server { pid, url: None }).collect())
}

fn everything(root: &Root) -> Result<Vec<Server>> {
    let heads = engine_heads(&process::all(root)?);
    ensure!(
        !heads.is_empty(),
        "found no engine by its command line (vLLM, SGLang, TensorRT-LLM, llama-server, TGI, \
         Ollama, Saccade): use --pid, --url or --container"
    );
    Ok(heads.into_iter().map(|pid| Server { pid, url: None }).collect())
}

fn read_all(root: &Root, pids: &[u32]) -> Vec<Process> {
    pids.iter().filter_map(|&pid| Process::read(root, pid).ok()).collect()
}

/// Processes of engines whose parent is not of the same engine.
fn engine_heads(all: &[Process]) -> Vec<u32> {
    let engine_of = |pid: u32| {
        let process = all.iter().find(|process| process.pid == pid)?;
        recognise(process).map(|(engine, _)| engine)
    };
    let is_head = |process: &&Process| {
        let own = engine_of(process.pid);
        own.is_some() && engine_of(process.ppid) != own
    };
    all.iter().filter(is_head).map(|process| process.pid).collect()
}

/// The server that listens at a URL.
fn of_url(root: &Root, url: &str) -> Result<u32> {
    let (host, port) = host_and_port(url)?;
    ensure!(
        is_local(&host, port),
        "{host} is not this machine: run `saccade doctor` there (--url finds the processes of a \
         server, which it cannot do over the network)"
    );
    let mut pids = sockets::listeners(root, port)?;
    pids.retain(|&pid| Process::read(root, pid).is_ok_and(|p| p.name != "docker-proxy"));
    if pids.is_empty() {
        pids = listeners_in_containers(root, port)?;
    }
    let head = container::heads(root, &pids).first().copied();
    let Some(pid) = head else {
        bail!(
            "no process whose descriptors this user may read listens on port {port}: run as root, \
             or use --pid or --container (ports that a container runtime forwards have no \
             listener on the host)"
        );
    };
    Ok(climb(root, pid))
}

/// Engines with a network of their own that listen on the port, or on the one that Docker's
/// forwarder leads to.
fn listeners_in_containers(root: &Root, port: u16) -> Result<Vec<u32>> {
    let all = process::all(root)?;
    let port = all.iter().find_map(|process| forwarded(process, port)).unwrap_or(port);
    let engines = all.iter().filter(|process| recognise(process).is_some());
    let listening = engines.filter(|p| sockets::listens(root, p.pid, port).unwrap_or(false));
    Ok(listening.map(|process| process.pid).collect())
}

/// Where `docker-proxy` leads a port of the host: `-host-port 8000 … -container-port 80`.
fn forwarded(process: &Process, port: u16) -> Option<u16> {
    let words = process.cmdline.as_deref().filter(|_| process.name == "docker-proxy")?;
    let value = |flag: &str| {
        let at = words.iter().position(|word| word == flag)?;
        words.get(at + 1)?.parse::<u16>().ok()
    };
    (value("-host-port")? == port).then(|| value("-container-port")).flatten()
}

/// From a process up to the topmost of the same engine: the one that listens need not be the one
/// that started the others.
fn climb(root: &Root, pid: u32) -> u32 {
    /// Generations of an engine; a cycle of reused numbers must end.
    const MAX_GENERATIONS: usize = 16;
    let read = |pid: u32| -> Option<(Process, Engine)> {
        let process = Process::read(root, pid).ok()?;
        let engine = recognise(&process)?.0;
        Some((process, engine))
    };
    let Some((mut top, engine)) = read(pid) else { return pid };
    for _ in 0..MAX_GENERATIONS {
        match read(top.ppid) {
            Some((parent, same)) if same == engine => top = parent,
            _ => break,
        }
    }
    top.pid
}

fn host_and_port(url: &str) -> Result<(String, u16)> {
    let (scheme, rest) = url.split_once("://").unwrap_or(("http", url));
    let default = match scheme {
        "http" => 80,
        "https" => 443,
        other => bail!("--url {url}: {other} is neither http nor https"),
    };
    let authority = rest.split(['/', '?']).next().unwrap_or_default();
    let authority = authority.rsplit_once('@').map_or(authority, |(_, host)| host);
    let (host, port) = match authority.rsplit_once(':') {
        Some((host, port)) if !port.ends_with(']') => (host, Some(port)),
        _ => (authority, None),
    };
    let host = host.trim_start_matches('[').trim_end_matches(']');
    ensure!(!host.is_empty(), "--url {url}: names no host");
    let port = match port {
        Some(port) => {
            port.parse().with_context(|| format!("--url {url}: {port:?} is not a port"))?
        }
        None => default,
    };
    Ok((host.to_owned(), port))
}

/// Whether this is an address of this machine: a process can listen only on those.
fn is_local(host: &str, port: u16) -> bool {
    let addresses = (host, port).to_socket_addrs().into_iter().flatten();
    let own =
        |ip: IpAddr| ip.is_loopback() || ip.is_unspecified() || TcpListener::bind((ip, 0)).is_ok();
    addresses.map(|address| address.ip()).any(own)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hosts_and_ports_of_urls() {
        for (url, host, port) in [
            ("http://127.0.0.1:8000", "127.0.0.1", 8000),
            ("http://localhost:8000/v1/", "localhost", 8000),
            ("localhost:80", "localhost", 80),
            ("https://box", "box", 443),
            ("http://[::1]:9000/x", "::1", 9000),
            ("http://[::1]", "::1", 80),
            ("http://user:key@box:1?x", "box", 1),
        ] {
            assert_eq!(host_and_port(url).unwrap(), (host.to_owned(), port), "{url}");
        }
        for wrong in ["ftp://x", "http://", "http://x:99999", "http://x:a"] {
            assert!(host_and_port(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn only_own_addresses_are_local() {
        assert!(is_local("127.0.0.1", 1));
        assert!(!is_local("192.0.2.1", 1), "an address set aside for documents");
    }
}
