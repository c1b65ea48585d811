//! A few connections, so that large values do not wait behind each other.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::sync::{Mutex, MutexGuard, PoisonError};

use futures_util::stream::TryStreamExt;
use redis::{Cmd, ErrorKind, Pipeline, RedisError, RedisResult, ServerErrorKind, Value};

use super::MAX_COMMANDS;
use super::link::{Client, Link};
use crate::Trouble;
use crate::batch::in_order;
use crate::trouble::words;

/// Connections that are made when they are first needed, and again after they broke.
pub(super) struct Pool {
    client: Client,
    slots: Box<[Slot]>,
}

/// A place for one connection.
#[derive(Default)]
struct Slot {
    link: Mutex<Option<Numbered>>,
    /// One caller connects, the others wait for it.
    connecting: tokio::sync::Mutex<()>,
    connections: AtomicU64,
    commands: AtomicUsize,
    answers: AtomicU64,
}

/// A connection, and which one of its slot's it is.
#[derive(Clone)]
struct Numbered {
    link: Link,
    number: u64,
}

impl Slot {
    fn link(&self) -> MutexGuard<'_, Option<Numbered>> {
        self.link.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The next command gets another connection; commands that share this one keep it.
    fn discard(&self, number: u64) {
        let mut link = self.link();
        if link.as_ref().is_some_and(|link| link.number == number) {
            *link = None;
        }
    }
}

/// Counts a command of a slot for as long as it runs.
struct Running<'a>(&'a Slot);

impl<'a> Running<'a> {
    fn new(slot: &'a Slot) -> Self {
        slot.commands.fetch_add(1, Relaxed);
        Self(slot)
    }
}

impl Drop for Running<'_> {
    fn drop(&mut self) {
        self.0.commands.fetch_sub(1, Relaxed);
    }
}

/// A command on a connection. Dropped before its answer, it takes the connection with it if
/// nothing has been answered there meanwhile: a server that hangs, or a network that swallows,
/// says nothing more, and only a new connection gets past it. That of a cluster goes always: other
/// nodes answer, and the client library may wait for long for the one that hangs.
struct Attempt<'a> {
    slot: &'a Slot,
    link: Numbered,
    answers_before: u64,
    ended: bool,
    /// Made for this command: if it broke, the server did not just close what was idle.
    fresh: bool,
}

impl Attempt<'_> {
    fn end<T>(&mut self, result: &RedisResult<T>) {
        self.ended = true;
        match result {
            Err(error) if is_broken(error) => self.slot.discard(self.link.number),
            _ => _ = self.slot.answers.fetch_add(1, Relaxed),
        }
    }
}

impl Drop for Attempt<'_> {
    fn drop(&mut self) {
        let silent = self.slot.answers.load(Relaxed) == self.answers_before;
        let cluster = matches!(self.link.link, Link::Cluster(_));
        if !self.ended && (silent || cluster) {
            self.slot.discard(self.link.number);
        }
    }
}

