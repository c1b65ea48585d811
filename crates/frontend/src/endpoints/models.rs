//! `GET /v1/models` and `GET /v1/models/{id}`

use std::sync::Arc;

use axum::extract::{Path, State};
use axum::response::Response;
use serde::Serialize;

use crate::api_error::ApiError;
use crate::config::Adapter;
use crate::http::app::App;
use crate::validate::ModelLimits;

#[derive(Serialize)]
struct Models<'a> {
    object: &'static str,
    data: Vec<Model<'a>>,
}

#[derive(Serialize)]
struct Model<'a> {
    id: &'a str,
    object: &'static str,
    created: u64,
    owned_by: &'static str,
    root: &'a str,
    /// Of an adapter: the model that it belongs to.
    parent: Option<&'a str>,
    /// Tokens, prompt and produced.
    max_model_len: u32,
    permission: [Permission; 1],
}

/// What OpenAI's API had here once, and vLLM still has; the same for every client.
#[derive(Serialize)]
struct Permission {
    id: String,
    object: &'static str,
    created: u64,
    allow_create_engine: bool,
    allow_sampling: bool,
    allow_logprobs: bool,
    allow_search_indices: bool,
    allow_view: bool,
    allow_fine_tuning: bool,
    organization: &'static str,
    group: Option<()>,
    is_blocking: bool,
}

/// All served names, then the adapters that the device has. 503 until the device is ready: routers
/// and benchmark clients use this path as a readiness check.
///
/// # Errors
/// 503
pub async fn list(State(app): State<Arc<App>>) -> Result<Response, ApiError> {
    let limits = app.model_limits()?;
    let models = &app.models;
    let loaded = app.serving.port.device().num_adapters as usize;
    let names = models.names().iter().map(|name| model(&app, limits, name));
    let adapters = models.adapters().iter().take(loaded);
    let data = names.chain(adapters.map(|adapter| of_adapter(&app, limits, adapter))).collect();
    Ok(super::status::json(&Models { object: "list", data }))
}

/// One served name, or an adapter's; it may hold slashes.
///
/// # Errors
/// 404 for another name, 503 as for the list and for an adapter that the device lacks.
pub async fn one(
    State(app): State<Arc<App>>,
    Path(id): Path<String>,
) -> Result<Response, ApiError> {
    let limits = app.model_limits()?;
    let named = app.model(Some(&id))?;
    let adapter =
        (named.adapter as usize).checked_sub(1).and_then(|i| app.models.adapters().get(i));
    let found = match adapter {
        Some(adapter) => of_adapter(&app, limits, adapter),
        None => model(&app, limits, &named.name),
    };
    Ok(super::status::json(&found))
}

fn model<'a>(app: &'a App, limits: ModelLimits, name: &'a str) -> Model<'a> {
    Model {
        id: name,
        object: "model",
        created: app.started_unix_s,
        owned_by: "saccade",
        root: &app.config.model,
        parent: None,
        max_model_len: limits.max_model_len,
        permission: [permission(name, app.started_unix_s)],
    }
}

fn of_adapter<'a>(app: &'a App, limits: ModelLimits, adapter: &'a Adapter) -> Model<'a> {
    Model {
        root: &adapter.path,
        parent: Some(adapter.base_model.as_deref().unwrap_or(app.models.first())),
        ..model(app, limits, &adapter.name)
    }
}

fn permission(name: &str, created: u64) -> Permission {
    Permission {
        id: format!("modelperm-{name}"),
        object: "model_permission",
        created,
        allow_create_engine: false,
        allow_sampling: true,
        allow_logprobs: true,
        allow_search_indices: false,
        allow_view: true,
        allow_fine_tuning: false,
        organization: "*",
        group: None,
        is_blocking: false,
    }
}
