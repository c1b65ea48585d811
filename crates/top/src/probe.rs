//! One look at a server.

use std::time::Instant;

use anyhow::bail;
use hyper::StatusCode;

use crate::http::Endpoint;
use crate::prom::Scrape;

/// What a server answered.
#[derive(Debug, Clone)]
pub struct Probe {
    /// When the series were asked for.
    pub at: Instant,
    /// The series.
    pub scrape: Scrape,
    /// Whether it takes requests (`/ready`; where there is no such path, `/health`). `None`: it
    /// does not say.
    pub ready: Option<bool>,
    /// Its version, if it tells.
    pub version: Option<String>,
}

/// Asks a server for everything that is shown.
///
/// # Errors
/// It cannot be reached, or has no metrics.
pub async fn look(endpoint: &Endpoint, api_key: Option<&str>) -> anyhow::Result<Probe> {
    let at = Instant::now();
    let (status, text) = endpoint.get("/metrics", api_key).await?;
    if status != StatusCode::OK {
        bail!("/metrics: {status}");
    }
    let scrape = Scrape::parse(&text);
    if scrape.names().next().is_none() {
        bail!("/metrics: no series in {} bytes", text.len());
    }
    let ready = readiness(endpoint, api_key).await?;
    let (status, text) = endpoint.get("/version", api_key).await?;
    let version = if status == StatusCode::OK { version(&text) } else { None };
    Ok(Probe { at, scrape, ready, version })
}

async fn readiness(endpoint: &Endpoint, api_key: Option<&str>) -> anyhow::Result<Option<bool>> {
    for path in ["/ready", "/health"] {
        match endpoint.get(path, api_key).await?.0 {
            StatusCode::NOT_FOUND | StatusCode::METHOD_NOT_ALLOWED => {}
            status => return Ok(Some(status.is_success())),
        }
    }
    Ok(None)
}

fn version(text: &str) -> Option<String> {
    let json: serde_json::Value = serde_json::from_str(text).ok()?;
    Some(json.get("version")?.as_str()?.chars().filter(|c| !c.is_control()).take(40).collect())
}
