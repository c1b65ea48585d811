//! How a frontend is assembled, and its life.

use std::net::SocketAddr;
use std::sync::Arc;
use std::thread::JoinHandle;

use saccade_ring::{FrontendRing, JoinOptions, Transport};

use crate::anthropic::read_messages;
use crate::api_error::ApiError;
use crate::config::FrontendConfig;
use crate::error::FrontendError;
use crate::http::app::{App, unix_s};
use crate::http::budget::MemoryBudget;
use crate::http::{
    Acceptor, AccessLog, AccessLogConfig, AllowedHosts, Connections, Listening, Tls, router,
    serve_connections,
};
use crate::lifecycle::{Lifecycle, Stage};
use crate::metrics::{Metrics, SloTargets};
use crate::responses::read_responses;
use crate::ring::{DevicePort, ReaderHandle, ReaderSettings, Registry, spawn_reader};
use crate::served::ServedModels;
use crate::serving::{Grammars, ModelAssets, Serving};
use crate::tenants::{Defaults, KeySources, OwnTargets, Tenants, Terms};
use crate::text::pool::Lanes;
use crate::traces::{Exporting, Traces};
use crate::validate::{
    ChatRequest, CompletionRequest, DetokenizeRequest, Fields, ModelLimits, SloHeaders,
    TokenizeRequest,
};
use crate::watched::{Watched, watch};

/// A frontend that has joined its region and bound its socket, and does not serve yet.
pub struct Frontend {
    app: Arc<App>,
    listening: Listening,
    /// Spans on their way, if there are any.
    exporting: Option<Exporting>,
    /// Declared last, so that it still handles the tickets that the fields above cancel.
    reader: ReaderHandle,
}

/// Shuts a frontend down, from anywhere.
#[derive(Clone)]
pub struct ShutdownHandle {
    lifecycle: Lifecycle,
}

impl ShutdownHandle {
    /// No longer ready, no new requests; requests in flight have `drain_timeout` to end.
    pub fn drain(&self) {
        self.lifecycle.advance(Stage::Draining);
    }

    /// Requests in flight end now, each with an error.
    pub fn stop(&self) {
        self.lifecycle.advance(Stage::Stopping);
    }

    /// The current stage.
    pub fn stage(&self) -> Stage {
        self.lifecycle.stage()
    }
}

fn tenants(config: &FrontendConfig) -> Result<Arc<Tenants>, FrontendError> {
    let own = OwnTargets::from_s(config.slo.ttft_s, config.slo.tpot_s);
    let terms = if config.request_priority { Terms::ANY } else { Terms::ordinary(own) };
    let tenants = Tenants::read(KeySources {
        keys: config.api_keys.clone(),
        key_file: config.api_key_file.clone(),
        tenants_file: config.tenants.clone(),
        defaults: Defaults { terms, own },
    })?;
    if config.cache_salt_by_key && !tenants.keys_required() {
        let reason = "there are no keys to tell requests apart by (api_keys)".into();
        return Err(FrontendError::Config { field: "cache_salt_by_key", reason });
    }
    Ok(Arc::new(tenants))
}

