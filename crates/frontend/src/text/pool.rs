//! Threads for work that may take milliseconds (templates, tokenization), behind bounded queues:
//! the reactor's threads never do it, and a full queue is an answer (429), not a wait.
//!
//! There are three lanes. Long texts have their own, whose threads yield to all others of the
//! frontend: a short prompt never waits behind a long one, and neither does a token of a stream.
//! The third has the time that nothing else wants.

use std::num::NonZeroUsize;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::sync::oneshot;

use crate::limits::{LONG_TEXT_BYTES, LONG_TEXT_NICE, SPARE_TIME_NICE};

type Job = Box<dyn FnOnce() + Send>;

/// Between two looks at a full queue.
const QUEUE_PAUSE: Duration = Duration::from_millis(5);

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

/// All lanes.
#[derive(Clone)]
pub struct Lanes {
    short: WorkPool,
    long: WorkPool,
    spare: WorkPool,
}

impl Lanes {
    /// Starts `threads` threads for short texts and for long ones, one for the spare time, and for
    /// each lane a queue of `queue` jobs.
    ///
    /// # Errors
    /// If the system refuses a thread.
    pub fn start(threads: usize, queue: usize) -> std::io::Result<Self> {
        Ok(Self {
            short: WorkPool::start("tokenize", threads, queue, 0)?,
            long: WorkPool::start("tokenize-long", threads, queue, LONG_TEXT_NICE)?,
            spare: WorkPool::start("spare-time", 1, queue, SPARE_TIME_NICE)?,
        })
    }

    /// The lane for text of this many bytes.
    pub fn of(&self, bytes: usize) -> &WorkPool {
        if is_long(bytes) { &self.long } else { &self.short }
    }

    /// The lane whose threads yield to those that deliver tokens.
    pub fn long(&self) -> &WorkPool {
        &self.long
    }

    /// The lane whose thread yields to all others.
    pub fn spare(&self) -> &WorkPool {
        &self.spare
    }

    /// Jobs that wait for a thread.
    pub fn depth(&self) -> usize {
        self.short.depth() + self.long.depth() + self.spare.depth()
    }
}

/// Whether text of this many bytes takes the lane of long texts.
pub fn is_long(bytes: usize) -> bool {
    bytes >= LONG_TEXT_BYTES
}

/// A fixed number of threads and a bounded queue.
#[derive(Clone)]
pub struct WorkPool {
    jobs: SyncSender<Job>,
    waiting: Arc<AtomicUsize>,
    crew: Crew,
}

/// How many threads work for a pool (none, by default): its own that have a job, and their helpers.
#[derive(Clone, Default)]
pub struct Crew {
    threads: usize,
    busy: Arc<AtomicUsize>,
}

/// Helpers of one job, until it is dropped.
pub struct Helpers<'a> {
    crew: &'a Crew,
    count: usize,
}

impl Crew {
    /// Lets the calling thread's job start up to `wanted` threads, limited to the number of the
    /// pool's idle ones. New jobs start regardless: while the helpers run there may be up to twice
    /// the pool's threads.
    pub fn help(&self, wanted: usize) -> Helpers<'_> {
        let mut count = 0;
        // SYNC: the count alone matters; no other memory depends on it.
        let _ = self.busy.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |busy| {
            count = wanted.min(self.threads.saturating_sub(busy));
            Some(busy + count)
        });
        Helpers { crew: self, count }
    }
}

impl Helpers<'_> {
    /// The calling thread and its helpers.
    pub fn threads(&self) -> NonZeroUsize {
        NonZeroUsize::MIN.saturating_add(self.count)
    }
}

impl Drop for Helpers<'_> {
    fn drop(&mut self) {
        // SYNC: as in `Crew::help`.
        self.crew.busy.fetch_sub(self.count, Ordering::Relaxed);
    }
}

impl WorkPool {
    /// Starts `threads` threads (at least one) that share a queue of `queue` jobs, at the nice
    /// value `nice` if that is not 0. They end when the last clone of the pool is dropped.
    ///
    /// # Errors
    /// If the system refuses a thread.
    pub fn start(name: &str, threads: usize, queue: usize, nice: i32) -> std::io::Result<Self> {
        let (jobs, receiver) = sync_channel::<Job>(queue);
        let receiver = Arc::new(Mutex::new(receiver));
        let crew = Crew { threads: threads.max(1), busy: Arc::default() };
        for index in 0..crew.threads {
            let (receiver, crew) = (receiver.clone(), crew.clone());
            std::thread::Builder::new().name(format!("{name}-{index}")).spawn(move || {
                yield_to_others(nice);
                work(&receiver, &crew);
            })?;
        }
        Ok(Self { jobs, waiting: Arc::default(), crew })
    }

    /// For jobs that other threads can help with.
    pub fn crew(&self) -> Crew {
        self.crew.clone()
    }

