//! `GET /v1/models` and `GET /v1/models/{id}`

use std::sync::Arc;

use axum::extract::{Path, State};
use axum::response::{IntoResponse, Response};
use serde::Serialize;

use crate::api_error::ApiError;
use crate::http::app::App;

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
    parent: Option<()>,
    /// Tokens; `null` until the device is ready.
    max_model_len: Option<u32>,
}

/// All served names.
pub async fn list(State(app): State<Arc<App>>) -> Response {
    let data = app.names.iter().map(|name| model(&app, name)).collect();
    super::status::json(&Models { object: "list", data })
}

/// One served name; it may hold slashes.
pub async fn one(State(app): State<Arc<App>>, Path(id): Path<String>) -> Response {
    match app.model_name(Some(&id)) {
        Ok(name) => super::status::json(&model(&app, &name)),
        Err(error) => ApiError::into_response(error),
    }
}

fn model<'a>(app: &'a App, name: &'a str) -> Model<'a> {
    let device = app.serving.port.device();
    Model {
        id: name,
        object: "model",
        created: app.started_unix_s,
        owned_by: "saccade",
        root: &app.config.model,
        parent: None,
        max_model_len: device.ready().then_some(device.max_model_len),
    }
}
