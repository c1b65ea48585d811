//! Memory nodes, and on which of them a process's pages lie.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{BufRead, BufReader, Read};
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};

use crate::{CpuSet, HostError, Root};

/// Bytes read of numa_maps: some ten thousand mappings.
const MAX_MAPS_BYTES: u64 = 4 << 20;
/// The kernel walks page tables for each line, under a lock that the process needs to map memory.
const MAX_MAPS_TIME: Duration = Duration::from_millis(250);

/// A memory node and its cores.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Node {
    /// Its number.
    pub id: u32,
    /// Its cores; empty for memory without cores.
    pub cpus: CpuSet,
}

/// Nodes of the machine, by number. One node: there is nothing to cross.
///
/// # Errors
/// /sys is unreadable.
pub fn nodes(root: &Root) -> Result<Vec<Node>, HostError> {
    let dir = "sys/devices/system/node";
    let names = root.names(dir)?;
    let mut nodes = Vec::new();
    for id in names.iter().filter_map(|name| name.strip_prefix("node")?.parse().ok()) {
        let path = format!("{dir}/node{id}/cpulist");
        let cpus = root
            .text(&path)?
            .parse()
            .map_err(|e: String| HostError::malformed(root.path(&path), e))?;
        nodes.push(Node { id, cpus });
    }
    nodes.sort_by_key(|node| node.id);
    Ok(nodes)
}

/// Where the pages of a process lie.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Residence {
    /// Bytes by node.
    pub bytes: BTreeMap<u32, u64>,
    /// Whether all mappings were read; large processes are read in part, for a quarter second.
    pub complete: bool,
}

/// Reads where the pages of a process lie.
///
/// # Errors
/// Another user's process, or a kernel without NUMA.
pub fn residence(root: &Root, pid: u32) -> Result<Residence, HostError> {
    let path = root.path(format!("proc/{pid}/numa_maps"));
    let file = File::open(&path).map_err(|e| HostError::from_io(&path, &e))?;
    let mut lines = BufReader::with_capacity(4096, file.take(MAX_MAPS_BYTES));
    let began = Instant::now();
    let mut found = Residence::default();
    let mut read = 0;
    let mut line = Vec::new();
    loop {
        line.clear();
        let bytes =
            lines.read_until(b'\n', &mut line).map_err(|e| HostError::from_io(&path, &e))?;
        if bytes == 0 {
            found.complete = read < MAX_MAPS_BYTES;
            return Ok(found);
        }
        read += bytes as u64;
        add_line(&String::from_utf8_lossy(&line), &mut found.bytes);
        if began.elapsed() > MAX_MAPS_TIME {
            return Ok(found);
        }
    }
}

/// `7f… default file=/x anon=4 N0=4 N1=2 kernelpagesize_kB=4`
fn add_line(line: &str, bytes: &mut BTreeMap<u32, u64>) {
    let words = || line.split_ascii_whitespace();
    let page_kib: u64 =
        words().find_map(|w| w.strip_prefix("kernelpagesize_kB=")?.parse().ok()).unwrap_or(4);
    for word in words().skip(2) {
        let Some((node, pages)) = word.strip_prefix('N').and_then(|w| w.split_once('=')) else {
            continue;
        };
        if let (Ok(node), Ok(pages)) = (node.parse(), pages.parse::<u64>()) {
            let sum: &mut u64 = bytes.entry(node).or_default();
            *sum = sum.saturating_add(pages.saturating_mul(page_kib).saturating_mul(1024));
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn pages_are_counted_in_their_size() {
        let mut bytes = BTreeMap::new();
        add_line("5601 default file=/N7=3 anon=4 N0=4 N1=2 kernelpagesize_kB=4\n", &mut bytes);
        add_line("7f00 bind:1 huge N1=3 kernelpagesize_kB=2048\n", &mut bytes);
        assert_eq!(bytes[&0], 4 * 4096);
        assert_eq!(bytes[&1], 2 * 4096 + 3 * 2048 * 1024);
    }

    proptest! {
        #[test]
        fn no_text_panics(text in ".*( N[0-9]{1,30}=[0-9]{1,30})?.*") {
            add_line(&text, &mut BTreeMap::new());
        }
    }
}
