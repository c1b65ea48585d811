//! The error object of the OpenAI API: what went wrong, in which field, and which side must act.

use std::time::Duration;

use axum::response::{IntoResponse, Response};
use http::{HeaderValue, StatusCode, header};
use serde::Serialize;

/// A refusal or failure that a client sees, as `{"error": {message, type, param, code}}`.
#[derive(Debug, Clone, PartialEq)]
pub struct ApiError {
    /// HTTP status of the answer; inside a stream it only goes to the log.
    pub status: StatusCode,
    /// Sentence for a person; names the field and the bound.
    pub message: String,
    /// Machine-readable reason, also the `reason` label of `saccade:requests_rejected_total`.
    pub code: &'static str,
    /// The request field at fault.
    pub param: Option<String>,
    /// Seconds for the `Retry-After` header, where trying again can help.
    pub retry_after_s: Option<u32>,
}

#[derive(Serialize)]
struct Envelope<'a> {
    error: Body<'a>,
}

#[derive(Serialize)]
struct Body<'a> {
    message: &'a str,
    #[serde(rename = "type")]
    kind: &'static str,
    param: Option<&'a str>,
    code: &'static str,
}

impl ApiError {
    /// An error with a status and a code, about no field in particular.
    pub fn new(status: StatusCode, code: &'static str, message: impl Into<String>) -> Self {
        Self { status, message: message.into(), code, param: None, retry_after_s: None }
    }

    /// 400: the value of `param` is out of bounds.
    pub fn invalid(param: impl Into<String>, message: impl Into<String>) -> Self {
        Self {
            param: Some(param.into()),
            ..Self::new(StatusCode::BAD_REQUEST, "invalid_value", message)
        }
    }

    /// 400: a field of the OpenAI or vLLM API that this server knows and does not implement.
    pub fn unsupported(param: &str) -> Self {
        Self {
            param: Some(param.to_owned()),
            ..Self::new(
                StatusCode::BAD_REQUEST,
                "unsupported_parameter",
                format!("`{param}` is not supported by this server; leave it out"),
            )
        }
    }

    /// 400: the prompt and the tokens asked for do not fit the model's length limit.
    pub fn context_length(param: &str, message: String) -> Self {
        Self {
            param: Some(param.to_owned()),
            ..Self::new(StatusCode::BAD_REQUEST, "context_length_exceeded", message)
        }
    }

    /// 429: at capacity; try again after `retry_after_s`.
    pub fn overloaded(message: impl Into<String>, retry_after_s: u32) -> Self {
        Self {
            retry_after_s: Some(retry_after_s),
            ..Self::new(StatusCode::TOO_MANY_REQUESTS, "server_overloaded", message)
        }
    }

    /// 503: the device plane is not serving yet, or no longer.
    pub fn not_ready(message: impl Into<String>) -> Self {
        Self {
            retry_after_s: Some(1),
            ..Self::new(StatusCode::SERVICE_UNAVAILABLE, "device_not_ready", message)
        }
    }

    /// 503: the device plane died or restarted while it worked on the request.
    pub fn device_lost() -> Self {
        Self {
            retry_after_s: Some(1),
            ..Self::new(
                StatusCode::SERVICE_UNAVAILABLE,
                "device_lost",
                "the device plane was lost while it worked on this request; nothing more will come",
            )
        }
    }

    /// 504: the request took longer than this server lets one take.
    pub fn request_timeout(limit: Duration) -> Self {
        let message = format!("the request took longer than {limit:?} (--request-timeout-s)");
        Self::new(StatusCode::GATEWAY_TIMEOUT, "request_timeout", message)
    }

    /// 503: this frontend plane stood still, and the device plane ended its requests.
    pub fn frontend_stalled() -> Self {
        Self {
            retry_after_s: Some(1),
            ..Self::new(
                StatusCode::SERVICE_UNAVAILABLE,
                "frontend_stalled",
                "this frontend plane was stopped or starved for too long, so the device plane ended \
                 its requests; nothing more will come",
            )
        }
    }

    /// 503: the server is draining.
    pub fn shutting_down() -> Self {
        Self {
            retry_after_s: Some(1),
            ..Self::new(
                StatusCode::SERVICE_UNAVAILABLE,
                "server_shutting_down",
                "the server is shutting down and takes no new requests",
            )
        }
    }

    /// 500: a fault of this server.
    pub fn internal(message: impl Into<String>) -> Self {
        Self::new(StatusCode::INTERNAL_SERVER_ERROR, "internal_error", message)
    }

    /// The `type` of the error object, which follows from the status.
    pub fn kind(&self) -> &'static str {
        match self.status.as_u16() {
            401 => "authentication_error",
            403 => "permission_error",
            404 => "not_found_error",
            429 => "rate_limit_error",
            400..=499 => "invalid_request_error",
            _ => "server_error",
        }
    }

    /// The error object as JSON text.
    pub fn to_json(&self) -> String {
        let body = Body {
            message: &self.message,
            kind: self.kind(),
            param: self.param.as_deref(),
            code: self.code,
        };
        // Strings and options of strings always serialise.
        serde_json::to_string(&Envelope { error: body }).unwrap_or_default()
    }
}

impl IntoResponse for ApiError {
    fn into_response(self) -> Response {
        let mut response = (
            self.status,
            [(header::CONTENT_TYPE, HeaderValue::from_static("application/json"))],
            self.to_json(),
        )
            .into_response();
        let headers = response.headers_mut();
        if let Some(seconds) = self.retry_after_s {
            headers.insert(header::RETRY_AFTER, HeaderValue::from(seconds));
        }
        if self.status == StatusCode::UNAUTHORIZED {
            headers.insert(header::WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
        }
        response.extensions_mut().insert(Reason(self.code));
        response
    }
}

/// Left in the response's extensions, so that one place counts refusals by reason.
#[derive(Debug, Clone, Copy)]
pub struct Reason(pub &'static str);
