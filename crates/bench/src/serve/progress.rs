//! A bar for people who watch, and an end for those who have seen enough.

use std::io::IsTerminal;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressStyle};
use saccade_load::{LoadSpec, Observer, Outcome, RequestRecord};

/// Between two drawings.
const REDRAW: Duration = Duration::from_millis(100);

/// Set by the first Ctrl-C.
static STOP: AtomicBool = AtomicBool::new(false);

/// Counts on the client's thread; everything slow is done elsewhere.
#[derive(Debug, Default)]
pub(super) struct Counters {
    finished: AtomicU64,
    failed: AtomicU64,
    in_flight: AtomicU64,
    tokens: AtomicU64,
}

// SYNC: the counters are shown to a person; nothing else is read because of their values.
impl Observer for Counters {
    fn sent(&self, in_flight: usize) {
        self.in_flight.store(in_flight as u64, Ordering::Relaxed);
    }

    fn finished(&self, record: &RequestRecord) {
        self.finished.fetch_add(1, Ordering::Relaxed);
        self.failed.fetch_add(u64::from(record.outcome != Outcome::Ok), Ordering::Relaxed);
        self.tokens.fetch_add(u64::from(record.output_tokens), Ordering::Relaxed);
    }

    fn should_stop(&self) -> bool {
        stopped()
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

/// Runs `work` with a bar on the standard error, if that is a terminal.
pub(super) fn with_bar<T>(label: &str, spec: &LoadSpec, work: impl FnOnce(&Counters) -> T) -> T {
    let counters = Counters::default();
    if !std::io::stderr().is_terminal() {
        return work(&counters);
    }
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| draw(label, spec, &counters, &done));
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

fn draw(label: &str, spec: &LoadSpec, counters: &Counters, done: &AtomicBool) {
    let requests = spec.requests.map(|n| n + spec.warmup.requests);
    let seconds = spec.duration_s.map(|s| s + spec.warmup.seconds);
    let by_time = seconds.filter(|_| requests.is_none());
    let length = by_time.map_or(requests.unwrap_or(0), |s| s.ceil() as u64);
    let bar = ProgressBar::new(length);
    let template = "{prefix} {bar:30} {pos}/{len}{msg}";
    if let Ok(style) = ProgressStyle::with_template(template) {
        bar.set_style(style);
    }
    bar.set_prefix(label.to_owned());
    let start = Instant::now();
    while !done.load(Ordering::Relaxed) {
        let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let (finished, failed) = (read(&counters.finished), read(&counters.failed));
        let elapsed = start.elapsed().as_secs();
        bar.set_position(if by_time.is_some() { elapsed.min(length) } else { finished });
        let unit = if by_time.is_some() { " s" } else { "" };
        let rate = read(&counters.tokens) as f64 / start.elapsed().as_secs_f64().max(1e-3);
        let (answered, in_flight) = (finished - failed, read(&counters.in_flight));
        let end = if stopped() { " (stopping; again to leave)" } else { "" };
        bar.set_message(format!(
            "{unit} | {answered} answered, {failed} failed, {in_flight} in flight, {rate:.0} tok/s\
             {end}"
        ));
        std::thread::sleep(REDRAW);
    }
    bar.finish_and_clear();
}
