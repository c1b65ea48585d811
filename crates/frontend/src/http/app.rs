//! What every handler shares.

use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use saccade_ring::layout;
use tokio::sync::Semaphore;

use super::Connections;
use crate::api_error::ApiError;
use crate::config::FrontendConfig;
use crate::lifecycle::Lifecycle;
use crate::metrics::Reading;
use crate::ring::ReaderCounters;
use crate::serving::Serving;
use crate::validate::ModelLimits;

/// Bytes per permit of the body budget.
pub const BODY_PERMIT_BYTES: usize = 1024;

/// State of the HTTP side; a copy per HTTP thread.
#[derive(Clone)]
pub struct App {
    /// As given.
    pub config: FrontendConfig,
    /// Names that requests may use; not empty.
    pub names: Vec<String>,
    /// Everything below HTTP.
    pub serving: Serving,
    /// Serving, draining, stopping.
    pub lifecycle: Lifecycle,
    /// What the token reader counts.
    pub reader: Arc<ReaderCounters>,
    /// Open connections.
    pub connections: Connections,
    /// Memory for bodies that are being read.
    pub body_budget: Arc<Semaphore>,
    /// Start of this frontend, seconds since 1970.
    pub started_unix_s: u64,
}

impl App {
    /// Limits of the model, if the device takes requests.
    ///
    /// # Errors
    /// 503 otherwise.
    pub fn model_limits(&self) -> Result<ModelLimits, ApiError> {
        let device = self.serving.port.device();
        if !device.ready() {
            return Err(ApiError::not_ready(match device.phase {
                saccade_ring::Phase::Loading => "the device is loading the model",
                _ => "the device is not ready",
            }));
        }
        Ok(ModelLimits {
            vocab_size: device.vocab_size,
            max_model_len: device.max_model_len,
            priority: self.config.priority_scheduling,
        })
    }

    /// The name to answer with.
    ///
    /// # Errors
    /// 404 for a model that is not served here.
    pub fn model_name(&self, asked: Option<&str>) -> Result<String, ApiError> {
        match asked {
            None | Some("") => Ok(self.names[0].clone()),
            Some(name) if self.names.iter().any(|n| n == name) => Ok(name.to_owned()),
            Some(name) => {
                let shown: String = name.chars().take(128).collect();
                let mut error = ApiError::new(
                    http::StatusCode::NOT_FOUND,
                    "model_not_found",
                    format!("The model `{shown}` does not exist."),
                );
                error.param = Some("model".into());
                Err(error)
            }
        }
    }

    /// A reading of everything that the metrics and the page mirror.
    pub fn reading(&self) -> Reading {
        use std::sync::atomic::Ordering::Relaxed;
        let port = &self.serving.port;
        Reading {
            device: port.device(),
            stats: port.stats(),
            fetch: port.fetch_stats(),
            slots: port.slot_states(),
            tokenizer_queue: self.serving.lanes.depth(),
            requests: self.lifecycle.in_flight(),
            connections: self.connections.open(),
            violations: self.reader.violations.load(Relaxed),
            stalled: self.reader.stalled.load(Relaxed),
            frontend_epoch: port.frontend_epoch(),
        }
    }

    /// Refuses `choices` that cannot be submitted now, before any work is done for them; the
    /// submission itself has the last word.
    ///
    /// # Errors
    /// 400 for more choices than slots, 429 if the slots are taken, or if more requests wait for a
    /// seat than the configuration allows.
    pub fn check_room(&self, choices: usize) -> Result<(), ApiError> {
        let port = &self.serving.port;
        let slots = port.num_slots();
        if choices > slots {
            return Err(ApiError::invalid(
                "n",
                format!(
                    "`n` times the number of prompts must be at most {slots} (slots of this \
                     server), got {choices}"
                ),
            ));
        }
        if port.free_slots() < choices {
            let retry_after_s = self.serving.retry_after_s();
            return Err(ApiError::overloaded("all slots of this server are in use", retry_after_s));
        }
        self.check_queue()
    }

    /// Requests beyond the device's free seats count as waiting.
    fn check_queue(&self) -> Result<(), ApiError> {
        let Some(max) = self.config.max_num_queued_reqs else { return Ok(()) };
        let port = &self.serving.port;
        let states = port.slot_states();
        let pending = states.get(PREFILL_PENDING).copied().unwrap_or(0);
        let seated: usize = SEATED.iter().filter_map(|&state| states.get(state)).sum();
        let running = seated.max(port.stats().num_running as usize);
        let free_seats = (port.device().max_num_seqs as usize).saturating_sub(running);
        if pending < max + free_seats {
            return Ok(());
        }
        Err(ApiError::overloaded(
            format!("{pending} requests wait already, at most {max} may (max_num_queued_reqs)"),
            self.serving.retry_after_s(),
        ))
    }
}

const PREFILL_PENDING: usize = layout::SAC_STATE_PREFILL_PENDING as usize;
/// States of requests that hold a seat.
const SEATED: [usize; 3] = [
    layout::SAC_STATE_PREFILL_PROCESSING as usize,
    layout::SAC_STATE_DECODE_PROCESSING as usize,
    layout::SAC_STATE_DECODE_PAUSED as usize,
];

/// Seconds since 1970.
pub fn unix_s() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |d| d.as_secs())
}
