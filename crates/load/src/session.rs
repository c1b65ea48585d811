//! Single requests to a server, for tools that ask it something and do not measure.

use std::time::Duration;

use bytes::Bytes;
use http_body_util::BodyExt;

use crate::http::{Answer, Client, chain, read_up_to};
use crate::resolve::first_model;
use crate::sse::Parser;
use crate::{LoadError, Target};

/// Longest answer that is read whole.
const MAX_ANSWER_BYTES: usize = 16 << 20;
/// What is read of a refusal.
const MAX_REFUSAL_BYTES: usize = 4096;

/// A server, over connections that are kept from request to request.
#[derive(Debug)]
pub struct Session {
    client: Client,
    timeout: Duration,
}

/// A whole answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Answered {
    /// HTTP status.
    pub status: u16,
    /// Of at most 16 MiB.
    pub body: Vec<u8>,
}

/// How a streamed answer ended, as the transport saw it: what its events say is another matter.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum StreamEnd {
    /// The whole body came.
    Whole,
    /// A status other than 2xx, and what the refusal says.
    Refused(u16, String),
    /// No connection could be opened.
    NotConnected(String),
    /// The connection broke: before the head of an answer, or within its body.
    Broken(String),
    /// It took longer than the session's time-out.
    TimedOut,
}

impl Answered {
    /// What a refusal says, in one short line.
    pub fn message(&self) -> String {
        format!("HTTP {}: {}", self.status, crate::event::message_in(&self.body))
    }
}

impl Session {
    /// Resolves the server's name; connects with the first request. `timeout` is of each.
    ///
    /// # Errors
    /// The URL, the key or the certificates cannot be used, or the name is not known.
    pub async fn new(
        target: &Target,
        max_idle: usize,
        timeout: Duration,
    ) -> Result<Self, LoadError> {
        Ok(Self { client: Client::new(target, max_idle).await?, timeout })
    }

    /// The first model that the server lists.
    ///
    /// # Errors
    /// It does not answer in time, or lists none.
    pub async fn first_model(&self) -> Result<String, LoadError> {
        let late = || LoadError::server(self.client.url("/v1/models"), self.late());
        tokio::time::timeout(self.timeout, first_model(&self.client)).await.map_err(|_| late())?
    }

    /// Asks for a document.
    ///
    /// # Errors
    /// The server cannot be reached, breaks the protocol, or does not answer in time.
    pub async fn get(&self, path: &str) -> Result<Answered, LoadError> {
        let asked = async {
            let (status, body) = self.client.get(path).await?;
            Ok(Answered { status: status.as_u16(), body })
        };
        self.in_time(path, asked).await
    }

    /// Posts JSON.
    ///
    /// # Errors
    /// The server cannot be reached, breaks the protocol, or does not answer in time.
    pub async fn post(&self, path: &str, body: Bytes) -> Result<Answered, LoadError> {
        let asked = async {
            let answer = self.client.post(path, &body, None, &mut None).await?;
            let status = answer.response.status().as_u16();
            let body = read_up_to(answer.response.into_body(), MAX_ANSWER_BYTES).await?;
            if body.len() < MAX_ANSWER_BYTES {
                self.client.give_back(answer.connection);
            }
            Ok(Answered { status, body })
        };
        self.in_time(path, asked).await
    }

    /// Posts JSON and calls `event` with the data of each server-sent event, as it comes.
    pub async fn stream(&self, path: &str, body: Bytes, event: impl FnMut(&[u8])) -> StreamEnd {
        let streamed = tokio::time::timeout(self.timeout, self.events(path, &body, event));
        streamed.await.unwrap_or(StreamEnd::TimedOut)
    }

    async fn events(&self, path: &str, body: &Bytes, mut event: impl FnMut(&[u8])) -> StreamEnd {
        let mut connect_s = None;
        let Answer { response, connection } =
            match self.client.post(path, body, None, &mut connect_s).await {
                Ok(answer) => answer,
                Err(why) if connect_s.is_none() => return StreamEnd::NotConnected(why),
                Err(why) => return StreamEnd::Broken(why),
            };
        let status = response.status();
        let mut body = response.into_body();
        if !status.is_success() {
            let text = read_up_to(body, MAX_REFUSAL_BYTES).await.unwrap_or_default();
            return StreamEnd::Refused(status.as_u16(), crate::event::message_in(&text));
        }
        let mut parser = Parser::default();
        while let Some(frame) = body.frame().await {
            let frame = match frame {
                Ok(frame) => frame,
                Err(error) => return StreamEnd::Broken(chain(&error)),
            };
            let Ok(data) = frame.into_data() else { continue };
            if parser.feed(&data, |_, data| event(data)).is_err() {
                return StreamEnd::Broken("an event without an end".into());
            }
        }
        parser.finish(|_, data| event(data));
        self.client.give_back(connection);
        StreamEnd::Whole
    }

    async fn in_time(
        &self,
        path: &str,
        asked: impl Future<Output = Result<Answered, String>>,
    ) -> Result<Answered, LoadError> {
        let answered = tokio::time::timeout(self.timeout, asked).await;
        let answered = answered.unwrap_or_else(|_| Err(self.late()));
        answered.map_err(|problem| LoadError::server(self.client.url(path), problem))
    }

    fn late(&self) -> String {
        format!("no answer in {:?}", self.timeout)
    }
}
