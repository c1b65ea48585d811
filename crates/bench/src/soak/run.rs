//! The soak itself: victims, attackers, signals and samples, each on a thread of its own, until the
//! time is over.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use anyhow::Context;
use saccade_host::{CpuSet, Root};
use saccade_load::{Session, Target};
use tokio::task::JoinSet;

use super::planes::{self, Plane};
use super::questions::{Heard, Question, judge, path};
use super::record::{Bout, End, Fault, Kill, Sample, Setup};
use crate::attackers::{Attackers, Chosen, Draw};

/// Faults that are kept in full; more are counted.
const MAX_FAULTS: usize = 200;
/// Kinds of reasons that are counted apart; the others are counted together.
const MAX_REASONS: usize = 50;
/// Between two looks of a thread that waits for its time.
const LOOK: Duration = Duration::from_millis(20);
/// After a request that was not answered, before the next.
const RETRY_PAUSE: Duration = Duration::from_millis(100);
/// A process that is killed takes so long to be gone: connections that are made meanwhile break.
const DEATH_S: f64 = 1.0;

/// What all threads share.
#[derive(Debug)]
pub(super) struct Soak {
    pub setup: Setup,
    pub target: Target,
    pub attacks: Vec<Chosen>,
    pub questions: Vec<Question>,
    /// The server's first process.
    pub first: Option<u32>,
    /// Its port.
    pub port: u16,
    pub from: Instant,
    over: AtomicBool,
    seen: Mutex<Seen>,
}

/// What was seen so far.
#[derive(Debug, Default)]
pub(super) struct Seen {
    pub ends: BTreeMap<End, u64>,
    /// By [`reason`], at most [`MAX_REASONS`].
    pub reasons: BTreeMap<String, u64>,
    pub right_tokens: u64,
    pub right_by_sample: Vec<u64>,
    pub faults: Vec<Fault>,
    pub kills: Vec<Kill>,
    pub bouts: Vec<Bout>,
    pub samples: Vec<Sample>,
}

impl Soak {
    pub fn new(
        setup: Setup,
        target: Target,
        attacks: Vec<Chosen>,
        questions: Vec<Question>,
        (first, port): (Option<u32>, u16),
    ) -> Soak {
        Soak {
            setup,
            target,
            attacks,
            questions,
            first,
            port,
            from: Instant::now(),
            over: AtomicBool::new(false),
            seen: Mutex::default(),
        }
    }

    pub fn now_s(&self) -> f64 {
        self.from.elapsed().as_secs_f64()
    }

