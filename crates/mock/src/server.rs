//! Routes, and the connections they are served on: one thread for all of them.

use std::convert::Infallible;
use std::future::pending;
use std::io;
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use bytes::Bytes;
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, Full, LengthLimitError, Limited, StreamBody};
use hyper::body::Incoming;
use hyper::header::{AUTHORIZATION, CACHE_CONTROL, CONTENT_TYPE, RETRY_AFTER};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Method, Request as HttpRequest, Response, StatusCode};
use hyper_util::rt::TokioIo;
use serde_json::{Value, json};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::api::{Answer, Refusal, Request, error};
use crate::clock::{Nanos, Pacer, from_seconds, now, to_seconds};
use crate::engine::Engine;
use crate::gate::Gate;
use crate::generation::{Fate, Generation, Next, Plan};
use crate::records::{Outcome, Recorder, Records};
use crate::script::Script;
use crate::stall::{Release, Stalls};
use crate::stream;
use crate::weak::Readers;

/// Until the next attempt where none could be accepted.
const ACCEPT_PAUSE: Nanos = 10_000_000;
/// Most bytes of a request's body.
const MAX_BODY_BYTES: usize = 64 << 20;
/// Most bytes of a request's id that are kept in its record.
const MAX_ID_BYTES: usize = 128;

type Body = UnsyncBoxBody<Bytes, io::Error>;

/// What every request sees.
pub struct Shared {
    /// What to do.
    pub script: Script,
    /// Sleeps.
    pub pacer: Arc<Pacer>,
    /// Seats.
    pub gate: Gate,
    /// The threads of the `cpu` mode.
    pub engine: Option<Engine>,
    /// Streams that wait for their reader.
    pub readers: Readers,
    stalls: Stalls,
    records: Arc<Records>,
}

impl Shared {
    /// What a script needs. Within a runtime.
    ///
    /// # Errors
    /// No timer, or no threads.
    pub fn new(script: Script) -> io::Result<Self> {
        Ok(Self {
            pacer: Pacer::new(from_seconds(script.spin_us * 1e-6))?,
            gate: Gate::new(&script.capacity),
            engine: script.cpu.as_ref().map(Engine::start).transpose()?,
            readers: Readers::default(),
            stalls: Stalls::new(&script.stalls, now()),
            records: Records::new(script.max_records),
            script,
        })
    }

    /// Returns when what is due at `due` may leave: then, or at the end of the stall that it
    /// falls into, even one that began in the meantime.
    pub async fn leave(&self, due: Nanos) -> Release {
        self.wait_for_readers().await;
        let mut release = self.stalls.release(due);
        loop {
            self.pacer.sleep_until(release.at).await;
            let again = self.stalls.release(release.at);
            if again.at == release.at {
                return release;
            }
            release = Release { at: again.at, base: release.base + (again.base - release.at) };
        }
    }
}

impl Shared {
    /// Under the weakness of that name, waits while another stream is not read.
    async fn wait_for_readers(&self) {
        /// Between two looks.
        const LOOK: Nanos = 10_000_000;
        while self.script.weaknesses.stalled_reader_stalls_all && self.readers.has_stalled(now()) {
            self.pacer.sleep_until(now() + LOOK).await;
        }
    }
}

/// Serves connections forever.
///
/// # Errors
/// The timer or the listener fails.
pub async fn serve(listener: TcpListener, shared: Arc<Shared>) -> io::Result<()> {
    let pacer = Arc::clone(&shared.pacer);
    tokio::select! {
        ended = pacer.run() => ended,
        ended = accept(listener, shared) => ended,
    }
}

async fn accept(listener: TcpListener, shared: Arc<Shared>) -> io::Result<()> {
    let connections = Arc::new(Semaphore::new(shared.script.capacity.connections));
    loop {
        let Ok(permit) = Arc::clone(&connections).acquire_owned().await else { return Ok(()) };
        let Ok((stream, _)) = listener.accept().await else {
            // The connection ended before it was accepted, or there are no descriptors left.
            shared.pacer.sleep_until(now() + ACCEPT_PAUSE).await;
            continue;
        };
        tokio::spawn(converse(stream, Arc::clone(&shared), permit));
    }
}