impl Frontend {
    /// Loads what the model needs, joins the region behind the transport, and binds the socket.
    /// Blocks while it does.
    ///
    /// # Errors
    /// See [`FrontendError`].
    pub fn start_on<T: Transport + 'static>(
        config: FrontendConfig,
        transport: T,
    ) -> Result<Self, FrontendError> {
        let tenants = tenants(&config)?;
        let access_log = config.access_log.as_ref().map(access_log).transpose()?;
        let traces = config.traces.as_ref().map(Traces::start).transpose()?;
        let (traces, exporting) = traces.unzip();
        let tls = config.tls.clone().map(Tls::read).transpose()?.map(Arc::new);
        let assets = Arc::new(ModelAssets::load(&config)?);
        let models = Arc::new(ServedModels::of(&config)?);
        let metrics = metrics(models.first(), &config)?;
        let lanes = Lanes::start(config.tokenizer_threads, config.tokenizer_queue)?;
        let options =
            JoinOptions { device_lost_after: config.device_lost_after, ..JoinOptions::default() };
        let ring = FrontendRing::join_with(transport, config.frontend_index, options)?;
        let (submitter, reader) = ring.split();
        let port: Arc<dyn DevicePort> = Arc::new(submitter);
        let registry = Arc::new(Registry::new(config.http_threads)?);
        let settings = ReaderSettings {
            spin: config.reader_spin,
            poll: config.reader_poll.unwrap_or(ReaderSettings::default().poll),
        };
        let reader = spawn_reader(reader, port.clone(), registry.clone(), settings)?;
        let listening = Listening::bind(&config.listen)?;
        let keys_required = tenants.keys_required();
        let hosts = AllowedHosts::of(&config.allowed_hosts, listening.tcp_addr(), keys_required);
        let app = App {
            allowed_hosts: Arc::new(hosts),
            access_log,
            traces,
            tls,
            models,
            serving: Serving {
                port,
                registry,
                thread: 0,
                grammars: Arc::new(Grammars::new(assets.clone(), &config)),
                assets,
                lanes,
                request_timeout: config.request_timeout,
                metrics,
            },
            lifecycle: Lifecycle::default(),
            reader: reader.counters(),
            connections: Connections::new(config.http.max_connections),
            tenants,
            memory: MemoryBudget::new(config.http.max_body_bytes_total),
            started_unix_s: unix_s(),
            config,
        };
        Ok(Self { app: Arc::new(app), listening, exporting, reader })
    }

    /// Where it listens, in readable form.
    pub fn address(&self) -> String {
        let address = self.listening.address();
        match self.app.tls {
            Some(_) => address.replacen("http://", "https://", 1),
            None => address,
        }
    }

    /// The TCP address it listens on, if it is one.
    pub fn tcp_addr(&self) -> Option<SocketAddr> {
        self.listening.tcp_addr()
    }

    /// The handle that ends it.
    pub fn shutdown_handle(&self) -> ShutdownHandle {
        ShutdownHandle { lifecycle: self.app.lifecycle.clone() }
    }

    /// Serves on threads of its own until the handle has drained or stopped it.
    ///
    /// # Errors
    /// For invalid settings of the HTTP side, and if the system refuses a thread.
    pub async fn run(self) -> Result<(), FrontendError> {
        let Self { app, listening, exporting, reader } = self;
        let threads: Vec<_> = (0..app.serving.registry.threads())
            .map(|thread| http_thread(&app, &listening, thread))
            .collect::<Result<_, _>>()
            .inspect_err(|_| app.lifecycle.advance(Stage::Stopping))?;
        tokio::select! {
            () = end_of_life(&app) => {}
            () = watch(watched(&app), app.serving.metrics.clone()) => {}
        }
        drop(listening);
        let served = tokio::task::spawn_blocking(move || {
            let panicked =
                |_| Err(std::io::Error::other("a thread that serves connections failed"));
            threads.into_iter().try_for_each(|thread| thread.join().unwrap_or_else(panicked))
        });
        served.await.map_err(|e| FrontendError::Io(std::io::Error::other(e)))??;
        // Joining the reader's thread takes up to its longest sleep.
        let joined = tokio::task::spawn_blocking(move || {
            drop(reader);
            if let Some(exporting) = exporting {
                exporting.flush();
            }
        })
        .await;
        joined.map_err(|e| FrontendError::Io(std::io::Error::other(e)))
    }
}

/// Loads, joins, binds and serves; `started` gets the address and the handle before the first
/// connection is accepted.
///
/// # Errors
/// See [`FrontendError`].
pub async fn serve<T: Transport + 'static>(
    config: FrontendConfig,
    transport: T,
    started: impl FnOnce(&str, ShutdownHandle),
) -> Result<(), FrontendError> {
    let joined = tokio::task::spawn_blocking(move || {
        // Binding registers the socket with the runtime that this thread belongs to.
        Frontend::start_on(config, transport)
    });
    let frontend = joined.await.map_err(|e| FrontendError::Io(std::io::Error::other(e)))??;
    started(&frontend.address(), frontend.shutdown_handle());
    frontend.run().await
}

/// A frontend ends with the first of its threads that serve connections, so that the supervisor
/// starts another: the connections of that thread would wait for ever.
struct StopAtEnd(Lifecycle);

impl Drop for StopAtEnd {
    fn drop(&mut self) {
        self.0.advance(Stage::Stopping);
    }
}

