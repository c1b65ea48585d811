//! Memory: how much may be locked, and on which node it lies.

use std::collections::BTreeSet;

use saccade_host::Bound;

use crate::case::Case;
use crate::engine::Engine;
use crate::facts::Facts;
use crate::finding::{Finding, Severity};
use crate::thresholds::{REMOTE_MEMORY_MIN_BYTES, REMOTE_MEMORY_WARN};
use crate::words::percent;

pub fn findings(case: &Case) -> Vec<Finding> {
    locking(case).into_iter().chain(remote_memory(case)).chain(remote_gpu(case)).collect()
}

/// A limit on locked memory, where memory is locked.
fn locking(case: &Case) -> Option<Finding> {
    let facts = case.facts;
    let locked = facts.locked?;
    let Some(Bound::Bytes(limit)) = locked.soft else { return None };
    let words = facts.members.iter().flat_map(|m| m.process.cmdline.iter().flatten());
    let asked = facts.engine == Engine::LlamaCpp && words.clone().any(|word| word == "--mlock");
    let (severity, why) = if facts.uses_rdma {
        (Severity::Warning, "it registers memory with a network card, which locks it")
    } else if asked {
        (Severity::Warning, "--mlock asks for the whole model")
    } else if facts.gpu_count.count > 1 {
        (
            Severity::Note,
            "KV transfers through RDMA would need more (CUDA's pinned memory does not)",
        )
    } else {
        return None;
    };
    let title = format!("It may lock {} MiB of memory, but {why}.", limit >> 20);
    let from = format!("/proc/{}/limits", facts.pid);
    let mut finding = Finding::new("memory_lock", severity, title)
        .with("Max locked memory", format!("{limit} bytes"), from)
        .change("in a shell", "ulimit -l unlimited")
        .change("in Docker", "--ulimit memlock=-1")
        .change("in systemd", "LimitMEMLOCK=infinity");
    if let Some(bytes) = locked.locked_bytes {
        let from = format!("/proc/{}/status", facts.pid);
        finding = finding.with("VmLck", format!("{bytes} bytes"), from);
    }
    Some(finding)
}

/// Nodes whose cores the server may use. `None`: unknown, or there is only one node.
fn own_nodes(facts: &Facts) -> Option<BTreeSet<u32>> {
    let set = facts.cores.as_ref()?.set.as_ref()?;
    let near = facts.nodes.iter().filter(|node| !node.cpus.and(set).is_empty());
    (facts.nodes.len() > 1).then(|| near.map(|node| node.id).collect())
}

fn remote_memory(case: &Case) -> Option<Finding> {
    let own = own_nodes(case.facts)?;
    let (mut near, mut far, mut complete) = (0u64, 0u64, true);
    for (_, residence) in &case.facts.residence {
        complete &= residence.complete;
        for (node, bytes) in &residence.bytes {
            *(if own.contains(node) { &mut near } else { &mut far }) += bytes;
        }
    }
    let share = far as f64 / (near + far).max(1) as f64;
    if far < REMOTE_MEMORY_MIN_BYTES || share < REMOTE_MEMORY_WARN {
        return None;
    }
    let title =
        format!("{} of its memory lies on nodes whose cores it may not use.", percent(share));
    let pids: Vec<String> = case.facts.residence.iter().map(|(p, _)| p.to_string()).collect();
    let node = own.first()?;
    Some(
        Finding::new("numa_crossing", Severity::Warning, title)
            .with("far", format!("{} MiB", far >> 20), "/proc/PID/numa_maps")
            .with("near", format!("{} MiB", near >> 20), "/proc/PID/numa_maps")
            .with("all mappings read", complete.to_string(), "/proc/PID/numa_maps")
            .change(
                "at once",
                format!("for p in {}; do migratepages $p all {node}; done", pids.join(" ")),
            )
            .change("at the start", format!("numactl --cpunodebind={node} --membind={node} ...")),
    )
}

/// Cores on one node, GPUs on another.
fn remote_gpu(case: &Case) -> Option<Finding> {
    let facts = case.facts;
    let own = own_nodes(facts)?;
    let driven = &facts.driven.as_ref()?.minors;
    let is_driven = |minor: Option<u32>| minor.is_some_and(|m| driven.contains(&m));
    let gpus = facts.gpus.iter().filter(|gpu| is_driven(gpu.minor));
    let far: Vec<_> =
        gpus.filter(|gpu| gpu.numa_node.is_some_and(|node| !own.contains(&node))).collect();
    let first = far.first()?;
    let node = first.numa_node?;
    let title = format!(
        "{} of its GPUs are attached to memory nodes whose cores it may not use: launches and \
         copies cross sockets.",
        far.len()
    );
    let from = format!("/sys/bus/pci/devices/{}/numa_node", first.bus.to_lowercase());
    let mut finding = Finding::new("gpu_on_other_node", Severity::Warning, title).with(
        format!("node of GPU {}", first.bus),
        node.to_string(),
        from,
    );
    if let Some(cpus) = &first.local_cpus {
        finding = finding.change("at the start", format!("taskset -c {cpus} ..."));
    }
    Some(finding.change("or", format!("numactl --cpunodebind={node} --membind={node} ...")))
}
