//! Which of UCX's transports are used.
//!
//! Never `tcp`: there UCX ends the process of a listener that cannot confirm a put because its peer
//! has died (`ucp_request_try_send`), and writes wherever a peer's message says.
//!
//! Where access must end with a connection, none that copies straight into another process's memory
//! (`cma`, `knem`, `xpmem`): its owner has no part in that, and no way to end it while the peer
//! lives. All others go through a worker of the owner, in software or as queues of a NIC, and end
//! with it.

use std::ffi::CString;

/// What a peer would use without its listener.
const WITHOUT_THE_OWNER: [&str; 3] = ["cma", "knem", "xpmem"];

/// What a connection may use.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Access {
    Any,
    /// Ends with the connection.
    Revocable,
}

/// `UCX_TLS` as it was asked for, without the transports that are not permitted.
pub(super) fn transports(access: Access) -> Option<CString> {
    let asked = std::env::var("UCX_TLS").ok();
    CString::new(without(asked.as_deref().unwrap_or("all"), access)).ok()
}

fn without(asked: &str, access: Access) -> String {
    let mut banned = vec!["tcp"];
    if access == Access::Revocable {
        banned.extend(WITHOUT_THE_OWNER);
    }
    let all_but = || format!("^{}", banned.join(","));
    if let Some(refused) = asked.strip_prefix('^') {
        return format!("^{refused},{}", banned.join(","));
    }
    let mut kept = Vec::new();
    for name in asked.split(',').filter(|name| !banned.contains(name)) {
        match name {
            "all" => return all_but(),
            "shm" | "sm" | "mm" if access == Access::Revocable => kept.extend(["posix", "sysv"]),
            _ => kept.push(name),
        }
    }
    if kept.is_empty() { all_but() } else { kept.join(",") }
}

#[cfg(test)]
mod tests {
    use super::{Access, without};

    #[test]
    fn tcp_is_left_out() {
        for (asked, given) in [
            ("all", "^tcp"),
            ("tcp", "^tcp"),
            ("posix,cma", "posix,cma"),
            ("^rc", "^rc,tcp"),
            ("rc,sm,tcp", "rc,sm"),
        ] {
            assert_eq!(without(asked, Access::Any), given, "{asked}");
        }
    }

    #[test]
    fn copies_without_the_owner_are_left_out() {
        for (asked, given) in [
            ("all", "^tcp,cma,knem,xpmem"),
            ("tcp", "^tcp,cma,knem,xpmem"),
            ("posix,cma", "posix"),
            ("cma", "^tcp,cma,knem,xpmem"),
            ("^rc", "^rc,tcp,cma,knem,xpmem"),
            ("rc,sm,tcp", "rc,posix,sysv"),
            ("tcp,all", "^tcp,cma,knem,xpmem"),
        ] {
            assert_eq!(without(asked, Access::Revocable), given, "{asked}");
        }
    }
}
