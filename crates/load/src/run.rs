//! One run, from the first arrival to the last end.

use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use bytes::Bytes;
use tokio::sync::{mpsc, watch};
use tokio::task::{JoinError, JoinSet};

use crate::body::BodyWriter;
use crate::clock::{Epoch, Timer, monotonic_s};
use crate::exchange::{Order, Shared, exchange};
use crate::health::{Counts, Watch};
use crate::http::Client;
use crate::pace::{Due, Pace};
use crate::workload::Requests;
use crate::{Arrival, LoadError, LoadSpec, Observer, RequestRecord, Run, Target};

/// Bodies that are written ahead of their time.
const MAX_PREPARED: usize = 256;
/// Longest time without asking the observer whether to stop.
const STOP_CHECK: Duration = Duration::from_millis(50);

/// Sends the requests of `spec` to `target` and waits for their ends.
///
/// Time stamps are taken on the thread that polls this: give it a runtime of one thread that does
/// nothing else, as [`run_on_own_thread`](crate::run_on_own_thread) does.
///
/// # Errors
/// [`LoadError`] when the run cannot begin. What happens to single requests is in their records.
pub async fn run(
    target: &Target,
    spec: &LoadSpec,
    observer: &dyn Observer,
) -> Result<Run, LoadError> {
    spec.validate()?;
    let requests = spec.workload.open(spec.seed)?;
    let target = target.resolve(&spec.workload).await?;
    let model = target.model.clone().unwrap_or_default();
    let dialect = target.dialect.unwrap_or(crate::Dialect::LADDER[0]);
    let writer = BodyWriter::new(&target, &model, dialect);
    let client = Client::new(&target, spec.max_in_flight).await?;
    let prepared = prepare(writer, requests)?;
    let path = target.path().to_owned();
    let mut driver = Driver::start(client, path, spec, prepared, observer).await?;
    driver.arrive().await?;
    let last_end_s = driver.drain().await?;
    let window_s = driver.pace.window_s(&spec.arrival, last_end_s);
    let stopped = driver.pace.stopped();
    let (started_unix_s, started_monotonic_s) = driver.started;
    let request_id_prefix = driver.shared.id_prefix.clone();
    let mut notes = dialect.notes();
    if !driver.shared.client.keeps_connections() {
        notes.push(OWN_CONNECTIONS.into());
    }
    let (requests, client) = driver.finish();
    let spec = spec.clone();
    Ok(Run {
        target,
        model,
        spec,
        started_unix_s,
        started_monotonic_s,
        request_id_prefix,
        window_s,
        requests,
        client,
        notes,
        stopped,
    })
}

const OWN_CONNECTIONS: &str = "the server dropped a request on a kept connection: the requests \
     after it had a connection each";

struct Prepared {
    body: Bytes,
    max_tokens: u32,
}

/// Writes bodies on a thread of its own, so that a long prompt costs no other request its time
/// stamps. The thread ends when the run drops its end of the channel.
fn prepare(
    writer: BodyWriter,
    requests: Requests,
) -> Result<mpsc::Receiver<Result<Prepared, LoadError>>, LoadError> {
    let (sender, receiver) = mpsc::channel(MAX_PREPARED);
    let work = move || {
        for index in 0.. {
            let request = requests.request(index);
            let max_tokens = request.max_tokens;
            let body = writer.write(&request).map(|body| Prepared { body, max_tokens });
            if sender.blocking_send(body).is_err() {
                return;
            }
        }
    };
    std::thread::Builder::new()
        .name("load-prompts".into())
        .spawn(work)
        .map_err(|source| LoadError::System { what: "a thread", source })?;
    Ok(receiver)
}

/// The state of a run.
struct Driver<'a> {
    shared: Arc<Shared>,
    observer: &'a dyn Observer,
    pace: Pace,
    prepared: mpsc::Receiver<Result<Prepared, LoadError>>,
    next: Option<Prepared>,
    timer: Timer,
    tasks: JoinSet<RequestRecord>,
    cut: watch::Sender<bool>,
    is_open: bool,
    max_in_flight: usize,
    drain_timeout: Duration,
    /// When a place below the in-flight bound last became free.
    unblocked_s: f64,
    counts: Counts,
    records: Vec<RequestRecord>,
    watch: Watch,
    started: (f64, f64),
}

