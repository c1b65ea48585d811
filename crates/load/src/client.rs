//! The client's thread: one core at most, if asked for at a raised priority.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::{LoadError, LoadSpec, Observer, Run, Target};

/// How the system schedules the client's thread.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Priority {
    /// As the process.
    #[default]
    Normal,
    /// With this nice value, −20 (first) to 19.
    Nice(i32),
    /// Real time (`SCHED_FIFO`), 1 to 99: before every ordinary thread of the machine, those of
    /// the server too.
    Fifo(i32),
}

impl FromStr for Priority {
    type Err = String;

    fn from_str(text: &str) -> Result<Priority, String> {
        let number = |digits: &str, low: i32, high: i32| match digits.parse::<i32>() {
            Ok(n) if (low..=high).contains(&n) => Ok(n),
            _ => Err(format!("'{digits}' must be a number in {low}..={high}")),
        };
        match text.split_once(':') {
            None if text == "normal" => Ok(Priority::Normal),
            Some(("nice", n)) => number(n, -20, 19).map(Priority::Nice),
            Some(("fifo", n)) => number(n, 1, 99).map(Priority::Fifo),
            _ => Err(format!("'{text}' is none of: normal, nice:-20..19, fifo:1..99")),
        }
    }
}

impl fmt::Display for Priority {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Priority::Normal => f.write_str("normal"),
            Priority::Nice(n) => write!(f, "nice:{n}"),
            Priority::Fifo(n) => write!(f, "fifo:{n}"),
        }
    }
}

impl Priority {
    /// Sets it for the calling thread. Threads that it starts later begin as ordinary ones.
    ///
    /// # Errors
    /// [`LoadError::System`] where it is not permitted (without `CAP_SYS_NICE` and a limit that
    /// allows it) or not known (other systems than Linux).
    #[cfg(target_os = "linux")]
    pub fn apply(self) -> Result<(), LoadError> {
        let system = |what: &'static str, rc: libc::c_int| match rc {
            0 => Ok(()),
            _ => Err(LoadError::System { what, source: std::io::Error::last_os_error() }),
        };
        let (policy, param) = match self {
            Priority::Normal => return Ok(()),
            Priority::Nice(_) => (libc::SCHED_OTHER, 0),
            Priority::Fifo(priority) => (libc::SCHED_FIFO, priority),
        };
        // SAFETY: a sched_param is a plain struct for which zeros are valid.
        let mut parameter: libc::sched_param = unsafe { std::mem::zeroed() };
        parameter.sched_priority = param;
        let policy = policy | libc::SCHED_RESET_ON_FORK;
        // SAFETY: `parameter` is valid for reading; 0 is the calling thread.
        let rc = unsafe { libc::sched_setscheduler(0, policy, &raw const parameter) };
        system("the client's scheduling policy (needs CAP_SYS_NICE or RLIMIT_RTPRIO)", rc)?;
        let Priority::Nice(nice) = self else { return Ok(()) };
        // SAFETY: no pointers; 0 is the calling thread.
        let rc = unsafe { libc::setpriority(libc::PRIO_PROCESS, 0, nice) };
        system("the client's nice value (needs CAP_SYS_NICE or RLIMIT_NICE)", rc)
    }

    /// Only Linux has priorities of single threads.
    ///
    /// # Errors
    /// [`LoadError::System`] for another priority than the normal one.
    #[cfg(not(target_os = "linux"))]
    pub fn apply(self) -> Result<(), LoadError> {
        if self == Priority::Normal {
            return Ok(());
        }
        let source = std::io::Error::from(std::io::ErrorKind::Unsupported);
        Err(LoadError::System { what: "the client's priority", source })
    }
}

/// Polls of tasks between two looks at the sockets and the timer: the runtime's 61 would make an
/// arrival wait for the work of as many streams.
const TASKS_PER_LOOK: u32 = 7;

/// Raises the process's limit of open files as far as the system allows: each request in flight
/// is one.
pub fn raise_open_files() {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: `limit` is valid for both; where a call is refused, fewer connections fit.
    unsafe {
        if libc::getrlimit(libc::RLIMIT_NOFILE, &raw mut limit) == 0 {
            limit.rlim_cur = limit.rlim_max;
            libc::setrlimit(libc::RLIMIT_NOFILE, &raw const limit);
        }
    }
}

/// [`run`](crate::run()) on a thread and a runtime of its own, at this priority. Raises the
/// process's soft limit of open files to the hard one.
///
/// # Errors
/// Those of [`run`](crate::run()), and [`LoadError::System`] for a thread or a priority that is
/// refused.
pub fn run_on_own_thread(
    target: &Target,
    spec: &LoadSpec,
    observer: &dyn Observer,
    priority: Priority,
) -> Result<Run, LoadError> {
    raise_open_files();
    let work = || {
        priority.apply()?;
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .event_interval(TASKS_PER_LOOK)
            .build()
            .map_err(|source| LoadError::System { what: "the client's runtime", source })?;
        runtime.block_on(crate::run(target, spec, observer))
    };
    std::thread::scope(|scope| {
        let thread = std::thread::Builder::new()
            .name("load-client".into())
            .spawn_scoped(scope, work)
            .map_err(|source| LoadError::System { what: "the client's thread", source })?;
        thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn priorities_as_text() {
        for text in ["normal", "nice:-10", "fifo:10"] {
            assert_eq!(text.parse::<Priority>().map(|p| p.to_string()), Ok(text.to_owned()));
        }
        for bad in ["fifo", "fifo:0", "nice:20", "idle", ""] {
            let error = bad.parse::<Priority>().expect_err(bad);
            assert!(error.contains(".."), "{error}");
        }
    }
}
