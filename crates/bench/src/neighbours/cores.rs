//! Binding tasks to cores.

use std::io;

use saccade_host::CpuSet;

/// An affinity mask of the kernel's largest size, in its words.
type Mask = [u64; saccade_host::MAX_CPUS as usize / 64];

/// Cores from a flag: as the kernel writes them, at least one.
///
/// # Errors
/// Not a list of cores, or an empty one.
pub fn parse(text: &str) -> Result<CpuSet, String> {
    let cores: CpuSet = text.parse()?;
    if cores.is_empty() {
        return Err("an empty list of cores; give one as in 0-3,6".into());
    }
    Ok(cores)
}

/// The cores that a task (0: the calling thread) may run on.
///
/// # Errors
/// Of the system call: no such task.
pub fn of_task(tid: libc::pid_t) -> io::Result<CpuSet> {
    let mut mask: Mask = [0; _];
    // SAFETY: the call writes at most size_of_val(&mask) bytes into the mask.
    let code =
        unsafe { libc::sched_getaffinity(tid, size_of_val(&mask), mask.as_mut_ptr().cast()) };
    if code != 0 {
        return Err(io::Error::last_os_error());
    }
    let set = |core: &u32| mask[*core as usize / 64] & (1 << (core % 64)) != 0;
    Ok(CpuSet::new((0..saccade_host::MAX_CPUS).filter(set)))
}

/// Binds a task (0: the calling thread, and the threads it starts later). Async-signal-safe.
///
/// # Errors
/// Of the system call: no such task, no permission, none of the cores is usable.
pub fn bind(tid: libc::pid_t, cores: &CpuSet) -> io::Result<()> {
    let mut mask: Mask = [0; _];
    for core in cores.iter() {
        mask[core as usize / 64] |= 1 << (core % 64);
    }
    // SAFETY: the call reads size_of_val(&mask) bytes of the mask.
    let code = unsafe { libc::sched_setaffinity(tid, size_of_val(&mask), mask.as_ptr().cast()) };
    if code == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// The first `count` of them.
///
/// # Errors
/// `count` is 0 or more than there are.
pub fn first(cores: &CpuSet, count: usize) -> Result<CpuSet, String> {
    if count == 0 || count > cores.len() {
        return Err(format!("{count} cores asked for; {cores} are {}", cores.len()));
    }
    Ok(CpuSet::new(cores.iter().take(count)))
}

/// Those of `cores` that are not in `others`.
#[must_use]
pub fn without(cores: &CpuSet, others: &CpuSet) -> CpuSet {
    CpuSet::new(cores.iter().filter(|&core| !others.contains(core)))
}

/// Refuses cores that this process may not use, by name.
///
/// # Errors
/// Names the first such core and what there is.
pub fn check_usable(cores: &CpuSet) -> Result<(), String> {
    let usable = of_task(0).map_err(|e| format!("ask for the usable cores: {e}"))?;
    match cores.iter().find(|&core| !usable.contains(core)) {
        Some(core) => Err(format!("core {core} is not among {usable}, the usable ones")),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn budgets_and_rests() {
        let all = parse("2-5").unwrap();
        let two = first(&all, 2).unwrap();
        assert_eq!(two.to_string(), "2-3");
        assert_eq!(without(&all, &two).to_string(), "4-5");
        assert!(first(&all, 5).is_err() && first(&all, 0).is_err() && parse("").is_err());
    }

    #[test]
    fn a_bound_thread_reads_its_own_mask() {
        let usable = of_task(0).unwrap();
        let last = CpuSet::new(usable.iter().last());
        let seen = std::thread::spawn(move || {
            bind(0, &last).unwrap();
            (of_task(0).unwrap(), last)
        });
        let (seen, last) = seen.join().unwrap();
        assert_eq!(seen, last);
        assert!(check_usable(&parse("8191").unwrap()).is_err());
    }
}
