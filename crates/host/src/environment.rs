//! What a process's environment says of its threads and devices. Nothing else of it is kept:
//! environments hold secrets.

use serde::{Deserialize, Serialize};

use crate::{HostError, Root};

/// Variables that decide how many threads run, and on which devices.
pub const KEPT: [&str; 14] = [
    "RAYON_NUM_THREADS",
    "TOKENIZERS_PARALLELISM",
    "OMP_NUM_THREADS",
    "MKL_NUM_THREADS",
    "OPENBLAS_NUM_THREADS",
    "TOKIO_WORKER_THREADS",
    "CUDA_VISIBLE_DEVICES",
    "NVIDIA_VISIBLE_DEVICES",
    "HIP_VISIBLE_DEVICES",
    "ROCR_VISIBLE_DEVICES",
    "VLLM_SLEEP_WHEN_IDLE",
    "CUDA_DEVICE_MAX_CONNECTIONS",
    "SLURM_CPUS_PER_TASK",
    "SLURM_CPUS_ON_NODE",
];
const MAX_BYTES: usize = 1 << 20;
/// Longer values are cut: device lists by UUID of a large machine stay whole.
const MAX_VALUE_BYTES: usize = 1024;

/// The variables of [`KEPT`] that a process was started with.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Environment {
    /// Names and values, in the order of [`KEPT`].
    pub variables: Vec<(String, String)>,
}

impl Environment {
    /// Reads the environment that a process was started with.
    ///
    /// # Errors
    /// Another user's process.
    pub fn of(root: &Root, pid: u32) -> Result<Environment, HostError> {
        let (bytes, _) = root.read_up_to(format!("proc/{pid}/environ"), MAX_BYTES)?;
        Ok(Environment::parse(&bytes))
    }

    /// The value of a variable of [`KEPT`].
    pub fn get(&self, name: &str) -> Option<&str> {
        self.variables.iter().find(|(n, _)| n == name).map(|(_, value)| value.as_str())
    }

    fn parse(bytes: &[u8]) -> Environment {
        let lookup = |name: &&str| {
            let value = bytes
                .split(|&b| b == 0)
                .find_map(|variable| variable.strip_prefix(name.as_bytes())?.strip_prefix(b"="))?;
            let value = &value[..value.len().min(MAX_VALUE_BYTES)];
            Some(((*name).to_owned(), String::from_utf8_lossy(value).into_owned()))
        };
        Environment { variables: KEPT.iter().filter_map(lookup).collect() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_named_variables_are_kept() {
        let read = Environment::parse(
            b"SECRET=x\0OMP_NUM_THREADS=4\0XRAYON_NUM_THREADS=9\0CUDA_VISIBLE_DEVICES=\0",
        );
        assert_eq!(read.get("OMP_NUM_THREADS"), Some("4"));
        assert_eq!(read.get("CUDA_VISIBLE_DEVICES"), Some(""));
        assert_eq!(read.get("RAYON_NUM_THREADS"), None);
        assert_eq!(read.variables.len(), 2);
    }
}