async fn converse(stream: TcpStream, shared: Arc<Shared>, _permit: OwnedSemaphorePermit) {
    // Without it each event would wait for the acknowledgement of the one before.
    let _ = stream.set_nodelay(true);
    let service = service_fn(move |request| {
        let shared = Arc::clone(&shared);
        async move { Ok::<_, Infallible>(route(shared, request).await) }
    });
    // Ends with an error where the script cuts, and where the client does.
    let _ = http1::Builder::new().serve_connection(TokioIo::new(stream), service).await;
}

async fn route(shared: Arc<Shared>, request: HttpRequest<Incoming>) -> Response<Body> {
    let path = request.uri().path().to_owned();
    match (request.method(), path.as_str()) {
        (&Method::GET, "/records") => bytes(200, shared.records.to_json(), "application/json"),
        (&Method::POST, "/reset") => {
            shared.records.reset();
            shared.stalls.restart(&shared.script.stalls, now());
            object(200, &json!({"now_s": to_seconds(now())}))
        }
        (&Method::GET, "/health") => {
            shared.leave(now()).await;
            bytes(200, Vec::new(), "text/plain")
        }
        (&Method::GET, "/v1/models") => {
            shared.leave(now()).await;
            object(200, &Answer::models(&shared.script))
        }
        (&Method::GET, "/metrics") => {
            shared.leave(now()).await;
            bytes(200, metrics(&shared).into_bytes(), "text/plain; version=0.0.4")
        }
        (&Method::POST, "/v1/completions") => complete(shared, request, false).await,
        (&Method::POST, "/v1/chat/completions") => complete(shared, request, true).await,
        _ => object(404, &error(404, &format!("{path} does not exist"))),
    }
}

/// Answers a completion, of a chat or not.
async fn complete(shared: Arc<Shared>, http: HttpRequest<Incoming>, chat: bool) -> Response<Body> {
    let head = now();
    let request_id = header(&http, "x-request-id");
    let request = match read(&shared, http, chat).await {
        Ok(request) => request,
        Err((status, message)) => return object(status, &error(status, &message)),
    };
    let received = now();
    let mut recorder = shared.records.begin(head, received);
    shared.stalls.request_came(recorder.index(), received);
    let plan = Plan::draw(&shared.script, &request, recorder.index());
    let record = recorder.record();
    record.request_id = request_id;
    record.chat = chat;
    record.prompt_tokens = request.prompt_tokens;
    record.scripted_tokens = plan.tokens;

    if plan.fate == Fate::Hang {
        // Until the client goes.
        pending::<()>().await;
    }
    shared.leave(received).await;
    if plan.fate == Fate::Http500 {
        recorder.end(Outcome::Http500);
        return object(500, &error(500, "the script fails this request"));
    }
    let Some(place) = shared.gate.enter() else {
        recorder.end(Outcome::Rejected);
        return refuse(&shared.script);
    };
    if let Some(engine) = &shared.engine {
        engine.tokenize(request.prompt_chars).await;
    }
    let answer = answer(&shared.script, recorder.index(), request);
    if answer.request.stream {
        let answer = Answer { doubled: plan.doubled, ..answer };
        let stream = stream::body(shared, answer, plan, place, recorder);
        return events(StreamBody::new(stream).boxed_unsync());
    }
    whole(&shared, answer, plan, place, recorder).await
}

/// Reads and checks a request.
async fn read(
    shared: &Shared,
    http: HttpRequest<Incoming>,
    chat: bool,
) -> Result<Request, Refusal> {
    if let Some(key) = &shared.script.api_key {
        let given = http.headers().get(AUTHORIZATION).and_then(|value| value.to_str().ok());
        if given.and_then(|value| value.strip_prefix("Bearer ")) != Some(key) {
            return Err((401, "Authorization: the key is not the server's".to_owned()));
        }
    }
    match Limited::new(http.into_body(), MAX_BODY_BYTES).collect().await {
        Ok(body) => Request::parse(chat, &body.to_bytes(), &shared.script),
        Err(error) if error.is::<LengthLimitError>() => {
            Err((413, format!("body: more than {MAX_BODY_BYTES} bytes")))
        }
        Err(error) => Err((400, format!("body: {error}"))),
    }
}

