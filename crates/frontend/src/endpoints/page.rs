//! `GET /`: a page to chat with the model and to watch the machine; `GET /ui/state` is its data.

use std::sync::{Arc, LazyLock};

use axum::extract::State;
use axum::response::{Html, IntoResponse, Response};
use http::header;
use serde::Serialize;

use crate::api_error::ApiError;
use crate::http::app::App;
use crate::metrics::RecentState;

const FRAME: &str = include_str!("../ui/index.html");
const STYLE: &str = include_str!("../ui/page.css");
/// One script: each part uses those before it.
const SCRIPTS: [&str; 5] = [
    include_str!("../ui/dom.js"),
    include_str!("../ui/value.js"),
    include_str!("../ui/asked.js"),
    include_str!("../ui/chat.js"),
    include_str!("../ui/machine.js"),
];
/// The parts in one file, so that a browser asks once and the policy allows one nonce.
static PAGE: LazyLock<String> =
    LazyLock::new(|| FRAME.replace("{{style}}", STYLE).replace("{{script}}", &SCRIPTS.concat()));
/// Placeholder in the page for the nonce of one answer.
const NONCE: &str = "{{nonce}}";

/// The page. It loads nothing from elsewhere, and only what carries this answer's nonce runs.
pub async fn page() -> Response {
    let mut bytes = [0u8; 16];
    if let Err(error) = getrandom::fill(&mut bytes) {
        return ApiError::internal(format!("no random nonce: {error}")).into_response();
    }
    let nonce: String = bytes.iter().map(|b| format!("{b:02x}")).collect();
    // Widths of bars are set through the DOM, which is not an inline style.
    let policy = format!(
        "default-src 'none'; script-src 'nonce-{nonce}'; style-src 'nonce-{nonce}'; \
         connect-src 'self'; img-src data:; base-uri 'none'; form-action 'none'; \
         frame-ancestors 'none'"
    );
    let headers = [
        (header::CONTENT_SECURITY_POLICY.as_str(), policy.as_str()),
        (header::CACHE_CONTROL.as_str(), "no-cache"),
        ("x-content-type-options", "nosniff"),
        ("referrer-policy", "no-referrer"),
    ];
    (headers, Html(PAGE.replace(NONCE, &nonce))).into_response()
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
    prefix_query_tokens: u64,
    prefix_hit_tokens: u64,
    recent: RecentState,
}

/// What the machine does right now.
pub async fn state(State(app): State<Arc<App>>) -> Response {
    let reading = app.reading();
    let (device, stats) = (reading.device, reading.stats);
    let state = MachineState {
        model: app.models.first().to_owned(),
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
        needs_key: app.tenants.keys_required(),
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
        prefix_query_tokens: stats.prefix_query_tokens,
        prefix_hit_tokens: stats.prefix_hit_tokens,
        recent: app.serving.metrics.recent.state(),
    };
    let headers = [(header::CACHE_CONTROL, "no-store")];
    (headers, super::status::json(&state)).into_response()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_parts_make_one_page() {
        assert!(SCRIPTS.iter().all(|script| PAGE.contains(script)) && PAGE.contains(STYLE));
        // A tag in a part would end the element that it is in.
        assert_eq!(PAGE.matches("</script").count(), 1);
        assert_eq!(PAGE.matches("</style").count(), 1);
        assert_eq!(PAGE.matches("{{").count(), PAGE.matches(NONCE).count());
        assert!(!PAGE.contains("innerHTML") && !PAGE.contains("style="));
    }
}
