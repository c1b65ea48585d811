//! `GET /health`, `/ready`, `/metrics`, `/version`

use std::sync::Arc;

use axum::extract::State;
use axum::response::{IntoResponse, Response};
use http::{HeaderValue, header};
use serde::Serialize;

use super::roof::DeviceRoof;
use crate::api_error::ApiError;
use crate::http::app::App;
use crate::lifecycle::Stage;

/// Text of Prometheus' exposition format.
const METRICS_TYPE: HeaderValue =
    HeaderValue::from_static("text/plain; version=0.0.4; charset=utf-8");

/// An answer with a JSON body.
pub fn json(value: &impl Serialize) -> Response {
    match serde_json::to_vec(value) {
        Ok(body) => {
            let content_type = HeaderValue::from_static("application/json");
            ([(header::CONTENT_TYPE, content_type)], body).into_response()
        }
        Err(error) => ApiError::internal(error.to_string()).into_response(),
    }
}

/// The process is alive. It may still have no device: see [`ready`].
pub async fn health() -> &'static str {
    ""
}

/// 200 when requests are taken; 503 with the reason while there is no device or it is draining.
pub async fn ready(State(app): State<Arc<App>>) -> Result<&'static str, ApiError> {
    if app.lifecycle.stage() != Stage::Serving {
        return Err(ApiError::shutting_down());
    }
    app.model_limits().map(|_| "")
}

/// All series.
pub async fn metrics(State(app): State<Arc<App>>) -> Result<Response, ApiError> {
    // Off the reactor, not between two tokens of a stream: it reads files of /proc, and waits for
    // threads that are in the middle of a sample, however long they have been descheduled there.
    let rendered = tokio::task::spawn_blocking(move || {
        let serving = &app.serving;
        serving.metrics.device.set(&app.reading());
        serving.metrics.device.set_roof(serving.port.roof().as_ref());
        if let Some(log) = &app.access_log {
            serving.metrics.access_log_dropped(log.dropped());
        }
        if let Some(traces) = &app.traces {
            serving.metrics.trace_spans(traces.counts());
        }
        serving.metrics.tenants.set(&app.tenants.counts());
        serving.metrics.tokenizer.set(serving.assets.tokenizer.cache_counters());
        let (adapters, most) = (app.models.adapters(), app.config.max_adapters);
        serving.metrics.adapters.set(adapters, most, serving.registry.uses.now());
        serving.metrics.planes.refresh(&serving.port.device());
        serving.metrics.render()
    });
    let failed = |e: &dyn std::fmt::Display| ApiError::internal(e.to_string());
    let text = rendered.await.map_err(|e| failed(&e))?.map_err(|e| failed(&e))?;
    Ok(([(header::CONTENT_TYPE, METRICS_TYPE)], text).into_response())
}

#[derive(Serialize)]
struct Version {
    version: &'static str,
    /// None while there is no device, and for devices that do not measure it.
    device: Option<DeviceRoof>,
}

/// The build, and what the device's machine allows.
pub async fn version(State(app): State<Arc<App>>) -> Result<Response, ApiError> {
    let roof = app.on_port(|port| port.roof()).await?;
    let version = env!("CARGO_PKG_VERSION");
    Ok(json(&Version { version, device: roof.map(DeviceRoof::from) }))
}
