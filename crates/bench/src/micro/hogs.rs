//! CPU load beside a measurement: threads that count, in a process of their own.

use anyhow::Context;

use super::os::crew::{Crew, Part};
use super::role::Role;

/// Starts a process of `threads` hogs on `cores`; they end when the crew is dropped. No process for
/// no threads.
///
/// # Errors
/// If the system refuses the process.
pub(crate) fn start(threads: usize, cores: &[usize]) -> anyhow::Result<Crew> {
    let mut crew = Crew::default();
    if threads > 0 {
        let role = Role::Hog { threads };
        crew.start(&Part { name: "hogs".into(), cores: cores.to_vec(), role }, &[])?;
        // Long enough for its threads to have begun, and for the scheduler to know them.
        std::thread::sleep(std::time::Duration::from_millis(100));
        crew.check()?;
    }
    Ok(crew)
}

/// Counts with so many threads until the process is ended.
///
/// # Errors
/// If the system refuses a thread.
pub(crate) fn hog(threads: usize) -> anyhow::Result<()> {
    for i in 1..threads {
        std::thread::Builder::new().name(format!("hog {i}")).spawn(count).context("hog")?;
    }
    count()
}

/// Ends with the process only: its parent kills it, and the kernel does when the parent dies.
fn count() -> ! {
    let mut number = 0u64;
    loop {
        number = std::hint::black_box(number.wrapping_add(1));
    }
}
