//! What a command does on the network: each is one task, which ends when the command is late or
//! cancelled, however long the store takes.

use std::collections::HashSet;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use bytes::Bytes;
use saccade_chunk::{ModelId, Name, Value};
use saccade_store::{Key, MAX_KEYS, Put};
use tokio::runtime::Handle;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, oneshot};

use crate::counters::Counters;
use crate::engine::{ChunkJob, EncodeJob, Engine};
use crate::frame::Frame;
use crate::layout::*;
use crate::remote::{self, Call, Remote};
use crate::session::{Outcome, Ticket};

/// LOOKUPs and questions before a STORE that are on their way.
const MAX_QUESTIONS: usize = 256;

/// A value is longer than what is taken.
const TOO_LARGE: Outcome = Outcome::of(SAC_FETCH_TROUBLE, SAC_FETCH_TROUBLE_TOO_LARGE);

/// What tasks share.
pub(crate) struct Errands {
    remote: Arc<dyn Remote>,
    counters: Arc<Counters>,
    questions: Arc<Semaphore>,
    /// STORE commands on their way.
    stores: Arc<Semaphore>,
    /// Names that are being stored, so that two requests with one prefix store it once.
    storing: Mutex<HashSet<Key>>,
}

/// A chunk, and the frame that is lent for it.
pub(crate) struct Errand {
    pub ticket: Ticket,
    pub key: Key,
    pub value: Value,
    pub frame: u32,
}

impl Errands {
    pub fn new(remote: Arc<dyn Remote>, counters: Arc<Counters>, max_stores: usize) -> Errands {
        Errands {
            remote,
            counters,
            questions: Arc::new(Semaphore::new(MAX_QUESTIONS)),
            stores: Arc::new(Semaphore::new(max_stores)),
            storing: Mutex::new(HashSet::new()),
        }
    }

    pub fn remote(&self) -> &Arc<dyn Remote> {
        &self.remote
    }

    /// Asks for a key that is never stored: a device sends no commands while the store rests, and
    /// only a call shows that it has recovered.
    pub async fn try_store_again(self: Arc<Self>) {
        let (model, name) = (ModelId::from_bytes([0; 32]), Name::from_bytes([0; 32]));
        // The breaker learns how it went.
        self.remote.clone().exists(Key { model, salt: 0, name }).await.ok();
    }

    /// Counts the chunks that are there, from the first one on.
    pub async fn look_up(self: Arc<Self>, ticket: Ticket, mut keys: Vec<Key>) {
        keys.truncate(MAX_KEYS);
        let most = keys.len();
        let found = self.ask(&ticket, self.remote.clone().longest_prefix(keys)).await;
        let done = |found: usize| Outcome {
            num_chunks: found.min(most) as u32,
            ..Outcome::of(SAC_FETCH_DONE, 0)
        };
        ticket.finish(found.map_or_else(|refused| refused, done));
    }

    /// Brings a value and hands it to the pipeline, which answers.
    pub async fn load(self: Arc<Self>, errand: Errand, engine: Arc<Engine>) {
        let Errand { ticket, key, value, frame } = errand;
        let mut permits = Vec::with_capacity(2);
        for room in engine.alone.iter().chain([&engine.values]) {
            match enter(&ticket, room).await {
                Ok(permit) => permits.push(permit),
                Err(refused) => return ticket.finish(refused),
            }
        }
        let get = self.remote.clone().get(key, engine.max_value_bytes());
        match self.call(&ticket, permits, get).await {
            Ok((Some(bytes), permits)) => {
                self.counters.bytes_loaded.add(bytes.len() as u64);
                let frame = Frame::new(ticket.region(), frame);
                let discard = Discard::new(self.remote.clone(), key);
                engine.submit(ChunkJob::new(ticket, frame, value, bytes, discard, permits));
            }
            Ok((None, _)) => ticket.finish(Outcome::of(SAC_FETCH_MISS, 0)),
            Err(TOO_LARGE) => {
                // No chunk of this shape is so long, whatever its codec.
                Discard::new(self.remote.clone(), key).run();
                ticket.finish(Outcome::of(SAC_FETCH_REJECTED, SAC_FETCH_REJECT_LENGTH));
            }
            Err(refused) => ticket.finish(refused),
        }
    }

    /// Keeps a frame under its name, unless it is kept already.
    pub async fn store(self: Arc<Self>, errand: Errand, engine: Arc<Engine>) {
        let Ok(_place) = self.stores.clone().try_acquire_owned() else {
            return errand.ticket.finish(Outcome::DROPPED);
        };
        let Some(_single) = Single::new(&self.storing, errand.key) else {
            // Another frame with the same KV is on its way to the store.
            return errand.ticket.finish(Outcome::DROPPED);
        };
        let outcome = match self.try_store(&errand, &engine).await {
            Ok(outcome) | Err(outcome) => outcome,
        };
        errand.ticket.finish(outcome);
    }

