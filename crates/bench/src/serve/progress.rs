//! Progress of a run, on the standard error: a bar on a terminal, else a line now and then. And an
//! early end: by Ctrl-C, or because too many requests failed.

use std::io::IsTerminal;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressStyle};
use saccade_load::{LoadSpec, Observer, Outcome, RequestRecord};

/// Between two drawings of the bar, and two looks at whether the run is over.
const REDRAW: Duration = Duration::from_millis(100);
/// Between two lines where there is no terminal.
const LINE_PERIOD: Duration = Duration::from_secs(10);

/// Set by the first Ctrl-C.
static STOP: AtomicBool = AtomicBool::new(false);

/// Counts on the client's thread; everything slow is done elsewhere.
#[derive(Debug)]
pub(super) struct Counters {
    finished: AtomicU64,
    failed: AtomicU64,
    /// How many of the failed are measured.
    failed_measured: AtomicU64,
    in_flight: AtomicU64,
    tokens: AtomicU64,
    /// With more measured failures the run stops.
    max_failed: u64,
}

// SYNC: the counters are shown to a person; nothing else is read because of their values.
impl Observer for Counters {
    fn sent(&self, in_flight: usize) {
        self.in_flight.store(in_flight as u64, Ordering::Relaxed);
    }

    fn finished(&self, record: &RequestRecord) {
        let failed = record.outcome != Outcome::Ok;
        self.finished.fetch_add(1, Ordering::Relaxed);
        self.failed.fetch_add(u64::from(failed), Ordering::Relaxed);
        self.failed_measured.fetch_add(u64::from(failed && !record.warmup), Ordering::Relaxed);
        self.tokens.fetch_add(u64::from(record.output_tokens), Ordering::Relaxed);
    }

    fn should_stop(&self) -> bool {
        stopped() || self.failed_measured.load(Ordering::Relaxed) > self.max_failed
    }
}

/// Whether Ctrl-C was pressed.
pub(super) fn stopped() -> bool {
    // SYNC: a flag alone; nothing is published with it.
    STOP.load(Ordering::Relaxed)
}

/// The first Ctrl-C ends the arrivals, so that what was measured is reported; the second ends the
/// process, as it always does.
pub(super) fn catch_interrupt() {
    extern "C" fn on_interrupt(_: libc::c_int) {
        // SYNC: as in `stopped`.
        STOP.store(true, Ordering::Relaxed);
    }
    let handler = on_interrupt as extern "C" fn(libc::c_int) as libc::sighandler_t;
    // SAFETY: a sigaction is a plain struct for which zeros are valid; the handler does nothing
    // but store to an atomic, which a signal handler may.
    unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        action.sa_sigaction = handler;
        action.sa_flags = libc::SA_RESETHAND | libc::SA_RESTART;
        libc::sigaction(libc::SIGINT, &raw const action, std::ptr::null_mut());
    }
}

/// Runs `work` and shows its progress; it is told to stop after more than `max_failed` failures.
pub(super) fn shown<T>(
    label: &str,
    spec: &LoadSpec,
    max_failed: Option<u64>,
    work: impl FnOnce(&Counters) -> T,
) -> T {
    let counters = Counters {
        finished: AtomicU64::new(0),
        failed: AtomicU64::new(0),
        failed_measured: AtomicU64::new(0),
        in_flight: AtomicU64::new(0),
        tokens: AtomicU64::new(0),
        max_failed: max_failed.unwrap_or(u64::MAX),
    };
    let done = AtomicBool::new(false);
    let show = if std::io::stderr().is_terminal() { draw } else { print_lines };
    std::thread::scope(|scope| {
        scope.spawn(|| show(label, &Extent::of(spec), &counters, &done));
        let _end = EndOnDrop(&done);
        work(&counters)
    })
}

/// Ends the drawing also when the work panics: the scope waits for it.
struct EndOnDrop<'a>(&'a AtomicBool);

impl Drop for EndOnDrop<'_> {
    fn drop(&mut self) {
        // SYNC: a flag alone; the scope joins the thread.
        self.0.store(true, Ordering::Relaxed);
    }
}

/// How long a run is: requests, or seconds where a duration alone ends it.
struct Extent {
    length: u64,
    by_time: bool,
}

impl Extent {
    fn of(spec: &LoadSpec) -> Extent {
        let requests = spec.requests.map(|n| n + spec.warmup.requests);
        let seconds = spec.duration_s.map(|s| (s + spec.warmup.seconds).ceil() as u64);
        match (requests, seconds) {
            (None, Some(length)) => Extent { length, by_time: true },
            (requests, _) => Extent { length: requests.unwrap_or(0), by_time: false },
        }
    }

    fn position(&self, counters: &Counters, elapsed: Duration) -> u64 {
        if self.by_time {
            return elapsed.as_secs().min(self.length);
        }
        // SYNC: as for all counters.
        counters.finished.load(Ordering::Relaxed)
    }

    fn unit(&self) -> &'static str {
        if self.by_time { " s" } else { " requests" }
    }
}

impl Counters {
    fn words(&self, elapsed: Duration) -> String {
        // SYNC: as for all counters.
        let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let (finished, failed) = (read(&self.finished), read(&self.failed));
        let rate = read(&self.tokens) as f64 / elapsed.as_secs_f64().max(1e-3);
        let (answered, in_flight) = (finished - failed, read(&self.in_flight));
        let end = if stopped() { " (stopping; Ctrl-C again leaves)" } else { "" };
        format!("{answered} answered, {failed} failed, {in_flight} in flight, {rate:.0} tok/s{end}")
    }
}

fn draw(label: &str, extent: &Extent, counters: &Counters, done: &AtomicBool) {
    let bar = ProgressBar::new(extent.length);
    if let Ok(style) = ProgressStyle::with_template("{prefix} {bar:20} {pos}/{len}{msg}") {
        bar.set_style(style);
    }
    bar.set_prefix(label.to_owned());
    let start = Instant::now();
    while !done.load(Ordering::Relaxed) {
        bar.set_position(extent.position(counters, start.elapsed()));
        bar.set_message(format!("{} | {}", extent.unit(), counters.words(start.elapsed())));
        std::thread::sleep(REDRAW);
    }
    bar.finish_and_clear();
}

fn print_lines(label: &str, extent: &Extent, counters: &Counters, done: &AtomicBool) {
    let start = Instant::now();
    let mut due = LINE_PERIOD;
    while !done.load(Ordering::Relaxed) {
        if start.elapsed() >= due {
            due += LINE_PERIOD;
            let at = extent.position(counters, start.elapsed());
            let words = counters.words(start.elapsed());
            eprintln!("{label}: {at} of {}{}: {words}", extent.length, extent.unit());
        }
        std::thread::sleep(REDRAW);
    }
}