/// A thread that serves connections, with a runtime of its own: no other thread's tasks wait for
/// it, whatever it holds when it is descheduled ([ADR 19](../docs/adr/0019-stopped-threads.md)).
fn http_thread(
    app: &App,
    listening: &Listening,
    thread: usize,
) -> Result<JoinHandle<std::io::Result<()>>, FrontendError> {
    let serving = Serving { thread, ..app.serving.clone() };
    let (whole, lifecycle) = (app.lifecycle.clone(), app.lifecycle.for_thread());
    let app = Arc::new(App { serving, lifecycle: lifecycle.clone(), ..app.clone() });
    let router = router(&app)?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let acceptor = {
        let _of = runtime.enter();
        Acceptor::of(listening)?
    };
    let registry = app.serving.registry.clone();
    let stop = StopAtEnd(whole.clone());
    let run = move || {
        let _stop = stop;
        runtime.block_on(async {
            // A task of its own: it is polled when a stage comes, not with every token.
            tokio::spawn(whole.relay(lifecycle));
            tokio::select! {
                () = serve_connections(acceptor, app, router) => Ok(()),
                failed = registry.wake_tasks(thread) => failed,
            }
        })
    };
    Ok(std::thread::Builder::new().name(format!("http-{thread}")).spawn(run)?)
}

/// Draining ends when the last request has, or when its time is over; stopping ends every remaining
/// request with an error.
async fn end_of_life(app: &App) {
    let lifecycle = &app.lifecycle;
    lifecycle.reached(Stage::Draining).await;
    tokio::select! {
        () = lifecycle.idle() => {}
        () = lifecycle.reached(Stage::Stopping) => {}
        () = tokio::time::sleep(app.config.drain_timeout) => {
            tracing::warn!("drain timeout: {} requests are ended", lifecycle.in_flight());
        }
    }
    lifecycle.advance(Stage::Stopping);
    app.serving.registry.stop();
}

fn access_log(config: &AccessLogConfig) -> Result<Arc<AccessLog>, FrontendError> {
    if !(config.sample_rate > 0.0 && config.sample_rate <= 1.0) {
        let reason = format!("must be above 0 and at most 1, got {}", config.sample_rate);
        return Err(FrontendError::Config { field: "access_log_sample_rate", reason });
    }
    let path = config.path.display().to_string();
    let started = AccessLog::start(config).map(Arc::new);
    started.map_err(|e| FrontendError::File { path, reason: e.to_string() })
}

/// What is read from files that may change.
fn watched(app: &App) -> Vec<Arc<dyn Watched>> {
    let tls = app.tls.clone().map(|tls| tls as Arc<dyn Watched>);
    std::iter::once(app.tenants.clone() as Arc<dyn Watched>).chain(tls).collect()
}

fn metrics(model: &str, config: &FrontendConfig) -> Result<Arc<Metrics>, FrontendError> {
    let slo =
        SloTargets { ttft_s: f64::from(config.slo.ttft_s), tpot_s: f64::from(config.slo.tpot_s) };
    Metrics::new(model, slo, config.kv_cache_dtype)
        .map_err(|e| FrontendError::Config { field: "metrics", reason: e.to_string() })
}

/// An endpoint that takes a body.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Endpoint {
    /// `/v1/chat/completions`
    Chat,
    /// `/v1/messages`
    Messages,
    /// `/v1/responses`
    Responses,
    /// `/v1/completions`
    Completions,
    /// `/tokenize`
    Tokenize,
    /// `/detokenize`
    Detokenize,
}

/// Parses and validates a body as the endpoint would, without a device: the entry point of the
/// fuzzer and of the tests of the bounds.
///
/// # Errors
/// What the client would be told.
pub fn fuzz_http_body(endpoint: Endpoint, body: &[u8]) -> Result<(), ApiError> {
    let limits =
        ModelLimits { vocab_size: 1000, max_model_len: 4096, priority: false, terms: Terms::ANY };
    let fields = Fields::parse(body)?;
    let slo = SloHeaders::default();
    match endpoint {
        Endpoint::Chat => ChatRequest::read(&fields, slo, limits).map(drop),
        Endpoint::Messages => read_messages(&fields, slo, limits).map(drop),
        Endpoint::Responses => read_responses(&fields, slo, limits).map(drop),
        Endpoint::Completions => CompletionRequest::read(&fields, slo, limits).map(drop),
        Endpoint::Tokenize => TokenizeRequest::read(&fields).map(drop),
        Endpoint::Detokenize => DetokenizeRequest::read(&fields, limits).map(drop),
    }
}
