//! GPUs of the machine, and which of them a process drives.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};

use crate::nvml;
use crate::sockets::descriptors;
use crate::{CpuSet, HostError, Root, parse};

/// A GPU.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Gpu {
    /// `N` of /dev/nvidiaN.
    pub minor: Option<u32>,
    /// As the driver calls it, e.g. `NVIDIA H200`.
    pub model: Option<String>,
    /// PCI address.
    pub bus: String,
    /// Memory node it is attached to; `None`: unknown, or a machine with one node.
    pub numa_node: Option<u32>,
    /// Cores close to it.
    pub local_cpus: Option<CpuSet>,
}

/// GPUs of NVIDIA's driver, in order of their minor numbers. Empty: no such driver.
pub fn gpus(root: &Root) -> Vec<Gpu> {
    let dir = "proc/driver/nvidia/gpus";
    let mut gpus: Vec<Gpu> = root
        .names(dir)
        .unwrap_or_default()
        .into_iter()
        .map(|bus| {
            let information = root.text(format!("{dir}/{bus}/information")).unwrap_or_default();
            let device = format!("sys/bus/pci/devices/{}", bus.to_lowercase());
            Gpu {
                minor: parse::number(&information, "Device Minor"),
                model: parse::field(&information, "Model").map(str::to_owned),
                numa_node: root
                    .number::<i64>(format!("{device}/numa_node"))
                    .ok()
                    .and_then(|node| node.try_into().ok()),
                local_cpus: root
                    .text(format!("{device}/local_cpulist"))
                    .ok()
                    .and_then(|list| list.parse().ok()),
                bus,
            }
        })
        .collect();
    gpus.sort_by(|a, b| (a.minor, &a.bus).cmp(&(b.minor, &b.bus)));
    gpus
}

/// How it is known which GPUs are driven.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Source {
    /// The driver lists the processes that compute on each GPU.
    Nvml,
    /// Open device files. A CUDA process opens each GPU that it may see: an upper bound.
    OpenFiles,
}

/// GPUs that some processes drive.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Driven {
    /// `N` of /dev/nvidiaN or, for AMD, of /dev/dri/renderDN.
    pub minors: BTreeSet<u32>,
    /// How it is known.
    pub source: Source,
    /// Processes whose descriptors could not be read: there may be more.
    pub unreadable: Vec<u32>,
}

/// GPUs that `pids` drive.
///
/// # Errors
/// No process lets us read its descriptors, and the driver does not tell either.
pub fn driven(root: &Root, pids: &[u32]) -> Result<Driven, HostError> {
    if let Some(minors) = root.is_own().then(|| nvml::computing(pids)).flatten() {
        return Ok(Driven { minors, source: Source::Nvml, unreadable: Vec::new() });
    }
    let mut minors = BTreeSet::new();
    let mut unreadable = Vec::new();
    let mut failed = None;
    for &pid in pids {
        match descriptors(root, pid) {
            Ok(links) => minors.extend(links.iter().filter_map(|l| device_minor(l.to_str()?))),
            Err(error) if error.is_absent() => {}
            Err(error) => {
                unreadable.push(pid);
                failed = Some(error);
            }
        }
    }
    match failed {
        Some(error) if unreadable.len() == pids.len() => Err(error),
        _ => Ok(Driven { minors, source: Source::OpenFiles, unreadable }),
    }
}

fn device_minor(link: &str) -> Option<u32> {
    let number = link.strip_prefix("/dev/nvidia").or(link.strip_prefix("/dev/dri/renderD"))?;
    number.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::device_minor;

    #[test]
    fn only_devices_have_numbers() {
        assert_eq!(device_minor("/dev/nvidia3"), Some(3));
        assert_eq!(device_minor("/dev/dri/renderD128"), Some(128));
        for other in ["/dev/nvidiactl", "/dev/nvidia-uvm", "/dev/null", "/dev/nvidia3 (deleted)"] {
            assert_eq!(device_minor(other), None, "{other}");
        }
    }
}
