//! Lists of cores, as people write them for taskset: `0-3,6`.

use std::fmt;
use std::str::FromStr;

/// Cores that the kernel's affinity masks of this build can name.
const MAX_CORES: usize = libc::CPU_SETSIZE as usize;

/// A non-empty, sorted list of cores.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct CoreList(Vec<usize>);

impl FromStr for CoreList {
    type Err = String;

    fn from_str(text: &str) -> Result<CoreList, String> {
        let mut cores = Vec::new();
        for part in text.split(',') {
            let (first, last) = part.split_once('-').unwrap_or((part, part));
            let first = parse_core(first)?;
            let last = parse_core(last)?;
            if first > last {
                return Err(format!("range {part:?} runs backwards"));
            }
            cores.extend(first..=last);
        }
        cores.sort_unstable();
        cores.dedup();
        Ok(CoreList(cores))
    }
}

fn parse_core(text: &str) -> Result<usize, String> {
    let core: usize =
        text.trim().parse().map_err(|_| format!("{text:?} is not a core number, as in 0-3,6"))?;
    if core >= MAX_CORES {
        return Err(format!("core {core} is outside 0 .. {}", MAX_CORES - 1));
    }
    Ok(core)
}

impl fmt::Display for CoreList {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut start = 0;
        for i in 0..self.0.len() {
            if i + 1 < self.0.len() && self.0[i + 1] == self.0[i] + 1 {
                continue;
            }
            if start > 0 {
                write!(f, ",")?;
            }
            match i - start {
                0 => write!(f, "{}", self.0[i])?,
                _ => write!(f, "{}-{}", self.0[start], self.0[i])?,
            }
            start = i + 1;
        }
        Ok(())
    }
}

#[cfg(feature = "device")]
impl CoreList {
    /// The cores that this process may run on.
    pub fn current() -> std::io::Result<CoreList> {
        // SAFETY: an all-zero cpu_set_t is valid, and the call writes at most its size.
        let (code, set) = unsafe {
            let mut set: libc::cpu_set_t = std::mem::zeroed();
            (libc::sched_getaffinity(0, size_of::<libc::cpu_set_t>(), &mut set), set)
        };
        if code != 0 {
            return Err(std::io::Error::last_os_error());
        }
        // SAFETY: core < CPU_SETSIZE.
        Ok(CoreList((0..MAX_CORES).filter(|&c| unsafe { libc::CPU_ISSET(c, &set) }).collect()))
    }

    /// An error that names the first core of `self` that is not among `usable`.
    pub fn check_within(&self, usable: &CoreList, flag: &str) -> anyhow::Result<()> {
        match self.0.iter().find(|core| !usable.0.contains(core)) {
            Some(core) => {
                anyhow::bail!("{flag}: core {core} is not among {usable}, the usable ones")
            }
            None => Ok(()),
        }
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Binds the calling process; async-signal-safe, for use between fork and exec.
    pub fn bind(&self) -> std::io::Result<()> {
        // SAFETY: an all-zero cpu_set_t is valid; every core is below CPU_SETSIZE.
        let code = unsafe {
            let mut set: libc::cpu_set_t = std::mem::zeroed();
            for &core in &self.0 {
                libc::CPU_SET(core, &mut set);
            }
            libc::sched_setaffinity(0, size_of::<libc::cpu_set_t>(), &set)
        };
        if code == 0 { Ok(()) } else { Err(std::io::Error::last_os_error()) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parses_and_prints() {
        for (text, printed) in
            [("0", "0"), ("0-3,6", "0-3,6"), ("6,1,2,3,1", "1-3,6"), ("5,7", "5,7")]
        {
            assert_eq!(text.parse::<CoreList>().unwrap().to_string(), printed);
        }
    }

    #[cfg(feature = "device")]
    #[test]
    fn unusable_cores_are_named() {
        let usable: CoreList = "0-1".parse().unwrap();
        let asked: CoreList = "1-2".parse().unwrap();
        let error = asked.check_within(&usable, "--device-cores").unwrap_err().to_string();
        assert_eq!(error, "--device-cores: core 2 is not among 0-1, the usable ones");
    }

    #[test]
    fn refuses() {
        for text in ["", "a", "3-1", "-1", "1-", "99999999", "1,,2"] {
            assert!(text.parse::<CoreList>().is_err(), "{text:?}");
        }
    }
}