    /// Runs `job` on the pool. A caller that goes away before its turn costs nothing.
    ///
    /// # Errors
    /// [`PoolError::Full`] at once if the queue is full.
    pub async fn run<T: Send + 'static>(
        &self,
        job: impl FnOnce() -> T + Send + 'static,
    ) -> Result<T, PoolError> {
        let (job, result) = self.wrapped(job);
        match self.jobs.try_send(job) {
            Ok(()) => result.await.map_err(|_| PoolError::Failed),
            Err(_) => {
                self.waiting.fetch_sub(1, Ordering::Relaxed);
                Err(PoolError::Full)
            }
        }
    }

    /// Runs `job` on the pool, as soon as the queue has room: for the rest of something begun that
    /// can wait.
    ///
    /// # Errors
    /// [`PoolError::Failed`]
    pub async fn run_in_turn<T: Send + 'static>(
        &self,
        job: impl FnOnce() -> T + Send + 'static,
    ) -> Result<T, PoolError> {
        let (mut job, result) = self.wrapped(job);
        while let Err(refused) = self.jobs.try_send(job) {
            let TrySendError::Full(again) = refused else { return Err(PoolError::Failed) };
            job = again;
            tokio::time::sleep(QUEUE_PAUSE).await;
        }
        result.await.map_err(|_| PoolError::Failed)
    }

    /// Runs `job` on the pool, or here if the queue is full: for the rest of something begun.
    ///
    /// # Errors
    /// [`PoolError::Failed`]
    pub async fn run_or_here<T: Send + 'static>(
        &self,
        job: impl FnOnce() -> T + Send + 'static,
    ) -> Result<T, PoolError> {
        let (job, result) = self.wrapped(job);
        if let Err(TrySendError::Full(job) | TrySendError::Disconnected(job)) =
            self.jobs.try_send(job)
        {
            job();
        }
        result.await.map_err(|_| PoolError::Failed)
    }

    /// A job that counts itself and answers, unless its caller has gone away before its turn.
    fn wrapped<T: Send + 'static>(
        &self,
        job: impl FnOnce() -> T + Send + 'static,
    ) -> (Job, oneshot::Receiver<T>) {
        let (sender, result) = oneshot::channel();
        let waiting = self.waiting.clone();
        waiting.fetch_add(1, Ordering::Relaxed);
        let job = Box::new(move || {
            waiting.fetch_sub(1, Ordering::Relaxed);
            if !sender.is_closed() {
                // The caller may have gone away meanwhile; then the result is dropped.
                let _ = sender.send(job());
            }
        });
        (job, result)
    }

    /// Jobs that wait for a thread.
    pub fn depth(&self) -> usize {
        self.waiting.load(Ordering::Relaxed)
    }
}

/// Threads that this one starts inherit its nice value.
fn yield_to_others(nice: i32) {
    if nice != 0
        && let Err(error) = rustix::process::setpriority_process(None, nice)
    {
        tracing::warn!("long prompts are tokenized at normal priority: {error}");
    }
}

fn work(jobs: &Mutex<Receiver<Job>>, crew: &Crew) {
    loop {
        // A panic inside recv cannot leave anything half done: take the lock anyway.
        let job = jobs.lock().unwrap_or_else(PoisonError::into_inner).recv();
        let Ok(job) = job else { return };
        // SYNC: as in `Crew::help`.
        crew.busy.fetch_add(1, Ordering::Relaxed);
        // A panic must cost one request, not the thread; the dropped sender tells the caller.
        if catch_unwind(AssertUnwindSafe(job)).is_err() {
            tracing::error!("a tokenizer job panicked");
        }
        crew.busy.fetch_sub(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_full_queue_refuses_and_a_panic_costs_one_job() {
        let pool = WorkPool::start("test", 1, 1, 0).unwrap();
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
        let name = || std::thread::current().name().map(str::to_owned);
        let here = name();
        assert_eq!(pool.run_or_here(name).await, Ok(here));
        let waits = pool.run_in_turn(|| 8);
        let waited = tokio::time::timeout(4 * QUEUE_PAUSE, waits).await;
        assert!(waited.is_err(), "there is no room yet");
        release.send(()).unwrap();
        assert_eq!(first.await.unwrap(), Ok(true));
        assert_eq!(second.await.unwrap(), Err(PoolError::Failed));
        assert_eq!(pool.run(|| 7).await, Ok(7));
        assert_eq!(pool.run_in_turn(|| 8).await, Ok(8));
    }

    #[test]
    fn help_is_bounded_by_idle_threads_and_given_back() {
        let crew = WorkPool::start("test", 3, 1, 0).unwrap().crew();
        let first = crew.help(2);
        assert_eq!(first.threads().get(), 3);
        let second = crew.help(8);
        assert_eq!(second.threads().get(), 2);
        assert_eq!(crew.help(8).threads().get(), 1);
        drop(first);
        assert_eq!(crew.help(8).threads().get(), 3);
    }

    #[tokio::test]
    async fn each_lane_has_threads_of_lower_priority() {
        let lanes = Lanes::start(1, 1).unwrap();
        let nice = || rustix::process::getpriority_process(None).unwrap();
        let short = lanes.of(LONG_TEXT_BYTES - 1).run(nice).await.unwrap();
        let long = lanes.of(LONG_TEXT_BYTES).run(nice).await.unwrap();
        assert_eq!(short, nice());
        let spare = lanes.spare().run(nice).await.unwrap();
        assert_eq!(long, LONG_TEXT_NICE.max(short));
        assert_eq!(spare, SPARE_TIME_NICE.max(short));
    }
}
