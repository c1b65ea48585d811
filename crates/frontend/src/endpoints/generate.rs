//! What chat and completions share: from an HTTP request to a generation in flight.

use std::sync::Arc;
use std::time::Instant;

use axum::extract::Request;
use axum::response::Response;
use http::HeaderMap;

use crate::api_error::ApiError;
use crate::http::app::{App, unix_s};
use crate::http::auth::KeyDigest;
use crate::http::budget::Charge;
use crate::http::layers::RequestId;
use crate::http::{AskedFor, Tally, collect, read_body, stream};
use crate::lifecycle::InFlight;
use crate::openai::{Format, Head};
use crate::serving::{Generation, Prepared, PromptSource, prepare};
use crate::tenants::{Admission, Tenant};
use crate::validate::{Fields, GenerateParams, Generating, ModelLimits, SloHeaders};

/// A request whose body is parsed and whose model is served.
pub struct Asked<T> {
    /// Validated parameters.
    pub body: T,
    /// The name of the model that it asks for.
    pub model: String,
    /// When it came.
    pub arrived: Instant,
    /// Counts it until it is answered.
    pub in_flight: InFlight,
    /// Whose it is.
    pub tenant: Arc<Tenant>,
    /// Where it is told of, for the access log and the traces.
    pub tally: Option<Arc<Tally>>,
    /// For the memory that the body's content takes, until it is answered.
    pub charge: Charge,
    request_id: String,
}

/// Reads, validates, and counts a request in.
///
/// # Errors
/// 503 while draining or without a device, 4xx for an invalid body, and those of [`App::model`].
pub async fn ask<T: Generating + Send + 'static>(
    app: &App,
    request: Request,
    read: impl FnOnce(&Fields, SloHeaders, ModelLimits) -> Result<T, ApiError> + Send + 'static,
) -> Result<Asked<T>, ApiError> {
    let arrived = Instant::now();
    let in_flight = app.lifecycle.enter()?;
    let tenant: Arc<Tenant> =
        request.extensions().get().cloned().ok_or_else(|| ApiError::internal("no tenant"))?;
    let limits = ModelLimits { terms: tenant.terms, ..app.model_limits()? };
    let RequestId(request_id) =
        request.extensions().get().cloned().ok_or_else(|| ApiError::internal("no request id"))?;
    let tally = request.extensions().get().cloned();
    let headers = request.headers().clone();
    let key =
        request.extensions().get::<KeyDigest>().filter(|_| app.config.cache_salt_by_key).copied();
    let body = read_body(app, request).await?;
    let metrics = app.serving.metrics.clone();
    let parse = move |fields: &Fields| {
        let parsed = read(fields, slo_headers(&headers), limits)?;
        let unknown = fields.unknown().count();
        if unknown > 0 {
            metrics.unknown_fields(unknown);
            tracing::debug!("ignored fields: {:?}", fields.unknown().collect::<Vec<_>>());
        }
        Ok(parsed)
    };
    let (mut body, charge) = body.fields(app, parse).await?;
    let model = app.model(body.model())?;
    let params = body.params_mut();
    params.adapter = model.adapter;
    params.share = tenant.device_share;
    if params.cache_salt == 0 {
        params.cache_salt = tenant.cache_salt;
    }
    if let Some(key) = key {
        params.cache_salt = key.salted(params.cache_salt);
    }
    Ok(Asked { body, model: model.name, arrived, in_flight, tenant, tally, request_id, charge })
}

fn slo_headers(headers: &HeaderMap) -> SloHeaders<'_> {
    let text = |name| headers.get(name).and_then(|v: &http::HeaderValue| v.to_str().ok());
    SloHeaders { ttft_ms: text("x-slo-ttft-ms"), tpot_ms: text("x-slo-tpot-ms") }
}

impl<T> Asked<T> {
    /// Tells the traces what is asked for; `operation` as OpenTelemetry names it.
    pub fn tell(&self, operation: &'static str, params: &GenerateParams) {
        let Some(tally) = &self.tally else { return };
        tally.asks(AskedFor {
            operation,
            model: self.model.clone(),
            n: params.n,
            max_tokens: params.max_tokens,
            temperature: params.temperature,
            top_p: params.top_p,
        });
    }

    /// Id, time and model of the answer. A chosen id is part of it, as in vLLM.
    pub fn head(&self, prefix: &str, params: &GenerateParams) -> Head {
        let id = params.request_id.as_deref().unwrap_or(&self.request_id);
        Head { id: format!("{prefix}{id}"), created: unix_s(), model: self.model.clone() }
    }
}

/// Prepares every prompt, if there is room for its choices, and within what its tenant may have.
///
/// # Errors
/// See [`Admission`], [`App::check_room`] and [`prepare`].
pub async fn prepare_all(
    app: &App,
    tenant: &Arc<Tenant>,
    sources: Vec<PromptSource>,
    params: &GenerateParams,
    echo: bool,
) -> Result<(Vec<Prepared>, Admission), ApiError> {
    let choices = sources.len() * params.n as usize;
    let mut admission = Admission::of(tenant.clone(), choices as u64, Instant::now())?;
    app.check_room(choices, tenant)?;
    let serving = &app.serving;
    let device = serving.port.device();
    let mut prompts = Vec::with_capacity(sources.len());
    for source in sources {
        let prompt = prepare((serving, tenant), &device, source, params, echo).await?;
        prompts.push(prompt);
    }
    let most = |p: &Prepared| (p.ids.len() as u64 + u64::from(p.max_tokens)) * u64::from(params.n);
    admission.reserve(prompts.iter().map(most).sum(), Instant::now())?;
    Ok((prompts, admission))
}

/// Submits the prompts and answers in the requested form.
///
/// # Errors
/// See [`Generation::submit`] and [`collect`].
pub async fn answer(
    app: &Arc<App>,
    (prompts, admission): (&[Prepared], Admission),
    params: &GenerateParams,
    arrived: Instant,
    (in_flight, tally): (InFlight, Option<Arc<Tally>>),
    format: impl Format + 'static,
) -> Result<Response, ApiError> {
    let generation =
        Generation::submit(&app.serving, prompts, params, arrived, (admission, tally))?;
    match params.stream {
        None => {
            let pool = app.serving.lanes.long();
            collect(generation, format, pool, in_flight).await
        }
        Some(options) => {
            let keep_alive = app.config.http.keep_alive_interval;
            Ok(stream(generation, format, options, keep_alive, in_flight))
        }
    }
}
