//! What a command does on the network: each is one task, which ends when the command is late or
//! cancelled, however long the store takes.

use std::collections::HashSet;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use bytes::Bytes;
use saccade_chunk::Value;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, oneshot};

use crate::counters::Counters;
use crate::engine::{ChunkJob, EncodeJob, Engine};
use crate::frame::Frame;
use crate::layout::*;
use crate::remote::{Call, Key, MAX_KEYS, Put, Remote, Trouble};
use crate::session::{Outcome, Ticket};

/// What tasks share.
pub(crate) struct Errands {
    pub remote: Arc<dyn Remote>,
    pub counters: Arc<Counters>,
    /// STORE commands on their way.
    pub stores: Arc<Semaphore>,
    /// Names that are being stored, so that two requests with one prefix store it once.
    pub storing: Mutex<HashSet<Key>>,
}

/// A chunk, and the frame that is lent for it.
pub(crate) struct Errand {
    pub ticket: Ticket,
    pub key: Key,
    pub value: Value,
    pub frame: u32,
}

impl Errands {
    /// Counts the chunks that are there, from the first one on.
    pub async fn look_up(self: Arc<Self>, ticket: Ticket, keys: Vec<Key>) {
        let keys = &keys[..keys.len().min(MAX_KEYS)];
        let found = self.call(&ticket, self.remote.longest_prefix(keys)).await;
        let done = |found: usize| Outcome {
            num_chunks: found.min(keys.len()) as u32,
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
        match self.call(&ticket, self.remote.get(key, engine.max_value_bytes())).await {
            Ok(Some(bytes)) => {
                self.counters.bytes_loaded.add(bytes.len() as u64);
                let frame = Frame::new(ticket.region(), frame);
                engine.submit(ChunkJob::new(ticket, frame, value, bytes, permits));
            }
            Ok(None) => ticket.finish(Outcome::of(SAC_FETCH_MISS, 0)),
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
        if self.call(ticket, self.remote.exists(key)).await? {
            return Ok(Outcome::of(SAC_FETCH_DONE, 0));
        }
        let _room = enter(ticket, &engine.puts).await?;
        let value = self.encode(errand, engine).await?;
        let coded_bytes = value.len() as u64;
        match self.call(ticket, self.remote.put(key, value)).await? {
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

    /// A call to the store, until the command is late or cancelled.
    async fn call<T>(&self, ticket: &Ticket, call: Call<'_, T>) -> Result<T, Outcome> {
        let began = Instant::now();
        let answer = tokio::select! {
            biased;
            refused = ticket.op().refusal() => Err(refused),
            answer = call => answer.map_err(trouble),
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

fn trouble(trouble: Trouble) -> Outcome {
    match trouble.detail() {
        Some(detail) => Outcome::of(SAC_FETCH_TROUBLE, detail),
        None => Outcome::LATE,
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
