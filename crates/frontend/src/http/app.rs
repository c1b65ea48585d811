//! What every handler shares.

use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use saccade_ring::layout;

use super::Connections;
use super::access_log::AccessLog;
use super::budget::MemoryBudget;
use super::host::AllowedHosts;
use super::tls::Tls;
use crate::api_error::ApiError;
use crate::config::FrontendConfig;
use crate::lifecycle::Lifecycle;
use crate::metrics::Reading;
use crate::ring::{DevicePort, ReaderCounters};
use crate::served::{NamedModel, ServedModels};
use crate::serving::Serving;
use crate::tenants::{Tenant, Tenants, Terms};
use crate::traces::Traces;
use crate::validate::ModelLimits;

/// State of the HTTP side; a copy per HTTP thread.
#[derive(Clone)]
pub struct App {
    /// As given.
    pub config: FrontendConfig,
    /// Names that requests may use.
    pub models: Arc<ServedModels>,
    /// Everything below HTTP.
    pub serving: Serving,
    /// Serving, draining, stopping.
    pub lifecycle: Lifecycle,
    /// What the token reader counts.
    pub reader: Arc<ReaderCounters>,
    /// Open connections.
    pub connections: Connections,
    /// Who requests come from.
    pub tenants: Arc<Tenants>,
    /// The server's identity, if connections are encrypted.
    pub tls: Option<Arc<Tls>>,
    /// A line for each request, if it was asked for.
    pub access_log: Option<Arc<AccessLog>>,
    /// A span for each request of the API, if it was asked for.
    pub traces: Option<Arc<Traces>>,
    /// Hosts that requests may name.
    pub allowed_hosts: Arc<AllowedHosts>,
    /// Memory for large requests.
    pub memory: MemoryBudget,
    /// Start of this frontend, seconds since 1970.
    pub started_unix_s: u64,
}

impl App {
    /// Limits of the model, if the device takes requests; nothing is said of any tenant's terms.
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
            terms: Terms::ANY,
        })
    }

    /// The model that a request names, for what does not reach the device.
    ///
    /// # Errors
    /// 404 for a model that is not served here.
    pub fn named_model(&self, asked: Option<&str>) -> Result<NamedModel, ApiError> {
        self.models.find(asked).ok_or_else(|| {
            let shown: String = asked.unwrap_or_default().chars().take(128).collect();
            let mut error = ApiError::new(
                http::StatusCode::NOT_FOUND,
                "model_not_found",
                format!("The model `{shown}` does not exist."),
            );
            error.param = Some("model".into());
            error
        })
    }

    /// The same, for what the device shall answer.
    ///
    /// # Errors
    /// 404 for a model that is not served here, 503 for an adapter that the device lacks: the model
    /// without it would give another answer.
    pub fn model(&self, asked: Option<&str>) -> Result<NamedModel, ApiError> {
        let model = self.named_model(asked)?;
        let loaded = self.serving.port.device().num_adapters;
        if model.adapter <= loaded {
            return Ok(model);
        }
        let message = format!(
            "The model `{}` is adapter {} of --lora-modules, and the device plane has loaded \
             {loaded}; start it with the same --lora-modules.",
            model.name, model.adapter
        );
        let status = http::StatusCode::SERVICE_UNAVAILABLE;
        let mut error = ApiError::new(status, "adapter_not_loaded", message);
        error.param = Some("model".into());
        Err(error)
    }

    /// Uses the ring off the reactor: a region behind a network takes round trips, with a bound of
    /// their own.
    ///
    /// # Errors
    /// 500 if `ask` panics.
    pub async fn on_port<T: Send + 'static>(
        &self,
        ask: impl FnOnce(&dyn DevicePort) -> T + Send + 'static,
    ) -> Result<T, ApiError> {
        let port = self.serving.port.clone();
        let answer = tokio::task::spawn_blocking(move || ask(&*port));
        answer.await.map_err(|e| ApiError::internal(e.to_string()))
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
    /// 400 for more choices than slots; 429 if the slots are taken, if more requests wait for a
    /// seat than the configuration allows, or if `tenant` has more than its share while requests
    /// wait.
    pub fn check_room(&self, choices: usize, tenant: &Tenant) -> Result<(), ApiError> {
        self.check_slots(choices)?;
        if self.serving.port.free_slots() < choices {
            let retry_after_s = self.serving.retry_after_s();
            return Err(ApiError::overloaded("all slots of this server are in use", retry_after_s));
        }
        self.check_queue()?;
        self.check_share(choices, tenant)
    }

    /// Refuses `choices` that can never be submitted together.
    ///
    /// # Errors
    /// 400
    pub fn check_slots(&self, choices: usize) -> Result<(), ApiError> {
        let slots = self.serving.port.num_slots();
        if choices <= slots {
            return Ok(());
        }
        let message = format!(
            "`n` times the number of prompts must be at most {slots} (slots of this server), got \
             {choices}"
        );
        Err(ApiError::invalid("n", message))
    }

    /// Requests beyond the device's free seats count as waiting.
    fn check_queue(&self) -> Result<(), ApiError> {
        let Some(max) = self.config.max_num_queued_reqs else { return Ok(()) };
        let Seats { pending, free } = self.seats();
        if pending < max + free {
            return Ok(());
        }
        Err(ApiError::overloaded(
            format!("{pending} requests wait already, at most {max} may (max_num_queued_reqs)"),
            self.serving.retry_after_s(),
        ))
    }

    /// A tenant may use seats that others leave free, and only its share of them once requests
    /// wait: so its requests never queue before another's beyond that share. `choices` are counted
    /// in already.
    fn check_share(&self, choices: usize, tenant: &Tenant) -> Result<(), ApiError> {
        if !self.tenants.are_several() {
            return Ok(());
        }
        let guaranteed = tenant.guaranteed_seats(self.serving.port.device().max_num_seqs);
        let Seats { pending, free } = self.seats();
        if tenant.requests_in_flight() <= guaranteed || pending + choices <= free {
            return Ok(());
        }
        let message = format!(
            "requests wait, and tenant `{}` has its share of {guaranteed} in flight",
            tenant.name
        );
        let mut error = ApiError::overloaded(message, self.serving.retry_after_s());
        error.code = "tenant_share_used";
        Err(error)
    }

    fn seats(&self) -> Seats {
        let port = &self.serving.port;
        let states = port.slot_states();
        let pending = states.get(PREFILL_PENDING).copied().unwrap_or(0);
        let seated: usize = SEATED.iter().filter_map(|&state| states.get(state)).sum();
        let running = seated.max(port.stats().num_running as usize);
        Seats { pending, free: (port.device().max_num_seqs as usize).saturating_sub(running) }
    }
}

/// Of the device, as this frontend sees it.
struct Seats {
    /// Requests that have none yet.
    pending: usize,
    free: usize,
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
