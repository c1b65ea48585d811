//! Anthropic's Messages API, as its clients and agents speak it: requests become chat requests, and
//! answers content blocks.

mod format;
mod read;

pub use format::MessagesFormat;
pub use read::{read_count, read_messages};

use axum::response::{IntoResponse, Response};
use serde_json::json;

use crate::api_error::ApiError;

/// An error object of this API.
pub fn error_json(error: &ApiError) -> serde_json::Value {
    let kind = match error.status.as_u16() {
        401 => "authentication_error",
        403 => "permission_error",
        404 => "not_found_error",
        413 => "request_too_large",
        429 => "rate_limit_error",
        503 => "overloaded_error",
        400..=499 => "invalid_request_error",
        _ => "api_error",
    };
    json!({"type": "error", "error": {"type": kind, "message": error.message}})
}

/// A refusal in this API's shape.
pub fn refusal(error: ApiError) -> Response {
    let body = error_json(&error).to_string();
    let (parts, _) = error.into_response().into_parts();
    Response::from_parts(parts, body.into())
}
