//! HTTP/1.1 to one server, over kept-alive connections. No request is sent twice: a second attempt
//! would load the server with what it may have done already, and hide that it dropped the first.

mod connect;
mod origin;
mod socket;
mod tls;

use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Instant;

use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::client::conn::http1::SendRequest;
use hyper::header::{ACCEPT, AUTHORIZATION, CONTENT_TYPE, HOST, HeaderValue};
use hyper::{Request, Response, StatusCode};

use crate::{LoadError, Target};
use connect::Connector;
pub use origin::Origin;
use socket::Peephole;

/// A connection on which one request at a time may be sent.
#[derive(Debug)]
pub(crate) struct Connection {
    sender: SendRequest<Full<Bytes>>,
    peephole: Peephole,
}

impl Connection {
    /// Whether the next request may go out on it, by what is known at this moment.
    fn is_alive(&self) -> bool {
        self.sender.is_ready() && self.peephole.is_quiet()
    }
}

/// Kept connections found dead before anything was written, until a new one is opened instead.
const MAX_STALE: usize = 2;
/// What an answer that never begins is called when it was asked for on a kept connection.
const KEPT_DROPPED: &str = "the server closed a kept connection on which the request was on its \
     way, without an answer";

/// Sends requests to one server.
#[derive(Debug)]
pub(crate) struct Client {
    origin: Origin,
    authorization: Option<HeaderValue>,
    connector: Connector,
    idle: Mutex<Vec<Connection>>,
    max_idle: usize,
    opened: AtomicU64,
    /// Until the server drops a request on a kept connection: then each has one of its own.
    keeps: AtomicBool,
}

/// A response, and the connection to give back once its body has been read.
#[derive(Debug)]
pub(crate) struct Answer {
    pub response: Response<Incoming>,
    pub connection: Connection,
}

impl Client {
    /// Resolves the server's name, once: a lookup is no part of a latency.
    pub(crate) async fn new(target: &Target, max_idle: usize) -> Result<Client, LoadError> {
        let origin = Origin::parse(&target.base_url)?;
        let authorization = match &target.api_key {
            Some(key) => {
                let value = HeaderValue::from_str(&format!("Bearer {key}"));
                Some(value.map_err(|_| LoadError::spec("api key", "must be visible ASCII"))?)
            }
            None => None,
        };
        Ok(Client {
            connector: Connector::new(&origin, &target.tls).await?,
            origin,
            authorization,
            idle: Mutex::new(Vec::new()),
            max_idle,
            opened: AtomicU64::new(0),
            keeps: AtomicBool::new(true),
        })
    }

    pub(crate) fn url(&self, path: &str) -> String {
        self.origin.url(path)
    }

    /// Connections opened so far.
    pub(crate) fn opened(&self) -> u64 {
        // SYNC: a statistic; it is read after all tasks have ended.
        self.opened.load(Ordering::Relaxed)
    }

    /// Whether connections are still kept. Some servers end each one after a streamed answer
    /// without saying so in its head: what goes out on it meanwhile is lost.
    pub(crate) fn keeps_connections(&self) -> bool {
        // SYNC: advice; a request that misses it meets the same drop.
        self.keeps.load(Ordering::Relaxed)
    }

    /// Sends a POST and waits for the head of the answer. `id` goes into `x-request-id`;
    /// `connect_s` gets the seconds that a new connection took.
    ///
    /// A kept connection is checked first; one that turns out dead before the request was
    /// written is replaced. Once a byte may have been written, a drop is the request's failure.
    pub(crate) async fn post(
        &self,
        path: &str,
        body: &Bytes,
        id: Option<&str>,
        connect_s: &mut Option<f64>,
    ) -> Result<Answer, String> {
        let mut request = self.post_request(path, body, id)?;
        for _ in 0..MAX_STALE {
            let Some(mut connection) = self.take_idle() else { break };
            match connection.sender.try_send_request(request).await {
                Ok(response) => return Ok(Answer { response, connection }),
                // hyper gives back what it has not begun to write, and nothing else.
                Err(mut refused) => match refused.take_message() {
                    Some(unsent) => request = unsent,
                    None if refused.error().is_incomplete_message() => {
                        // SYNC: advice, as in `keeps_connections`.
                        self.keeps.store(false, Ordering::Relaxed);
                        return Err(format!("{KEPT_DROPPED} ({})", chain(refused.error())));
                    }
                    None => return Err(chain(refused.error())),
                },
            }
        }
        let begin = Instant::now();
        let mut connection = self.connector.connect().await?;
        // SYNC: a statistic; it is read after all tasks have ended.
        self.opened.fetch_add(1, Ordering::Relaxed);
        *connect_s = Some(begin.elapsed().as_secs_f64());
        let response = connection.sender.send_request(request).await.map_err(|e| chain(&e))?;
        Ok(Answer { response, connection })
    }

