//! What the server says of its fetch plane.

use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use saccade_load::Session;

/// Between two looks.
const LOOK_EVERY: Duration = Duration::from_millis(200);
/// Looks in a row that must show the same and nothing on its way: a chunk is queued a moment after
/// the answer, and what is shown is a moment old.
const STILL_LOOKS: u32 = 4;

/// One look.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(super) struct Fetch {
    pub frames: f64,
    pub alive: f64,
    pub breaker: f64,
    frames_used: f64,
    waiting: f64,
    stored: f64,
    stored_bytes: f64,
    answered: f64,
    dropped: f64,
}

/// What was stored between two looks.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, serde::Serialize)]
pub(super) struct Stored {
    /// Stored, or found there.
    pub chunks: u64,
    /// As the store keeps them.
    pub bytes: u64,
    /// Not stored: the store refused, failed or was full, or there was no room for them.
    pub lost: u64,
    /// Still on their way when the wait ended.
    pub unfinished: u64,
}

impl Fetch {
    /// Looks once.
    pub(super) async fn look(session: &Session) -> anyhow::Result<Self> {
        let answer = session.get("/metrics").await?;
        if answer.status != 200 {
            bail!("/metrics: {}", answer.message());
        }
        let text = String::from_utf8_lossy(&answer.body);
        Self::parse(&text).context("/metrics has no saccade:fetch_frames: not a saccade server")
    }

    fn parse(text: &str) -> Option<Self> {
        let sum = |name: &str, labels: &[&str]| {
            let values: Vec<f64> =
                text.lines().filter_map(|line| value(line, name, labels)).collect();
            (!values.is_empty()).then(|| values.iter().sum::<f64>())
        };
        let number = |name| sum(name, &[]).unwrap_or(0.0);
        let stores = |labels: &[&str]| sum("saccade:fetch_commands_total", labels).unwrap_or(0.0);
        Some(Self {
            frames: sum("saccade:fetch_frames", &[])?,
            alive: number("saccade:fetch_plane_alive"),
            breaker: number("saccade:fetch_breaker"),
            frames_used: number("saccade:fetch_frames_used"),
            waiting: number("saccade:fetch_stores_waiting"),
            stored: stores(&["op=\"store\"", "result=\"done\""]),
            stored_bytes: number("saccade:fetch_stored_bytes_total"),
            answered: stores(&["op=\"store\""]),
            dropped: number("saccade:fetch_stores_dropped_total")
                + number("saccade:fetch_stores_evicted_total"),
        })
    }

    fn is_quiet(&self) -> bool {
        self.waiting == 0.0 && self.frames_used == 0.0
    }

    fn since(&self, before: &Self) -> Stored {
        let grown = |of: fn(&Self) -> f64| (of(self) - of(before)).max(0.0) as u64;
        let failed = grown(|f| f.answered).saturating_sub(grown(|f| f.stored));
        Stored {
            chunks: grown(|f| f.stored),
            bytes: grown(|f| f.stored_bytes),
            lost: failed + grown(|f| f.dropped),
            unfinished: (self.waiting + self.frames_used) as u64,
        }
    }
}

/// Waits until nothing is on its way to the store, or the time is up.
pub(super) async fn until_stored(
    session: &Session,
    before: &Fetch,
    within: Duration,
    tell: impl Fn(&Stored),
) -> anyhow::Result<Stored> {
    let began = Instant::now();
    let (mut last, mut still) = (Fetch::look(session).await?, 0);
    while still < STILL_LOOKS && began.elapsed() < within {
        tokio::time::sleep(LOOK_EVERY).await;
        let now = Fetch::look(session).await?;
        tell(&now.since(before));
        still = if now.is_quiet() && now == last { still + 1 } else { 0 };
        last = now;
    }
    Ok(last.since(before))
}

/// The value of a series of this name that has these labels.
fn value(line: &str, name: &str, labels: &[&str]) -> Option<f64> {
    let rest = line.strip_prefix(name)?;
    let (of, value) = match rest.strip_prefix('{') {
        Some(rest) => rest.rsplit_once('}')?,
        None => ("", rest.strip_prefix(' ')?),
    };
    let has = |label: &&str| of.split(',').any(|found| found == *label);
    labels.iter().all(has).then(|| value.trim().parse().ok()).flatten()
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "\
# TYPE saccade:fetch_frames gauge
saccade:fetch_frames{model_name=\"m\"} 64
saccade:fetch_frames_used{model_name=\"m\"} 2
saccade:fetch_stores_waiting 1
saccade:fetch_stored_bytes_total{model_name=\"m\"} 1000
saccade:fetch_commands_total{model_name=\"m\",op=\"store\",result=\"done\"} 5
saccade:fetch_commands_total{model_name=\"m\",op=\"store\",result=\"full\"} 2
saccade:fetch_commands_total{model_name=\"m\",op=\"load\",result=\"done\"} 9
saccade:fetch_stores_dropped_total 3
";

    #[test]
    fn stores_are_counted_apart_from_loads() {
        let now = Fetch::parse(TEXT).unwrap();
        assert_eq!((now.frames, now.is_quiet()), (64.0, false));
        let stored = now.since(&Fetch::default());
        assert_eq!(stored, Stored { chunks: 5, bytes: 1000, lost: 5, unfinished: 3 });
        assert_eq!(now.since(&now), Stored { unfinished: 3, ..Stored::default() });
        assert_eq!(Fetch::parse("vllm:num_requests_running 1\n"), None);
    }
}
