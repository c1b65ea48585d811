//! Single requests to a server, for tools that ask it something and do not measure.

use std::time::Duration;

use bytes::Bytes;

use crate::http::{Client, read_up_to};
use crate::resolve::first_model;
use crate::{LoadError, Target};

/// Longest answer that is read whole.
const MAX_ANSWER_BYTES: usize = 16 << 20;

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
