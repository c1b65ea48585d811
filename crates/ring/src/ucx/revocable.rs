//! Transports whose access ends with a connection.
//!
//! Some transports between processes of one host copy straight into the other's memory (`cma`,
//! `knem`, `xpmem`): its owner has no part in that, and no way to end it while the peer lives. All
//! others go through a worker of the owner, in software or as queues of a NIC, and end with it.

use std::ffi::CString;

/// What a peer would use without its listener.
const WITHOUT_THE_OWNER: [&str; 3] = ["cma", "knem", "xpmem"];

/// `UCX_TLS` as it was asked for, without those transports.
pub(super) fn transports() -> Option<CString> {
    let asked = std::env::var("UCX_TLS").ok();
    CString::new(without(asked.as_deref().unwrap_or("all"))).ok()
}

fn without(asked: &str) -> String {
    let banned = WITHOUT_THE_OWNER.join(",");
    if let Some(refused) = asked.strip_prefix('^') {
        return format!("^{refused},{banned}");
    }
    let mut kept = Vec::new();
    for name in asked.split(',').filter(|name| !WITHOUT_THE_OWNER.contains(name)) {
        match name {
            "all" => return format!("^{banned}"),
            "shm" | "sm" | "mm" => kept.extend(["posix", "sysv"]),
            _ => kept.push(name),
        }
    }
    if kept.is_empty() { format!("^{banned}") } else { kept.join(",") }
}

#[cfg(test)]
mod tests {
    use super::without;

    #[test]
    fn copies_without_the_owner_are_left_out() {
        for (asked, given) in [
            ("all", "^cma,knem,xpmem"),
            ("tcp", "tcp"),
            ("posix,cma", "posix"),
            ("cma", "^cma,knem,xpmem"),
            ("^rc", "^rc,cma,knem,xpmem"),
            ("rc,sm,tcp", "rc,posix,sysv,tcp"),
            ("tcp,all", "^cma,knem,xpmem"),
        ] {
            assert_eq!(without(asked), given, "{asked}");
        }
    }
}