impl<'a> Driver<'a> {
    async fn start(
        client: Client,
        path: String,
        spec: &LoadSpec,
        mut prepared: mpsc::Receiver<Result<Prepared, LoadError>>,
        observer: &'a dyn Observer,
    ) -> Result<Driver<'a>, LoadError> {
        let next = prepared.recv().await.transpose()?;
        let timer = Timer::new().map_err(|source| LoadError::System { what: "a timer", source })?;
        let watch = Watch::start()?;
        let unix_s = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let timeout = Duration::from_secs_f64(spec.request_timeout_s);
        let id_prefix = format!("saccade-bench-{:x}-", unix_s.as_nanos());
        let started = (unix_s.as_secs_f64(), monotonic_s());
        Ok(Driver {
            shared: Arc::new(Shared { client, path, id_prefix, epoch: Epoch::now(), timeout }),
            observer,
            pace: Pace::new(spec),
            prepared,
            next,
            timer,
            tasks: JoinSet::new(),
            cut: watch::channel(false).0,
            is_open: !matches!(spec.arrival, Arrival::Closed { .. }),
            max_in_flight: spec.max_in_flight,
            drain_timeout: Duration::from_secs_f64(spec.drain_timeout_s),
            unblocked_s: 0.0,
            counts: Counts::default(),
            records: Vec::new(),
            watch,
            started,
        })
    }

    /// Sends until there are no more arrivals.
    async fn arrive(&mut self) -> Result<(), LoadError> {
        let epoch = self.shared.epoch;
        while !self.pace.ended() {
            if self.observer.should_stop() {
                self.pace.stop(epoch.elapsed_s());
                break;
            }
            if self.next.is_none() {
                self.next = self.prepared.recv().await.transpose()?;
            }
            let due = self.pace.peek();
            let room = self.tasks.len() < self.max_in_flight;
            let wake_s = wake_s(due.filter(|_| room), self.pace.end_s(), epoch.elapsed_s());
            tokio::select! {
                biased;
                () = self.timer.until(epoch.at(wake_s)) => self.send_if_due(due, room).await,
                Some(done) = self.tasks.join_next() => self.record(done)?,
            }
        }
        Ok(())
    }

    async fn send_if_due(&mut self, due: Option<Due>, room: bool) {
        let now_s = self.shared.epoch.elapsed_s();
        let Some(due) = due else { return self.pace.tick(now_s) };
        if !room || now_s < due.intended_s {
            return;
        }
        let Some(Prepared { body, max_tokens }) = self.next.take() else { return };
        self.pace.take(due);
        // In a closed loop the bound is the load, not an obstacle to it.
        let blocked = self.is_open && self.unblocked_s > due.intended_s;
        self.counts.bound_hits += u64::from(blocked);
        let Due { index, intended_s, warmup } = due;
        let order = Order { index, warmup, intended_s, body, max_tokens };
        self.tasks.spawn(exchange(Arc::clone(&self.shared), order, self.cut.subscribe()));
        let in_flight = self.tasks.len();
        self.counts.max_in_flight_seen = self.counts.max_in_flight_seen.max(in_flight);
        self.observer.sent(in_flight);
        // Late arrivals follow each other without waiting; the sockets must have their turn.
        tokio::task::yield_now().await;
    }

    /// Waits for what is in flight, at most for the drain's bound; returns when the last one ended.
    async fn drain(&mut self) -> Result<f64, LoadError> {
        let deadline = tokio::time::Instant::now() + self.drain_timeout;
        while !self.tasks.is_empty() {
            tokio::select! {
                Some(done) = self.tasks.join_next() => self.record(done)?,
                () = tokio::time::sleep_until(deadline), if !*self.cut.borrow() => {
                    self.cut.send_replace(true);
                }
            }
        }
        Ok(self.records.iter().map(|r| r.end_s).fold(0.0, f64::max))
    }

    fn record(&mut self, done: Result<RequestRecord, JoinError>) -> Result<(), LoadError> {
        let record = done.map_err(|e| LoadError::System {
            what: "a request's task",
            source: std::io::Error::other(e),
        })?;
        if self.tasks.len() + 1 == self.max_in_flight {
            self.unblocked_s = self.shared.epoch.elapsed_s();
        }
        self.pace.freed(record.end_s);
        self.observer.finished(&record);
        self.records.push(record);
        Ok(())
    }

    fn finish(mut self) -> (Vec<RequestRecord>, crate::ClientHealth) {
        self.records.sort_unstable_by_key(|r| r.index);
        self.counts.connections = self.shared.client.opened();
        let health = self.watch.finish(&self.records, self.counts);
        (self.records, health)
    }
}

/// When to look again: at the next arrival, at the end by the clock, or to ask the observer.
fn wake_s(due: Option<Due>, end_s: Option<f64>, now_s: f64) -> f64 {
    let check_s = now_s + STOP_CHECK.as_secs_f64();
    let due_s = due.map_or(check_s, |due| due.intended_s);
    // An end that has passed with places still taken is no reason to spin.
    let end_s = end_s.filter(|end_s| *end_s > now_s).unwrap_or(check_s);
    due_s.min(check_s).min(end_s)
}