    fn post_request(
        &self,
        path: &str,
        body: &Bytes,
        id: Option<&str>,
    ) -> Result<Request<Full<Bytes>>, String> {
        let mut request = self.request("POST", path, body.clone())?;
        if let Some(id) = id.and_then(|id| HeaderValue::from_str(id).ok()) {
            request.headers_mut().insert("x-request-id", id);
        }
        Ok(request)
    }

    /// Status and body of a GET, on a connection of its own.
    pub(crate) async fn get(&self, path: &str) -> Result<(StatusCode, Vec<u8>), String> {
        let mut connection = self.connector.connect().await?;
        let request = self.request("GET", path, Bytes::new())?;
        let response = connection.sender.send_request(request).await.map_err(|e| chain(&e))?;
        let status = response.status();
        Ok((status, read_up_to(response.into_body(), MAX_DOCUMENT_BYTES).await?))
    }

    /// A GET whose whole answer is a small JSON document.
    pub(crate) async fn get_json(&self, path: &str) -> Result<serde_json::Value, String> {
        let (status, body) = self.get(path).await?;
        if !status.is_success() {
            return Err(format!("status {}: {}", status.as_u16(), crate::event::excerpt(&body)));
        }
        serde_json::from_slice(&body).map_err(|e| format!("not JSON: {e}"))
    }

    /// Keeps a connection whose last answer was read to its end.
    pub(crate) fn give_back(&self, connection: Connection) {
        if connection.sender.is_closed() || !self.keeps_connections() {
            return;
        }
        if let Ok(mut idle) = self.idle.lock()
            && idle.len() < self.max_idle
        {
            idle.push(connection);
        }
    }

    /// The one used last: the others grow old, and the server closes them.
    fn take_idle(&self) -> Option<Connection> {
        let mut idle = self.idle.lock().ok()?;
        if !self.keeps_connections() {
            idle.clear();
        }
        while let Some(connection) = idle.pop() {
            if connection.is_alive() {
                return Some(connection);
            }
        }
        None
    }

    fn request(
        &self,
        method: &str,
        path: &str,
        body: Bytes,
    ) -> Result<Request<Full<Bytes>>, String> {
        let mut request = Request::builder()
            .method(method)
            .uri(self.origin.path(path))
            .header(HOST, &self.origin.authority)
            .header(ACCEPT, "text/event-stream, application/json");
        if !body.is_empty() {
            request = request.header(CONTENT_TYPE, "application/json");
        }
        if let Some(value) = &self.authorization {
            request = request.header(AUTHORIZATION, value);
        }
        request.body(Full::new(body)).map_err(|e| e.to_string())
    }
}

/// Longest document that is read whole.
const MAX_DOCUMENT_BYTES: usize = 4 * 1024 * 1024;

/// Reads a body until its end or `max` bytes.
pub(crate) async fn read_up_to(mut body: Incoming, max: usize) -> Result<Vec<u8>, String> {
    let mut bytes = Vec::new();
    while let Some(frame) = body.frame().await {
        if let Ok(data) = frame.map_err(|e| chain(&e))?.into_data() {
            bytes.extend_from_slice(&data[..data.len().min(max - bytes.len())]);
        }
        if bytes.len() == max {
            break;
        }
    }
    Ok(bytes)
}

/// An error with its causes, which hyper leaves out.
pub(crate) fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        let cause_text = cause.to_string();
        if !text.contains(&cause_text) {
            text = format!("{text}: {cause_text}");
        }
        source = cause.source();
    }
    text
}