/// An answer in one piece, which leaves when its last token is due.
async fn whole(
    shared: &Shared,
    answer: Answer,
    plan: Plan,
    place: OwnedSemaphorePermit,
    mut recorder: Recorder,
) -> Response<Body> {
    let request = answer.request.clone();
    let mut generation = Generation::begin(shared, request, plan, place).await;
    recorder.record().seated_s = Some(to_seconds(generation.base()));
    let mut last = generation.base();
    loop {
        match generation.next(shared).await {
            Next::Tokens { due, .. } => {
                let release = shared.leave(due).await;
                generation.left(release.base);
                last = release.at;
            }
            Next::Error(due) => {
                shared.leave(due).await;
                recorder.end(Outcome::ErrorEvent);
                return object(500, &error(500, "the script ends this answer with an error"));
            }
            Next::Cut(due) => {
                shared.leave(due).await;
                recorder.end(Outcome::Cut);
                let cut = Err(io::Error::other("the script ends the connection"));
                return events(StreamBody::new(futures_util::stream::iter([cut])).boxed_unsync());
            }
            Next::End => break,
        }
    }
    let tokens = recorder.record().scripted_tokens;
    let response = object(200, &answer.whole(tokens, generation.finish().unwrap_or("stop")));
    recorder.written(last, tokens);
    recorder.end(Outcome::Ok);
    response
}

fn answer(script: &Script, index: u64, request: Request) -> Answer {
    let prefix = if request.chat { "chatcmpl" } else { "cmpl" };
    let created = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |time| time.as_secs());
    let id = format!("{prefix}-mock-{index}");
    Answer { id, created, model: script.model.clone(), doubled: None, request }
}

fn header(http: &HttpRequest<Incoming>, name: &str) -> Option<String> {
    let value = http.headers().get(name)?.to_str().ok()?;
    Some(value.chars().take(MAX_ID_BYTES).collect())
}

/// The figures that monitors of vLLM read.
fn metrics(shared: &Shared) -> String {
    let totals = shared.records.totals();
    let model = &shared.script.model;
    let lines = [
        ("gauge", "num_requests_running", shared.gate.running() as u64),
        ("gauge", "num_requests_waiting", shared.gate.waiting() as u64),
        ("counter", "prompt_tokens_total", totals.prompt_tokens),
        ("counter", "generation_tokens_total", totals.output_tokens),
        ("counter", "request_success_total", totals.answered),
    ];
    let text = |(kind, name, value): &(&str, &str, u64)| {
        format!("# TYPE vllm:{name} {kind}\nvllm:{name}{{model_name=\"{model}\"}} {value}\n")
    };
    lines.iter().map(text).collect()
}

fn refuse(script: &Script) -> Response<Body> {
    let mut response = object(429, &error(429, "all places are taken"));
    response.headers_mut().insert(RETRY_AFTER, script.capacity.retry_after_s.into());
    response
}

fn events(body: Body) -> Response<Body> {
    let mut response = Response::new(body);
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, hyper::header::HeaderValue::from_static("text/event-stream"));
    headers.insert(CACHE_CONTROL, hyper::header::HeaderValue::from_static("no-cache"));
    response
}

fn object(status: u16, value: &Value) -> Response<Body> {
    bytes(status, value.to_string().into_bytes(), "application/json")
}

fn bytes(status: u16, body: Vec<u8>, kind: &'static str) -> Response<Body> {
    let body = Full::new(Bytes::from(body)).map_err(|never| match never {}).boxed_unsync();
    let mut response = Response::new(body);
    *response.status_mut() =
        StatusCode::from_u16(status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    let kind = hyper::header::HeaderValue::from_static(kind);
    response.headers_mut().insert(CONTENT_TYPE, kind);
    response
}
