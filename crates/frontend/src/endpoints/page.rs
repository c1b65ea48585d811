//! `GET /`: a page to chat with the model and to watch the machine; `GET /ui/state` is its data.

use std::sync::Arc;

use axum::extract::State;
use axum::response::{Html, IntoResponse, Response};
use http::{HeaderName, HeaderValue, header};
use serde::Serialize;

use crate::http::app::App;
use crate::metrics::RecentState;

const PAGE: &str = include_str!("../ui/index.html");
/// Nothing from elsewhere; scripts and styles are in the page itself.
const POLICY: HeaderValue = HeaderValue::from_static(
    "default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'; connect-src 'self'; \
     img-src data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
);

/// The page.
pub async fn page() -> Response {
    let headers = [
        (header::CONTENT_SECURITY_POLICY, POLICY),
        (header::CACHE_CONTROL, HeaderValue::from_static("no-cache")),
        (HeaderName::from_static("x-content-type-options"), HeaderValue::from_static("nosniff")),
        (HeaderName::from_static("referrer-policy"), HeaderValue::from_static("no-referrer")),
    ];
    (headers, Html(PAGE)).into_response()
}

#[derive(Serialize)]
struct MachineState {
    model: String,
    version: &'static str,
    ready: bool,
    phase: &'static str,
    epoch: u32,
    load_done_bytes: u64,
    load_total_bytes: u64,
    needs_key: bool,
    has_chat_template: bool,
    max_model_len: u32,
    max_num_seqs: u32,
    running: u32,
    waiting: u32,
    paused: u32,
    slots: Vec<usize>,
    blocks_used: u32,
    num_blocks: u32,
    block_size: u32,
    steps: u64,
    prefill_tokens: u64,
    preemptions: u64,
    recent: RecentState,
}

/// What the machine does right now.
pub async fn state(State(app): State<Arc<App>>) -> Response {
    let reading = app.reading();
    let (device, stats) = (reading.device, reading.stats);
    super::status::json(&MachineState {
        model: app.names[0].clone(),
        version: env!("CARGO_PKG_VERSION"),
        ready: device.ready(),
        phase: match device.phase {
            saccade_ring::Phase::Absent => "absent",
            saccade_ring::Phase::Loading => "loading",
            saccade_ring::Phase::Ready => "ready",
            saccade_ring::Phase::Failed => "failed",
        },
        epoch: device.epoch,
        load_done_bytes: device.load_done_bytes,
        load_total_bytes: device.load_total_bytes,
        needs_key: !app.config.api_keys.is_empty(),
        has_chat_template: app.serving.assets.template.is_some(),
        max_model_len: device.max_model_len,
        max_num_seqs: device.max_num_seqs,
        running: stats.num_running,
        waiting: stats.num_waiting,
        paused: stats.num_paused,
        slots: reading.slots,
        blocks_used: stats.blocks_used,
        num_blocks: device.num_blocks,
        block_size: device.block_size,
        steps: stats.steps,
        prefill_tokens: stats.prefill_tokens,
        preemptions: stats.preemptions,
        recent: app.serving.metrics.recent.state(),
    })
}
