//! Children made and reaped: takes the kernel's locks, page tables and the run queue.

use std::io;

use anyhow::bail;

use super::{REST, Slice};

/// One child a slice. Its only act is to end.
pub(super) fn slice() -> Slice {
    Box::new(|| {
        // SAFETY: the child of this many-threaded process calls nothing but _exit, which is
        // async-signal-safe.
        let child = unsafe {
            let child = libc::fork();
            if child == 0 {
                libc::_exit(0);
            }
            child
        };
        if child < 0 {
            return refused(io::Error::last_os_error());
        }
        reap(child)?;
        Ok(1)
    })
}

/// This hog may well fill the process table; it continues when there is room.
fn refused(error: io::Error) -> anyhow::Result<u64> {
    if error.kind() != io::ErrorKind::WouldBlock {
        bail!("fork: {error}");
    }
    std::thread::sleep(REST);
    Ok(0)
}

fn reap(child: libc::pid_t) -> anyhow::Result<()> {
    let mut status = 0;
    // SAFETY: waits for a child of this process that nothing else waits for.
    while unsafe { libc::waitpid(child, &mut status, 0) } < 0 {
        let error = io::Error::last_os_error();
        if error.kind() != io::ErrorKind::Interrupted {
            bail!("wait for a child of the fork hog: {error}");
        }
    }
    Ok(())
}
