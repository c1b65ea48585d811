//! The limit of open files, and how many connections it leaves room for.

use anyhow::{Context, ensure};

/// Connections of a frontend plane where the limit allows them.
const DEFAULT_CONNECTIONS: u64 = 8192;
/// Files that a frontend plane has open beside its connections: the ring, its threads' wake-ups, a
/// tokenizer that is being read, a connection that is refused.
const RESERVED_FILES: u64 = 64;

/// Raises this process's limit as far as it may, and that of what it starts; returns it.
///
/// # Errors
/// The system does not say.
pub(crate) fn raise() -> anyhow::Result<u64> {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: `limit` is a valid place to write to.
    let code = unsafe { libc::getrlimit(libc::RLIMIT_NOFILE, &mut limit) };
    ensure_done(code).context("read the limit of open files")?;
    if limit.rlim_cur < limit.rlim_max {
        let raised = libc::rlimit { rlim_cur: limit.rlim_max, ..limit };
        // SAFETY: reads `raised`.
        if unsafe { libc::setrlimit(libc::RLIMIT_NOFILE, &raised) } == 0 {
            limit = raised; // else the old one is what we have
        }
    }
    Ok(limit.rlim_cur)
}

fn ensure_done(code: i32) -> std::io::Result<()> {
    if code == 0 { Ok(()) } else { Err(std::io::Error::last_os_error()) }
}

/// Connections that a frontend plane keeps open at one time: what was asked for, or as many as
/// `open_files` leaves room for.
///
/// # Errors
/// There is no room for what was asked for, or for any.
pub(crate) fn max_connections(asked: Option<u64>, open_files: u64) -> anyhow::Result<usize> {
    let room = open_files.saturating_sub(RESERVED_FILES);
    ensure!(
        room > 0,
        "the limit of open files is {open_files}, must be more than {RESERVED_FILES} (ulimit -n)"
    );
    let max = asked.unwrap_or(room.min(DEFAULT_CONNECTIONS));
    ensure!(
        max <= room,
        "--max-connections is {max}, must be at most {room}: the limit of open files is {open_files} \
         (ulimit -n), of which {RESERVED_FILES} are needed for other things"
    );
    Ok(usize::try_from(max)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn connections_fit_the_open_files() {
        assert_eq!(max_connections(None, 1 << 20).unwrap(), 8192);
        assert_eq!(max_connections(None, u64::MAX).unwrap(), 8192);
        assert_eq!(max_connections(None, 256).unwrap(), 192);
        assert_eq!(max_connections(Some(192), 256).unwrap(), 192);
        assert_eq!(max_connections(Some(20_000), 1 << 20).unwrap(), 20_000);
        let error = max_connections(Some(193), 256).unwrap_err().to_string();
        assert!(error.contains("--max-connections is 193, must be at most 192"), "{error}");
        assert!(max_connections(None, 64).is_err());
    }
}
