//! A request and its answer, until the answer has ended: what the access log and the traces tell.

use std::pin::Pin;
use std::sync::{Arc, OnceLock};
use std::task::{Context, Poll};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use axum::body::{Body, HttpBody};
use axum::extract::MatchedPath;
use axum::response::Response;
use bytes::Bytes;
use http::Method;
use hyper::body::{Frame, SizeHint};
use opentelemetry::trace::SpanContext;

use super::access_log::AccessLog;
use super::app::App;
use super::router::is_probe;
use crate::api_error::Reason;
use crate::traces::{Traces, parent_of};

/// What endpoints tell of a request that generates, each part at most once.
#[derive(Debug, Default)]
pub struct Tally {
    asked: OnceLock<AskedFor>,
    made: OnceLock<Made>,
}

/// What a request wants, as far as its client said.
#[derive(Debug)]
pub struct AskedFor {
    /// As the GenAI conventions of OpenTelemetry name it.
    pub operation: &'static str,
    /// As the client named it: one of the served names, or an adapter's.
    pub model: String,
    /// Choices per prompt.
    pub n: u32,
    /// Tokens to produce.
    pub max_tokens: Option<u32>,
    /// 0 is greedy.
    pub temperature: Option<f32>,
    /// Nucleus mass.
    pub top_p: Option<f32>,
}

/// What came of a request that was submitted.
#[derive(Debug, Default)]
pub struct Made {
    /// Of all its prompts and choices.
    pub tokens: Tokens,
    /// Why each choice that ended did so, in the order of their ends.
    pub finish_reasons: Vec<&'static str>,
    /// Code of the error that ended the request.
    pub failure: Option<&'static str>,
    /// Milestones of its choices.
    pub times: Times,
}

/// Counts of tokens.
#[derive(Debug, Clone, Copy, Default)]
pub struct Tokens {
    /// Each prompt once.
    pub prompt: u64,
    /// Of these, what was not computed.
    pub cached: u64,
    /// All choices together.
    pub completion: u64,
}

/// Times since the request came; `None` for what did not happen.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Times {
    /// The device took the first of its choices.
    pub admitted: Option<Duration>,
    /// The first token of any choice.
    pub first_token: Option<Duration>,
    /// The last token of any choice.
    pub last_token: Option<Duration>,
}

impl Tally {
    /// The request is valid.
    pub fn asks(&self, asked: AskedFor) {
        let _told_before = self.asked.set(asked);
    }

    /// The request's generation is over.
    pub fn made(&self, made: Made) {
        let _told_before = self.made.set(made);
    }

    /// See [`AskedFor`].
    pub fn asked(&self) -> Option<&AskedFor> {
        self.asked.get()
    }

    /// See [`Made`].
    pub fn outcome(&self) -> Option<&Made> {
        self.made.get()
    }

    /// None for a request that was not submitted.
    pub fn tokens(&self) -> Tokens {
        self.made.get().map(|made| made.tokens).unwrap_or_default()
    }
}

/// A request whose answer has ended.
#[derive(Debug, Default)]
pub struct Ended {
    /// When it came, since 1970.
    pub begun_unix: Duration,
    /// From then to the answer's end.
    pub duration: Duration,
    /// Of the request.
    pub method: Method,
    /// Without a query, which may hold what a client should not have put there.
    pub path: String,
    /// The pattern that the path matched.
    pub route: Option<MatchedPath>,
    /// The client's own, or a random one.
    pub request_id: String,
    /// `None`: no key was asked for, or none was accepted.
    pub tenant: Option<String>,
    /// The span that the request belongs to, if its client named one.
    pub parent: Option<SpanContext>,
    /// `None`: the client went away before there was an answer.
    pub status: Option<u16>,
    /// Code of the error that was the answer.
    pub refusal: Option<&'static str>,
    /// Of the answer.
    pub body_bytes: u64,
    /// The client took all of it.
    pub complete: bool,
    /// See [`Tally`].
    pub tally: Arc<Tally>,
}

/// A request that will be told of when its answer has ended.
pub struct Exchange {
    begun: Instant,
    ended: Ended,
    log: Option<Arc<AccessLog>>,
    traces: Option<Arc<Traces>>,
}

impl Exchange {
    /// Of a request that has come; `None` if there is nowhere to tell of it.
    pub fn begin(app: &App, request: &axum::extract::Request, request_id: &str) -> Option<Self> {
        let route = request.extensions().get::<MatchedPath>();
        let of_api = route.is_some_and(|route| !is_probe(route.as_str()));
        let traces = app.traces.clone().filter(|_| of_api);
        if app.access_log.is_none() && traces.is_none() {
            return None;
        }
        let ended = Ended {
            begun_unix: SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default(),
            method: request.method().clone(),
            path: request.uri().path().to_owned(),
            route: route.cloned(),
            request_id: request_id.to_owned(),
            parent: traces.as_ref().and_then(|_| parent_of(request.headers())),
            ..Ended::default()
        };
        Some(Self { begun: Instant::now(), ended, log: app.access_log.clone(), traces })
    }

    /// Where the endpoint tells of it.
    pub fn tally(&self) -> Arc<Tally> {
        self.ended.tally.clone()
    }

    /// The answer; when it ends, the request is told of.
    pub fn around(mut self, response: Response, tenant: Option<String>) -> Response {
        let status = response.status().as_u16();
        self.log = self.log.take().filter(|log| log.is_sampled(status));
        if self.log.is_none() && self.traces.is_none() {
            return response;
        }
        self.ended.status = Some(status);
        self.ended.tenant = tenant;
        self.ended.refusal = response.extensions().get().map(|Reason(code)| *code);
        let (head, body) = response.into_parts();
        self.ended.complete = body.is_end_stream() || self.ended.method == Method::HEAD;
        Response::from_parts(head, Body::new(Observed { body, exchange: self }))
    }
}

impl Drop for Exchange {
    fn drop(&mut self) {
        self.ended.duration = self.begun.elapsed();
        if let Some(log) = &self.log {
            log.write(&self.ended);
        }
        if let Some(traces) = &self.traces {
            traces.tell(std::mem::take(&mut self.ended));
        }
    }
}

/// An answer's body. Its fields are dropped in order: the generation behind it fills the tally
/// before the request is told of.
struct Observed {
    body: Body,
    exchange: Exchange,
}

impl HttpBody for Observed {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        let polled = Pin::new(&mut self.body).poll_frame(cx);
        match &polled {
            Poll::Ready(Some(Ok(frame))) => {
                let bytes = frame.data_ref().map_or(0, Bytes::len);
                self.exchange.ended.body_bytes += bytes as u64;
                self.exchange.ended.complete = self.body.is_end_stream();
            }
            Poll::Ready(None) => self.exchange.ended.complete = true,
            _ => {}
        }
        polled
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
