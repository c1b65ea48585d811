//! Pressure stall information: the share of time in which some task waited for a resource.

use serde::{Deserialize, Serialize};

use crate::{HostError, Root};

/// One line of a pressure file.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub struct Stall {
    /// Percent of the last 10 s.
    pub avg10: f64,
    /// Percent of the last 60 s.
    pub avg60: f64,
    /// Percent of the last 300 s.
    pub avg300: f64,
    /// Microseconds since the beginning.
    pub total_us: u64,
}

/// A pressure file.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Pressure {
    /// At least one task waited.
    pub some: Stall,
    /// Every task waited; older kernels have no such line for `cpu`.
    pub full: Option<Stall>,
}

impl Pressure {
    /// Of the whole machine.
    ///
    /// # Errors
    /// The kernel has no PSI, or it is switched off.
    pub fn system(root: &Root, resource: Resource) -> Result<Pressure, HostError> {
        Pressure::read(root, &format!("proc/pressure/{}", resource.name()))
    }

    /// A pressure file, e.g. of a cgroup.
    ///
    /// # Errors
    /// Unreadable, or not a pressure file.
    pub fn read(root: &Root, path: &str) -> Result<Pressure, HostError> {
        let text = root.text(path)?;
        Pressure::parse(&text)
            .ok_or_else(|| HostError::malformed(root.path(path), "not a pressure file"))
    }

    pub(crate) fn parse(text: &str) -> Option<Pressure> {
        let line = |kind: &str| text.lines().find_map(|line| stall(line.strip_prefix(kind)?));
        Some(Pressure { some: line("some ")?, full: line("full ") })
    }
}

/// What may be waited for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Resource {
    /// Cores.
    Cpu,
    /// Memory: reclaim, swap, refaults.
    Memory,
    /// Block devices.
    Io,
}

impl Resource {
    /// The file's name.
    pub fn name(self) -> &'static str {
        match self {
            Resource::Cpu => "cpu",
            Resource::Memory => "memory",
            Resource::Io => "io",
        }
    }
}

fn stall(line: &str) -> Option<Stall> {
    let value = |key: &str| line.split_whitespace().find_map(|word| word.strip_prefix(key));
    Some(Stall {
        avg10: value("avg10=")?.parse().ok()?,
        avg60: value("avg60=")?.parse().ok()?,
        avg300: value("avg300=")?.parse().ok()?,
        total_us: value("total=")?.parse().ok()?,
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::Pressure;

    #[test]
    fn both_forms() {
        let old = "some avg10=11.06 avg60=2.51 avg300=1.31 total=6613326157\n";
        let read = Pressure::parse(old).unwrap();
        assert_eq!((read.some.avg10, read.some.total_us), (11.06, 6_613_326_157));
        assert!(read.full.is_none());
        let new = format!("{old}full avg10=0.50 avg60=0.00 avg300=0.00 total=7\n");
        assert_eq!(Pressure::parse(&new).unwrap().full.unwrap().total_us, 7);
        assert!(Pressure::parse("").is_none());
    }

    proptest! {
        #[test]
        fn no_text_panics(text in "(some |full )?.*") {
            let _ = Pressure::parse(&text);
        }
    }
}
