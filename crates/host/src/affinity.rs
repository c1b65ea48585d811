//! Cores from flags, and binding tasks to cores.

use std::io;

use crate::{CpuSet, MAX_CPUS};

/// An affinity mask of the kernel's largest size, in its words.
type Mask = [u64; MAX_CPUS as usize / 64];

impl CpuSet {
    /// Cores as people write them for a flag: `0-3,6`, at least one, no entry left empty.
    ///
    /// # Errors
    /// Names the entry that is no core or range of cores.
    pub fn from_flag(text: &str) -> Result<CpuSet, String> {
        if text.trim().is_empty() {
            return Err("an empty list of cores; give one as in 0-3,6".into());
        }
        if text.split(',').any(|entry| entry.trim().is_empty()) {
            return Err(format!("{text:?} has an empty entry; give cores as in 0-3,6"));
        }
        text.parse()
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
        Ok(CpuSet::new((0..MAX_CPUS).filter(set)))
    }

    /// Binds a task (0: the calling thread, and the threads it starts later) to these cores.
    /// Async-signal-safe: it may run between fork and exec.
    ///
    /// # Errors
    /// Of the system call: no such task, no permission, none of the cores is usable.
    pub fn bind(&self, tid: libc::pid_t) -> io::Result<()> {
        let mut mask: Mask = [0; _];
        for core in self.iter() {
            mask[core as usize / 64] |= 1 << (core % 64);
        }
        // SAFETY: the call reads size_of_val(&mask) bytes of the mask.
        let code =
            unsafe { libc::sched_setaffinity(tid, size_of_val(&mask), mask.as_ptr().cast()) };
        if code == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
    }

    /// Refuses cores that the calling thread may not use: the kernel would drop them silently.
    ///
    /// # Errors
    /// Names the first such core and what there is.
    pub fn check_usable(&self) -> Result<(), String> {
        let usable = CpuSet::of_task(0).map_err(|e| format!("ask for the usable cores: {e}"))?;
        self.check_within(&usable)
    }

    /// Refuses cores that are not among `usable`.
    fn check_within(&self, usable: &CpuSet) -> Result<(), String> {
        match self.iter().find(|&core| !usable.contains(core)) {
            Some(core) => Err(format!("core {core} is not among {usable}, the usable ones")),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::CpuSet;

    #[test]
    fn flags_are_stricter_than_files_of_the_kernel() {
        for (text, printed) in
            [("0", "0"), ("0-3,6", "0-3,6"), ("6,1,2,3,1", "1-3,6"), ("5, 7", "5,7")]
        {
            assert_eq!(CpuSet::from_flag(text).unwrap().to_string(), printed);
        }
        for wrong in ["", " ", "a", "3-1", "-1", "1-", "99999999", "1,,2", "1,"] {
            assert!(CpuSet::from_flag(wrong).is_err(), "{wrong:?}");
        }
    }

    #[test]
    fn unusable_cores_are_named() {
        let usable = CpuSet::new([0, 1]);
        let error = CpuSet::new([1, 2]).check_within(&usable).unwrap_err();
        assert_eq!(error, "core 2 is not among 0-1, the usable ones");
        assert_eq!(usable.check_within(&usable), Ok(()));
    }

    #[test]
    fn a_bound_thread_reads_its_own_mask() {
        let last = CpuSet::new(CpuSet::of_task(0).unwrap().iter().last());
        let wanted = last.clone();
        let seen = std::thread::spawn(move || {
            wanted.bind(0).unwrap();
            assert!(CpuSet::default().bind(0).is_err());
            CpuSet::of_task(0).unwrap()
        });
        assert_eq!(seen.join().unwrap(), last);
        assert!(CpuSet::new([8191]).check_usable().is_err());
    }
}
