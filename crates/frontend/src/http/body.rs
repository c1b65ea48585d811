//! Reading a request's body: bounded in bytes, in time, and in memory shared with all other bodies.

use axum::body::{Body, HttpBody};
use axum::extract::Request;
use http::{HeaderMap, StatusCode, header};
use http_body_util::BodyExt;
use tokio::sync::OwnedSemaphorePermit;
use tokio::time::{Instant, timeout_at};

use super::app::{App, BODY_PERMIT_BYTES};
use crate::api_error::ApiError;
use crate::serving::pool_error;
use crate::text::pool::is_long;
use crate::validate::Fields;

/// A body, and its share of the memory for bodies.
pub struct ReadBody {
    bytes: Vec<u8>,
    permit: Option<OwnedSemaphorePermit>,
}

/// Reads a JSON body.
///
/// # Errors
/// 415 for another media type, 413 beyond `max_body_bytes`, 408 after `body_read_timeout`, 429 if
/// bodies being read have used up their memory.
pub async fn read_body(app: &App, request: Request) -> Result<ReadBody, ApiError> {
    check_media_type(request.headers())?;
    let limits = &app.config.http;
    let announced = request.body().size_hint().lower();
    if announced > limits.max_body_bytes as u64 {
        return Err(too_large(limits.max_body_bytes));
    }
    let deadline = Instant::now() + limits.body_read_timeout;
    let mut read = ReadBody { bytes: Vec::new(), permit: None };
    let mut body: Body = request.into_body();
    loop {
        let frame = timeout_at(deadline, body.frame()).await.map_err(|_| {
            ApiError::new(
                StatusCode::REQUEST_TIMEOUT,
                "body_timeout",
                format!("the body took longer than {:?}", limits.body_read_timeout),
            )
        })?;
        let Some(frame) = frame else { return Ok(read) };
        let frame = frame.map_err(|e| {
            ApiError::new(
                StatusCode::BAD_REQUEST,
                "body_broken",
                format!("the body broke off: {e}"),
            )
        })?;
        let Ok(data) = frame.into_data() else { continue };
        if read.bytes.len() + data.len() > limits.max_body_bytes {
            return Err(too_large(limits.max_body_bytes));
        }
        let permits = data.len().div_ceil(BODY_PERMIT_BYTES) as u32;
        let permit = app
            .body_budget
            .clone()
            .try_acquire_many_owned(permits)
            .map_err(|_| ApiError::overloaded("too many request bodies are being read", 1))?;
        read.keep(permit);
        read.bytes.extend_from_slice(&data);
    }
}

impl ReadBody {
    /// What `read` makes of the fields; a long body is parsed in the lane of long prompts.
    ///
    /// # Errors
    /// 400 if it is not a JSON object, 429 if the lane's queue is full, and those of `read`.
    pub async fn fields<T: Send + 'static>(
        self,
        app: &App,
        read: impl FnOnce(&Fields) -> Result<T, ApiError> + Send + 'static,
    ) -> Result<T, ApiError> {
        let len = self.bytes.len();
        // The share of the memory goes with the bytes.
        let parse = move || read(&Fields::parse(&self.bytes)?);
        if !is_long(len) {
            return parse();
        }
        app.serving.lanes.of(len).run(parse).await.map_err(pool_error)?
    }

    fn keep(&mut self, permit: OwnedSemaphorePermit) {
        match &mut self.permit {
            Some(held) => held.merge(permit),
            None => self.permit = Some(permit),
        }
    }
}

/// Only JSON: a browser can send other types to this server from any page without asking first.
fn check_media_type(headers: &HeaderMap) -> Result<(), ApiError> {
    let given = headers.get(header::CONTENT_TYPE).and_then(|v| v.to_str().ok()).unwrap_or_default();
    let media_type = given.split(';').next().unwrap_or_default().trim();
    if media_type.eq_ignore_ascii_case("application/json") {
        return Ok(());
    }
    Err(ApiError::new(
        StatusCode::UNSUPPORTED_MEDIA_TYPE,
        "unsupported_media_type",
        "the content type must be application/json",
    ))
}

fn too_large(max_bytes: usize) -> ApiError {
    ApiError::new(
        StatusCode::PAYLOAD_TOO_LARGE,
        "body_too_large",
        format!("the body must have at most {max_bytes} bytes"),
    )
}
