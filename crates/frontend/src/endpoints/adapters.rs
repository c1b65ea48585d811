//! `POST /v1/load_lora_adapter` and `POST /v1/unload_lora_adapter`, which vLLM has where an
//! environment variable allows them.

use http::StatusCode;

use crate::api_error::ApiError;

/// Adapters stay what they were at the start: the device plane allocates nothing after it.
pub async fn refuse() -> ApiError {
    ApiError::new(
        StatusCode::NOT_IMPLEMENTED,
        "adapters_are_fixed",
        "adapters are loaded when the server starts, and not while it runs; restart it with the \
         adapters in --lora-modules",
    )
}
