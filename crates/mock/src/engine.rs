//! The `cpu` mode: delays that come from work, so that a busy host affects them as an engine's.
//!
//! A pool of threads tokenizes prompts. One thread steps: each step serves every running request
//! that its token budget has room for, new tokens first, prompts after; it uses processor time for
//! what is in it, and its tokens leave when it ends.

use std::collections::VecDeque;
use std::io;
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread::JoinHandle;

use tokio::sync::{mpsc, oneshot};

use crate::clock::{Nanos, burn, from_seconds, now};
use crate::script::Cpu;

struct Job {
    chars: usize,
    done: oneshot::Sender<()>,
}

struct Sequence {
    prompt_left: usize,
    tokens_left: usize,
    steps: mpsc::Sender<Nanos>,
}

/// Work that threads wait for. Bounded by the places of the gate: each request has one item.
struct Queue<T> {
    state: Mutex<(VecDeque<T>, bool)>,
    changed: Condvar,
}

impl<T> Queue<T> {
    fn new() -> Arc<Self> {
        Arc::new(Self { state: Mutex::new((VecDeque::new(), false)), changed: Condvar::new() })
    }

    fn push(&self, item: T) {
        self.state.lock().unwrap_or_else(PoisonError::into_inner).0.push_back(item);
        self.changed.notify_one();
    }

    /// Waits for an item; `None` once closed.
    fn pop(&self) -> Option<T> {
        let state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let mut state = self
            .changed
            .wait_while(state, |(items, closed)| items.is_empty() && !*closed)
            .unwrap_or_else(PoisonError::into_inner);
        if state.1 { None } else { state.0.pop_front() }
    }

    /// What is there, without waiting.
    fn take_all(&self) -> VecDeque<T> {
        std::mem::take(&mut self.state.lock().unwrap_or_else(PoisonError::into_inner).0)
    }

    fn close(&self) {
        self.state.lock().unwrap_or_else(PoisonError::into_inner).1 = true;
        self.changed.notify_all();
    }

    fn closed(&self) -> bool {
        self.state.lock().unwrap_or_else(PoisonError::into_inner).1
    }
}

/// The threads of the `cpu` mode. They end when this is dropped.
pub struct Engine {
    jobs: Arc<Queue<Job>>,
    arrivals: Arc<Queue<Sequence>>,
    threads: Vec<JoinHandle<()>>,
}

impl Engine {
    /// Starts the threads.
    ///
    /// # Errors
    /// A thread could not be started.
    pub fn start(script: &Cpu) -> io::Result<Self> {
        let mut engine = Self { jobs: Queue::new(), arrivals: Queue::new(), threads: Vec::new() };
        for number in 0..script.tokenizer_threads {
            let (jobs, script) = (Arc::clone(&engine.jobs), script.clone());
            let name = format!("tokenizer-{number}");
            let thread =
                std::thread::Builder::new().name(name).spawn(move || tokenize(&jobs, &script))?;
            engine.threads.push(thread);
        }
        let (arrivals, script) = (Arc::clone(&engine.arrivals), script.clone());
        let thread = std::thread::Builder::new()
            .name("engine".to_owned())
            .spawn(move || step_for_ever(&arrivals, &script))?;
        engine.threads.push(thread);
        Ok(engine)
    }

    /// Returns when the pool has tokenized a prompt of `chars` characters.
    pub async fn tokenize(&self, chars: usize) {
        let (done, tokenized) = oneshot::channel();
        self.jobs.push(Job { chars, done });
        // An error means that the engine stops: the answer will be an error soon.
        let _ = tokenized.await;
    }

    /// Gives a request to the engine's thread; the ends of the steps that gave it a token come
    /// back.
    pub fn submit(&self, prompt_tokens: usize, tokens: usize) -> mpsc::Receiver<Nanos> {
        // Room for every token: the engine never waits for a reader.
        let (steps, receiver) = mpsc::channel(tokens.max(1));
        self.arrivals.push(Sequence { prompt_left: prompt_tokens, tokens_left: tokens, steps });
        receiver
    }
}

impl Drop for Engine {
    fn drop(&mut self) {
        self.jobs.close();
        self.arrivals.close();
        for thread in self.threads.drain(..) {
            // A panic was printed by the thread itself.
            let _ = thread.join();
        }
    }
}

fn tokenize(jobs: &Queue<Job>, script: &Cpu) {
    while let Some(job) = jobs.pop() {
        burn(from_seconds(job.chars as f64 * script.tokenize_us_per_char * 1e-6));
        // The client may be gone.
        let _ = job.done.send(());
    }
}

fn step_for_ever(arrivals: &Queue<Sequence>, script: &Cpu) {
    let mut running: Vec<Sequence> = Vec::new();
    loop {
        if running.is_empty() {
            let Some(first) = arrivals.pop() else { return };
            running.push(first);
        }
        running.extend(arrivals.take_all());
        if arrivals.closed() {
            return;
        }
        step(&mut running, script);
    }
}

/// Serves the running requests once.
fn step(running: &mut Vec<Sequence>, script: &Cpu) {
    let decodes = running.iter().filter(|sequence| sequence.prompt_left == 0).count();
    let mut budget = script.max_step_tokens;
    let decoding = decodes.min(budget);
    budget -= decoding;
    let mut prefilled = 0;
    let mut served = Vec::with_capacity(running.len());
    let mut decode_left = decoding;
    for sequence in running.iter_mut() {
        let serves = if sequence.prompt_left == 0 {
            let serves = decode_left > 0;
            decode_left -= usize::from(serves);
            serves
        } else {
            let take = sequence.prompt_left.min(budget);
            budget -= take;
            prefilled += take;
            sequence.prompt_left -= take;
            sequence.prompt_left == 0
        };
        served.push(serves);
    }
    let tokens = served.iter().filter(|serves| **serves).count();
    let cost = script.step_us
        + prefilled as f64 * script.prefill_us_per_token
        + tokens as f64 * script.decode_us;
    burn(from_seconds(cost * 1e-6));
    publish(running, &served);
}

/// Sends a token to each served request; drops the ones that are done or gone.
fn publish(running: &mut Vec<Sequence>, served: &[bool]) {
    let at = now();
    let mut serves = served.iter();
    running.retain_mut(|sequence| {
        if !serves.next().is_some_and(|serves| *serves) {
            return !sequence.steps.is_closed();
        }
        sequence.tokens_left -= 1;
        sequence.steps.try_send(at).is_ok() && sequence.tokens_left > 0
    });
}
