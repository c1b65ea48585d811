//! The thread that asks the server, so that drawing and keys never wait for it.

use std::thread::JoinHandle;
use std::time::Duration;

use anyhow::Context;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::mpsc::{Receiver, Sender, channel};

use crate::args::Args;
use crate::http::Endpoint;
use crate::probe::{Probe, look};

/// Answers that wait to be drawn; more than one is never useful for long.
const MAX_REPORTS: usize = 4;
/// Longest time until a server that is gone is asked again.
const MAX_RETRY: Duration = Duration::from_secs(10);
/// Shortest time until then.
const MIN_RETRY: Duration = Duration::from_millis(500);

/// What the thread says.
#[derive(Debug)]
pub enum Report {
    /// The server answered.
    Answered(Box<Probe>),
    /// It did not; it is asked again after the time.
    Failed(String, Duration),
    /// A signal asks this process to end.
    End,
}

/// The thread; it ends when this is dropped.
pub struct Sampler {
    reports: Receiver<Report>,
    /// Dropped first by [`Drop`]: its end is the thread's.
    intervals: Option<Sender<Duration>>,
    thread: Option<JoinHandle<()>>,
}

impl Sampler {
    /// Starts asking, at once and then after each interval.
    ///
    /// # Errors
    /// No thread, or no handler for signals, could be had.
    pub fn start(args: &Args) -> anyhow::Result<Sampler> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let (to_view, reports) = channel(MAX_REPORTS);
        let (intervals, changes) = channel(1);
        let (endpoint, api_key) = (args.url.clone(), args.api_key.clone());
        let asker = Asker { endpoint, api_key, interval: args.interval(), failures: 0 };
        let signals = {
            // Handlers belong to the runtime that this thread has entered.
            let _entered = runtime.enter();
            EndSignals::new().context("handlers of signals")?
        };
        let body = move || {
            runtime.block_on(async {
                tokio::select! {
                    () = asker.run(&to_view, changes) => {}
                    () = signals.recv() => drop(to_view.send(Report::End).await),
                }
            });
        };
        let thread = std::thread::Builder::new().name("sampler".into()).spawn(body)?;
        Ok(Sampler { reports, intervals: Some(intervals), thread: Some(thread) })
    }

    /// The next report, if there is one.
    pub fn next(&mut self) -> Option<Report> {
        self.reports.try_recv().ok()
    }

    /// Changes the interval. While one change has not been seen, another is not taken: false.
    pub fn set_interval(&self, interval: Duration) -> bool {
        self.intervals.as_ref().is_some_and(|to| to.try_send(interval).is_ok())
    }
}

impl Drop for Sampler {
    fn drop(&mut self) {
        self.intervals = None;
        self.reports.close();
        if let Some(thread) = self.thread.take() {
            // A panic over there has been printed; there is nothing to add.
            thread.join().ok();
        }
    }
}

/// Signals that ask a process to end.
struct EndSignals([Signal; 3]);

impl EndSignals {
    fn new() -> std::io::Result<EndSignals> {
        Ok(EndSignals([
            signal(SignalKind::terminate())?,
            signal(SignalKind::hangup())?,
            signal(SignalKind::interrupt())?,
        ]))
    }

    async fn recv(self) {
        let [mut terminate, mut hangup, mut interrupt] = self.0;
        tokio::select! {
            _ = terminate.recv() => {}
            _ = hangup.recv() => {}
            _ = interrupt.recv() => {}
        }
    }
}

struct Asker {
    endpoint: Endpoint,
    api_key: Option<String>,
    interval: Duration,
    failures: u32,
}

impl Asker {
    /// Until the view is gone.
    async fn run(mut self, to_view: &Sender<Report>, mut changes: Receiver<Duration>) {
        loop {
            let begun = tokio::time::Instant::now();
            let answer = tokio::select! {
                answer = look(&self.endpoint, self.api_key.as_deref()) => answer,
                () = to_view.closed() => return,
            };
            let (report, wait) = self.judge(answer);
            if to_view.send(report).await.is_err() {
                return;
            }
            let mut wait = wait;
            loop {
                tokio::select! {
                    () = tokio::time::sleep_until(begun + wait) => break,
                    change = changes.recv() => match change {
                        Some(interval) => {
                            self.interval = interval;
                            wait = self.wait();
                        }
                        None => return,
                    },
                }
            }
        }
    }

    fn judge(&mut self, answer: anyhow::Result<Probe>) -> (Report, Duration) {
        match answer {
            Ok(probe) => {
                self.failures = 0;
                (Report::Answered(Box::new(probe)), self.wait())
            }
            Err(error) => {
                self.failures = self.failures.saturating_add(1);
                (Report::Failed(format!("{error:#}"), self.wait()), self.wait())
            }
        }
    }

    /// Until the next look: the interval, or twice as long for each failure, within bounds.
    fn wait(&self) -> Duration {
        if self.failures == 0 {
            return self.interval;
        }
        let doublings = (self.failures - 1).min(8);
        let backed_off = MIN_RETRY.max(self.interval.min(MAX_RETRY)) * 2u32.pow(doublings);
        backed_off.min(MAX_RETRY)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn retries_are_spaced_out_up_to_a_bound() {
        let endpoint = "http://127.0.0.1:1".parse().unwrap();
        let interval = Duration::from_secs(1);
        let mut asker = Asker { endpoint, api_key: None, interval, failures: 0 };
        assert_eq!(asker.wait(), interval);
        let mut waits = Vec::new();
        for _ in 0..300 {
            waits.push(asker.judge(Err(anyhow::anyhow!("gone"))).1.as_secs());
        }
        assert_eq!(waits[..5], [1, 2, 4, 8, 10]);
        assert_eq!(waits[299], 10);
    }
}
