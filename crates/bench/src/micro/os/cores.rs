//! Cores that processes may use.

use std::io;

/// The cores that this process may use, ascending.
pub(crate) fn allowed() -> io::Result<Vec<usize>> {
    // SAFETY: cpu_set_t is plain data, for which zero bytes are a value.
    let mut set: libc::cpu_set_t = unsafe { std::mem::zeroed() };
    // SAFETY: `set` has the size that is passed.
    let code = unsafe { libc::sched_getaffinity(0, size_of::<libc::cpu_set_t>(), &mut set) };
    if code != 0 {
        return Err(io::Error::last_os_error());
    }
    let most = 8 * size_of::<libc::cpu_set_t>();
    // SAFETY: each index is below the number of bits of `set`.
    Ok((0..most).filter(|&core| unsafe { libc::CPU_ISSET(core, &set) }).collect())
}

/// Lets the calling thread, and threads that it starts, use these cores only.
///
/// # Errors
/// If none of them exists or may be used.
pub(crate) fn restrict_to(cores: &[usize]) -> io::Result<()> {
    // SAFETY: cpu_set_t is plain data, for which zero bytes are a value.
    let mut set: libc::cpu_set_t = unsafe { std::mem::zeroed() };
    for &core in cores.iter().filter(|&&core| core < 8 * size_of::<libc::cpu_set_t>()) {
        // SAFETY: the index is below the number of bits of `set`.
        unsafe { libc::CPU_SET(core, &mut set) };
    }
    // SAFETY: `set` has the size that is passed.
    match unsafe { libc::sched_setaffinity(0, size_of::<libc::cpu_set_t>(), &set) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

#[cfg(test)]
mod tests {
    #[test]
    fn a_thread_can_be_restricted_to_one_of_its_cores() {
        std::thread::spawn(|| {
            let all = super::allowed().unwrap();
            let last = *all.last().unwrap();
            super::restrict_to(&[last]).unwrap();
            assert_eq!(super::allowed().unwrap(), [last]);
            assert!(super::restrict_to(&[]).is_err());
        })
        .join()
        .unwrap();
    }
}