    fn seen(&self) -> MutexGuard<'_, Seen> {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn is_over(&self) -> bool {
        // SYNC: relaxed, partner `end`: a flag and nothing behind it.
        self.over.load(Ordering::Relaxed) || self.now_s() >= self.setup.duration_s
    }

    /// Ends it before its time.
    pub fn end(&self) {
        // SYNC: relaxed, partner `is_over`: seen at each thread's next look.
        self.over.store(true, Ordering::Relaxed);
    }

    /// Waits; false if the soak is over before.
    fn wait(&self, seconds: f64) -> bool {
        let until = self.now_s() + seconds;
        while self.now_s() < until {
            if self.is_over() {
                return false;
            }
            std::thread::sleep(LOOK);
        }
        !self.is_over()
    }

    /// Runs all of it; what was seen.
    ///
    /// # Errors
    /// A thread or a runtime cannot be made, or the server's name is unknown.
    pub fn run(self: &Arc<Soak>, seed: u64) -> anyhow::Result<Seen> {
        std::thread::scope(|scope| {
            let victims = scope.spawn(|| self.victims(seed));
            let attackers = scope.spawn(|| self.attackers(seed.wrapping_add(1)));
            let killer = scope.spawn(|| self.killer(seed.wrapping_add(2)));
            let sampler = scope.spawn(|| self.sampler());
            let result = victims.join().unwrap_or_else(|p| std::panic::resume_unwind(p));
            if result.is_err() {
                self.end();
            }
            for thread in [attackers, killer, sampler] {
                thread.join().unwrap_or_else(|p| std::panic::resume_unwind(p));
            }
            result
        })?;
        Ok(std::mem::take(&mut *self.seen()))
    }

    fn victims(self: &Arc<Soak>, seed: u64) -> anyhow::Result<()> {
        saccade_load::raise_open_files();
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        runtime.block_on(async {
            let timeout = Duration::from_secs_f64(self.setup.timeout_s);
            let session = Arc::new(Session::new(&self.target, 0, timeout).await?);
            let mut all = JoinSet::new();
            for number in 0..self.setup.victim_streams as u64 {
                let draw = Draw::new(seed.wrapping_add(number << 32));
                all.spawn(Arc::clone(self).victim(Arc::clone(&session), draw));
            }
            while let Some(ended) = all.join_next().await {
                ended.context("a victim")?;
            }
            Ok(())
        })
    }

    /// Asks one question after the other. The last request is waited for.
    async fn victim(self: Arc<Soak>, session: Arc<Session>, mut draw: Draw) {
        while !self.is_over() {
            let number = draw.below(self.questions.len() as u64) as usize;
            let question = &self.questions[number];
            let from_s = self.now_s();
            let mut heard = Heard::default();
            let body = question.body.clone().into();
            let ended = session.stream(path(&self.target), body, |data| heard.event(data)).await;
            let to_s = self.now_s();
            let (end, words) =
                judge(&heard, &ended, &question.known, self.was_killed(from_s, to_s));
            self.note(&heard, Fault { from_to_s: (from_s, to_s), end, question: number, words });
            if end != End::Right {
                tokio::time::sleep(RETRY_PAUSE).await;
            }
        }
    }

    /// Whether a process that listened was killed while a request was under way.
    fn was_killed(&self, from_s: f64, to_s: f64) -> bool {
        let within = |kill: &Kill| (from_s - DEATH_S..=to_s).contains(&kill.at_s);
        self.seen().kills.iter().any(|kill| kill.listened && within(kill))
    }

    fn note(&self, heard: &Heard, ended: Fault) {
        let mut seen = self.seen();
        *seen.ends.entry(ended.end).or_default() += 1;
        if ended.end == End::Right {
            seen.right_tokens += heard.tokens.len() as u64;
            let place = (ended.from_to_s.1 / self.setup.sample_every_s) as usize;
            if seen.right_by_sample.len() <= place {
                seen.right_by_sample.resize(place + 1, 0);
            }
            seen.right_by_sample[place] += 1;
            let (from_s, to_s) = ended.from_to_s;
            for kill in seen.kills.iter_mut().rev().take_while(|kill| kill.recovered_s.is_none()) {
                if kill.at_s <= from_s {
                    kill.recovered_s = Some(to_s - kill.at_s);
                }
            }
        } else if ended.end.is_fault() {
            eprintln!(
                "{:.1} s: question {}: {}: {}",
                ended.from_to_s.1,
                ended.question,
                ended.end.words(),
                ended.words
            );
            if seen.faults.len() < MAX_FAULTS {
                seen.faults.push(ended);
            }
        } else {
            let reason = reason(&ended.words);
            let is_new = !seen.reasons.contains_key(&reason);
            let many = is_new && seen.reasons.len() >= MAX_REASONS;
            let reason = if many { "others".to_owned() } else { reason };
            *seen.reasons.entry(reason).or_default() += 1;
        }
    }

    fn attackers(&self, seed: u64) {
        let mut draw = Draw::new(seed);
        let (attack_s, rest_s) = self.setup.attack_rest_s;
        while !self.attacks.is_empty() && !self.is_over() {
            let chosen = &self.attacks[draw.below(self.attacks.len() as u64) as usize];
            let from_s = self.now_s();
            eprintln!("{from_s:.1} s: {}", chosen.words());
            let fought = CpuSet::of_task(0).map_err(anyhow::Error::from).and_then(|cores| {
                let attackers =
                    Attackers::start(chosen, &self.target, cores, draw.below(u64::MAX))?;
                self.wait(attack_s);
                attackers.stop()
            });
            let (seen, error) = match fought {
                Ok(seen) => (Some(seen), None),
                Err(error) => (None, Some(format!("{error:#}"))),
            };
            let from_to_s = (from_s, self.now_s());
            self.seen().bouts.push(Bout { from_to_s, attack: chosen.clone(), seen, error });
            self.wait(rest_s);
        }
    }

    fn killer(&self, seed: u64) {
        let root = Root::default();
        let mut draw = Draw::new(seed);
        let (Some(first), false) = (self.first, self.setup.kill.is_empty()) else { return };
        // From half to one and a half of the mean.
        while self.wait(self.setup.kill_every_s * (0.5 + draw.below(1001) as f64 / 1000.0)) {
            let setup = &self.setup;
            let name = &setup.kill[draw.below(setup.kill.len() as u64) as usize];
            let signal = &setup.signals[draw.below(setup.signals.len() as u64) as usize];
            let living: Vec<Plane> =
                planes::all(&root, first).into_iter().filter(|p| p.name == *name).collect();
            if living.is_empty() {
                eprintln!("{:.1} s: no {name} plane to send {signal}", self.now_s());
                continue;
            }
            let plane = &living[draw.below(living.len() as u64) as usize];
            self.hit(&root, plane, signal);
        }
    }

    fn hit(&self, root: &Root, plane: &Plane, signal: &str) {
        let pid = plane.process.pid;
        let at_s = self.now_s();
        eprintln!("{at_s:.1} s: {signal} to the {} plane, {pid}", plane.name);
        // Noted before it is sent: what breaks by it breaks after it.
        self.seen().kills.push(Kill {
            at_s,
            plane: plane.name.clone(),
            pid,
            signal: signal.to_owned(),
            listened: planes::listens(root, pid, self.port),
            recovered_s: None,
        });
        if signal == "SIGKILL" {
            planes::signal(root, plane, libc::SIGKILL);
            return;
        }
        planes::signal(root, plane, libc::SIGSTOP);
        self.wait(self.setup.stop_for_s);
        planes::signal(root, plane, libc::SIGCONT);
    }

    fn sampler(&self) {
        let root = Root::default();
        let Some(first) = self.first else { return };
        loop {
            let sample = planes::sample(&root, first, self.now_s());
            self.seen().samples.push(sample);
            if !self.wait(self.setup.sample_every_s) {
                return;
            }
        }
    }
}

/// What a server said, with # for each number but a status: kinds of reasons are few.
fn reason(words: &str) -> String {
    const LONGEST: usize = 120;
    let status = if words.starts_with("HTTP ") { 8.min(words.len()) } else { 0 };
    let (head, rest) = words.split_at_checked(status).unwrap_or((words, ""));
    let mut text = head.to_owned();
    for c in rest.chars().take(LONGEST) {
        match c {
            c if !c.is_ascii_digit() => text.push(c),
            _ if text.ends_with('#') => {}
            _ => text.push('#'),
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reasons_are_told_apart_by_their_words_and_status() {
        assert_eq!(reason("HTTP 503: try in 12 s"), "HTTP 503: try in # s");
        assert_eq!(reason("HTTP 429: try in 7 s"), "HTTP 429: try in # s");
        assert_eq!(reason("slot 123 of 4"), "slot # of #");
        assert_eq!(reason(""), "");
    }
}
