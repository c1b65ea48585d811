//! Redis and Valkey, one server or a cluster.

mod link;
mod pool;
mod scan;

use std::ops::ControlFlow;
use std::sync::Arc;

use bytes::Bytes;
use redis::{Cmd, Value, cmd};

use crate::batch::{in_order, tell_all};
use crate::url::{Common, RedisPlace};
use crate::{Entry, Filter, Found, Key, Listing, OpenError, Put, Trouble};
use link::Client;
use pool::{Failure, Pool};

/// Between the parts of a key.
const SEPARATOR: char = ':';
/// Answers that are on their way at a time, at most, and at least two.
const MAX_ANSWER_BYTES: usize = 64 << 20;
/// Commands that are on their way at a time, at most.
const MAX_COMMANDS: usize = 1024;

#[derive(Clone)]
pub(crate) struct Redis {
    common: Common,
    pool: Arc<Pool>,
}

impl std::fmt::Debug for Redis {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        // Clients print their passwords.
        f.debug_struct("Redis").field("common", &self.common).finish_non_exhaustive()
    }
}

impl Redis {
    pub(crate) fn open(place: &RedisPlace, common: Common) -> Result<Self, OpenError> {
        let pool = Pool::new(Client::new(place)?, common.connections);
        Ok(Self { common, pool: Arc::new(pool) })
    }

    fn key(&self, key: &Key) -> String {
        key.text(&self.common.namespace, SEPARATOR)
    }

    fn command(&self, name: &str, key: &Key) -> Cmd {
        let mut command = cmd(name);
        command.arg(self.key(key));
        command
    }

    pub(crate) async fn exist(&self, keys: &[Key]) -> Result<Vec<bool>, Trouble> {
        let commands = keys.iter().map(|key| self.command("EXISTS", key)).collect();
        let answers = self.pool.ask_all(commands).await?;
        answers.into_iter().map(|answer| Ok(number(answer)? > 0)).collect()
    }

    pub(crate) async fn get_many(
        &self,
        keys: &[Key],
        max_bytes: usize,
        tell: impl FnMut(usize, Found) -> ControlFlow<()>,
    ) -> Result<(), Trouble> {
        let at_a_time = (MAX_ANSWER_BYTES / max_bytes.max(1)).clamp(2, MAX_COMMANDS);
        let read = keys.iter().copied().map(|key| self.read(key, max_bytes));
        tell_all(in_order(read, at_a_time), tell).await
    }

    /// Asks for one byte more than allowed: a value that has it is too large, and the rest of it
    /// never crosses the network.
    async fn read(&self, key: Key, max_bytes: usize) -> Result<Found, Trouble> {
        let mut command = self.command("GETRANGE", &key);
        command.arg(0).arg(max_bytes);
        match self.pool.ask(command).await? {
            // Redis has no other answer for a key that is not there.
            Value::BulkString(value) if value.is_empty() => Ok(Found::Absent),
            Value::BulkString(value) if value.len() > max_bytes => Ok(Found::TooLarge),
            Value::BulkString(value) => Ok(Found::Value(Bytes::from(value))),
            Value::Nil => Ok(Found::Absent),
            other => Err(unexpected(&other)),
        }
    }

    pub(crate) async fn put(&self, key: &Key, value: Bytes) -> Result<Put, Trouble> {
        let mut command = self.command("SET", key);
        command.arg(&value[..]).arg("NX");
        if let Some(ttl) = self.common.ttl {
            command.arg("EX").arg(ttl.as_secs());
        }
        match self.pool.try_ask(command).await {
            Ok(Value::Okay) => Ok(Put::Stored),
            Ok(Value::Nil) => Ok(Put::Already),
            Ok(other) => Err(unexpected(&other)),
            Err(Failure::OutOfMemory) => Ok(Put::Full),
            Err(Failure::Other(trouble)) => Err(trouble),
        }
    }

    pub(crate) async fn remove(&self, keys: &[Key]) -> Result<(), Trouble> {
        // The server frees large values aside.
        let commands = keys.iter().map(|key| self.command("UNLINK", key)).collect();
        self.pool.ask_all(commands).await.map(|_| ())
    }

    pub(crate) async fn list(
        &self,
        filter: &Filter,
        tell: impl FnMut(Entry) -> ControlFlow<()>,
    ) -> Result<Listing, Trouble> {
        scan::list(&self.pool, &self.common, filter, tell).await
    }
}

fn number(answer: Value) -> Result<i64, Trouble> {
    match answer {
        Value::Int(number) => Ok(number),
        other => Err(unexpected(&other)),
    }
}

/// Names the kind of an answer: what is in it may be large, and is the server's.
fn unexpected(answer: &Value) -> Trouble {
    let kind = match answer {
        Value::Nil => "nil",
        Value::Int(_) => "a number",
        Value::BulkString(_) => "bytes",
        Value::Array(_) => "an array",
        Value::SimpleString(_) | Value::Okay => "a status",
        _ => "a type of another version",
    };
    Trouble::Protocol(format!("{kind} instead of what the command answers"))
}
