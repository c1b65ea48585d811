//! `POST /measure_roof`, and the roof in `GET /version`

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use axum::extract::State;
use axum::response::Response;
use http::StatusCode;
use saccade_ring::Roof;
use serde::Serialize;

use super::status::json;
use crate::api_error::ApiError;
use crate::http::app::App;

/// Longest wait for a moment in which no request is in flight.
const LONGEST_WAIT: Duration = Duration::from_secs(10);
/// Between two looks for the result.
const LOOK_EVERY: Duration = Duration::from_millis(10);

/// What memory and arithmetic allow the device's steps.
#[derive(Debug, Serialize)]
pub struct DeviceRoof {
    kernels: String,
    num_threads: u32,
    /// All weights, as the kernels read them.
    weight_bytes: u64,
    huge_page_bytes: u64,
    /// Weights that a step of one row reads.
    step_weight_bytes: u64,
    /// Multiplications and additions of a row with them, logits included.
    row_flops: u64,
    read_bytes_per_second: u64,
    /// By rows of a step.
    product_flops_per_second: BTreeMap<u32, u64>,
}

impl From<Roof> for DeviceRoof {
    fn from(roof: Roof) -> DeviceRoof {
        DeviceRoof {
            kernels: roof.kernels,
            num_threads: roof.num_threads,
            weight_bytes: roof.packed_bytes,
            huge_page_bytes: roof.huge_page_bytes,
            step_weight_bytes: roof.step_weight_bytes,
            row_flops: roof.row_flop,
            read_bytes_per_second: roof.read_bytes_per_s,
            product_flops_per_second: roof.product_flop_per_s.into_iter().collect(),
        }
    }
}

/// Has the device measure its roof in the process that serves, between two requests, and answers
/// with it. The requests of a moment wait for it: some tens of milliseconds, or three readings of
/// the weights where that is more.
///
/// # Errors
/// 501 for devices that measure nothing, 503 if the device is never idle for so long as it waits.
pub async fn measure(State(app): State<Arc<App>>) -> Result<Response, ApiError> {
    app.model_limits()?;
    let Some(before) = app.on_port(|port| port.roof()).await? else {
        let message = "this device does not measure its roof: only --device cpu does";
        return Err(ApiError::new(StatusCode::NOT_IMPLEMENTED, "no_roof", message));
    };
    let asked = app.on_port(|port| port.ask_roof()).await?;
    asked.map_err(|e| ApiError::not_ready(format!("the roof was not measured: {e}")))?;
    let until = Instant::now() + LONGEST_WAIT;
    while Instant::now() < until {
        tokio::time::sleep(LOOK_EVERY).await;
        let now = app.on_port(|port| port.roof()).await?;
        if let Some(roof) = now.filter(|now| now.generation != before.generation) {
            return Ok(json(&DeviceRoof::from(roof)));
        }
    }
    let seconds = LONGEST_WAIT.as_secs();
    Err(ApiError::not_ready(format!(
        "the roof was not measured within {seconds} s: the device measures while no request is in \
         flight, and rests after each measurement"
    )))
}
