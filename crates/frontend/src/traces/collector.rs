//! The way to a collector: the exporter's HTTP client, over the crates that the server itself uses.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use http::uri::{PathAndQuery, Scheme, Uri};
use http_body_util::{BodyExt, Full, Limited};
use hyper_rustls::{ConfigBuilderExt, HttpsConnector, HttpsConnectorBuilder};
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use opentelemetry_http::{Bytes, HttpClient, HttpError, Request, Response};
use rustls::crypto::aws_lc_rs;

use crate::error::FrontendError;

/// A batch is given up after this time.
const SEND_WITHIN: Duration = Duration::from_secs(10);
/// A collector's answer is a few numbers and a sentence.
const MAX_ANSWER_BYTES: usize = 64 * 1024;
/// Where the specification of OTLP has traces.
const PATH: &str = "/v1/traces";

/// Sends requests to one collector.
#[derive(Debug)]
pub struct Collector {
    client: Client<HttpsConnector<HttpConnector>, Full<Bytes>>,
}

/// The endpoint as given, with a path.
///
/// # Errors
/// If it is not a URL of http or https.
pub fn endpoint(given: &str) -> Result<Uri, FrontendError> {
    let uri: Uri = given.parse().map_err(|e| wrong(format!("`{given}` is not a URL: {e}")))?;
    let scheme = uri.scheme();
    if (scheme != Some(&Scheme::HTTP) && scheme != Some(&Scheme::HTTPS)) || uri.host().is_none() {
        return Err(wrong(format!("must be http://HOST:PORT or https://HOST:PORT, got `{given}`")));
    }
    let mut parts = uri.into_parts();
    if parts.path_and_query.as_ref().is_none_or(|path| path.as_str() == "/") {
        parts.path_and_query = Some(PathAndQuery::from_static(PATH));
    }
    Uri::from_parts(parts).map_err(|e| wrong(e.to_string()))
}

impl Collector {
    /// For an endpoint of this scheme; the system's certificates are read only for https.
    ///
    /// # Errors
    /// If there are none, or they cannot be read.
    pub fn of(endpoint: &Uri) -> Result<Self, FrontendError> {
        let builder =
            rustls::ClientConfig::builder_with_provider(Arc::new(aws_lc_rs::default_provider()))
                .with_safe_default_protocol_versions()
                .map_err(|e| wrong(e.to_string()))?;
        let config = match endpoint.scheme() == Some(&Scheme::HTTPS) {
            true => builder.try_with_platform_verifier().map_err(|e| wrong(e.to_string()))?,
            false => builder.with_root_certificates(rustls::RootCertStore::empty()),
        };
        let connector = HttpsConnectorBuilder::new()
            .with_tls_config(config.with_no_client_auth())
            .https_or_http()
            .enable_http1()
            .build();
        Ok(Self { client: Client::builder(TokioExecutor::new()).build(connector) })
    }
}

#[async_trait]
impl HttpClient for Collector {
    async fn send_bytes(&self, request: Request<Bytes>) -> Result<Response<Bytes>, HttpError> {
        let exchange = async {
            let response = self.client.request(request.map(Full::new)).await?;
            let (head, body) = response.into_parts();
            let body = Limited::new(body, MAX_ANSWER_BYTES).collect().await?.to_bytes();
            Ok(Response::from_parts(head, body))
        };
        let late = |_| HttpError::from(format!("no answer within {SEND_WITHIN:?}"));
        tokio::time::timeout(SEND_WITHIN, exchange).await.map_err(late)?
    }
}

fn wrong(reason: String) -> FrontendError {
    FrontendError::Config { field: "otlp_traces_endpoint", reason }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_endpoint_without_a_path_gets_that_of_traces() {
        for (given, taken) in [
            ("http://localhost:4318", "http://localhost:4318/v1/traces"),
            ("https://c.example/", "https://c.example/v1/traces"),
            ("http://[::1]:4318/api/otlp?x=1", "http://[::1]:4318/api/otlp?x=1"),
        ] {
            assert_eq!(endpoint(given).expect(given).to_string(), taken);
        }
        for wrong in ["", "localhost:4318", "/v1/traces", "grpc://localhost:4317", "http://", "a b"]
        {
            let error = endpoint(wrong).expect_err(wrong).to_string();
            assert!(error.starts_with("otlp_traces_endpoint: "), "{error}");
        }
    }
}
