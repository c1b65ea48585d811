//! Memory and descriptors of a server over a time, looked at again and again.

use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread::JoinHandle;
use std::time::Duration;

use saccade_host::{Footprint, Root};

/// Between two looks.
const PERIOD: Duration = Duration::from_millis(200);

/// Looks at a process and its descendants, on a thread of its own, until it is asked.
#[derive(Debug)]
pub(crate) struct Watch {
    stop: Option<mpsc::Sender<()>>,
    thread: Option<JoinHandle<Footprint>>,
}

impl Watch {
    /// Begins to look.
    ///
    /// # Errors
    /// No thread.
    pub fn start(pid: u32) -> std::io::Result<Watch> {
        let (stop, stopped) = mpsc::channel();
        let work = move || {
            let root = Root::default();
            let mut most = Footprint::default();
            loop {
                most = most.most(Footprint::of_tree(&root, pid).unwrap_or_default());
                match stopped.recv_timeout(PERIOD) {
                    Err(RecvTimeoutError::Timeout) => {}
                    _ => return most,
                }
            }
        };
        let thread = std::thread::Builder::new().name("footprints".into()).spawn(work)?;
        Ok(Watch { stop: Some(stop), thread: Some(thread) })
    }

    /// The most that was seen at one look, figure by figure.
    pub fn most(mut self) -> Footprint {
        self.stop.take();
        let thread = self.thread.take().map(JoinHandle::join);
        thread.and_then(Result::ok).unwrap_or_default()
    }
}
