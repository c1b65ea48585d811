//! Reading a request's body: bounded in bytes, in time, and in memory shared with all other bodies.

use axum::body::{Body, HttpBody};
use axum::extract::Request;
use http::{HeaderMap, StatusCode, header};
use http_body_util::BodyExt;
use tokio::time::{Instant, timeout_at};

use super::app::App;
use super::budget::{Charge, MemoryBudget};
use crate::api_error::ApiError;
use crate::serving::pool_error;
use crate::text::pool::is_long;
use crate::validate::Fields;

/// A body, and its share of the memory for bodies.
#[derive(Default)]
pub struct ReadBody {
    bytes: Vec<u8>,
    charge: Charge,
}

/// Reads a JSON body.
///
/// # Errors
/// 415 for another media type or a coded body, 413 beyond `max_body_bytes`, 408 after
/// `body_read_timeout`, 429 if other large requests hold the memory that this one needs.
pub async fn read_body(app: &App, request: Request) -> Result<ReadBody, ApiError> {
    check_media_type(request.headers())?;
    check_coding(request.headers())?;
    let limits = &app.config.http;
    let announced = request.body().size_hint().lower();
    if announced > limits.max_body_bytes as u64 {
        return Err(too_large(limits.max_body_bytes));
    }
    let deadline = Instant::now() + limits.body_read_timeout;
    let mut read = ReadBody::default();
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
        read.reserve(data.len(), limits.max_body_bytes, &app.memory)?;
        read.bytes.extend_from_slice(&data);
    }
}

impl ReadBody {
    /// What `read` makes of the fields, and the body's charge, for as long as that is held; a long
    /// body is parsed in the lane of long prompts.
    ///
    /// # Errors
    /// 400 if it is not a JSON object, 429 if the lane's queue is full, and those of `read`.
    pub async fn fields<T: Send + 'static>(
        self,
        app: &App,
        read: impl FnOnce(&Fields) -> Result<T, ApiError> + Send + 'static,
    ) -> Result<(T, Charge), ApiError> {
        let len = self.bytes.len();
        // What was read out of the body takes its place in memory.
        let parse = move || Ok((read(&Fields::parse(&self.bytes)?)?, self.charge));
        if !is_long(len) {
            return parse();
        }
        app.serving.lanes.of(len).run(parse).await.map_err(pool_error)?
    }

    /// Room for `more` bytes, charged before it is taken.
    fn reserve(
        &mut self,
        more: usize,
        max_bytes: usize,
        memory: &MemoryBudget,
    ) -> Result<(), ApiError> {
        let needed = self.bytes.len() + more;
        if needed <= self.bytes.capacity() {
            return Ok(());
        }
        let room = needed.max((2 * self.bytes.capacity()).min(max_bytes));
        self.charge.cover(memory, room)?;
        self.bytes.reserve_exact(room - self.bytes.len());
        Ok(())
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

/// A body in a coding is refused: taken as it is, it would be another body than the client's.
fn check_coding(headers: &HeaderMap) -> Result<(), ApiError> {
    let mut codings = headers.get_all(header::CONTENT_ENCODING).iter();
    if codings.all(|coding| coding.as_bytes().eq_ignore_ascii_case(b"identity")) {
        return Ok(());
    }
    Err(ApiError::new(
        StatusCode::UNSUPPORTED_MEDIA_TYPE,
        "unsupported_content_encoding",
        "the body must not be compressed: content-encoding must be identity or absent",
    ))
}

fn too_large(max_bytes: usize) -> ApiError {
    ApiError::new(
        StatusCode::PAYLOAD_TOO_LARGE,
        "body_too_large",
        format!("the body must have at most {max_bytes} bytes"),
    )
}