/// What is sent.
enum Message<'a> {
    Command(&'a Cmd),
    ToMaster(&'a Cmd, u16),
    Commands(&'a Pipeline),
}

/// Why there is no answer.
pub(super) enum Failure {
    OutOfMemory,
    Other(Trouble),
}

impl Pool {
    pub(super) fn new(client: Client, connections: usize) -> Self {
        Self { client, slots: (0..connections).map(|_| Slot::default()).collect() }
    }

    pub(super) const fn is_cluster(&self) -> bool {
        matches!(self.client, Client::Cluster(_))
    }

    pub(super) async fn ask(&self, command: Cmd) -> Result<Value, Trouble> {
        self.try_ask(command).await.map_err(trouble)
    }

    pub(super) async fn try_ask(&self, command: Cmd) -> Result<Value, Failure> {
        self.send(Message::Command(&command)).await.map(first)
    }

    /// Asks the master of a cluster's slot.
    pub(super) async fn ask_master(&self, command: Cmd, slot: u16) -> Result<Value, Trouble> {
        self.send(Message::ToMaster(&command, slot)).await.map(first).map_err(trouble)
    }

    /// Answers in the order of `commands`, after one round trip to each server.
    pub(super) async fn ask_all(&self, commands: Vec<Cmd>) -> Result<Vec<Value>, Trouble> {
        if commands.is_empty() {
            return Ok(Vec::new());
        }
        if self.is_cluster() {
            let asked = commands.into_iter().map(|command| self.ask(command));
            return in_order(asked, MAX_COMMANDS).try_collect().await;
        }
        let expected = commands.len();
        let mut pipeline = Pipeline::with_capacity(expected);
        commands.into_iter().for_each(|command| _ = pipeline.add_command(command));
        let answers = self.send(Message::Commands(&pipeline)).await.map_err(trouble)?;
        if answers.len() != expected {
            let counts = format!("{} answers to {expected} commands", answers.len());
            return Err(Trouble::Protocol(counts));
        }
        Ok(answers)
    }

    /// Once more on a new connection, if the old one turns out to be closed: every command of ours
    /// may be sent twice.
    async fn send(&self, message: Message<'_>) -> Result<Vec<Value>, Failure> {
        let slot = self.least_busy();
        let _running = Running::new(slot);
        loop {
            let mut attempt = self.attempt(slot).await?;
            let result = match &message {
                Message::Command(command) => attempt.link.link.ask(command).await.map(one),
                Message::ToMaster(command, slot) => {
                    attempt.link.link.ask_master(command, *slot).await.map(one)
                }
                Message::Commands(commands) => attempt.link.link.ask_all(commands).await,
            };
            attempt.end(&result);
            match result {
                Err(error) if !attempt.fresh && error.is_connection_dropped() => {}
                other => return other.map_err(|error| failure(&error)),
            }
        }
    }

    fn least_busy(&self) -> &Slot {
        let least = self.slots.iter().min_by_key(|slot| slot.commands.load(Relaxed));
        least.unwrap_or(&self.slots[0])
    }

    async fn attempt<'a>(&self, slot: &'a Slot) -> Result<Attempt<'a>, Failure> {
        let there = slot.link().clone();
        let (link, fresh) = match there {
            Some(link) => (link, false),
            None => self.connect(slot).await?,
        };
        let answers_before = slot.answers.load(Relaxed);
        Ok(Attempt { slot, link, answers_before, ended: false, fresh })
    }

    async fn connect(&self, slot: &Slot) -> Result<(Numbered, bool), Failure> {
        let _alone = slot.connecting.lock().await;
        if let Some(link) = slot.link().clone() {
            return Ok((link, true));
        }
        let link = self.client.connect().await.map_err(|error| connect_failure(&error))?;
        let link = Numbered { link, number: slot.connections.fetch_add(1, Relaxed) };
        *slot.link() = Some(link.clone());
        Ok((link, true))
    }
}

fn one(answer: Value) -> Vec<Value> {
    vec![answer]
}

fn first(answers: Vec<Value>) -> Value {
    answers.into_iter().next().unwrap_or_default()
}

fn trouble(failure: Failure) -> Trouble {
    match failure {
        Failure::OutOfMemory => Trouble::Refused("OOM".to_owned()),
        Failure::Other(trouble) => trouble,
    }
}

/// Whether nothing more is to be expected of a connection: all but what the server itself said.
fn is_broken(error: &RedisError) -> bool {
    !matches!(error.kind(), ErrorKind::Server(_) | ErrorKind::Extension)
}

fn connect_failure(error: &RedisError) -> Failure {
    match error.kind() {
        ErrorKind::Io | ErrorKind::ClusterConnectionNotFound | ErrorKind::InvalidClientConfig => {
            Failure::Other(Trouble::Connect(words(error)))
        }
        _ => failure(error),
    }
}

fn failure(error: &RedisError) -> Failure {
    let trouble = match (error.kind(), error.code()) {
        (_, Some("OOM")) => return Failure::OutOfMemory,
        (ErrorKind::AuthenticationFailed, _)
        | (ErrorKind::Server(ServerErrorKind::NoPerm | ServerErrorKind::ReadOnly), _)
        | (_, Some("NOAUTH" | "WRONGPASS" | "DENIED" | "MISCONF" | "NOREPLICAS")) => {
            Trouble::Refused
        }
        (ErrorKind::ClusterConnectionNotFound, _)
        | (
            ErrorKind::Server(
                ServerErrorKind::BusyLoading
                | ServerErrorKind::MasterDown
                | ServerErrorKind::ClusterDown
                | ServerErrorKind::TryAgain
                | ServerErrorKind::Moved
                | ServerErrorKind::Ask,
            ),
            _,
        ) => Trouble::Connect,
        (ErrorKind::Io, _) => Trouble::Io,
        _ => Trouble::Protocol,
    };
    Failure::Other(trouble(words(error)))
}
