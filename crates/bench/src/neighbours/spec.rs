//! What a neighbour is: its kind, its threads, and where it may run.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use saccade_host::CpuSet;

/// What a neighbour takes from a server.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub enum Kind {
    /// Integer work in registers: takes the cores, little else.
    Cpu,
    /// Streams over buffers far beyond the last-level cache; bytes of all its buffers, if given.
    MemoryBandwidth(Option<Bytes>),
    /// Random reads and writes in a set of the caches' size; bytes of the set of each thread.
    Cache(Option<Bytes>),
    /// One touch of each page over a large range; bytes of the range.
    Tlb(Option<Bytes>),
    /// Makes and reaps children.
    Fork,
    /// `pbzip2` over an endless stream of text-like bytes.
    Pbzip2,
    /// A C++ compiler over a generated translation unit, again and again.
    Compile,
    /// Any command line, run by `sh -c`, again and again.
    Command(String),
}

impl Kind {
    /// What its reported work counts.
    #[must_use]
    pub fn unit(&self) -> &'static str {
        match self {
            Kind::Cpu => "rounds",
            Kind::MemoryBandwidth(_) | Kind::Pbzip2 => "bytes",
            Kind::Cache(_) => "accesses",
            Kind::Tlb(_) => "pages",
            Kind::Fork => "children",
            Kind::Compile => "units",
            Kind::Command(_) => "runs",
        }
    }
}

impl FromStr for Kind {
    type Err = String;

    fn from_str(text: &str) -> Result<Kind, String> {
        if let Some(line) = text.strip_prefix("cmd:") {
            if line.trim().is_empty() {
                return Err("cmd: needs a command line after the colon".into());
            }
            return Ok(Kind::Command(line.to_owned()));
        }
        let (name, size) = match text.split_once(':') {
            Some((name, size)) => (name, Some(size.parse::<Bytes>()?)),
            None => (text, None),
        };
        let kind = match name {
            "cpu" => Kind::Cpu,
            "memory-bandwidth" => return Ok(Kind::MemoryBandwidth(size)),
            "cache" => return Ok(Kind::Cache(size)),
            "tlb" => return Ok(Kind::Tlb(size)),
            "fork" => Kind::Fork,
            "pbzip2" => Kind::Pbzip2,
            "compile" => Kind::Compile,
            _ => {
                return Err(format!(
                    "{name:?} is no neighbour; there are cpu, memory-bandwidth[:SIZE], \
                     cache[:SIZE], tlb[:SIZE], fork, pbzip2, compile, cmd:COMMAND LINE"
                ));
            }
        };
        match size {
            Some(_) => Err(format!("{name} has no size")),
            None => Ok(kind),
        }
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let sized = |f: &mut fmt::Formatter<'_>, name: &str, size: &Option<Bytes>| match size {
            Some(size) => write!(f, "{name}:{size}"),
            None => f.write_str(name),
        };
        match self {
            Kind::Cpu => f.write_str("cpu"),
            Kind::MemoryBandwidth(size) => sized(f, "memory-bandwidth", size),
            Kind::Cache(size) => sized(f, "cache", size),
            Kind::Tlb(size) => sized(f, "tlb", size),
            Kind::Fork => f.write_str("fork"),
            Kind::Pbzip2 => f.write_str("pbzip2"),
            Kind::Compile => f.write_str("compile"),
            Kind::Command(line) => write!(f, "cmd:{line}"),
        }
    }
}

impl TryFrom<String> for Kind {
    type Error = String;

    fn try_from(text: String) -> Result<Kind, String> {
        text.parse()
    }
}

impl From<Kind> for String {
    fn from(kind: Kind) -> String {
        kind.to_string()
    }
}

/// A size in bytes; prints in the largest binary unit that divides it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Bytes(pub u64);

const UNITS: [(&str, u64); 3] = [("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10)];

impl FromStr for Bytes {
    type Err = String;

    fn from_str(text: &str) -> Result<Bytes, String> {
        let wrong = || format!("{text:?} is not a size, as in 64MiB");
        let (number, unit) = UNITS
            .iter()
            .find_map(|(name, unit)| text.strip_suffix(name).map(|number| (number, *unit)))
            .unwrap_or((text, 1));
        let number: u64 = number.parse().map_err(|_| wrong())?;
        let bytes = number.checked_mul(unit).ok_or_else(wrong)?;
        if bytes < 4096 {
            return Err(format!("{text:?} is less than a page of 4096 bytes"));
        }
        Ok(Bytes(bytes))
    }
}

impl fmt::Display for Bytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match UNITS.iter().find(|(_, unit)| self.0 >= *unit && self.0.is_multiple_of(*unit)) {
            Some((name, unit)) => write!(f, "{}{name}", self.0 / unit),
            None => write!(f, "{}", self.0),
        }
    }
}

