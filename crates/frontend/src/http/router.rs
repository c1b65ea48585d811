//! Which path goes where.

use std::sync::Arc;

use axum::Router;
use axum::middleware::{from_fn, from_fn_with_state};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use http::StatusCode;

use super::app::App;
use super::host;
use super::layers;
use crate::api_error::ApiError;
use crate::endpoints::{
    adapters, chat, completions, embeddings, messages, models, page, prefix, render, responses,
    roof, status, tokens,
};
use crate::error::FrontendError;

/// Paths of probes, scrapers and people, which have no spans: they come by the second, and say
/// nothing of a request.
const PROBES: [&str; 6] = ["/health", "/ready", "/metrics", "/version", "/", "/ui/state"];

/// Whether this route is not of the API.
pub fn is_probe(route: &str) -> bool {
    PROBES.contains(&route)
}

/// All routes.
///
/// # Errors
/// For CORS settings that are not valid.
pub fn router(app: &Arc<App>) -> Result<Router, FrontendError> {
    // The key is required where the routes are, not by comparing paths.
    let guarded = Router::new()
        .route("/v1/chat/completions", post(chat::chat_completions))
        .route("/v1/chat/completions/render", post(render::chat))
        .route("/v1/completions", post(completions::completions))
        .route("/v1/completions/render", post(render::completions))
        .route("/v1/embeddings", post(embeddings::embeddings))
        .route("/v1/messages", post(messages::messages))
        .route("/v1/messages/count_tokens", post(messages::count_tokens))
        .route("/v1/responses", post(responses::responses))
        .route("/v1/models", get(models::list))
        .route("/v1/models/{*id}", get(models::one))
        .route("/v1/load_lora_adapter", post(adapters::refuse))
        .route("/v1/unload_lora_adapter", post(adapters::refuse))
        .route("/reset_prefix_cache", post(prefix::reset))
        .route("/measure_roof", post(roof::measure))
        .route("/tokenize", post(tokens::tokenize))
        .route("/detokenize", post(tokens::detokenize))
        .route_layer(from_fn_with_state(app.tenants.clone(), layers::authorize));
    let mut routes = Router::new()
        .merge(guarded)
        .route("/health", get(status::health))
        .route("/ready", get(status::ready))
        .route("/metrics", get(status::metrics))
        .route("/version", get(status::version));
    if app.config.ui {
        routes = routes.route("/", get(page::page)).route("/ui/state", get(page::state));
    }
    let mut routes = routes
        .fallback(not_found)
        .method_not_allowed_fallback(method_not_allowed)
        .layer(from_fn_with_state(app.allowed_hosts.clone(), host::check))
        .layer(from_fn(catch_panic))
        .layer(from_fn_with_state(app.clone(), layers::around));
    if let Some(cors) = layers::cors(&app.config.cors)? {
        routes = routes.layer(cors);
    }
    Ok(routes.with_state(app.clone()))
}

async fn not_found() -> ApiError {
    ApiError::new(StatusCode::NOT_FOUND, "not_found", "there is nothing at this path")
}

async fn method_not_allowed() -> ApiError {
    let message = "this path does not take this method";
    ApiError::new(StatusCode::METHOD_NOT_ALLOWED, "method_not_allowed", message)
}

/// A handler that panics costs its request only.
async fn catch_panic(request: axum::extract::Request, next: axum::middleware::Next) -> Response {
    use futures_util::FutureExt;
    let run = std::panic::AssertUnwindSafe(next.run(request));
    match run.catch_unwind().await {
        Ok(response) => response,
        Err(_) => ApiError::internal("the server failed on this request").into_response(),
    }
}
