//! Sets of cores, as the kernel writes them: `0-3,6`.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// The largest `NR_CPUS` that a kernel is built with.
pub const MAX_CPUS: u32 = 8192;

/// Cores by number, sorted, each once. May be empty.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(into = "String", try_from = "String")]
pub struct CpuSet(Vec<u32>);

impl CpuSet {
    /// Cores in any order.
    pub fn new(cores: impl IntoIterator<Item = u32>) -> CpuSet {
        let mut cores: Vec<u32> = cores.into_iter().collect();
        cores.sort_unstable();
        cores.dedup();
        CpuSet(cores)
    }

    /// How many cores.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// No core at all.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Whether the core is in the set.
    pub fn contains(&self, core: u32) -> bool {
        self.0.binary_search(&core).is_ok()
    }

    /// The cores, ascending.
    pub fn iter(&self) -> impl Iterator<Item = u32> + '_ {
        self.0.iter().copied()
    }

    /// Cores in both.
    pub fn and(&self, other: &CpuSet) -> CpuSet {
        CpuSet(self.iter().filter(|&core| other.contains(core)).collect())
    }

    /// Cores in either.
    pub fn or(&self, other: &CpuSet) -> CpuSet {
        CpuSet::new(self.iter().chain(other.iter()))
    }

    /// Cores that are not in `other`.
    pub fn without(&self, other: &CpuSet) -> CpuSet {
        CpuSet(self.iter().filter(|&core| !other.contains(core)).collect())
    }

    /// The lowest `count` cores; `None` where there are fewer.
    pub fn first(&self, count: usize) -> Option<CpuSet> {
        self.0.get(..count).map(|cores| CpuSet(cores.to_vec()))
    }

    /// Whether every core of `self` is in `other`.
    pub fn is_within(&self, other: &CpuSet) -> bool {
        self.iter().all(|core| other.contains(core))
    }
}

impl FromStr for CpuSet {
    type Err = String;

    fn from_str(text: &str) -> Result<CpuSet, String> {
        let mut cores = Vec::new();
        for part in text.trim().split(',').filter(|part| !part.is_empty()) {
            let (first, last) = part.split_once('-').unwrap_or((part, part));
            let (first, last) = (core(first)?, core(last)?);
            if first > last {
                return Err(format!("range {part:?} runs backwards"));
            }
            cores.extend(first..=last);
            // Ranges may overlap; a long hostile list must not grow without bound.
            if cores.len() > MAX_CPUS as usize {
                cores = CpuSet::new(cores).0;
            }
        }
        Ok(CpuSet::new(cores))
    }
}

fn core(text: &str) -> Result<u32, String> {
    let core: u32 = text
        .trim()
        .parse()
        .map_err(|_| format!("{:?} is not a core number, as in 0-3,6", crate::root::clip(text)))?;
    if core >= MAX_CPUS {
        return Err(format!("core {core} is outside 0 .. {}", MAX_CPUS - 1));
    }
    Ok(core)
}

impl fmt::Display for CpuSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut rest = self.0.as_slice();
        while let Some(&first) = rest.first() {
            let run = rest.iter().zip(first..).take_while(|&(&core, next)| core == next).count();
            if rest.len() < self.0.len() {
                write!(f, ",")?;
            }
            match run {
                1 => write!(f, "{first}")?,
                _ => write!(f, "{first}-{}", rest[run - 1])?,
            }
            rest = &rest[run..];
        }
        Ok(())
    }
}

impl From<CpuSet> for String {
    fn from(set: CpuSet) -> String {
        set.to_string()
    }
}

impl TryFrom<String> for CpuSet {
    type Error = String;

    fn try_from(text: String) -> Result<CpuSet, String> {
        text.parse()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::CpuSet;

    #[test]
    fn reads_what_the_kernel_writes() {
        let set: CpuSet = "0-3,6,8-9\n".parse().unwrap();
        assert_eq!(set.iter().collect::<Vec<_>>(), [0, 1, 2, 3, 6, 8, 9]);
        assert_eq!(set.to_string(), "0-3,6,8-9");
        assert_eq!("".parse::<CpuSet>().unwrap(), CpuSet::default());
        assert_eq!("5".parse::<CpuSet>().unwrap().to_string(), "5");
    }

    #[test]
    fn refuses_what_it_does_not() {
        for wrong in ["a", "3-1", "0-99999", "-1", "1-", "0x3"] {
            assert!(wrong.parse::<CpuSet>().is_err(), "{wrong}");
        }
    }

    #[test]
    fn parts_and_rests() {
        let all = CpuSet::new(2..=5);
        let two = all.first(2).unwrap();
        assert_eq!(two.to_string(), "2-3");
        assert_eq!(all.without(&two).to_string(), "4-5");
        assert_eq!(all.first(4), Some(all.clone()));
        assert_eq!(all.first(5), None);
    }

    proptest! {
        #[test]
        fn what_is_written_reads_the_same(cores in prop::collection::vec(0u32..8192, 0..64)) {
            let set = CpuSet::new(cores);
            prop_assert_eq!(set.to_string().parse::<CpuSet>(), Ok(set));
        }

        #[test]
        fn no_text_panics(text in ".*") {
            let _ = text.parse::<CpuSet>();
        }
    }
}
