//! Which processes listen on a port.

use std::collections::BTreeSet;
use std::path::Path;

use crate::{HostError, Root};

/// State of a listening socket in /proc/net/tcp.
const LISTEN: &str = "0A";
/// Bytes read of a socket table: some hundred thousand connections.
const MAX_TABLE_BYTES: usize = 32 << 20;

/// Processes that hold a TCP socket which listens on `port`, in this network namespace, by
/// number. Several where a server was forked, or where another user's descriptors are readable.
///
/// # Errors
/// No socket table can be read.
pub fn listeners(root: &Root, port: u16) -> Result<Vec<u32>, HostError> {
    let inodes = listening_inodes(root, "proc/net", port)?;
    if inodes.is_empty() {
        return Ok(Vec::new());
    }
    let pids = root.numbers("proc")?;
    Ok(pids.into_iter().filter(|&pid| holds_socket(root, pid, &inodes)).collect())
}

/// Whether a process holds a TCP socket that listens on `port` in its own network namespace.
///
/// # Errors
/// The process has ended, or is another user's.
pub fn listens(root: &Root, pid: u32, port: u16) -> Result<bool, HostError> {
    let inodes = listening_inodes(root, &format!("proc/{pid}/net"), port)?;
    Ok(holds_socket(root, pid, &inodes))
}

/// Inodes of sockets that listen on `port`; empty when none does.
fn listening_inodes(root: &Root, net: &str, port: u16) -> Result<BTreeSet<u64>, HostError> {
    let table = |name: &str| root.read_up_to(format!("{net}/{name}"), MAX_TABLE_BYTES);
    let (v4, v6) = (table("tcp"), table("tcp6"));
    if let (Err(error), Err(_)) = (&v4, &v6) {
        return Err(error.clone());
    }
    let text = |read: Result<(Vec<u8>, bool), HostError>| {
        read.map(|(bytes, _)| String::from_utf8_lossy(&bytes).into_owned()).unwrap_or_default()
    };
    let (v4, v6) = (text(v4), text(v6));
    Ok(v4.lines().chain(v6.lines()).filter_map(|line| listening_inode(line, port)).collect())
}

/// `0: 0100007F:1F90 00000000:0000 0A 0:0 0:0 0 0 0 12345 …`: address and port in hex.
fn listening_inode(line: &str, port: u16) -> Option<u64> {
    let mut words = line.split_ascii_whitespace();
    let (_, local_port) = words.nth(1)?.rsplit_once(':')?;
    let is_port = u16::from_str_radix(local_port, 16).ok()? == port;
    let is_listening = words.nth(1)? == LISTEN;
    let inode = words.nth(5)?.parse().ok()?;
    (is_port && is_listening).then_some(inode)
}

fn holds_socket(root: &Root, pid: u32, inodes: &BTreeSet<u64>) -> bool {
    descriptors(root, pid).unwrap_or_default().iter().any(|link| {
        let inode = link.to_str().and_then(|l| l.strip_prefix("socket:[")?.strip_suffix(']'));
        inode.and_then(|i| i.parse().ok()).is_some_and(|inode: u64| inodes.contains(&inode))
    })
}

/// What the open descriptors of a process lead to.
///
/// # Errors
/// Another user's process.
pub(crate) fn descriptors(root: &Root, pid: u32) -> Result<Vec<Box<Path>>, HostError> {
    let dir = format!("proc/{pid}/fd");
    let names = root.names(&dir)?;
    let links = names.iter().filter_map(|name| root.link(format!("{dir}/{name}")).ok());
    Ok(links.map(|link| link.into_boxed_path()).collect())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn only_listeners_on_the_port() {
        let line = "   0: 00000000:07E8 00000000:0000 0A 00000000:00000000 00:00000000 00000000 \
                    0        0 1575 1 00000000b22d84c9 100 0 0 10 0";
        assert_eq!(listening_inode(line, 2024), Some(1575));
        assert_eq!(listening_inode(line, 2025), None);
        assert_eq!(listening_inode(&line.replace(" 0A ", " 01 "), 2024), None);
        let v6 = line.replace("00000000:07E8", "00000000000000000000000001000000:07E8");
        assert_eq!(listening_inode(&v6, 2024), Some(1575));
    }

    proptest! {
        #[test]
        fn no_text_panics(text in ".*", port: u16) {
            let _ = listening_inode(&text, port);
        }
    }
}
