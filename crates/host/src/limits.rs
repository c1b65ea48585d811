//! How much memory a process may lock, and has locked.

use serde::{Deserialize, Serialize};

use crate::parse;
use crate::{HostError, Root};

/// A resource limit in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Bound {
    /// Bytes.
    Bytes(u64),
    /// No limit.
    Unlimited,
}

/// Memory that is or may be locked.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct LockedMemory {
    /// Soft limit, the effective one (`RLIMIT_MEMLOCK`).
    pub soft: Option<Bound>,
    /// Hard limit, up to which the process may raise it.
    pub hard: Option<Bound>,
    /// Bytes locked by mlock.
    pub locked_bytes: Option<u64>,
    /// Bytes pinned by the kernel, e.g. registered with a network card.
    pub pinned_bytes: Option<u64>,
}

impl LockedMemory {
    /// Reads limits and status of a process.
    ///
    /// # Errors
    /// Both files are unreadable.
    pub fn of(root: &Root, pid: u32) -> Result<LockedMemory, HostError> {
        let limits = root.text(format!("proc/{pid}/limits"));
        let status = root.text(format!("proc/{pid}/status"));
        let (soft, hard) = limits
            .as_deref()
            .ok()
            .and_then(parse_memlock)
            .map_or((None, None), |(s, h)| (Some(s), Some(h)));
        let kib = |key| {
            let status = status.as_deref().ok()?;
            parse::number::<u64>(status, key)?.checked_mul(1024)
        };
        let read =
            LockedMemory { soft, hard, locked_bytes: kib("VmLck"), pinned_bytes: kib("VmPin") };
        match (limits, status) {
            (Err(error), Err(_)) => Err(error),
            _ => Ok(read),
        }
    }
}

fn parse_memlock(limits: &str) -> Option<(Bound, Bound)> {
    let mut words = parse::field(limits, "Max locked memory")?.split_whitespace();
    Some((bound(words.next()?)?, bound(words.next()?)?))
}

fn bound(text: &str) -> Option<Bound> {
    match text {
        "unlimited" => Some(Bound::Unlimited),
        number => number.parse().ok().map(Bound::Bytes),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_are_numbers_or_none() {
        let text = "Max data size   unlimited  unlimited  bytes\n\
                    Max locked memory         8388608              unlimited            bytes     \n";
        assert_eq!(parse_memlock(text), Some((Bound::Bytes(8_388_608), Bound::Unlimited)));
        assert_eq!(parse_memlock("Max locked memory  x"), None);
    }
}
