//! What happens around every request: its id, its key, and the count of refusals.

use std::sync::Arc;

use axum::extract::{Request, State};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode};
use tower_http::cors::{AllowHeaders, AllowMethods, AllowOrigin, CorsLayer};

use super::app::App;
use super::auth::KeyDigest;
use super::exchange::Exchange;
use crate::api_error::{ApiError, Reason};
use crate::config::Cors;
use crate::error::FrontendError;
use crate::limits::MAX_REQUEST_ID_BYTES;
use crate::tenants::Tenants;

/// The header that names a request, in and out.
pub const REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");

/// The id of a request, in its extensions: visible ASCII.
#[derive(Clone)]
pub struct RequestId(pub String);

/// Gives every request an id, the client's own if it has one, and answers with it; counts refusals.
pub async fn around(State(app): State<Arc<App>>, mut request: Request, next: Next) -> Response {
    let id = client_id(request.headers()).unwrap_or_else(random_id);
    request.extensions_mut().insert(RequestId(id.clone()));
    let exchange = Exchange::begin(&app, &request, &id);
    if let Some(exchange) = &exchange {
        request.extensions_mut().insert(exchange.tally());
    }
    let mut response = next.run(request).await;
    if let Some(Reason(reason)) = response.extensions().get() {
        app.serving.metrics.rejected(reason);
    }
    if let Ok(value) = HeaderValue::try_from(id) {
        response.headers_mut().insert(REQUEST_ID, value);
    }
    let Some(exchange) = exchange else { return response };
    let tenant = response.extensions().get().map(|TenantName(name)| name.clone());
    exchange.around(response, tenant)
}

/// Left in the response's extensions for the access log and the traces.
#[derive(Clone)]
struct TenantName(String);

fn client_id(headers: &HeaderMap) -> Option<String> {
    let id = headers.get(REQUEST_ID)?.to_str().ok()?;
    let fine = (1..=MAX_REQUEST_ID_BYTES).contains(&id.len());
    (fine && id.bytes().all(|b| b.is_ascii_graphic())).then(|| id.to_owned())
}

fn random_id() -> String {
    let mut bytes = [0u8; 16];
    // Without randomness an id is only less unique: a request must not fail for that.
    let _ = getrandom::fill(&mut bytes);
    bytes.iter().map(|b| format!("{b:02x}")).collect()
}

/// Refuses requests without an accepted key; the others carry its digest and their tenant.
pub async fn authorize(
    State(tenants): State<Arc<Tenants>>,
    mut request: Request,
    next: Next,
) -> Response {
    if let Some((tenant, digest)) = tenants.of(KeyDigest::of_headers(request.headers())) {
        let name = digest.map(|_| TenantName(tenant.name.clone()));
        request.extensions_mut().insert(tenant);
        if let Some(digest) = digest {
            request.extensions_mut().insert(digest);
        }
        let mut response = next.run(request).await;
        name.map(|name| response.extensions_mut().insert(name));
        return response;
    }
    if request.method() == Method::OPTIONS {
        return next.run(request).await;
    }
    let message = "a valid API key is required, as `Authorization: Bearer <key>` or \
                   `x-api-key: <key>`";
    ApiError::new(StatusCode::UNAUTHORIZED, "invalid_api_key", message).into_response()
}

/// The CORS layer, or none without an allowed origin.
///
/// # Errors
/// For a value that is not an origin, method or header, and for credentials with a wildcard.
pub fn cors(config: &Cors) -> Result<Option<CorsLayer>, FrontendError> {
    if config.allowed_origins.is_empty() {
        return Ok(None);
    }
    let wild = |list: &[String]| list.is_empty() || list.iter().any(|v| v == "*");
    let origins_wild = wild(&config.allowed_origins);
    if config.allow_credentials && origins_wild {
        return Err(FrontendError::Config {
            field: "allow_credentials",
            reason: "cannot be combined with the origin *".into(),
        });
    }
    // Browsers accept no wildcard with credentials: what they ask for is mirrored instead.
    let methods = match (wild(&config.allowed_methods), config.allow_credentials) {
        (true, true) => AllowMethods::mirror_request(),
        (true, false) => AllowMethods::any(),
        (false, _) => AllowMethods::list(parsed("allowed_methods", &config.allowed_methods)?),
    };
    let headers = match (wild(&config.allowed_headers), config.allow_credentials) {
        (true, true) => AllowHeaders::mirror_request(),
        (true, false) => AllowHeaders::any(),
        (false, _) => AllowHeaders::list(parsed("allowed_headers", &config.allowed_headers)?),
    };
    let origins = match origins_wild {
        true => AllowOrigin::any(),
        false => {
            AllowOrigin::list(parsed::<HeaderValue>("allowed_origins", &config.allowed_origins)?)
        }
    };
    let layer = CorsLayer::new().allow_origin(origins).allow_methods(methods);
    Ok(Some(layer.allow_headers(headers).allow_credentials(config.allow_credentials)))
}

fn parsed<T: std::str::FromStr>(
    field: &'static str,
    values: &[String],
) -> Result<Vec<T>, FrontendError> {
    let parse = |v: &String| {
        v.parse()
            .map_err(|_| FrontendError::Config { field, reason: format!("`{v}` is not valid") })
    };
    values.iter().map(parse).collect()
}
