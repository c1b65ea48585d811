//! Whether a plane that lives also works: its heartbeat in the ring, and its time on cores.

use std::fmt;
use std::time::{Duration, Instant};

/// What one look shows of a plane.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Sign {
    /// Moves while it serves.
    pub heartbeat: u64,
    /// Moves while it computes. None: the system does not say.
    pub cpu_ns: Option<u64>,
    /// It has loaded what it needs, and must move its heartbeat.
    pub serving: bool,
}

/// When a plane counts as hung.
#[derive(Debug, Clone, Copy)]
pub(super) struct Patience {
    /// It serves, and neither moves its heartbeat nor computes.
    pub still: Duration,
    /// It serves and computes, and does not move its heartbeat: longer than any step.
    pub silent: Duration,
    /// It loads, and does not compute: longer than any read from a store of models.
    pub loading: Duration,
}

/// Why a plane counts as hung.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Hang {
    Still(Duration),
    Silent(Duration),
    Loading(Duration),
}

impl fmt::Display for Hang {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Hang::Still(t) => write!(f, "no heartbeat and no time on a core for {t:?}"),
            Hang::Silent(t) => write!(f, "no heartbeat for {t:?}, though it computes"),
            Hang::Loading(t) => write!(f, "not loaded, and no time on a core for {t:?}"),
        }
    }
}

/// One life of a plane, as looks at it show.
///
/// Only time that the supervisor spent looking counts: a look adds at most [`LONGEST_LOOK`], so a
/// machine that was suspended, or a container that was frozen, has no hung planes.
#[derive(Debug)]
pub(super) struct Watch {
    patience: Patience,
    last: Option<(Instant, Sign)>,
    /// Without a heartbeat.
    silent: Duration,
    /// Without a heartbeat or time on a core.
    still: Duration,
    serving: Duration,
}

/// Between looks.
pub(super) const LOOK_EVERY: Duration = Duration::from_millis(250);
const LONGEST_LOOK: Duration = Duration::from_secs(1);

impl Watch {
    pub fn new(patience: Patience) -> Watch {
        let none = Duration::ZERO;
        Watch { patience, last: None, silent: none, still: none, serving: none }
    }

    /// Whether the next look is due.
    pub fn is_due(&self, now: Instant) -> bool {
        self.last.is_none_or(|(at, _)| now.duration_since(at) >= LOOK_EVERY)
    }

    /// How long it has served, without the time of a hang.
    pub fn served(&self) -> Duration {
        self.serving
    }

    /// Judges by another look. A verdict is given once, and patience then begins again.
    pub fn look(&mut self, now: Instant, sign: Sign) -> Option<Hang> {
        let (at, before) = self.last.replace((now, sign)).unwrap_or((now, sign));
        let since = now.duration_since(at).min(LONGEST_LOOK);
        let beats = sign.heartbeat != before.heartbeat || sign.serving != before.serving;
        // Where the system does not say whether it computes, it may.
        let computes = sign.cpu_ns.is_none() || sign.cpu_ns != before.cpu_ns;
        self.silent = if beats { Duration::ZERO } else { self.silent + since };
        self.still = if beats || computes { Duration::ZERO } else { self.still + since };
        if sign.serving && beats {
            self.serving += since;
        }
        let hang = self.verdict(sign.serving)?;
        (self.silent, self.still) = (Duration::ZERO, Duration::ZERO);
        Some(hang)
    }

    fn verdict(&self, serving: bool) -> Option<Hang> {
        let Patience { still, silent, loading } = self.patience;
        match serving {
            true if self.still >= still => Some(Hang::Still(self.still)),
            true if self.silent >= silent => Some(Hang::Silent(self.silent)),
            false if self.still >= loading => Some(Hang::Loading(self.still)),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PATIENCE: Patience = Patience {
        still: Duration::from_secs(2),
        silent: Duration::from_secs(10),
        loading: Duration::from_secs(20),
    };

    /// Looks once a `step` until a verdict; heartbeat and time on cores move if told so.
    fn until_hung(step: Duration, serving: bool, beats: bool, computes: bool) -> Option<Hang> {
        let (mut watch, start) = (Watch::new(PATIENCE), Instant::now());
        (0..1000u32).find_map(|i| {
            let moved = |moves: bool| u64::from(i) * u64::from(moves);
            let sign = Sign { heartbeat: moved(beats), cpu_ns: Some(moved(computes)), serving };
            watch.look(start + step * i, sign)
        })
    }

    #[test]
    fn what_moves_is_not_hung() {
        let step = LOOK_EVERY;
        assert_eq!(until_hung(step, true, true, true), None);
        assert_eq!(until_hung(step, true, true, false), None, "a GPU's scheduler");
        assert_eq!(until_hung(step, false, false, true), None, "it loads");
        assert_eq!(until_hung(step, false, true, false), None, "it loads");
    }

    #[test]
    fn what_stands_still_is_hung_after_its_time() {
        let step = LOOK_EVERY;
        let hung = |serving, computes| until_hung(step, serving, false, computes);
        assert_eq!(hung(true, false), Some(Hang::Still(PATIENCE.still)));
        assert_eq!(hung(true, true), Some(Hang::Silent(PATIENCE.silent)));
        assert_eq!(hung(false, false), Some(Hang::Loading(PATIENCE.loading)));
    }

    #[test]
    fn time_that_the_supervisor_missed_does_not_count() {
        let (mut watch, start) = (Watch::new(PATIENCE), Instant::now());
        let sign = Sign { heartbeat: 1, cpu_ns: Some(1), serving: true };
        assert_eq!(watch.look(start, sign), None);
        let hours = Duration::from_secs(36_000);
        assert_eq!(watch.look(start + hours, sign), None, "all slept");
        let moved = Sign { heartbeat: 2, ..sign };
        assert_eq!(watch.look(start + hours + LOOK_EVERY, moved), None);
        assert_eq!(watch.served(), LOOK_EVERY);
    }

    #[test]
    fn without_times_of_cores_only_the_long_limit_counts() {
        let (mut watch, start) = (Watch::new(PATIENCE), Instant::now());
        let sign = Sign { heartbeat: 1, cpu_ns: None, serving: true };
        let hang = (0..).find_map(|i| watch.look(start + LOOK_EVERY * i, sign));
        assert_eq!(hang, Some(Hang::Silent(PATIENCE.silent)));
    }
}
