//! A plane that a supervisor has started dies with it, however it dies.

/// Process id of the supervisor that started this plane.
pub(crate) const SUPERVISOR_VARIABLE: &str = "SACCADE_SUPERVISOR_PID";

/// Makes the end of the supervisor this process's end, if there is one. The kernel forgets what was
/// set before exec where the binary has capabilities of its own (for `--device-nice`).
///
/// # Errors
/// It has ended already, or the system refuses.
pub(crate) fn die_with_supervisor() -> anyhow::Result<()> {
    let variable = std::env::var(SUPERVISOR_VARIABLE).ok();
    match variable.and_then(|pid| pid.parse().ok()) {
        Some(supervisor) => Ok(die_with(supervisor)?),
        None => Ok(()),
    }
}

/// The same for a parent that is known. Async-signal-safe.
pub(crate) fn die_with(parent: u32) -> std::io::Result<()> {
    // SAFETY: sets an attribute of the calling process.
    if unsafe { libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL) } != 0 {
        return Err(std::io::Error::last_os_error());
    }
    // A parent that died before that call sent nothing.
    // SAFETY: a system call without arguments, which cannot fail.
    if unsafe { libc::getppid() } as u32 != parent {
        return Err(std::io::Error::from_raw_os_error(libc::ESRCH));
    }
    Ok(())
}