/// Where a neighbour runs and what weight it has.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Placement {
    /// Bound to these cores; none: where the tool itself may run.
    pub cores: Option<CpuSet>,
    /// Cores' worth of time in each period, enforced by a cgroup of its own.
    pub quota_cores: Option<f64>,
    /// Nice value, -20 (heaviest) to 19.
    pub nice: Option<i32>,
    /// A session of its own rather than the tool's.
    pub own_session: bool,
}

impl FromStr for Placement {
    type Err = String;

    /// `anywhere`, or some of `cores=0-3`, `quota=1.5`, `nice=10`, `session=own|same`, with colons
    /// between them.
    fn from_str(text: &str) -> Result<Placement, String> {
        let mut placement = Placement::default();
        if text == "anywhere" {
            return Ok(placement);
        }
        for part in text.split(':') {
            let (key, value) = part.split_once('=').unwrap_or((part, ""));
            match key {
                "cores" => placement.cores = Some(CpuSet::from_flag(value)?),
                "quota" => placement.quota_cores = Some(parse_quota(value)?),
                "nice" => placement.nice = Some(parse_nice(value)?),
                "session" if matches!(value, "own" | "same") => {
                    placement.own_session = value == "own";
                }
                _ => {
                    return Err(format!(
                        "{part:?} in placement {text:?}: give anywhere, or cores=LIST, \
                         quota=CORES, nice=N, session=own|same, joined by colons"
                    ));
                }
            }
        }
        Ok(placement)
    }
}

fn parse_quota(text: &str) -> Result<f64, String> {
    // The kernel's smallest quota is 1 ms; of our period of 100 ms that is 0.01 cores.
    match text.parse::<f64>() {
        Ok(cores) if (0.01..=4096.0).contains(&cores) => Ok(cores),
        _ => Err(format!("quota={text:?} must be a number of cores within 0.01 .. 4096")),
    }
}

fn parse_nice(text: &str) -> Result<i32, String> {
    match text.parse::<i32>() {
        Ok(nice) if (-20..=19).contains(&nice) => Ok(nice),
        _ => Err(format!("nice={text:?} must be a whole number within -20 .. 19")),
    }
}

impl fmt::Display for Placement {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut parts = Vec::new();
        parts.extend(self.cores.as_ref().map(|cores| format!("cores={cores}")));
        parts.extend(self.quota_cores.map(|cores| format!("quota={cores}")));
        parts.extend(self.nice.map(|nice| format!("nice={nice}")));
        parts.extend(self.own_session.then(|| "session=own".to_owned()));
        if parts.is_empty() { f.write_str("anywhere") } else { f.write_str(&parts.join(":")) }
    }
}

/// A neighbour: what, how many threads (or jobs, or copies of a command), where.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Spec {
    /// What it does.
    pub kind: Kind,
    /// Threads, jobs, or copies; at least 1.
    pub threads: usize,
    /// Where it runs.
    pub placement: Placement,
}

impl fmt::Display for Spec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} x{}", self.kind, self.threads)?;
        if self.placement == Placement::default() {
            return Ok(());
        }
        write!(f, " {}", self.placement)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kinds_print_as_they_parse() {
        for text in [
            "cpu",
            "memory-bandwidth",
            "memory-bandwidth:256MiB",
            "cache:1GiB",
            "tlb:5000",
            "fork",
            "pbzip2",
            "compile",
            "cmd:ffmpeg -i a:b.mkv",
        ] {
            assert_eq!(text.parse::<Kind>().unwrap().to_string(), text);
        }
        for wrong in ["", "gpu", "cpu:1MiB", "cache:1", "cache:x", "cmd:", "cmd:  "] {
            assert!(wrong.parse::<Kind>().is_err(), "{wrong:?}");
        }
    }

    #[test]
    fn placements_print_as_they_parse() {
        for text in ["anywhere", "cores=0-1,3", "cores=1:quota=0.5:nice=-5:session=own"] {
            assert_eq!(text.parse::<Placement>().unwrap().to_string(), text);
        }
        assert_eq!("session=same".parse::<Placement>().unwrap(), Placement::default());
        for wrong in ["", "core=1", "cores=", "quota=0", "quota=NaN", "nice=20", "session=x"] {
            assert!(wrong.parse::<Placement>().is_err(), "{wrong:?}");
        }
    }
}