    async fn try_store(&self, errand: &Errand, engine: &Engine) -> Result<Outcome, Outcome> {
        let (ticket, key) = (&errand.ticket, errand.key);
        if self.ask(ticket, self.remote.clone().exists(key)).await? {
            return Ok(Outcome::of(SAC_FETCH_DONE, 0));
        }
        let room = enter(ticket, &engine.puts).await?;
        let value = self.encode(errand, engine).await?;
        let coded_bytes = value.len() as u64;
        let put = self.remote.clone().put(key, value);
        match self.call(ticket, room, put).await?.0 {
            Put::Stored => {
                self.counters.bytes_stored.add(coded_bytes);
                Ok(Outcome { coded_bytes, ..Outcome::of(SAC_FETCH_DONE, 0) })
            }
            Put::Already => Ok(Outcome::of(SAC_FETCH_DONE, 0)),
            Put::Full => Ok(Outcome::of(SAC_FETCH_FULL, 0)),
        }
    }

    /// The value of a frame. Waits for the encoder even when the command is late: until it is
    /// done, the encoder may read the frame. It skips what is late.
    async fn encode(&self, errand: &Errand, engine: &Engine) -> Result<Bytes, Outcome> {
        let (done, encoded) = oneshot::channel();
        let op = errand.ticket.op().clone();
        let frame = Frame::new(errand.ticket.region(), errand.frame);
        let job = EncodeJob { op, frame, value: errand.value, done };
        if !engine.encode(job) {
            return Err(Outcome::DROPPED);
        }
        let skipped = |_| errand.ticket.op().refused().unwrap_or(Outcome::INTERNAL);
        encoded.await.map_err(skipped)
    }

    /// A small call to the store.
    async fn ask<T: Send + 'static>(&self, ticket: &Ticket, call: Call<T>) -> Result<T, Outcome> {
        let place = enter(ticket, &self.questions).await?;
        Ok(self.call(ticket, place, call).await?.0)
    }

    /// A call to the store, until the command is late or cancelled. One that is late goes on to its
    /// end, and keeps what is `held` for it so long: a store that hangs would otherwise never be
    /// found ill by those who wait for less time than it is given.
    async fn call<T: Send + 'static, H: Send + 'static>(
        &self,
        ticket: &Ticket,
        held: H,
        call: Call<T>,
    ) -> Result<(T, H), Outcome> {
        let began = Instant::now();
        let mut task = tokio::spawn(async move { call.await.map(|answer| (answer, held)) });
        let answer = tokio::select! {
            biased;
            refused = ticket.op().refusal() => {
                if refused == Outcome::CANCELLED {
                    task.abort();
                }
                Err(refused)
            }
            answer = &mut task => match answer {
                Ok(answer) => answer.map_err(|trouble| {
                    Outcome::of(SAC_FETCH_TROUBLE, remote::detail(&trouble))
                }),
                Err(_) => Err(Outcome::INTERNAL),
            },
        };
        self.counters.network_ns.add_time(began.elapsed());
        answer
    }
}

/// Waits for room, until the command is late or cancelled.
async fn enter(ticket: &Ticket, room: &Arc<Semaphore>) -> Result<OwnedSemaphorePermit, Outcome> {
    tokio::select! {
        biased;
        refused = ticket.op().refusal() => Err(refused),
        permit = room.clone().acquire_owned() => permit.map_err(|_| Outcome::INTERNAL),
    }
}

/// Removes a value that was found to be damaged: what is there stays, so that a good one could not
/// take its place.
pub(crate) struct Discard {
    remote: Arc<dyn Remote>,
    key: Key,
    runtime: Handle,
}

impl Discard {
    /// On the runtime of the task that calls this.
    fn new(remote: Arc<dyn Remote>, key: Key) -> Discard {
        Discard { remote, key, runtime: Handle::current() }
    }

    /// From any thread. If it fails, the value is found again, and rejected again.
    pub fn run(self) {
        let call = self.remote.remove(self.key);
        self.runtime.spawn(call);
    }
}

/// A name that is being stored; others are let in when it goes.
struct Single<'a> {
    storing: &'a Mutex<HashSet<Key>>,
    key: Key,
}

impl Single<'_> {
    fn new(storing: &Mutex<HashSet<Key>>, key: Key) -> Option<Single<'_>> {
        let alone = storing.lock().unwrap_or_else(PoisonError::into_inner).insert(key);
        alone.then_some(Single { storing, key })
    }
}

impl Drop for Single<'_> {
    fn drop(&mut self) {
        self.storing.lock().unwrap_or_else(PoisonError::into_inner).remove(&self.key);
    }
}
