//! The state of the view: what was seen, what the keys changed.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use crate::args::Args;
use crate::derive::{self, Settings};
use crate::frame::Frame;
use crate::histogram::Histogram;
use crate::local::Locals;
use crate::names;
use crate::probe::Probe;
use crate::window::{Increase, Window};

/// Points of a plot.
const MAX_POINTS: usize = 600;
/// What `+` and `-` step through, seconds.
const INTERVALS_S: [f64; 9] = [0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 30.0, 60.0];

/// Whether the server answers.
#[derive(Debug, Clone)]
pub enum Link {
    /// Not asked yet.
    Waiting,
    /// It answered last time.
    Up,
    /// It did not.
    Down {
        /// Since then.
        since: Instant,
        /// Why not, in its last words.
        error: String,
        /// Time until it is asked again.
        retry_in: Duration,
    },
}

/// Points of the plots, oldest first; `None` where nothing happened.
#[derive(Debug, Default)]
pub struct History {
    /// 99th percentile of the time to the first token, seconds.
    pub ttft: VecDeque<Option<f64>>,
    /// 99th percentile of the time between tokens, seconds.
    pub tbt: VecDeque<Option<f64>>,
    /// Tokens produced per second.
    pub tokens: VecDeque<Option<f64>>,
    /// Share of the time that the device waited for the host.
    pub host_wait: VecDeque<Option<f64>>,
}

/// Everything that is drawn.
#[derive(Debug)]
pub struct View {
    settings: Settings,
    window: Window,
    locals: Option<Locals>,
    /// What is shown, once there was an answer.
    pub frame: Option<Frame>,
    /// Whether the server answers.
    pub link: Link,
    /// Points of the plots.
    pub history: History,
    /// Nothing new is taken in.
    pub paused: bool,
    /// The keys are explained.
    pub help: bool,
    /// Between two looks.
    pub interval: Duration,
}

impl View {
    /// Before the first look.
    pub fn new(args: &Args) -> View {
        View {
            settings: Settings {
                url: args.url.to_string(),
                slo_ttft_s: args.slo_ttft_ms.map(|ms| ms / 1e3),
                slo_tbt_s: args.slo_tbt_ms.map(|ms| ms / 1e3),
            },
            window: Window::new(Duration::from_secs_f64(args.window)),
            locals: args.url.is_local().then(Locals::default),
            frame: None,
            link: Link::Waiting,
            history: History::default(),
            paused: false,
            help: false,
            interval: args.interval(),
        }
    }

    /// Where the server is.
    pub fn url(&self) -> &str {
        &self.settings.url
    }

    /// The server answered.
    pub fn answered(&mut self, probe: Probe) {
        self.link = Link::Up;
        if self.paused {
            return;
        }
        if let Some(increase) = self.window.push(probe) {
            self.history.push(&increase);
        }
        let mut frame = derive::frame(&self.settings, &self.window);
        if let (Some(frame), Some(locals)) = (&mut frame, &mut self.locals) {
            let facts = locals.read(frame.planes.iter().filter_map(|plane| plane.pid));
            for plane in &mut frame.planes {
                plane.local = plane.pid.and_then(|pid| facts.get(&pid).cloned());
            }
        }
        self.frame = frame;
    }

    /// The server did not answer.
    pub fn failed(&mut self, error: String, retry_in: Duration) {
        let since = match self.link {
            Link::Down { since, .. } => since,
            _ => Instant::now(),
        };
        self.link = Link::Down { since, error, retry_in };
    }

    /// A longer (`true`) or a shorter interval.
    pub fn step_interval(&mut self, longer: bool) {
        let now = self.interval.as_secs_f64();
        let next = if longer {
            INTERVALS_S.iter().find(|s| **s > now + 1e-9)
        } else {
            INTERVALS_S.iter().rev().find(|s| **s < now - 1e-9)
        };
        if let Some(next) = next {
            self.interval = Duration::from_secs_f64(*next);
        }
    }
}

impl History {
    fn push(&mut self, increase: &Increase) {
        let count = |group| increase.histogram(group).map(Histogram::count);
        let p99 = |group| Some(increase.histogram(group)?.quantile(0.99)?.seconds);
        let tokens = count(names::TTFT)
            .zip(count(names::TBT))
            .map(|(first, later)| first + later)
            .and_then(|tokens| increase.per_second(tokens));
        for (points, value) in [
            (&mut self.ttft, p99(names::TTFT)),
            (&mut self.tbt, p99(names::TBT)),
            (&mut self.tokens, tokens),
            (&mut self.host_wait, increase.rate(names::HOST_WAIT_S)),
        ] {
            if points.len() == MAX_POINTS {
                points.pop_front();
            }
            points.push_back(value);
        }
    }
}
