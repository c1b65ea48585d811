//! Threads for work that may take milliseconds (templates, tokenization), behind a bounded queue:
//! the reactor's threads never do it, and a full queue is an answer (429), not a wait.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};

use tokio::sync::oneshot;

type Job = Box<dyn FnOnce() + Send>;

/// Why a job has no result.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum PoolError {
    /// The queue is full.
    #[error("the tokenizer's queue is full")]
    Full,
    /// The job panicked, or the pool is gone.
    #[error("the tokenizer failed")]
    Failed,
}

/// A fixed number of threads and a bounded queue.
#[derive(Clone)]
pub struct WorkPool {
    jobs: SyncSender<Job>,
    waiting: Arc<AtomicUsize>,
}

impl WorkPool {
    /// Starts `threads` threads (at least one) that share a queue of `queue` jobs. They end when
    /// the last clone of the pool is dropped.
    ///
    /// # Errors
    /// If the system refuses a thread.
    pub fn start(threads: usize, queue: usize) -> std::io::Result<Self> {
        let (jobs, receiver) = sync_channel::<Job>(queue);
        let receiver = Arc::new(Mutex::new(receiver));
        for index in 0..threads.max(1) {
            let receiver = receiver.clone();
            let name = format!("tokenize-{index}");
            std::thread::Builder::new().name(name).spawn(move || work(&receiver))?;
        }
        Ok(Self { jobs, waiting: Arc::default() })
    }

    /// Runs `job` on the pool. A caller that goes away before its turn costs nothing.
    ///
    /// # Errors
    /// [`PoolError::Full`] at once if the queue is full.
    pub async fn run<T: Send + 'static>(
        &self,
        job: impl FnOnce() -> T + Send + 'static,
    ) -> Result<T, PoolError> {
        let (sender, result) = oneshot::channel();
        let waiting = self.waiting.clone();
        waiting.fetch_add(1, Ordering::Relaxed);
        let boxed: Job = Box::new(move || {
            waiting.fetch_sub(1, Ordering::Relaxed);
            if !sender.is_closed() {
                // The caller may go away meanwhile; then nobody wants the result.
                let _ = sender.send(job());
            }
        });
        if self.jobs.try_send(boxed).is_err() {
            self.waiting.fetch_sub(1, Ordering::Relaxed);
            return Err(PoolError::Full);
        }
        result.await.map_err(|_| PoolError::Failed)
    }

    /// Jobs that wait for a thread.
    pub fn depth(&self) -> usize {
        self.waiting.load(Ordering::Relaxed)
    }
}

fn work(jobs: &Mutex<Receiver<Job>>) {
    loop {
        // A panic inside recv is impossible to leave anything half done: take the lock anyway.
        let job = jobs.lock().unwrap_or_else(PoisonError::into_inner).recv();
        let Ok(job) = job else { return };
        // A panic must cost one request, not the thread; the dropped sender tells the caller.
        if catch_unwind(AssertUnwindSafe(job)).is_err() {
            tracing::error!("a tokenizer job panicked");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_full_queue_refuses_and_a_panic_costs_one_job() {
        let pool = WorkPool::start(1, 1).unwrap();
        let (release, gate) = std::sync::mpsc::channel::<()>();
        let (started, has_started) = std::sync::mpsc::channel::<()>();
        let first = tokio::spawn({
            let pool = pool.clone();
            let job = move || started.send(()).is_ok() && gate.recv().is_ok();
            async move { pool.run(job).await }
        });
        while has_started.try_recv().is_err() {
            tokio::task::yield_now().await;
        }
        let second = tokio::spawn({
            let pool = pool.clone();
            async move { pool.run(|| -> () { panic!("on purpose") }).await }
        });
        while pool.depth() == 0 {
            tokio::task::yield_now().await;
        }
        assert_eq!(pool.run(|| ()).await, Err(PoolError::Full));
        release.send(()).unwrap();
        assert_eq!(first.await.unwrap(), Ok(true));
        assert_eq!(second.await.unwrap(), Err(PoolError::Failed));
        assert_eq!(pool.run(|| 7).await, Ok(7));
    }
}
