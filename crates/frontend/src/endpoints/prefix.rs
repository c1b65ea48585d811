//! `POST /reset_prefix_cache`

use std::sync::Arc;

use axum::extract::State;

use crate::api_error::ApiError;
use crate::http::app::App;

/// No later request finds KV that was computed before; requests in flight go on. An empty answer,
/// as vLLM's, also where prefixes are not kept: then there is nothing to find either.
pub async fn reset(State(app): State<Arc<App>>) -> Result<&'static str, ApiError> {
    let done = app.on_port(|port| port.reset_prefixes()).await?;
    done.map_err(|e| ApiError::not_ready(format!("the prefix cache was not reset: {e}")))?;
    tracing::info!("the prefix cache was reset");
    Ok("")
}
